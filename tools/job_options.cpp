// SPDX-License-Identifier: Apache-2.0
#include "tools/job_options.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>

#include "stepgraph/base/nearest.h"
#include "tools/open_cache.h"

namespace stepgraph {
namespace {

/// Counts of samples, steps and epochs: their products stay far from overflow.
constexpr int64_t count_max = 1'000'000'000;
constexpr double infinity = std::numeric_limits<double>::infinity();

int64_t integer(const std::string& text, int64_t minimum, int64_t maximum = count_max) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw UserError("found '" + text + "', wanted an integer");
  if (value < minimum) throw UserError(fmt::format("found {}, wanted at least {}", value, minimum));
  if (value > maximum) throw UserError(fmt::format("found {}, wanted at most {}", value, maximum));
  return value;
}

double real(const std::string& text, double minimum, double maximum = infinity) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) throw UserError("found '" + text + "', wanted a number");
  if (value < minimum) throw UserError(fmt::format("found {}, wanted at least {}", text, minimum));
  if (value > maximum) throw UserError(fmt::format("found {}, wanted at most {}", text, maximum));
  return value;
}

double positive(const std::string& text) {
  const double value = real(text, -infinity);
  if (!(value > 0)) throw UserError(fmt::format("found {}, wanted a number above 0", text));
  return value;
}

bool truth(const std::string& text) {
  if (text == "true" || text == "yes" || text == "1") return true;
  if (text == "false" || text == "no" || text == "0") return false;
  throw UserError("found '" + text + "', wanted true or false");
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    const size_t first = part.find_first_not_of(' '), last = part.find_last_not_of(' ');
    if (first != std::string::npos) parts.push_back(part.substr(first, last - first + 1));
  }
  return parts;
}

std::vector<int64_t> sizes(const std::string& text) {
  std::vector<int64_t> values;
  for (const std::string& part : split(text, ',')) values.push_back(integer(part, 1));
  return values;
}

std::vector<double> reals(const std::string& text) {
  std::vector<double> values;
  for (const std::string& part : split(text, ',')) values.push_back(real(part, -infinity));
  return values;
}

std::map<std::string, std::string> bindings(const std::string& text) {
  std::map<std::string, std::string> found;
  for (const std::string& part : split(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == part.size()) throw UserError("found '" + part + "', wanted INPUT=FIELD");
    if (!found.emplace(part.substr(0, equals), part.substr(equals + 1)).second) throw UserError("input '" + part.substr(0, equals) + "' is bound twice");
  }
  return found;
}

template <class Kind>
Kind choice(const std::string& text, const std::vector<std::pair<std::string, Kind>>& choices) {
  std::string known;
  for (const auto& [choice_name, kind] : choices) {
    if (choice_name == text) return kind;
    known += (known.empty() ? "" : ", ") + choice_name;
  }
  throw UserError("found '" + text + "', wanted one of " + known);
}

void set_loss_scale(LossScale& scale, const std::string& text) {
  using Kind = LossScale::Kind;
  constexpr std::string_view dynamic = "dynamic";
  const bool has_start = text.starts_with("dynamic:");
  scale.kind = text == "none" ? Kind::None : text == dynamic || has_start ? Kind::Dynamic : Kind::Constant;
  scale.start = LossScale{}.start;
  if (text == "none" || text == dynamic) return;
  try {
    scale.start = real(has_start ? text.substr(dynamic.size() + 1) : text, 0);
  } catch (const UserError&) {
    throw UserError("found '" + text + "', wanted none, dynamic, dynamic:START or a number");
  }
}

using Setter = std::function<void(JobText&, const std::string&)>;

