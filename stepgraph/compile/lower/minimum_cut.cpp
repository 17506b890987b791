// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/minimum_cut.h"

#include <algorithm>

namespace stepgraph {
namespace {

class Flow {
 public:
  explicit Flow(const FlowNetwork& network) : out_(static_cast<size_t>(network.vertices)) {
    for (const FlowEdge& edge : network.edges) {
      add(edge.from, edge.to, edge.capacity);
      add(edge.to, edge.from, 0);
    }
  }

  void maximise() {
    while (find_levels()) {
      next_.assign(out_.size(), 0);
      while (send()) {
      }
    }
  }
  /// What the source still reaches.
  std::vector<char> source_side() {
    find_levels();
    std::vector<char> side;
    for (const int level : level_) side.push_back(level >= 0);
    return side;
  }

 private:
  struct Arc {
    int to = 0;
    int64_t room = 0;
  };

  void add(int from, int to, int64_t room) {
    out_[static_cast<size_t>(from)].push_back(static_cast<int>(arcs_.size()));
    arcs_.push_back({to, room});
  }

  bool find_levels() {
    level_.assign(out_.size(), -1);
    level_[0] = 0;
    std::vector<int> queue = {0};
    for (size_t i = 0; i < queue.size(); ++i) {
      for (const int arc : out_[static_cast<size_t>(queue[i])]) {
        const auto& [to, room] = arcs_[static_cast<size_t>(arc)];
        if (room == 0 || level_[static_cast<size_t>(to)] >= 0) continue;
        level_[static_cast<size_t>(to)] = level_[static_cast<size_t>(queue[i])] + 1;
        queue.push_back(to);
      }
    }
    return level_[1] >= 0;
  }

  /// Along one path by levels, without recursion: networks are as deep as programs.
  bool send() {
    std::vector<int> path;  // arcs
    int vertex = 0;
    while (vertex != 1) {
      int& at = next_[static_cast<size_t>(vertex)];
      const std::vector<int>& out = out_[static_cast<size_t>(vertex)];
      while (at < static_cast<int>(out.size()) && !leads_on(vertex, out[static_cast<size_t>(at)])) ++at;
      if (at < static_cast<int>(out.size())) {
        path.push_back(out[static_cast<size_t>(at)]);
        vertex = arcs_[static_cast<size_t>(path.back())].to;
        continue;
      }
      if (path.empty()) return false;
      vertex = arcs_[static_cast<size_t>(path.back() ^ 1)].to;
      path.pop_back();
      ++next_[static_cast<size_t>(vertex)];
    }
    int64_t least = unlimited_capacity;
    for (const int arc : path) least = std::min(least, arcs_[static_cast<size_t>(arc)].room);
    for (const int arc : path) {
      arcs_[static_cast<size_t>(arc)].room -= least;
      arcs_[static_cast<size_t>(arc ^ 1)].room += least;
    }
    return true;
  }
  bool leads_on(int vertex, int arc) const {
    const auto& [to, room] = arcs_[static_cast<size_t>(arc)];
    return room > 0 && level_[static_cast<size_t>(to)] == level_[static_cast<size_t>(vertex)] + 1;
  }

  std::vector<Arc> arcs_;  // an arc and the one back, side by side
  std::vector<std::vector<int>> out_;
  std::vector<int> level_, next_;
};

}  // namespace

std::vector<char> minimum_cut(const FlowNetwork& network) {
  Flow flow(network);
  flow.maximise();
  return flow.source_side();
}

}  // namespace stepgraph
