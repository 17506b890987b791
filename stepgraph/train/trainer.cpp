// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/comm/parts.h"
#include "stepgraph/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "stepgraph/backend/shapes_report.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/step/batch_norm_uses.h"
#include "stepgraph/compile/step/loss_scale.h"
#include "stepgraph/run/comm/threads.h"
#include "stepgraph/train/batch.h"
#include "stepgraph/train/cached_module.h"
#include "stepgraph/train/rank_team.h"

namespace stepgraph {
namespace {

/// A global batch as an entry takes it, and what its sizes tell.
struct FittedBatch {
  std::map<std::string, Literal, std::less<>> arrays;
  SymbolValues symbols;
};

/// The metrics, and the terms of the loss, that are quotients whose denominator is always 1. The numerator then is a mean of its own batch, and only the number
/// of rows says how much it counts among others.
struct PlainMeans {
  std::set<std::string, std::less<>> losses, metrics;
};

double denominator(const LossQuotient& term) { return std::max(term.sum, term.least) + term.constant; }
bool is_empty(const LossQuotient& term) { return denominator(term) == 0 && term.numerator == 0; }
double quotient(const LossQuotient& term) { return is_empty(term) ? 0 : denominator(term) == 0 ? std::nan("") : term.numerator / denominator(term); }

struct Quotients {
  std::map<std::string, LossQuotient, std::less<>> terms;  // of the loss
  std::map<std::string, std::pair<double, double>> quotients;
  std::map<std::string, double> numbers;
  /// A metric of which nothing was counted has no value.
  std::map<std::string, double> metrics() const {
    std::map<std::string, double> found = numbers;
    for (const auto& [metric, sums] : quotients)
      if (sums.second != 0) found[metric] = sums.first / sums.second;
    return found;
  }
  EvalResult result() const {
    const bool nothing = std::all_of(terms.begin(), terms.end(), [](const auto& term) { return is_empty(term.second); });
    return {nothing ? std::nullopt : std::optional(loss()), metrics(), {}};
  }
  double loss() const {
    double total = 0;
    for (const auto& [name, term] : terms) total += quotient(term);
    return total;
  }
  void add(const EntryResults& results, const PlainMeans& means = {}, double rows = 1) {
    for (const auto& [name, term] : results.loss) {
      const double weight = means.losses.contains(name) ? rows : 1;
      LossQuotient& whole = terms[name];
      whole = {whole.numerator + weight * term.numerator, whole.sum + weight * term.sum, term.least, term.constant};
    }
    numbers = results.numbers;
    for (const auto& [metric, parts] : results.quotients) {
      const double weight = means.metrics.contains(metric) ? rows : 1;
      quotients[metric].first += weight * parts.first;
      quotients[metric].second += weight * parts.second;
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

PlainMeans plain_means(const Graph& graph) {
  PlainMeans means;
  for (const GraphOutput& output : graph.outputs) {
    if (!graph.type(output.value).shape.empty() || !is_constant_one(graph, output.value)) continue;
    if (output.role.kind == RoleKind::LossDenominator || output.role.kind == RoleKind::LossDenominatorWhole) means.losses.emplace(loss_term(output.role));
    if (output.role.kind == RoleKind::MetricDenominator) means.metrics.insert(output.role.name);
  }
  return means;
}

int64_t rows_of(const Graph& graph, const NamedArrays& batch) {
  for (const GraphInput& input : graph.inputs)
    if (const Literal* array = input.role.kind == RoleKind::Batch ? find_array(batch, input.role.name) : nullptr; array && array->rank() > 0) return array->sizes()[0];
  return 1;
}

}  // namespace

struct Trainer::Implementation {
  Implementation(Module module, TrainerOptions trainer_options);
  void start_state();
  const Graph& entry_graph(std::string_view entry) const { return logical.graph(logical.entry(entry)); }
  /// UserError for a batch that does not fit the entry.
  FittedBatch fit(std::string_view entry, const NamedArrays& batch, int64_t micro) const;
  EntryInputs inputs_of(std::string_view entry, int rank, const FittedBatch& batch) const;
  /// Results by rank.
  std::vector<EntryResults> run(std::string_view entry, const NamedArrays& batch, int64_t micro);
  void check_skipped(const StepResult& result);
  void check_finite(const StepResult& result, const std::vector<EntryResults>& results, const NamedArrays& batch);
  [[noreturn]] void report_non_finite(const NamedArrays& batch, const std::string& what);
  Executor& executor(int rank) { return *executors[static_cast<size_t>(rank)]; }
  std::optional<std::string> commit();
  void check_state_is_whole() const;
  void write_state(const StateInfo& state, const Literal& value);
  NamedArrays gather_state(bool weights_only) const;
  std::map<std::string, Literal> fit_state(NamedArrays arrays, std::string& problems) const;

  Module logical, local;  // entries init, step, eval
  TrainerOptions options;
  Mesh mesh;
  MeshBinding binding;
  PassLog log;
  int64_t micro_batches = 1, steps_done = 0;
  int64_t skipped_in_a_row = 0;
  std::string spoilt;                                // why this state must be neither trained nor saved, if so
  std::vector<BatchNormUse> norms;                   // of the step
  std::vector<std::unique_ptr<Executor>> executors;  // by rank
  std::unique_ptr<RankTeam> team;
};

Mesh mesh_of_threads(const std::string& text) {
  Mesh mesh = parse_mesh(text);
  if (mesh.device_count() > most_thread_ranks)
    throw UserError("mesh " + text + ": found " + std::to_string(mesh.device_count()) + " devices, ranks as threads of one process are at most " + std::to_string(most_thread_ranks));
  return mesh;
}

namespace {

/// The number that all batch inputs of the step have as a leading dim; 1 if none has one.
int64_t micro_batches_of(const Graph& step) {
  int64_t micro_batches = 1;
  for (const GraphInput& input : step.inputs) {
    if (input.role.kind != RoleKind::Batch || input.role.batch_dim == 0) continue;
    const Dim& count = step.type(input.value).shape[0];
    if (input.role.batch_dim != 1 || !count.is_constant() || count.constant() < 1 || (micro_batches > 1 && count.constant() != micro_batches))
      throw UserError("entry step: batch input " + input.role.name + " has " + count.text() + " micro-batches, wanted one number for all inputs");
    micro_batches = count.constant();
  }
  return micro_batches;
}

/// With the rows of the largest batch as the largest value of what counts them.
BackendOptions sized(const Module& logical, const TrainerOptions& options) {
  BackendOptions backend = options.backend;
  if (options.largest_batch <= 0) return backend;
  const int64_t micro_batches = micro_batches_of(logical.graph(logical.entry("step")));
  for (const std::string_view entry : {"step", "eval"}) {
    const int64_t rows = entry == "step" ? (options.largest_batch + micro_batches - 1) / micro_batches : options.largest_batch;
    const Graph& graph = logical.graph(logical.entry(entry));
    for (const GraphInput& input : graph.inputs) {
      if (input.role.kind != RoleKind::Batch) continue;
      const auto symbol = graph.type(input.value).shape[static_cast<size_t>(input.role.batch_dim)].symbol_name();
      if (symbol) backend.largest[*symbol] = std::max(backend.largest[*symbol], rows);
    }
  }
  return backend;
}

}  // namespace

TrainerProgram trainer_program(const Module& module, const TrainerOptions& options, PassLog* log) {
  Module trained = module;
  trained.entries = {{"init", module.entry("init")}, {"step", module.entry("step")}, {"eval", module.entry("eval")}};
  CompileOptions compile_options;
  compile_options.mesh = mesh_of_threads(options.mesh);
  compile_options.sharding.inputs = options.shardings;
  compile_options.skip = options.skip;
  return {compile_cached(prune_graphs(std::move(trained)), compile_options, options.backend.cache, log), sized(module, options)};
}

Trainer::Implementation::Implementation(Module module, TrainerOptions trainer_options)
    : logical(std::move(module)),
      options(std::move(trainer_options)),
      mesh(mesh_of_threads(options.mesh)),
      binding(bind_mesh(mesh)),
      log(std::move(options.log)) {
  micro_batches = micro_batches_of(entry_graph("step"));
  check(options.backend.sizes, logical.symbols);
  norms = batch_norm_uses(logical, logical.entry("step"));
  log.clock_us = [] {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  TrainerProgram program = trainer_program(logical, options, &log);
  local = std::move(program.local);
  if (!options.executor) options.executor = make_executors(program.backend, &log);
  for (int rank = 0; rank < binding.rank_count(); ++rank) executors.push_back(options.executor(local, binding));
  team = std::make_unique<RankTeam>(binding.rank_count(), [this](int rank, Communicator& group) {
    executor(rank).connect(group);
    return std::make_unique<RankWorker>();
  });
  start_state();
}

void Trainer::Implementation::start_state() {
  const Graph& init = entry_graph("init");
  for (const GraphInput& input : init.inputs)
    if (input.role.kind != RoleKind::Seed) throw UserError("entry init has an input of role " + std::string(name(input.role.kind)) + ", wanted seed only");
  std::set<std::string> given;
  for (const GraphOutput& output : init.outputs)
    if (output.role.kind == RoleKind::NewState) given.insert(output.role.name);
  for (const StateInfo& state : local.states)
    if (!given.count(state.name)) throw UserError("entry init gives no value for state " + state.name + " of entry step or eval");
  EntryInputs inputs;
  inputs.seed = static_cast<int64_t>(options.seed);
  team->run([&](int rank, RankWorker&) {
    executor(rank).run("init", inputs);
    executor(rank).commit();
  });
}

FittedBatch Trainer::Implementation::fit(std::string_view entry, const NamedArrays& batch, int64_t micro) const {
  FittedBatch fitted;
  const Graph& whole = entry_graph(entry);
  for (const GraphInput& input : whole.inputs) {
    if (input.role.kind != RoleKind::Batch) continue;
    const TensorType& type = whole.type(input.value);
    Literal array = fit_batch(batch_array(batch, input.role.name), type, input.role.name, micro);
    solve_sizes(array.sizes(), type, input.role.name, fitted.symbols);
    fitted.arrays.emplace(input.role.name, std::move(array));
  }
  return fitted;
}

EntryInputs Trainer::Implementation::inputs_of(std::string_view entry, int rank, const FittedBatch& batch) const {
  EntryInputs inputs;
  inputs.seed = static_cast<int64_t>(options.seed);
  inputs.step = steps_done;
  inputs.sizes = batch.symbols;
  const Graph& graph = local.graph(local.entry(entry));
  for (const GraphInput& input : graph.inputs) {
    if (input.role.kind != RoleKind::Batch) continue;
    const Literal& value = batch.arrays.at(input.role.name);
    const auto& sharding = graph.type(input.value).sharding;
    inputs.batch.emplace(input.role.name, sharding ? local_part(value, *sharding, mesh, binding.coordinates(rank), logical.symbols) : value);
  }
  return inputs;
}

std::vector<EntryResults> Trainer::Implementation::run(std::string_view entry, const NamedArrays& batch, int64_t micro) {
  const FittedBatch fitted = fit(entry, batch, micro);
  options.guards.check([&](std::string_view input, int64_t dim) -> std::optional<int64_t> {
    const auto found = fitted.arrays.find(input);
    const size_t leading = micro > 1 ? 1 : 0;  // micro-batches
    if (found == fitted.arrays.end() || dim < 0 || static_cast<size_t>(dim) + leading >= found->second.rank()) return std::nullopt;
    return found->second.sizes()[static_cast<size_t>(dim) + leading];
  });
  check_sizes(options.backend.sizes, fitted.symbols);
  if (entry == "step") check_values_per_channel(norms, fitted.symbols);
  std::vector<EntryResults> results(static_cast<size_t>(binding.rank_count()));
  try {
    team->run([&](int rank, RankWorker&) { results[static_cast<size_t>(rank)] = executor(rank).run(entry, inputs_of(entry, rank, fitted)); });
  } catch (const UserError& error) {
    if (!error.bad_index()) throw;
    throw error.retold(error.what() + index_hint(*error.bad_index(), entry_graph(entry), batch));
  }
  return results;
}

void Trainer::Implementation::report_non_finite(const NamedArrays& batch, const std::string& what) {
  std::string first = "no single operator made it: its inputs (parameters or batch) already hold values that are not finite";
  try {
    const FittedBatch fitted = fit("step", batch, micro_batches);
    team->run([&](int rank, RankWorker&) { executor(rank).find_non_finite("step", inputs_of("step", rank, fitted)); });
  } catch (const UserError& error) {
    first = error.what();
  }
  throw UserError("step " + std::to_string(steps_done) + ": " + what + " is not finite; " + first);
}

/// Loss, gradient norm and new state: an infinite gradient reaches a parameter, and a sum that overflows a moment, even when the loss is finite. A state
/// that was not finite before is the model's own affair.
void Trainer::Implementation::check_finite(const StepResult& result, const std::vector<EntryResults>& results, const NamedArrays& batch) {
  if (!std::isfinite(result.loss)) report_non_finite(batch, "the loss");
  if (result.gradient_norm && !std::isfinite(*result.gradient_norm)) report_non_finite(batch, "the gradient norm");
  for (const EntryResults& of_rank : results)
    if (of_rank.non_finite_state) report_non_finite(batch, "the new value of " + *of_rank.non_finite_state);
}

/// A scale that is too large is found within some steps; gradients that are not finite at any scale are the model's fault.
void Trainer::Implementation::check_skipped(const StepResult& result) {
  constexpr int64_t most = 64;
  if (result.skipped && skipped_in_a_row + 1 >= most)
    throw UserError("step " + std::to_string(steps_done) + ": " + std::to_string(most) + " steps in a row were skipped since their gradients are not finite, the last with a loss scale of " +
                    std::to_string(result.loss_scale.value_or(1)));
  skipped_in_a_row = result.skipped ? skipped_in_a_row + 1 : 0;
}

void Trainer::Implementation::write_state(const StateInfo& state, const Literal& value) {
  for (int rank = 0; rank < binding.rank_count(); ++rank)
    executor(rank).write_state(state.name,
                               state.type.sharding ? local_part(value, *state.type.sharding, mesh, binding.coordinates(rank), logical.symbols) : value);
}

/// Executors that write states in place know of a value that is not finite only now, and an error in here leaves half of them new: the state before is lost.
std::optional<std::string> Trainer::Implementation::commit() {
  std::vector<std::optional<std::string>> names(executors.size());
  spoilt = "step " + std::to_string(steps_done) + " ended while it wrote the state";
  if (executors.size() == 1)
    names[0] = executors[0]->commit();
  else
    team->run([&](int rank, RankWorker&) { names[static_cast<size_t>(rank)] = executor(rank).commit(); });
  spoilt.clear();
  const auto found = std::find_if(names.begin(), names.end(), [](const auto& state) { return state.has_value(); });
  if (found == names.end()) return std::nullopt;
  spoilt = "the value of " + **found + " is not finite since step " + std::to_string(steps_done);
  return *found;
}

void Trainer::Implementation::check_state_is_whole() const {
  if (!spoilt.empty()) throw UserError(spoilt + "; wanted an earlier state, as a checkpoint has");
}

NamedArrays Trainer::Implementation::gather_state(bool weights_only) const {
  check_state_is_whole();
  NamedArrays arrays;
  for (const StateInfo& state : local.states) {
    if (weights_only && state.role == RoleKind::OptimizerState) continue;
    const auto& sharding = state.type.sharding;
    if (!sharding || sharding->is_replicated()) {
      arrays.emplace_back(state.name, executors[0]->read_state(state.name));
      continue;
    }
    std::vector<Literal> parts(executors.size());
    for (size_t rank = 0; rank < executors.size(); ++rank)
      parts[static_cast<size_t>(device_of(mesh, binding.coordinates(static_cast<int>(rank))))] = executors[rank]->read_state(state.name);
    Sizes sizes;
    for (const Dim& dim : logical.states.find(state.name)->type.shape) sizes.push_back(dim.constant());
    arrays.emplace_back(state.name, join_parts(parts, *sharding, sizes, mesh, logical.symbols));
  }
  std::sort(arrays.begin(), arrays.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return arrays;
}

Trainer::Trainer(Module module, TrainerOptions options) : implementation_(std::make_unique<Implementation>(std::move(module), std::move(options))) {}
Trainer::~Trainer() = default;

StepResult Trainer::step(const NamedArrays& batch) {
  Implementation& self = *implementation_;
  self.check_state_is_whole();
  const auto start = std::chrono::steady_clock::now();
  std::vector<EntryResults> results = self.run("step", batch, self.micro_batches);
  Quotients sums;
  sums.add(results[0]);
  StepResult result;
  const LossQuotient whole = sums.terms.size() == 1 ? sums.terms.begin()->second : LossQuotient{sums.loss(), 1};
  result.loss_numerator = whole.numerator;
  result.loss_denominator = denominator(whole);
  result.loss = sums.loss();
  result.metrics = sums.metrics();
  result.step = self.steps_done;
  result.gradients = std::move(results[0].gradients);  // outputs that replace no state are whole on every rank
  result.learning_rate = results[0].learning_rate;
  result.gradient_norm = results[0].gradient_norm;
  result.loss_scale = results[0].loss_scale;
  result.skipped = results[0].skipped;
  for (size_t rank = 0; rank < results.size(); ++rank)
    for (auto& [name, value] : results[rank].taps) result.taps.emplace(results.size() == 1 ? name : name + "@" + std::to_string(rank), std::move(value));
  self.check_skipped(result);
  if (!result.skipped) self.check_finite(result, results, batch);
  if (const std::optional<std::string> state = self.commit()) self.report_non_finite(batch, "the new value of " + *state);
  ++self.steps_done;
  result.elapsed_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  return result;
}

EvalResult Trainer::eval_batch(const NamedArrays& batch) {
  std::vector<EntryResults> results = implementation_->run("eval", batch, 1);
  Quotients sums;
  sums.add(results[0]);
  EvalResult result = sums.result();
  result.outputs = std::move(results[0].outputs);
  return result;
}

EvalResult Trainer::eval(const std::function<std::optional<NamedArrays>()>& next) {
  Implementation& self = *implementation_;
  const Graph& graph = self.entry_graph("eval");
  const PlainMeans means = plain_means(graph);
  Quotients sums;
  int64_t batches = 0;
  while (const std::optional<NamedArrays> batch = next()) {
    if (++batches > 1 && !loss_adds_up(self.logical)) fail_evaluation_in_parts();
    sums.add(self.run("eval", *batch, 1)[0], means, static_cast<double>(rows_of(graph, *batch)));
  }
  return sums.result();
}

bool loss_adds_up(const Module& module) {
  const auto& outputs = module.graph(module.entry("eval")).outputs;
  return std::none_of(outputs.begin(), outputs.end(),
                      [](const GraphOutput& output) { return output.role.kind == RoleKind::LossDenominatorWhole; });
}
void fail_evaluation_in_parts() {
  throw UserError(
      "the loss of the model is not found to be made of sums over the rows of the batch, each as it is or divided by their number or by another sum over the "
      "batch (a mask, weights), so that the losses of several batches have no mean; wanted such a loss, one batch for all samples (--eval-batch), or no "
      "evaluation (--eval-every -1)");
}

int64_t Trainer::steps_done() const { return implementation_->steps_done; }
int Trainer::rank_count() const { return implementation_->binding.rank_count(); }
int64_t Trainer::micro_batches() const { return implementation_->micro_batches; }
std::string Trainer::module_hash() const { return stepgraph::module_hash(implementation_->logical).text(); }
const Module& Trainer::logical() const { return implementation_->logical; }
const Module& Trainer::local() const { return implementation_->local; }
void Trainer::check_training_sizes(const SymbolValues& symbols) const { check_values_per_channel(implementation_->norms, symbols); }
int64_t Trainer::skipped_steps() const {
  const Implementation& self = *implementation_;
  if (!self.local.states.find(applied_steps_name)) return 0;
  return self.steps_done - self.executors[0]->read_state(applied_steps_name).integer_at(0);
}
ShapesReport Trainer::sizes() const { return describe_sizes(implementation_->local, sized(implementation_->logical, implementation_->options)); }
const PassLog& Trainer::compile_log() const { return implementation_->log; }
int64_t Trainer::peak_bytes() const {
  int64_t most = 0;
  for (const auto& executor : implementation_->executors) most = std::max(most, executor->peak_bytes());
  return most;
}

int64_t Trainer::parameter_elements() const {
  int64_t count = 0;
  for (const StateInfo& state : implementation_->logical.states)
    if (state.role == RoleKind::Parameter) count += element_count(state.type.shape).constant();
  return count;
}

int64_t Trainer::parameter_tensors() const {
  const StateTable& states = implementation_->logical.states;
  return std::count_if(states.begin(), states.end(), [](const StateInfo& state) { return state.role == RoleKind::Parameter; });
}

NamedArrays Trainer::state() const { return implementation_->gather_state(false); }
NamedArrays Trainer::weights() const { return implementation_->gather_state(true); }

/// By name; what does not fit is told at once by `problems`.
std::map<std::string, Literal> Trainer::Implementation::fit_state(NamedArrays arrays, std::string& problems) const {
  std::map<std::string, Literal> loaded;
  for (auto& [state_name, value] : arrays) {
    const StateInfo* state = local.states.find(state_name) ? logical.states.find(state_name) : nullptr;
    if (!state) {
      problems += "; unexpected " + state_name;
      continue;
    }
    if (loaded.count(state_name)) problems += "; two values for " + state_name;
    TensorType found{value.dtype(), Shape(value.sizes().begin(), value.sizes().end()), {}};
    if (!same_dtype_and_shape(found, state->type)) problems += "; " + state_name + " is " + text(found) + ", wanted " + text(state->type);
    loaded[state_name] = std::move(value);
  }
  return loaded;
}

void Trainer::load_state(NamedArrays arrays, int64_t steps_done) {
  Implementation& self = *implementation_;
  std::string problems;
  const std::map<std::string, Literal> loaded = self.fit_state(std::move(arrays), problems);
  for (const StateInfo& state : self.local.states)
    if (!loaded.count(state.name)) problems += "; missing " + state.name;
  if (!problems.empty()) throw UserError("the state does not fit the model" + problems);
  if (steps_done < 0) throw UserError("found " + std::to_string(steps_done) + " steps done, wanted at least 0");
  for (const StateInfo& state : self.local.states) self.write_state(state, loaded.at(state.name));
  self.steps_done = steps_done;
  self.spoilt.clear();
}

void Trainer::replace_state(NamedArrays some, int64_t steps_done) {
  Implementation& self = *implementation_;
  self.check_state_is_whole();
  std::string problems;
  const std::map<std::string, Literal> given = self.fit_state(std::move(some), problems);
  if (!problems.empty()) throw UserError("the state does not fit the model" + problems);
  if (steps_done < 0) throw UserError("found " + std::to_string(steps_done) + " steps done, wanted at least 0");
  for (const auto& [state_name, value] : given) self.write_state(*self.local.states.find(state_name), value);
  self.steps_done = steps_done;
}

}  // namespace stepgraph
