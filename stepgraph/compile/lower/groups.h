// SPDX-License-Identifier: Apache-2.0
// Fusion: which nodes of a flat graph become one form. A group is a set of nodes over common iteration factors in which each computed value has one place (an
// affine index in the factors), is in a register for the nodes of the group that read it there, and is stored if anything else reads it.
//
// Legal is a group when every value in it is read by its members at its own place only, all its reductions run over the same factors, each member is computed once
// for each value of the factors that are kept, and no path leaves the group and comes back. Groups grow in the order of
// the program, each node to what it reads; then those that read the same memory in the same way are joined. Number class: exact (a value is the same wherever it is computed, program/form.h).
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>
#include "stepgraph/compile/lower/element_reader.h"

namespace stepgraph {

struct GroupMember {
  int node = 0;
  std::vector<Affine> domain;  ///< index in what it runs over: its result, or the operand of a reduction
};
struct GroupAccess {
  int member = 0;  ///< index into members
  ValueId value;
  std::vector<Affine> at;
  bool wants_memory = false;
  bool is_computed = false;  ///< at an index of the data, which may be out of range
};
struct Group {
  std::vector<Factor> factors;
  std::vector<int> order;      ///< of factors, outer to inner
  std::vector<char> reduced;   ///< by factor
  std::vector<GroupMember> members;  ///< by node ascending
  std::vector<GroupAccess> accesses;
};

/// Why what one group makes is not read in a register by another.
enum class JoinRefusal : uint8_t {
  CallBetween,      ///< something waits for a call, and the other does not
  PathOutside,      ///< a path leads out of the two and comes back
  TooManyNodes, TooManyOperands,
  OtherFactors,     ///< they do not count through the same dims
  OtherElements,    ///< it is read at another index than where it is made, or more than once
  OtherReductions,  ///< sums over different dims
  SumOrder,         ///< the order of a sum would change
  Memory,           ///< its index is computed or guarded: it has to lie in memory
};
/// "counts through other dims"
std::string_view text(JoinRefusal refusal);
struct RefusedJoin {
  ValueId value;
  int reader = 0;  ///< node
  JoinRefusal why{};
};

struct Grouping {
  std::vector<Group> groups;
  std::vector<int> group_of;     ///< by node: its group; -1: a call, a view, or a node without a form
  std::vector<char> stored_view;  ///< by value: a view that is computed and stored for itself, as a member of a group
  std::vector<RefusedJoin> refused;  ///< by reader: values of groups that are stored for another group
};

struct GroupOptions {
  bool fuse = true;  ///< false: a group a node
  /// What code generation cannot do: nodes that are calls though they have an expression.
  std::function<bool(const Graph&, const Node&)> can_emit;
};

/// `stored_views`: views that must lie in memory, dense, whatever reads them.
Grouping group_nodes(const Graph& graph, const std::vector<ValueId>& stored_views, const GroupOptions& options);

/// The index of result `result` of a member.
std::vector<Affine> result_index(const Graph& graph, const GroupMember& member);
/// The index along the dims that a member reduces; empty for others.
std::vector<Affine> reduced_index(const Graph& graph, const GroupMember& member);

}  // namespace stepgraph
