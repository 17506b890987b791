// SPDX-License-Identifier: Apache-2.0
// From the layouts of a node's operands to the mesh axes that split each factor of its sharding rule, and back to the layout that each operand and
// result must then have. Pure arithmetic over op_table.h's factors; knows no op.
//
// A dim made of several factors, major to minor, is cut into contiguous slices, so only its leading factor (the first whose size is not 1) can be
// split; the others are whole in every slice and become the grain of the cut. A factor that leads some of its dims and not others is never split.
#pragma once
#include <vector>
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

/// One for each factor of a rule; without axes: not split.
using FactorSplits = std::vector<DimSharding>;

bool uses_axis(const std::vector<DimSharding>& dims, const AxisRef& axis);
bool overlaps_any(const std::vector<PartialAxis>& partials, const AxisRef& axis);
bool is_split(const Sharding& sharding);
Sharding without_partial(Sharding sharding);
void sort_by_axis(std::vector<PartialAxis>& partials);
/// A part that is the whole axis is written as the axis.
AxisRef canonical(AxisRef axis, const Mesh& mesh);
/// The grain is dropped where it changes nothing; an unsplit dim has none; a dim of constant size 0 or 1 is never split.
DimSharding canonical(DimSharding sharding, const Dim& size, const Mesh& mesh);
Sharding canonical(Sharding sharding, const Shape& shape, const Mesh& mesh);

/// Which factors may be split at all.
std::vector<bool> splittable_factors(const ShardingRule& rule);
/// Takes over the splits of one operand or result: `dims[d]` are the factors of its dim d. What was taken before stays: an axis splits one factor at most.
void take_splits(const ShardingRule& rule, const std::vector<bool>& splittable, const std::vector<std::vector<int>>& dims,
                 const std::vector<DimSharding>& shardings, FactorSplits& splits);
/// The layout of a value of that shape under the splits, not partial.
Sharding layout_of(const ShardingRule& rule, const FactorSplits& splits, const std::vector<std::vector<int>>& dims, const Shape& shape, const Mesh& mesh);

}  // namespace stepgraph
