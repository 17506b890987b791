// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stepgraph/compile/autodiff/needed.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/step/micro_batches.h"
#include "stepgraph/compile/step/step_results.h"
#include "stepgraph/compile/step/train_step.h"

namespace stepgraph {
namespace {

/// A Loop over the leading dim of the batch inputs, being put together: which values go in, and what they are inside.
class MicroBatchLoop {
 public:
  MicroBatchLoop(Builder& outer, const Graph& forward, const std::vector<Value>& inputs, int64_t micro_batches, const std::string& body_name)
      : outer_(outer), micro_batches_(micro_batches), body_id_(outer.module().add_graph(body_name)), body_(outer.module(), body_id_) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const GraphInput& input = forward.inputs[i];
      const Value inner = body_.input(forward.type(input.value));
      inside_.push_back(inner);
      (input.role.kind == RoleKind::Batch ? scanned_ : invariant_).emplace_back(inner, inputs[i]);
    }
  }
  Builder& body() { return body_; }
  const std::vector<Value>& inside() const { return inside_; }
  Value invariant(Value outside) {
    invariant_.emplace_back(body_.input(outside.type()), outside);
    return invariant_.back().first;
  }
  /// A carried value: `start` outside; inside it is returned here, and `next` must be given to carry().
  Value carried_input(const TensorType& type) { return body_.input(type); }
  void carry(Value inside, Value start, Value next) { carried_.push_back({inside, start, next}); }

  std::vector<Value> finish(const std::string& symbol) {
    Graph& graph = body_.graph();
    graph.inputs.clear();
    std::vector<Value> arguments;
    auto add = [&](Value inside, Value outside) {
      graph.inputs.push_back({inside.id, {}});
      arguments.push_back(outside);
    };
    for (const Carried& value : carried_) add(value.inside, value.start), body_.output(value.next);
    for (const auto& [inside, outside] : scanned_) add(inside, outside);
    std::vector<bool> read(graph.values.size());
    for (const Node& node : graph.nodes)
      for (ValueId input : node.inputs) read[static_cast<size_t>(input.index)] = true;
    for (const GraphOutput& output : graph.outputs) read[static_cast<size_t>(output.value.index)] = true;
    // A buffer is carried: it is an input already.
    for (const Carried& value : carried_) read[static_cast<size_t>(value.inside.id.index)] = false;
    for (const auto& [inside, outside] : invariant_)
      if (read[static_cast<size_t>(inside.id.index)]) add(inside, outside);
    // Inputs that nothing reads are gone: close the gaps in the ids.
    remove_dead_nodes(graph);
    Loop loop;
    loop.body = body_id_;
    loop.trip_count = micro_batches_;
    loop.symbol = symbol;
    loop.carried = static_cast<int64_t>(carried_.size());
    loop.scanned = static_cast<int64_t>(scanned_.size());
    return outer_.emit(loop, arguments);
  }

 private:
  struct Carried {
    Value inside, start, next;
  };
  Builder& outer_;
  int64_t micro_batches_;
  GraphId body_id_;
  Builder body_;
  std::vector<Value> inside_;
  std::vector<std::pair<Value, Value>> scanned_, invariant_;  // (inside, outside)
  std::vector<Carried> carried_;
};

/// A size of the model's own may be named so.
std::string micro_batch_symbol(const SymbolTable& symbols) {
  std::string name = "micro_batch";
  while (symbols.find(name)) name += '_';
  return name;
}

/// The terms of the whole batch's loss without their numerators, known before the first backward.
std::vector<LossTerm> whole_denominators(Builder& builder, const Graph& forward, const std::vector<Value>& inputs, int64_t micro_batches, const std::string& symbol) {
  MicroBatchLoop loop(builder, forward, inputs, micro_batches, "loss_denominator");
  loop.body().set_phase(Phase::Forward);
  std::vector<bool> wanted;
  for (const GraphOutput& output : forward.outputs) wanted.push_back(is_loss_denominator(output.role.kind));
  const std::vector<std::optional<Value>> inside(loop.inside().begin(), loop.inside().end());
  const std::vector<std::optional<Value>> outputs = copy_needed(loop.body(), forward, inside, wanted);
  std::vector<Role> roles;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]) continue;
    roles.push_back(forward.outputs[i].role);
    const Value part = convert(*outputs[i], wide_dtype(outputs[i]->dtype())), before = loop.carried_input(part.type());
    // What counts once is that of any micro-batch.
    loop.carry(before, full(builder, before.dtype(), {}, 0), roles.back().kind == RoleKind::LossDenominator ? before + part : part);
  }
  const std::vector<Value> results = loop.finish(symbol);
  std::vector<LossTerm> loss;
  for (size_t i = 0; i < roles.size(); ++i) set_denominator(term_named(loss, loss_term(roles[i])), roles[i].kind, results[i]);
  return loss;
}

