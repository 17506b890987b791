// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "stepgraph/compile/ir/solve_symbols.h"
#include "stepgraph/compile/step/train_step.h"
#include "stepgraph/train/imported_model.h"
#include "stepgraph/train/trainer.h"

namespace stepgraph {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double telling = 0.05;  ///< a larger relative tolerance lets a forgotten term of the update pass

struct Sums {
  double squares = 0, limit = 0;
  int64_t count = 0;
};

/// One comparison at a time; sums up what belongs to a group.
class Comparison {
 public:
  Comparison(const RecordedRun& run, CheckReport& report) : run_(run), report_(report) {}

  /// Elements of `noise` that are not 0 are passed over.
  void compare(const std::string& group, const std::string& tensor, const Literal* found, const Literal& wanted, const Literal* noise = nullptr) {
    CheckRow row;
    row.tensor = tensor;
    const Tolerance tolerance = tolerance_of(group);
    if (!found || found->count() != wanted.count() || (found->sizes() != wanted.sizes() && wanted.count() != 1)) {
      row.problem = found ? "found " + type_text(found->dtype(), found->sizes()) + ", wanted " + type_text(wanted.dtype(), wanted.sizes()) : "missing";
      row.ratio = infinity;
      report_.rows.push_back(row);
      return;
    }
    double largest = 0, squares = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < wanted.count(); ++i) {
      const double a = found->at(i), b = wanted.at(i);
      if (std::isfinite(b)) largest = std::max(largest, std::fabs(b));
      if (noise && noise->at(i) != 0) continue;
      const bool same = a == b || (std::isnan(a) && std::isnan(b));
      const double difference = same ? 0 : std::isfinite(a) && std::isfinite(b) ? std::fabs(a - b) : infinity;
      row.max_abs = std::max(row.max_abs, difference);
      squares += difference * difference;
      ++count;
    }
    row.max_rel = largest > 0 ? row.max_abs / largest : (row.max_abs > 0 ? infinity : 0);
    row.rms = count > 0 ? std::sqrt(squares / static_cast<double>(count)) : 0;
    row.allowed = is_floating(wanted.dtype()) ? std::max(tolerance.absolute, tolerance.relative * largest) : 0;
    row.ratio = row.max_abs == 0 ? 0 : row.allowed > 0 ? row.max_abs / row.allowed : infinity;
    report_.rows.push_back(row);
    Sums& sums = groups_[group];
    sums.squares += squares;
    sums.count += count;
  }

  void finish_groups() {
    for (const auto& [group, sums] : groups_) {
      const Tolerance tolerance = tolerance_of(group);
      if (tolerance.relative > telling)
        report_.warnings.push_back(
            fmt::format("the manifest allows {} to differ by {:.2g} of a tensor's largest value: this says little", group, tolerance.relative));
      if (!tolerance.rms || sums.count == 0) continue;
      CheckRow row;
      row.of_group = true;
      row.tensor = group + fmt::format(" (rms of all {} elements)", sums.count);
      row.rms = std::sqrt(sums.squares / static_cast<double>(sums.count));
      row.allowed = *tolerance.rms;
      row.ratio = row.rms == 0 ? 0 : row.rms / *tolerance.rms;
      report_.rows.push_back(row);
    }
    std::stable_sort(report_.rows.begin(), report_.rows.end(), [](const CheckRow& a, const CheckRow& b) { return a.ratio > b.ratio; });
  }

 private:
  Tolerance tolerance_of(const std::string& group) const {
    const auto found = run_.tolerances.find(group);
    return found == run_.tolerances.end() ? Tolerance{} : found->second;
  }
  const RecordedRun& run_;
  CheckReport& report_;
  std::map<std::string, Sums> groups_;
};

bool is_zero(const Literal& value) {
  for (int64_t i = 0; i < value.count(); ++i)
    if (value.at(i) != 0) return false;
  return true;
}

Literal norm_of(const Literal& value) {
  double squares = 0;
  for (int64_t i = 0; i < value.count(); ++i) squares += value.at(i) * value.at(i);
  return Literal::scalar(DType::F64, std::sqrt(squares));
}

/// What was recorded, by the part of the name before the FQN.
std::map<std::string, Literal> with_prefix(const NamedArrays& arrays, const std::string& prefix) {
  std::map<std::string, Literal> found;
  for (const auto& [array_name, value] : arrays)
    if (array_name.starts_with(prefix)) found.emplace(array_name.substr(prefix.size()), value);
  return found;
}

NamedArrays batch_of(const NamedArrays& recorded, const std::string& prefix) {
  NamedArrays batch;
  for (const auto& [input, value] : with_prefix(recorded, prefix)) batch.emplace_back(input, value);
  return batch;
}

