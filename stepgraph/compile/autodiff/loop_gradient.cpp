// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/autodiff/loop_gradient.h"

#include <algorithm>

#include "stepgraph/compile/autodiff/dependents.h"
#include "stepgraph/compile/autodiff/split_graph.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {
namespace {

/// Slices of different sizes cannot be stacked for the backward loop.
void check_fixed_size(const Loop& loop, const std::string& body, const TensorType& type, const SourcePlace& place) {
  for (const Dim& dim : type.shape)
    for (const std::string& symbol : dim.symbols())
      if (symbol == loop.symbol)
        throw UserError("gradients: the backward of loop '" + body + "' needs a value of type " + text(type) + ", whose size depends on the iteration '" +
                            symbol + "'",
                        place);
}

class LoopGradient {
 public:
  LoopGradient(Builder& outer, size_t node_index, const Gradients& result_gradients, const std::vector<bool>& needed)
      : outer_(outer),
        module_(outer.module()),
        node_index_(node_index),
        node_(outer.graph().nodes[node_index]),
        loop_(std::get<Loop>(node_.op)),
        result_gradients_(result_gradients),
        carried_(static_cast<size_t>(loop_.carried)),
        scanned_(static_cast<size_t>(loop_.scanned)),
        base_name_(module_.graph(loop_.body).name),
        combined_(module_.add_graph(base_name_ + "_backward")),
        body_(module_, combined_) {
    takes_part_ = active_carried(needed);
    takes_part_.insert(takes_part_.end(), needed.begin() + static_cast<std::ptrdiff_t>(carried_), needed.end());
  }

  Gradients run(const Differentiate& differentiate) {
    differentiate_iteration(differentiate);
    SplitGraph split = split_iteration();
    const std::vector<Value> stacks = extend_forward(split);
    const std::vector<Value> results = append_backward(split, stacks);
    Gradients gradients(node_.inputs.size());
    for (size_t i = 0; i < gradients.size(); ++i)
      if (result_of_input_[i]) gradients[i] = results[*result_of_input_[i] + (is_scanned(i) ? carried_inside_.size() : 0)];
    return gradients;
  }

 private:
  bool is_scanned(size_t input) const { return input >= carried_ && input < carried_ + scanned_; }
  std::vector<bool> active_carried(const std::vector<bool>& needed) const;
  void differentiate_iteration(const Differentiate& differentiate);
  void take_input_gradients(const Gradients& found);
  SplitGraph split_iteration() const;
  std::vector<Value> extend_forward(SplitGraph& split);
  std::vector<Value> append_backward(SplitGraph& split, const std::vector<Value>& stacks);

  Builder& outer_;
  Module& module_;
  size_t node_index_;
  Node node_;
  Loop loop_;
  const Gradients& result_gradients_;
  size_t carried_, scanned_;
  std::string base_name_;
  // One graph that holds an iteration and, after `forward_nodes_`, its backward.
  GraphId combined_;
  Builder body_;
  size_t forward_nodes_ = 0;
  std::vector<Value> inputs_;
  std::vector<ValueId> forward_inputs_, forward_outputs_;
  std::vector<bool> takes_part_;  // by input: a gradient may flow into it
  // Of the backward loop, inside and outside: what it carries (gradients of carried values, sums for invariants), and gradients of stacks.
  std::vector<Value> carried_inside_, carried_outside_, slices_inside_, slices_outside_;
  std::vector<ValueId> next_carried_, stacked_;
  std::vector<std::optional<size_t>> result_of_input_;  // index among the carried results, or (scanned) among the stacks
};

/// Carried values through which a gradient can flow: a fixed point over the body.
std::vector<bool> LoopGradient::active_carried(const std::vector<bool>& needed) const {
  const Graph& body = module_.graph(loop_.body);
  std::vector<bool> active(needed.begin(), needed.begin() + static_cast<std::ptrdiff_t>(carried_));
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<bool> marked(body.values.size());
    for (size_t i = 0; i < body.inputs.size(); ++i)
      if ((i < carried_ ? active[i] : needed[i]) && is_floating(body.type(body.inputs[i].value).dtype)) marked[at(body.inputs[i].value)] = true;
    mark_dependents(body, body.nodes.size(), marked);
    for (size_t i = 0; i < carried_; ++i) {
      if (active[i] || !marked[at(body.outputs[i].value)]) continue;
      active[i] = changed = true;
    }
  }
  return active;
}

void LoopGradient::differentiate_iteration(const Differentiate& differentiate) {
  for (const GraphInput& input : module_.graph(loop_.body).inputs) {
    inputs_.push_back(body_.input(module_.graph(loop_.body).type(input.value)));
    forward_inputs_.push_back(inputs_.back().id);
  }
  const std::vector<Value> outputs = body_.inline_graph(module_.graph(loop_.body), inputs_);
  forward_nodes_ = body_.graph().nodes.size();
  for (const Value& output : outputs) forward_outputs_.push_back(output.id);

  std::vector<Value> ys, xs;
  std::vector<std::optional<Value>> seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool flows = i < carried_ ? static_cast<bool>(takes_part_[i]) : result_gradients_[i].has_value();
    if (!flows) continue;
    ys.push_back(outputs[i]);
    seeds.emplace_back(body_.input(outputs[i].type()));
    (i < carried_ ? carried_inside_ : slices_inside_).push_back(*seeds.back());
    if (i < carried_)
      carried_outside_.push_back(result_gradients_[i] ? *result_gradients_[i] : zeros(outer_, outputs[i].type()));
    else
      slices_outside_.push_back(*result_gradients_[i]);
  }
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (takes_part_[i]) xs.push_back(inputs_[i]);
  take_input_gradients(differentiate(body_, ys, seeds, xs));
}