/// The step's outputs over all micro-batches: gradients, loss and metrics as sums, buffers in order of the micro-batches.
StepResults run_micro_batches(Builder& builder, const Graph& one, const std::vector<Value>& inputs, int64_t micro_batches, const std::string& symbol) {
  MicroBatchLoop loop(builder, one, inputs, micro_batches, "micro_batch");
  Builder& body = loop.body();
  const StepResults inner = collect(one, body.inline_graph(one, loop.inside()));
  auto carry_sum = [&](Value addend) {
    const Value wide = convert(addend, wide_dtype(addend.dtype()));
    const Value sum = loop.carried_input(wide.type());
    loop.carry(sum, full(builder, wide.dtype(), wide.shape(), 0), sum + wide);
  };
  body.set_phase(Phase::Backward);
  for (const auto& [parameter, gradient] : inner.gradients) carry_sum(gradient);
  body.set_phase(Phase::Forward);
  for (const LossTerm& term : inner.loss) carry_sum(term.numerator);
  for (const auto& [role, value] : inner.metrics) carry_sum(value);
  for (const auto& [buffer, value] : inner.states) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (one.inputs[i].role.kind == RoleKind::Buffer && one.inputs[i].role.name == buffer) loop.carry(loop.inside()[i], inputs[i], value);
  }
  const std::vector<Value> sums = loop.finish(symbol);
  size_t next = 0;
  StepResults results = inner;
  for (auto& [parameter, gradient] : results.gradients) gradient = sums[next++];
  for (LossTerm& term : results.loss) term.numerator = sums[next++];
  for (auto& [role, value] : results.metrics) value = sums[next++];
  for (auto& [buffer, value] : results.states) value = sums[next++];
  return results;
}

/// That the loss and the gradients of the whole batch are made up by micro-batches.
void check_parts(const Graph& step) {
  const auto is_derived_from = [&](const GraphOutput& output) {
    return output.role.kind == RoleKind::LossNumerator && find_input(step, RoleKind::LossGradient, loss_term(output.role));
  };
  if (std::none_of(step.outputs.begin(), step.outputs.end(), is_derived_from))
    throw UserError(
        "micro_batches: the model brings its own gradients, of the mean over the whole batch, which cannot be made of parts; wanted micro_batches 1");
  for (const GraphOutput& output : step.outputs) {
    if (output.role.kind == RoleKind::LossDenominatorWhole)
      throw UserError(
          "micro_batches: the loss of the model is not found to be made of sums over the rows of the batch, each as it is or divided by their number or by "
          "another sum over the batch (a mask, weights), so that it cannot be made of parts of a batch; wanted such a loss, or micro_batches 1");
    if (output.role.kind == RoleKind::Metric)
      throw UserError("micro_batches: metric '" + output.role.name + "' is a number of a whole batch, wanted a metric_numerator and a metric_denominator that add up, "
                      "or micro_batches 1");
  }
}

}  // namespace

Module accumulate(Module module, int64_t micro_batches) {
  if (micro_batches == 1) return module;
  const GraphId whole_id = module.entry("step");
  check_parts(module.graph(whole_id));
  const std::string symbol = micro_batch_symbol(module.symbols);
  module.symbols.declare({symbol, SymbolKind::Iteration, 0, micro_batches - 1, 1, {}});
  const Graph& one = module.graph(place_random_numbers(module, whole_id, symbol, micro_batches));
  const GraphId step_id = module.add_graph("step");
  Builder builder(module, step_id);
  std::vector<Value> inputs;
  for (const GraphInput& input : one.inputs) {
    TensorType type = one.type(input.value);
    Role role = input.role;
    if (role.kind == RoleKind::Batch) {
      type.shape.insert(type.shape.begin(), micro_batches);
      role.batch_dim = 1;
    }
    inputs.push_back(builder.input(std::move(type), std::move(role)));
  }
  builder.set_phase(Phase::Forward);
  std::vector<LossTerm> whole = whole_denominators(builder, one, inputs, micro_batches, symbol);
  builder.set_phase(Phase::Backward);  // the loop ends with the last backward
  StepResults results = run_micro_batches(builder, one, inputs, micro_batches, symbol);
  for (LossTerm& term : results.loss) {
    LossTerm& of_whole = term_named(whole, term.name);
    of_whole.numerator = term.numerator;
    term = of_whole;
  }
  put_outputs(builder, results);
  return finish_step(std::move(module), step_id);
}

}  // namespace stepgraph