JobOption number(std::string key, std::string flag, std::string help, int64_t minimum, std::function<int64_t&(TrainJob&)> field) {
  TrainJob defaults;
  const std::string default_value = std::to_string(field(defaults));
  Setter set = [field, minimum](JobText& job, const std::string& value) { field(job.job) = integer(value, minimum); };
  return {std::move(key), std::move(flag), "N", default_value, std::move(help), ValueForm::Number, std::move(set)};
}
JobOption decimal(std::string key, std::string flag, std::string help, double minimum, double maximum, std::function<double&(TrainJob&)> field) {
  TrainJob defaults;
  const std::string default_value = fmt::format("{}", field(defaults));
  Setter set = [=](JobText& job, const std::string& value) { field(job.job) = real(value, minimum, maximum); };
  return {std::move(key), std::move(flag), "X", default_value, std::move(help), ValueForm::Number, std::move(set)};
}
JobOption word(std::string key, std::string flag, std::string type, std::string help, std::function<std::string&(TrainJob&)> field) {
  TrainJob defaults;
  const std::string default_value = field(defaults);
  Setter set = [field](JobText& job, const std::string& value) { field(job.job) = value; };
  return {std::move(key), std::move(flag), std::move(type), default_value, std::move(help), ValueForm::Word, std::move(set)};
}
JobOption yes_no(std::string key, std::string flag, std::string help, std::function<bool&(TrainJob&)> field) {
  TrainJob defaults;
  const std::string default_value = field(defaults) ? "true" : "false";
  Setter set = [field](JobText& job, const std::string& value) { field(job.job) = truth(value); };
  return {std::move(key), std::move(flag), "true|false", default_value, std::move(help), ValueForm::Switch, std::move(set)};
}

template <class Kind>
JobOption one_of(std::string key, std::string flag, std::string default_value, std::string help, std::vector<std::pair<std::string, Kind>> choices,
                 std::function<Kind&(TrainJob&)> field) {
  Setter set = [=](JobText& job, const std::string& value) { field(job.job) = choice(value, choices); };
  return {std::move(key), std::move(flag), "KIND", std::move(default_value), std::move(help), ValueForm::Word, std::move(set)};
}

/// Short names for the rows below.
using J = TrainJob;
using Integer = int64_t&;
using Real = double&;
using Text = std::string&;

std::vector<JobOption> image_options() {
  return {
      {"data.crop", "--crop", "N[,N]", "224", "images: height and width of the middle that the model sees; one number is a square", ValueForm::List,
       [](JobText& j, const std::string& v) { j.job.data.crop = sizes(v); }},
      {"data.resize", "--resize", "N[,N]", "8/7 of the crop", "images: size before the crop, of the shorter side or of both", ValueForm::List,
       [](JobText& j, const std::string& v) { j.job.data.resize = sizes(v); }},
      {"data.mean", "--mean", "X,X,X", "0.485,0.456,0.406", "images: of red, green and blue in 0 to 1; is subtracted", ValueForm::List,
       [](JobText& j, const std::string& v) { j.job.data.mean = reals(v); }},
      {"data.std", "--std", "X,X,X", "0.229,0.224,0.225", "images: what is divided by then", ValueForm::List,
       [](JobText& j, const std::string& v) { j.job.data.deviation = reals(v); }},
      yes_no("data.flip", "--flip", "images: mirror every other one in training, by seed and epoch", [](J& j) -> bool& { return j.data.flip; }),
  };
}

std::vector<JobOption> data_options() {
  std::vector<std::pair<std::string, std::string>> kinds;
  for (const std::string& kind : data_kinds()) kinds.emplace_back(kind, kind);
  return {
      one_of<std::string>("data.kind", "--data-kind", "by the path: .csv, .npz, .safetensors, .txt, or a folder of images",
                          "digits, csv, npz, safetensors, text (bytes), tokens_u16, tokens_u32 or images (a folder a class, as torchvision's ImageFolder)", kinds,
                          [](J& j) -> Text { return j.data.kind; }),
      word("data.path", "--data", "PATH", "the data file, or the folder of images", [](J& j) -> Text { return j.data.path; }),
      word("data.test_path", "--test-data", "PATH", "npz, safetensors, images: the test set; else a part is held out", [](J& j) -> Text { return j.data.test_path; }),
      {"data.bind", "--bind", "INPUT=FIELD,..", "equal names", "inputs of the model that other fields of the data are given to", ValueForm::List,
       [](JobText& j, const std::string& v) { j.job.data.bind = bindings(v); }},
      number("data.context", "--context", "text, tokens: length of a window", 1, [](J& j) -> Integer { return j.data.context; }),
      number("data.stride", "--stride", "text, tokens: distance of training windows; 0: the context", 0, [](J& j) -> Integer { return j.data.stride; }),
      number("data.held_out", "--held-out", "text, tokens, npz, safetensors: the last 1/N is the test set", 2, [](J& j) -> Integer { return j.data.held_out; }),
      number("data.vocabulary", "--data-vocabulary", "text, tokens: larger tokens are refused", 1, [](J& j) -> Integer { return j.data.vocabulary; }),
      {"data.sample", "--sample", "N,N,..", "one row of columns", "csv: shape of one input", ValueForm::List,
       [](JobText& j, const std::string& v) { j.job.data.sample = sizes(v); }},
      decimal("data.scale", "--scale", "csv: inputs are multiplied by it", -infinity, infinity, [](J& j) -> Real { return j.data.scale; }),
      word("data.input", "--input", "NAME", "csv, images: name of the model's input that the columns or pixels are", [](J& j) -> Text { return j.data.input; }),
      word("data.label", "--label", "NAME", "csv, images: name of the model's input that the last column or the class is", [](J& j) -> Text { return j.data.label; }),
      number("data.test_every", "--test-every", "csv, images: row or file i is for testing when i % N is test_rest", 1, [](J& j) -> Integer { return j.data.test_every; }),
      number("data.test_rest", "--test-rest", "csv, images: see test_every", 0, [](J& j) -> Integer { return j.data.test_rest; }),
  };
}

