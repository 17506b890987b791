// SPDX-License-Identifier: Apache-2.0
// Maps over tensors in the walk: each tensor in its own layout, what is reduced over all of them whole.
#include <algorithm>

#include "stepgraph/compile/passes/sharding_walk.h"

namespace stepgraph {
namespace {

/// All axes that split a tensor, in order.
std::vector<AxisRef> axes_of(const Sharding& sharding) {
  std::vector<AxisRef> axes;
  for (const DimSharding& dim : sharding.dims) axes.insert(axes.end(), dim.axes.begin(), dim.axes.end());
  std::sort(axes.begin(), axes.end());
  return axes;
}

/// Tensors that the same axes split, in the order of their first: a reduction over others adds up other ranks. All of them in one group, if `apart` is not asked for.
std::vector<std::vector<size_t>> tensors_by_axes(const std::vector<Sharding>& layouts, bool apart) {
  std::vector<std::vector<size_t>> groups;
  for (size_t j = 0; j < layouts.size(); ++j) {
    auto group = groups.begin();
    while (group != groups.end() && apart && axes_of(layouts[group->front()]) != axes_of(layouts[j])) ++group;
    if (group == groups.end()) group = groups.insert(group, std::vector<size_t>{});
    group->push_back(j);
  }
  if (groups.empty()) groups.emplace_back();
  return groups;
}

/// What joins two reductions of parts.
BinaryKind combination(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::Sum: return BinaryKind::Add;
    case ReduceKind::Product: return BinaryKind::Multiply;
    case ReduceKind::Max: return BinaryKind::Maximum;
    case ReduceKind::Min: return BinaryKind::Minimum;
    case ReduceKind::Any: return BinaryKind::Or;
    case ReduceKind::All: return BinaryKind::And;
  }
  return BinaryKind::Add;
}

}  // namespace

void ShardingWalk::map_tensors(const Node& node, MapTensors op) {
  const size_t tensors = static_cast<size_t>(op.tensors), tables = static_cast<size_t>(op.tables);
  std::vector<Sharding> layouts(tensors);
  for (size_t j = 0; j < tensors; ++j) {
    layouts[j] = Sharding::replicated(shape(node.inputs.at(j)).size());
    for (size_t t = tables; t-- > 0;) {
      const ValueId value = node.inputs.at(t * tensors + j);
      if (!is_lazy(value) && is_split(sharding(value))) layouts[j] = without_partial(sharding(value));
    }
  }
  const std::vector<InputLayout> scalars(request_.logical.graph(op.body).inputs.size());
  const WantedLayouts made(request_.logical.graph(op.body).outputs.size(), Sharding{});
  op.body = request_.specialise(op.body, scalars, made).graph;
  const size_t reduced = static_cast<size_t>(op.reduced), mapped = made.size() - reduced;
  std::vector<Value> results(node.results.size());
  for (const std::vector<size_t>& members : tensors_by_axes(layouts, reduced > 0)) {
    const std::vector<Value> part = append_map(node, op, members, layouts);
    for (size_t o = 0; o < mapped; ++o)
      for (size_t m = 0; m < members.size(); ++m) results[o * tensors + members[m]] = part[o * members.size() + m];
    for (size_t o = 0; o < reduced; ++o) {
      Value& result = results[mapped * tensors + o];
      const Value scalar = whole_scalar(part[mapped * members.size() + o]);
      result = result.builder ? combined(op.reduce, result, scalar) : scalar;
    }
  }
  set_results(node, results);
}

/// The node for some of its tensors; what is reduced is partial over the axes that split them.
std::vector<Value> ShardingWalk::append_map(const Node& node, MapTensors op, const std::vector<size_t>& members, const std::vector<Sharding>& layouts) {
  const size_t tensors = static_cast<size_t>(op.tensors), tables = static_cast<size_t>(op.tables);
  std::vector<Value> inputs;
  for (size_t t = 0; t < tables; ++t)
    for (size_t j : members) inputs.push_back(use(node.inputs[t * tensors + j], layouts[j]));
  for (size_t i = tensors * tables; i < node.inputs.size(); ++i) inputs.push_back(use(node.inputs[i], Sharding{}));
  const size_t reduced = static_cast<size_t>(op.reduced), mapped = tensors == 0 ? 0 : (node.results.size() - reduced) / tensors;
  std::vector<TensorType> types;
  for (size_t o = 0; o < mapped; ++o) {
    for (size_t j : members) {
      types.push_back(source_.type(node.results[o * tensors + j]));
      types.back().sharding = layouts[j];
    }
  }
  Sharding sum;
  if (!members.empty())
    for (const AxisRef& axis : axes_of(layouts[members[0]])) sum.partial.push_back({axis, op.reduce});
  for (size_t o = node.results.size() - reduced; o < node.results.size(); ++o) {
    types.push_back(source_.type(node.results[o]));
    types.back().sharding = sum;
  }
  op.tensors = static_cast<int64_t>(members.size());
  builder_.set_place(node.place);
  builder_.set_scope(node.scope);
  return builder_.append(op, inputs, std::move(types));
}

Value ShardingWalk::whole_scalar(Value value) {
  TensorType type = value.type();
  if (type.sharding->partial.empty()) return value;
  type.sharding = Sharding{};
  return builder_.append(Reshard{Sharding{}}, std::span<const Value>(&value, 1), {std::move(type)}).at(0);
}

Value ShardingWalk::combined(ReduceKind kind, Value a, Value b) {
  TensorType type = a.type();
  const Value inputs[] = {a, b};
  return builder_.append(Binary{combination(kind)}, inputs, {std::move(type)}).at(0);
}

}  // namespace stepgraph
