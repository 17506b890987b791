// SPDX-License-Identifier: Apache-2.0
// Plans and code of forms from the compile cache: bit for bit those that are compiled, whatever became of the files; and what is made again for what change.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "stepgraph/backend/plan_cache.h"
#include "stepgraph/base/file.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ir/text_hash.h"
#include "stepgraph/program/plan_file.h"
#include "stepgraph/program/plan_text.h"
#include "stepgraph/train/cached_module.h"
#include "stepgraph/train/models/models.h"
#include "stepgraph/train/trainer.h"
#include "tests/support/temporary_folder.h"

namespace stepgraph {
namespace codegen_plan_cache {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

struct Watched {
  explicit Watched(const std::string& folder)
      : cache(std::make_shared<CompileCache>(CacheOptions{folder, int64_t{1} << 30, [this](const std::string& message) { warnings.push_back(message); }})) {}
  std::vector<std::string> warnings;
  std::shared_ptr<CompileCache> cache;
};

Module step_of(const std::string& model, const ModelOptionValues& options, const Optimizer& optimizer = {}) {
  const ModelDefinition definition = define_model(model, options);
  return train_step(capture(definition.inputs, definition.function, definition.capture), optimizer);
}
Module small_mlp(const std::string& hidden = "8,5") { return step_of("mlp", {{"size", "3"}, {"hidden", hidden}, {"classes", "4"}}); }
Module small_gpt(int layers) {
  return step_of("gpt", {{"layers", std::to_string(layers)}, {"width", "8"}, {"heads", "2"}, {"context", "5"}, {"vocabulary", "11"}});
}

NamedArrays batch_of(const Module& module, int64_t rows) {
  NamedArrays batch;
  const Graph& step = module.graph(module.entry("step"));
  for (const GraphInput& input : step.inputs) {
    if (input.role.kind != RoleKind::Batch) continue;
    const TensorType& type = step.type(input.value);
    Sizes sizes;
    for (const Dim& dim : type.shape) sizes.push_back(dim.is_constant() ? dim.constant() : rows);
    Literal value(type.dtype, sizes);
    for (int64_t i = 0; i < value.count(); ++i) {
      if (is_floating(type.dtype))
        value.set(i, std::sin(1.3 * static_cast<double>(i)));
      else
        value.set_integer(i, (i * 5 + i / 3) % 4);
    }
    batch.emplace_back(input.role.name, std::move(value));
  }
  return batch;
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::string> state;
  std::vector<PlanRecord> plans;
};
Trained train(const Module& module, const BackendOptions& backend, const std::string& mesh = "", const std::vector<int64_t>& rows = {4, 4, 4}) {
  TrainerOptions options;
  options.mesh = mesh;
  options.backend = backend;
  options.largest_batch = rows[0];
  Trainer trainer(module, options);
  Trained trained;
  for (const int64_t count : rows) trained.losses.push_back(trainer.step(batch_of(module, count)).loss);
  for (const auto& [name, value] : trainer.state()) trained.state.emplace_back(reinterpret_cast<const char*>(value.data()), value.byte_count());
  trained.plans = trainer.compile_log().plans;
  return trained;
}
BackendOptions with(const Watched& watched) {
  BackendOptions options;
  options.backend = Backend::Full;
  options.threads = 2;
  options.cache = watched.cache;
  return options;
}
void expect_same(const Trained& found, const Trained& wanted) {
  EXPECT_EQ(found.losses, wanted.losses);
  EXPECT_EQ(found.state, wanted.state);
}

class PlanCacheModels : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Zoo, PlanCacheModels, ::testing::Values("mlp", "gpt", "lstm"), [](const auto& info) { return info.param; });

/// On one rank and on two; without a cache, into an empty one, from a full one, and from one with code alone.
TEST_P(PlanCacheModels, TrainsBitForBitTheSame) {
  const Module module = GetParam() == "mlp"   ? small_mlp()
                        : GetParam() == "gpt" ? small_gpt(2)
                                              : step_of("lstm", {{"width", "8"}, {"context", "6"}, {"vocabulary", "11"}});
  for (const std::string mesh : {"", "data=2"}) {
    const TemporaryFolder folder;
    Watched watched(folder / "c");
    BackendOptions without = with(watched);
    without.cache = nullptr;
    const Trained plain = train(module, without, mesh), cold = train(module, with(watched), mesh), warm = train(module, with(watched), mesh);
    ASSERT_EQ(plain.plans.size(), 1U);
    EXPECT_EQ(plain.plans[0].why_made, "");
    EXPECT_EQ(plain.plans[0].forms_made, plain.plans[0].forms);
    ASSERT_EQ(cold.plans.size(), 1U);
    EXPECT_FALSE(cold.plans[0].is_cached);
    EXPECT_EQ(cold.plans[0].why_made, "the cache has nothing like it");
    EXPECT_EQ(cold.plans[0].forms_made, plain.plans[0].forms);
    ASSERT_EQ(warm.plans.size(), 1U);
    EXPECT_TRUE(warm.plans[0].is_cached);
    EXPECT_EQ(warm.plans[0].forms, plain.plans[0].forms);
    EXPECT_EQ(warm.plans[0].forms_made, 0);
    fs::remove_all(folder / "c/plan");
    const Trained code_alone = train(module, with(watched), mesh);
    EXPECT_EQ(code_alone.plans.at(0).forms_made, 0);
    for (const Trained* found : {&cold, &warm, &code_alone}) expect_same(*found, plain);
    EXPECT_TRUE(watched.warnings.empty());
  }
}

TEST(PlanCache, ALargerBatchNeedsNoOtherPlan) {
  const TemporaryFolder folder;
  Watched watched(folder / "c");
  const Trained first = train(small_mlp(), with(watched), "", {4, 9}), again = train(small_mlp(), with(watched), "", {4, 9});
  ASSERT_EQ(again.plans.size(), 1U);
  EXPECT_TRUE(again.plans[0].is_cached);
  expect_same(again, first);
}

/// What passes gave reads back as it was, and no pass runs a second time.
TEST(ModuleCache, GivesWhatPassesGave) {
  for (const std::string model : {"mlp", "gpt", "lstm", "resnet", "moe", "convnet"}) {
    const TemporaryFolder folder;
    Watched watched(folder / "c");
    const Module forward = build_model(model);
    CompileOptions options;
    options.training = TrainingOptions{};
    options.mesh = parse_mesh("data=2");
    const Module plain = compile(forward, options);
    PassLog cold, warm;
    const Module made = compile_cached(forward, options, watched.cache, &cold), found = compile_cached(forward, options, watched.cache, &warm);
    EXPECT_EQ(print_module(made), print_module(plain)) << model;
    EXPECT_EQ(print_module(found), print_module(plain)) << model;
    EXPECT_EQ(text_hash(found), text_hash(plain)) << model;
    EXPECT_EQ(module_hash(found), module_hash(plain)) << model;
    EXPECT_GT(cold.passes.size(), 5U);
    EXPECT_EQ(cold.passes[0].why, "the cache has nothing like it");
    ASSERT_EQ(warm.passes.size(), 1U) << model;
    EXPECT_EQ(warm.passes[0].name, "cache");
    EXPECT_EQ(warm.passes[0].why, "");
    // Damaged behind its hashes.
    watched.cache->store(module_key(forward, options), "", print_module(plain).substr(0, 300));
    EXPECT_EQ(print_module(compile_cached(forward, options, watched.cache, nullptr)), print_module(plain)) << model;
    EXPECT_EQ(watched.warnings.size(), 1U);
  }
}

TEST(ModuleCache, EachOptionIsAComponent) {
  const Module forward = build_model("mlp");
  CompileOptions options;
  options.training = TrainingOptions{};
  const CacheKey key = module_key(forward, options);
  const auto expect_differs = [&](const std::string& component, const std::function<void(CompileOptions&, Optimizer&, StepOptions&)>& change) {
    CompileOptions changed = options;
    change(changed, changed.training->optimizer, changed.training->step);
    const std::vector<KeyDifference> found = differences(key, module_key(forward, changed));
    ASSERT_EQ(found.size(), 1U) << component << ": " << text(found);
    EXPECT_EQ(found[0].component, component);
  };
  using C = CompileOptions;
  using O = Optimizer;
  using S = StepOptions;
  expect_differs("optimizer.lr", [](C&, O& o, S&) { o.rate.rate = 0.1000000000000001; });
  expect_differs("schedule", [](C&, O& o, S&) { o.rate.kind = Schedule::Kind::WarmupCosine; });
  expect_differs("schedule", [](C&, O& o, S&) { o.rate.factor = 0.2; });
  expect_differs("optimizer.name", [](C&, O& o, S&) { o.kind = Optimizer::Kind::Lion; });
  expect_differs("optimizer.beta1", [](C&, O& o, S&) { o.beta1 = 0.8; });
  expect_differs("optimizer.nesterov", [](C&, O& o, S&) { o.nesterov = true; });
  expect_differs("optimizer.ema_decay", [](C&, O& o, S&) { o.ema_decay = 0; });
  expect_differs("optimizer.no_decay", [](C&, O& o, S&) { o.no_decay = {"*.bias"}; });
  expect_differs("optimizer.groups", [](C&, O& o, S&) { o.groups = {{.patterns = {"*.bias"}, .weight_decay = 0}}; });
  expect_differs("train.clip_norm", [](C&, O&, S& s) { s.clip_norm = 1; });
  expect_differs("train.micro_batches", [](C&, O&, S& s) { s.micro_batches = 2; });
  expect_differs("train.gradients_as_outputs", [](C&, O&, S& s) { s.gradients_as_outputs = true; });
  expect_differs("train.loss_scale", [](C&, O&, S& s) { s.loss_scale.growth = 3; });
  expect_differs("mesh", [](C& c, O&, S&) { c.mesh = parse_mesh("data=2"); });
  expect_differs("shardings", [](C& c, O&, S&) { c.sharding.inputs = {{"*.weight", std::nullopt, parse_sharding("{}")}}; });
  expect_differs("batch_axes", [](C& c, O&, S&) { c.sharding.batch_axes = {"data"}; });
  expect_differs("skip", [](C& c, O&, S&) { c.skip = {"cse"}; });
  expect_differs("stop_at", [](C& c, O&, S&) { c.stop_at = "clip"; });
  Module moved = forward;
  moved.graph(moved.entry("forward")).nodes.back().place = {"model.sg", 7};
  EXPECT_EQ(text(differences(key, module_key(moved, options))).substr(0, 12), "module: was ") << "messages name places";
}

struct Made {
  StepPlan plan;
  PlanRecord record;
};
Made make(const Module& local, const BackendOptions& options, const Target& target) {
  PassLog log;
  Made made{compile_plan(local, options, target, &log), {}};
  made.record = log.plans.at(0);
  return made;
}
BackendOptions sized(const Watched& watched) {
  BackendOptions options = with(watched);
  options.largest["batch"] = 4;
  return options;
}
Target two_threads() {
  Target target;
  target.threads = 2;
  return target;
}

TEST(PlanCache, EachComponentIsAMissOfItsName) {
  const Module local = compile(small_mlp());
  const auto expect_miss = [&](const Module& module, const std::function<void(BackendOptions&, Target&)>& change, const std::string& component) {
    const TemporaryFolder folder;
    Watched watched(folder / "c");
    BackendOptions options = sized(watched);
    Target target = two_threads();
    make(local, options, target);
    change(options, target);
    const PlanRecord record = make(module, options, target).record;
    EXPECT_FALSE(record.is_cached) << component;
    EXPECT_TRUE(record.why_made.starts_with(component + ": was ")) << record.why_made;
    EXPECT_EQ(record.why_made.find(';'), std::string::npos) << record.why_made;
  };
  const auto nothing = [](BackendOptions&, Target&) {};
  expect_miss(compile(small_mlp("8,6")), nothing, "module");
  Module renamed = local;
  renamed.graph(renamed.entry("step")).nodes.back().scope = "elsewhere";
  expect_miss(renamed, nothing, "module");
  Module other_phase = local;
  other_phase.graph(other_phase.entry("step")).nodes.back().phase = Phase::Sync;
  expect_miss(other_phase, nothing, "module");
  expect_miss(local, [](BackendOptions& options, Target&) { options.backend = Backend::Segment; }, "backend");
  expect_miss(local, [](BackendOptions& options, Target&) { options.skip = {"fuse"}; }, "skip");
  expect_miss(local, [](BackendOptions& options, Target&) { options.largest["batch"] = 5; }, "largest");
  expect_miss(local, [](BackendOptions&, Target& target) { target.threads = 3; }, "target.threads");
  expect_miss(local, [](BackendOptions&, Target& target) { target.l1_bytes *= 2; }, "target.l1_bytes");
  expect_miss(local, [](BackendOptions&, Target& target) { target.l2_bytes *= 2; }, "target.l2_bytes");
  expect_miss(local, [](BackendOptions&, Target& target) { target.flush_denormals = true; }, "target.flush_denormals");
  expect_miss(local, [](BackendOptions& options, Target&) { options.taps = {"forward/*"}; }, "taps");
  expect_miss(local, [](BackendOptions& options, Target&) { options.tuning.matmuls[{.m = 4, .n = 8, .k = 27}] = {GemmLibrary::OpenBlas, {}}; }, "tuning");
  expect_miss(local, [](BackendOptions&, Target& target) { target.granularity_bytes *= 2; }, "target.granularity_bytes");
}

TEST(PlanCache, ItsKeyNamesWhatItWasMadeBy) {
  const TemporaryFolder folder;
  Watched watched(folder / "c");
  const CacheKey key = plan_key(compile(small_mlp()), sized(watched), two_threads());
  std::set<std::string> names;
  for (const auto& [name, value] : key.components) {
    names.insert(name);
    if (name != "skip" && name != "taps" && name != "tuning") EXPECT_NE(value, "") << name;
  }
  EXPECT_EQ(names, (std::set<std::string>{"backend", "largest", "libraries", "llvm", "memory_budget", "module", "plan_file", "skip", "stepgraph", "taps", "target.flush_denormals",
                                          "target.granularity_bytes", "target.isa", "target.l1_bytes", "target.l2_bytes", "target.threads", "tuning"}));
  Target wide = two_threads();
  wide.isa = InstructionSet::Avx512;
  Form form;
  EXPECT_NE(form_key(form, wide).hash(), form_key(form, two_threads()).hash());
}

/// What the entry holds is changed behind its hashes too: it is no plan, or that of another form.
TEST(PlanCache, DamagedEntriesAreMadeAgainWithOneWarningEach) {
  const TemporaryFolder folder;
  const Module local = compile(small_mlp());
  Watched first(folder / "c");
  const StepPlan plan = make(local, sized(first), two_threads()).plan;
  const CacheKey key = plan_key(local, sized(first), two_threads());
  const auto expect_made = [&](const std::string& what, int64_t forms_made, size_t warnings) {
    Watched watched(folder / "c");
    const Made made = make(local, sized(watched), two_threads());
    EXPECT_FALSE(made.record.is_cached) << what;
    EXPECT_EQ(made.record.why_made, "its entry is damaged") << what;
    EXPECT_EQ(made.record.forms_made, forms_made) << what;
    EXPECT_EQ(plan_file_bytes(made.plan), plan_file_bytes(plan)) << what;
    EXPECT_EQ(watched.warnings.size(), warnings) << what;
    EXPECT_TRUE(make(local, sized(watched), two_threads()).record.is_cached) << what;
    EXPECT_EQ(watched.warnings.size(), warnings) << what;
  };
  std::vector<std::string> contents = {"", "no plan", plan_file_bytes(plan).substr(0, 100)};
  const std::string bytes = plan_file_bytes(plan);
  for (size_t i = 0; i < bytes.size(); i += bytes.size() / 7) {
    contents.push_back(bytes);
    contents.back()[i] ^= 1;
  }
  for (const std::string& content : contents) {
    first.cache->store(key, "", content);
    expect_made("content of " + std::to_string(content.size()) + " bytes", 0, 1);
  }
  first.cache->store(key, "", "no plan");
  StepPlan other;
  other.forms = {plan.forms[1]};
  other.code = {plan.code[1]};
  first.cache->store(form_key(plan.forms[0], two_threads()), "", plan_file_bytes(other));
  expect_made("another form's code", 1, 2);
  for (const auto& file : fs::directory_iterator(folder / "c/form")) fs::resize_file(file, fs::file_size(file) - 1);
  first.cache->store(key, "", "no plan");
  expect_made("all code cut off", static_cast<int64_t>(plan.forms.size()), plan.forms.size() + 1);
}

/// Layers that stay keep their code: the forms that are made are those that the plan before had not.
TEST(PlanCache, AnEditedLayerMakesItsFormsAlone) {
  const auto forms_of = [](const StepPlan& plan) {
    std::set<std::string> forms;
    for (const FormCode& code : plan.code) forms.insert(code.symbol);
    return forms;
  };
  const auto expect_new_forms_alone = [&](const Module& before, const Module& after, int64_t least, int64_t most) {
    const TemporaryFolder folder;
    Watched watched(folder / "c");
    const std::set<std::string> old_forms = forms_of(make(before, sized(watched), two_threads()).plan);
    const Made made = make(after, sized(watched), two_threads());
    int64_t added = 0;
    for (const std::string& form : forms_of(made.plan)) added += old_forms.contains(form) ? 0 : 1;
    EXPECT_EQ(made.record.forms_made, added);
    EXPECT_GE(added, least);
    EXPECT_LE(added, most);
    EXPECT_TRUE(made.record.why_made.starts_with("module: was ")) << made.record.why_made;
    BackendOptions without = sized(watched);
    without.cache = nullptr;
    EXPECT_EQ(plan_file_bytes(make(after, without, two_threads()).plan), plan_file_bytes(made.plan));
  };
  const int64_t gpt_forms = static_cast<int64_t>(make(
                                                     compile(small_gpt(2)),
                                                     [] {
                                                       BackendOptions options;
                                                       options.backend = Backend::Full;
                                                       options.largest["batch"] = 4;
                                                       return options;
                                                     }(),
                                                     two_threads())
                                                     .plan.forms.size());
  expect_new_forms_alone(compile(small_gpt(2)), compile(small_gpt(3)), 0, gpt_forms / 4);
  // Sizes that a model fixes stand in its forms.
  expect_new_forms_alone(compile(small_mlp("8,5,7")), compile(small_mlp("8,6,7")), 1, INT64_MAX);
}

TEST(PlanCache, VerifyFindsWhatIsNoPlan) {
  const TemporaryFolder folder;
  Watched watched(folder / "c");
  const Module local = compile(small_mlp());
  StepPlan plan = make(local, sized(watched), two_threads()).plan;
  for (const CacheEntry& entry : watched.cache->entries(true)) EXPECT_EQ(problem_of(*watched.cache, entry), "") << entry.path;
  // An arena that is too small: hashes do not tell, the verifier does.
  for (PlanEntry& entry : plan.entries) entry.arena_bytes = 0;
  watched.cache->store(plan_key(local, sized(watched), two_threads()), "", plan_file_bytes(plan));
  int64_t problems = 0;
  for (const CacheEntry& entry : watched.cache->entries(true)) {
    const std::string problem = problem_of(*watched.cache, entry);
    if (problem.empty()) continue;
    ++problems;
    EXPECT_EQ(entry.key.kind, "plan");
    EXPECT_NE(problem.find("plan: entry "), std::string::npos) << problem;
  }
  EXPECT_EQ(problems, 1);
}

}  // namespace codegen_plan_cache
}  // namespace stepgraph
