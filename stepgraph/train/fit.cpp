// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ir/solve_symbols.h"
#include "stepgraph/train/fit.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "stepgraph/base/nearest.h"
#include "stepgraph/train/batch.h"
#include "stepgraph/train/models/models.h"

namespace stepgraph {
namespace {

/// "batches of 8", "for batches of 1 to 12 rows"
std::string text(const RowLimits& limits) {
  if (limits.is_fixed()) return fmt::format("batches of {}", limits.minimum);
  const std::string multiple = limits.multiple_of > 1 ? fmt::format(", a multiple of {}", limits.multiple_of) : "";
  if (limits.maximum == INT64_MAX) return fmt::format("batches of at least {} rows{}", limits.minimum, multiple);
  return fmt::format("batches of {} to {} rows{}", limits.minimum, limits.maximum, multiple);
}

std::string made(const TrainJob& job) { return is_pt2(job.model.name) ? "the program was exported for " : "the model takes "; }
std::string way_out(const TrainJob& job, const RowLimits& limits, int64_t parts) {
  std::string advice;
  if (limits.is_fixed()) {
    advice = fmt::format(": use --batch {}", limits.minimum * parts);
    if (parts > 1) advice += fmt::format(" with {} micro-batches", parts);
  }
  if (is_pt2(job.model.name)) advice += std::string(advice.empty() ? ": export it" : ", or export it") + " with dynamic_shapes (docs/pt2.md)";
  return advice;
}

bool is_windows(const std::string& kind) { return kind == "text" || kind.starts_with("tokens"); }

/// What the user may turn so that the sizes of an input fit.
std::string size_hint(const TrainJob& job) {
  const std::string kind = data_kind(job.data);
  const bool zoo = !is_pt2(job.model.name) && !job.model.name.ends_with(".sg");
  if (kind == "images") return std::string("; --crop sets the size of images") + (zoo ? ", -o size=N and -o channels=3 the model's" : "");
  if (is_windows(kind)) return std::string("; --context sets the length of the data's windows") + (zoo ? ", -o context=N the model's" : "");
  if (kind == "csv") return "; --sample gives the shape of one input";
  return "";
}

/// A field for an input that the data does not name: of those that it can be the nearest name.
std::string bind_hint(const std::string& wanted, const TensorType& type, const std::vector<Field>& fields) {
  std::vector<std::string> fitting;
  for (const Field& field : fields) {
    bool fits = field.sizes.size() + 1 == type.rank() && is_floating(field.dtype) == is_floating(type.dtype) &&
                (field.dtype == DType::Bool) == (type.dtype == DType::Bool);
    for (size_t d = 0; fits && d < field.sizes.size(); ++d) fits = !type.shape[d + 1].is_constant() || type.shape[d + 1].constant() == field.sizes[d];
    if (fits) fitting.push_back(field.name);
  }
  if (fitting.empty()) return "";
  return "; give it a field of another name with --bind, e.g. --bind " + wanted + "=" + nearest_names(wanted, fitting, 1);
}

/// Ranges of the symbols that the batch gives sizes to; the rows' own are told in terms of the batch.
void check_symbols(const TrainJob& job, const Module& module, const SymbolValues& symbols, const std::string& input, const TensorType& type) {
  for (size_t d = 0; d < type.rank(); ++d) {
    const auto symbol = type.shape[d].symbol_name();
    const Symbol* known = symbol ? module.symbols.find(*symbol) : nullptr;
    if (!known) continue;
    const int64_t value = symbols.at(*symbol);
    std::string wanted;
    if (value < known->minimum || value > known->maximum)
      wanted = known->maximum == INT64_MAX ? fmt::format("at least {}", known->minimum) : fmt::format("{} to {}", known->minimum, known->maximum);
    else if (value % known->multiple_of != 0)
      wanted = fmt::format("a multiple of {}", known->multiple_of);
    else
      continue;
    const std::string turn = d == 0 ? "; --batch sets it" : is_windows(data_kind(job.data)) ? "; --context sets it" : "";
    throw UserError(fmt::format("batch input {}, dim {}: size '{}' is {}, wanted {}{}", input, d, *symbol, value, wanted, turn));
  }
}

/// A batch of `rows` samples, as the entry's graph takes it.
class BatchCheck {
 public:
  BatchCheck(const TrainJob& job, const Module& module, const Dataset& data, int64_t rows) : job_(job), module_(module), data_(data), rows_(rows) {}

