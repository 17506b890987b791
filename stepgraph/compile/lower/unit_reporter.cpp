// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/unit_reporter.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "stepgraph/compile/lower/map_form.h"

namespace stepgraph {

LoweredOp UnitReporter::told(const Node& node) const { return {std::string(name(node.op)), node.scope, node.phase != Phase::None ? node.phase : phase_, node.place}; }

double UnitReporter::bytes_of(ValueId value) const {
  const TensorType& type = graph_.type(value);
  return most_(element_count(type.shape)) * static_cast<double>(size_bytes(type.dtype));
}

int64_t UnitReporter::all_runs(double bytes) const { return static_cast<int64_t>(std::min(bytes * runs_, 1e18)); }

bool UnitReporter::is_free_view(const Node& node) const {
  return op_info(node.op).element_kind == ElementKind::View && grouping_.stored_view[at(node.results[0])] == 0;
}

/// Adds what reading a value reads of each leaf that it is a view of: no more than the leaf has, nor than the view.
void UnitReporter::read_leaves(ValueId value, double most_bytes, Bytes& read) const {
  const int32_t producer = graph_.values[at(value)].node;
  most_bytes = std::min(most_bytes, bytes_of(value));
  if (producer < 0 || !is_free_view(graph_.nodes[static_cast<size_t>(producer)])) {
    read[value] = std::min(read[value] + most_bytes, bytes_of(value));
    return;
  }
  for (const ValueId input : graph_.nodes[static_cast<size_t>(producer)].inputs) read_leaves(input, most_bytes, read);
}

/// Of a MapTensors: its body's nodes one by one over each tensor; what is made of shared scalars alone counts nothing.
double UnitReporter::apart_of_map(const Node& node, std::span<const size_t> tensors) const {
  const auto& map = std::get<MapTensors>(node.op);
  const Graph& body = module_.graph(map.body);
  std::vector<char> varies(body.values.size(), 0);
  for (int64_t i = 0; i < map.tables; ++i) varies[at(body.inputs[static_cast<size_t>(i)].value)] = 1;
  double bytes_an_element = 0;
  for (const Node& inner : body.nodes) {
    double bytes = 0;
    for (const ValueId input : inner.inputs)
      if (varies[at(input)]) bytes += static_cast<double>(size_bytes(body.type(input).dtype));
    if (bytes == 0) continue;
    for (const ValueId result : inner.results) varies[at(result)] = 1, bytes += static_cast<double>(size_bytes(body.type(result).dtype));
    bytes_an_element += bytes;
  }
  double elements = 0;
  for (const size_t t : tensors) elements += most_(element_count(graph_.type(node.inputs[t]).shape));
  return elements * bytes_an_element;
}

LoweredUnit UnitReporter::unit(std::span<const int> nodes, std::span<const ValueId> writes, std::span<const size_t> tensors, std::vector<int> place) const {
  LoweredUnit said;
  said.at = std::move(place);
  const auto* map = std::get_if<MapTensors>(&graph_.nodes[static_cast<size_t>(nodes[0])].op);
  const bool is_loop = std::holds_alternative<Loop>(graph_.nodes[static_cast<size_t>(nodes[0])].op);
  Bytes all;
  std::set<ValueId> own, seen;
  double apart = 0, read = 0, written = 0;
  for (const int index : nodes) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    said.ops.push_back(told(node));
    own.insert(node.results.begin(), node.results.end());
    Bytes alone;
    const std::vector<ValueId> operands = std::holds_alternative<MapTensors>(node.op) ? operands_of_tensors(node, tensors) : node.inputs;
    for (const ValueId input : operands) {
      read_leaves(input, bytes_of(input), alone);
      if (seen.insert(input).second) read_leaves(input, bytes_of(input), all);
    }
    for (const auto& [leaf, bytes] : alone) apart += bytes;
    for (const ValueId result : node.results) apart += bytes_of(result);
  }
  if (is_loop) return said;  // its body tells
  if (map != nullptr) {
    const Node& node = graph_.nodes[static_cast<size_t>(nodes[0])];
    for (const Node& inner : module_.graph(map->body).nodes) said.ops.push_back({std::string(name(inner.op)), node.scope, node.phase, node.place});
    apart = apart_of_map(node, tensors);
  }
  for (const auto& [leaf, bytes] : all)
    if (!own.contains(leaf)) read += bytes;
  for (const ValueId value : writes) written += bytes_of(value);
  said.read = all_runs(read), said.written = all_runs(written);
  said.apart = all_runs(std::max(apart, read + written));
  return said;
}

void UnitReporter::stored(LoweredEntry& entry) const {
  entry.nodes += static_cast<int64_t>(graph_.nodes.size());
  for (const RefusedJoin& join : grouping_.refused) {
    const Node& from = graph_.nodes[static_cast<size_t>(graph_.values[at(join.value)].node)];
    const Node& to = graph_.nodes[static_cast<size_t>(join.reader)];
    entry.stored.push_back({told(from), told(to), all_runs(bytes_of(join.value)), std::string(text(join.why))});
  }
}

}  // namespace stepgraph
