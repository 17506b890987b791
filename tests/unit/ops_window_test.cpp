// SPDX-License-Identifier: Apache-2.0
// Convolution and pooling against direct loops over every output, window and input position, in one to three spatial dims.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/op_table.h"
#include "stepgraph/reference/interpreter.h"
#include "tests/support/effort.h"

namespace stepgraph {
namespace ops_window_test {

Literal numbers(DType dtype, const Sizes& sizes, uint64_t seed) {
  Literal value(dtype, sizes);
  for (int64_t i = 0; i < value.count(); ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    value.set(i, static_cast<double>(static_cast<int64_t>(seed >> 11)) / 9007199254740992.0 - 0.5);
  }
  return value;
}
Shape shape_of(const Sizes& sizes) { return Shape(sizes.begin(), sizes.end()); }

std::vector<Literal> evaluate(const Op& op, const std::vector<Literal>& inputs) {
  std::vector<TensorType> types;
  for (const Literal& input : inputs) types.push_back({input.dtype(), shape_of(input.sizes()), {}});
  const std::vector<TensorType> results = infer_types(op, types, Module{});
  return op_info(op).evaluate({op, inputs, results});
}

bool next(Sizes& index, const Sizes& sizes) {
  for (size_t d = sizes.size(); d-- > 0;) {
    if (++index[d] < sizes[d]) return true;
    index[d] = 0;
  }
  return false;
}
int64_t offset(std::initializer_list<int64_t> first, const Sizes& rest, const Sizes& sizes) {
  int64_t result = 0;
  size_t d = 0;
  for (const int64_t i : first) result = result * sizes[d++] + i;
  for (const int64_t i : rest) result = result * sizes[d++] + i;
  return result;
}
Sizes spatial(const Sizes& sizes) { return Sizes(sizes.begin() + 2, sizes.end()); }

struct Case {
  Sizes x, weight;
  Window window;
  int64_t groups;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> result = {
      {{2, 3}, {4, 3}, {}, 1},  // no spatial dim: a linear map
      {{2, 3, 8}, {4, 3, 3}, {{1}, {1}, {1}, {1}}, 1},
      {{2, 4, 9}, {6, 2, 3}, {{2}, {0}, {2}, {2}}, 2},
      {{1, 1, 1}, {1, 1, 1}, {{3}, {0}, {0}, {1}}, 1},
      {{2, 2, 5}, {2, 1, 2}, {{1}, {3}, {0}, {4}}, 2},  // windows that lie in the padding only
      {{2, 3, 6, 7}, {5, 3, 3, 2}, {{1, 1}, {1, 0}, {1, 0}, {1, 1}}, 1},
      {{3, 4, 7, 5}, {4, 1, 3, 3}, {{2, 1}, {1, 2}, {0, 1}, {1, 2}}, 4},  // depthwise
      {{2, 6, 5, 5}, {4, 3, 1, 1}, {{1, 1}, {0, 0}, {0, 0}, {1, 1}}, 2},
      {{0, 3, 6, 6}, {4, 3, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, 1},
      {{2, 0, 6}, {4, 0, 3}, {{1}, {0}, {0}, {1}}, 1},
      {{2, 2, 4, 3, 5}, {4, 1, 2, 2, 3}, {{1, 2, 2}, {1, 0, 1}, {0, 1, 1}, {2, 1, 1}}, 2},
  };
  return result;
}

/// Calls each(x offset, weight offset, result offset) for every product that the forward convolution adds up.
template <class Each>
Sizes for_products(const Case& c, Each each) {
  Sizes out = {c.x[0], c.weight[0]};
  const Sizes in = spatial(c.x), window = spatial(c.weight);
  for (size_t d = 0; d < in.size(); ++d)
    out.push_back((in[d] + c.window.padding_low[d] + c.window.padding_high[d] - (window[d] - 1) * c.window.dilation[d] - 1) / c.window.strides[d] + 1);
  const int64_t out_channels = c.weight[0] / c.groups, in_channels = c.weight[1];
  for (int64_t n = 0; n < c.x[0]; ++n) {
    for (int64_t o = 0; o < c.weight[0]; ++o) {
      for (int64_t i = 0; i < in_channels; ++i) {
        Sizes to(in.size(), 0);
        do {
          Sizes w(in.size(), 0);
          do {
            Sizes from(in.size());
            bool inside = true;
            for (size_t d = 0; d < in.size(); ++d) {
              from[d] = to[d] * c.window.strides[d] - c.window.padding_low[d] + w[d] * c.window.dilation[d];
              inside = inside && from[d] >= 0 && from[d] < in[d];
            }
            if (inside) each(offset({n, o / out_channels * in_channels + i}, from, c.x), offset({o, i}, w, c.weight), offset({n, o}, to, out));
          } while (next(w, window));
        } while (next(to, spatial(out)));
      }
    }
  }
  return out;
}

void expect_near(const Literal& got, const std::vector<double>& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(static_cast<size_t>(got.count()), wanted.size()) << what;
  for (int64_t i = 0; i < got.count(); ++i) ASSERT_NEAR(got.at(i), wanted[static_cast<size_t>(i)], tolerance) << what << " element " << i;
}

TEST(Convolution, AllThreeKindsAreTheSameTrilinearForm) {
  for (const auto& [dtype, tolerance] : {std::pair(DType::F64, 1e-12), std::pair(DType::F32, 1e-6), std::pair(DType::BF16, 3e-2)}) {
    for (size_t i = 0; i < cases().size(); ++i) {
      const Case& c = cases()[i];
      const std::string what = "case " + std::to_string(i) + " " + std::string(name(dtype));
      const Literal x = numbers(dtype, c.x, i), weight = numbers(dtype, c.weight, i + 100);
      const Sizes out = for_products(c, [](int64_t, int64_t, int64_t) {});
      const Literal g = numbers(dtype, out, i + 200);
      std::vector<double> y(static_cast<size_t>(g.count())), dx(static_cast<size_t>(x.count())), dw(static_cast<size_t>(weight.count()));
      for_products(c, [&](int64_t a, int64_t b, int64_t r) {
        y[static_cast<size_t>(r)] += x.at(a) * weight.at(b);
        dx[static_cast<size_t>(a)] += g.at(r) * weight.at(b);
        dw[static_cast<size_t>(b)] += g.at(r) * x.at(a);
      });
      const Literal forward = evaluate(Convolution{ConvolutionKind::Forward, c.window, c.groups, {}}, {x, weight}).at(0);
      EXPECT_EQ(forward.sizes(), out) << what;
      expect_near(forward, y, tolerance, what);
      expect_near(evaluate(Convolution{ConvolutionKind::InputGradient, c.window, c.groups, shape_of(c.x)}, {g, weight}).at(0), dx, tolerance, what);
      expect_near(evaluate(Convolution{ConvolutionKind::WeightGradient, c.window, c.groups, shape_of(c.weight)}, {x, g}).at(0), dw, tolerance, what);
    }
  }
}

std::string error_of(const Op& op, const std::vector<TensorType>& inputs) {
  try {
    infer_types(op, inputs, Module{});
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Convolution, ErrorsNameTheShapes) {
  const Window plain{{1, 1}, {0, 0}, {0, 0}, {1, 1}};
  const TensorType x{DType::F32, {2, 3, 8, 8}, {}};
  const auto forward = [&](Window window, int64_t groups) { return Convolution{ConvolutionKind::Forward, std::move(window), groups, {}}; };
  EXPECT_EQ(error_of(forward(plain, 1), {x, {DType::F32, {4, 5, 3, 3}, {}}}),
            "convolution: 3 channels, but weight takes 5 in 1 groups: f32[2, 3, 8, 8] and weight f32[4, 5, 3, 3]");
  EXPECT_EQ(error_of(forward(plain, 3), {x, {DType::F32, {4, 1, 3, 3}, {}}}),
            "convolution: 4 output channels do not divide into 3 groups: f32[2, 3, 8, 8] and weight f32[4, 1, 3, 3]");
  EXPECT_EQ(error_of(forward(plain, 1), {x, {DType::F32, {4, 3, 9, 3}, {}}}), "convolution: a window of 9 does not fit the padded size 8 of f32[2, 3, 8, 8]");
  EXPECT_EQ(error_of(forward({{0, 1}, {0, 0}, {0, 0}, {1, 1}}, 1), {x, {DType::F32, {4, 3, 3, 3}, {}}}),
            "convolution: found 0 among strides, wanted at least 1");
  EXPECT_EQ(error_of(forward({{1}, {0}, {0}, {1}}, 1), {x, {DType::F32, {4, 3, 3, 3}, {}}}), "convolution: 1 strides for 2 spatial dims");
  EXPECT_EQ(error_of(forward({{1, 1}, {INT64_MAX, 0}, {INT64_MAX, 0}, {1, 1}}, 1), {x, {DType::F32, {4, 3, 3, 3}, {}}}), "size overflows 64 bits");
  EXPECT_EQ(error_of(Convolution{ConvolutionKind::WeightGradient, plain, 1, {4, 3, 3, 3}}, {x, {DType::F32, {2, 4, 5, 6}, {}}}),
            "convolution_weight_gradient: result gradient is f32[2, 4, 5, 6], the convolution gives [2, 4, 6, 6]");
}

struct PoolCase {
  Sizes x;
  std::vector<int64_t> size;
  Window window;
};
const std::vector<PoolCase>& pool_cases() {
  constexpr int64_t large = testing::is_sanitized ? 48 : 240;
  static const std::vector<PoolCase> result = {
      {{2, 3, 8}, {2}, {{2}, {0}, {0}, {1}}},
      {{1, 2, 9}, {3}, {{2}, {1}, {2}, {1}}},
      {{2, 2, 6, 7}, {3, 2}, {{1, 2}, {1, 0}, {1, 1}, {1, 1}}},
      {{1, 1, 9, 9}, {2, 3}, {{2, 3}, {0, 1}, {1, 1}, {3, 2}}},
      {{2, 1, 4, 4, 3}, {2, 2, 2}, {{2, 2, 1}, {0, 1, 0}, {0, 1, 0}, {1, 1, 1}}},
      {{0, 2, 4}, {2}, {{2}, {0}, {0}, {1}}},
      {{1, 1, large, large}, {5, 5}, {{1, 1}, {2, 2}, {2, 2}, {1, 1}}},  // more than one table
  };
  return result;
}

/// Calls each(plane, result position, x position) for every element of every window, in order.
template <class Each>
Sizes for_windows(const PoolCase& c, Each each) {
  const Sizes in = spatial(c.x);
  Sizes out;
  for (size_t d = 0; d < in.size(); ++d)
    out.push_back((in[d] + c.window.padding_low[d] + c.window.padding_high[d] - (c.size[d] - 1) * c.window.dilation[d] - 1) / c.window.strides[d] + 1);
  for (int64_t plane = 0; plane < c.x[0] * c.x[1]; ++plane) {
    Sizes to(in.size(), 0);
    do {
      Sizes w(in.size(), 0);
      do {
        Sizes from(in.size());
        bool inside = true;
        for (size_t d = 0; d < in.size(); ++d) {
          from[d] = to[d] * c.window.strides[d] - c.window.padding_low[d] + w[d] * c.window.dilation[d];
          inside = inside && from[d] >= 0 && from[d] < in[d];
        }
        if (inside) each(plane, offset({}, to, out), offset({}, from, in));
      } while (next(w, c.size));
    } while (next(to, out));
  }
  out.insert(out.begin(), c.x.begin(), c.x.begin() + 2);
  return out;
}

/// Values, and the linear indices that follow from the places in windows.
std::vector<Literal> pooled(const Pool& op, const Literal& x) {
  Module module;
  const GraphId graph = module.add_graph("main");
  Builder builder(module, graph);
  const Value input = builder.input({x.dtype(), shape_of(x.sizes()), {}});
  const std::vector<Value> results = builder.emit(op, {input});
  builder.output(results[0]);
  builder.output(elements_of_windows(op, results[1], input.shape()));
  return evaluate_graph(module, graph, std::vector<Literal>{x});
}

TEST(Pool, PlacesCountTheWindowRowMajorAndArePlacedNarrow) {
  // Two rows of padding above: the window of the first position begins in them.
  const Literal x = Literal::from_doubles(DType::F32, {1, 1, 2, 3}, std::vector<double>{0, 1, 9, 5, 2, 3});
  const std::vector<Literal> got = evaluate(Pool{PoolKind::Max, {3, 2}, {{2, 1}, {2, 0}, {0, 0}, {1, 1}}, true, {}}, {x});
  EXPECT_EQ(got[1].dtype(), DType::U8);
  EXPECT_EQ(got[0].to_doubles(), (std::vector<double>{1, 9}));
  EXPECT_EQ(got[1].to_doubles(), (std::vector<double>{5, 5}));
  const auto dtype_of = [](int64_t size) {
    return infer_types(Pool{PoolKind::Max, {size}, {{1}, {0}, {0}, {1}}, true, {}}, std::vector<TensorType>{{DType::F32, {1, 1, 300}, {}}}, Module{})[1].dtype;
  };
  EXPECT_EQ(dtype_of(256), DType::U8);
  EXPECT_EQ(dtype_of(257), DType::I32);
}

TEST(Pool, MaxGivesTheFirstOfEqualsAndItsPlace) {
  for (const PoolCase& c : pool_cases()) {
    Literal x = numbers(DType::F32, c.x, 7);
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, std::round(x.at(i) * 4));  // many ties
    const int64_t planes = c.x[0] * c.x[1], in_count = planes == 0 ? 0 : x.count() / planes;
    const Sizes out = for_windows(c, [](int64_t, int64_t, int64_t) {});
    std::vector<int64_t> best(static_cast<size_t>(element_count(out)), -1);
    const int64_t out_count = planes == 0 ? 0 : element_count(out) / planes;
    for_windows(c, [&](int64_t plane, int64_t to, int64_t from) {
      int64_t& b = best[static_cast<size_t>(plane * out_count + to)];
      if (b < 0 || x.at(plane * in_count + from) > x.at(plane * in_count + b)) b = from;
    });
    const std::vector<Literal> got = pooled(Pool{PoolKind::Max, c.size, c.window, true, {}}, x);
    ASSERT_EQ(got.at(0).sizes(), out);
    ASSERT_EQ(got.at(1).sizes(), out);
    for (int64_t i = 0; i < got[0].count(); ++i) {
      ASSERT_EQ(got[1].integer_at(i), best[static_cast<size_t>(i)]);
      ASSERT_EQ(got[0].at(i), x.at(i / out_count * in_count + best[static_cast<size_t>(i)]));
    }
  }
}

TEST(Pool, NotANumberWins) {
  Literal x = Literal::full(DType::F64, {1, 1, 6}, -std::numeric_limits<double>::infinity());
  x.set(1, std::nan("")), x.set(2, 5.0);
  const std::vector<Literal> got = evaluate(Pool{PoolKind::Max, {3}, {{3}, {0}, {0}, {1}}, true, {}}, {x});
  EXPECT_TRUE(std::isnan(got[0].at(0)));
  EXPECT_EQ(got[1].integer_at(0), 1);
  EXPECT_EQ(got[0].at(1), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(got[1].integer_at(1), 0);
}

TEST(Pool, AverageAndItsTranspose) {
  for (const PoolCase& c : pool_cases()) {
    for (const bool include : {true, false}) {
      const Literal x = numbers(DType::F64, c.x, 3);
      const int64_t planes = c.x[0] * c.x[1], in_count = planes == 0 ? 0 : x.count() / planes;
      const Sizes out = for_windows(c, [](int64_t, int64_t, int64_t) {});
      const Literal g = numbers(DType::F64, out, 4);
      const int64_t out_count = planes == 0 ? 0 : g.count() / planes;
      std::vector<double> sums(static_cast<size_t>(g.count())), counts(sums.size()), dx(static_cast<size_t>(x.count()));
      for_windows(c, [&](int64_t plane, int64_t to, int64_t from) {
        sums[static_cast<size_t>(plane * out_count + to)] += x.at(plane * in_count + from);
        counts[static_cast<size_t>(plane * out_count + to)] += 1;
      });
      if (include) std::fill(counts.begin(), counts.end(), static_cast<double>(element_count(c.size)));
      for (size_t i = 0; i < sums.size(); ++i) sums[i] /= std::max(counts[i], 1.0);
      for_windows(c, [&](int64_t plane, int64_t to, int64_t from) {
        const auto at = static_cast<size_t>(plane * out_count + to);
        dx[static_cast<size_t>(plane * in_count + from)] += g.at(static_cast<int64_t>(at)) / counts[at];
      });
      expect_near(evaluate(Pool{PoolKind::Average, c.size, c.window, include, {}}, {x}).at(0), sums, 1e-12, "average");
      expect_near(evaluate(Pool{PoolKind::AverageGradient, c.size, c.window, include, shape_of(c.x)}, {g}).at(0), dx, 1e-12, "gradient");
    }
  }
}

TEST(Pool, ErrorsNameTheShapes) {
  const TensorType x{DType::F32, {2, 3, 8}, {}};
  EXPECT_EQ(error_of(Pool{PoolKind::Max, {9}, {{1}, {0}, {0}, {1}}, true, {}}, {x}), "max_pool: a window of 9 does not fit the padded size 8 of f32[2, 3, 8]");
  EXPECT_EQ(error_of(Pool{PoolKind::Max, {2}, {{1}, {2}, {0}, {1}}, true, {}}, {x}), "max_pool: a padding of 2 leaves windows of 2 without an element");
  EXPECT_EQ(error_of(Pool{PoolKind::Average, {2, 2}, {{1}, {0}, {0}, {1}}, true, {}}, {x}), "average_pool: a window of 2 dims for f32[2, 3, 8]");
  EXPECT_EQ(error_of(Pool{PoolKind::Average, {2}, {{1}, {0}, {0}, {1}}, true, {}}, {{DType::I32, {2, 3, 8}, {}}}),
            "average_pool: found i32[2, 3, 8], wanted a floating dtype");
}

}  // namespace ops_window_test
}  // namespace stepgraph