  const SymbolValues& symbols() const { return symbols_; }
  /// Padding adds a field of the loader's own.
  void run(const Graph& graph, bool padded, const SizeGuards& guards) {
    for (const GraphInput& input : graph.inputs) {
      if (input.role.kind != RoleKind::Batch || (padded && input.role.name == "valid")) continue;
      check(input.role.name, graph.type(input.value));
    }
    guards.check([&](std::string_view input, int64_t dim) -> std::optional<int64_t> {
      const auto found = sizes_.find(input);
      if (found == sizes_.end() || dim < 0 || static_cast<size_t>(dim) >= found->second.size()) return std::nullopt;
      return found->second[static_cast<size_t>(dim)];
    });
  }

 private:
  void check(const std::string& input, const TensorType& type) {
    const auto& fields = data_.fields();
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& known) { return known.name == input; });
    if (field == fields.end()) {
      std::vector<std::string> known;
      for (const Field& other : fields) known.push_back(other.name);
      with_hint([&] { fail_no_array(input, known); }, bind_hint(input, type, fields));
    }
    check_batch_dtype(field->dtype, type.dtype, input);
    Sizes sizes{rows_};
    sizes.insert(sizes.end(), field->sizes.begin(), field->sizes.end());
    with_hint([&] { solve_sizes(sizes, type, input, symbols_); }, size_hint(job_));
    check_symbols(job_, module_, symbols_, input, type);
    sizes_[input] = std::move(sizes);
  }
  template <class Function>
  void with_hint(const Function& function, const std::string& hint) {
    try {
      function();
    } catch (const UserError& error) {
      throw error.retold(error.what() + hint);
    }
  }

  const TrainJob& job_;
  const Module& module_;
  const Dataset& data_;
  int64_t rows_;
  SymbolValues symbols_;
  std::map<std::string, Sizes, std::less<>> sizes_;
};

void check_norms(const Trainer& trainer, const BatchCheck& batch, const std::string& which) {
  try {
    trainer.check_training_sizes(batch.symbols());
  } catch (const UserError& error) {
    throw error.retold(error.what() + std::string("; in ") + which);
  }
}

void check_rows(const TrainJob& job, const RowLimits& limits, int64_t parts, int64_t samples) {
  // What is wrong with a range is told with the input's name by check_symbols.
  if (limits.is_fixed() && job.batch != limits.minimum * parts)
    throw UserError(fmt::format("batch: found {}, but {}{}{}", job.batch, made(job), text(limits), way_out(job, limits, parts)));
  const int64_t rest = samples % job.batch;
  if (job.last_batch == LastBatch::Short && rest != 0 && !limits.allows(rest))
    throw UserError(fmt::format("last_batch short: the last batch of an epoch would have {} rows, but {}{}: use --last-batch drop or pad", rest, made(job), text(limits)));
}

/// What a model of the zoo was told of labels or tokens: its option, and its value.
std::optional<std::pair<std::string, int64_t>> label_limit(const ModelChoice& model, const std::string& input) {
  const std::string option = input == "label" ? "classes" : input == "tokens" || input == "targets" ? "vocabulary" : "";
  for (const ModelInfo& info : models()) {
    if (info.name != model.name) continue;
    for (const ModelOption& known : info.options) {
      if (known.name != option) continue;
      const auto given = model.options.find(option);
      return std::pair(option, std::stoll(given == model.options.end() ? known.default_value : given->second));  // read by the model before
    }
  }
  return std::nullopt;
}

void check_labels(const TrainJob& job, const Dataset& data, bool is_training, std::vector<std::string>& notes) {
  constexpr int64_t ignored = -100;  // PyTorch's mark of a target that does not count
  for (size_t i = 0; i < data.fields().size(); ++i) {
    const std::string& input = data.fields()[i].name;
    const auto limit = label_limit(job.model, input);
    const auto range = limit ? data.range(i) : std::nullopt;
    if (!range) continue;
    const auto& [option, count] = *limit;
    const bool negative = range->minimum < 0 && !(input != "tokens" && range->minimum == ignored);
    if (negative || range->maximum >= count) {
      const std::string room = negative ? "" : fmt::format("; -o {}={} makes room", option, range->maximum + 1);
      throw UserError(fmt::format("batch input {}: the data has the value {}, the model takes 0 to {} ({} {}){}", input, negative ? range->minimum : range->maximum,
                                  count - 1, option, count, room));
    }
    if (is_training && option == "classes" && data_kind(job.data) == "images" && range->maximum + 1 < count)
      notes.push_back(fmt::format("the images are of {} classes, the model has {}; -o classes={} leaves out the others", range->maximum + 1, count, range->maximum + 1));
  }
}

}  // namespace

