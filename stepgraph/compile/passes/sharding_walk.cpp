// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/sharding_walk.h"

#include <algorithm>
#include <tuple>

namespace stepgraph {
namespace {

/// Lazy values are made by recursion.
constexpr int lazy_depth_max = 64;

}  // namespace

ShardingWalk::ShardingWalk(ShardingWalkRequest request)
    : request_(std::move(request)),
      source_(request_.logical.graph(request_.source)),
      builder_(request_.target, request_.graph),
      states_(source_.values.size()),
      reduce_early_(request_.facts.must_be_whole) {
  if (request_.reduce_late) reduce_early_.assign(reduce_early_.size(), false);
}

SpecialisedGraph ShardingWalk::run(const std::vector<InputLayout>& inputs, const WantedLayouts& outputs) {
  SG_CHECK(inputs.size() == source_.inputs.size() && outputs.size() == source_.outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i] && outputs[i]->is_replicated() && !request_.reduce_late) reduce_early_[static_cast<size_t>(source_.outputs[i].value.index)] = true;
  contested_.assign(inputs.size(), false);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId value = source_.inputs[i].value;
    TensorType type = source_.type(value);
    type.sharding = inputs[i].sharding;
    const ValueId made = builder_.input(std::move(type), source_.inputs[i].role).id;
    State& s = state(value);
    s.place = i;
    s.is_lazy = inputs[i].is_open;
    s.lazy_depth = inputs[i].is_open ? 1 : 0;
    s.hint = inputs[i].sharding;
    if (!inputs[i].is_open) add_version(value, {inputs[i].sharding, made});
  }
  for (size_t n = 0; n < source_.nodes.size(); ++n) {
    const Node& node = source_.nodes[n];
    builder_.set_provenance(Provenance::of(node));
    if (const auto* op = std::get_if<Call>(&node.op))
      call(node, *op);
    else if (const auto* loop_op = std::get_if<Loop>(&node.op))
      loop(node, *loop_op);
    else if (const auto* map = std::get_if<MapTensors>(&node.op))
      map_tensors(node, *map);
    else
      ordinary(n);
  }
  SpecialisedGraph made{request_.graph, {}, {}, {}, {}, {}};
  for (size_t i = 0; i < source_.outputs.size(); ++i) output(i, outputs[i], made);
  for (const GraphInput& input : builder_.graph().inputs) made.inputs.push_back(*builder_.graph().type(input.value).sharding);
  made.contested = contested_;
  return made;
}