JobOption freeze_option() {
  return {"optimizer.freeze", "--freeze", "PATTERNS", "", "parameters that are not trained", ValueForm::List, [](JobText& j, const std::string& v) {
            ParameterGroup group;
            group.patterns = split(v, ',');
            group.frozen = true;
            if (group.patterns.empty()) throw UserError("no patterns are given");
            j.job.optimizer.groups.insert(j.job.optimizer.groups.begin(), group);
          }};
}

std::vector<JobOption> optimizer_options() {
  using Kind = Optimizer::Kind;
  using Curve = Schedule::Kind;
  return {
      one_of<Kind>("optimizer.name", "--optimizer", "adamw", "sgd, adam, adamw, lion, rmsprop, adagrad or adafactor, with PyTorch's meaning",
                   {{"sgd", Kind::Sgd},
                    {"adam", Kind::Adam},
                    {"adamw", Kind::AdamW},
                    {"lion", Kind::Lion},
                    {"rmsprop", Kind::Rmsprop},
                    {"adagrad", Kind::Adagrad},
                    {"adafactor", Kind::Adafactor}},
                   [](J& j) -> Kind& { return j.optimizer.kind; }),
      decimal("optimizer.lr", "--lr", "learning rate", 0, infinity, [](J& j) -> Real { return j.optimizer.rate.rate; }),
      decimal("optimizer.weight_decay", "--weight-decay", "adamw, lion, adafactor: decoupled; others: added to the gradient", 0, infinity,
              [](J& j) -> Real { return j.optimizer.weight_decay; }),
      decimal("optimizer.momentum", "--momentum", "sgd, rmsprop", 0, infinity, [](J& j) -> Real { return j.optimizer.momentum; }),
      decimal("optimizer.dampening", "--dampening", "sgd", -infinity, infinity, [](J& j) -> Real { return j.optimizer.dampening; }),
      yes_no("optimizer.nesterov", "--nesterov", "sgd", [](J& j) -> bool& { return j.optimizer.nesterov; }),
      decimal("optimizer.beta1", "--beta1", "adam, adamw, lion", 0, 1, [](J& j) -> Real { return j.optimizer.beta1; }),
      decimal("optimizer.beta2", "--beta2", "adam, adamw", 0, 1, [](J& j) -> Real { return j.optimizer.beta2; }),
      decimal("optimizer.epsilon", "--epsilon", "adam, adamw, rmsprop, adagrad", 0, infinity, [](J& j) -> Real { return j.optimizer.epsilon; }),
      decimal("optimizer.alpha", "--alpha", "rmsprop: of the average of squares; lion: of the momentum (its paper's beta2)", 0, 1,
              [](J& j) -> Real { return j.optimizer.alpha; }),
      yes_no("optimizer.centered", "--centered", "rmsprop: by the variance", [](J& j) -> bool& { return j.optimizer.centered; }),
      decimal("optimizer.rate_decay", "--rate-decay", "adagrad: torch's lr_decay", 0, infinity, [](J& j) -> Real { return j.optimizer.rate_decay; }),
      decimal("optimizer.beta2_decay", "--beta2-decay", "adafactor", -infinity, 0, [](J& j) -> Real { return j.optimizer.beta2_decay; }),
      decimal("optimizer.clip_threshold", "--clip-threshold", "adafactor: torch's d", 1, infinity, [](J& j) -> Real { return j.optimizer.clip_threshold; }),
      decimal("optimizer.minimum_scale", "--minimum-scale", "adafactor: torch's eps[1]", 0, infinity, [](J& j) -> Real { return j.optimizer.minimum_scale; }),
      {"optimizer.ema_decay", "--ema-decay", "X", "", "also keep an average of each parameter, state NAME.ema", ValueForm::Number,
       [](JobText& j, const std::string& v) { j.job.optimizer.ema_decay = real(v, 0, 1); }},
      {"optimizer.no_decay", "--no-decay", "PATTERNS", "", "parameters without weight decay, e.g. '*.bias,*.ln_*'", ValueForm::List,
       [](JobText& j, const std::string& v) { j.job.optimizer.no_decay = split(v, ','); }},
      freeze_option(),
      one_of<Curve>("schedule.kind", "--schedule", "constant", "constant, cosine, linear (both with warm-up) or step",
                    {{"constant", Curve::Constant}, {"cosine", Curve::WarmupCosine}, {"linear", Curve::WarmupLinear}, {"step", Curve::Step}},
                    [](J& j) -> Curve& { return j.optimizer.rate.kind; }),
      number("schedule.warmup", "--warmup", "cosine, linear: steps of linear rise", 0, [](J& j) -> Integer { return j.optimizer.rate.warmup; }),
      number("schedule.total", "--schedule-total", "cosine, linear: step at which the minimum is reached", 0,
             [](J& j) -> Integer { return j.optimizer.rate.total; }),
      decimal("schedule.minimum", "--minimum-lr", "cosine, linear: lowest rate", 0, infinity, [](J& j) -> Real { return j.optimizer.rate.minimum; }),
      number("schedule.every", "--decay-every", "step: steps between decays", 0, [](J& j) -> Integer { return j.optimizer.rate.every; }),
      decimal("schedule.factor", "--decay-factor", "step: what the rate is multiplied by", 0, infinity, [](J& j) -> Real { return j.optimizer.rate.factor; }),
  };
}

