// SPDX-License-Identifier: Apache-2.0
// Logical -> Sharded: gives every value a layout on the mesh and makes every change of layout a Reshard node, so that partition is purely mechanical.
// The global meaning of the module stays: a Sharded module still speaks of whole tensors.
//
// Forward, node by node, over the factors of the op table's rules (in the manner of Shardy and GSPMD; Xu et al., 2021):
//  - the largest split operand decides which axes split which factors; other operands follow by a Reshard (a slice, if they were whole);
//  - a split reduction factor makes the results partial; partial sums pass through what is linear in them and are reduced before anything else (never
//    added to a whole value); a value with any use that is not linear is reduced where it is made, once for all its uses;
//  - sources (constants, iotas, random numbers, masks; broadcasts of anything, split or not) are made in the layout that their user wants, by making them
//    again if two differ: so a broadcast gathers its small operand and never its result. This goes through calls and loops.
// Graphs are specialised by the layouts of their inputs, equal ones once: 48 calls of a layer stay one graph. Carried values of a Loop take layouts that
// the body keeps: an unsplit dim may become split, a whole value may become partial and at most once be refused; so the search ends.
// Custom gradients of composites are dropped, their names stay.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// Of the inputs (and new states) with that name.
struct InputSharding {
  std::string pattern;           ///< '*' any characters, '?' one
  std::optional<RoleKind> kind;  ///< only inputs of that role
  Sharding sharding;
};
struct ShardingOptions {
  /// First match wins; then the wish of a state (StateInfo) or a sharding written in another input's own type; then batch inputs are split over `data`, by rows,
  /// and all else is replicated. Outputs: a new state as the state that it replaces, in every entry; all others replicated.
  std::vector<InputSharding> inputs;
  /// Axes that split the batch; empty: the axis "data", or the first one of a mesh without.
  std::vector<std::string> batch_axes;
};

/// UserError for an axis that the mesh has not, or a layout that does not fit its input.
Module propagate_shardings(Module logical, const Mesh& mesh, const ShardingOptions& options = {});

}  // namespace stepgraph
