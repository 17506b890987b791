// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/group_form.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stepgraph/program/plan_text.h"

namespace stepgraph {

std::string build_group(const GroupFormRequest& request, FormBuilder& form) {
  const Graph& graph = request.graph;
  form.factors = request.group.factors;
  std::unordered_map<int, int> expr_of;  // by value
  const auto leaf = [&](const LeafElement& element) {
    if (const auto computed = expr_of.find(element.value.index); computed != expr_of.end()) return computed->second;
    const TensorType& type = graph.type(element.value);
    const std::vector<Dim> own_strides = request.strides(element.value);
    LoadExpr load{request.operand(element.value), element.number ? *element.number : address_of_index(element.at, own_strides), element.guards, {}};
    std::vector<int> inputs;
    if (element.computed_dim) {
      load.indices.push_back({own_strides[*element.computed_dim], type.shape[*element.computed_dim]});
      inputs.push_back(element.computed_index);
    }
    if (!load.guards.empty()) inputs.push_back(element.outside ? *element.outside : form.add(ConstantExpr{0}, {}, type.dtype));
    return form.add(std::move(load), std::move(inputs), type.dtype);
  };
  std::string label;
  for (const GroupMember& member : request.group.members) {
    const Node& node = graph.nodes[static_cast<size_t>(member.node)];
    ElementReader reader(graph, form, [&](ValueId value) { return request.is_stored(value) && value != node.results[0]; }, leaf);
    std::vector<Affine> kept = result_index(graph, member), reduced = reduced_index(graph, member);
    for (size_t result = 0; result < node.results.size(); ++result) expr_of[node.results[result].index] = reader.compute(node, result, kept, reduced);
    SG_CHECK(!reader.failure().any(), "a group lost an expression");
    if (label.size() < 60) label += (label.empty() ? "" : " ") + std::string(name(node.op));
  }
  for (const ValueId value : request.stores) {
    const int32_t producer = graph.values[at(value)].node;
    const GroupMember& member =
        *std::find_if(request.group.members.begin(), request.group.members.end(), [&](const GroupMember& m) { return m.node == producer; });
    const Shape& shape = graph.type(value).shape;
    const std::vector<Dim> strides = request.strides(value);
    // Of a dense value by its number, which has all factors where there are no elements too.
    const std::vector<Affine> index = result_index(graph, member);
    const Affine at = strides == dense_strides(shape) ? number_of_index(index, shape) : address_of_index(index, strides);
    form.stores.push_back({request.operand(value), at, expr_of[value.index]});
  }
  return label;
}

}  // namespace stepgraph
