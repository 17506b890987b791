// SPDX-License-Identifier: Apache-2.0
// Minimum cuts against all cuts of small random networks.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "stepgraph/compile/lower/minimum_cut.h"

namespace stepgraph {
namespace minimum_cut_test {

/// Nothing where an edge without limit is cut.
std::optional<int64_t> price_of(const FlowNetwork& network, const std::vector<char>& side) {
  int64_t price = 0;
  for (const FlowEdge& edge : network.edges) {
    if (!side[static_cast<size_t>(edge.from)] || side[static_cast<size_t>(edge.to)]) continue;
    if (edge.capacity == unlimited_capacity) return std::nullopt;
    price += edge.capacity;
  }
  return price;
}

std::optional<int64_t> cheapest(const FlowNetwork& network) {
  std::optional<int64_t> best;
  std::vector<char> side(static_cast<size_t>(network.vertices));
  for (unsigned chosen = 0; chosen < 1U << (network.vertices - 2); ++chosen) {
    side[0] = 1, side[1] = 0;
    for (int v = 2; v < network.vertices; ++v) side[static_cast<size_t>(v)] = (chosen >> (v - 2) & 1) != 0;
    const auto price = price_of(network, side);
    if (price && (!best || *price < *best)) best = price;
  }
  return best;
}

TEST(MinimumCut, IsTheCheapestOfAllCutsOfRandomNetworks) {
  std::mt19937 random(7);
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  int with_limit = 0;
  for (int round = 0; round < 400; ++round) {
    FlowNetwork network;
    network.vertices = 3 + below(9);
    for (int edges = below(3 * network.vertices); edges >= 0; --edges)
      network.edges.push_back({below(network.vertices), below(network.vertices), below(6) == 0 ? unlimited_capacity : below(20)});
    const auto wanted = cheapest(network);
    if (!wanted) continue;
    ++with_limit;
    EXPECT_EQ(price_of(network, minimum_cut(network)), wanted) << "round " << round;
  }
  EXPECT_GT(with_limit, 200);
}

/// As rematerialisation makes them: a program of nodes, values and readers behind. What a cut says to run again can be run from what it keeps.
TEST(MinimumCut, KeepsWhatIsNeededToRunTheRestAgain) {
  std::mt19937 random(11);
  const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  for (int round = 0; round < 200; ++round) {
    const int nodes = 2 + below(5);
    FlowNetwork network;
    network.vertices = 2 + 2 * nodes;
    const auto node = [](int i) { return 2 + 2 * i; };
    const auto value = [](int i) { return 3 + 2 * i; };
    std::vector<std::vector<int>> operands(static_cast<size_t>(nodes));
    std::vector<char> wanted;
    for (int i = 0; i < nodes; ++i) {
      network.edges.push_back({0, node(i), below(8) == 0 ? unlimited_capacity : 1 + below(30)});
      network.edges.push_back({node(i), value(i), 1 + below(30)});
      for (int j = 0; j < i; ++j) {
        if (below(2) != 0) continue;
        network.edges.push_back({value(j), node(i), unlimited_capacity});
        operands[static_cast<size_t>(i)].push_back(j);
      }
      wanted.push_back(below(2) == 0);
      if (wanted.back()) network.edges.push_back({value(i), 1, unlimited_capacity});
    }
    const std::vector<char> side = minimum_cut(network);
    EXPECT_EQ(price_of(network, side), cheapest(network)) << "round " << round;
    const auto on_source_side = [&](int vertex) { return side[static_cast<size_t>(vertex)] != 0; };
    for (int i = 0; i < nodes; ++i) {
      if (wanted[static_cast<size_t>(i)]) {
        EXPECT_FALSE(on_source_side(value(i))) << "a value that is wanted is there";
      }
      if (on_source_side(node(i))) continue;
      for (const int j : operands[static_cast<size_t>(i)]) EXPECT_FALSE(on_source_side(value(j))) << "what runs again finds its operands";
    }
  }
}

}  // namespace minimum_cut_test
}  // namespace stepgraph
