// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "stepgraph/compile/capture/batch_norm_uses.h"
#include "stepgraph/compile/capture/loss_role.h"
#include "stepgraph/compile/capture/loss_scale.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/reference/interpreter.h"
#include "stepgraph/reference/shards.h"
#include "stepgraph/run/comm/threads.h"
#include "stepgraph/train/batch.h"
#include "stepgraph/train/rank_team.h"

namespace stepgraph {
namespace {

/// Local values by name of state.
using LocalState = std::map<std::string, Literal>;

struct Worker : RankWorker {
  Worker(const Module& step, const Module& eval, Communicator& communicator, const MeshBinding& binding)
      : step_runner(step, communicator, binding), eval_runner(eval, communicator, binding) {}
  Interpreter step_runner, eval_runner;
};

/// A global batch as an entry takes it, and what its sizes tell.
struct FittedBatch {
  std::map<std::string, Literal, std::less<>> arrays;
  SymbolValues symbols;
};

/// One compiled entry: its Local module and what its inputs and outputs mean.
struct CompiledEntry {
  Module logical, local;
  const Graph& graph() const { return local.graph(local.entries.at(0).graph); }
  const Graph& logical_graph() const { return logical.graph(logical.entries.at(0).graph); }
};

Module only_entry(const Module& module, std::string_view entry) {
  Module one = module;
  one.entries = {{std::string(entry), module.entry(entry)}};
  return prune_graphs(std::move(one));
}

template <class T>
bool all_finite(std::span<const T> values) {
  return std::all_of(values.begin(), values.end(), [](T value) { return std::isfinite(value); });
}
bool is_finite(const Literal& value) {
  if (value.dtype() == DType::F32) return all_finite(value.as<float>());
  if (value.dtype() == DType::F64) return all_finite(value.as<double>());
  if (!is_floating(value.dtype())) return true;
  for (int64_t i = 0; i < value.count(); ++i)
    if (!std::isfinite(value.at(i))) return false;
  return true;
}

struct Quotients {
  struct Term {
    double numerator = 0, sum = 0, least = -std::numeric_limits<double>::infinity(), constant = 0;
    double denominator() const { return std::max(sum, least) + constant; }
    bool is_empty() const { return denominator() == 0 && numerator == 0; }
    double quotient() const { return is_empty() ? 0 : denominator() == 0 ? std::nan("") : numerator / denominator(); }
  };
  std::map<std::string, Term, std::less<>> loss_terms;  // loss_role.h
  std::map<std::string, std::pair<double, double>> quotients;
  std::map<std::string, double> numbers;
  /// A metric of which nothing was counted has no value.
  std::map<std::string, double> metrics() const {
    std::map<std::string, double> found = numbers;
    for (const auto& [metric, sums] : quotients)
      if (sums.second != 0) found[metric] = sums.first / sums.second;
    return found;
  }
  bool is_empty() const {
    return std::all_of(loss_terms.begin(), loss_terms.end(), [](const auto& entry) { return entry.second.is_empty(); });
  }
  EvalResult result() const { return {is_empty() ? std::nullopt : std::optional(loss()), metrics(), {}}; }
  double loss() const {
    double total = 0;
    for (const auto& [name, term] : loss_terms) total += term.quotient();
    return total;
  }
  /// Of a step, which has one term.
  const Term& whole() { return loss_terms["loss"]; }
  void add(const Graph& graph, const std::vector<Literal>& outputs, const std::vector<double>& weights = {}) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Role& role = graph.outputs[i].role;
      const double weight = weights.empty() ? 1 : weights[i];
      switch (role.kind) {
        case RoleKind::LossNumerator: loss_terms[std::string(loss_term(role.name))].numerator += weight * outputs[i].at(0); break;
        case RoleKind::LossDenominator: add_denominator(denominator_role(role.name), outputs[i].at(0), weight); break;
        case RoleKind::Metric: numbers[role.name] = outputs[i].at(0); break;
        case RoleKind::MetricNumerator: quotients[role.name].first += weight * outputs[i].at(0); break;
        case RoleKind::MetricDenominator: quotients[role.name].second += weight * outputs[i].at(0); break;
        default: break;
      }
    }
  }

 private:
  void add_denominator(const DenominatorRole& role, double value, double weight) {
    Term& term = loss_terms[std::string(role.term)];
    switch (role.part) {
      case DenominatorPart::Sum: term.sum += weight * value; break;
      case DenominatorPart::Least: term.least = value; break;
      case DenominatorPart::Constant: term.constant = value; break;
    }
  }
};

