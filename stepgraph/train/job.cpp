// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/job.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <numeric>

#include <fmt/core.h>

#include "stepgraph/backend/given_plan.h"
#include "stepgraph/base/file.h"
#include "stepgraph/base/nearest.h"
#include "stepgraph/base/process_memory.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/train/cached_module.h"
#include "stepgraph/train/checkpoint/checkpoint.h"
#include "stepgraph/train/checkpoint/places.h"
#include "stepgraph/train/data/presets.h"
#include "stepgraph/train/fit.h"
#include "stepgraph/train/models/models.h"
#include "stepgraph/train/module_options.h"
#include "stepgraph/train/weights.h"

namespace stepgraph {
namespace {

using Seconds = std::chrono::duration<double>;

double now_seconds() { return std::chrono::duration_cast<Seconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

NamedArrays read_arrays(const std::string& kind, const std::string& path, std::vector<std::string>& notes) {
  if (kind != "npz") return read_safetensors(path).arrays;
  std::map<std::string, std::string> left_out;
  NamedArrays arrays = read_npz(path, &left_out);
  for (const auto& [array, why] : left_out) notes.push_back(why + "; it is left out");
  return arrays;
}

LoaderOptions loader_options(const TrainJob& job) {
  LoaderOptions options;
  options.batch = job.batch;
  options.seed = job.seed;
  options.shuffle = job.shuffle;
  options.last = job.last_batch;
  options.epochs = job.epochs;
  options.prefetch = job.prefetch;
  return options;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Every axis must split something: `data` the batch, others a state by the layout that is written for it.
void check_axes(const Module& local) {
  std::set<std::string> used = {"data"};
  for (const StateInfo& state : local.states)
    if (state.type.sharding)
      for (const DimSharding& dim : state.type.sharding->dims)
        for (const AxisRef& axis : dim.axes) used.insert(axis.axis);
  for (const MeshAxis& axis : local.mesh.axes)
    if (axis.size > 1 && !used.contains(axis.name))
      throw UserError("mesh " + local.mesh.text() + ": axis " + axis.name + " splits nothing, its ranks would repeat the same work; wanted axis data, which splits the batch (data=" +
                      std::to_string(local.mesh.device_count()) + "), or a layout of a state over " + axis.name);
}

/// In a checkpoint's extra values: what its weights belong to, whatever optimizer moved them; the size of a batch; and before module_options() their keys.
constexpr const char *model_key = "model_hash", *batch_key = "train.batch", *option_prefix = "option.", *order_prefix = "order.";
ModuleOptions options_with(const LoadedCheckpoint& loaded, std::string_view prefix) {
  ModuleOptions options;
  for (const auto& [key, value] : loaded.data.extra)
    if (key.starts_with(prefix)) options[key.substr(prefix.size())] = value;
  return options;
}
std::string model_hash(const Trainer& trainer) {
  Module module = trainer.logical();
  module.entries = {{"eval", module.entry("eval")}};
  return module_hash(prune_graphs(std::move(module))).text();
}

[[noreturn]] void fail_other_module(const LoadedCheckpoint& loaded, const TrainJob& job, const std::string& module_hash) {
  std::string problem = loaded.path + ": was saved by the module '" + loaded.data.module_hash + "', this run has " + module_hash + ": ";
  const ModuleOptions saved = options_with(loaded, option_prefix);
  if (saved.empty()) throw UserError(problem + "model, optimizer or step options differ");
  const std::string different = differences(saved, module_options(job));
  problem += different.empty() ? "the options are the same, so that the model's file or program differs, or this is another version of stepgraph" : different;
  throw UserError(problem + "; go on with the options of before, or start anew from trained weights: --weights FILE without --resume, with a file of --save-weights");
}

constexpr size_t names_shown = 8;
std::string listed(const std::vector<std::string>& names) {
  std::string all;
  for (size_t i = 0; i < std::min(names.size(), names_shown); ++i) all += (i ? ", " : "") + names[i];
  return names.size() > names_shown ? all + " and " + std::to_string(names.size() - names_shown) + " more" : all;
}

/// The first row with a value that is not finite, for messages: "; sample 7 holds nan in x".
std::string non_finite_sample(const NamedArrays& arrays, const std::vector<int64_t>& ids) {
  for (const auto& [field, value] : arrays) {
    if (!is_floating(value.dtype())) continue;
    for (int64_t i = 0; i < value.count(); ++i)
      if (!std::isfinite(value.at(i)))
        return "; sample " + std::to_string(ids[static_cast<size_t>(i / (value.count() / static_cast<int64_t>(ids.size())))]) + " holds " +
               fmt::format("{}", value.at(i)) + " in " + field;
  }
  return "";
}

bool is_finite(const EvalResult& result) {
  return std::isfinite(result.loss.value_or(0)) &&
         std::all_of(result.metrics.begin(), result.metrics.end(), [](const auto& metric) { return std::isfinite(metric.second); });
}

/// Once more, batch by batch, to name the one at fault.
[[noreturn]] void fail_not_finite(Trainer& trainer, const Dataset& dataset, const EvaluationPlan& plan, const EvalResult& whole) {
  std::string what = fmt::format("the loss is {}", whole.loss.value_or(0));
  if (std::isfinite(whole.loss.value_or(0)))
    for (const auto& [metric, value] : whole.metrics)
      if (!std::isfinite(value)) what = fmt::format("{} is {}", metric, value);
  what += ", which is not finite";
  for (int64_t start = 0; start < plan.samples; start += plan.batch) {
    std::vector<int64_t> ids(static_cast<size_t>(std::min(plan.batch, plan.samples - start)));
    std::iota(ids.begin(), ids.end(), start);
    const NamedArrays arrays = dataset.gather(ids);
    if (is_finite(trainer.eval_batch(arrays))) continue;
    throw UserError(fmt::format("{}, first in the batch of test samples {} to {}{}", what, ids.front(), ids.back(), non_finite_sample(arrays, ids)));
  }
  throw UserError(what);
}

/// Gives up between two batches when `stop` becomes true.
EvalReport evaluate_until(Trainer& trainer, const DatasetPointer& dataset, const EvaluationPlan& plan, int64_t limit, const std::atomic<bool>* stop) {
  int64_t start = 0, batches = 0;
  const int64_t batch = plan.batch;
  const EvalResult result = trainer.eval([&]() -> std::optional<NamedArrays> {
    if (start >= plan.samples || (limit > 0 && batches == limit) || (stop && stop->load())) return std::nullopt;
    std::vector<int64_t> ids;
    for (int64_t id = start; id < std::min(start + batch, plan.samples); ++id) ids.push_back(id);
    start += batch;
    ++batches;
    return dataset->gather(ids);
  });
  if (!is_finite(result)) fail_not_finite(trainer, *dataset, plan, result);
  return {trainer.steps_done(), 0, result.loss, result.metrics};
}

Splits open_training_data(const DataChoice& choice) {
  Splits data = open_data(choice);
  if (data.train->size() > 0) return data;
  const int64_t test = data.test->size();
  throw UserError(choice.path + ": no sample is left to train on: found " + std::to_string(test) + " in all" + (test > 0 ? ", every one in the test set" : ""));
}

/// A job while it runs.
class Run {
 public:
  Run(const TrainJob& job, const JobObserver& observer, const std::atomic<bool>* stop)
      : job_(job), observer_(observer), stop_(stop), data_(open_training_data(job.data)), loader_(data_.train, loader_options(job)), disk_(posix_disk()) {}

  JobResult finish() {
    for (const std::string& message : data_.notes) note(message);
    if (!job_.checkpoint.empty()) try_checkpoint_directory();
    if (!job_.save_weights.empty()) try_folder_of(job_.save_weights);
    if (!job_.tap_file.empty()) try_folder_of(job_.tap_file);
    if (job_.batch < parse_mesh(job_.mesh).device_count()) note("a batch of " + std::to_string(job_.batch) + " rows leaves ranks of mesh " + job_.mesh + " without rows");
    TrainerOptions options = trainer_options(job_);
    start_seconds_ = now_seconds();
    model_ = build_job_model(job_);
    for (const std::string& warning : model_.warnings) note(warning);
    options.guards = model_.guards;
    options.log = model_.log;
    options.backend.loaded = [this](const StepPlan&) { note_loaded(); };
    result_.trainer = std::make_unique<Trainer>(std::move(model_.module), options);
    check_axes(trainer().local());
    check_parameters();
    check_names();
    for (const std::string& message : check_data(job_, trainer(), model_.guards, data_)) note(message);
    if (!model_.weights.empty()) start_from(trainer(), model_.weights);
    if (!job_.weights.empty()) load_weights(job_.weights, trainer(), model_);
    if (job_.resume)
      resume();
    else if (!job_.checkpoint.empty() && has_checkpoints(*disk_, job_.checkpoint))
      throw UserError(job_.checkpoint + " holds checkpoints already; go on from the latest with --resume, or name another directory");
    result_.first_step = trainer().steps_done();
    if (observer_.started) observer_.started(trainer(), data_, total_steps());
    tell_if_finished();
    try {
      loop();
    } catch (...) {  // whoever is at fault
      keep_work();
      throw;
    }
    if (!job_.save_weights.empty()) save_state_dict(job_.save_weights, trainer(), model_);
    if (!job_.tap_file.empty()) write_safetensors(job_.tap_file, {NamedArrays(result_.taps.begin(), result_.taps.end()), {}});
    result_.step_ms_median = median(step_ms_);
    result_.skipped = trainer().skipped_steps();
    return std::move(result_);
  }

 private:
  Trainer& trainer() { return *result_.trainer; }
  bool stopped() const { return stop_ && stop_->load(); }

  /// By the first rank.
  void note_loaded() {
    std::call_once(loaded_, [this] {
      result_.compile_seconds = now_seconds() - start_seconds_;
      result_.rss_before_state_bytes = resident_bytes();
    });
  }

  /// The step number at which the run ends. A resumed run may have another batch size than the saved one, so what is left is counted.
  int64_t total_steps() const {
    const int64_t by_steps = job_.steps > 0 ? job_.steps : INT64_MAX;
    if (job_.epochs == 0) return by_steps;
    const Cursor cursor = loader_.cursor();
    const int64_t samples = data_.train->size() - cursor.offset;
    const int64_t in_epoch = samples / job_.batch + (job_.last_batch != LastBatch::Drop && samples % job_.batch != 0);
    const int64_t left = cursor.epoch < job_.epochs ? in_epoch + (job_.epochs - cursor.epoch - 1) * loader_.batches_per_epoch() : 0;
    return std::min(result_.trainer->steps_done() + left, by_steps);
  }

  /// Of a training step as a text nothing is known but what it does.
  void check_parameters() {
    const TrainedParameters parameters = trained_parameters(trainer().logical(), job_.optimizer);
    if (parameters.trained.empty() && parameters.unreached.empty() && !parameters.frozen.empty())
      throw UserError(fmt::format("optimizer: all {} parameters of the model are frozen, so that nothing is trained", parameters.frozen.size()));
    if (parameters.trained.empty() && !parameters.unreached.empty())
      throw UserError("the loss depends on no parameter that is to be trained: no gradient reaches " + listed(parameters.unreached) +
                      "; is it the model's loss, and not behind detach() or no_grad()?");
    std::vector<std::string> unreached;
    for (const std::string& parameter : parameters.unreached)
      if (!model_.frozen.count(parameter)) unreached.push_back(parameter);
    if (!unreached.empty())
      note(fmt::format("no gradient reaches {} of {} parameters, which stay as they are: {}", unreached.size(),
                       parameters.trained.size() + parameters.frozen.size() + parameters.unreached.size(), listed(unreached)));
  }

  void check_names() {
    if (job_.checkpoint.empty() && job_.save_weights.empty()) return;
    const Graph& step = trainer().logical().graph(trainer().logical().entry("step"));
    for (const GraphInput& input : step.inputs)
      if (is_state(input.role.kind)) check_state_name(input.role.name);
  }

  /// A directory that cannot be written to is better known now than after an hour; one that another run writes to would lose the work of both.
  void try_checkpoint_directory() {
    disk_->make_directories(job_.checkpoint);
    lock_.emplace(job_.checkpoint);
    const std::string probe = job_.checkpoint + "/" + std::string(temporary_prefix) + "probe";
    disk_->create(probe)->close();
    disk_->remove_tree(probe);
  }

  /// What is written at the end must not fail for want of a folder only then.
  void try_folder_of(const std::string& path) {
    const size_t slash = path.find_last_of('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    if (!disk_->is_directory(folder)) throw UserError("cannot write " + path + " at the end: there is no folder " + folder);
    check_writable(path);
  }

  void resume() {
    if (!has_checkpoints(*disk_, job_.checkpoint)) {
      note("no checkpoint in " + job_.checkpoint + " yet: starting from step 0");
      return;
    }
    // Of another module the latest one is refused: an older one that fits would silently be another run.
    LoadedCheckpoint loaded = load_latest(*disk_, job_.checkpoint);
    if (const std::string hash = trainer().module_hash(); loaded.data.module_hash != hash) fail_other_module(loaded, job_, hash);
    for (const std::string& message : loaded.messages) note(message);
    if (loaded.data.seed != job_.seed)
      throw UserError(loaded.path + " was saved with seed " + std::to_string(loaded.data.seed) + ", this run has seed " + std::to_string(job_.seed));
    check_same_order(loaded);
    try {
      loader_.restore(loaded.data.cursor);
    } catch (const UserError& problem) {
      throw UserError(loaded.path + ": " + problem.what());
    }
    trainer().load_state(std::move(loaded.data.state), loaded.data.step);
    saved_step_ = loaded.data.step;
    if (const auto batch = loaded.data.extra.find(batch_key); batch != loaded.data.extra.end() && batch->second != std::to_string(job_.batch))
      note("the checkpoint was saved with batches of " + batch->second + ", this run has " + std::to_string(job_.batch) + ": it goes on at the same sample");
    if (!job_.weights.empty()) note("the state of the checkpoint counts, not --weights " + job_.weights);
    note("resumed from " + loaded.path + " at step " + std::to_string(loaded.data.step));
  }

  const ModuleOptions& order() {
    if (order_.empty()) order_ = order_options(job_, content_hash(*data_.train).text());
    return order_;
  }

  void check_same_order(const LoadedCheckpoint& loaded) {
    const ModuleOptions saved = options_with(loaded, order_prefix);
    if (same_order(saved, order())) return;
    const std::string different = differences(saved, order());
    if (job_.other_data)
      return note("the checkpoint was saved with other data, or another order of it: " + different + "; the run goes on at the same place of this one");
    throw UserError(loaded.path + ": was saved with other data, or another order of it: " + different +
                    "; go on with those of before, or with --other-data if that is meant");
  }

  void tell_if_finished() const {
    const int64_t done = result_.first_step;
    if (!job_.resume || done == 0 || done < total_steps()) return;
    if (job_.steps > 0 && done >= job_.steps)
      note("already at step " + std::to_string(done) + " of --steps " + std::to_string(job_.steps) + " (a total)");
    else
      note("already at step " + std::to_string(done) + ", the end of --epochs " + std::to_string(job_.epochs) + " (a total)");
  }

  /// What was trained before an error must not be lost with it: neither of the two places for want of the other.
  void keep_work() {
    const int64_t done = result_.trainer->steps_done();
    if (done == result_.first_step) return;
    const std::string until = "stopped by an error after " + std::to_string(done) + " steps: ";
    std::string kept;
    const auto keep = [&](const char* what, const char* verb, const std::string& place, const auto& write) {
      if (place.empty()) return;
      try {
        write();
        kept += fmt::format("{}the {} {} kept in {}", kept.empty() ? "" : ", ", what, verb, place);
      } catch (const std::exception& problem) {
        note(until + "the " + what + " could not be kept: " + problem.what());
      }
    };
    keep("state", "is", job_.checkpoint, [&] {
      // The batch of a step that failed was not used.
      if (!(loader_.cursor() == used_)) loader_.seek(used_);
      save();
    });
    keep("weights", "are", job_.save_weights, [&] { save_state_dict(job_.save_weights, trainer(), model_); });
    if (!kept.empty()) note(until + kept);
  }

  void loop() {
    const int64_t limit = total_steps();
    used_ = loader_.cursor();
    int64_t epoch = loader_.cursor().epoch;
    while (trainer().steps_done() < limit) {
      if (stopped()) {
        result_.interrupted = true;
        break;
      }
      const std::optional<Batch> batch = loader_.next();
      if (!batch) break;
      epoch = batch->epoch;
      const double start = now_seconds();
      StepResult step = trainer().step(batch->arrays);
      used_ = batch->after;
      const double elapsed = now_seconds() - start;
      step_ms_.push_back(elapsed * 1000);
      result_.train_seconds += elapsed;
      result_.losses.push_back(step.loss);
      if (observer_.stepped) observer_.stepped(step, epoch, batch->valid_rows);
      result_.taps = std::move(step.taps);
      const bool epoch_ends = batch->index + 1 == loader_.batches_per_epoch();
      const bool last = trainer().steps_done() >= limit;
      if (job_.save_every > 0 && trainer().steps_done() % job_.save_every == 0) save();
      const bool due = job_.eval_every > 0 ? trainer().steps_done() % job_.eval_every == 0 : job_.eval_every == 0 && epoch_ends;
      if (due && !last) evaluate_now(epoch, job_.eval_limit);
    }
    if (!job_.checkpoint.empty()) save();
    if (!result_.interrupted && job_.eval_every >= 0) evaluate_now(epoch, 0);
  }

  void evaluate_now(int64_t epoch, int64_t limit) {
    EvalReport report;
    try {
      const EvaluationPlan plan = plan_evaluation(trainer().logical(), data_.test->size(), job_.eval_batch > 0 ? job_.eval_batch : job_.batch, job_.eval_batch > 0);
      report = evaluate_until(trainer(), data_.test, plan, limit, stop_);
    } catch (const UserError& error) {
      throw UserError(std::string("evaluation: ") + error.what());
    }
    if (stopped()) {  // perhaps in the middle: no report of a part
      result_.interrupted = true;
      return;
    }
    report.epoch = epoch;
    if (observer_.evaluated) observer_.evaluated(report);
    result_.last_eval = report;
  }

  void save() {
    if (saved_step_ == trainer().steps_done()) return;
    CheckpointData data;
    data.step = trainer().steps_done();
    data.module_hash = trainer().module_hash();
    data.cursor = loader_.save();
    data.seed = job_.seed;
    data.extra[model_key] = model_hash(trainer());
    data.extra[batch_key] = std::to_string(job_.batch);
    for (const auto& [key, value] : module_options(job_)) data.extra[option_prefix + key] = value;
    for (const auto& [key, value] : order()) data.extra[order_prefix + key] = value;
    data.state = trainer().state();
    SaveOptions options;
    options.keep = job_.keep;
    const SavedCheckpoint saved = save_checkpoint(*disk_, job_.checkpoint, data, options);
    for (const std::string& message : saved.messages) note(message);
    saved_step_ = data.step;
    if (observer_.saved) observer_.saved(saved.path);
  }

  void note(const std::string& message) const {
    if (observer_.note) observer_.note(message);
  }

  const TrainJob& job_;
  const JobObserver& observer_;
  const std::atomic<bool>* stop_;
  Splits data_;
  Loader loader_;
  std::unique_ptr<Disk> disk_;
  std::optional<FolderLock> lock_;  // on the checkpoints
  ModuleOptions order_;             // once it is asked for
  JobResult result_;
  BuiltModel model_;  // without its module, which the trainer has
  double start_seconds_ = 0;
  std::once_flag loaded_;
  std::vector<double> step_ms_;
  int64_t saved_step_ = -1;
  Cursor used_;  // behind the last batch that a step was made of
};

/// With f16 gradients need a loss scale.
StepOptions step_options(const TrainJob& job) {
  StepOptions options = job.step;
  if (options.loss_scale.kind == LossScale::Kind::Automatic && job.autocast.dtype == DType::F16) options.loss_scale.kind = LossScale::Kind::Dynamic;
  return options;
}

/// A .sg file, at any stage.
Module read_model_file(const TrainJob& job) {
  Module module = parse_module(read_file(job.model.name), job.model.name);
  verify(module);
  if (!job.model.options.empty()) throw UserError("model options are for models of the zoo; " + job.model.name + " is a file");
  if (job.autocast.dtype) throw UserError("precision: " + job.model.name + " is a text whose casts are fixed; precision is for models of the zoo and .pt2 files");
  return module;
}

}  // namespace

void check(const TrainJob& job) {
  auto at_least = [](const char* what, int64_t value, int64_t minimum) {
    if (value < minimum) throw UserError(std::string(what) + ": found " + std::to_string(value) + ", wanted at least " + std::to_string(minimum));
  };
  if (job.model.name.empty()) throw UserError("no model is given");
  at_least("batch", job.batch, 1);
  at_least("epochs", job.epochs, 0);
  at_least("steps", job.steps, 0);
  at_least("save_every", job.save_every, 0);
  at_least("keep", job.keep, 1);
  at_least("eval_every", job.eval_every, -1);
  at_least("eval_batch", job.eval_batch, 0);
  at_least("prefetch", job.prefetch, 0);
  if (job.epochs == 0 && job.steps == 0) throw UserError("neither epochs nor steps is given: the run would have no end");
  if (job.checkpoint.empty() && (job.save_every > 0 || job.resume))
    throw UserError(std::string(job.resume ? "resume" : "save_every") + " needs a checkpoint directory");
  if (job.batch % std::max<int64_t>(1, job.step.micro_batches) != 0)
    throw UserError("a batch of " + std::to_string(job.batch) + " rows cannot be cut into " + std::to_string(job.step.micro_batches) + " equal micro-batches");
  if (job.step.micro_batches > 1 && job.last_batch == LastBatch::Short)
    throw UserError("micro-batches want batches of equal size: let the last batch be dropped or padded");
  check(job.optimizer);
  check(job.autocast);
  check(job.step.loss_scale);
}

const std::vector<std::string>& data_kinds() {
  static const std::vector<std::string> kinds{"digits", "csv", "npz", "safetensors", "text", "tokens_u16", "tokens_u32", "images"};
  return kinds;
}

std::string data_kind(const DataChoice& data) {
  if (!data.kind.empty()) {
    if (std::find(data_kinds().begin(), data_kinds().end(), data.kind) == data_kinds().end())
      throw UserError("data kind '" + data.kind + "' is unknown; nearest are " + nearest_names(data.kind, data_kinds()));
    return data.kind;
  }
  if (!posix_disk()->exists(data.path)) throw UserError("data path " + data.path + ": no such file or folder");
  if (posix_disk()->is_directory(data.path)) return "images";
  for (const auto& [ending, kind] : {std::pair{".csv", "csv"}, {".npz", "npz"}, {".safetensors", "safetensors"}, {".txt", "text"}})
    if (data.path.ends_with(ending)) return kind;
  std::string known;
  for (const std::string& kind : data_kinds()) known += (known.empty() ? "" : ", ") + kind;
  throw UserError("the ending of " + data.path + " does not tell what it holds; give the data kind: " + known);
}

namespace {
Splits open_images(const DataChoice& data) {
  ImageFolderOptions options;
  ImageTransform& transform = options.transform;
  transform.crop = data.crop.size() == 1 ? std::vector<int64_t>{data.crop[0], data.crop[0]} : data.crop;
  transform.resize = data.resize;
  if (transform.resize.empty())
    for (const int64_t size : data.crop) transform.resize.push_back(size * 8 / 7);
  if (!data.mean.empty()) transform.mean.assign(data.mean.begin(), data.mean.end());
  if (!data.deviation.empty()) transform.deviation.assign(data.deviation.begin(), data.deviation.end());
  options.flip = data.flip;
  options.test_every = data.test_every;
  options.test_rest = data.test_rest;
  options.input_name = data.input;
  options.label_name = data.label;
  return image_folder(data.path, data.test_path, options);
}

Splits open_files(const DataChoice& data) {
  if (data.path.empty()) throw UserError("no data path is given");
  const std::string kind = data_kind(data);
  if (kind == "digits") return digits(data.path);
  if (kind == "images") return open_images(data);
  if (kind == "csv") {
    CsvClassification options;
    options.sample = data.sample;
    options.scale = data.scale;
    options.test_every = data.test_every;
    options.test_rest = data.test_rest;
    options.input_name = data.input;
    options.label_name = data.label;
    return csv_classification(data.path, options);
  }
  if (kind == "npz" || kind == "safetensors") {
    std::vector<std::string> notes;
    const DatasetPointer whole = array_dataset(read_arrays(kind, data.path, notes), data.path);
    Splits splits;
    if (data.test_path.empty()) {
      splits = split_last(whole, data.held_out);
    } else {
      const std::string test_kind = data.test_path.ends_with(".npz") ? "npz" : data.test_path.ends_with(".safetensors") ? "safetensors" : kind;
      splits = {whole, array_dataset(read_arrays(test_kind, data.test_path, notes), data.test_path)};
    }
    splits.notes = std::move(notes);
    return splits;
  }
  TextOptions options;
  options.context = data.context;
  options.stride = data.stride;
  options.held_out = data.held_out;
  options.vocabulary = data.vocabulary;
  options.format = kind == "text" ? TokenFormat::Bytes : kind == "tokens_u16" ? TokenFormat::U16 : TokenFormat::U32;
  return text_windows(data.path, options);
}
}  // namespace

Splits open_data(const DataChoice& data) {
  const Splits files = open_files(data);
  return {bind_fields(files.train, data.bind), bind_fields(files.test, data.bind), files.notes};
}

namespace {
/// What is easily given as a model and holds none.
void check_is_model(const std::string& name) {
  const auto ends_with_any = [&](std::initializer_list<std::string_view> endings) {
    return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return name.ends_with(ending); });
  };
  if (ends_with_any({".pt", ".pth", ".bin"}))
    throw UserError("model " + name + ": looks like a file of torch.save, which holds pickles; save the model with torch.export.save as a .pt2 file (docs/pt2.md)");
  if (name.ends_with(".safetensors")) throw UserError("model " + name + ": a .safetensors file holds weights and no model; name the model, and give the file with --weights");
}
}  // namespace

BuiltModel read_job_model(const TrainJob& job) {
  BuiltModel built;
  check_is_model(job.model.name);
  if (is_pt2(job.model.name)) return import_model(job.model, job.autocast);
  if (job.model.name.ends_with(".sg")) {
    built.module = read_model_file(job);
    return built;
  }
  ModelDefinition definition = define_model(job.model.name, job.model.options);
  definition.capture.autocast = job.autocast;
  built.module = capture(definition.inputs, definition.function, definition.capture);
  built.tied = definition.tied;
  built.unused = definition.unused;
  return built;
}

CompileOptions compile_options(const TrainJob& job) {
  CompileOptions options;
  options.training = TrainingOptions{job.optimizer, step_options(job)};
  options.mesh = parse_mesh(job.mesh);
  options.skip = skipped_passes(job.skip).compile;
  return options;
}

namespace {
/// The oracle takes nothing on trust.
std::shared_ptr<CompileCache> cache_of(const TrainJob& job) { return job.backend == Backend::Reference ? nullptr : job.cache; }
}  // namespace

TrainerOptions trainer_options(const TrainJob& job) {
  if (!job.plan.empty() && job.backend == Backend::Reference) throw UserError("plan: the reference back end runs none, wanted that by which " + job.plan + " was made");
  TrainerOptions options;
  options.mesh = job.mesh;
  options.seed = job.seed;
  options.backend.backend = job.backend;
  options.backend.trace = job.trace;
  options.backend.cache = cache_of(job);
  if (!job.plan.empty()) options.backend.plan = read_given_plan(job.plan);
  options.backend.threads = static_cast<int>(job.threads);
  SkippedPasses skip = skipped_passes(job.skip);
  options.skip = std::move(skip.compile), options.backend.skip = std::move(skip.plan);
  options.backend.sizes = parse_size_ranges(job.sizes, job.buckets);
  options.backend.fullgraph = job.fullgraph;
  options.backend.taps = job.taps;
  options.backend.flush_denormals = job.flush_denormals;
  options.backend.tune_seconds = job.tune_seconds;
  if (!job.tuning.empty()) {
    const bool may_be_new = job.tune_seconds > 0;
    if (!may_be_new || std::filesystem::exists(job.tuning)) options.backend.tuning = parse_tuning(read_file(job.tuning), job.tuning);
    if (may_be_new) check_writable(job.tuning);
    options.backend.tuned = [path = job.tuning](const Tuning& tuning) { write_file(path, text(tuning)); };
  }
  options.backend.memory_budget = job.memory_budget;
  options.largest_batch = std::max(job.batch, job.eval_batch);
  return options;
}

BuiltModel build_job_model(const TrainJob& job) {
  BuiltModel built = read_job_model(job);
  const Stage stage = built.module.stage;
  if (stage != Stage::Logical)
    throw UserError(job.model.name + " is at stage " + std::string(name(stage)) + ", wanted logical: what is trained is compiled for its mesh itself; write it with --at forward or --at step");
  if (built.module.find_entry("step")) return built;
  built.module.entry("forward");
  CompileOptions options = compile_options(job);
  options.stop_at = "optimizer";
  built.log.clock_us = [] { return static_cast<int64_t>(now_seconds() * 1e6); };
  built.module = compile_cached(std::move(built.module), options, cache_of(job), &built.log);
  return built;
}

JobResult run_job(const TrainJob& job, const JobObserver& observer, const std::atomic<bool>* stop) {
  check(job);
  return Run(job, observer, stop).finish();
}

EvalReport evaluate(Trainer& trainer, const DatasetPointer& dataset, int64_t batch, int64_t limit) {
  return evaluate_until(trainer, dataset, plan_evaluation(trainer.logical(), dataset->size(), batch, true), limit, nullptr);
}

std::vector<std::string> restore_weights(Trainer& trainer, const std::string& checkpoint) {
  const std::unique_ptr<Disk> disk = posix_disk();
  LoadedCheckpoint loaded;
  if (disk->exists(checkpoint + "/manifest.json"))
    loaded = {load_checkpoint(*disk, checkpoint), checkpoint, {}};
  else
    loaded = load_latest(*disk, checkpoint);
  if (const auto saved = loaded.data.extra.find(model_key); saved != loaded.data.extra.end() && saved->second != model_hash(trainer))
    throw UserError(loaded.path + ": was saved by another model, or with another precision (hash " + saved->second + ", this one has " + model_hash(trainer) + ")");
  // The rest of the state, the optimizer's, stays as it is.
  NamedArrays weights;
  for (const StateInfo& state : trainer.local().states) {
    if (state.role == RoleKind::OptimizerState) continue;
    const Literal* found = find_array(loaded.data.state, state.name);
    if (!found) throw UserError(loaded.path + ": has no " + state.name + " that the model wants");
    weights.emplace_back(state.name, *found);
  }
  loaded.data.state.clear();
  trainer.replace_state(std::move(weights), loaded.data.step);
  return loaded.messages;
}

}  // namespace stepgraph
