// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/autodiff/gradients.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/core.h>

#include "stepgraph/compile/autodiff/dependents.h"
#include "stepgraph/compile/autodiff/loop_gradient.h"
#include "stepgraph/compile/autodiff/split_graph.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/op_table.h"
#include "stepgraph/compile/ops/rows/checks.h"

namespace stepgraph {
namespace {

std::string with_suffix(const std::string& text, const std::string& suffix) { return text.empty() || text.ends_with(suffix) ? text : text + suffix; }

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
  Gradients through_decomposition(Walk& walk, const Node& node, std::vector<Value> (&decompose)(const Op&, std::span<const Value>),
                                  const Gradients& result_gradients, const std::vector<bool>& needed);
  Gradients through_call(Walk& walk, size_t node_index, const Gradients& result_gradients, const std::vector<bool>& needed);
  Gradients through_own_gradient(Walk& walk, const Node& node, GraphId gradient, const Gradients& result_gradients);
  const CalleeGradient& differentiate_callee(GraphId callee, const std::vector<bool>& present, const std::vector<bool>& needed);

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
  const Provenance outer = builder.provenance();
  const SourcePlace& place = outer.place;
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
  builder.set_provenance(outer);
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
    input_gradients = loop_gradient(walk.builder, node_index, result_gradients, needed,
                                    [this](auto& builder, auto ys, auto seeds, auto xs) { return run(builder, ys, seeds, xs); });
  else
    input_gradients = through_op(walk, node, result_gradients, needed);

  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i >= input_gradients.size() || !input_gradients[i] || !needed[i]) continue;
    Value gradient = *input_gradients[i];
    const TensorType& type = walk.builder.graph().type(node.inputs[i]);
    // Of operands whose sizes are equal only by what is known of the symbols, the rules may give either.
    if (gradient.dtype() == type.dtype && same_shape(walk.builder.module(), gradient.shape(), type.shape)) gradient = reshape(gradient, type.shape);
    SG_CHECK(same_dtype_and_shape(gradient.type(), type), std::string(name(node.op)) + ": gradient of input " + std::to_string(i) + " is " +
                                                              text(gradient.type()) + ", wanted " + text(type));
    auto& slot = walk.gradients[at(node.inputs[i])];
    slot = slot ? *slot + gradient : gradient;
  }
}

Gradients Differentiator::through_op(Walk& walk, const Node& node, const Gradients& result_gradients, const std::vector<bool>& needed) {
  const OpInfo& info = op_info(node.op);
  if (!info.differentiable) return {};
  if (!info.gradient && info.decompose) return through_decomposition(walk, node, *info.decompose, result_gradients, needed);
  if (!info.gradient) throw UserError(std::string(name(node.op)) + " cannot be differentiated", node.place);
  GradientRequest request{walk.builder, node.op, {}, {}, result_gradients, needed};
  for (ValueId input : node.inputs) request.inputs.push_back(walk.builder.value(input));
  for (ValueId result : node.results) request.results.push_back(walk.builder.value(result));
  return info.gradient(request);
}

/// The op's primitives in a graph of their own, which is called and differentiated.
Gradients Differentiator::through_decomposition(Walk& walk, const Node& node, std::vector<Value> (&decompose)(const Op&, std::span<const Value>),
                                                const Gradients& result_gradients, const std::vector<bool>& needed) {
  std::vector<Value> inputs;
  for (ValueId input : node.inputs) inputs.push_back(walk.builder.value(input));
  composite(walk.builder, std::string(name(node.op)), inputs, [&](Builder&, const std::vector<Value>& in) { return decompose(node.op, in); });
  return through_call(walk, walk.builder.graph().nodes.size() - 1, result_gradients, needed);
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
    // Calls that are nested twice a level keep twice as many values at each level.
    if (const size_t count = graph.values.size() + derived.saved.size(); count > graph_values_max)
      throw UserError(fmt::format("gradients: found {} values in graph {}, wanted at most {}; {} are what one call of {} and the calls in it keep", count,
                                  graph_text(module_, builder.graph_id()), graph_values_max, derived.saved.size(), graph_text(module_, callee)),
                      node.place);
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
    using Kind = CalleeGradient::Source::Kind;
    std::vector<CalleeGradient::Source> sources(builder.graph().values.size(), {Kind::Result, 0});  // by value
    for (size_t i = forward_outputs.size(); i-- > 0;) sources[at(forward_outputs[i])] = {Kind::Result, i};
    for (size_t i = 0; i < forward_inputs.size(); ++i) sources[at(forward_inputs[i])] = {Kind::Input, i};
    for (size_t i = 0; i < split.saved.size(); ++i) sources[at(split.saved[i])] = {Kind::Saved, i};
    for (size_t i = 0; i < gradient_inputs.size(); ++i) sources[at(gradient_inputs[i])] = {Kind::Gradient, gradient_result[i]};
    for (ValueId value : split.backward_inputs) derived.backward_inputs.push_back(sources[at(value)]);
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
