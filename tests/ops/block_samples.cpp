// SPDX-License-Identifier: Apache-2.0
// Indexing and block ops.
#include <cmath>
#include <optional>

#include "tests/ops/samples.h"

namespace stepgraph::testing {

std::vector<Sample> index_samples() {
  Numbers numbers(5), reduced(55);
  std::vector<Sample> result;
  struct Select {
    Sizes x, indices;
    int64_t dim;
  };
  const std::vector<Select> selects = {{{5}, {}, 0}, {{5}, {3}, 0}, {{5}, {0}, 0}, {{5, 4}, {6}, 0}, {{4, 5}, {2, 3}, 1}, {{2, 5, 3}, {4}, 1}, {{1, 3}, {2}, 0}, {{3, 0}, {2}, 0}};
  for (const Select& c : selects) {
    const auto dim = static_cast<size_t>(c.dim);
    const Literal indices = numbers.integers(DType::I64, c.indices, 0, c.x[dim] - 1);
    result.push_back({IndexSelect{c.dim}, {numbers.uniform(c.x, -1, 1), indices}});
    Sizes updates = c.x;
    updates.erase(updates.begin() + c.dim);
    updates.insert(updates.begin() + c.dim, c.indices.begin(), c.indices.end());
    result.push_back({IndexAdd{c.dim}, {numbers.uniform(c.x, -1, 1), indices.converted(DType::I32), numbers.uniform(updates, -1, 1)}});
  }
  struct Along {
    Sizes x, index;
    int64_t dim;
  };
  const std::vector<Along> alongs = {{{5}, {3}, 0}, {{5}, {0}, 0}, {{4, 5}, {4, 2}, 1}, {{4, 5}, {6, 5}, 0}, {{2, 3, 4}, {2, 5, 4}, 1}, {{1, 1}, {1, 3}, 1}};
  for (const Along& c : alongs) {
    const Literal index = numbers.integers(DType::I64, c.index, 0, c.x[static_cast<size_t>(c.dim)] - 1);
    result.push_back({Gather{c.dim}, {numbers.uniform(c.x, -1, 1), index}});
    // Without zeros, about which a gradient of the product's gradient says nothing.
    result.push_back({ScatterReduce{ScatterReduceKind::Product, c.dim}, {reduced.signed_uniform(c.x, 0.5, 1.5), index, reduced.signed_uniform(c.index, 0.5, 1.5)}});
    for (ScatterReduceKind kind : {ScatterReduceKind::Max, ScatterReduceKind::Min}) {
      Literal base = reduced.distinct(c.x), updates = reduced.distinct(c.index);
      for (int64_t i = 0; i < base.count(); ++i) base.set(i, 0.2 * std::round(base.at(i) / 0.2));
      for (int64_t i = 0; i < updates.count(); ++i) updates.set(i, 0.2 * std::round(updates.at(i) / 0.2) + 0.1);  // no tie with the base
      result.push_back({ScatterReduce{kind, c.dim}, {base, index, updates}});
    }
    result.push_back({ScatterAdd{c.dim}, {numbers.uniform(c.x, -1, 1), index, numbers.uniform(c.index, -1, 1)}});
  }
  return result;
}

namespace {

void add_matmuls(std::vector<Sample>& result, Numbers& numbers) {
  struct Case {
    Sizes lhs, rhs;
    MatMul op;
  };
  const std::vector<Case> cases = {
      {{3, 4}, {4, 6}, {{}, {}, {1}, {0}}},
      {{4}, {4}, {{}, {}, {0}, {0}}},
      {{3}, {4}, {{}, {}, {}, {}}},
      {{}, {}, {{}, {}, {}, {}}},
      {{4, 3}, {6, 4}, {{}, {}, {0}, {1}}},
      {{2, 3, 4}, {2, 4, 6}, {{0}, {0}, {2}, {1}}},
      {{3, 2, 4}, {4, 6, 2}, {{1}, {2}, {2}, {0}}},
      {{2, 3, 4, 5}, {2, 6, 4, 5}, {{0}, {0}, {2, 3}, {2, 3}}},
      {{0, 4}, {4, 3}, {{}, {}, {1}, {0}}},
      {{3, 0}, {0, 2}, {{}, {}, {1}, {0}}},
      {{1, 1}, {1, 1}, {{}, {}, {1}, {0}}},
      {{2, 3}, {2, 3}, {{0, 1}, {0, 1}, {}, {}}},
  };
  for (const Case& c : cases) result.push_back({c.op, {numbers.uniform(c.lhs, -1, 1), numbers.uniform(c.rhs, -1, 1)}});
  for (const Case& c : cases) {
    MatMul op = c.op;
    op.result_dtype = DType::F64;
    result.push_back({op, {numbers.uniform(c.lhs, -1, 1), numbers.uniform(c.rhs, -1, 1)}});
    // Whole numbers, so that a sum of rounded parts is exact; of f32 results differences say too little about gradients.
    op.result_dtype = DType::F32;
    result.push_back(
        {op, {numbers.integers(DType::I64, c.lhs, -4, 4).converted(DType::F64), numbers.integers(DType::I64, c.rhs, -4, 4).converted(DType::F64)}, false});
  }
}

/// With rows that see no key, of which differences say nothing, and each with its gradient.
void add_attentions(std::vector<Sample>& result) {
  struct Case {
    Sizes q, k, v;
    bool causal;
    std::optional<Sizes> mask;
    bool bool_mask;
    bool check_gradient = true;
    double dropout = 0;
  };
  const std::vector<Case> cases = {
      {{3, 2}, {4, 2}, {4, 3}, false, {}, false, true, 0.5},
      {{2, 4, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 3}, true, {}, false, true, 0.3},
      {{2, 2, 3, 2}, {2, 1, 4, 2}, {2, 1, 4, 3}, false, Sizes{2, 1, 1, 4}, false, true, 0.6},
      {{2, 3, 2}, {2, 4, 2}, {2, 4, 3}, false, {}, false, true, 1.0},
      {{3, 2}, {4, 2}, {4, 3}, false, {}, false},
      {{3, 2}, {5, 2}, {5, 3}, true, {}, false},
      {{5, 2}, {3, 2}, {3, 1}, true, {}, false},
      {{2, 4, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 3}, true, {}, false},
      {{2, 4, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 3}, false, Sizes{2, 1, 1, 4}, false},
      {{2, 4, 3, 2}, {2, 1, 4, 2}, {2, 1, 4, 3}, false, Sizes{4, 3, 1}, false},
      {{2, 2, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 3}, true, Sizes{2, 2, 3, 4}, false},
      {{2, 2, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 3}, false, Sizes{3, 4}, true},
      {{2, 2, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 3}, true, Sizes{2, 1, 3, 4}, true, false},
      {{2, 3, 2}, {2, 4, 2}, {2, 4, 3}, false, Sizes{1}, false},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, false, {}, false},
      {{0, 2, 3, 2}, {0, 2, 4, 2}, {0, 2, 4, 3}, false, {}, false},
      {{2, 2, 0, 2}, {2, 2, 4, 2}, {2, 2, 4, 3}, true, {}, false},
      {{2, 2, 3, 2}, {2, 2, 0, 2}, {2, 2, 0, 3}, false, {}, false, false},
  };
  Numbers numbers(61);
  for (const Case& c : cases) {
    Attention op{0.7, c.causal, c.dropout, {}};
    std::vector<Literal> inputs = {numbers.uniform(c.q, -1, 1), numbers.uniform(c.k, -1, 1), numbers.uniform(c.v, -1, 1)};
    if (c.mask && c.bool_mask) {
      Literal mask = numbers.bools(*c.mask);
      for (int64_t i = 0; i < mask.count(); i += c.mask->back()) mask.set_integer(i, c.check_gradient ? 1 : 0);  // key 0 is seen by all, or by none
      inputs.push_back(mask);
    } else if (c.mask) {
      inputs.push_back(numbers.uniform(*c.mask, -2, 2));
    }
    if (c.dropout != 0) {
      inputs.push_back(Literal::integer(DType::I64, 77));
      for (int64_t size : c.q) op.place.global_shape.emplace_back(size + 2), op.place.starts.emplace_back(1);
      op.place.global_shape.back() = c.k[c.k.size() - 2] + 3;
    }
    result.push_back({op, inputs, c.check_gradient});
    Sizes out = c.q, rows(c.q.begin(), c.q.end() - 1);
    out.back() = c.v.back();
    const bool adds = c.mask && !c.bool_mask;
    for (const Sizes& sizes : {out, rows, out, rows}) inputs.push_back(numbers.uniform(sizes, 0, 1));
    result.push_back({AttentionGradient{op, adds}, inputs});
  }
}

void add_convolutions(std::vector<Sample>& result, Numbers& numbers) {
  struct Case {
    Sizes x, weight, out;
    Window window;
    int64_t groups;
  };
  const std::vector<Case> cases = {
      {{2, 3, 7}, {4, 3, 3}, {2, 4, 5}, {{1}, {0}, {0}, {1}}, 1},
      {{2, 4, 6, 5}, {6, 2, 3, 2}, {2, 6, 3, 6}, {{2, 1}, {1, 1}, {1, 1}, {1, 1}}, 2},
      {{1, 2, 7}, {2, 1, 2}, {1, 2, 4}, {{2}, {0}, {2}, {2}}, 2},
      {{2, 1, 3, 2, 3}, {2, 1, 2, 1, 2}, {2, 2, 2, 2, 2}, {{1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}}, 1},
      {{0, 3, 5}, {2, 3, 3}, {0, 2, 3}, {{1}, {0}, {0}, {1}}, 1},
  };
  for (const Case& c : cases) {
    const Literal x = numbers.uniform(c.x, -1, 1), weight = numbers.uniform(c.weight, -1, 1), out = numbers.uniform(c.out, -1, 1);
    result.push_back({Convolution{ConvolutionKind::Forward, c.window, c.groups, {}}, {x, weight}});
    result.push_back({Convolution{ConvolutionKind::InputGradient, c.window, c.groups, Shape(c.x.begin(), c.x.end())}, {out, weight}});
    result.push_back({Convolution{ConvolutionKind::WeightGradient, c.window, c.groups, Shape(c.weight.begin(), c.weight.end())}, {x, out}});
  }
}

void add_pools(std::vector<Sample>& result, Numbers& numbers) {
  struct Case {
    Sizes x, out;
    std::vector<int64_t> size;
    Window window;
  };
  const std::vector<Case> cases = {
      {{2, 3, 8}, {2, 3, 4}, {2}, {{2}, {0}, {0}, {1}}},
      {{2, 2, 6, 5}, {2, 2, 3, 5}, {3, 3}, {{2, 1}, {1, 1}, {1, 1}, {1, 1}}},
      {{1, 2, 7}, {1, 2, 5}, {2}, {{1}, {0}, {0}, {2}}},
      {{0, 2, 4}, {0, 2, 2}, {2}, {{2}, {0}, {0}, {1}}},
      {{1, 1, 18, 17}, {1, 1, 2, 1}, {17, 17}, {{1, 1}, {0, 0}, {0, 0}, {1, 1}}},  // a window of more places than a u8 counts
  };
  for (const Case& c : cases) {
    result.push_back({Pool{PoolKind::Max, c.size, c.window, true, {}}, {numbers.distinct(c.x)}});
    for (bool include : {true, false}) {
      result.push_back({Pool{PoolKind::Average, c.size, c.window, include, {}}, {numbers.uniform(c.x, -1, 1)}});
      result.push_back({Pool{PoolKind::AverageGradient, c.size, c.window, include, Shape(c.x.begin(), c.x.end())}, {numbers.uniform(c.out, -1, 1)}});
    }
  }
}

}  // namespace

std::vector<Sample> block_samples() {
  Numbers numbers(6);
  std::vector<Sample> result;
  add_matmuls(result, numbers);
  add_attentions(result);
  add_convolutions(result, numbers);
  add_pools(result, numbers);
  return result;
}

}  // namespace stepgraph::testing
