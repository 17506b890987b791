// SPDX-License-Identifier: Apache-2.0
// The trainer: what a step may change, what it refuses, and that a run can be repeated and resumed bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/train/models/models.h"
#include "stepgraph/train/trainer.h"
#include "tests/support/on_reference.h"

namespace stepgraph {
namespace trainer_test {

const Dim batch = Dim::symbol("batch");
const std::vector<InputSpec> inputs = {{"x", DType::F32, {batch, 3}}, {"label", DType::I32, {batch}}};

Loss small_model(Scope s, Inputs in) {
  Value x = dropout(s, batch_norm(s / "bn", linear(s / "a", in["x"], 4)), 0.25);
  return cross_entropy(linear(s / "b", x, 3), in["label"]).output("logits", x);
}
Module small_step(int64_t micro_batches = 1) { return train_step(inputs, small_model, Optimizer{}, {.clip_norm = 1.0, .micro_batches = micro_batches}); }

Literal spread(const Sizes& sizes, uint64_t start = 0) {
  Literal result(DType::F32, sizes);
  for (int64_t i = 0; i < result.count(); ++i) {
    const double turn = static_cast<double>(i + 1 + static_cast<int64_t>(start)) * 0.6180339887498949;
    result.set(i, 2 * (turn - std::floor(turn)) - 1);
  }
  return result;
}
Literal labels(const Sizes& sizes, int64_t classes, int64_t start = 0, DType dtype = DType::I64) {
  Literal result(dtype, sizes);
  for (int64_t i = 0; i < result.count(); ++i) result.set_integer(i, ((i + start) * 7 + 3) % classes);
  return result;
}
NamedArrays small_batch(int64_t rows, uint64_t start = 0) {
  return {{"x", spread({rows, 3}, start)}, {"label", labels({rows}, 3, static_cast<int64_t>(start))}, {"not read", Literal(DType::U8, {5})}};
}

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}
void expect_holds(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part; }

class TrainerOnMeshes : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Meshes, TrainerOnMeshes, ::testing::Values("", "data=2", "data=3", "data=2,model=2"), [](const auto& info) {
  std::string mesh = info.param;
  std::erase_if(mesh, [](char c) { return c == '=' || c == ','; });
  return mesh.empty() ? std::string("one") : mesh;
});

TEST_P(TrainerOnMeshes, StepsLearnAndReport) {
  Trainer trainer(small_step(), testing::on_reference({.mesh = GetParam()}));
  EXPECT_EQ(trainer.parameter_tensors(), 6);
  EXPECT_EQ(trainer.parameter_elements(), 12 + 4 + 4 + 4 + 12 + 3);
  EXPECT_EQ(trainer.steps_done(), 0);
  double first = 0, last = 0;
  for (int64_t step = 0; step < 30; ++step) {
    const StepResult result = trainer.step(small_batch(8));
    EXPECT_EQ(result.step, step);
    EXPECT_EQ(result.loss_denominator, 8);
    EXPECT_EQ(result.loss, result.loss_numerator / 8);
    EXPECT_GT(result.gradient_norm.value(), 0);
    EXPECT_FLOAT_EQ(static_cast<float>(result.learning_rate.value()), 1e-3F);
    EXPECT_LE(result.metrics.at("accuracy"), 1);
    EXPECT_EQ(result.metrics.size(), 1U);
    (step == 0 ? first : last) = result.loss;
  }
  EXPECT_LT(last, first);
  EXPECT_EQ(trainer.steps_done(), 30);
  EXPECT_GT(trainer.peak_bytes(), 0);
}

