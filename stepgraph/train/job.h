// SPDX-License-Identifier: Apache-2.0
// A training job as plain data, and the loop that runs it: data, steps, evaluation, checkpoints, resuming. The `stepgraph train` command is this
// with a progress bar.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "stepgraph/compile/compile.h"
#include "stepgraph/train/data/loader.h"
#include "stepgraph/train/imported_model.h"
#include "stepgraph/train/trainer.h"

namespace stepgraph {

struct ModelChoice {
  std::string name;                            ///< of the zoo (train/models/models.h), or a path that ends in .sg or .pt2
  std::map<std::string, std::string> options;  ///< of the zoo model; of a .pt2 file: loss
};
struct DataChoice {
  std::string kind;  ///< of data_kinds(); empty: by the ending of `path`
  std::string path;
  std::string test_path;                         ///< npz, safetensors, images: a set of its own; else a part of `path` is held out
  std::map<std::string, std::string> bind;       ///< model input -> field of the data; others go by equal names
  int64_t context = 64;                          ///< text and tokens
  int64_t stride = 0;                            ///< text and tokens: between training windows; 0: context
  int64_t held_out = 10;                         ///< text and tokens: the last 1/held_out; npz, safetensors without test_path: likewise
  int64_t vocabulary = 256;                      ///< tokens
  std::vector<int64_t> sample;                   ///< csv: shape of one input
  double scale = 1;                              ///< csv: inputs are multiplied by it
  std::string input = "image", label = "label";  ///< csv, images: the model's inputs that are read
  int64_t test_every = 5, test_rest = 0;         ///< csv, images
  std::vector<int64_t> crop = {224};             ///< images: of the middle; one number is a square
  std::vector<int64_t> resize;                   ///< images: before the crop, one number for the shorter side or two; empty: 8/7 of the crop
  std::vector<double> mean, deviation;           ///< images: of each channel; empty: ImageNet's
  bool flip = false;                             ///< images: mirror every other one in training
};
struct TrainJob {
  ModelChoice model;
  DataChoice data;
  Optimizer optimizer;
  StepOptions step;
  Autocast autocast;  ///< mixed precision of a model of the zoo or a .pt2 file
  int64_t batch = 32;
  int64_t epochs = 0, steps = 0;  ///< the first that is reached ends the run; 0: no limit (one must be given)
  LastBatch last_batch = LastBatch::Drop;
  bool shuffle = true;
  int64_t prefetch = 2;
  uint64_t seed = 0;
  std::string mesh;
  Backend backend = default_backend();
  TraceSink trace = {};    ///< of a compiled back end
  std::string tuning;      ///< file with choices of libraries; read if there is one, written after tuning
  double tune_seconds = 0;  ///< for measuring what has no record
  bool flush_denormals = false;
  MemoryBudget memory_budget = {};  ///< of a rank, of a compiled back end
  std::shared_ptr<CompileCache> cache = {};  ///< of plans and code (cache/compile_cache.h); null: none
  std::string plan = {};   ///< file of stepgraph compile that is run; empty: it is made
  int64_t threads = 0;     ///< of a rank; 0: the cores of this machine, shared among its ranks
  std::string sizes, buckets;  ///< "batch=1..64", "batch=8,16,64": see tensor/size_ranges.h
  bool fullgraph = false;      ///< what only the interpreter can run because sizes are symbols is an error
  int64_t eval_every = 0;  ///< steps between evaluations; 0: at the end of each epoch and of the run. -1: never
  int64_t eval_batch = 0;  ///< 0: as batch
  int64_t eval_limit = 0;  ///< at most this many batches in the evaluations during training; 0: all
  std::string checkpoint;  ///< directory; empty: none
  int64_t save_every = 0;  ///< steps; 0: only at the end and when interrupted
  int keep = 3;
  std::string weights;            ///< .safetensors that the model starts from, by PyTorch's names
  std::vector<std::string> taps;  ///< patterns of values of the step (passes/tap.h) that are wanted
  std::string tap_file;           ///< .safetensors with them, of the last step
  std::string save_weights;       ///< .safetensors that is written at the end: parameters and buffers by PyTorch's names
  bool resume = false;            ///< go on from the latest good checkpoint if there is one
  bool other_data = false;        ///< a resume may go on with other data, or another order of it, than the checkpoint's
  std::vector<std::string> skip;  ///< optional passes to leave out
};
/// UserError for options that contradict each other or are out of range.
void check(const TrainJob& job);

/// digits, csv, npz, safetensors, text, tokens_u16, tokens_u32, images
const std::vector<std::string>& data_kinds();
/// The kind that is given, or what the path tells.
std::string data_kind(const DataChoice& data);
/// Reads the files; training and test set.
Splits open_data(const DataChoice& data);
/// The job's model as it is written: entries init, forward and eval, or a whole training step (of a .sg file); and the weights that it starts from, if its
/// file has some.
BuiltModel read_job_model(const TrainJob& job);
/// What the job says of compilation, up to the last pass.
CompileOptions compile_options(const TrainJob& job);
/// What the job says of running: mesh, seed, back end, the largest batch.
TrainerOptions trainer_options(const TrainJob& job);
/// The model to train: entries init, step and eval.
BuiltModel build_job_model(const TrainJob& job);

struct EvalReport {
  int64_t step = 0, epoch = 0;
  std::optional<double> loss;  ///< nothing where nothing was evaluated
  std::map<std::string, double> metrics;
};
struct JobObserver {
  std::function<void(const Trainer&, const Splits&, int64_t total_steps)> started;
  std::function<void(const StepResult&, int64_t epoch, int64_t rows)> stepped;
  std::function<void(const EvalReport&)> evaluated;
  std::function<void(const std::string& path)> saved;
  std::function<void(const std::string& message)> note;  ///< a damaged checkpoint was passed over, resumed from ...
};
struct JobResult {
  std::unique_ptr<Trainer> trainer;
  std::optional<EvalReport> last_eval;
  std::vector<double> losses;  ///< of each step of this run
  std::map<std::string, Literal> taps;  ///< of the last step (StepResult::taps)
  int64_t first_step = 0;      ///< 0, or where it was resumed
  double step_ms_median = 0;
  double train_seconds = 0;  ///< in steps alone
  double compile_seconds = 0;             ///< from reading the model to a loaded plan; 0 without a plan
  int64_t rss_before_state_bytes = 0;     ///< of the process, with the plan loaded and no state touched; 0 without a plan
  int64_t skipped = 0;       ///< steps whose gradients were not finite under the loss scale, those before a resume included
  bool interrupted = false;
};
/// Runs until the limits, or until `*stop` becomes true (then a checkpoint is written, if there is a directory, and the run ends in order).
JobResult run_job(const TrainJob& job, const JobObserver& observer, const std::atomic<bool>* stop = nullptr);

/// Mean loss and metrics over a dataset; UserError naming the samples if they are not finite. Without a last batch of fewer rows than the model takes
/// (plan_evaluation in fit.h).
EvalReport evaluate(Trainer& trainer, const DatasetPointer& dataset, int64_t batch, int64_t limit = 0);
/// Parameters and buffers of a checkpoint (a directory of checkpoints, or one of them) put into the trainer, for evaluation and generation: the
/// optimizer may be another one than in training. Returns messages about damaged checkpoints that were passed over.
std::vector<std::string> restore_weights(Trainer& trainer, const std::string& checkpoint);

}  // namespace stepgraph
