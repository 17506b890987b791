// SPDX-License-Identifier: Apache-2.0
// What a program's own loss is a mean of: its last operations are read backwards, so that a masked or weighted mean keeps the denominator of the whole batch
// however the rows are cut.
#pragma once
#include <optional>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph::pt2 {

/// numerator / (max(sum, least) + constant): see program/role.h. Without `sum` the term is a mean over the rows, or does not depend on them.
struct LossTerm {
  Value numerator;
  std::optional<Value> sum, least, constant;
};

/// The loss as a sum of terms, in nodes that are added to its graph; nothing if it is none. What comes before the last sums over the batch counts as made row
/// by row: statistics of a batch are those of the rows at hand.
std::optional<std::vector<LossTerm>> loss_terms(const Value& loss);

}  // namespace stepgraph::pt2