TEST_P(TrainerOnMeshes, EvaluationChangesNothing) {
  Trainer trainer(small_step(), testing::on_reference({.mesh = GetParam()})), other(small_step(), testing::on_reference({.mesh = GetParam()}));
  trainer.step(small_batch(6)), other.step(small_batch(6));
  const NamedArrays before = trainer.state();
  const EvalResult once = trainer.eval_batch(small_batch(5)), again = trainer.eval_batch(small_batch(5));
  EXPECT_EQ(once.loss, again.loss);
  ASSERT_EQ(once.outputs.count("logits"), 1U);
  EXPECT_EQ(once.outputs.at("logits").sizes(), (Sizes{5, 4}));
  // Parts of any size add up to the whole.
  std::vector<NamedArrays> parts;
  const NamedArrays whole = small_batch(7);
  for (const auto& [first, rows] : {std::pair{0, 4}, std::pair{4, 1}, std::pair{5, 2}}) {
    Literal x(DType::F32, {rows, 3}), label(DType::I64, {rows});
    for (int64_t i = 0; i < rows * 3; ++i) x.set(i, whole[0].second.at(first * 3 + i));
    for (int64_t i = 0; i < rows; ++i) label.set_integer(i, whole[1].second.integer_at(first + i));
    parts.push_back({{"x", x}, {"label", label}});
  }
  size_t next = 0;
  const EvalResult in_parts = trainer.eval([&]() -> std::optional<NamedArrays> { return next < parts.size() ? std::optional(parts[next++]) : std::nullopt; });
  const EvalResult at_once = trainer.eval_batch(whole);
  EXPECT_NEAR(in_parts.loss.value(), at_once.loss.value(), 1e-6);
  EXPECT_NEAR(in_parts.metrics.at("accuracy"), at_once.metrics.at("accuracy"), 1e-12);
  EXPECT_EQ(trainer.eval([]() -> std::optional<NamedArrays> { return std::nullopt; }).loss, std::nullopt) << "nothing evaluated is no loss of 0";
  EXPECT_TRUE(trainer.state() == before);
  EXPECT_EQ(trainer.steps_done(), 1);
  trainer.step(small_batch(6, 9)), other.step(small_batch(6, 9));
  EXPECT_TRUE(trainer.state() == other.state()) << "nor does it change what follows";
}

/// The step throws, changes nothing, and the next good one gives what it would have given anyway.
void expect_refused(Trainer& trainer, const NamedArrays& bad, const NamedArrays& good, const std::string& message) {
  const NamedArrays before = trainer.state();
  const int64_t steps = trainer.steps_done();
  expect_holds(error_of([&] { trainer.step(bad); }), message);
  EXPECT_TRUE(trainer.state() == before);
  EXPECT_EQ(trainer.steps_done(), steps);
  trainer.step(good);
  const NamedArrays after = trainer.state();
  trainer.load_state(before, steps);
  trainer.step(good);
  EXPECT_TRUE(trainer.state() == after);
}

TEST_P(TrainerOnMeshes, BadBatchesAreRefused) {
  Trainer trainer(small_step(), testing::on_reference({.mesh = GetParam()}));
  const NamedArrays good = small_batch(4);
  expect_refused(trainer, {{"x", spread({4, 3})}}, good, "the batch has no array 'label' that the model reads; it has x");
  expect_refused(trainer, {}, good, "it has none");
  expect_refused(trainer, {{"x", spread({4, 2})}, {"label", labels({4}, 3)}}, good, "batch input x: found sizes [4, 2], the model wants f32[batch, 3]");
  expect_refused(trainer, {{"x", spread({4})}, {"label", labels({4}, 3)}}, good, "batch input x: found sizes [4]");
  expect_refused(trainer, {{"x", spread({4, 3})}, {"label", labels({5}, 3)}}, good, "batch input label: found sizes [5], the model wants i32[batch] with batch = 4");
  expect_refused(trainer, {{"x", labels({4, 3}, 3)}, {"label", labels({4}, 3)}}, good, "batch input x: found dtype i64, the model wants f32");
  expect_refused(trainer, {{"x", spread({4, 3})}, {"label", spread({4})}}, good, "batch input label: found dtype f32, the model wants i32");
  expect_refused(trainer, {{"x", spread({0, 3})}, {"label", labels({0}, 3)}}, good, "batch");
  Literal wide = labels({4}, 3);
  wide.set_integer(1, (int64_t{1} << 32) + 1);
  expect_refused(trainer, {{"x", spread({4, 3})}, {"label", wide}}, good, "element 1 is 4294967297, which does not fit i32");
  Literal outside = labels({4}, 3);
  outside.set_integer(3, 17);  // found while the ranks run
  expect_refused(trainer, {{"x", spread({4, 3})}, {"label", outside}}, good, "17");
}