void check_bindings(const std::map<std::string, std::string>& bind, const Module& module) {
  std::string known;
  std::set<std::string> names;
  const Graph& graph = module.graph(module.entry("eval"));
  for (const GraphInput& input : graph.inputs)
    if (input.role.kind == RoleKind::Batch && names.insert(input.role.name).second) known += (known.empty() ? "" : ", ") + input.role.name;
  for (const auto& [input, field] : bind)
    if (!names.contains(input)) throw UserError("bind: the model has no input '" + input + "'; it has " + (known.empty() ? "none" : known));
}

RowLimits row_limits(const Module& module) {
  RowLimits limits;
  std::set<int64_t> constants;
  bool all_constant = true;
  const Graph& graph = module.graph(module.entry("eval"));
  for (const GraphInput& input : graph.inputs) {
    const TensorType& type = graph.type(input.value);
    if (input.role.kind != RoleKind::Batch || type.rank() == 0) continue;
    const Dim& rows = type.shape[0];
    if (rows.is_constant()) constants.insert(rows.constant());
    all_constant &= rows.is_constant();
    const std::optional<LinearDim> linear = as_linear(rows);
    const Symbol* known = linear && linear->offset == 0 && linear->slope > 0 ? module.symbols.find(linear->symbol) : nullptr;
    if (!known) continue;
    const auto scaled = [&](int64_t bound) {
      int64_t result = 0;
      return __builtin_mul_overflow(bound, linear->slope, &result) ? INT64_MAX : result;
    };
    limits.minimum = std::max(limits.minimum, scaled(known->minimum));
    limits.maximum = std::min(limits.maximum, scaled(known->maximum));
    limits.multiple_of = std::lcm(limits.multiple_of, scaled(std::max<int64_t>(1, known->multiple_of)));
  }
  // An input of one constant row among others of any number is at fault itself.
  if (all_constant && constants.size() == 1) limits.minimum = limits.maximum = std::max<int64_t>(1, *constants.begin());
  return limits;
}

EvaluationPlan plan_evaluation(const Module& module, int64_t test_samples, int64_t batch, bool asked) {
  const RowLimits limits = row_limits(module);
  if (!asked && !limits.allows(batch)) {
    batch = std::clamp(batch, limits.minimum, limits.maximum);
    batch -= batch % limits.multiple_of;
  }
  if (batch < 1 || (!limits.allows(batch) && batch <= test_samples))
    throw UserError(fmt::format("eval_batch: found {}, but the model takes {}", batch, text(limits)));
  EvaluationPlan plan{batch, test_samples, ""};
  const int64_t rest = test_samples % batch;
  if (rest == 0 || limits.allows(rest)) return plan;
  plan.samples -= rest;
  if (plan.samples == 0)
    throw UserError(fmt::format("the test set has {} samples, but the model takes {}; have more (--held-out, --test-data), or --eval-every -1 for no evaluation", test_samples, text(limits)));
  plan.note = fmt::format("evaluations leave out the last {} of {} test samples: the model takes {}", rest, test_samples, text(limits));
  return plan;
}

std::vector<std::string> check_data(const TrainJob& job, const Trainer& trainer, const SizeGuards& guards, const Splits& data) {
  std::vector<std::string> notes;
  const Module& module = trainer.logical();
  const int64_t parts = trainer.micro_batches();
  check_bindings(job.data.bind, module);
  check_rows(job, row_limits(module), parts, data.train->size());
  // The eval entry's inputs are those of one micro-batch.
  const Graph& graph = module.graph(module.entry("eval"));
  BatchCheck batch(job, module, *data.train, job.batch / parts);
  batch.run(graph, job.last_batch == LastBatch::Pad, guards);
  check_norms(
      trainer, batch,
      parts > 1 ? fmt::format("--batch {} with {} micro-batches, {} row each", job.batch, parts, job.batch / parts) : fmt::format("--batch {}", job.batch));
  const int64_t rest = data.train->size() % job.batch;
  if (job.last_batch == LastBatch::Short && rest != 0) {
    BatchCheck last(job, module, *data.train, rest);
    last.run(graph, false, guards);
    check_norms(trainer, last, fmt::format("the last batch of an epoch, of {} row{}: use --last-batch drop or pad", rest, rest == 1 ? "" : "s"));
  }
  check_labels(job, *data.train, true, notes);
  if (job.eval_every >= 0 && data.test->size() > 0) {
    const EvaluationPlan plan = plan_evaluation(module, data.test->size(), job.eval_batch > 0 ? job.eval_batch : job.batch, job.eval_batch > 0);
    BatchCheck(job, module, *data.test, std::min(plan.batch, plan.samples)).run(graph, false, guards);
    check_labels(job, *data.test, false, notes);
    if (plan.samples > plan.batch && !loss_adds_up(module)) fail_evaluation_in_parts();
    if (!plan.note.empty()) notes.push_back(plan.note);
  }
  return notes;
}

}  // namespace stepgraph