class Check {
 public:
  Check(const std::string& folder, const CheckOptions& options) : options_(options), run_(read_recorded_run(folder)), comparison_(run_, report_) {
    report_.name = run_.name;
    report_.program = options.program.empty() ? run_.exported : options.program;
    report_.mesh = options.mesh;
    data_path_ = folder + "/" + run_.data;
    recorded_ = read_safetensors(data_path_).arrays;
    Imported imported = import_pt2(folder + "/" + report_.program, {});
    report_.warnings = imported.warnings;
    for (const auto& [first, others] : imported.tied)
      for (const std::string& other : others) our_name_[other] = first;
    CompileOptions compile_options;
    compile_options.training = TrainingOptions{run_.optimizer, {}};
    compile_options.training->step.gradients_as_outputs = true;
    compile_options.skip = options.skip;
    compile_options.stop_at = "optimizer";
    Module module = compile(std::move(imported.forward), compile_options);
    TrainerOptions trainer_options;
    trainer_options.mesh = options.mesh;
    trainer_options.backend = options.backend;
    trainer_options.skip = options.skip;
    trainer_options.guards = std::move(imported.guards);
    trainer_ = std::make_unique<Trainer>(std::move(module), trainer_options);
    start_ = trainer_->state();
    put_weights(imported.weights);
  }

  BisectReport bisect() {
    const Module& local = trainer_->local();
    const Graph& graph = local.graph(local.entry("step"));
    const NamedArrays batch = batch_of(recorded_, "input.");
    EntryArguments arguments;
    for (const GraphInput& input : graph.inputs) {
      const Role& role = input.role;
      const Literal* array = is_state(role.kind) ? find_array(start_, role.name) : role.kind == RoleKind::Batch ? find_array(batch, role.name) : nullptr;
      if (array == nullptr && role.kind != RoleKind::Seed && role.kind != RoleKind::Step) throw UserError(data_path_ + ": has no input." + role.name);
      arguments.inputs.push_back(array == nullptr ? Literal::integer(DType::I64, 0) : array->converted(graph.type(input.value).dtype));
    }
    arguments.symbols = solve_symbols(local, graph, arguments.inputs);
    return find_first_difference(local, "step", arguments, {.backend = options_.backend, .tolerance = {}});
  }

  CheckReport finish() {
    const bool gradients = run_.core_keeps_gradients || report_.program != run_.core;
    if (!gradients) report_.warnings.push_back("this program lost a stop-gradient: only loss and alt.loss are compared");
    first_batch(gradients);
    if (gradients && run_.steps > 0) after_steps();
    alt_batch(gradients);
    if (report_.rows.empty()) throw UserError(data_path_ + ": holds nothing to compare");
    comparison_.finish_groups();
    return std::move(report_);
  }

 private:
  std::string ours(const std::string& fqn) const {
    const auto found = our_name_.find(fqn);
    return found == our_name_.end() ? fqn : found->second;
  }
  bool is_noise(const std::string& fqn) const { return std::find(run_.noise_gradients.begin(), run_.noise_gradients.end(), fqn) != run_.noise_gradients.end(); }

  /// Elements of a parameter that steps by Adam make of rounding errors, or null.
  const Literal* noise_of(const std::string& fqn, const Literal& parameter) const {
    const Literal* noise = find_array(recorded_, "noise." + fqn);
    if (noise && noise->sizes() != parameter.sizes())
      throw UserError(data_path_ + ": noise." + fqn + ": found " + type_text(noise->dtype(), noise->sizes()) + ", wanted the sizes of " +
                      type_text(parameter.dtype(), parameter.sizes()));
    return noise;
  }

  /// The file's own weights, and the recorded ones over them.
  void put_weights(const std::vector<std::pair<std::string, Literal>>& weights) {
    std::map<std::string, Literal> values(weights.begin(), weights.end());
    for (const char* prefix : {"param.", "buffer."})
      for (const auto& [fqn, value] : with_prefix(recorded_, prefix)) values[ours(fqn)] = value;
    for (auto& [state_name, value] : start_)
      if (const auto found = values.find(state_name); found != values.end()) value = found->second;
  }

  const Literal& recorded(const std::string& array_name) const {
    const Literal* found = find_array(recorded_, array_name);
    if (!found) throw UserError(data_path_ + ": has no " + array_name);
    return *found;
  }

  /// What is wrong with the state or a batch lies in the recorded data.
  template <class Function>
  auto of_data(const Function& function) const {
    try {
      return function();
    } catch (const UserError& error) {
      throw UserError(data_path_ + ": " + error.what());
    }
  }
  void restart() {
    of_data([&] { trainer_->load_state(start_, 0); });
  }
  StepResult run_step(const NamedArrays& batch) {
    return of_data([&] { return trainer_->step(batch); });
  }