bool is_constant_one(const Graph& graph, ValueId value) {
  for (int32_t node = graph.values[static_cast<size_t>(value.index)].node; node >= 0;) {
    const Node& producer = graph.nodes[static_cast<size_t>(node)];
    if (const auto* constant = std::get_if<Constant>(&producer.op)) return constant->value.count() == 1 && constant->value.at(0) == 1;
    if (!std::holds_alternative<Convert>(producer.op)) return false;
    node = graph.values[static_cast<size_t>(producer.inputs[0].index)].node;
  }
  return false;
}

/// For each output of an entry: whether it belongs to a quotient whose denominator is always 1. The numerator then is a mean of its own batch, and only
/// the number of rows says how much it counts among others.
std::vector<bool> plain_means(const Graph& graph) {
  std::set<std::string, std::less<>> metrics, losses;
  for (const GraphOutput& output : graph.outputs) {
    if (!graph.type(output.value).shape.empty() || !is_constant_one(graph, output.value)) continue;
    if (output.role.kind == RoleKind::LossDenominator && denominator_role(output.role.name).part == DenominatorPart::Sum)
      losses.insert(std::string(denominator_role(output.role.name).term));
    if (output.role.kind == RoleKind::MetricDenominator) metrics.insert(output.role.name);
  }
  std::vector<bool> found;
  for (const auto& [value, role] : graph.outputs) {
    const bool is_loss = role.kind == RoleKind::LossNumerator || role.kind == RoleKind::LossDenominator;
    const bool is_metric = role.kind == RoleKind::MetricNumerator || role.kind == RoleKind::MetricDenominator;
    const std::string_view term = role.kind == RoleKind::LossDenominator ? denominator_role(role.name).term : loss_term(role.name);
    found.push_back(is_loss ? losses.contains(term) : is_metric && metrics.contains(role.name));
  }
  return found;
}

int64_t rows_of(const Graph& graph, const NamedArrays& batch) {
  for (const GraphInput& input : graph.inputs)
    if (const Literal* array = input.role.kind == RoleKind::Batch ? find_array(batch, input.role.name) : nullptr; array && array->rank() > 0) return array->sizes()[0];
  return 1;
}

}  // namespace

struct Trainer::Implementation {
  Implementation(Module module, TrainerOptions trainer_options);
  CompiledEntry compile_entry(std::string_view entry);
  void start_state();
  /// UserError for a batch that does not fit the entry.
  FittedBatch fit(const CompiledEntry& entry, const NamedArrays& batch, int64_t micro) const;
  std::vector<Literal> local_inputs(const CompiledEntry& entry, int rank, const FittedBatch& batch) const;
  std::vector<std::vector<Literal>> run(const CompiledEntry& entry, const NamedArrays& batch, int64_t micro);
  void check_skipped(const StepResult& result);
  void check_finite(const StepResult& result, size_t rank, const std::vector<Literal>& outputs, const NamedArrays& batch);
  [[noreturn]] void report_non_finite(const NamedArrays& batch, const std::string& what);
  void commit(std::vector<std::vector<Literal>>& outputs);
  NamedArrays gather_state(bool weights_only) const;

  Module logical;
  TrainerOptions options;
  Mesh mesh;
  MeshBinding binding;
  CompiledEntry step, eval;
  PassLog log;
  int64_t micro_batches = 1, steps_done = 0;
  int64_t skipped_in_a_row = 0;
  std::vector<LocalState> state;                     // by rank
  std::map<std::string, TensorType> state_types;     // global types, with shardings
  std::vector<BatchNormUse> norms;                   // of the step
  std::vector<int64_t> peaks;                        // by rank
  std::unique_ptr<RankTeam> team;
};

CompiledEntry Trainer::Implementation::compile_entry(std::string_view entry) {
  CompiledEntry compiled;
  compiled.logical = only_entry(logical, entry);
  CompileOptions compile_options;
  compile_options.mesh = mesh;
  compile_options.sharding.inputs = options.shardings;
  compile_options.skip = options.skip;
  compiled.local = compile_local(compiled.logical, compile_options, &log);
  return compiled;
}

Mesh mesh_of_threads(const std::string& text) {
  Mesh mesh = parse_mesh(text);
  if (mesh.device_count() > most_thread_ranks)
    throw UserError("mesh " + text + ": found " + std::to_string(mesh.device_count()) + " devices, ranks as threads of one process are at most " + std::to_string(most_thread_ranks));
  return mesh;
}

