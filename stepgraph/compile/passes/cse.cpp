// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/cse.h"

#include <algorithm>
#include <unordered_map>

#include "stepgraph/compile/passes/remap.h"

namespace stepgraph {
namespace {

/// A number that equal nodes share and different ones rarely do; equality decides. A large constant counts by its first and last bytes.
class BucketHash : public FieldVisitor {
 public:
  static uint64_t of(const Node& node) {
    BucketHash hash;
    hash.text(name(node.op));
    for (ValueId input : node.inputs) hash.number(input.index);
    visit_fields(node.op, hash);
    return hash.hash_;
  }

  void field(std::string_view, bool& value) override { number(value ? 1 : 0); }
  void field(std::string_view, int64_t& value) override { number(value); }
  void field(std::string_view, std::vector<int64_t>& value) override {
    for (int64_t item : value) number(item);
  }
  void field(std::string_view, std::string& value) override { text(value); }
  void field(std::string_view, DType& value) override { number(static_cast<int64_t>(value)); }
  void field(std::string_view, Dim& value) override { dim(value); }
  void field(std::string_view, Shape& value) override {
    for (const Dim& item : value) dim(item);
  }
  void field(std::string_view, Literal& value) override {
    number(static_cast<int64_t>(value.dtype()));
    for (int64_t size : value.sizes()) number(size);
    for (size_t i = 0; i < std::min<size_t>(value.byte_count(), 64); ++i) {
      number(static_cast<int64_t>(value.data()[i]));
      number(static_cast<int64_t>(value.data()[value.byte_count() - 1 - i]));
    }
  }
  void field(std::string_view, GraphId& value) override { number(value.index); }
  void field(std::string_view, ReduceKind& value) override { number(static_cast<int64_t>(value)); }
  void field(std::string_view, std::vector<AxisRef>& value) override {
    for (const AxisRef& axis : value) text(axis.axis);
  }
  void field(std::string_view, Sharding& value) override { text(stepgraph::text(value)); }

 private:
  void number(int64_t value) {
    hash_ = (hash_ ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 29;
  }
  void text(std::string_view value) {
    for (char c : value) number(static_cast<unsigned char>(c));
  }
  void dim(const Dim& value) {
    if (value.is_constant()) number(value.constant());
    else text(value.text());
  }
  uint64_t hash_ = 0;
};

void merge(Graph& graph) {
  Remap remap(graph);
  std::unordered_map<uint64_t, std::vector<size_t>> buckets;  // looked up only, never iterated
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    remap.inputs(node);
    if (is_control(node.op) || is_collective(node.op)) continue;
    std::vector<size_t>& candidates = buckets[BucketHash::of(node)];
    const auto same = std::find_if(candidates.begin(), candidates.end(),
                                   [&](size_t other) { return graph.nodes[other].inputs == node.inputs && graph.nodes[other].op == node.op; });
    if (same == candidates.end()) {
      candidates.push_back(n);
      continue;
    }
    for (size_t i = 0; i < node.results.size(); ++i) remap.replace(node.results[i], graph.nodes[*same].results[i]);
  }
  remap.outputs(graph);
  remove_dead_nodes(graph);
}

}  // namespace

Module merge_common_subexpressions(Module module) {
  for (Graph& graph : module.graphs) merge(graph);
  return module;
}

}  // namespace stepgraph
