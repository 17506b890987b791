// SPDX-License-Identifier: Apache-2.0
// Dense ids. An id is an index into its owner's vector and means nothing outside it.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>

namespace stepgraph {

/// A value of a graph: index into Graph::values.
struct ValueId {
  int32_t index = -1;
  auto operator<=>(const ValueId&) const = default;
};
/// A graph of a module: index into Module::graphs.
struct GraphId {
  int32_t index = -1;
  auto operator<=>(const GraphId&) const = default;
};
/// The index into the owner's vector.
constexpr size_t at(ValueId id) { return static_cast<size_t>(id.index); }
constexpr size_t at(GraphId id) { return static_cast<size_t>(id.index); }

}  // namespace stepgraph