std::vector<JobOption> train_options() {
  return {
      number("train.batch", "--batch", "rows of the global batch", 1, [](J& j) -> Integer { return j.batch; }),
      number("train.epochs", "--epochs", "passes over the training set; 0: no limit", 0, [](J& j) -> Integer { return j.epochs; }),
      number("train.steps", "--steps", "at most this many steps in all, those before a resume included; 0: no limit", 0,
             [](J& j) -> Integer { return j.steps; }),
      number("train.micro_batches", "--micro-batches", "gradient accumulation: slices of a batch", 1, [](J& j) -> Integer { return j.step.micro_batches; }),
      {"train.clip_norm", "--clip-norm", "X", "", "largest global gradient norm", ValueForm::Number,
       [](JobText& j, const std::string& v) { j.job.step.clip_norm = positive(v); }},
      one_of<std::optional<DType>>("train.precision", "--precision", "f32", "f32, or mixed precision as torch.autocast's: bf16, f16 (docs/precision.md)",
                                   {{"f32", std::nullopt}, {"bf16", DType::BF16}, {"f16", DType::F16}},
                                   [](J& j) -> std::optional<DType>& { return j.autocast.dtype; }),
      one_of<Autocast::List>("train.autocast", "--autocast", "cpu", "the device whose lists of operators the precision goes by: cpu or cuda",
                             {{"cpu", Autocast::List::Cpu}, {"cuda", Autocast::List::Cuda}}, [](J& j) -> Autocast::List& { return j.autocast.list; }),
      {"train.loss_scale", "--loss-scale", "KIND", "dynamic with f16, else none", "none, dynamic, dynamic:START, or a number that stays", ValueForm::Word,
       [](JobText& j, const std::string& v) { set_loss_scale(j.job.step.loss_scale, v); }},
      number("train.loss_scale_interval", "--loss-scale-interval", "dynamic: good steps in a row after which the scale is doubled", 1,
             [](J& j) -> Integer { return j.step.loss_scale.interval; }),
      one_of<LastBatch>("train.last_batch", "--last-batch", "drop",
                        "the last batch of an epoch: drop, short, or pad: filled with samples from the start of the epoch, which count like any other",
                        {{"drop", LastBatch::Drop}, {"short", LastBatch::Short}, {"pad", LastBatch::Pad}}, [](J& j) -> LastBatch& { return j.last_batch; }),
      yes_no("train.shuffle", "--shuffle", "another order each epoch, by seed", [](J& j) -> bool& { return j.shuffle; }),
      number("train.prefetch", "--prefetch", "batches prepared ahead; 0: none", 0, [](J& j) -> Integer { return j.prefetch; }),
      word("train.weights", "--weights", "FILE", "start from the parameters and buffers of a .safetensors, by PyTorch's names; all must be there",
           [](J& j) -> Text { return j.weights; }),
      {"train.seed", "--seed", "N", "0", "of initial values, dropout and order of data", ValueForm::Number,
       [](JobText& j, const std::string& v) { j.job.seed = static_cast<uint64_t>(integer(v, 0, INT64_MAX)); }},
      word("train.mesh", "--mesh", "AXES", "devices, e.g. data=2: the batch is split over axis data", [](J& j) -> Text { return j.mesh; }),
      one_of<Backend>("train.backend", "--backend", std::string(name(default_backend())),
                      "what runs the step: eager (aot_eager), segment (nvfuser), full (inductor), reference",
                      {{"eager", Backend::Eager},
                       {"segment", Backend::Segment},
                       {"full", Backend::Full},
                       {"reference", Backend::Reference},
                       {"aot_eager", Backend::Eager},
                       {"nvfuser", Backend::Segment},
                       {"inductor", Backend::Full}},
                      [](J& j) -> Backend& { return j.backend; }),
      number("train.threads", "--threads", "threads of a rank; 0: the cores of this machine, shared among its ranks", 0, [](J& j) -> Integer { return j.threads; }),
      {"train.sizes", "--sizes", "SIZES", "", "how far sizes go, e.g. batch=1..64: memory is made for the largest at once", ValueForm::Word,
       [](JobText& j, const std::string& v) { parse_size_ranges(j.job.sizes = v); }},
      {"train.buckets", "--buckets", "SIZES", "", "largest sizes that memory is planned for, one after another as they are met, e.g. batch=8,16,64", ValueForm::Word,
       [](JobText& j, const std::string& v) { parse_size_ranges({}, j.job.buckets = v); }},
      yes_no("train.fullgraph", "--fullgraph", "an operation that has no kernel because sizes are symbols is an error", [](J& j) -> bool& { return j.fullgraph; }),
      {"train.tune", "--tune", "SECONDS", "0", "at most this long choices of libraries without a record are measured, e.g. 20s", ValueForm::Word,
       [](JobText& j, const std::string& v) { j.job.tune_seconds = real(v.ends_with('s') ? v.substr(0, v.size() - 1) : v, 0, 3600); }},
      word("train.tuning", "--tuning", "FILE", "record of such choices: read, and written after --tune", [](J& j) -> Text { return j.tuning; }),
      yes_no("train.flush_denormals", "--flush-denormals", "numbers below the smallest normal one are zero, in every back end",
             [](J& j) -> bool& { return j.flush_denormals; }),
      {"train.memory_budget", "--memory-budget", "SIZE", "none",
       "of a rank: bytes (512MiB), a share of what is planned without one (60%), or min; values of forward are made again where they do not fit", ValueForm::Word,
       [](JobText& j, const std::string& v) { j.job.memory_budget = parse_memory_budget(v); }},
      word("train.plan", "--plan", "FILE", "run this plan of stepgraph compile: it must be one of this model, these options and this machine", [](J& j) -> Text { return j.plan; }),
      {"train.cache", "--cache", "DIR|off", "stepgraph in the user's caches", "where plans and code are kept that were compiled (docs/cache.md)", ValueForm::Word,
       [](JobText& j, const std::string& v) { j.cache = v; }},
      {"train.cache_limit", "--cache-limit", "BYTES", "2GiB", "the size beyond which the least recently used of them go", ValueForm::Word,
       [](JobText& j, const std::string& v) { bytes_of_text(j.cache_limit = v); }},
      number("train.eval_every", "--eval-every", "steps between evaluations; 0: each epoch, -1: never", -1, [](J& j) -> Integer { return j.eval_every; }),
      number("train.eval_batch", "--eval-batch", "rows of an evaluation batch; 0: as batch", 0, [](J& j) -> Integer { return j.eval_batch; }),
      number("train.eval_limit", "--eval-limit", "batches of an evaluation during training; 0: all", 0, [](J& j) -> Integer { return j.eval_limit; }),
      {"train.skip", "--skip", "PASSES", "", "optional passes to leave out, e.g. simplify,fuse", ValueForm::List,
       [](JobText& j, const std::string& v) { j.job.skip = split(v, ','); }},
  };
}

