// SPDX-License-Identifier: Apache-2.0
// Trainer: compiles the entries of a training module for a mesh and runs them step by step, one thread and one executor a rank.
// State is committed only after a step has succeeded with a finite loss: a step that throws leaves everything as it was, but for one that tells of new state
// that is not finite where the executor writes it in place.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "stepgraph/backend/backend.h"
#include "stepgraph/compile/capture/pt2/guards.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/run/comm/mesh_binding.h"
#include "stepgraph/run/executor/executor.h"
#include "stepgraph/train/data/arrays.h"

namespace stepgraph {

struct ShapesReport;

struct TrainerOptions {
  std::string mesh = {};           ///< "data=2"; "" is one device
  uint64_t seed = 0;               ///< of the initial state and of dropout
  std::vector<std::string> skip = {};  ///< optional passes to leave out
  std::vector<InputSharding> shardings = {};  ///< beyond the default: batch over "data", state replicated
  BackendOptions backend = {};                ///< what runs the program of a rank
  int64_t largest_batch = 0;                  ///< rows of the largest batch to come, where it is known: arenas are made for it at once
  /// What runs the program of a rank instead. The module is Local and outlives the executor.
  MakeExecutor executor = {};
  PassLog log = {};                           ///< of what made the module: the trainer's own passes are added
  SizeGuards guards = {};                     ///< what an imported model assumes of its inputs' sizes: checked with each batch (or micro-batch)
};

/// A loss is the quotient of these sums, so that parts of any size add up.
struct StepResult {
  double loss = 0;
  double loss_numerator = 0, loss_denominator = 0;
  std::map<std::string, double> metrics;  ///< of the model; one of which nothing was counted is not among them
  std::optional<double> learning_rate;
  std::optional<double> gradient_norm;  ///< before clipping, where there is clipping
  std::map<std::string, Literal> gradients;  ///< whole values by parameter, of a module made with StepOptions::gradients_as_outputs
  std::optional<double> loss_scale;  ///< that this step's gradients were computed with
  /// A gradient was not finite under the loss scale: parameters and the optimizer's state stay as they were; the loss may be anything.
  bool skipped = false;
  /// Of BackendOptions::taps, by name; where there are several ranks the part of each, by "NAME@RANK".
  std::map<std::string, Literal> taps;
  int64_t step = 0;          ///< number of this step, from 0
  int64_t elapsed_ns = 0;
};
struct EvalResult {
  std::optional<double> loss;  ///< nothing where nothing was evaluated: no row, or none that counts
  std::map<std::string, double> metrics;
  std::map<std::string, Literal> outputs;  ///< user outputs, of eval_batch only
};

class Trainer {
 public:
  /// `module` has entries init, step and eval (train_step of compile/compile.h). UserError if it has not, or the mesh does not fit.
  explicit Trainer(Module module, TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// One training step on a global batch of named arrays [batch, ...], as the model's inputs are named (others are ignored). UserError if the loss, the
  /// gradient norm or a new state is not finite: it names the step and the first op that made it so. With loss scaling such a step is skipped instead, up to
  /// 64 in a row. An executor that writes states in place tells of such a state after it: from then on nothing is trained or saved until a state is loaded.
  StepResult step(const NamedArrays& batch);
  /// Forward in evaluation mode; changes nothing. Numerators and denominators are summed over all ranks.
  EvalResult eval_batch(const NamedArrays& batch);
  /// Over batches until `next` gives none: quotient of sums; UserError at the second one if the loss does not add up. Where a denominator is the constant 1 (a
  /// loss that is a plain mean), each batch counts by its rows.
  EvalResult eval(const std::function<std::optional<NamedArrays>()>& next);

  int64_t steps_done() const;
  int rank_count() const;
  /// Number of elements in parameters, and of parameter tensors.
  int64_t parameter_elements() const;
  int64_t parameter_tensors() const;
  /// Largest sum of bytes of live values of any rank so far.
  int64_t peak_bytes() const;
  int64_t micro_batches() const;
  /// Steps so far, those before a resume included, whose gradients were not finite under the loss scale.
  int64_t skipped_steps() const;
  /// UserError if a batch of these sizes (a micro-batch, where there are some) leaves a batch norm one value a channel: told before a step as by it.
  void check_training_sizes(const SymbolValues& symbols) const;
  /// Hash of the logical module: what a checkpoint belongs to.
  std::string module_hash() const;
  const Module& logical() const;
  const Module& local() const;
  const PassLog& compile_log() const;
  /// The sizes that batches give, and how often this run compiles and plans memory: known before the first step (backend/shapes_report.h).
  ShapesReport sizes() const;

  /// Whole (global) values of all state, ordered by name.
  NamedArrays state() const;
  /// Parameters and buffers only.
  NamedArrays weights() const;
  /// Replaces all state; matched by name, checked before anything changes (one UserError lists all that is missing, unexpected or of another type).
  void load_state(NamedArrays state, int64_t steps_done);
  /// The same for some of the state: the rest of it stays.
  void replace_state(NamedArrays some, int64_t steps_done);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// What a Trainer runs on each rank: entries init, step and eval at the Local stage, by a back end that has room for the batches announced.
struct TrainerProgram {
  Module local;
  BackendOptions backend;
};
/// `log` may be null.
TrainerProgram trainer_program(const Module& module, const TrainerOptions& options, PassLog* log = nullptr);

/// Whether the losses of several batches are one loss of all (program/role.h).
bool loss_adds_up(const Module& module);
/// UserError for a module of which they are not, with what to do.
[[noreturn]] void fail_evaluation_in_parts();

}  // namespace stepgraph
