// SPDX-License-Identifier: Apache-2.0
// Calls, loops and maps in the walk: what they hand over lies as it is, and sources stay open across them.
#include <algorithm>

#include "stepgraph/compile/passes/sharding_walk.h"

namespace stepgraph {
namespace {

/// Each lazy call specialises its callee anew for its user.
constexpr int lazy_call_depth_max = 8;

Sharding with_leading_dim(Sharding slice) {
  slice.dims.insert(slice.dims.begin(), DimSharding{});
  return slice;
}

Sharding without_leading_dim(Sharding stacked) {
  SG_CHECK(!stacked.dims.empty());
  stacked.dims.erase(stacked.dims.begin());
  return stacked;
}

void set_callee(Op& op, GraphId callee) {
  if (auto* call = std::get_if<Call>(&op)) call->graph = callee;
  if (auto* loop = std::get_if<Loop>(&op)) loop->body = callee;
}

}  // namespace

InputLayout ShardingWalk::layout_for_control(ValueId value) { return {usual_layout(value), is_lazy(value)}; }

// ---- open results ----

/// Results that the callee can make in any layout wait for their first user.
void ShardingWalk::set_control_results(const Node& node, std::span<const Value> values, OpenControl control) {
  const SpecialisedGraph& made = *control.made;
  bool any_open = false;
  for (size_t i = 0; i < values.size(); ++i) {
    State& s = state(node.results[i]);
    s.is_lazy = made.open[i] && i >= control.carried && !shape(node.results[i]).empty();
    if (!s.is_lazy) continue;
    any_open = true;
    s.lazy_depth = 1;
    s.hint = *values[i].type().sharding;
    s.control = static_cast<int>(controls_.size());
    s.place = i;
  }
  if (any_open) controls_.push_back(std::move(control));
  set_results(node, values);
}

/// The callee is specialised once more, for the user's layout, and takes the place of the first one: its other results must come as they did.
void ShardingWalk::settle_result(ValueId value, const Sharding& target) {
  State& s = state(value);
  if (!s.versions.empty()) return;
  OpenControl& control = controls_[static_cast<size_t>(s.control)];
  const bool is_stack = control.is_loop;
  Sharding layout = without_partial(is_stack ? without_leading_dim(target) : target);
  WantedLayouts wanted = control.wanted;
  wanted[s.place] = std::move(layout);
  Node& node = builder_.graph().nodes[control.node];
  std::vector<InputLayout> settled = control.inputs;
  for (size_t i = 0; i < settled.size(); ++i) settled[i] = {control.made->inputs[i], false};
  for (const std::vector<InputLayout>& inputs : {control.inputs, settled}) {
    const SpecialisedGraph& again = request_.specialise(control.callee, inputs, wanted);
    bool fits = again.inputs == control.made->inputs;
    for (size_t i = 0; i < again.outputs.size(); ++i) fits = fits && (i == s.place || again.outputs[i] == control.made->outputs[i]);
    if (!fits) continue;
    control.made = &again;
    control.wanted = wanted;
    control.inputs = inputs;
    set_callee(node.op, again.graph);
    break;
  }
  const Sharding& made = control.made->outputs[s.place];
  const ValueId result = node.results[s.place];
  builder_.graph().values[static_cast<size_t>(result.index)].type.sharding = is_stack ? with_leading_dim(made) : made;
  s.versions.push_back({*builder_.graph().type(result).sharding, result});
}

// ---- calls ----

std::vector<Value> ShardingWalk::append_call(const Node& node, const Call& op, const WantedLayouts& wanted, OpenControl& control) {
  std::vector<InputLayout> layouts;
  for (ValueId input : node.inputs) layouts.push_back(layout_for_control(input));
  const SpecialisedGraph& callee = request_.specialise(op.graph, layouts, wanted);
  std::vector<Value> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(use(node.inputs[i], callee.inputs[i]));
  control = {builder_.graph().nodes.size(), op.graph, std::move(layouts), wanted, &callee, false, 0};
  Call made = op;
  made.graph = callee.graph;
  return append(node, made, inputs, callee.outputs);
}

void ShardingWalk::call(const Node& node, const Call& op) {
  // A call that only makes a source of sources, like a mask, is one itself.
  const bool is_deep = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) { return state(input).lazy_depth >= lazy_call_depth_max; });
  const bool is_whole = std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) { return is_split(usual_layout(input)); });
  if (node.results.size() == 1 && !shape(node.results[0]).empty() && comes_from_sources(node) && is_whole && !is_deep)
    return wait(node, {Sharding::replicated(shape(node.results[0]).size())});
  OpenControl control;
  const std::vector<Value> values = append_call(node, op, WantedLayouts(node.results.size()), control);
  set_control_results(node, values, std::move(control));
}

