// SPDX-License-Identifier: Apache-2.0
// A convolution whose windows lie side by side and cover x, as a matmul: [N, positions..., C, window...] times [O, C, window...].
#include <algorithm>

#include "stepgraph/compile/passes/canonical_rewrites.h"

namespace stepgraph {
namespace {

/// Sizes of the convolution: those of x are [n, channels, positions * window], of the weight [out, channels, window].
struct SideBySide {
  Dim n, channels, out;
  Shape positions, window;
  size_t spatial() const { return window.size(); }

  /// [n, channels, position, window, position, window, ...]
  Shape split() const {
    Shape shape{n, channels};
    for (size_t d = 0; d < spatial(); ++d) shape.push_back(positions[d]), shape.push_back(window[d]);
    return shape;
  }
  /// From there to [n, positions..., channels, window...].
  std::vector<int64_t> to_rows() const {
    std::vector<int64_t> permutation{0};
    for (size_t d = 0; d < spatial(); ++d) permutation.push_back(static_cast<int64_t>(2 + 2 * d));
    permutation.push_back(1);
    for (size_t d = 0; d < spatial(); ++d) permutation.push_back(static_cast<int64_t>(3 + 2 * d));
    return permutation;
  }
  /// From [n, out, positions...] to [n, positions..., out].
  std::vector<int64_t> channels_last() const {
    std::vector<int64_t> permutation{0};
    for (size_t d = 0; d < spatial(); ++d) permutation.push_back(static_cast<int64_t>(2 + d));
    permutation.push_back(1);
    return permutation;
  }
};

std::vector<int64_t> inverse(const std::vector<int64_t>& permutation) {
  std::vector<int64_t> result(permutation.size());
  for (size_t i = 0; i < result.size(); ++i) result[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  return result;
}
std::vector<int64_t> numbers_from(int64_t first, size_t count) {
  std::vector<int64_t> result;
  for (size_t i = 0; i < count; ++i) result.push_back(first + static_cast<int64_t>(i));
  return result;
}

std::optional<SideBySide> side_by_side(const NodeRewrite& node, const Convolution& op, const Shape& x, const Shape& weight) {
  const auto all = [](const std::vector<int64_t>& values, int64_t wanted) {
    return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == wanted; });
  };
  if (op.groups != 1 || !all(op.window.padding_low, 0) || !all(op.window.padding_high, 0) || !all(op.window.dilation, 1)) return std::nullopt;
  SideBySide sizes{x[0], x[1], weight[0], {}, {}};
  bool is_point = true;  // a window of one element is better left in the library's layout
  for (size_t d = 2; d < x.size(); ++d) {
    const int64_t stride = op.window.strides[d - 2];
    if (weight[d] != Dim(stride) || node.symbols().divides(stride, x[d]) != Truth::True) return std::nullopt;
    sizes.positions.push_back(node.symbols().simplify(floordiv(x[d], stride)));
    sizes.window.push_back(stride);
    is_point = is_point && stride == 1;
  }
  return is_point ? std::nullopt : std::optional(sizes);
}

}  // namespace

Rewritten multiply_windows(const NodeRewrite& node) {
  const auto* op = std::get_if<Convolution>(&node.op);
  if (op == nullptr) return std::nullopt;
  const bool is_weight_gradient = op->kind == ConvolutionKind::WeightGradient, is_input_gradient = op->kind == ConvolutionKind::InputGradient;
  const std::optional<SideBySide> sizes =
      side_by_side(node, *op, is_input_gradient ? op->shape : node.inputs[0].shape(), is_weight_gradient ? op->shape : node.inputs[1].shape());
  if (!sizes) return std::nullopt;
  Builder& builder = node.builder;
  const size_t spatial = sizes->spatial();
  const auto positions = static_cast<int64_t>(spatial);
  const auto rows_of = [&](Value x) { return builder.emit_one(Transpose{sizes->to_rows()}, {builder.emit_one(Reshape{sizes->split()}, {x})}); };
  const auto channels_last = [&](Value y) { return builder.emit_one(Transpose{sizes->channels_last()}, {y}); };
  if (is_weight_gradient) {
    const std::vector<int64_t> inner = numbers_from(0, spatial + 1);
    return {{builder.emit_one(MatMul{{}, {}, inner, inner, {}}, {channels_last(node.inputs[1]), rows_of(node.inputs[0])})}};
  }
  if (is_input_gradient) {
    const Value rows = builder.emit_one(MatMul{{}, {}, {positions + 1}, {0}, {}}, {channels_last(node.inputs[0]), node.inputs[1]});
    const Value split = builder.emit_one(Transpose{inverse(sizes->to_rows())}, {rows});
    return {{builder.emit_one(Reshape{op->shape}, {split})}};
  }
  const MatMul product{{}, {}, numbers_from(positions + 1, spatial + 1), numbers_from(1, spatial + 1), {}};
  return {{builder.emit_one(Transpose{inverse(sizes->channels_last())}, {builder.emit_one(product, {rows_of(node.inputs[0]), node.inputs[1]})})}};
}

}  // namespace stepgraph
