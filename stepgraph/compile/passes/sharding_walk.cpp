// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/sharding_walk.h"

#include <algorithm>

namespace stepgraph {
namespace {

/// Lazy values are made by recursion.
constexpr int lazy_depth_max = 64;

bool has_axis(const std::vector<PartialAxis>& partials, const AxisRef& axis) {
  return std::any_of(partials.begin(), partials.end(), [&](const PartialAxis& p) { return p.axis == axis; });
}

bool overlaps_any(const std::vector<PartialAxis>& partials, const AxisRef& axis) {
  return std::any_of(partials.begin(), partials.end(), [&](const PartialAxis& p) { return overlap(p.axis, axis); });
}

void sort_by_axis(std::vector<PartialAxis>& partials) {
  std::sort(partials.begin(), partials.end(), [](const PartialAxis& a, const PartialAxis& b) { return a.axis < b.axis; });
}

Sharding whole(Sharding sharding) {
  sharding.partial.clear();
  return sharding;
}

bool is_split(const Sharding& sharding) {
  return std::any_of(sharding.dims.begin(), sharding.dims.end(), [](const DimSharding& dim) { return !dim.axes.empty(); });
}

Sharding with_leading_dim(Sharding slice) {
  slice.dims.insert(slice.dims.begin(), DimSharding{});
  return slice;
}

Sharding without_leading_dim(Sharding stacked) {
  SG_CHECK(!stacked.dims.empty());
  stacked.dims.erase(stacked.dims.begin());
  return stacked;
}

/// All axes that split a tensor, in order.
std::vector<AxisRef> axes_of(const Sharding& sharding) {
  std::vector<AxisRef> axes;
  for (const DimSharding& dim : sharding.dims) axes.insert(axes.end(), dim.axes.begin(), dim.axes.end());
  std::sort(axes.begin(), axes.end());
  return axes;
}

/// Tensors that the same axes split, in the order of their first: a reduction over others adds up other ranks. All of them in one group, if `apart` is not
/// asked for.
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

ShardingWalk::ShardingWalk(ShardingWalkRequest request)
    : request_(std::move(request)),
      source_(request_.logical.graph(request_.source)),
      builder_(request_.target, request_.graph),
      states_(source_.values.size()),
      reduce_early_(request_.facts.must_be_whole) {
  if (request_.reduce_late) reduce_early_.assign(reduce_early_.size(), false);
}

SpecialisedGraph ShardingWalk::run(const std::vector<Sharding>& inputs, const std::vector<std::optional<Sharding>>& outputs) {
  SG_CHECK(inputs.size() == source_.inputs.size() && (outputs.empty() || outputs.size() == source_.outputs.size()));
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i] && outputs[i]->is_replicated() && !request_.reduce_late) reduce_early_[static_cast<size_t>(source_.outputs[i].value.index)] = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorType type = source_.type(source_.inputs[i].value);
    type.sharding = inputs[i];
    add_version(source_.inputs[i].value, {inputs[i], builder_.input(std::move(type), source_.inputs[i].role).id});
  }
  for (size_t n = 0; n < source_.nodes.size(); ++n) {
    const Node& node = source_.nodes[n];
    if (const auto* op = std::get_if<Call>(&node.op))
      call(node, *op);
    else if (const auto* loop_op = std::get_if<Loop>(&node.op))
      loop(node, *loop_op);
    else if (const auto* map = std::get_if<MapTensors>(&node.op))
      map_tensors(node, *map);
    else
      ordinary(n);
  }
  SpecialisedGraph made{request_.graph, {}, {}};
  for (size_t i = 0; i < source_.outputs.size(); ++i) {
    const GraphOutput& output = source_.outputs[i];
    Sharding layout = Sharding::replicated(source_.type(output.value).rank());
    if (i < outputs.size() && outputs[i])
      layout = *outputs[i];
    else if (!is_lazy(output.value))
      layout = sharding(output.value);
    made.wishes.push_back(wish(output.value));
    builder_.output(use(output.value, layout), output.role);
    made.outputs.push_back(std::move(layout));
  }
  return made;
}

