// SPDX-License-Identifier: Apache-2.0
// Reductions and scans.
#include "tests/ops/samples.h"

namespace stepgraph::testing {
namespace {

/// Every subset of the dims of a small rank.
std::vector<std::vector<int64_t>> subsets(size_t rank) {
  std::vector<std::vector<int64_t>> result;
  for (size_t bits = 0; bits < size_t{1} << rank; ++bits) {
    std::vector<int64_t> dims;
    for (size_t d = 0; d < rank; ++d) {
      if ((bits >> d & 1) != 0) dims.push_back(static_cast<int64_t>(d));
    }
    result.push_back(dims);
  }
  return result;
}

/// Some zeros: where a rule that divides by its input would fail.
Literal with_zeros(Numbers& numbers, const Sizes& sizes) {
  Literal result = numbers.signed_uniform(sizes, 0.5, 1.5);
  for (int64_t i = 0; i < result.count(); i += 3) result.set(i, 0);
  return result;
}

}  // namespace

std::vector<Sample> reduce_samples() {
  Numbers numbers(3), extremes(33);
  std::vector<Sample> result;
  const std::vector<Sizes> shapes = {{}, {1}, {0}, {5}, {3, 4}, {4, 0}, {2, 3, 4}, {2, 1, 3, 2}, {600, 2}};
  for (const Sizes& sizes : shapes) {
    for (const std::vector<int64_t>& dims : subsets(sizes.size())) {
      result.push_back({Reduce{ReduceKind::Sum, dims}, {numbers.uniform(sizes, -1, 1)}});
      if (sizes != Sizes{600, 2}) result.push_back({Reduce{ReduceKind::Product, dims}, {with_zeros(numbers, sizes)}});
      result.push_back({Reduce{ReduceKind::Max, dims}, {numbers.distinct(sizes)}});
      result.push_back({Reduce{ReduceKind::Min, dims}, {numbers.distinct(sizes)}});
      result.push_back({Reduce{ReduceKind::Any, dims}, {numbers.bools(sizes)}});
      result.push_back({Reduce{ReduceKind::All, dims}, {numbers.bools(sizes)}});
      if (!dims.empty()) result.push_back({Moments{dims}, {numbers.uniform(sizes, -1, 1)}});
    }
    for (size_t d = 0; d < sizes.size(); ++d) {
      const auto dim = static_cast<int64_t>(d);
      if (sizes[d] != 0) {
        result.push_back({ArgReduce{ArgReduceKind::ArgMax, dim}, {numbers.distinct(sizes)}});
        result.push_back({ArgReduce{ArgReduceKind::ArgMin, dim}, {numbers.distinct(sizes)}});
      }
      for (bool descending : {false, true}) result.push_back({ArgSort{dim, descending}, {numbers.distinct(sizes)}});
      for (PickKind kind : {PickKind::Largest, PickKind::Smallest, PickKind::AnyLargest, PickKind::AnySmallest, PickKind::Ranked})
        for (int64_t count : {int64_t{1}, (sizes[d] + 1) / 2, sizes[d]})
          if (count <= sizes[d] && (count > 0 || kind != PickKind::Ranked)) result.push_back({Pick{kind, dim, count}, {numbers.distinct(sizes)}});
      if (sizes[d] != 0) result.push_back({ScatterPosition{dim, Dim(sizes[d] + 1)}, {numbers.integers(DType::I64, sizes, 0, sizes[d])}});
      for (bool reverse : {false, true}) {
        result.push_back({Cumulative{CumulativeKind::Sum, dim, reverse}, {numbers.uniform(sizes, -1, 1)}});
        if (sizes == Sizes{600, 2} && d == 0) continue;
        result.push_back({Cumulative{CumulativeKind::Product, dim, reverse}, {with_zeros(numbers, sizes)}});
        result.push_back({Cumulative{CumulativeKind::Max, dim, reverse}, {extremes.distinct(sizes)}});
        result.push_back({Cumulative{CumulativeKind::Min, dim, reverse}, {extremes.distinct(sizes)}});
        result.push_back({Cumulative{CumulativeKind::LogSumExp, dim, reverse}, {numbers.uniform(sizes, -3, 3)}});
      }
    }
  }
  return result;
}

}  // namespace stepgraph::testing
