// SPDX-License-Identifier: Apache-2.0
// Whole models of the zoo, with everything that makes ranks disagree when it is done wrong: dropout, batch norm over the whole batch, accumulation,
// clipping, batches that do not divide, ranks without rows. One to four ranks give one answer.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "stepgraph/base/pattern.h"
#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/reference/interpreter.h"
#include "stepgraph/reference/mesh_run.h"
#include "stepgraph/train/models/models.h"
#include "tests/parallel/mesh_check.h"

namespace stepgraph {
namespace models_agree_test {

struct Model {
  std::string name;
  ModelOptionValues options;
  int64_t classes;
  std::vector<int64_t> rows;      ///< whole batches; those that 3 divides are cut into 3 micro-batches too
  bool has_batch_norm = false;
  Optimizer::Kind optimizer = Optimizer::Kind::AdamW;
  double factor_f32 = 1;  ///< of the tolerance: twenty batch norms over a few values cancel nearly all of some gradients
};

std::vector<Model> all_models() {
  return {
      {"mlp", {{"size", "3"}, {"hidden", "8,5"}, {"classes", "4"}, {"dropout", "0.3"}}, 4, {12, 10, 7, 3, 1}, false, Optimizer::Kind::Sgd, 1},
      {"convnet", {{"size", "4"}, {"width", "3"}, {"classes", "4"}, {"dropout", "0.2"}}, 4, {12, 7, 3}, true, Optimizer::Kind::AdamW, 1},
      {"resnet", {{"size", "16"}, {"channels", "1"}, {"width", "4"}, {"classes", "3"}, {"stem", "small"}}, 3, {12, 7, 3}, true, Optimizer::Kind::Sgd, 2},
      {"gpt", {{"layers", "2"}, {"width", "8"}, {"heads", "2"}, {"context", "5"}, {"vocabulary", "11"}, {"dropout", "0.2"}}, 11, {12, 10, 7, 3}, false, Optimizer::Kind::AdamW, 1},
      {"bert", {{"layers", "2"}, {"width", "8"}, {"heads", "2"}, {"context", "5"}, {"vocabulary", "11"}, {"dropout", "0.2"}, {"mask_rate", "0.4"}}, 11, {12, 10, 7, 3}, false, Optimizer::Kind::AdamW, 1},
      // Targets of a part of the classes: logits start near zero, and over even targets the gradient of the last bias would cancel.
      {"llama", {{"layers", "2"}, {"width", "16"}, {"heads", "4"}, {"kv_heads", "2"}, {"inner", "12"}, {"context", "5"}, {"vocabulary", "11"}, {"dropout", "0.2"}}, 11, {12, 7, 3}, false, Optimizer::Kind::Adafactor, 1},
      {"moe", {{"layers", "2"}, {"width", "16"}, {"heads", "4"}, {"kv_heads", "2"}, {"inner", "12"}, {"experts", "3"}, {"capacity_factor", "0.7"}, {"z_loss", "0.01"}, {"context", "5"}, {"vocabulary", "11"}, {"dropout", "0.2"}}, 11, {12, 7, 3}, false, Optimizer::Kind::AdamW, 1},
      {"lstm", {{"layers", "2"}, {"width", "8"}, {"context", "5"}, {"vocabulary", "11"}, {"dropout", "0.2"}}, 4, {12, 7, 3}, false, Optimizer::Kind::Rmsprop, 1},
      {"vit", {{"size", "8"}, {"channels", "1"}, {"patch", "4"}, {"layers", "2"}, {"width", "8"}, {"heads", "2"}, {"classes", "5"}, {"dropout", "0.2"}}, 5, {12, 7, 3}, false, Optimizer::Kind::AdamW, 1},
      {"unet", {{"size", "4"}, {"channels", "1"}, {"width", "3"}, {"levels", "1"}, {"classes", "3"}}, 2, {12, 3}, true, Optimizer::Kind::Sgd, 4},
      {"convnext", {{"size", "8"}, {"channels", "1"}, {"width", "4"}, {"blocks", "1,1"}, {"classes", "3"}}, 2, {12, 7, 3}, false, Optimizer::Kind::Adagrad, 1},
  };
}

Optimizer optimizer_of(const Model& model) {
  Optimizer optimizer;
  optimizer.kind = model.optimizer;
  optimizer.rate = warmup_cosine(0.02, 2, 10);
  optimizer.epsilon = 1e-2;  // a smaller one turns the rounding of tiny gradients into whole steps
  optimizer.weight_decay = 0.1;
  if (model.optimizer == Optimizer::Kind::Adagrad) optimizer.ema_decay = 0.9;
  if (model.optimizer == Optimizer::Kind::Sgd) optimizer.momentum = 0.9, optimizer.nesterov = true;
  return optimizer;
}

Module step_of(const Model& model, int64_t micro_batches, DType dtype) {
  const ModelDefinition definition = define_model(model.name, model.options);
  Module forward = capture(definition.inputs, definition.function, definition.capture);
  Optimizer optimizer = optimizer_of(model);
  // Where there is one: a pattern that matches nothing is an error.
  for (const GraphInput& input : forward.graph(forward.entry("forward")).inputs)
    if (input.role.kind == RoleKind::Parameter && matches("*.bias", input.role.name)) optimizer.no_decay = {"*.bias"};
  Module module = train_step(std::move(forward), optimizer, {.clip_norm = 0.05, .micro_batches = micro_batches, .gradients_as_outputs = true});
  return with_floating_dtype(std::move(module), dtype);
}

using Named = std::map<std::string, Literal>;  // "gradient wte.weight"
struct StepRun {
  Named outputs;
  Named state;
};

/// One entry compiled for a mesh ("": as captured, on one device), run with state by name.
class Runner {
 public:
  Runner(const Module& module, const std::string& mesh) : logical_(module) {
    logical_.entries = {{"step", module.entry("step")}};
    logical_ = prune_graphs(std::move(logical_));
    init_ = module;
    local_ = logical_;
    if (mesh.empty()) return;
    CompileOptions options;
    options.mesh = parse_mesh(mesh);
    local_ = compile(logical_, options);
    on_mesh_ = true;
  }
  Named start() const {
    const Graph& graph = init_.graph(init_.entry("init"));
    const auto values = evaluate_graph(init_, init_.entry("init"), std::vector<Literal>{Literal::integer(DType::I64, 5)});
    Named state;
    for (size_t i = 0; i < values.size(); ++i) state[graph.outputs[i].role.name] = values[i];
    return state;
  }
  StepRun step(const Named& state, const Named& batch, int64_t number, const SymbolValues& symbols) const {
    const Graph& graph = logical_.graph(logical_.entries[0].graph);
    std::vector<Literal> inputs;
    for (const GraphInput& input : graph.inputs) {
      if (is_state(input.role.kind)) inputs.push_back(state.at(input.role.name));
      else if (input.role.kind == RoleKind::Batch) inputs.push_back(batch.at(input.role.name));
      else inputs.push_back(Literal::integer(DType::I64, input.role.kind == RoleKind::Seed ? 11 : number));
    }
    const GraphId id = local_.entries[0].graph;
    const std::vector<Literal> values = on_mesh_ ? run_on_mesh(local_, id, inputs, symbols).outputs : evaluate_graph(local_, id, inputs, symbols);
    StepRun run{{}, state};
    for (size_t i = 0; i < values.size(); ++i) {
      const Role& role = graph.outputs[i].role;
      if (role.kind == RoleKind::NewState) run.state[role.name] = values[i];
      else run.outputs[std::string(name(role.kind)) + " " + role.name] = values[i];
    }
    return run;
  }