Trainer::Implementation::Implementation(Module module, TrainerOptions trainer_options)
    : logical(std::move(module)), options(std::move(trainer_options)), mesh(mesh_of_threads(options.mesh)), binding(bind_mesh(mesh)) {
  for (std::string_view entry : {"init", "step", "eval"}) logical.entry(entry);
  const Graph& step_graph = logical.graph(logical.entry("step"));
  for (const GraphInput& input : step_graph.inputs) {
    if (is_state(input.role.kind)) state_types[input.role.name] = step_graph.type(input.value);
    if (input.role.kind != RoleKind::Batch) continue;
    if (input.role.batch_dim == 0) continue;
    const Dim& count = step_graph.type(input.value).shape[0];
    if (input.role.batch_dim != 1 || !count.is_constant() || count.constant() < 1 || (micro_batches > 1 && count.constant() != micro_batches))
      throw UserError("entry step: batch input " + input.role.name + " has " + count.text() + " micro-batches, wanted one number for all inputs");
    micro_batches = count.constant();
  }
  log.clock_us = [] {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  step = compile_entry("step");
  eval = compile_entry("eval");
  norms = batch_norm_uses(step.logical, step.logical.entries.at(0).graph);
  for (const GraphInput& input : step.graph().inputs)
    if (is_state(input.role.kind)) state_types[input.role.name].sharding = step.graph().type(input.value).sharding;
  peaks.resize(static_cast<size_t>(binding.rank_count()));
  start_state();
  team = std::make_unique<RankTeam>(binding.rank_count(), [this](int, Communicator& communicator) -> std::unique_ptr<RankWorker> {
    return std::make_unique<Worker>(step.local, eval.local, communicator, binding);
  });
}

void Trainer::Implementation::start_state() {
  const GraphId init = logical.entry("init");
  std::vector<Literal> inputs;
  for (const GraphInput& input : logical.graph(init).inputs) {
    if (input.role.kind != RoleKind::Seed) throw UserError("entry init has an input of role " + std::string(name(input.role.kind)) + ", wanted seed only");
    inputs.push_back(Literal::integer(DType::I64, static_cast<int64_t>(options.seed)));
  }
  const std::vector<Literal> outputs = evaluate_graph(logical, init, inputs);
  NamedArrays initial;
  for (size_t i = 0; i < outputs.size(); ++i) initial.emplace_back(logical.graph(init).outputs[i].role.name, outputs[i]);
  state.assign(static_cast<size_t>(binding.rank_count()), {});
  std::set<std::string> given;
  for (const auto& [state_name, value] : initial) {
    const auto type = state_types.find(state_name);
    if (type == state_types.end()) continue;  // read by eval only, or by nothing
    if (!given.insert(state_name).second) throw UserError("entry init gives two values for state " + state_name);
    const TensorType found{value.dtype(), Shape(value.sizes().begin(), value.sizes().end()), {}};
    if (!same_dtype_and_shape(found, type->second))
      throw UserError("entry init gives " + text(found) + " for state " + state_name + ", entry step wants " +
                      text(TensorType{type->second.dtype, type->second.shape, {}}));
    for (int rank = 0; rank < binding.rank_count(); ++rank)
      state[static_cast<size_t>(rank)][state_name] =
          type->second.sharding ? local_part(value, *type->second.sharding, mesh, binding.coordinates(rank), logical.symbols) : value;
  }
  for (const auto& [state_name, type] : state_types)
    if (!given.count(state_name)) throw UserError("entry init gives no value for state " + state_name + " of entry step");
}

FittedBatch Trainer::Implementation::fit(const CompiledEntry& entry, const NamedArrays& batch, int64_t micro) const {
  FittedBatch fitted;
  const Graph& whole = entry.logical_graph();
  for (const GraphInput& input : whole.inputs) {
    if (input.role.kind != RoleKind::Batch) continue;
    const TensorType& type = whole.type(input.value);
    Literal array = fit_batch(batch_array(batch, input.role.name), type, input.role.name, micro);
    solve_sizes(array.sizes(), type, input.role.name, fitted.symbols);
    fitted.arrays.emplace(input.role.name, std::move(array));
  }
  return fitted;
}

std::vector<Literal> Trainer::Implementation::local_inputs(const CompiledEntry& entry, int rank, const FittedBatch& batch) const {
  const Graph& graph = entry.graph();
  std::vector<Literal> inputs;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Role& role = graph.inputs[i].role;
    const TensorType& type = graph.type(graph.inputs[i].value);
    if (is_state(role.kind)) {
      const auto found = state[static_cast<size_t>(rank)].find(role.name);
      if (found == state[static_cast<size_t>(rank)].end()) throw UserError("entry eval reads state " + role.name + " that entry step does not have");
      inputs.push_back(found->second);
    } else if (role.kind == RoleKind::Batch) {
      const Literal& value = batch.arrays.at(role.name);
      inputs.push_back(type.sharding ? local_part(value, *type.sharding, mesh, binding.coordinates(rank), logical.symbols) : value);
    } else if (role.kind == RoleKind::Seed) {
      inputs.push_back(Literal::integer(DType::I64, static_cast<int64_t>(options.seed)));
    } else if (role.kind == RoleKind::Step) {
      inputs.push_back(Literal::integer(DType::I64, steps_done));
    } else {
      throw UserError("an input of role " + std::string(name(role.kind)) + " named '" + role.name + "' cannot be given by the trainer");
    }
  }
  return inputs;
}