std::vector<JobOption> output_options() {
  return {
      word("checkpoint.directory", "--checkpoint", "DIR", "where checkpoints are kept", [](J& j) -> Text { return j.checkpoint; }),
      number("checkpoint.save_every", "--save-every", "steps between checkpoints; there is one at the end and on SIGINT, SIGTERM anyway", 0,
             [](J& j) -> Integer { return j.save_every; }),
      {"checkpoint.keep", "--keep", "N", "3", "newest checkpoints that stay", ValueForm::Number,
       [](JobText& j, const std::string& v) { j.job.keep = static_cast<int>(integer(v, 1, 1'000'000)); }},
      yes_no("checkpoint.resume", "--resume", "go on from the latest good checkpoint, if there is one", [](J& j) -> bool& { return j.resume; }),
      yes_no("checkpoint.other_data", "--other-data", "resume even if the training data, or their order, are others than the checkpoint's",
             [](J& j) -> bool& { return j.other_data; }),
      word("output.weights", "--save-weights", "FILE", "parameters and buffers at the end, as .safetensors by PyTorch's names",
           [](J& j) -> Text { return j.save_weights; }),
      {"output.tap", "--tap", "PATTERNS", "", "values of the step that are wanted, by phase, layer and operation, e.g. 'forward/h.0.attn/*' (docs/plans.md)", ValueForm::List,
       [](JobText& j, const std::string& v) { j.job.taps = split(v, ','); }},
      {"output.tap_file", "--tap-out", "FILE", "", "a .safetensors of those of the last step", ValueForm::Word,
       [](JobText& j, const std::string& v) {
         if (!v.ends_with(".safetensors")) throw UserError("found '" + v + "', wanted a name that ends in .safetensors");
         j.job.tap_file = v;
       }},
      {"output.curve", "--curve", "FILE", "loss.svg beside the checkpoints, if any", "loss curve as SVG", ValueForm::Word,
       [](JobText& j, const std::string& v) { j.curve = v; }},
  };
}

}  // namespace