TEST_P(TrainerOnMeshes, StepsThatAreNotFiniteChangeNothing) {
  Trainer trainer(small_step(), testing::on_reference({.mesh = GetParam()}));
  const NamedArrays good = small_batch(4);
  for (double value : {std::nan(""), static_cast<double>(INFINITY), 1e38}) {
    NamedArrays bad = good;
    bad[0].second.set(7, value);
    // The variance of the large one overflows: the loss stays finite, the running variance does not.
    const std::string what = std::isfinite(value) ? "the new value of bn.running_var" : "the loss";
    expect_refused(trainer, bad, good, "step " + std::to_string(trainer.steps_done()) + ": " + what + " is not finite; ");
  }
}

TEST_P(TrainerOnMeshes, MicroBatchesMustDivideTheBatch) {
  Trainer trainer(small_step(3), testing::on_reference({.mesh = GetParam()}));
  EXPECT_EQ(trainer.micro_batches(), 3);
  expect_refused(trainer, small_batch(7), small_batch(6), "a batch of 7 rows cannot be cut into 3 equal micro-batches");
  expect_refused(trainer, {{"x", Literal::scalar(DType::F32, 1)}, {"label", labels({6}, 3)}}, small_batch(6), "cannot be cut into 3");
  expect_refused(trainer, {{"x", spread({6, 3})}, {"label", labels({9}, 3)}}, small_batch(6), "batch input label");
  EXPECT_GT(trainer.eval_batch(small_batch(7)).loss.value(), 0) << "evaluation cuts nothing";
}

TEST_P(TrainerOnMeshes, LoadStateChecksEverythingFirst) {
  Trainer trainer(small_step(), testing::on_reference({.mesh = GetParam()}));
  trainer.step(small_batch(4));
  const NamedArrays state = trainer.state();
  for (size_t i = 1; i < state.size(); ++i) EXPECT_LT(state[i - 1].first, state[i].first);
  NamedArrays bad = state;
  bad.erase(bad.begin());  // a.bias
  bad.emplace_back("stranger", Literal(DType::F32, {1}));
  for (auto& [name, value] : bad) {
    if (name == "b.weight") value = Literal(DType::F32, {3, 5});
    if (name == "b.bias") value = value.converted(DType::F64);
  }
  const std::string message = error_of([&] { trainer.load_state(bad, 7); });
  expect_holds(message, "missing a.bias");
  expect_holds(message, "unexpected stranger");
  expect_holds(message, "b.weight is f32[3, 5], wanted f32[3, 4]");
  expect_holds(message, "b.bias is f64[3], wanted f32[3]");
  NamedArrays twice = state;
  twice.push_back(state[2]);
  expect_holds(error_of([&] { trainer.load_state(twice, 7); }), "two values for " + state[2].first);
  expect_holds(error_of([&] { trainer.load_state(state, -1); }), "found -1 steps done");
  EXPECT_TRUE(trainer.state() == state);
  EXPECT_EQ(trainer.steps_done(), 1);
  // By name, whatever the order.
  NamedArrays reversed(state.rbegin(), state.rend());
  Trainer other(small_step(), testing::on_reference({.mesh = GetParam(), .seed = 5}));
  EXPECT_FALSE(other.state() == state);
  other.load_state(reversed, 1);
  EXPECT_TRUE(other.state() == state);
}

TEST_P(TrainerOnMeshes, ReplacesSomeOfTheState) {
  Trainer trainer(small_step(), testing::on_reference({.mesh = GetParam()}));
  trainer.step(small_batch(4));
  NamedArrays wanted = trainer.state();
  const auto weight = std::find_if(wanted.begin(), wanted.end(), [](const auto& state) { return state.first == "b.weight"; });
  weight->second = Literal::full(DType::F32, {3, 4}, 0.25);
  expect_holds(error_of([&] { trainer.replace_state({{"b.weight", Literal(DType::F32, {4})}, {"stranger", Literal(DType::F32, {1})}}, 2); }), "unexpected stranger");
  EXPECT_FALSE(trainer.state() == wanted);
  trainer.replace_state({*weight}, 2);
  EXPECT_TRUE(trainer.state() == wanted);
  EXPECT_EQ(trainer.steps_done(), 2);
}