// ---- versions of a value ----

const Sharding& ShardingWalk::sharding(ValueId value) {
  const State& s = state(value);
  SG_CHECK(!s.is_lazy && s.current < s.versions.size(), "value without a layout");
  return s.versions[s.current].sharding;
}

void ShardingWalk::add_version(ValueId value, Version version) { state(value).versions.push_back(std::move(version)); }

void ShardingWalk::set_results(const Node& node, std::span<const Value> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const ValueId id = node.results[i];
    const Sharding made = *values[i].type().sharding;
    add_version(id, {made, values[i].id});
    if (!made.partial.empty() && reduce_early_[static_cast<size_t>(id.index)]) use(id, whole(made));
  }
}

Value ShardingWalk::use(ValueId value, const Sharding& target) {
  State& s = state(value);
  const auto find = [&]() -> std::optional<Value> {
    for (const Version& version : s.versions)
      if (version.sharding == target) return builder_.value(version.value);
    return std::nullopt;
  };
  if (auto found = find()) return *found;
  if (s.is_lazy) {
    make(value, target);
    if (auto found = find()) return *found;
  }
  SG_CHECK(!s.versions.empty(), "value used before it is made");
  // A whole copy, where there is one, gives any layout without communication.
  size_t from = std::min(s.current, s.versions.size() - 1);
  for (size_t i = 0; i < s.versions.size(); ++i)
    if (s.versions[i].sharding.is_replicated()) from = i;
  const Sharding have = s.versions[from].sharding;
  TensorType type = source_.type(value);
  type.sharding = target;
  const Value input = builder_.value(s.versions[from].value);
  const Value made = builder_.append(Reshard{target}, std::span<const Value>(&input, 1), {std::move(type)}).at(0);
  s.versions.push_back({target, made.id});
  // All later users share one reduction.
  if (target.partial.empty() && !have.partial.empty() && target.dims == have.dims) s.current = s.versions.size() - 1;
  return made;
}

/// Makes a lazy value in the wanted layout, or in the nearest that its node can make.
void ShardingWalk::make(ValueId value, const Sharding& target) {
  const size_t index = static_cast<size_t>(source_.values[static_cast<size_t>(value.index)].node);
  const Node& node = source_.nodes[index];
  const NodeFacts& facts = request_.facts.nodes[index];
  const auto place = std::find(node.results.begin(), node.results.end(), value) - node.results.begin();
  const auto& dims = facts.rule.results[static_cast<size_t>(place)];
  FactorSplits splits(facts.rule.factors.size());
  take_splits(facts.rule, facts.splittable, dims, target.dims, splits);
  for (size_t f = 0; f < splits.size(); ++f)
    if (facts.rule.factors[f].kind != FactorKind::Parallel) splits[f] = {};
  const Sharding layout = layout_of(facts.rule, splits, dims, source_.type(value).shape, request_.target.mesh);
  for (const Version& version : state(value).versions)
    if (version.sharding == layout) return;
  const SourcePlace outer_place = builder_.place();
  const std::string outer_scope = builder_.scope();
  const std::vector<Value> made = append_ordinary(index, splits, {std::vector<std::vector<PartialAxis>>(node.inputs.size()), {}});
  builder_.set_place(outer_place);
  builder_.set_scope(outer_scope);
  for (size_t i = 0; i < made.size(); ++i) add_version(node.results[i], {*made[i].type().sharding, made[i].id});
}

// ---- ordinary nodes ----

void ShardingWalk::ordinary(size_t index) {
  const Node& node = source_.nodes[index];
  if (can_wait(index)) {
    int depth = 1;
    for (ValueId input : node.inputs) depth = std::max(depth, state(input).lazy_depth + 1);
    for (ValueId result : node.results) state(result).is_lazy = true, state(result).lazy_depth = depth;
    return;
  }
  const FactorSplits splits = decide_splits(index);
  set_results(node, append_ordinary(index, splits, decide_partials(index, splits)));
}

