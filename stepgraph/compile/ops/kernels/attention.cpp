// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/kernels/attention.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ops/kernels/draws.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/kernels/matmul.h"
#include "stepgraph/tensor/philox.h"

namespace stepgraph {
namespace {

constexpr double never = -std::numeric_limits<double>::infinity();

struct AttentionSizes {
  Sizes batch;  // the dims before the heads
  int64_t batches = 1, heads = 1, key_heads = 1, queries = 0, keys = 0, width = 0, value_width = 0;
};

AttentionSizes sizes_of_operands(const Literal& q, const Literal& k, const Literal& v) {
  const size_t rank = q.rank(), lead = rank < 3 ? 0 : rank - 3;
  AttentionSizes sizes;
  sizes.batch.assign(q.sizes().begin(), q.sizes().begin() + static_cast<std::ptrdiff_t>(lead));
  sizes.batches = element_count(sizes.batch);
  if (rank > 2) sizes.heads = q.sizes()[rank - 3], sizes.key_heads = k.sizes()[rank - 3];
  sizes.queries = q.sizes()[rank - 2], sizes.keys = k.sizes()[rank - 2];
  sizes.width = q.sizes()[rank - 1], sizes.value_width = v.sizes()[rank - 1];
  Sizes k_wanted = sizes.batch, v_wanted;
  if (rank > 2) k_wanted.push_back(sizes.key_heads);
  v_wanted = k_wanted;
  k_wanted.insert(k_wanted.end(), {sizes.keys, sizes.width});
  v_wanted.insert(v_wanted.end(), {sizes.keys, sizes.value_width});
  const bool shares = sizes.key_heads == 0 ? sizes.heads == 0 : sizes.heads % sizes.key_heads == 0;
  if (k.sizes() != k_wanted || v.sizes() != v_wanted || !shares)
    throw UserError(fmt::format("attention: sizes do not fit: query {}, key {}, value {}", q.text(0), k.text(0), v.text(0)));
  return sizes;
}

std::vector<int64_t> steps(int64_t count, int64_t stride) {
  std::vector<int64_t> result(static_cast<size_t>(count));
  for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<int64_t>(i) * stride;
  return result;
}

/// One of a row of equal matrices, [rows, columns], and products of them.
struct Matrix {
  const std::byte* data;
  DType dtype;
  int64_t rows, columns;
};
Matrix matrix(const Literal& from, int64_t index, int64_t rows, int64_t columns) {
  return {from.data() + static_cast<size_t>(index * rows * columns) * size_bytes(from.dtype()), from.dtype(), rows, columns};
}
Matrix matrix(const std::vector<double>& from, int64_t rows, int64_t columns) {
  return {reinterpret_cast<const std::byte*>(from.data()), DType::F64, rows, columns};
}
/// a b, or of either the transpose, in f64; added to what is there, or in its place.
void multiply_matrices(const Matrix& a, bool transpose_a, const Matrix& b, bool transpose_b, std::vector<double>& result, MatMulSpace& space,
                       bool add = false) {
  std::vector<int64_t> a_rows = steps(a.rows, a.columns), a_columns = steps(a.columns, 1), b_rows = steps(b.rows, b.columns), b_columns = steps(b.columns, 1);
  if (transpose_a) std::swap(a_rows, a_columns);
  if (transpose_b) std::swap(b_rows, b_columns);
  result.resize(a_rows.size() * b_columns.size());
  multiply({a.data, a.dtype, &a_rows, &a_columns}, {b.data, b.dtype, &b_rows, &b_columns}, reinterpret_cast<std::byte*>(result.data()), DType::F64, space, add);
}

std::vector<double> loaded(const Literal& from, int64_t first, int64_t count) {
  std::vector<double> result(static_cast<size_t>(count));
  load_elements(from, first, count, result.data());
  return result;
}
void store(Literal& to, int64_t first, const std::vector<double>& values) {
  store_elements(to.dtype(), to.mutable_data() + static_cast<size_t>(first) * size_bytes(to.dtype()), static_cast<int64_t>(values.size()), values.data());
}

/// A mask laid over all scores, [batch..., heads, queries, keys].
class MaskView {
 public:
  MaskView(const Literal* mask, const AttentionSizes& sizes) : mask_(mask) {
    if (mask == nullptr) return;
    Sizes wanted = sizes.batch;
    wanted.insert(wanted.end(), {sizes.heads, sizes.queries, sizes.keys});
    const Sizes own = row_major_strides(mask->sizes());
    strides_.assign(wanted.size(), 0);
    for (size_t d = 0; d < mask->rank(); ++d) {
      const size_t to = wanted.size() - mask->rank() + d;
      if (mask->sizes()[d] != 1 && mask->sizes()[d] != wanted[to])
        throw UserError(fmt::format("attention: mask {} does not broadcast to {}", mask->text(0), text(Shape(wanted.begin(), wanted.end()))));
      if (mask->sizes()[d] != 1) strides_[to] = own[d];
    }
    batch_ = sizes.batch;
    values_ = loaded(*mask, 0, mask->count());
  }
  bool is_bool() const { return mask_->dtype() == DType::Bool; }
  const Literal* literal() const { return mask_; }
  /// Offset of the first element for a head.
  int64_t start(int64_t batch, int64_t head) const {
    int64_t offset = head * strides_[batch_.size()];
    for (size_t d = batch_.size(); d-- > 0; batch /= batch_[d]) offset += batch % batch_[d] * strides_[d];
    return offset;
  }
  int64_t offset(int64_t start, int64_t query, int64_t key) const { return start + query * strides_[batch_.size() + 1] + key * strides_[batch_.size() + 2]; }
  double at(int64_t offset) const { return values_[static_cast<size_t>(offset)]; }

