// SPDX-License-Identifier: Apache-2.0
// Convolutions by oneDNN against the op table's plain loops; and that pieces give the same bits however dealt.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "stepgraph/compile/ir/op.h"
#include "stepgraph/compile/ops/op_table.h"
#include "stepgraph/program/library_support.h"
#include "stepgraph/run/device/convolution.h"
#include "stepgraph/run/device/gemm.h"
#include "stepgraph/tensor/philox.h"

namespace stepgraph {
namespace convolution_work_test {

struct Case {
  Sizes x, weight;
  Window window;
  int64_t groups = 1;
};

Sizes out_sizes(const Case& c) {
  Sizes out = {c.x[0], c.weight[0]};
  for (size_t d = 0; d < c.window.strides.size(); ++d)
    out.push_back((c.x[d + 2] + c.window.padding_low[d] + c.window.padding_high[d] - c.window.dilation[d] * (c.weight[d + 2] - 1) - 1) / c.window.strides[d] +
                  1);
  return out;
}
Literal drawn(const Sizes& sizes, uint64_t key) {
  Literal value(DType::F32, sizes);
  for (int64_t i = 0; i < value.count(); ++i) value.set(i, normal_element(key, static_cast<uint64_t>(i)));
  return value;
}

void check(const Case& c, ConvolutionPass pass) {
  const bool is_forward = pass == ConvolutionPass::Forward, is_weight = pass == ConvolutionPass::WeightGradient;
  const Literal x = drawn(c.x, 1), weight = drawn(c.weight, 2), y = drawn(out_sizes(c), 3);
  const Literal &a = is_forward || is_weight ? x : y, &b = is_weight ? y : weight;
  const Sizes out = is_forward ? y.sizes() : is_weight ? c.weight : c.x;
  const Shape shape(out.begin(), out.end());
  const Op op = Convolution{static_cast<ConvolutionKind>(pass), c.window, c.groups, is_forward ? Shape() : shape};
  const std::vector<Literal> inputs = {a, b};
  const std::vector<TensorType> types = {{DType::F32, shape, {}}};
  const Literal wanted = op_info(op).evaluate({op, inputs, types})[0];
  const auto work =
      convolution_work({pass, a.sizes(), b.sizes(), out, c.window.strides, c.window.padding_low, c.window.padding_high, c.window.dilation, c.groups});
  const auto run = [&](int64_t step) {
    Literal found = Literal::full(DType::F32, out, std::numeric_limits<double>::quiet_NaN());
    auto* const data = reinterpret_cast<float*>(found.mutable_data());
    for (int64_t piece = 0; piece < work->pieces(); piece += step) {
      Literal scratch = Literal::full(DType::U8, {static_cast<int64_t>(work->scratch_bytes()) + 64}, 255);  // a thread's own, with anything in it
      work->run(a.as<float>().data(), b.as<float>().data(), data, piece, std::min(piece + step, work->pieces()), scratch.mutable_data());
    }
    return found;
  };
  const Literal found = run(1000);
  double size = 1;
  for (int64_t i = 0; i < wanted.count(); ++i) size = std::max(size, std::abs(wanted.at(i)));
  for (int64_t i = 0; i < wanted.count(); ++i) ASSERT_NEAR(found.at(i), wanted.at(i), 2e-6 * size) << "element " << i;
  for (const int64_t step : {1, 3}) EXPECT_TRUE(run(step) == found) << "pieces by " << step;
}

TEST(ConvolutionByLibrary, IsThatOfTheOracle) {
  if (!has_libraries()) GTEST_SKIP() << "a build without libraries";
  load_libraries({});
  use_no_library_threads();
  const std::vector<Case> cases = {
      {{1, 1, 5, 5}, {1, 1, 3, 3}, {{1, 1}, {0, 0}, {0, 0}, {1, 1}}},
      {{9, 3, 12, 10}, {16, 3, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
      {{4, 16, 9, 9}, {40, 16, 3, 3}, {{2, 2}, {1, 1}, {1, 1}, {1, 1}}},
      {{17, 8, 7, 7}, {8, 8, 1, 1}, {{2, 2}, {0, 0}, {0, 0}, {1, 1}}},
      {{2, 5, 11, 8}, {7, 5, 3, 2}, {{1, 2}, {2, 0}, {0, 1}, {2, 1}}},       // padding of one side, dilation
      {{3, 12, 8, 8}, {12, 1, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, 12},  // depthwise
      {{3, 20, 6, 6}, {30, 2, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, 10},
      {{2, 6, 6, 6}, {4, 3, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, 2},
      {{5, 4, 20}, {6, 4, 5}, {{2}, {2}, {1}, {1}}},
      {{2, 3, 6, 7, 5}, {4, 3, 2, 3, 3}, {{1, 2, 1}, {1, 1, 0}, {0, 1, 1}, {1, 1, 1}}},
      {{2, 64, 2, 2}, {64, 64, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
      {{3, 5, 4, 7}, {70, 5, 3, 2}, {{2, 3}, {1, 0}, {2, 1}, {1, 2}}},  // few positions, a piece of fewer channels
      {{2, 3, 5}, {4, 3, 2}, {{1}, {1}, {1}, {2}}},
      {{0, 3, 4, 4}, {2, 3, 3, 3}, {{1, 1}, {0, 0}, {0, 0}, {1, 1}}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    for (const ConvolutionPass pass : {ConvolutionPass::Forward, ConvolutionPass::InputGradient, ConvolutionPass::WeightGradient}) {
      SCOPED_TRACE(::testing::Message() << "case " << i << ", pass " << static_cast<int>(pass));
      check(cases[i], pass);
    }
  }
}

TEST(ConvolutionByLibrary, SaysWhatItCannotDo) {
  ConvolutionCall call;
  call.a.sizes = call.b.sizes = call.out.sizes = {4, 4, 4, 4};
  call.strides = call.dilation = {1, 1};
  call.padding_low = call.padding_high = {0, 2};
  EXPECT_TRUE(convolution_supported(call));
  call.padding_high = {0, -1};
  EXPECT_FALSE(convolution_supported(call));
  ConvolutionCall none;
  none.a.sizes = none.b.sizes = none.out.sizes = {4, 4};
  EXPECT_FALSE(convolution_supported(none));
  ConvolutionCall four;
  four.a.sizes = four.b.sizes = four.out.sizes = {1, 1, 4, 4, 4, 4};
  four.strides = four.dilation = {1, 1, 1, 1};
  four.padding_low = four.padding_high = {0, 0, 0, 0};
  EXPECT_FALSE(convolution_supported(four));
}

}  // namespace convolution_work_test
}  // namespace stepgraph
