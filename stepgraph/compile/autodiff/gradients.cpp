// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/autodiff/gradients.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "stepgraph/compile/autodiff/split_graph.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {
namespace {

using Gradients = std::vector<std::optional<Value>>;

size_t at(ValueId id) { return static_cast<size_t>(id.index); }

/// Which values depend differentiably on the marked ones. A call's results are taken to depend on all its inputs.
void mark_dependents(const Graph& graph, size_t nodes, std::vector<bool>& marked) {
  for (size_t n = 0; n < nodes; ++n) {
    const Node& node = graph.nodes[n];
    if (std::holds_alternative<StopGradient>(node.op) || !op_info(node.op).differentiable) continue;
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) { return marked[at(input)]; })) continue;
    for (ValueId result : node.results)
      if (is_floating(graph.type(result).dtype)) marked[at(result)] = true;
  }
}

Value zeros(Builder& builder, const TensorType& type) { return full(builder, type.dtype, type.shape, 0); }

std::string with_suffix(const std::string& text, const std::string& suffix) { return text.empty() || text.ends_with(suffix) ? text : text + suffix; }

/// Slices of different sizes cannot be stacked for the backward loop.
void check_fixed_size(const Loop& loop, const std::string& body, const TensorType& type, const SourcePlace& place) {
  for (const Dim& dim : type.shape)
    for (const std::string& symbol : dim.symbols())
      if (symbol == loop.symbol)
        throw UserError("gradients: the backward of loop '" + body + "' needs a value of type " + text(type) + ", whose size depends on the iteration '" +
                            symbol + "'",
                        place);
}

/// A differentiated callee: the forward graph that also returns `saved` values, and its backward graph.
struct CalleeGradient {
  GraphId forward, backward;
  std::vector<TensorType> saved;
  struct Source {
    enum class Kind : uint8_t { Input, Result, Saved, Gradient } kind;
    size_t index;
  };
  std::vector<Source> backward_inputs;
  std::vector<std::optional<size_t>> output_of_input;  ///< which backward result is the gradient of an input
};

class Differentiator {
 public:
  explicit Differentiator(Module& module) : module_(module) {}
  Gradients run(Builder& builder, std::span<const Value> ys, std::span<const std::optional<Value>> seeds, std::span<const Value> xs);

 private:
  struct Walk {
    Builder& builder;
    std::vector<bool> required;
    Gradients gradients;  // by value
  };
  void visit(Walk& walk, size_t node_index);
  Gradients through_op(Walk& walk, const Node& node, const Gradients& result_gradients, const std::vector<bool>& needed);
  Gradients through_call(Walk& walk, size_t node_index, const Gradients& result_gradients, const std::vector<bool>& needed);
  Gradients through_own_gradient(Walk& walk, const Node& node, GraphId gradient, const Gradients& result_gradients);
  Gradients through_loop(Walk& walk, size_t node_index, const Gradients& result_gradients, const std::vector<bool>& needed);
  const CalleeGradient& differentiate_callee(GraphId callee, const std::vector<bool>& present, const std::vector<bool>& needed);
  std::vector<bool> active_carried(const Loop& loop, const std::vector<bool>& needed);

  Module& module_;
  std::map<std::tuple<GraphId, std::vector<bool>, std::vector<bool>>, CalleeGradient> callees_;
};

Gradients Differentiator::run(Builder& builder, std::span<const Value> ys, std::span<const std::optional<Value>> seeds, std::span<const Value> xs) {
  const size_t nodes = builder.graph().nodes.size();
  Walk walk{builder, std::vector<bool>(builder.graph().values.size()), Gradients(builder.graph().values.size())};
  for (const Value& x : xs) {
    SG_CHECK(x.builder == &builder, "gradients: x belongs to another graph");
    if (is_floating(x.dtype())) walk.required[at(x.id)] = true;
  }
  mark_dependents(builder.graph(), nodes, walk.required);
  const SourcePlace place = builder.place();
  const std::string scope = builder.scope();
  for (size_t i = 0; i < ys.size(); ++i) {
    const Value& y = ys[i];
    SG_CHECK(y.builder == &builder, "gradients: y belongs to another graph");
    if (!is_floating(y.dtype())) throw UserError("gradients: found a result of type " + text(y.type()) + ", wanted a floating one", place);
    std::optional<Value> seed = i < seeds.size() ? seeds[i] : std::nullopt;
    if (seed && (seed->builder != y.builder || !same_dtype_and_shape(seed->type(), y.type())))
      throw UserError("gradients: found a seed of type " + text(seed->type()) + " for a result of type " + text(y.type()), place);
    if (!seed && y.rank() != 0) throw UserError("gradients: found a result of type " + text(y.type()) + ", wanted a scalar (or a seed)", place);
    if (!walk.required[at(y.id)]) continue;
    if (!seed) seed = scalar(builder, y.dtype(), 1);
    auto& slot = walk.gradients[at(y.id)];
    slot = slot ? *slot + *seed : *seed;
  }
  for (size_t n = nodes; n-- > 0;) visit(walk, n);
  builder.set_place(place);
  builder.set_scope(scope);
  Gradients found;
  for (const Value& x : xs) found.push_back(walk.gradients[at(x.id)]);
  return found;
}

