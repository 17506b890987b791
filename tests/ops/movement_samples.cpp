// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/samples.h"

namespace stepgraph::testing {
namespace {

void add_broadcasts(std::vector<Sample>& result, Numbers& numbers) {
  struct Case {
    Sizes from;
    Shape to;
    std::vector<int64_t> dims;
  };
  const std::vector<Case> cases = {
      {{}, {}, {}}, {{}, {5}, {}}, {{}, {2, 3}, {}}, {{}, {0}, {}}, {{4}, {4}, {0}}, {{4}, {3, 4}, {1}}, {{4}, {4, 3}, {0}}, {{1}, {5}, {0}},
      {{1, 4}, {3, 4}, {0, 1}}, {{3, 1}, {3, 4}, {0, 1}}, {{3, 4}, {2, 3, 5, 4}, {1, 3}}, {{1, 1}, {2, 2}, {0, 1}}, {{1}, {0}, {0}}, {{2, 1, 3}, {2, 4, 3}, {0, 1, 2}},
      {{0}, {3, 0}, {1}},
  };
  for (const Case& c : cases) result.push_back({Broadcast{c.to, c.dims}, {numbers.uniform(c.from, -1, 1)}});
}

void add_reshapes(std::vector<Sample>& result, Numbers& numbers) {
  const std::vector<std::pair<Sizes, Shape>> cases = {
      {{}, {1, 1}}, {{1}, {}}, {{6}, {2, 3}}, {{2, 3}, {6}}, {{4, 6}, {24}}, {{24}, {4, 6}}, {{4, 6}, {2, 2, 6}}, {{6, 2}, {4, 3}}, {{6, 4}, {4, 6}},
      {{3, 2}, {2, 3}}, {{2, 0}, {0, 5}}, {{2, 3, 4}, {6, 4}}, {{2, 3, 4}, {2, 12}}, {{6, 1, 4}, {6, 4}}, {{4, 9, 2}, {4, 6, 3}}, {{12, 5}, {4, 3, 5, 1}},
  };
  for (const auto& [from, to] : cases) result.push_back({Reshape{to}, {numbers.uniform(from, -1, 1)}});
}

void add_slices(std::vector<Sample>& result, Numbers& numbers) {
  struct Case {
    Sizes from;
    Shape starts, limits;
    std::vector<int64_t> strides;
  };
  const std::vector<Case> cases = {
      {{}, {}, {}, {}}, {{6}, {0}, {6}, {1}}, {{6}, {2}, {5}, {1}}, {{6}, {1}, {6}, {2}}, {{6}, {0}, {6}, {4}}, {{6}, {3}, {3}, {1}}, {{0}, {0}, {0}, {2}},
      {{6}, {3}, {3}, {3}}, {{4, 6}, {0, 1}, {4, 4}, {1, 1}}, {{6, 4}, {1, 0}, {6, 4}, {3, 1}}, {{3, 4, 5}, {1, 0, 2}, {2, 4, 5}, {1, 3, 2}}, {{1, 6}, {0, 5}, {1, 6}, {1, 1}},
  };
  for (const Case& c : cases) result.push_back({Slice{c.starts, c.limits, c.strides}, {numbers.uniform(c.from, -1, 1)}});
}

void add_pads(std::vector<Sample>& result, Numbers& numbers) {
  struct Case {
    Sizes from;
    Shape low, high;
    std::vector<int64_t> interior;
  };
  const std::vector<Case> cases = {
      {{}, {}, {}, {}}, {{4}, {0}, {0}, {0}}, {{4}, {1}, {2}, {0}}, {{4}, {0}, {1}, {2}}, {{0}, {1}, {1}, {3}}, {{0}, {0}, {0}, {1}}, {{1}, {0}, {0}, {5}},
      {{6, 4}, {0, 1}, {0, 0}, {0, 1}}, {{6, 4}, {2, 0}, {1, 0}, {1, 0}}, {{2, 3, 4}, {0, 1, 0}, {1, 0, 2}, {0, 2, 0}},
  };
  for (const Case& c : cases) result.push_back({Pad{c.low, c.high, c.interior}, {numbers.uniform(c.from, -1, 1), numbers.uniform({}, -1, 1)}});
}

}  // namespace

std::vector<Sample> movement_samples() {
  Numbers numbers(4);
  std::vector<Sample> result;
  add_broadcasts(result, numbers);
  add_reshapes(result, numbers);
  add_slices(result, numbers);
  add_pads(result, numbers);
  const std::vector<std::pair<Sizes, std::vector<int64_t>>> permutations = {
      {{}, {}}, {{5}, {0}}, {{3, 4}, {1, 0}}, {{40, 70}, {1, 0}}, {{0, 3}, {1, 0}}, {{2, 3, 4}, {2, 0, 1}}, {{2, 3, 4}, {0, 2, 1}}, {{2, 3, 4, 5}, {0, 2, 1, 3}},
      {{2, 1, 4, 3}, {3, 2, 1, 0}},
  };
  for (const auto& [sizes, permutation] : permutations) result.push_back({Transpose{permutation}, {numbers.uniform(sizes, -1, 1)}});
  const std::vector<std::pair<Sizes, std::vector<int64_t>>> reversals = {
      {{}, {}}, {{1}, {0}}, {{0}, {0}}, {{6}, {0}}, {{4, 6}, {0}}, {{4, 6}, {1}}, {{4, 6}, {0, 1}}, {{2, 3, 4}, {0, 2}}};
  for (const auto& [sizes, dims] : reversals) result.push_back({Reverse{dims}, {numbers.uniform(sizes, -1, 1)}});
  const std::vector<std::pair<std::vector<Sizes>, int64_t>> joins = {
      {{{3}}, 0}, {{{3}, {2}}, 0}, {{{0}, {2}, {1}}, 0}, {{{2, 6}, {1, 6}}, 0}, {{{6, 1}, {6, 3}, {6, 0}}, 1}, {{{2, 3, 2}, {2, 1, 2}}, 1}, {{{0, 4}, {0, 4}}, 1}};
  for (const auto& [shapes, dim] : joins) {
    std::vector<Literal> inputs;
    for (const Sizes& sizes : shapes) inputs.push_back(numbers.uniform(sizes, -1, 1));
    result.push_back({Concatenate{dim}, inputs});
  }
  return result;
}

}  // namespace stepgraph::testing