 private:
  const Literal* mask_;
  Sizes batch_, strides_;
  std::vector<double> values_;
};

/// What dropout multiplies the weights with: 0 for those that are dropped.
class WeightDraw {
 public:
  WeightDraw(const Attention& op, const Literal* key, const AttentionSizes& sizes) : batch_(sizes.batch), has_heads_(op.place.starts.size() > 2) {
    if (key == nullptr) return;
    key_ = static_cast<uint64_t>(key->integer_at(0));
    elements_ = draw_elements(op.place);
    rate_ = static_cast<double>(static_cast<float>(op.dropout));  // as the draws, of f32
    kept_ = op.dropout == 1 ? 0.0 : 1 / (1 - op.dropout);
    draws_ = true;
  }
  bool draws() const { return draws_; }
  double factor(int64_t batch, int64_t head, int64_t query, int64_t key) const {
    const size_t rank = elements_.strides.size();
    int64_t element = elements_.origin + query * elements_.strides[rank - 2] + key * elements_.strides[rank - 1];
    if (has_heads_) element += head * elements_.strides[rank - 3];
    for (size_t d = batch_.size(); d-- > 0; batch /= batch_[d]) element += batch % batch_[d] * elements_.strides[d];
    return uniform_element(key_, static_cast<uint64_t>(element), DType::F32) < rate_ ? 0.0 : kept_;
  }