void Differentiator::visit(Walk& walk, size_t node_index) {
  // A copy: appending nodes moves the graph's vector.
  const Node node = walk.builder.graph().nodes[node_index];
  Gradients result_gradients;
  std::vector<bool> needed;
  for (ValueId result : node.results) result_gradients.push_back(at(result) < walk.gradients.size() ? walk.gradients[at(result)] : std::nullopt);
  for (ValueId input : node.inputs) needed.push_back(walk.required[at(input)]);
  auto present = [](const std::optional<Value>& gradient) { return gradient.has_value(); };
  if (std::none_of(result_gradients.begin(), result_gradients.end(), present)) return;
  if (std::none_of(needed.begin(), needed.end(), [](bool need) { return need; }) || std::holds_alternative<StopGradient>(node.op)) return;

  walk.builder.set_place(node.place);
  walk.builder.set_scope(node.scope);
  Gradients input_gradients;
  if (std::holds_alternative<Call>(node.op))
    input_gradients = through_call(walk, node_index, result_gradients, needed);
  else if (std::holds_alternative<Loop>(node.op))
    input_gradients = through_loop(walk, node_index, result_gradients, needed);
  else
    input_gradients = through_op(walk, node, result_gradients, needed);

  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i >= input_gradients.size() || !input_gradients[i] || !needed[i]) continue;
    const Value& gradient = *input_gradients[i];
    const TensorType& type = walk.builder.graph().type(node.inputs[i]);
    SG_CHECK(same_dtype_and_shape(gradient.type(), type), std::string(name(node.op)) + ": gradient of input " + std::to_string(i) + " is " +
                                                              text(gradient.type()) + ", wanted " + text(type));
    auto& slot = walk.gradients[at(node.inputs[i])];
    slot = slot ? *slot + gradient : gradient;
  }
}

Gradients Differentiator::through_op(Walk& walk, const Node& node, const Gradients& result_gradients, const std::vector<bool>& needed) {
  const OpInfo& info = op_info(node.op);
  if (!info.differentiable) return {};
  if (!info.gradient) throw UserError(std::string(name(node.op)) + " cannot be differentiated", node.place);
  GradientRequest request{walk.builder, node.op, {}, {}, result_gradients, needed};
  for (ValueId input : node.inputs) request.inputs.push_back(walk.builder.value(input));
  for (ValueId result : node.results) request.results.push_back(walk.builder.value(result));
  return info.gradient(request);
}

/// Composites with a gradient graph of their own: (inputs, outputs, output gradients) -> input gradients.
Gradients Differentiator::through_own_gradient(Walk& walk, const Node& node, GraphId gradient, const Gradients& result_gradients) {
  Builder& builder = walk.builder;
  std::vector<Value> arguments;
  for (ValueId input : node.inputs) arguments.push_back(builder.value(input));
  for (ValueId result : node.results) arguments.push_back(builder.value(result));
  for (size_t i = 0; i < node.results.size(); ++i)
    arguments.push_back(result_gradients[i] ? *result_gradients[i] : zeros(builder, builder.graph().type(node.results[i])));
  Gradients gradients;
  for (const Value& result : call(builder, gradient, arguments)) gradients.emplace_back(result);
  return gradients;
}

