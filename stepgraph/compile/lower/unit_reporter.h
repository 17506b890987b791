// SPDX-License-Identifier: Apache-2.0
// Makes the lines of a LowerReport: what a unit of nodes reads and writes as one kernel, and what kernels of one node each would.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <vector>
#include "stepgraph/compile/lower/groups.h"
#include "stepgraph/compile/lower/lower_report.h"

namespace stepgraph {

class UnitReporter {
 public:
  /// `runs`: how often the graph runs, as the body of a loop, which has the phase. `most`: the largest value of a size.
  UnitReporter(const Module& module, const Graph& graph, const Grouping& grouping, double runs, Phase phase, std::function<double(const Dim&)> most)
      : module_(module), graph_(graph), grouping_(grouping), runs_(runs), phase_(phase), most_(std::move(most)) {}

  /// `nodes`: of a group, or one that is no member of any. `writes`: what the unit puts into memory. `tensors`: of a MapTensors those that it runs over.
  LoweredUnit unit(std::span<const int> nodes, std::span<const ValueId> writes, std::span<const size_t> tensors, std::vector<int> place) const;
  /// Adds what groups store for one another, and the number of nodes.
  void stored(LoweredEntry& entry) const;

 private:
  using Bytes = std::map<ValueId, double>;
  LoweredOp told(const Node& node) const;
  double bytes_of(ValueId value) const;
  int64_t all_runs(double bytes) const;
  bool is_free_view(const Node& node) const;
  void read_leaves(ValueId value, double most_bytes, Bytes& read) const;
  double apart_of_map(const Node& node, std::span<const size_t> tensors) const;

  const Module& module_;
  const Graph& graph_;
  const Grouping& grouping_;
  double runs_;
  Phase phase_;
  std::function<double(const Dim&)> most_;
};

}  // namespace stepgraph