 private:
  Sizes batch_;
  bool has_heads_, draws_ = false;
  uint64_t key_ = 0;
  DrawElements elements_;
  double rate_ = 0, kept_ = 1;
};

/// The scores of one head, [queries, keys]: -inf where a query must not see a key.
void score(const Attention& op, const AttentionSizes& sizes, const Literal& q, const Literal& k, const MaskView& mask, int64_t batch, int64_t head,
           std::vector<double>& scores, MatMulSpace& space) {
  const int64_t key_head = head / (sizes.heads / sizes.key_heads);
  multiply_matrices(matrix(q, batch * sizes.heads + head, sizes.queries, sizes.width), false,
                    matrix(k, batch * sizes.key_heads + key_head, sizes.keys, sizes.width), true, scores, space);
  const int64_t start = mask.literal() ? mask.start(batch, head) : 0;
  for (int64_t i = 0; i < sizes.queries; ++i) {
    double* row = scores.data() + i * sizes.keys;
    for (int64_t j = 0; j < sizes.keys; ++j) {
      row[j] *= op.scale;
      const bool hidden = op.causal && j > i;
      if (hidden) row[j] = never;
      if (hidden || !mask.literal()) continue;
      const double given = mask.at(mask.offset(start, i, j));
      if (!mask.is_bool())
        row[j] += given;
      else if (given == 0)
        row[j] = never;
    }
  }
}

/// A row of scores becomes its weights; returns the logarithm of the sum of exponentials.
double soften(double* row, int64_t count) {
  double top = never;
  for (int64_t j = 0; j < count && !std::isnan(top); ++j)
    if (row[j] > top || std::isnan(row[j])) top = row[j];
  if (top == never) {
    std::fill_n(row, count, 0.0);
    return never;
  }
  double total = 0;
  for (int64_t j = 0; j < count; ++j) total += row[j] = std::exp(row[j] - top);
  for (int64_t j = 0; j < count; ++j) row[j] /= total;
  return top + std::log(total);
}

Literal made(const TensorType& type) { return Literal::uninitialised(type.dtype, sizes_of(type)); }

}  // namespace

AttentionInputs::AttentionInputs(const Attention& op, size_t count) : own(count) {
  const size_t keys = op.dropout != 0 ? 1 : 0;
  fit = count == 3 + keys || count == 4 + keys;
  if (fit && count > 3 + keys) mask = 3;
  if (fit && keys == 1) key = count - 1;
}
AttentionInputs::AttentionInputs(const AttentionGradient& op, size_t count) : AttentionInputs(static_cast<const Attention&>(op), count < 4 ? 0 : count - 4) {}

std::vector<Literal> evaluate_attention(const Attention& op, std::span<const Literal> inputs, std::span<const TensorType> results) {
  const Literal &q = inputs[0], &k = inputs[1], &v = inputs[2];
  const AttentionSizes sizes = sizes_of_operands(q, k, v);
  const AttentionInputs at(op, inputs.size());
  const MaskView mask(at.mask ? &inputs[*at.mask] : nullptr, sizes);
  const WeightDraw draw(op, at.key ? &inputs[*at.key] : nullptr, sizes);
  Literal out = made(results[0]), sums = made(results[1]);
  std::vector<double> scores, mixed, row_sums(static_cast<size_t>(sizes.queries));
  MatMulSpace space;
  for (int64_t batch = 0; batch < sizes.batches; ++batch) {
    for (int64_t head = 0; head < sizes.heads; ++head) {
      score(op, sizes, q, k, mask, batch, head, scores, space);
      for (int64_t i = 0; i < sizes.queries; ++i) {
        double* row = scores.data() + i * sizes.keys;
        row_sums[static_cast<size_t>(i)] = soften(row, sizes.keys);
        for (int64_t j = 0; j < sizes.keys && draw.draws(); ++j) row[j] *= draw.factor(batch, head, i, j);
      }
      const int64_t index = batch * sizes.heads + head, key_index = batch * sizes.key_heads + head / (sizes.heads / sizes.key_heads);
      multiply_matrices(matrix(scores, sizes.queries, sizes.keys), false, matrix(v, key_index, sizes.keys, sizes.value_width), false, mixed, space);
      store(out, index * sizes.queries * sizes.value_width, mixed);
      store(sums, index * sizes.queries, row_sums);
    }
  }
  return {out, sums};
}

std::vector<Literal> evaluate_attention_gradient(const AttentionGradient& op, std::span<const Literal> inputs, std::span<const TensorType> results) {
  const Literal &q = inputs[0], &k = inputs[1], &v = inputs[2];
  const AttentionInputs at(op, inputs.size());
  const size_t first = at.own;
  const Literal &d_out = inputs[first + 2], &d_sums = inputs[first + 3];
  const AttentionSizes sizes = sizes_of_operands(q, k, v);
  const MaskView mask(at.mask ? &inputs[*at.mask] : nullptr, sizes);
  const WeightDraw draw(op, at.key ? &inputs[*at.key] : nullptr, sizes);
  std::vector<Literal> gradients;
  for (const TensorType& type : results) gradients.push_back(made(type));
  std::vector<double> mask_sums(op.mask_gradient ? static_cast<size_t>(inputs[3].count()) : 0, 0.0);
  std::vector<double> weights, slopes, dq, dk, dv;
  MatMulSpace space;
  const int64_t shared = sizes.key_heads == 0 ? 0 : sizes.heads / sizes.key_heads;
  const auto [queries, keys, width, value_width] = std::tuple(sizes.queries, sizes.keys, sizes.width, sizes.value_width);
  for (int64_t key_index = 0; key_index < sizes.batches * sizes.key_heads; ++key_index) {
    const int64_t batch = key_index / sizes.key_heads;
    dk.assign(static_cast<size_t>(keys * width), 0.0), dv.assign(static_cast<size_t>(keys * value_width), 0.0);
    for (int64_t head = key_index % sizes.key_heads * shared, last = head + shared; head < last; ++head) {
      const int64_t index = batch * sizes.heads + head, start = op.mask_gradient ? mask.start(batch, head) : 0;
      score(op, sizes, q, k, mask, batch, head, weights, space);
      multiply_matrices(matrix(d_out, index, queries, value_width), false, matrix(v, key_index, keys, value_width), true, slopes,
                        space);  // gradients of the weights
      const std::vector<double> d_lse = loaded(d_sums, index * queries, queries);
      for (int64_t i = 0; i < queries; ++i) {
        // From the scores again, not from `out` and the log-sum-exp: their rounding would be an error of all weights, and of the sum below.
        soften(weights.data() + i * keys, keys);
        double common = -d_lse[static_cast<size_t>(i)];
        for (int64_t j = 0; j < keys; ++j) {
          const size_t e = static_cast<size_t>(i * keys + j);
          common += weights[e] * (draw.draws() ? draw.factor(batch, head, i, j) : 1.0) * slopes[e];
        }
        for (int64_t j = 0; j < keys; ++j) {
          double &weight = weights[static_cast<size_t>(i * keys + j)], &slope = slopes[static_cast<size_t>(i * keys + j)];
          const double kept = draw.draws() ? draw.factor(batch, head, i, j) : 1.0;
          slope = weight * (kept * slope - common);
          weight *= kept;
          if (op.mask_gradient) mask_sums[static_cast<size_t>(mask.offset(start, i, j))] += slope;
        }
      }
      multiply_matrices(matrix(weights, queries, keys), true, matrix(d_out, index, queries, value_width), false, dv, space, true);
      for (double& slope : slopes) slope *= op.scale;
      multiply_matrices(matrix(slopes, queries, keys), false, matrix(k, key_index, keys, width), false, dq, space);
      multiply_matrices(matrix(slopes, queries, keys), true, matrix(q, index, queries, width), false, dk, space, true);
      store(gradients[0], index * queries * width, dq);
    }
    store(gradients[1], key_index * keys * width, dk);
    store(gradients[2], key_index * keys * value_width, dv);
  }
  if (op.mask_gradient) store(gradients[3], 0, mask_sums);
  return gradients;
}

}  // namespace stepgraph