/// Nothing here comes from a tensor of the outside, or the node only spreads a whole one over new dims.
bool ShardingWalk::can_wait(size_t index) {
  const Node& node = source_.nodes[index];
  bool has_dims = false, from_scalars = true, from_whole = true;
  for (ValueId result : node.results) has_dims |= source_.type(result).rank() > 0;
  if (!has_dims) return false;
  for (ValueId input : node.inputs) {
    if (state(input).lazy_depth >= lazy_depth_max) return false;
    if (is_lazy(input)) continue;
    from_whole = from_whole && sharding(input).is_replicated();
    from_scalars = from_scalars && from_whole && source_.type(input).rank() == 0;
  }
  return from_scalars || (from_whole && request_.facts.nodes[index].makes_new_dims);
}

FactorSplits ShardingWalk::decide_splits(size_t index) {
  const Node& node = source_.nodes[index];
  const NodeFacts& facts = request_.facts.nodes[index];
  FactorSplits splits(facts.rule.factors.size());
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (!is_lazy(node.inputs[i]) && is_split(sharding(node.inputs[i])))
      order.push_back({-size_estimate(source_.type(node.inputs[i]).shape, request_.logical.symbols), i});
  std::sort(order.begin(), order.end());
  for (const auto& [size, i] : order) take_splits(facts.rule, facts.splittable, facts.rule.operands[i], sharding(node.inputs[i]).dims, splits);
  return splits;
}

/// Whether the operands that are partial over this axis may stay so: exactly a linear group is (zeros count as partial), and the op does not blow them up,
/// which would only make the reduction larger.
bool ShardingWalk::passes(const Node& node, const ShardingRule& rule, const PartialAxis& partial, std::vector<size_t>& group) {
  if (partial.kind != ReduceKind::Sum) return false;
  std::vector<bool> is_partial(node.inputs.size(), false);
  double largest = 0, made = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (is_lazy(node.inputs[i])) continue;
    for (const PartialAxis& other : sharding(node.inputs[i]).partial) {
      if (!overlap(other.axis, partial.axis)) continue;
      if (other != partial) return false;
      is_partial[i] = true;
      largest = std::max(largest, size_estimate(source_.type(node.inputs[i]).shape, request_.logical.symbols));
    }
  }
  for (ValueId result : node.results) made += size_estimate(source_.type(result).shape, request_.logical.symbols);
  if (made > largest) return false;
  for (const std::vector<int>& candidate : rule.linear_groups) {
    std::vector<bool> in_group(node.inputs.size(), false);
    for (int i : candidate) in_group.at(static_cast<size_t>(i)) = true;
    bool fits = true;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool zero = request_.facts.is_zero[static_cast<size_t>(node.inputs[i].index)];
      fits = fits && (is_partial[i] ? in_group[i] : !in_group[i] || zero);
    }
    if (!fits) continue;
    group.assign(candidate.begin(), candidate.end());
    return true;
  }
  return false;
}

std::vector<PartialAxis> ShardingWalk::wish(ValueId output) {
  std::vector<PartialAxis> wished;
  const int32_t index = source_.values[static_cast<size_t>(output.index)].node;
  if (index < 0 || is_lazy(output)) return wished;
  const Node& node = source_.nodes[static_cast<size_t>(index)];
  for (const std::vector<int>& group : request_.facts.nodes[static_cast<size_t>(index)].rule.linear_groups) {
    for (int i : group) {
      const ValueId operand = node.inputs[static_cast<size_t>(i)];
      if (group.size() < 2 || is_lazy(operand)) continue;
      for (const PartialAxis& partial : state(operand).versions.front().sharding.partial)
        if (partial.kind == ReduceKind::Sum && !has_axis(wished, partial.axis)) wished.push_back(partial);
    }
  }
  return wished;
}