std::vector<std::vector<Literal>> Trainer::Implementation::run(const CompiledEntry& entry, const NamedArrays& batch, int64_t micro) {
  const FittedBatch fitted = fit(entry, batch, micro);
  options.guards.check([&](std::string_view input, int64_t dim) -> std::optional<int64_t> {
    const auto found = fitted.arrays.find(input);
    const size_t leading = micro > 1 ? 1 : 0;  // micro-batches
    if (found == fitted.arrays.end() || dim < 0 || static_cast<size_t>(dim) + leading >= found->second.rank()) return std::nullopt;
    return found->second.sizes()[static_cast<size_t>(dim) + leading];
  });
  const bool is_step = &entry == &step;
  if (is_step) check_values_per_channel(norms, fitted.symbols);
  std::vector<std::vector<Literal>> outputs(static_cast<size_t>(binding.rank_count()));
  const auto work = [&](int rank, RankWorker& base) {
    Worker& worker = static_cast<Worker&>(base);
    Interpreter& runner = is_step ? worker.step_runner : worker.eval_runner;
    outputs[static_cast<size_t>(rank)] = runner.run(entry.local.entries[0].graph, local_inputs(entry, rank, fitted), fitted.symbols);
    int64_t& peak = peaks[static_cast<size_t>(rank)];
    peak = std::max({peak, worker.step_runner.peak_bytes(), worker.eval_runner.peak_bytes()});
  };
  try {
    team->run(work);
  } catch (const UserError& error) {
    if (!error.bad_index()) throw;
    throw error.retold(error.what() + index_hint(*error.bad_index(), entry.logical_graph(), batch));
  }
  return outputs;
}

void Trainer::Implementation::report_non_finite(const NamedArrays& batch, const std::string& what) {
  std::string first = "no single operator made it: its inputs (parameters or batch) already hold values that are not finite";
  try {
    const FittedBatch fitted = fit(step, batch, micro_batches);
    run_ranks(binding.rank_count(), [&](int rank, Communicator& communicator) {
      Interpreter runner(step.local, communicator, binding, {stop_at_first_non_finite()});
      runner.run(step.local.entries[0].graph, local_inputs(step, rank, fitted), fitted.symbols);
    });
  } catch (const UserError& error) {
    first = error.what();
  }
  throw UserError("step " + std::to_string(steps_done) + ": " + what + " is not finite; " + first);
}

/// Loss, gradient norm and new state: an infinite gradient reaches a parameter, and a sum that overflows a moment, even when the loss is finite. A state
/// that was not finite before is the model's own affair.
void Trainer::Implementation::check_finite(const StepResult& result, size_t rank, const std::vector<Literal>& outputs, const NamedArrays& batch) {
  if (!std::isfinite(result.loss)) report_non_finite(batch, "the loss");
  if (const auto norm = result.metrics.find("gradient_norm"); norm != result.metrics.end() && !std::isfinite(norm->second))
    report_non_finite(batch, "the gradient norm");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Role& role = step.graph().outputs[i].role;
    if (role.kind == RoleKind::NewState && !is_finite(outputs[i]) && is_finite(state[rank].at(role.name)))
      report_non_finite(batch, "the new value of " + role.name);
  }
}