TEST_P(TrainerOnMeshes, BatchesThatAreAMultipleOfASymbol) {
  const Dim pairs = Dim::symbol("pairs");
  const auto model = [](Scope s, Inputs in) -> Loss {
    const Value y = linear(s / "a", in["x"], 4);
    return mean(y * y);
  };
  Trainer trainer(train_step({{"x", DType::F32, {pairs * 2, 3}}}, model, Optimizer{}), testing::on_reference({.mesh = GetParam()}));
  Trainer one(train_step({{"x", DType::F32, {pairs * 2, 3}}}, model, Optimizer{}), testing::on_reference());
  for (const int64_t rows : {2, 4, 6, 10}) EXPECT_NEAR(trainer.step({{"x", spread({rows, 3})}}).loss, one.step({{"x", spread({rows, 3})}}).loss, 1e-6) << rows;
  expect_holds(error_of([&] { trainer.step({{"x", spread({5, 3})}}); }), "batch input x: found sizes [5, 3], the model wants f32[2*pairs, 3] with an integer pairs");
}

TEST(TrainerTest, WeightsAreParametersAndBuffers) {
  Trainer trainer(small_step(), testing::on_reference());
  std::vector<std::string> names;
  for (const auto& [name, value] : trainer.weights()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"a.bias", "a.weight", "b.bias", "b.weight", "bn.bias", "bn.num_batches_tracked", "bn.running_mean", "bn.running_var",
                                             "bn.weight"}));
  EXPECT_EQ(trainer.state().size(), names.size() + 2 * 6);
}

TEST(TrainerTest, TheSeedDecidesTheStart) {
  const NamedArrays three = Trainer(small_step(), testing::on_reference({.seed = 3})).state();
  EXPECT_TRUE(three == Trainer(small_step(), testing::on_reference({.mesh = "data=2", .seed = 3})).state());
  EXPECT_FALSE(three == Trainer(small_step(), testing::on_reference({.seed = 4})).state());
}

double difference(const NamedArrays& a, const NamedArrays& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    for (int64_t e = 0; e < a[i].second.count(); ++e) largest = std::max(largest, std::fabs(a[i].second.at(e) - b[i].second.at(e)));
  return largest;
}

// State that is split over ranks is one whole to the outside.
TEST(TrainerTest, StateInAnyLayout) {
  Optimizer optimizer;
  optimizer.epsilon = 1e-2;  // tiny gradients stay tiny steps
  const Module module = train_step(inputs, small_model, optimizer, {.clip_norm = 1.0});
  Trainer plain(module, testing::on_reference());
  for (int step = 0; step < 3; ++step) plain.step(small_batch(5));
  const auto layout = [](const char* pattern, const char* sharding) { return InputSharding{pattern, std::nullopt, parse_sharding(sharding)}; };
  for (const char* mesh : {"data=2", "data=2,model=3", "model=2,data=2"}) {
    const bool has_model = std::string(mesh).find("model") != std::string::npos;
    TrainerOptions options{.mesh = mesh};
    options.shardings = {layout("a.weight", "{data}, {}"), layout("a.weight.*", has_model ? "{data}, {model}" : "{}, {data}"), layout("b.bias*", has_model ? "{model}" : "{data}")};
    Trainer split(module, testing::on_reference(options));
    for (int step = 0; step < 3; ++step) split.step(small_batch(5));
    EXPECT_LT(difference(split.state(), plain.state()), 3e-6) << mesh;
    const NamedArrays state = split.state();
    split.step(small_batch(5));
    const NamedArrays after = split.state();
    Trainer resumed(module, testing::on_reference(options));
    resumed.load_state(state, 3);
    EXPECT_TRUE(resumed.state() == state) << mesh;
    resumed.step(small_batch(5));
    EXPECT_TRUE(resumed.state() == after) << mesh;
    EXPECT_EQ(resumed.eval_batch(small_batch(7)).loss, split.eval_batch(small_batch(7)).loss) << mesh;
  }
}