ShardingWalk::Partials ShardingWalk::decide_partials(size_t index, const FactorSplits& splits) {
  const Node& node = source_.nodes[index];
  const ShardingRule& rule = request_.facts.nodes[index].rule;
  Partials partials{std::vector<std::vector<PartialAxis>>(node.inputs.size()), {}};
  for (size_t f = 0; f < splits.size(); ++f)
    if (rule.factors[f].kind == FactorKind::Reduction)
      for (const AxisRef& axis : splits[f].axes) partials.results.push_back({axis, rule.factors[f].reduce});
  for (ValueId input : node.inputs) {
    if (is_lazy(input)) continue;
    const std::vector<PartialAxis> candidates = sharding(input).partial;
    for (const PartialAxis& partial : candidates) {
      std::vector<size_t> group;
      if (has_axis(partials.results, partial.axis) || uses_axis(splits, partial.axis) || !passes(node, rule, partial, group)) continue;
      for (size_t i : group) partials.operands[i].push_back(partial);
      partials.results.push_back(partial);
    }
  }
  for (std::vector<PartialAxis>& operand : partials.operands) sort_by_axis(operand);
  sort_by_axis(partials.results);
  return partials;
}

std::vector<Value> ShardingWalk::append_ordinary(size_t index, const FactorSplits& splits, const Partials& partials) {
  const Node& node = source_.nodes[index];
  const ShardingRule& rule = request_.facts.nodes[index].rule;
  const Mesh& mesh = request_.target.mesh;
  std::vector<Value> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Sharding layout = layout_of(rule, splits, rule.operands[i], source_.type(node.inputs[i]).shape, mesh);
    layout.partial = partials.operands[i];
    inputs.push_back(use(node.inputs[i], layout));
  }
  std::vector<Sharding> results;
  for (size_t i = 0; i < node.results.size(); ++i) {
    results.push_back(layout_of(rule, splits, rule.results[i], source_.type(node.results[i]).shape, mesh));
    results.back().partial = partials.results;
  }
  return append(node, node.op, inputs, std::move(results));
}

std::vector<Value> ShardingWalk::append(const Node& node, Op op, std::span<const Value> inputs, std::vector<Sharding> results) {
  std::vector<TensorType> types;
  for (size_t i = 0; i < node.results.size(); ++i) {
    types.push_back(source_.type(node.results[i]));
    types.back().sharding = std::move(results[i]);
  }
  builder_.set_place(node.place);
  builder_.set_scope(node.scope);
  builder_.set_phase(node.phase);
  return builder_.append(std::move(op), inputs, std::move(types));
}

// ---- control ----

/// As it is; a lazy one like an operand of the same shape that is split, else whole.
Sharding ShardingWalk::layout_for_control(ValueId value, const Node& node) {
  if (!is_lazy(value)) return sharding(value);
  const Shape& shape = source_.type(value).shape;
  for (ValueId other : node.inputs)
    if (!is_lazy(other) && is_split(sharding(other)) && source_.type(other).shape == shape) return whole(sharding(other));
  return Sharding::replicated(shape.size());
}

void ShardingWalk::call(const Node& node, Call op) {
  std::vector<Sharding> layouts;
  std::vector<Value> inputs;
  for (ValueId input : node.inputs) {
    layouts.push_back(layout_for_control(input, node));
    inputs.push_back(use(input, layouts.back()));
  }
  const SpecialisedGraph& callee = request_.specialise(op.graph, layouts, {});
  op.graph = callee.graph;
  set_results(node, append(node, op, inputs, callee.outputs));
}