void ShardingWalk::make_call(ValueId value, const Node& node, const Call& op, const Sharding& target) {
  OpenControl control;
  const std::vector<Value> made = append_call(node, op, {without_partial(target)}, control);
  add_version(value, {*made[0].type().sharding, made[0].id});
}

// ---- loops ----

void ShardingWalk::loop(const Node& node, Loop op) {
  const size_t carried = static_cast<size_t>(op.carried), scanned = static_cast<size_t>(op.scanned);
  const auto is_scanned = [&](size_t i) { return i >= carried && i < carried + scanned; };
  std::vector<InputLayout> body_inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    InputLayout layout = layout_for_control(node.inputs[i]);
    if (i < carried) layout.is_open = false;
    if (is_scanned(i)) layout.sharding = without_leading_dim(std::move(layout.sharding));
    body_inputs.push_back(std::move(layout));
  }
  OpenControl control = fix_loop(op, std::move(body_inputs));
  const SpecialisedGraph& body = *control.made;
  std::vector<Value> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(use(node.inputs[i], is_scanned(i) ? with_leading_dim(body.inputs[i]) : body.inputs[i]));
  std::vector<Sharding> results;
  for (size_t i = 0; i < node.results.size(); ++i) results.push_back(i < carried ? body.outputs[i] : with_leading_dim(body.outputs[i]));
  op.body = body.graph;
  control.node = builder_.graph().nodes.size();
  set_control_results(node, append(node, op, inputs, std::move(results)), std::move(control));
}

/// Layouts of the carried values that the body keeps. Each round that goes on splits a dim that was whole, makes a value partial over an axis, or takes
/// back and forbids such a partial: each can happen once for a value and dim or axis, so the rounds end.
ShardingWalk::OpenControl ShardingWalk::fix_loop(const Loop& op, std::vector<InputLayout> body_inputs) {
  const size_t carried = static_cast<size_t>(op.carried);
  std::vector<std::vector<AxisRef>> forbidden(carried);
  for (;;) {
    const WantedLayouts as_they_fall(request_.logical.graph(op.body).outputs.size());
    const SpecialisedGraph& trial = request_.specialise(op.body, body_inputs, as_they_fall);
    bool changed = false, keeps = true;
    WantedLayouts wanted = as_they_fall;
    for (size_t i = 0; i < carried; ++i) {
      Sharding next = body_inputs[i].sharding;
      const Sharding& out = trial.outputs[i];
      std::erase_if(next.partial, [&](const PartialAxis& partial) {
        if (is_partial_over(out.partial, partial.axis)) return false;
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
      changed = changed || next != body_inputs[i].sharding;
      keeps = keeps && next == out;
      body_inputs[i].sharding = next;
      wanted[i] = std::move(next);
    }
    if (changed) continue;
    if (keeps) wanted = as_they_fall;
    const SpecialisedGraph& made = keeps ? trial : request_.specialise(op.body, body_inputs, wanted);
    // A body that is made once more must give back what it is given.
    for (size_t i = 0; i < carried; ++i) wanted[i] = body_inputs[i].sharding;
    return {0, op.body, std::move(body_inputs), std::move(wanted), &made, true, carried};
  }
}

}  // namespace stepgraph