Gradients Differentiator::through_call(Walk& walk, size_t node_index, const Gradients& result_gradients, const std::vector<bool>& needed) {
  Builder& builder = walk.builder;
  const Node node = builder.graph().nodes[node_index];
  const GraphId callee = std::get<Call>(node.op).graph;
  if (auto own = module_.graph(callee).gradient) return through_own_gradient(walk, node, *own, result_gradients);
  std::vector<bool> present;
  for (const auto& gradient : result_gradients) present.push_back(gradient.has_value());
  const CalleeGradient& derived = differentiate_callee(callee, present, needed);
  if (derived.backward.index < 0) return {};

  // The forward call now returns the saved values too.
  std::vector<ValueId> saved;
  {
    Graph& graph = builder.graph();
    std::get<Call>(graph.nodes[node_index].op).graph = derived.forward;
    for (const TensorType& type : derived.saved) {
      saved.push_back({static_cast<int32_t>(graph.values.size())});
      graph.values.push_back({type, static_cast<int32_t>(node_index)});
      graph.nodes[node_index].results.push_back(saved.back());
    }
  }
  std::vector<Value> arguments;
  for (const CalleeGradient::Source& source : derived.backward_inputs) {
    switch (source.kind) {
      case CalleeGradient::Source::Kind::Input: arguments.push_back(builder.value(node.inputs[source.index])); break;
      case CalleeGradient::Source::Kind::Result: arguments.push_back(builder.value(node.results[source.index])); break;
      case CalleeGradient::Source::Kind::Saved: arguments.push_back(builder.value(saved[source.index])); break;
      case CalleeGradient::Source::Kind::Gradient: arguments.push_back(*result_gradients[source.index]); break;
    }
  }
  const std::vector<Value> results = call(builder, derived.backward, arguments);
  Gradients gradients(node.inputs.size());
  for (size_t i = 0; i < gradients.size(); ++i)
    if (derived.output_of_input[i]) gradients[i] = results[*derived.output_of_input[i]];
  return gradients;
}

const CalleeGradient& Differentiator::differentiate_callee(GraphId callee, const std::vector<bool>& present, const std::vector<bool>& needed) {
  const auto key = std::make_tuple(callee, present, needed);
  if (auto found = callees_.find(key); found != callees_.end()) return found->second;

  const std::string base_name = module_.graph(callee).name;
  const GraphId combined = module_.add_graph(base_name + "_backward");
  Builder builder(module_, combined);
  std::vector<Value> inputs, xs, ys;
  std::vector<std::optional<Value>> seeds;
  std::vector<ValueId> forward_inputs, forward_outputs, gradient_inputs;
  for (const GraphInput& input : module_.graph(callee).inputs) {
    inputs.push_back(builder.input(module_.graph(callee).type(input.value)));
    forward_inputs.push_back(inputs.back().id);
    if (needed[inputs.size() - 1]) xs.push_back(inputs.back());
  }
  const std::vector<Value> outputs = builder.inline_graph(module_.graph(callee), inputs);
  const size_t forward_nodes = builder.graph().nodes.size();
  std::vector<size_t> gradient_result;
  for (size_t i = 0; i < outputs.size(); ++i) {
    forward_outputs.push_back(outputs[i].id);
    if (!present[i]) continue;
    ys.push_back(outputs[i]);
    seeds.emplace_back(builder.input(outputs[i].type()));
    gradient_inputs.push_back(seeds.back()->id);
    gradient_result.push_back(i);
  }
  const Gradients found = run(builder, ys, seeds, xs);

  CalleeGradient derived;
  std::vector<ValueId> backward_outputs;
  for (size_t i = 0, x = 0; i < inputs.size(); ++i) {
    derived.output_of_input.emplace_back();
    if (!needed[i]) continue;
    const std::optional<Value>& gradient = found[x++];
    if (!gradient) continue;
    derived.output_of_input.back() = backward_outputs.size();
    backward_outputs.push_back(gradient->id);
  }
  if (!backward_outputs.empty()) {
    SplitGraph split = split_graph(builder.graph(), forward_nodes, forward_inputs, forward_outputs, gradient_inputs, backward_outputs);
    auto index_in = [](const std::vector<ValueId>& list, ValueId value) { return static_cast<size_t>(std::find(list.begin(), list.end(), value) - list.begin()); };
    using Kind = CalleeGradient::Source::Kind;
    for (ValueId value : split.backward_inputs) {
      if (size_t i = index_in(gradient_inputs, value); i < gradient_inputs.size())
        derived.backward_inputs.push_back({Kind::Gradient, gradient_result[i]});
      else if (size_t j = index_in(split.saved, value); j < split.saved.size())
        derived.backward_inputs.push_back({Kind::Saved, j});
      else if (size_t k = index_in(forward_inputs, value); k < forward_inputs.size())
        derived.backward_inputs.push_back({Kind::Input, k});
      else
        derived.backward_inputs.push_back({Kind::Result, index_in(forward_outputs, value)});
    }
    for (ValueId value : split.saved) derived.saved.push_back(builder.graph().type(value));
    const Graph& original = module_.graph(callee);
    derived.forward = callee;
    split.backward.name = base_name + "_backward";
    split.backward.composite = with_suffix(original.composite, ".backward");
    if (!split.saved.empty()) {
      split.forward.name = with_suffix(base_name, "_forward");
      split.forward.composite = with_suffix(original.composite, ".forward");
      for (size_t i = 0; i < split.forward.inputs.size(); ++i) split.forward.inputs[i].role = original.inputs[i].role;
      for (size_t i = 0; i < original.outputs.size(); ++i) split.forward.outputs[i].role = original.outputs[i].role;
      derived.forward = module_.add_graph(split.forward.name);
      module_.graph(derived.forward) = std::move(split.forward);
    }
    derived.backward = combined;
    module_.graph(combined) = std::move(split.backward);
  }
  return callees_.emplace(key, std::move(derived)).first->second;
}

