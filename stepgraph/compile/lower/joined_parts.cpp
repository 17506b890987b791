// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/joined_parts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "stepgraph/compile/lower/element_reader.h"
#include "stepgraph/compile/ops/op_table.h"
#include "stepgraph/program/plan_text.h"

namespace stepgraph {
namespace {

class Joining {
 public:
  explicit Joining(const Graph& graph) : graph_(graph), is_output_(graph.values.size(), 0) {
    for (const GraphOutput& output : graph.outputs) is_output_[at(output.value)] = 1;
  }

  std::map<ValueId, JoinedPart> run() const {
    std::map<ValueId, JoinedPart> parts;
    for (const Node& node : graph_.nodes)
      if (const auto* concatenate = std::get_if<Concatenate>(&node.op)) add(node, *concatenate, parts);
    return parts;
  }

 private:
  void add(const Node& node, const Concatenate& concatenate, std::map<ValueId, JoinedPart>& parts) const {
    const ValueId whole = node.results[0];
    const Shape& shape = graph_.type(whole).shape;
    if (std::find(shape.begin(), shape.end(), Dim(0)) != shape.end()) return;
    const auto dim = static_cast<size_t>(concatenate.dim);
    std::map<ValueId, JoinedPart> found;
    Dim offset = 0;
    for (const ValueId input : node.inputs) {
      auto part = is_computed(input) ? std::optional(std::pair(input, JoinedPart{whole, offset * dense_strides(shape)[dim], dense_strides(shape)}))
                                     : dim + 1 == shape.size() ? heads_of(input, whole, offset) : std::nullopt;
      if (!part || parts.contains(part->first) || !found.insert(*std::move(part)).second) return;
      offset = offset + graph_.type(input).shape[dim];
    }
    parts.insert(found.begin(), found.end());
  }

  /// An element-wise result, which a form may write in any strides.
  bool is_computed(ValueId value) const {
    const int32_t producer = graph_.values[at(value)].node;
    if (producer < 0 || is_output_[at(value)]) return false;
    const Op& op = graph_.nodes[static_cast<size_t>(producer)].op;
    return op_info(op).element_kind == ElementKind::Pointwise && !std::holds_alternative<Concatenate>(op);
  }

  /// Gradients of an attention, seen as columns of the whole.
  std::optional<std::pair<ValueId, JoinedPart>> heads_of(ValueId input, ValueId whole, const Dim& offset) const {
    const std::optional<ValueId> part = source_of(input);
    const auto strides = part ? strides_in(*part, input, graph_.type(whole).shape) : std::nullopt;
    return strides ? std::optional(std::pair(*part, JoinedPart{whole, offset, *strides})) : std::nullopt;
  }

  /// Through views: a result of a call that writes it in any strides of its heads and rows.
  std::optional<ValueId> source_of(ValueId value) const {
    for (;;) {
      const int32_t producer = graph_.values[at(value)].node;
      if (producer < 0 || is_output_[at(value)]) return std::nullopt;
      const Node& node = graph_.nodes[static_cast<size_t>(producer)];
      const TensorType& type = graph_.type(value);
      if (std::holds_alternative<AttentionGradient>(node.op)) return type.rank() >= 3 && type.dtype == DType::F32 ? std::optional(value) : std::nullopt;
      if (!std::holds_alternative<Reshape>(node.op) && !std::holds_alternative<Transpose>(node.op)) return std::nullopt;
      value = node.inputs[0];
    }
  }

  /// Those of `part` with which its view `seen` is a run of columns of the dense whole.
  std::optional<std::vector<Dim>> strides_in(ValueId part, ValueId seen, const Shape& whole) const {
    const Shape& shape = graph_.type(part).shape;
    const size_t heads = shape.size() - 3;
    std::vector<Dim> strides(shape.size(), 1);
    strides[heads] = shape[heads + 2];
    strides[heads + 1] = whole.back();
    Dim stride = whole.back() * shape[heads + 1];
    for (size_t d = heads; d-- > 0;) {
      strides[d] = stride;
      stride = stride * shape[d];
    }
    const auto window = strided_leaf(graph_, seen, [](ValueId) { return false; }, [&](ValueId) { return strides; });
    if (!window || window->leaf != part || window->offset != Dim(0)) return std::nullopt;
    const std::vector<Dim> wanted = dense_strides(whole);
    for (size_t d = 0; d < wanted.size(); ++d)
      if (graph_.type(seen).shape[d] != Dim(1) && window->strides[d] != wanted[d]) return std::nullopt;
    return strides;
  }

  const Graph& graph_;
  std::vector<char> is_output_;
};

}  // namespace

std::map<ValueId, JoinedPart> joined_parts(const Graph& graph) { return Joining(graph).run(); }

}  // namespace stepgraph