/// A scale that is too large is found within some steps; gradients that are not finite at any scale are the model's fault.
void Trainer::Implementation::check_skipped(const StepResult& result) {
  constexpr int64_t most = 64;
  if (result.skipped && skipped_in_a_row + 1 >= most)
    throw UserError("step " + std::to_string(steps_done) + ": " + std::to_string(most) + " steps in a row were skipped since their gradients are not finite, the last with a loss scale of " +
                    std::to_string(result.loss_scale.value_or(1)));
  skipped_in_a_row = result.skipped ? skipped_in_a_row + 1 : 0;
}

void Trainer::Implementation::commit(std::vector<std::vector<Literal>>& outputs) {
  const Graph& graph = step.graph();
  for (size_t rank = 0; rank < outputs.size(); ++rank)
    for (size_t i = 0; i < graph.outputs.size(); ++i)
      if (graph.outputs[i].role.kind == RoleKind::NewState) state[rank][graph.outputs[i].role.name] = std::move(outputs[rank][i]);
  ++steps_done;
}

NamedArrays Trainer::Implementation::gather_state(bool weights_only) const {
  NamedArrays arrays;
  std::set<std::string> optimizer_state;
  for (const GraphInput& input : step.graph().inputs)
    if (input.role.kind == RoleKind::OptimizerState) optimizer_state.insert(input.role.name);
  for (const auto& [state_name, type] : state_types) {
    if (weights_only && optimizer_state.count(state_name)) continue;
    if (!type.sharding || type.sharding->is_replicated()) {
      arrays.emplace_back(state_name, state[0].at(state_name));
      continue;
    }
    std::vector<Literal> parts(state.size());
    for (size_t rank = 0; rank < state.size(); ++rank)
      parts[static_cast<size_t>(device_of(mesh, binding.coordinates(static_cast<int>(rank))))] = state[rank].at(state_name);
    Sizes sizes;
    for (const Dim& dim : type.shape) sizes.push_back(dim.constant());
    arrays.emplace_back(state_name, join_parts(parts, *type.sharding, sizes, mesh, logical.symbols));
  }
  return arrays;
}

Trainer::Trainer(Module module, TrainerOptions options) : implementation_(std::make_unique<Implementation>(std::move(module), std::move(options))) {}
Trainer::~Trainer() = default;

StepResult Trainer::step(const NamedArrays& batch) {
  Implementation& self = *implementation_;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::vector<Literal>> outputs = self.run(self.step, batch, self.micro_batches);
  Quotients sums;
  sums.add(self.step.graph(), outputs[0]);
  StepResult result;
  result.loss_numerator = sums.whole().numerator;
  result.loss_denominator = sums.whole().denominator();
  result.loss = sums.loss();
  result.metrics = sums.metrics();
  result.step = self.steps_done;
  // Outputs that replace no state are whole on every rank.
  for (size_t i = 0; i < outputs[0].size(); ++i)
    if (const Role& role = self.step.graph().outputs[i].role; role.kind == RoleKind::Gradient) result.gradients[role.name] = outputs[0][i];
  if (const auto scale = result.metrics.extract("loss_scale")) result.loss_scale = scale.mapped();
  if (const auto skipped = result.metrics.extract("skipped")) result.skipped = skipped.mapped() != 0;
  self.check_skipped(result);
  for (size_t rank = 0; rank < outputs.size() && !result.skipped; ++rank) self.check_finite(result, rank, outputs[rank], batch);
  self.commit(outputs);
  result.elapsed_us = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
  return result;
}

EvalResult Trainer::eval_batch(const NamedArrays& batch) {
  Implementation& self = *implementation_;
  const std::vector<std::vector<Literal>> outputs = self.run(self.eval, batch, 1);
  Quotients sums;
  sums.add(self.eval.graph(), outputs[0]);
  EvalResult result = sums.result();
  for (size_t i = 0; i < outputs[0].size(); ++i) {
    const Role& role = self.eval.graph().outputs[i].role;
    if (role.kind == RoleKind::UserOutput) result.outputs[role.name] = outputs[0][i];
  }
  return result;
}

