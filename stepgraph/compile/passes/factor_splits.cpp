// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/factor_splits.h"

#include <algorithm>

namespace stepgraph {
namespace {

bool is_at_most_one(const Dim& size) { return size.is_constant() && size.constant() <= 1; }

const ShardingFactor& factor(const ShardingRule& rule, int index) { return rule.factors[static_cast<size_t>(index)]; }

/// Position of the leading factor among a dim's factors; the count when there is none.
size_t leading(const ShardingRule& rule, const std::vector<int>& factors) {
  size_t at = 0;
  while (at < factors.size() && factor(rule, factors[at]).size == Dim(1)) ++at;
  return at;
}

Dim trailing_size(const ShardingRule& rule, const std::vector<int>& factors, size_t lead) {
  Dim size = 1;
  for (size_t i = lead + 1; i < factors.size(); ++i) size = size * factor(rule, factors[i]).size;
  return size;
}

}  // namespace

bool uses_axis(const std::vector<DimSharding>& dims, const AxisRef& axis) {
  for (const DimSharding& dim : dims)
    for (const AxisRef& used : dim.axes)
      if (overlap(used, axis)) return true;
  return false;
}

bool overlaps_any(const std::vector<PartialAxis>& partials, const AxisRef& axis) {
  return std::any_of(partials.begin(), partials.end(), [&](const PartialAxis& p) { return overlap(p.axis, axis); });
}

bool is_split(const Sharding& sharding) {
  return std::any_of(sharding.dims.begin(), sharding.dims.end(), [](const DimSharding& dim) { return !dim.axes.empty(); });
}

Sharding without_partial(Sharding sharding) {
  sharding.partial.clear();
  return sharding;
}

void sort_by_axis(std::vector<PartialAxis>& partials) {
  std::sort(partials.begin(), partials.end(), [](const PartialAxis& a, const PartialAxis& b) { return a.axis < b.axis; });
}

AxisRef canonical(AxisRef axis, const Mesh& mesh) {
  if (axis.pre == 1 && axis.size == mesh.find(axis.axis)->size) axis.size = 0;
  return axis;
}

DimSharding canonical(DimSharding sharding, const Dim& size, const Mesh& mesh) {
  std::erase_if(sharding.axes, [&](const AxisRef& axis) { return axis_size(axis, mesh) == 1; });
  for (AxisRef& axis : sharding.axes) axis = canonical(std::move(axis), mesh);
  if (is_at_most_one(size)) sharding.axes.clear();
  if (sharding.axes.empty()) return {};
  if (sharding.grain == Dim(1) || !size.is_constant() || !sharding.grain.is_constant()) return sharding;
  const Dim unit = sharding.grain * Dim(split_count(sharding, mesh));
  if (mod(size, unit) == Dim(0)) sharding.grain = 1;
  return sharding;
}

Sharding canonical(Sharding sharding, const Shape& shape, const Mesh& mesh) {
  SG_CHECK(sharding.dims.size() == shape.size());
  for (size_t d = 0; d < shape.size(); ++d) sharding.dims[d] = canonical(std::move(sharding.dims[d]), shape[d], mesh);
  std::erase_if(sharding.partial, [&](const PartialAxis& partial) { return axis_size(partial.axis, mesh) == 1; });
  for (PartialAxis& partial : sharding.partial) partial.axis = canonical(std::move(partial.axis), mesh);
  sort_by_axis(sharding.partial);
  return sharding;
}

std::vector<bool> splittable_factors(const ShardingRule& rule) {
  std::vector<bool> splittable;
  for (const ShardingFactor& f : rule.factors) splittable.push_back(f.kind != FactorKind::Replicate && !is_at_most_one(f.size));
  const auto visit = [&](const std::vector<std::vector<std::vector<int>>>& values) {
    for (const auto& dims : values)
      for (const std::vector<int>& factors : dims)
        for (size_t i = leading(rule, factors) + 1; i < factors.size(); ++i) splittable[static_cast<size_t>(factors[i])] = false;
  };
  visit(rule.operands);
  visit(rule.results);
  return splittable;
}

void take_splits(const ShardingRule& rule, const std::vector<bool>& splittable, const std::vector<std::vector<int>>& dims,
                 const std::vector<DimSharding>& shardings, FactorSplits& splits) {
  SG_CHECK(dims.size() == shardings.size(), "sharding rule and rank differ");
  for (size_t d = 0; d < dims.size(); ++d) {
    const DimSharding& given = shardings[d];
    const size_t lead = leading(rule, dims[d]);
    if (given.axes.empty() || lead == dims[d].size()) continue;
    const size_t f = static_cast<size_t>(dims[d][lead]);
    if (!splittable[f] || !splits[f].axes.empty()) continue;
    DimSharding taken;
    for (const AxisRef& axis : given.axes) {
      if (uses_axis(splits, axis)) break;
      taken.axes.push_back(axis);
    }
    if (taken.axes.empty()) continue;
    taken.grain = exact_quotient(given.grain, trailing_size(rule, dims[d], lead)).value_or(Dim(1));
    splits[f] = std::move(taken);
  }
}

Sharding layout_of(const ShardingRule& rule, const FactorSplits& splits, const std::vector<std::vector<int>>& dims, const Shape& shape, const Mesh& mesh) {
  SG_CHECK(dims.size() == shape.size(), "sharding rule and rank differ");
  Sharding layout = Sharding::replicated(shape.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    const size_t lead = leading(rule, dims[d]);
    if (lead == dims[d].size()) continue;
    const DimSharding& split = splits[static_cast<size_t>(dims[d][lead])];
    layout.dims[d] = canonical({split.axes, split.grain * trailing_size(rule, dims[d], lead)}, shape[d], mesh);
  }
  return layout;
}

}  // namespace stepgraph