 private:
  Module logical_, local_, init_;
  bool on_mesh_ = false;
};

/// A whole batch for the model, and the same rows as micro-batches.
Named batch_of(const Model& model, int64_t rows, int64_t micro_batches, DType dtype) {
  Named batch;
  for (const InputSpec& input : define_model(model.name, model.options).inputs) {
    Sizes sizes;
    for (const Dim& dim : input.shape) sizes.push_back(dim.is_constant() ? dim.constant() : rows);
    Literal value = is_floating(input.dtype) ? numbers(dtype, sizes) : indices(sizes, model.classes).converted(input.dtype);
    if (micro_batches > 1) sizes[0] /= micro_batches, sizes.insert(sizes.begin(), micro_batches);
    batch[input.name] = value.reshaped(sizes);
  }
  return batch;
}

double largest(const Literal& value) {
  double result = 0;
  for (int64_t i = 0; i < value.count(); ++i) result = std::max(result, std::fabs(value.at(i)));
  return result;
}

/// Relative to the tensor's largest magnitude; `floor` is what counts as zero beside the other tensors.
void expect_near(const Literal& found, const Literal& wanted, double tolerance, double floor, const std::string& what) {
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  const double scale = std::max(largest(wanted), floor);
  double worst = 0;
  for (int64_t i = 0; i < wanted.count(); ++i) {
    ASSERT_TRUE(std::isfinite(found.at(i)) && std::isfinite(wanted.at(i))) << what << " element " << i;
    worst = std::max(worst, std::fabs(found.at(i) - wanted.at(i)));
  }
  EXPECT_LE(worst, tolerance * scale) << what << ", largest " << largest(wanted);
}

/// Parameters whose true gradient is zero: an optimizer that divides by its size makes noise of it.
bool has_zero_gradient(const std::string& parameter) {
  return parameter.find("attn.c_attn.bias") != std::string::npos || parameter.find("key.bias") != std::string::npos;
}

void expect_same(const StepRun& found, const StepRun& wanted, double tolerance, bool first_step, const std::string& what) {
  double gradients = 0;
  for (const auto& [name, value] : wanted.outputs)
    if (name.starts_with("gradient ")) gradients = std::max(gradients, largest(value));
  for (const auto& [name, value] : wanted.outputs) {
    if (!first_step && name.starts_with("gradient ")) continue;
    expect_near(found.outputs.at(name), value, tolerance * (first_step ? 1 : 30), name.starts_with("gradient ") ? 1e-3 * gradients : 0, what + ", " + name);
  }
  for (const auto& [name, value] : wanted.state)
    if (!has_zero_gradient(name)) expect_near(found.state.at(name), value, tolerance * (first_step ? 1 : 30), 1e-3, what + ", state " + name);
}

void check_agreement(const Model& model, DType dtype, double tolerance) {
  for (int64_t micro_batches : {1, 3}) {
    const Module module = step_of(model, micro_batches, dtype);
    std::vector<std::pair<std::string, Runner>> runners;
    for (const char* mesh : {"", "data=2", "data=3", "data=4"}) runners.emplace_back(mesh, Runner(module, mesh));
    const Named start = runners[0].second.start();
    for (int64_t rows : model.rows) {
      if (rows % micro_batches != 0) continue;
      // Statistics of one row in one place are no statistics: the gradient is noise divided by epsilon.
      if (model.has_batch_norm && rows / micro_batches < 2) continue;
      const Named batch = batch_of(model, rows, micro_batches, dtype);
      const SymbolValues symbols = {{"batch", rows / micro_batches}};
      std::vector<StepRun> wanted;
      for (int64_t number = 0; number < 3; ++number)
        wanted.push_back(runners[0].second.step(number ? wanted.back().state : start, batch, number, symbols));
      for (size_t r = 1; r < runners.size(); ++r) {
        StepRun run{{}, start};
        for (int64_t number = 0; number < 3; ++number) {
          run = runners[r].second.step(run.state, batch, number, symbols);
          const std::string what = model.name + " of " + std::to_string(rows) + " rows in " + std::to_string(micro_batches) + " on " + runners[r].first +
                                   ", step " + std::to_string(number);
          expect_same(run, wanted[static_cast<size_t>(number)], tolerance, number == 0, what);
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

class WholeModels : public ::testing::TestWithParam<Model> {};
TEST_P(WholeModels, RanksAgreeInF64) { check_agreement(GetParam(), DType::F64, 1e-12); }
TEST_P(WholeModels, RanksAgreeInF32) { check_agreement(GetParam(), DType::F32, 1e-6 * GetParam().factor_f32); }

TEST_P(WholeModels, ClippingIsActive) {
  const Model& model = GetParam();
  const Runner runner(step_of(model, 1, DType::F32), "");
  const StepRun run = runner.step(runner.start(), batch_of(model, 12, 1, DType::F32), 0, {{"batch", 12}});
  EXPECT_GT(run.outputs.at("gradient_norm ").at(0), 0.05);
}

std::vector<Model> models_without_batch_norm() {
  std::vector<Model> models = all_models();
  std::erase_if(models, [](const Model& model) { return model.has_batch_norm; });
  return models;
}

/// The same rows with the same masks, whatever the number of slices. Batch norm's statistics are those of a slice: such models are left out.
class SlicedModels : public ::testing::TestWithParam<Model> {};
TEST_P(SlicedModels, MicroBatchesChangeNothing) {
  const Model& model = GetParam();
  for (const auto& [dtype, tolerance] : {std::pair{DType::F64, 1e-12}, std::pair{DType::F32, 1e-6}}) {
    const Runner whole(step_of(model, 1, dtype), "");
    const StepRun wanted = whole.step(whole.start(), batch_of(model, 12, 1, dtype), 4, {{"batch", 12}});
    for (int64_t micro_batches : {2, 3, 4, 12}) {
      const Runner sliced(step_of(model, micro_batches, dtype), micro_batches == 4 ? "data=2" : "");
      const StepRun found = sliced.step(whole.start(), batch_of(model, 12, micro_batches, dtype), 4, {{"batch", 12 / micro_batches}});
      expect_same(found, wanted, tolerance, true, model.name + " in " + std::to_string(micro_batches) + " slices");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, SlicedModels, ::testing::ValuesIn(models_without_batch_norm()), [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Zoo, WholeModels, ::testing::ValuesIn(all_models()), [](const auto& info) { return info.param.name; });

}  // namespace models_agree_test
}  // namespace stepgraph