EvalResult Trainer::eval(const std::function<std::optional<NamedArrays>()>& next) {
  Implementation& self = *implementation_;
  const std::vector<bool> means = plain_means(self.eval.logical_graph());
  Quotients sums;
  int64_t batches = 0;
  while (const std::optional<NamedArrays> batch = next()) {
    if (++batches > 1 && !loss_adds_up(self.logical)) fail_evaluation_in_parts();
    const auto rows = static_cast<double>(rows_of(self.eval.logical_graph(), *batch));
    std::vector<double> weights;
    for (const bool mean : means) weights.push_back(mean ? rows : 1);
    sums.add(self.eval.graph(), self.run(self.eval, *batch, 1)[0], weights);
  }
  return sums.result();
}

bool loss_adds_up(const Module& module) {
  const auto& outputs = module.graph(module.entry("eval")).outputs;
  return std::none_of(outputs.begin(), outputs.end(),
                      [](const GraphOutput& output) { return output.role.kind == RoleKind::LossDenominator && output.role.name == whole_batch_denominator; });
}
void fail_evaluation_in_parts() {
  throw UserError(
      "the loss of the model is not found to be made of sums over the rows of the batch, each as it is or divided by their number or by another sum over the "
      "batch (a mask, weights), so that the losses of several batches have no mean; wanted such a loss, one batch for all samples (--eval-batch), or no evaluation (--eval-every -1)");
}

int64_t Trainer::steps_done() const { return implementation_->steps_done; }
int Trainer::rank_count() const { return implementation_->binding.rank_count(); }
int64_t Trainer::micro_batches() const { return implementation_->micro_batches; }
std::string Trainer::module_hash() const { return stepgraph::module_hash(implementation_->logical).text(); }
const Module& Trainer::logical() const { return implementation_->logical; }
const Module& Trainer::local_step() const { return implementation_->step.local; }
void Trainer::check_training_sizes(const SymbolValues& symbols) const { check_values_per_channel(implementation_->norms, symbols); }
int64_t Trainer::skipped_steps() const {
  const auto applied = implementation_->state[0].find(std::string(applied_steps_name));
  return applied == implementation_->state[0].end() ? 0 : implementation_->steps_done - applied->second.integer_at(0);
}
const PassLog& Trainer::compile_log() const { return implementation_->log; }
int64_t Trainer::peak_bytes() const { return *std::max_element(implementation_->peaks.begin(), implementation_->peaks.end()); }

int64_t Trainer::parameter_elements() const {
  int64_t count = 0;
  const Graph& graph = implementation_->step.logical_graph();
  for (const GraphInput& input : graph.inputs)
    if (input.role.kind == RoleKind::Parameter) count += element_count(graph.type(input.value).shape).constant();
  return count;
}

int64_t Trainer::parameter_tensors() const {
  const Graph& graph = implementation_->step.logical_graph();
  return std::count_if(graph.inputs.begin(), graph.inputs.end(), [](const GraphInput& input) { return input.role.kind == RoleKind::Parameter; });
}

NamedArrays Trainer::state() const { return implementation_->gather_state(false); }
NamedArrays Trainer::weights() const { return implementation_->gather_state(true); }

void Trainer::load_state(NamedArrays arrays, int64_t steps_done) {
  Implementation& self = *implementation_;
  std::string problems;
  std::map<std::string, Literal> loaded;
  for (auto& [state_name, value] : arrays) {
    const auto type = self.state_types.find(state_name);
    if (type == self.state_types.end()) {
      problems += "; unexpected " + state_name;
      continue;
    }
    if (loaded.count(state_name)) problems += "; two values for " + state_name;
    TensorType found{value.dtype(), Shape(value.sizes().begin(), value.sizes().end()), {}};
    if (!same_dtype_and_shape(found, type->second)) problems += "; " + state_name + " is " + text(found) + ", wanted " + text(TensorType{type->second.dtype, type->second.shape, {}});
    loaded[state_name] = std::move(value);
  }
  for (const auto& [state_name, type] : self.state_types)
    if (!loaded.count(state_name)) problems += "; missing " + state_name;
  if (!problems.empty()) throw UserError("the state does not fit the model" + problems);
  if (steps_done < 0) throw UserError("found " + std::to_string(steps_done) + " steps done, wanted at least 0");
  for (const auto& [state_name, value] : loaded) {
    const TensorType& type = self.state_types.at(state_name);
    for (int rank = 0; rank < self.binding.rank_count(); ++rank)
      self.state[static_cast<size_t>(rank)][state_name] =
          type.sharding ? local_part(value, *type.sharding, self.mesh, self.binding.coordinates(rank), self.logical.symbols) : value;
  }
  self.steps_done = steps_done;
}

}  // namespace stepgraph
