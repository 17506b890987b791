// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/step_programs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "stepgraph/compile/compile.h"
#include "stepgraph/reference/mesh_run.h"
#include "stepgraph/train/data/arrays.h"
#include "stepgraph/train/imported_model.h"
#include "tests/support/places.h"

namespace stepgraph::testing {
namespace {

double largest(const Literal& value) {
  double result = 0;
  for (int64_t i = 0; i < value.count(); ++i) result = std::max(result, std::fabs(value.at(i)));
  return result;
}

CompileOptions options_of(int64_t micro_batches, const std::string& mesh, bool whole_gradients = true) {
  CompileOptions options;
  options.training = TrainingOptions{};
  options.training->optimizer.epsilon = 1e-2;  // a smaller one turns the rounding of tiny gradients into whole steps
  if (whole_gradients) options.training->step.clip_norm = 0.5;
  options.training->step.micro_batches = micro_batches;
  options.training->step.gradients_as_outputs = whole_gradients;
  if (!mesh.empty()) options.mesh = parse_mesh(mesh);
  return options;
}

/// Inputs of `step`: what init gives, a batch by name, a seed and a number of step.
void set_inputs(Program& program, std::map<std::string, Literal> values) {
  const Module& module = program.local;
  const GraphId init = module.entry("init");
  const std::vector<Literal> state = run_on_mesh(module, init, std::vector<Literal>{Literal::integer(DType::I64, 5)}).outputs;
  for (size_t i = 0; i < state.size(); ++i) values.try_emplace(module.graph(init).outputs[i].role.name, state[i]);
  const Graph& step = module.graph(module.entry("step"));
  for (const GraphInput& input : step.inputs) {
    const bool is_named = is_state(input.role.kind) || input.role.kind == RoleKind::Batch;
    program.inputs.push_back(is_named ? values.at(input.role.name) : Literal::integer(DType::I64, input.role.kind == RoleKind::Seed ? 11 : 1));
  }
}

}  // namespace

void expect_same_outputs(const std::vector<Literal>& found, const std::vector<Literal>& wanted, double tolerance, const Module& module, const std::string& what) {
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

Program zoo_program(const ZooModel& model, DType autocast, int64_t micro_batches, const std::string& mesh, bool whole_gradients) {
  ModelDefinition definition = define_model(model.name, model.options);
  if (is_half(autocast)) definition.capture.autocast.dtype = autocast;
  Module forward = capture(definition.inputs, definition.function, definition.capture);
  Program program{model.name, compile(std::move(forward), options_of(micro_batches, mesh, whole_gradients)), {}, {{"batch", model.rows / micro_batches}}};
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

Program sample_program(const std::string& sample) {
  const std::string folder = std::string(source_root()) + "/tests/samples/" + sample;
  Imported imported = import_pt2(folder + "/model.pt2", {});
  Program program{sample, compile(std::move(imported.forward), options_of(1, "")), {}, {}};
  std::map<std::string, Literal> values;
  for (const auto& [name, value] : read_safetensors(folder + "/data.safetensors").arrays)
    if (name.starts_with("input.")) values[name.substr(6)] = value;
  for (const auto& [name, value] : imported.weights) values[name] = value;
  set_inputs(program, std::move(values));
  return program;
}

const std::vector<const char*>& sample_names() {
  static const std::vector<const char*> names = {"autoencoder_transposed_conv", "embedding_bag_dlrm", "lstm", "mlp_gelu", "mlp_relu_layernorm", "tiny_bert",
                                                 "tiny_gpt", "tiny_llama", "tiny_resnet", "tiny_unet", "tiny_vit"};
  return names;
}

}  // namespace stepgraph::testing
