// SPDX-License-Identifier: Apache-2.0
// A minimum cut of a network, by the algorithm of Dinitz ("Algorithm for solution of a problem of maximum flow in networks with power estimation", 1970).
// Deterministic: of several minimum cuts the one whose source side is the smallest.
#pragma once
#include <cstdint>
#include <vector>

namespace stepgraph {

/// More than all that is finite in a network together.
inline constexpr int64_t unlimited_capacity = int64_t{1} << 62;

struct FlowEdge {
  int from = 0, to = 0;
  int64_t capacity = 0;
  auto operator<=>(const FlowEdge&) const = default;
};
/// Vertex 0 is the source, vertex 1 the sink.
struct FlowNetwork {
  int vertices = 2;
  std::vector<FlowEdge> edges;
  auto operator<=>(const FlowNetwork&) const = default;
};

/// By vertex, whether it is on the side of the source. Where every cut has an edge without limit, all but the sink may be.
std::vector<char> minimum_cut(const FlowNetwork& network);

}  // namespace stepgraph