void ShardingWalk::output(size_t index, const std::optional<Sharding>& wanted, SpecialisedGraph& made) {
  const GraphOutput& output = source_.outputs[index];
  const State& s = state(output.value);
  made.open.push_back(s.is_lazy && !wanted);
  made.wishes.push_back(wish(output.value));
  const int32_t producer = source_.values[static_cast<size_t>(output.value.index)].node;
  builder_.set_provenance(producer < 0 ? Provenance{} : Provenance::of(source_.nodes[static_cast<size_t>(producer)]));
  Sharding layout = wanted ? *wanted : s.is_lazy && s.versions.empty() ? s.hint : s.versions[s.current].sharding;
  builder_.output(use(output.value, layout), output.role);
  made.outputs.push_back(std::move(layout));
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
    if (is_lazy(id)) continue;
    const Sharding made = *values[i].type().sharding;
    add_version(id, {made, values[i].id});
    if (!made.partial.empty() && reduce_early_[static_cast<size_t>(id.index)]) use(id, without_partial(made));
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
  // A whole copy, where there is one, gives any layout without communication; of a lazy value the one that was made for this user is the nearest.
  size_t from = s.is_lazy ? s.versions.size() - 1 : std::min(s.current, s.versions.size() - 1);
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

/// Makes a lazy value in the wanted layout, or in the nearest that can be made of it.
void ShardingWalk::make(ValueId value, const Sharding& target) {
  const int32_t index = source_.values[static_cast<size_t>(value.index)].node;
  if (index < 0) return settle_input(value, target);
  if (state(value).control >= 0) return settle_result(value, target);
  const Provenance outer = builder_.provenance();
  const Node& node = source_.nodes[static_cast<size_t>(index)];
  builder_.set_provenance(Provenance::of(node));
  if (const auto* op = std::get_if<Call>(&node.op))
    make_call(value, node, *op, target);
  else
    make_node(value, static_cast<size_t>(index), target);
  builder_.set_provenance(outer);
}

void ShardingWalk::make_node(ValueId value, size_t index, const Sharding& target) {
  const Node& node = source_.nodes[index];
  const NodeFacts& facts = request_.facts.nodes[index];
  const auto place = std::find(node.results.begin(), node.results.end(), value) - node.results.begin();
  const auto& dims = facts.rule.results[static_cast<size_t>(place)];
  FactorSplits splits(facts.rule.factors.size());
  take_splits(facts.rule, facts.splittable, dims, target.dims, splits);
  for (size_t f = 0; f < splits.size(); ++f)
    if (facts.rule.factors[f].kind != FactorKind::Parallel) splits[f] = {};
  const Sharding layout = layout_of(facts.rule, splits, dims, shape(value), request_.target.mesh);
  for (const Version& version : state(value).versions)
    if (version.sharding == layout) return;
  const std::vector<Value> made = append_ordinary(index, splits, {std::vector<std::vector<PartialAxis>>(node.inputs.size()), {}});
  for (size_t i = 0; i < made.size(); ++i) add_version(node.results[i], {*made[i].type().sharding, made[i].id});
}

/// The first user of an open input decides; a second one that wants it otherwise is told to the caller.
void ShardingWalk::settle_input(ValueId value, const Sharding& target) {
  State& s = state(value);
  if (!s.versions.empty()) {
    contested_[s.place] = contested_[s.place] || !s.versions.front().sharding.is_replicated();
    return;
  }
  const ValueId input = builder_.graph().inputs[s.place].value;
  const Sharding layout = without_partial(target);
  builder_.graph().values[static_cast<size_t>(input.index)].type.sharding = layout;
  s.versions.push_back({layout, input});
}

// ---- ordinary nodes ----

void ShardingWalk::ordinary(size_t index) {
  const Node& node = source_.nodes[index];
  const FactorSplits splits = decide_splits(index);
  if (!can_wait(index, splits)) return set_results(node, append_ordinary(index, splits, decide_partials(index, splits)));
  const ShardingRule& rule = request_.facts.nodes[index].rule;
  std::vector<Sharding> hints;
  for (size_t i = 0; i < node.results.size(); ++i) hints.push_back(layout_of(rule, splits, rule.results[i], shape(node.results[i]), request_.target.mesh));
  wait(node, std::move(hints));
}

void ShardingWalk::wait(const Node& node, std::vector<Sharding> hints) {
  int depth = 1;
  for (ValueId input : node.inputs) depth = std::max(depth, state(input).lazy_depth + 1);
  for (size_t i = 0; i < node.results.size(); ++i) {
    State& s = state(node.results[i]);
    s.is_lazy = true;
    s.lazy_depth = depth;
    s.hint = std::move(hints[i]);
  }
}

/// Nothing here comes from a tensor but through lazy values.
bool ShardingWalk::comes_from_sources(const Node& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId input) { return is_lazy(input) || (shape(input).empty() && sharding(input).is_replicated()); });
}

/// A source, or a node that spreads a value over new dims. Not where a split that comes through lazy values would be lost: a sum of these is made of parts.
bool ShardingWalk::can_wait(size_t index, const FactorSplits& splits) {
  const Node& node = source_.nodes[index];
  const NodeFacts& facts = request_.facts.nodes[index];
  const bool has_dims = std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) { return !shape(result).empty(); });
  const bool is_deep = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) { return state(input).lazy_depth >= lazy_depth_max; });
  if (!has_dims || is_deep) return false;
  for (size_t f = 0; f < splits.size(); ++f)
    if (facts.rule.factors[f].kind != FactorKind::Parallel && !splits[f].axes.empty()) return false;
  return facts.makes_new_dims || comes_from_sources(node);
}

/// The largest split operand first; lazy ones follow the others.
FactorSplits ShardingWalk::decide_splits(size_t index) {
  const Node& node = source_.nodes[index];
  const NodeFacts& facts = request_.facts.nodes[index];
  FactorSplits splits(facts.rule.factors.size());
  std::vector<std::tuple<bool, double, size_t>> order;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (is_split(usual_layout(node.inputs[i]))) order.emplace_back(is_lazy(node.inputs[i]), -size(node.inputs[i]), i);
  std::sort(order.begin(), order.end());
  for (const auto& [lazy, elements, i] : order) take_splits(facts.rule, facts.splittable, facts.rule.operands[i], usual_layout(node.inputs[i]).dims, splits);
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
      largest = std::max(largest, size(node.inputs[i]));
    }
  }
  for (ValueId result : node.results) made += size(result);
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
        if (partial.kind == ReduceKind::Sum && !is_partial_over(wished, partial.axis)) wished.push_back(partial);
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
      if (is_partial_over(partials.results, partial.axis) || uses_axis(splits, partial.axis) || !passes(node, rule, partial, group)) continue;
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
  return builder_.append(std::move(op), inputs, std::move(types));
}

}  // namespace stepgraph
