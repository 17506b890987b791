// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/step/map_gradients.h"

#include <utility>

namespace stepgraph {

std::vector<std::vector<Value>> map_gradients(std::vector<OptimizedParameter>& parameters, const MapGradients& what, const GradientBody& body) {
  std::vector<std::pair<DType, std::vector<size_t>>> groups;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const DType dtype = parameters[i].gradient.dtype();
    auto group = groups.begin();
    while (group != groups.end() && group->first != dtype) ++group;
    if (group == groups.end()) group = groups.insert(group, {dtype, {}});
    group->second.push_back(i);
  }
  std::vector<std::vector<Value>> reductions;
  for (const auto& [dtype, members] : groups) {
    Builder& builder = *parameters[members[0]].gradient.builder;
    const GraphId id = builder.module().add_graph(what.name);
    Builder inner(builder.module(), id);
    const Value gradient = inner.input({dtype, {}, {}});
    std::vector<Value> shared, inputs;
    for (const Value& value : what.shared) shared.push_back(inner.input(value.type()));
    for (const Value& output : body(gradient, shared)) inner.output(output);
    for (size_t i : members) inputs.push_back(parameters[i].gradient);
    inputs.insert(inputs.end(), what.shared.begin(), what.shared.end());
    MapTensors map;
    map.body = id;
    map.tensors = static_cast<int64_t>(members.size());
    map.tables = 1;
    map.reduced = what.reduced;
    map.reduce = what.reduce;
    const std::vector<Value> results = builder.emit(map, inputs);
    const size_t replaced = what.replaces ? members.size() : 0;
    for (size_t m = 0; m < replaced; ++m) parameters[members[m]].gradient = results[m];
    reductions.emplace_back(results.begin() + static_cast<std::ptrdiff_t>(replaced), results.end());
  }
  return reductions;
}

}  // namespace stepgraph