TEST(TrainerTest, ModulesAndMeshesThatDoNotFit) {
  expect_holds(error_of([] { Trainer trainer(capture(inputs, small_model), testing::on_reference()); }), "no entry 'step'");
  expect_holds(error_of([] { Trainer trainer(small_step(), testing::on_reference({.mesh = "data=0"})); }), "data");
  EXPECT_THROW(Trainer(small_step(), testing::on_reference({.mesh = "data"})), UserError);
  EXPECT_THROW(Trainer(small_step(), testing::on_reference({.skip = {"no such pass"}})), UserError);
  Module module = small_step();
  Graph& init = module.graph(module.entry("init"));
  init.outputs.pop_back();
  expect_holds(error_of([&] { Trainer trainer(module, testing::on_reference()); }), "entry init gives no value for state");
  module = small_step();
  std::swap(module.graph(module.entry("init")).outputs[0].role, module.graph(module.entry("init")).outputs[1].role);
  expect_holds(error_of([&] { Trainer trainer(module, testing::on_reference()); }), "elsewhere; in graph @");
}

// ---- a run repeated, and cut in two at any step

struct Trained {
  std::string name;
  ModelOptionValues options;
};
NamedArrays batch_of(const Trained& run, int64_t step) {
  if (run.name == "convnet") return {{"image", spread({6, 1, 4, 4}, static_cast<uint64_t>(step * 31))}, {"label", labels({6}, 4, step)}};
  return {{"tokens", labels({3, 6}, 13, step, DType::I32)}, {"targets", labels({3, 6}, 13, step + 5, DType::I32)}};
}
Module module_of(const Trained& run) {
  const ModelDefinition model = define_model(run.name, run.options);
  Optimizer optimizer;
  optimizer.rate = warmup_cosine(1e-2, 5, 60);
  optimizer.weight_decay = 0.1;
  return train_step(model.inputs, model.function, optimizer, {.clip_norm = 0.5, .micro_batches = run.name == "convnet" ? 1 : 3}, model.capture);
}

class TrainerRuns : public ::testing::TestWithParam<Trained> {};
INSTANTIATE_TEST_SUITE_P(Models, TrainerRuns,
                         ::testing::Values(Trained{"convnet", {{"size", "4"}, {"width", "4"}, {"classes", "4"}, {"dropout", "0.2"}}},
                                           Trained{"gpt", {{"layers", "2"}, {"width", "8"}, {"heads", "2"}, {"context", "6"}, {"vocabulary", "13"}, {"dropout", "0.1"}}}),
                         [](const auto& info) { return info.param.name; });

TEST_P(TrainerRuns, FiftyStepsAreTheSameAgainAndAfterEachResume) {
  const Trained& run = GetParam();
  const Module module = module_of(run);
  for (const char* mesh : {"", "data=2"}) {
    std::vector<double> losses;
    std::vector<NamedArrays> states;  // before each step
    Trainer trainer(module, testing::on_reference({.mesh = mesh, .seed = 3}));
    for (int64_t step = 0; step < 50; ++step) {
      states.push_back(trainer.state());
      losses.push_back(trainer.step(batch_of(run, step)).loss);
    }
    const NamedArrays last = trainer.state();
    for (int64_t from : {0, 1, 10, 49}) {
      Trainer other(module, testing::on_reference({.mesh = mesh, .seed = 3}));
      if (from > 0) {
        other.step(batch_of(run, 77));  // had a life of its own before
        other.load_state(states[static_cast<size_t>(from)], from);
      }
      for (int64_t step = from; step < 50; ++step) ASSERT_EQ(other.step(batch_of(run, step)).loss, losses[static_cast<size_t>(step)]) << "from " << from << ", step " << step;
      EXPECT_TRUE(other.state() == last) << "from " << from;
    }
  }
}

}  // namespace trainer_test
}  // namespace stepgraph