/// Carried values through which a gradient can flow: a fixed point over the body.
std::vector<bool> Differentiator::active_carried(const Loop& loop, const std::vector<bool>& needed) {
  const Graph& body = module_.graph(loop.body);
  const size_t carried = static_cast<size_t>(loop.carried);
  std::vector<bool> active(needed.begin(), needed.begin() + static_cast<std::ptrdiff_t>(carried));
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<bool> marked(body.values.size());
    for (size_t i = 0; i < body.inputs.size(); ++i)
      if ((i < carried ? active[i] : needed[i]) && is_floating(body.type(body.inputs[i].value).dtype)) marked[at(body.inputs[i].value)] = true;
    mark_dependents(body, body.nodes.size(), marked);
    for (size_t i = 0; i < carried; ++i) {
      if (active[i] || !marked[at(body.outputs[i].value)]) continue;
      active[i] = changed = true;
    }
  }
  return active;
}

Gradients Differentiator::through_loop(Walk& walk, size_t node_index, const Gradients& result_gradients, const std::vector<bool>& needed) {
  Builder& outer = walk.builder;
  const Node node = outer.graph().nodes[node_index];
  const Loop loop = std::get<Loop>(node.op);
  const size_t carried = static_cast<size_t>(loop.carried), scanned = static_cast<size_t>(loop.scanned);
  const std::vector<bool> active = active_carried(loop, needed);
  const std::string base_name = module_.graph(loop.body).name;

  // One body holding an iteration and its backward: ct = gradient of a carried value, sum = gradient of an invariant so far.
  const GraphId combined = module_.add_graph(base_name + "_backward");
  Builder builder(module_, combined);
  std::vector<Value> inputs;
  std::vector<ValueId> forward_inputs, forward_outputs;
  for (const GraphInput& input : module_.graph(loop.body).inputs) {
    inputs.push_back(builder.input(module_.graph(loop.body).type(input.value)));
    forward_inputs.push_back(inputs.back().id);
  }
  const std::vector<Value> outputs = builder.inline_graph(module_.graph(loop.body), inputs);
  const size_t forward_nodes = builder.graph().nodes.size();
  for (const Value& output : outputs) forward_outputs.push_back(output.id);

  std::vector<Value> ys, xs;
  std::vector<std::optional<Value>> seeds;
  std::vector<Value> carried_inputs, carried_starts, gradient_slices, gradient_stacks;  // of the backward loop
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool flows = i < carried ? static_cast<bool>(active[i]) : result_gradients[i].has_value();
    if (!flows) continue;
    ys.push_back(outputs[i]);
    seeds.emplace_back(builder.input(outputs[i].type()));
    if (i < carried) {
      carried_inputs.push_back(*seeds.back());
      carried_starts.push_back(result_gradients[i] ? *result_gradients[i] : zeros(outer, outputs[i].type()));
    } else {
      gradient_slices.push_back(*seeds.back());
      gradient_stacks.push_back(*result_gradients[i]);
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    if (i < carried ? active[i] : needed[i]) xs.push_back(inputs[i]);
  const Gradients found = run(builder, ys, seeds, xs);

  std::vector<ValueId> next_carried, stacked;
  std::vector<std::optional<size_t>> result_of_input(inputs.size());  // index among carried results, or (scanned) among stacks
  size_t x = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!(i < carried ? active[i] : needed[i])) continue;
    const std::optional<Value>& gradient = found[x++];
    if (i < carried) {
      result_of_input[i] = next_carried.size();
      next_carried.push_back((gradient ? *gradient : zeros(builder, inputs[i].type())).id);
    } else if (i < carried + scanned) {
      if (!gradient) continue;
      result_of_input[i] = stacked.size();
      stacked.push_back(gradient->id);
    } else {
      if (!gradient) continue;
      const Value sum = builder.input(inputs[i].type());
      carried_inputs.push_back(sum);
      carried_starts.push_back(zeros(outer, inputs[i].type()));
      result_of_input[i] = next_carried.size();
      next_carried.push_back((sum + *gradient).id);
    }
  }

  std::vector<ValueId> gradient_inputs, backward_outputs = next_carried;
  for (const Value& value : carried_inputs) gradient_inputs.push_back(value.id);
  for (const Value& value : gradient_slices) gradient_inputs.push_back(value.id);
  backward_outputs.insert(backward_outputs.end(), stacked.begin(), stacked.end());
  std::vector<bool> save_inputs(inputs.size());
  std::fill(save_inputs.begin(), save_inputs.begin() + static_cast<std::ptrdiff_t>(carried), true);
  SplitGraph split = split_graph(builder.graph(), forward_nodes, forward_inputs, forward_outputs, gradient_inputs, backward_outputs, save_inputs);

  // The forward loop stacks the saved values.
  std::vector<Value> saved_stacks;
  {
    split.forward.name = with_suffix(base_name, "_forward");
    const GraphId forward_body = module_.add_graph(split.forward.name);
    std::vector<TensorType> types;
    for (ValueId value : split.saved) {
      TensorType type = builder.graph().type(value);
      check_fixed_size(loop, base_name, type, node.place);
      type.shape.insert(type.shape.begin(), loop.trip_count);
      types.push_back(type);
    }
    module_.graph(forward_body) = std::move(split.forward);
    Graph& graph = outer.graph();
    std::get<Loop>(graph.nodes[node_index].op).body = forward_body;
    for (const TensorType& type : types) {
      const ValueId id{static_cast<int32_t>(graph.values.size())};
      graph.values.push_back({type, static_cast<int32_t>(node_index)});
      graph.nodes[node_index].results.push_back(id);
      saved_stacks.push_back({&outer, id});
    }
  }

  // The backward body's inputs in a loop's order: carried, scanned, invariants.
  Loop backward = loop;
  backward.body = combined;
  backward.site = module_.next_site++;
  backward.reverse = !loop.reverse;
  backward.carried = static_cast<int64_t>(carried_inputs.size());
  std::vector<Value> arguments = carried_starts;
  std::vector<ValueId> order;
  for (const Value& value : carried_inputs) order.push_back(value.id);
  for (size_t i = 0; i < split.saved.size(); ++i) order.push_back(split.saved[i]), arguments.push_back(saved_stacks[i]);
  for (size_t i = 0; i < gradient_slices.size(); ++i) order.push_back(gradient_slices[i].id), arguments.push_back(gradient_stacks[i]);
  std::vector<size_t> invariants;
  for (ValueId value : split.backward_inputs) {
    const auto found_input = std::find(forward_inputs.begin() + static_cast<std::ptrdiff_t>(carried), forward_inputs.end(), value);
    if (found_input == forward_inputs.end()) continue;
    const size_t index = static_cast<size_t>(found_input - forward_inputs.begin());
    if (index >= carried + scanned) {
      invariants.push_back(index);
      continue;
    }
    order.push_back(value);
    arguments.push_back(outer.value(node.inputs[index]));
  }
  backward.scanned = static_cast<int64_t>(order.size()) - backward.carried;
  for (size_t index : invariants) order.push_back(forward_inputs[index]), arguments.push_back(outer.value(node.inputs[index]));

  std::vector<GraphInput> ordered;
  for (ValueId value : order) {
    const auto position = std::find(split.backward_inputs.begin(), split.backward_inputs.end(), value);
    SG_CHECK(position != split.backward_inputs.end(), "loop gradient: an input of the backward body is missing");
    ordered.push_back(split.backward.inputs[static_cast<size_t>(position - split.backward_inputs.begin())]);
  }
  SG_CHECK(ordered.size() == split.backward.inputs.size(), "loop gradient: inputs of the backward body do not match");
  split.backward.inputs = std::move(ordered);
  split.backward.name = base_name + "_backward";
  module_.graph(combined) = std::move(split.backward);

  const std::vector<Value> results = outer.emit(backward, arguments);
  Gradients gradients(node.inputs.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!result_of_input[i]) continue;
    const bool is_stack = i >= carried && i < carried + scanned;
    gradients[i] = results[*result_of_input[i] + (is_stack ? carried_inputs.size() : 0)];
  }
  return gradients;
}

}  // namespace

std::vector<std::optional<Value>> gradients(Builder& builder, std::span<const Value> ys, std::span<const std::optional<Value>> seeds,
                                            std::span<const Value> xs) {
  Differentiator differentiator(builder.module());
  return differentiator.run(builder, ys, seeds, xs);
}

std::vector<std::optional<Value>> gradients(Builder& builder, Value y, std::span<const Value> xs) {
  return gradients(builder, std::span<const Value>(&y, 1), {}, xs);
}

}  // namespace stepgraph
