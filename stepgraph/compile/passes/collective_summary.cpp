// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/collective_summary.h"

#include <algorithm>
#include <map>

#include <fmt/core.h>

namespace stepgraph {
namespace {

std::string axes_text(const std::vector<AxisRef>& axes) {
  std::string result;
  for (const AxisRef& axis : axes) {
    result += (result.empty() ? "" : ", ") + axis.axis;
    if (axis.size != 0) result += fmt::format(":({}){}", axis.pre, axis.size);
  }
  return result;
}

const std::vector<AxisRef>* axes_of(const Op& op) {
  if (const auto* reduce = std::get_if<AllReduce>(&op)) return &reduce->axes;
  if (const auto* gather = std::get_if<AllGather>(&op)) return &gather->axes;
  if (const auto* scatter = std::get_if<ReduceScatter>(&op)) return &scatter->axes;
  return nullptr;
}

std::string_view kind_of(const Op& op) {
  return std::holds_alternative<AllReduce>(op) ? "all_reduce" : std::holds_alternative<AllGather>(op) ? "all_gather" : "reduce_scatter";
}

Dim bytes_of(const TensorType& type) { return element_count(type.shape) * Dim(static_cast<int64_t>(size_bytes(type.dtype))); }

class Summary {
 public:
  explicit Summary(const Module& module) : module_(module) {}

  const std::vector<CollectiveSummary>& of(GraphId id) {
    const auto found = known_.find(id);
    if (found != known_.end()) return found->second;
    std::vector<CollectiveSummary> result;
    const Graph& graph = module_.graph(id);
    for (const Node& node : graph.nodes) {
      if (const std::vector<AxisRef>* axes = axes_of(node.op)) {
        const bool gathers = std::holds_alternative<AllGather>(node.op);
        add(result,
            {std::string(kind_of(node.op)), axes_text(*axes), 1, module_.symbols.expand(bytes_of(graph.type(gathers ? node.results[0] : node.inputs[0])))});
      }
      const auto* loop = std::get_if<Loop>(&node.op);
      const Dim trips = loop != nullptr ? loop->trip_count : Dim(1);
      for (GraphId callee : called_graphs(node.op))
        for (const CollectiveSummary& inner : of(callee)) add(result, {inner.kind, inner.axes, inner.count * trips, inner.bytes * trips});
    }
    return known_.emplace(id, std::move(result)).first->second;
  }

 private:
  static void add(std::vector<CollectiveSummary>& to, CollectiveSummary one) {
    const auto same = std::find_if(to.begin(), to.end(), [&](const CollectiveSummary& s) { return s.kind == one.kind && s.axes == one.axes; });
    if (same == to.end()) {
      to.push_back(std::move(one));
      return;
    }
    same->count = same->count + one.count;
    same->bytes = same->bytes + one.bytes;
  }

  const Module& module_;
  std::map<GraphId, std::vector<CollectiveSummary>> known_;
};

std::string bytes_text(const Dim& bytes) {
  if (!bytes.is_constant()) return bytes.text() + " B";
  const double value = static_cast<double>(bytes.constant());
  if (value < 1e3) return fmt::format("{} B", bytes.constant());
  if (value < 1e6) return fmt::format("{:.1f} kB", value / 1e3);
  if (value < 1e9) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

}  // namespace

std::vector<CollectiveSummary> collectives(const Module& local, GraphId graph) { return Summary(local).of(graph); }

std::string text(const std::vector<CollectiveSummary>& summaries, const SymbolValues& values) {
  std::string result;
  for (const CollectiveSummary& summary : summaries) {
    if (!result.empty()) result += "; ";
    result +=
        fmt::format("{} x {} over {}, {}", summary.kind, substitute(summary.count, values).text(), summary.axes, bytes_text(substitute(summary.bytes, values)));
  }
  return result.empty() ? "nothing" : result;
}

}  // namespace stepgraph