  void first_batch(bool gradients) {
    restart();
    const NamedArrays batch = batch_of(recorded_, "input.");
    const StepResult result = run_step(batch);
    losses_.push_back(result.loss);
    const Literal loss = Literal::scalar(DType::F64, result.loss);
    comparison_.compare("loss", "loss", &loss, recorded("loss"));
    if (!gradients) return;
    for (const auto& [fqn, wanted] : with_prefix(recorded_, "grad.")) {
      if (is_noise(fqn)) continue;
      const auto found = result.gradients.find(ours(fqn));
      // A parameter that the loss does not depend on has no gradient here; PyTorch may write zeros (floor, sign).
      const Literal zero(wanted.dtype(), wanted.sizes());
      const bool absent = found == result.gradients.end();
      comparison_.compare("grad", "grad." + fqn, !absent ? &found->second : is_zero(wanted) ? &zero : nullptr, wanted);
    }
  }

  void after_steps() {
    const NamedArrays batch = batch_of(recorded_, "input.");
    for (int64_t step = 1; step < run_.steps; ++step) losses_.push_back(run_step(batch).loss);
    const NamedArrays state = trainer_->state();
    losses_.push_back(run_step(batch).loss);
    for (const char* group : {"after.param", "after.buffer"})
      for (const auto& [fqn, wanted] : with_prefix(recorded_, std::string(group) + "."))
        if (!is_noise(fqn)) {
          // A buffer that no step reads is not part of the step.
          const Literal* found = find_array(state, ours(fqn));
          const Literal* before = find_array(recorded_, "buffer." + fqn);
          const bool buffer = std::string(group) == "after.buffer";
          comparison_.compare(group, std::string(group) + "." + fqn, !found && buffer ? before : found, wanted, buffer ? nullptr : noise_of(fqn, wanted));
        }
    if (const Literal* wanted = find_array(recorded_, "losses")) {
      const Literal losses = Literal::from_doubles(DType::F64, {static_cast<int64_t>(losses_.size())}, losses_);
      comparison_.compare("losses", "losses", &losses, *wanted);
    }
  }

  void alt_batch(bool gradients) {
    if (!find_array(recorded_, "alt.loss")) return;
    restart();
    const StepResult result = run_step(batch_of(recorded_, "alt.input."));
    const Literal loss = Literal::scalar(DType::F64, result.loss);
    comparison_.compare("alt.loss", "alt.loss", &loss, recorded("alt.loss"));
    if (!gradients) return;
    for (const auto& [fqn, wanted] : with_prefix(recorded_, "alt.grad_norm.")) {
      if (is_noise(fqn)) continue;
      const auto found = result.gradients.find(ours(fqn));
      const bool absent = found == result.gradients.end();
      const Literal norm = absent ? Literal::scalar(DType::F64, 0) : norm_of(found->second);
      comparison_.compare("alt.grad_norm", "alt.grad_norm." + fqn, absent && !is_zero(wanted) ? nullptr : &norm, wanted);
    }
  }

  const CheckOptions& options_;
  RecordedRun run_;
  std::string data_path_;
  CheckReport report_;
  Comparison comparison_;
  NamedArrays recorded_, start_;
  std::map<std::string, std::string> our_name_;  // of tied parameters: PyTorch's name -> the one that we keep
  std::unique_ptr<Trainer> trainer_;
  std::vector<double> losses_;
};

}  // namespace

bool CheckReport::ok() const {
  return std::all_of(rows.begin(), rows.end(), [](const CheckRow& row) { return row.ok(); });
}

BisectReport bisect_folder(const std::string& folder, const CheckOptions& options) {
  if (parse_mesh(options.mesh).device_count() > 1) throw UserError("a bisection is on one device, found mesh " + options.mesh);
  return Check(folder, options).bisect();
}

CheckReport check_folder(const std::string& folder, const CheckOptions& options) { return Check(folder, options).finish(); }

std::string text(const CheckReport& report, size_t limit) {
  std::string table = fmt::format("{:<52} {:>10} {:>10} {:>10} {:>10}\n", "tensor", "max abs", "max rel", "rms", "allowed");
  size_t shown = 0, wrong = 0;
  for (const CheckRow& row : report.rows) {
    wrong += !row.ok();
    if (limit > 0 && shown >= limit) continue;
    ++shown;
    const char* verdict = row.ok() ? "" : "  WRONG";
    if (row.of_group)
      table += fmt::format("{:<52} {:>10} {:>10} {:>10.2e} {:>10.2e}{}\n", row.tensor, "-", "-", row.rms, row.allowed, verdict);
    else if (row.problem.empty())
      table += fmt::format("{:<52} {:>10.2e} {:>10.2e} {:>10.2e} {:>10.2e}{}\n", row.tensor, row.max_abs, row.max_rel, row.rms, row.allowed, verdict);
    else
      table += fmt::format("{:<52} {}  WRONG\n", row.tensor, row.problem);
  }
  if (shown < report.rows.size()) table += fmt::format("... and {} better ones\n", report.rows.size() - shown);
  const std::string where = report.program + (report.mesh.empty() ? "" : " on " + report.mesh);
  table += wrong == 0 ? fmt::format("{}: {} agrees in all {} comparisons\n", report.name, where, report.rows.size())
                      : fmt::format("{}: {} differs in {} of {} comparisons\n", report.name, where, wrong, report.rows.size());
  return table;
}

}  // namespace stepgraph