void ShardingWalk::loop(const Node& node, Loop op) {
  const size_t carried = static_cast<size_t>(op.carried), scanned = static_cast<size_t>(op.scanned);
  std::vector<Sharding> body_inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Sharding layout =
        i < carried && is_lazy(node.inputs[i]) ? Sharding::replicated(source_.type(node.inputs[i]).rank()) : layout_for_control(node.inputs[i], node);
    body_inputs.push_back(i >= carried && i < carried + scanned ? without_leading_dim(std::move(layout)) : std::move(layout));
  }
  const SpecialisedGraph& body = fix_loop(op, body_inputs);
  std::vector<Value> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    inputs.push_back(use(node.inputs[i], i >= carried && i < carried + scanned ? with_leading_dim(body_inputs[i]) : body_inputs[i]));
  std::vector<Sharding> results;
  for (size_t i = 0; i < node.results.size(); ++i) results.push_back(i < carried ? body.outputs[i] : with_leading_dim(body.outputs[i]));
  op.body = body.graph;
  set_results(node, append(node, op, inputs, std::move(results)));
}

/// Layouts of the carried values that the body keeps. Each round that goes on splits a dim that was whole, makes a value partial over an axis, or takes
/// back and forbids such a partial: each can happen once for a value and dim or axis, so the rounds end.
const SpecialisedGraph& ShardingWalk::fix_loop(const Loop& op, std::vector<Sharding>& body_inputs) {
  const size_t carried = static_cast<size_t>(op.carried);
  std::vector<std::vector<AxisRef>> forbidden(carried);
  for (;;) {
    const SpecialisedGraph& trial = request_.specialise(op.body, body_inputs, {});
    bool changed = false;
    std::vector<std::optional<Sharding>> wanted(trial.outputs.size());
    for (size_t i = 0; i < carried; ++i) {
      Sharding next = body_inputs[i];
      const Sharding& out = trial.outputs[i];
      std::erase_if(next.partial, [&](const PartialAxis& partial) {
        if (has_axis(out.partial, partial.axis)) return false;
        forbidden[i].push_back(partial.axis);
        return true;
      });
      for (size_t d = 0; d < next.dims.size(); ++d) {
        const bool free = std::none_of(out.dims[d].axes.begin(), out.dims[d].axes.end(),
                                       [&](const AxisRef& axis) { return uses_axis(next.dims, axis) || overlaps_any(next.partial, axis); });
        if (next.dims[d].axes.empty() && free) next.dims[d] = out.dims[d];
      }
      std::vector<PartialAxis> climbs = out.partial;
      climbs.insert(climbs.end(), trial.wishes[i].begin(), trial.wishes[i].end());
      for (const PartialAxis& partial : climbs) {
        const bool refused = std::find(forbidden[i].begin(), forbidden[i].end(), partial.axis) != forbidden[i].end();
        if (partial.kind == ReduceKind::Sum && !refused && !overlaps_any(next.partial, partial.axis) && !uses_axis(next.dims, partial.axis))
          next.partial.push_back(partial);
      }
      sort_by_axis(next.partial);
      changed = changed || next != body_inputs[i];
      body_inputs[i] = next;
      wanted[i] = std::move(next);
    }
    if (changed) continue;
    const bool keeps = std::equal(body_inputs.begin(), body_inputs.begin() + static_cast<std::ptrdiff_t>(carried), trial.outputs.begin());
    return keeps ? trial : request_.specialise(op.body, body_inputs, wanted);
  }
}

void ShardingWalk::map_tensors(const Node& node, MapTensors op) {
  const size_t tensors = static_cast<size_t>(op.tensors), tables = static_cast<size_t>(op.tables);
  std::vector<Sharding> layouts(tensors);
  for (size_t j = 0; j < tensors; ++j) {
    layouts[j] = Sharding::replicated(source_.type(node.inputs.at(j)).rank());
    for (size_t t = tables; t-- > 0;) {
      const ValueId value = node.inputs.at(t * tensors + j);
      if (!is_lazy(value) && is_split(sharding(value))) layouts[j] = whole(sharding(value));
    }
  }
  const std::vector<Sharding> scalars(request_.logical.graph(op.body).inputs.size());
  const std::vector<std::optional<Sharding>> made(request_.logical.graph(op.body).outputs.size(), Sharding{});
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