const std::vector<JobOption>& job_options() {
  static const std::vector<JobOption> options = [] {
    std::vector<JobOption> all = data_options();
    for (auto part : {image_options(), optimizer_options(), train_options(), output_options()}) all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return options;
}

const std::vector<std::string>& group_keys() {
  static const std::vector<std::string> keys{"patterns", "rate_factor", "weight_decay", "frozen"};
  return keys;
}

void set_group_key(ParameterGroup& group, const std::string& key, const std::string& value) {
  if (key == "patterns")
    group.patterns = split(value, ',');
  else if (key == "rate_factor")
    group.rate_factor = real(value, 0);
  else if (key == "weight_decay")
    group.weight_decay = real(value, 0);
  else if (key == "frozen")
    group.frozen = truth(value);
  else
    throw UserError("unknown key '" + key + "'; the nearest is '" + nearest_names(key, group_keys(), 1) + "'");
}

void add_model_option(JobText& job, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) throw UserError("--option: found '" + assignment + "', wanted NAME=VALUE");
  job.job.model.options[assignment.substr(0, equals)] = assignment.substr(equals + 1);
}

void add_group(JobText& job, const std::string& description) {
  ParameterGroup group;
  for (const std::string& part : split(description, ';')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) throw UserError("--group: found '" + part + "', wanted KEY=VALUE");
    try {
      set_group_key(group, part.substr(0, equals), part.substr(equals + 1));
    } catch (const UserError& problem) {
      throw UserError("--group: " + part.substr(0, equals) + ": " + problem.what());
    }
  }
  if (group.patterns.empty()) throw UserError("--group: no patterns are given");
  job.job.optimizer.groups.push_back(group);
}

}  // namespace stepgraph
