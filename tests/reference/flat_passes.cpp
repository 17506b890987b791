// SPDX-License-Identifier: Apache-2.0
// Whole training steps on the interpreter, before and after each pass that makes the flat program for kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/flat.h"
#include "stepgraph/reference/mesh_run.h"
#include "stepgraph/train/data/arrays.h"
#include "stepgraph/train/imported_model.h"
#include "stepgraph/train/models/models.h"
#include "tests/support/places.h"

namespace stepgraph {
namespace flat_passes_test {

const std::string samples = std::string(testing::source_root()) + "/tests/samples/";

/// A Local module and what its step takes.
struct Program {
  std::string name;
  Module local;
  std::vector<Literal> inputs;
  SymbolValues symbols;
  double tolerance = 1e-6;
};
using Outputs = std::vector<Literal>;

Outputs run_step(const Program& program, const Module& module) { return run_on_mesh(module, module.entry("step"), program.inputs, program.symbols).outputs; }

/// Passes that may take sums in another order, or leave out a rounding.
bool is_default_class(const std::string& pass) {
  static const std::set<std::string> names = {"canonicalize", "widen_products", "hoist"};
  return names.count(pass) > 0;
}

double largest(const Literal& value) {
  double result = 0;
  for (int64_t i = 0; i < value.count(); ++i) result = std::max(result, std::fabs(value.at(i)));
  return result;
}

void expect_same(const Outputs& found, const Outputs& wanted, double tolerance, const Module& module, const std::string& what) {
  const Graph& graph = module.graph(module.entry("step"));
  ASSERT_EQ(found.size(), wanted.size()) << what;
  double gradients = 0;
  for (size_t o = 0; o < wanted.size(); ++o)
    if (graph.outputs[o].role.kind == RoleKind::Gradient) gradients = std::max(gradients, largest(wanted[o]));
  for (size_t o = 0; o < wanted.size(); ++o) {
    const Role& role = graph.outputs[o].role;
    const std::string output = what + ", " + std::string(name(role.kind)) + " " + role.name;
    ASSERT_EQ(found[o].sizes(), wanted[o].sizes()) << output;
    if (tolerance == 0) {
      EXPECT_TRUE(found[o] == wanted[o]) << output;
      continue;
    }
    // What is small beside the other gradients is the rounding of a zero.
    const double scale = std::max(largest(wanted[o]), role.kind == RoleKind::Gradient ? 1e-2 * gradients : 1e-3);
    double worst = 0;
    for (int64_t i = 0; i < wanted[o].count(); ++i) worst = std::max(worst, std::fabs(found[o].at(i) - wanted[o].at(i)));
    EXPECT_LE(worst, tolerance * scale) << output << ", largest " << largest(wanted[o]);
  }
}

/// After each pass the step computes what it did before it.
void check_passes(const Program& program) {
  const Outputs start = run_step(program, program.local);
  for (const Literal& output : start)
    for (int64_t i = 0; i < output.count(); ++i) ASSERT_TRUE(std::isfinite(output.at(i))) << program.name;
  Outputs before = start;
  for (const std::string& pass : flat_pass_names()) {
    const Module module = flatten_for_kernels(program.local, {}, nullptr, pass);
    const Outputs after = run_step(program, module);
    expect_same(after, before, is_default_class(pass) ? program.tolerance : 0, module, program.name + " after " + pass);
    if (::testing::Test::HasFailure()) return;
    before = after;
  }
}

/// The whole list without any one of its passes computes the same.
void check_without_each(const Program& program) {
  const Outputs start = run_step(program, program.local);
  for (const std::string& pass : flat_pass_names()) {
    if (pass == "flatten") continue;
    const Module module = flatten_for_kernels(program.local, {pass});
    expect_same(run_step(program, module), start, program.tolerance, module, program.name + " without " + pass);
    if (::testing::Test::HasFailure()) return;
  }
}

CompileOptions options_of(int64_t micro_batches, const std::string& mesh) {
  CompileOptions options;
  options.training = TrainingOptions{};
  options.training->optimizer.epsilon = 1e-2;  // a smaller one turns the rounding of tiny gradients into whole steps
  options.training->step.clip_norm = 0.5;
  options.training->step.micro_batches = micro_batches;
  options.training->step.gradients_as_outputs = true;
  if (!mesh.empty()) options.mesh = parse_mesh(mesh);
  return options;
}

/// Inputs of `step`: what init gives, a batch by name, a seed and a number of step.
void set_inputs(Program& program, std::map<std::string, Literal> values) {
  const Module& module = program.local;
  const GraphId init = module.entry("init");
  const Outputs state = run_on_mesh(module, init, std::vector<Literal>{Literal::integer(DType::I64, 5)}).outputs;
  for (size_t i = 0; i < state.size(); ++i) values.try_emplace(module.graph(init).outputs[i].role.name, state[i]);
  const Graph& step = module.graph(module.entry("step"));
  for (const GraphInput& input : step.inputs) {
    const bool is_named = is_state(input.role.kind) || input.role.kind == RoleKind::Batch;
    program.inputs.push_back(is_named ? values.at(input.role.name) : Literal::integer(DType::I64, input.role.kind == RoleKind::Seed ? 11 : 1));
  }
}

struct ZooModel {
  std::string name;
  ModelOptionValues options;
  int64_t rows, classes;
};

Program zoo_program(const ZooModel& model, DType autocast, int64_t micro_batches, const std::string& mesh) {
  ModelDefinition definition = define_model(model.name, model.options);
  if (is_half(autocast)) definition.capture.autocast.dtype = autocast;
  Module forward = capture(definition.inputs, definition.function, definition.capture);
  Program program{model.name, compile(std::move(forward), options_of(micro_batches, mesh)), {}, {{"batch", model.rows / micro_batches}}};
  program.name += " as " + std::string(name(autocast)) + " in " + std::to_string(micro_batches) + " on " + (mesh.empty() ? "one" : mesh);
  if (is_half(autocast)) program.tolerance = autocast == DType::F16 ? 5e-3 : 4e-2;
  std::map<std::string, Literal> batch;
  for (const InputSpec& input : definition.inputs) {
    Sizes sizes;
    for (const Dim& dim : input.shape) sizes.push_back(dim.is_constant() ? dim.constant() : model.rows);
    Literal value(input.dtype, sizes);
    for (int64_t i = 0; i < value.count(); ++i) {
      if (is_floating(input.dtype))
        value.set(i, std::sin(1.7 * static_cast<double>(i)));
      else
        value.set_integer(i, (i * 7 + i / 5) % model.classes);
    }
    if (micro_batches > 1) sizes[0] /= micro_batches, sizes.insert(sizes.begin(), micro_batches);
    batch[input.name] = value.reshaped(sizes);
  }
  set_inputs(program, std::move(batch));
  return program;
}

std::vector<ZooModel> zoo_models() {
  return {
      {"mlp", {{"size", "3"}, {"hidden", "8,5"}, {"classes", "4"}, {"dropout", "0.3"}}, 6, 4},
      {"convnet", {{"size", "4"}, {"width", "3"}, {"classes", "4"}, {"dropout", "0.2"}}, 6, 4},
      {"resnet", {{"size", "16"}, {"channels", "1"}, {"width", "4"}, {"classes", "3"}, {"stem", "small"}}, 4, 3},
      {"gpt", {{"layers", "2"}, {"width", "8"}, {"heads", "2"}, {"context", "5"}, {"vocabulary", "11"}, {"dropout", "0.2"}}, 6, 11},
      {"bert", {{"layers", "2"}, {"width", "8"}, {"heads", "2"}, {"context", "5"}, {"vocabulary", "11"}, {"mask_rate", "0.4"}}, 6, 11},
      {"llama", {{"layers", "2"}, {"width", "16"}, {"heads", "4"}, {"kv_heads", "2"}, {"inner", "12"}, {"context", "5"}, {"vocabulary", "11"}}, 6, 11},
      {"moe",
       {{"layers", "2"},
        {"width", "16"},
        {"heads", "4"},
        {"kv_heads", "2"},
        {"inner", "12"},
        {"experts", "3"},
        {"capacity_factor", "0.7"},
        {"z_loss", "0.01"},
        {"context", "5"},
        {"vocabulary", "11"}},
       6,
       11},
      {"lstm", {{"layers", "2"}, {"width", "8"}, {"context", "12"}, {"vocabulary", "11"}, {"dropout", "0.2"}}, 6, 4},
      {"vit", {{"size", "8"}, {"channels", "1"}, {"patch", "4"}, {"layers", "2"}, {"width", "8"}, {"heads", "2"}, {"classes", "5"}, {"dropout", "0.2"}}, 6, 5},
      {"unet", {{"size", "4"}, {"channels", "1"}, {"width", "3"}, {"levels", "1"}, {"classes", "3"}}, 4, 2},
      {"convnext", {{"size", "8"}, {"channels", "1"}, {"width", "4"}, {"blocks", "1,1"}, {"classes", "3"}}, 4, 2},
  };
}

void PrintTo(const ZooModel& model, std::ostream* out) { *out << model.name; }

class FlatZoo : public ::testing::TestWithParam<ZooModel> {};
TEST_P(FlatZoo, EachPassKeepsTheStep) { check_passes(zoo_program(GetParam(), DType::F32, 1, "")); }
TEST_P(FlatZoo, EachPassKeepsMicroBatches) { check_passes(zoo_program(GetParam(), DType::F32, 2, "")); }
TEST_P(FlatZoo, EachPassKeepsTheStepOfARank) { check_passes(zoo_program(GetParam(), DType::F32, 1, "data=2")); }
TEST_P(FlatZoo, EachPassKeepsHalves) {
  if (GetParam().name == "resnet") return;  // twenty batch norms over four rows make much of the last bit of a half
  check_passes(zoo_program(GetParam(), DType::BF16, 1, ""));
}
TEST_P(FlatZoo, EachPassMayBeSkipped) { check_without_each(zoo_program(GetParam(), DType::F32, 1, "")); }
INSTANTIATE_TEST_SUITE_P(Models, FlatZoo, ::testing::ValuesIn(zoo_models()), [](const auto& info) { return info.param.name; });

class FlatSamples : public ::testing::TestWithParam<const char*> {};
TEST_P(FlatSamples, EachPassKeepsTheStep) {
  const std::string sample = GetParam();
  Imported imported = import_pt2(samples + sample + "/model.pt2", {});
  Program program{sample, compile(std::move(imported.forward), options_of(1, "")), {}, {}};
  std::map<std::string, Literal> values;
  for (const auto& [name, value] : read_safetensors(samples + sample + "/data.safetensors").arrays)
    if (name.starts_with("input.")) values[name.substr(6)] = value;
  for (const auto& [name, value] : imported.weights) values[name] = value;
  set_inputs(program, std::move(values));
  check_passes(program);
}
INSTANTIATE_TEST_SUITE_P(Imported, FlatSamples,
                         ::testing::Values("autoencoder_transposed_conv", "embedding_bag_dlrm", "lstm", "mlp_gelu", "mlp_relu_layernorm", "tiny_bert",
                                           "tiny_gpt", "tiny_llama", "tiny_resnet", "tiny_unet", "tiny_vit"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace flat_passes_test
}  // namespace stepgraph
