// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/slice_elements.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "stepgraph/compile/passes/rewrite.h"

namespace stepgraph {
namespace {

/// [start, limit) of a dim.
struct Part {
  size_t dim = 0;
  int64_t start = 0, limit = 0;
  auto operator<=>(const Part&) const = default;
};

class SliceBefore {
 public:
  explicit SliceBefore(Graph& graph) : graph_(graph) {}

  void run() {
    find_users();
    find_parts();
    if (std::none_of(parts_.begin(), parts_.end(), [](const auto& parts) { return !parts.empty(); })) return;
    rebuild();
  }

 private:
  const Node* producer(ValueId value) const {
    const int32_t node = graph_.values[at(value)].node;
    return node < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(node)];
  }

  void find_users() {
    users_.resize(graph_.values.size());
    is_output_.assign(graph_.values.size(), false);
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      for (const ValueId input : graph_.nodes[n].inputs) users_[at(input)].push_back(n);
    for (const GraphOutput& output : graph_.outputs) is_output_[at(output.value)] = true;
  }

  /// Of a slice along one dim of known place.
  std::optional<Part> part_of(const Node& node) const {
    const auto* slice = std::get_if<Slice>(&node.op);
    if (slice == nullptr) return std::nullopt;
    const TensorType& from = graph_.type(node.inputs[0]);
    std::optional<Part> part;
    for (size_t d = 0; d < slice->starts.size(); ++d) {
      if (slice->strides[d] != 1) return std::nullopt;
      if (slice->starts[d] == Dim(0) && slice->limits[d] == from.shape[d]) continue;
      if (part || !slice->starts[d].is_constant() || !slice->limits[d].is_constant()) return std::nullopt;
      part = Part{d, slice->starts[d].constant(), slice->limits[d].constant()};
    }
    const bool is_split = part && from.sharding && !from.sharding->dims[part->dim].axes.empty();
    return is_split ? std::nullopt : part;
  }

  bool is_read_by_elements(ValueId value) const {
    return !is_output_[at(value)] && std::all_of(users_[at(value)].begin(), users_[at(value)].end(), [&](size_t user) { return is_per_element(graph_.nodes[user].op); });
  }

  /// The parts that are read of a value, if nothing else is: through element-wise ops that are themselves read so.
  std::vector<Part> parts_read(ValueId value) const {
    std::vector<Part> parts;
    if (is_output_[at(value)]) return {};
    for (const size_t user : users_[at(value)]) {
      const Node& node = graph_.nodes[user];
      const std::vector<Part>& of_user = parts_[at(node.results[0])];
      if (!of_user.empty()) {
        parts.insert(parts.end(), of_user.begin(), of_user.end());
        continue;
      }
      const std::optional<Part> part = part_of(node);
      if (!part || !is_read_by_elements(node.results[0])) return {};
      parts.push_back(*part);
    }
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    for (size_t i = 1; i < parts.size(); ++i)
      if (parts[i].dim != parts[0].dim || parts[i].start < parts[i - 1].limit) return {};
    return parts;
  }

  void find_parts() {
    parts_.resize(graph_.values.size());
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      if (!is_per_element(node.op)) continue;
      const Shape& shape = graph_.type(node.results[0]).shape;
      const bool is_plain = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) { return graph_.type(input).shape == shape; });
      if (is_plain) parts_[at(node.results[0])] = parts_read(node.results[0]);
    }
  }

  ValueId add(Node node, TensorType type) {
    graph_.values.push_back({std::move(type), -1});
    parts_.emplace_back();
    node.results = {{static_cast<int32_t>(graph_.values.size()) - 1}};
    nodes_.push_back(std::move(node));
    return nodes_.back().results[0];
  }

  /// What stands for a value now: a slice that was one before may be computed by itself.
  ValueId now(ValueId value) const {
    const auto other = instead_.find(value);
    return other == instead_.end() ? value : other->second;
  }

  ValueId sliced(ValueId before, const Part& part, const Node& reader) {
    const ValueId value = now(before);
    const auto known = sliced_.find({value, part});
    if (known != sliced_.end()) return known->second;
    const Node* source = producer(value);
    const auto* broadcast = source == nullptr ? nullptr : std::get_if<Broadcast>(&source->op);
    Node made;
    if (!parts_[at(value)].empty()) {
      made = *source;
      for (ValueId& input : made.inputs) input = sliced(input, part, *source);
    } else if (broadcast != nullptr) {
      made = *source;
      std::get<Broadcast>(made.op).shape[part.dim] = Dim(part.limit - part.start);
      const auto dim = std::find(broadcast->dims.begin(), broadcast->dims.end(), static_cast<int64_t>(part.dim));
      const Part of_operand{static_cast<size_t>(dim - broadcast->dims.begin()), part.start, part.limit};
      const bool is_stretched = dim != broadcast->dims.end() && graph_.type(source->inputs[0]).shape[of_operand.dim] == Dim(1);
      const bool is_cut = dim != broadcast->dims.end() && !is_stretched;
      made.inputs[0] = is_cut ? sliced(made.inputs[0], of_operand, *source) : now(made.inputs[0]);
    } else {
      const Shape& shape = graph_.type(value).shape;
      Slice slice{Shape(shape.size(), Dim(0)), shape, std::vector<int64_t>(shape.size(), 1)};
      slice.starts[part.dim] = part.start, slice.limits[part.dim] = part.limit;
      made = {std::move(slice), {value}, {}, reader.place, reader.scope, reader.phase};
    }
    TensorType type = graph_.type(value);
    type.shape[part.dim] = Dim(part.limit - part.start);
    return sliced_[{value, part}] = add(std::move(made), std::move(type));
  }

  void rebuild() {
    for (const Node& source : graph_.nodes) {
      if (std::holds_alternative<Slice>(source.op) && !parts_[at(source.inputs[0])].empty()) {
        instead_[source.results[0]] = sliced(source.inputs[0], *part_of(source), source);
        continue;
      }
      Node node = source;
      for (ValueId& input : node.inputs) input = now(input);
      nodes_.push_back(std::move(node));
    }
    graph_.nodes = std::move(nodes_);
    number_producers(graph_);
    remove_dead_nodes(graph_);
  }

  Graph& graph_;
  std::vector<std::vector<size_t>> users_;  // by value: nodes
  std::vector<bool> is_output_;
  std::vector<std::vector<Part>> parts_;  // by value: those that it is computed in, or none
  std::map<std::pair<ValueId, Part>, ValueId> sliced_;
  std::map<ValueId, ValueId> instead_;  // of slices that were: what is computed for them
  std::vector<Node> nodes_;
};

}  // namespace

Module slice_before_elements(Module module) {
  for (Graph& graph : module.graphs) SliceBefore(graph).run();
  return module;
}

}  // namespace stepgraph