void LoopGradient::take_input_gradients(const Gradients& found) {
  result_of_input_.resize(inputs_.size());
  size_t next = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!takes_part_[i]) continue;
    const std::optional<Value>& gradient = found[next++];
    if (i < carried_) {
      result_of_input_[i] = next_carried_.size();
      next_carried_.push_back((gradient ? *gradient : zeros(body_, inputs_[i].type())).id);
      continue;
    }
    if (!gradient) continue;
    if (is_scanned(i)) {
      result_of_input_[i] = stacked_.size();
      stacked_.push_back(gradient->id);
      continue;
    }
    const Value sum = body_.input(inputs_[i].type());
    carried_inside_.push_back(sum);
    carried_outside_.push_back(zeros(outer_, inputs_[i].type()));
    result_of_input_[i] = next_carried_.size();
    next_carried_.push_back((sum + *gradient).id);
  }
}

SplitGraph LoopGradient::split_iteration() const {
  std::vector<ValueId> gradient_inputs, backward_outputs = next_carried_;
  for (const Value& value : carried_inside_) gradient_inputs.push_back(value.id);
  for (const Value& value : slices_inside_) gradient_inputs.push_back(value.id);
  backward_outputs.insert(backward_outputs.end(), stacked_.begin(), stacked_.end());
  std::vector<bool> save_inputs(inputs_.size());
  std::fill(save_inputs.begin(), save_inputs.begin() + static_cast<std::ptrdiff_t>(carried_), true);
  return split_graph(body_.graph(), forward_nodes_, forward_inputs_, forward_outputs_, gradient_inputs, backward_outputs, save_inputs);
}

/// The forward loop also stacks the saved values, which are returned.
std::vector<Value> LoopGradient::extend_forward(SplitGraph& split) {
  std::vector<TensorType> types;
  for (ValueId value : split.saved) {
    types.push_back(body_.graph().type(value));
    check_fixed_size(loop_, base_name_, types.back(), node_.place);
    types.back().shape.insert(types.back().shape.begin(), loop_.trip_count);
  }
  const std::string suffix = "_forward";
  split.forward.name = base_name_.ends_with(suffix) ? base_name_ : base_name_ + suffix;
  const GraphId forward_body = module_.add_graph(split.forward.name);
  module_.graph(forward_body) = std::move(split.forward);
  Graph& graph = outer_.graph();
  std::get<Loop>(graph.nodes[node_index_].op).body = forward_body;
  std::vector<Value> stacks;
  for (TensorType& type : types) {
    const ValueId id{static_cast<int32_t>(graph.values.size())};
    graph.values.push_back({std::move(type), static_cast<int32_t>(node_index_)});
    graph.nodes[node_index_].results.push_back(id);
    stacks.push_back(outer_.value(id));
  }
  return stacks;
}

/// Puts the backward body's inputs in a loop's order (carried, scanned, invariants), and appends the loop.
std::vector<Value> LoopGradient::append_backward(SplitGraph& split, const std::vector<Value>& stacks) {
  std::vector<ValueId> order;
  std::vector<Value> arguments;
  auto add = [&](ValueId inside, Value outside) { order.push_back(inside), arguments.push_back(outside); };
  for (size_t i = 0; i < carried_inside_.size(); ++i) add(carried_inside_[i].id, carried_outside_[i]);
  for (size_t i = 0; i < split.saved.size(); ++i) add(split.saved[i], stacks[i]);
  for (size_t i = 0; i < slices_inside_.size(); ++i) add(slices_inside_[i].id, slices_outside_[i]);
  // Inputs of the forward loop that an iteration's backward reads again; carried ones are among the saved.
  std::vector<bool> reads(inputs_.size());
  for (size_t i = carried_; i < inputs_.size(); ++i)
    reads[i] = std::find(split.backward_inputs.begin(), split.backward_inputs.end(), forward_inputs_[i]) != split.backward_inputs.end();
  for (size_t i = carried_; i < inputs_.size(); ++i)
    if (reads[i] && is_scanned(i)) add(forward_inputs_[i], outer_.value(node_.inputs[i]));
  const size_t first_invariant = order.size();
  for (size_t i = carried_; i < inputs_.size(); ++i)
    if (reads[i] && !is_scanned(i)) add(forward_inputs_[i], outer_.value(node_.inputs[i]));

  std::vector<GraphInput> ordered;
  for (ValueId value : order) {
    const auto position = std::find(split.backward_inputs.begin(), split.backward_inputs.end(), value);
    SG_CHECK(position != split.backward_inputs.end(), "loop gradient: an input of the backward body is missing");
    ordered.push_back(split.backward.inputs[static_cast<size_t>(position - split.backward_inputs.begin())]);
  }
  SG_CHECK(ordered.size() == split.backward.inputs.size(), "loop gradient: inputs of the backward body do not match");
  split.backward.inputs = std::move(ordered);
  split.backward.name = base_name_ + "_backward";
  module_.graph(combined_) = std::move(split.backward);

  Loop backward = loop_;
  backward.body = combined_;
  backward.reverse = !loop_.reverse;
  backward.carried = static_cast<int64_t>(carried_inside_.size());
  backward.scanned = static_cast<int64_t>(first_invariant - carried_inside_.size());
  return outer_.emit(backward, arguments);
}

}  // namespace

Gradients loop_gradient(Builder& outer, size_t node_index, const Gradients& result_gradients, const std::vector<bool>& needed,
                        const Differentiate& differentiate) {
  return LoopGradient(outer, node_index, result_gradients, needed).run(differentiate);
}

}  // namespace stepgraph
