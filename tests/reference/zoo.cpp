// SPDX-License-Identifier: Apache-2.0
// The zoo by name: every model trains, has the names and sizes of its PyTorch original, and refuses what it does not know.
#include <chrono>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "stepgraph/train/models/models.h"
#include "tests/reference/module_runner.h"

namespace stepgraph::testing {
namespace zoo_test {

/// Options that make each model small enough to run here.
ModelOptionValues small(const std::string& name) {
  if (name == "resnet") return {{"size", "8"}, {"width", "2"}, {"classes", "3"}, {"stem", "small"}};
  if (name == "gpt" || name == "bert") return {{"vocabulary", "11"}, {"context", "5"}, {"width", "8"}, {"heads", "2"}, {"dropout", "0.1"}};
  if (name == "llama") return {{"vocabulary", "11"}, {"context", "5"}, {"width", "16"}, {"heads", "4"}, {"kv_heads", "2"}, {"inner", "12"}};
  if (name == "moe") return {{"vocabulary", "11"}, {"context", "5"}, {"width", "16"}, {"heads", "4"}, {"inner", "12"}, {"experts", "3"}};
  if (name == "lstm") return {{"vocabulary", "11"}, {"context", "5"}, {"width", "8"}, {"dropout", "0.1"}};
  if (name == "vit") return {{"size", "8"}, {"patch", "4"}, {"width", "8"}, {"heads", "2"}, {"layers", "2"}, {"classes", "3"}, {"dropout", "0.1"}};
  if (name == "unet") return {{"size", "8"}, {"channels", "1"}, {"width", "4"}, {"levels", "2"}, {"classes", "3"}};
  if (name == "convnext") return {{"size", "16"}, {"channels", "1"}, {"width", "4"}, {"blocks", "2,1"}, {"classes", "3"}};
  if (name == "mlp") return {{"hidden", "6"}, {"activation", "gelu"}, {"dropout", "0.5"}};
  return {{"width", "2"}};
}

Literal some_batch(const InputSpec& input, int64_t batch, int64_t classes) {
  Sizes sizes;
  for (const Dim& dim : input.shape) sizes.push_back(dim.is_constant() ? dim.constant() : batch);
  const auto count = static_cast<size_t>(element_count(sizes));
  if (is_floating(input.dtype)) return Literal::from_doubles(input.dtype, sizes, some_numbers(count));
  std::vector<int64_t> values;
  for (size_t i = 0; i < count; ++i) values.push_back(static_cast<int64_t>(i * 7 + 3) % classes);
  return Literal::from_integers(input.dtype, sizes, values);
}

TEST(Zoo, EveryModelLearnsItsBatchByHeart) {
  std::set<std::string> names;
  for (const ModelInfo& info : models()) {
    names.insert(info.name);
    const ModelDefinition model = define_model(info.name, small(info.name));
    Optimizer optimizer;
    optimizer.rate = 0.01;
    ModuleRunner runner(train_step(build_model(info.name, small(info.name)), optimizer));
    State batch;
    for (const InputSpec& input : model.inputs) batch[input.name] = some_batch(input, 4, 3);
    const double first = runner.eval(batch).loss();
    for (int i = 0; i < 20; ++i) runner.step(batch);
    const EntryOutputs last = runner.eval(batch);
    EXPECT_LT(last.loss(), first) << info.name;
    EXPECT_EQ(last.user.count("logits"), 1U) << info.name;
    EXPECT_EQ(last.metrics.count("accuracy.numerator"), 1U) << info.name;
    // Another batch size, one included, runs with the same module.
    for (const InputSpec& input : model.inputs) batch[input.name] = some_batch(input, 1, 3);
    EXPECT_TRUE(std::isfinite(runner.step(batch).loss_numerator.at(0))) << info.name;
  }
  EXPECT_EQ(names, (std::set<std::string>{"mlp", "convnet", "resnet", "gpt", "bert", "llama", "moe", "lstm", "vit", "unet", "convnext"}));
}

std::map<std::string, TensorType> parameters_of(const Module& module) {
  std::map<std::string, TensorType> result;
  const Graph& forward = module.graph(module.entry("forward"));
  for (const GraphInput& input : forward.inputs)
    if (input.role.kind == RoleKind::Parameter) result[input.role.name] = forward.type(input.value);
  return result;
}
int64_t elements(const std::map<std::string, TensorType>& parameters) {
  int64_t count = 0;
  for (const auto& [name, type] : parameters) count += element_count(type.shape).constant();
  return count;
}

TEST(Zoo, SizesOfTheOriginals) {
  const auto gpt2 = parameters_of(build_model("gpt", {{"vocabulary", "50257"}, {"context", "1024"}, {"layers", "12"}, {"heads", "12"}, {"width", "768"}}));
  EXPECT_EQ(elements(gpt2), 124'439'808);
  EXPECT_EQ(gpt2.size(), 148U);
  EXPECT_EQ(text(gpt2.at("transformer.h.11.attn.c_attn.weight")), "f32[2304, 768]");
  const auto resnet18 = parameters_of(build_model("resnet"));
  EXPECT_EQ(elements(resnet18), 11'689'512);
  EXPECT_EQ(text(resnet18.at("layer2.0.downsample.0.weight")), "f32[128, 64, 1, 1]");
  const auto resnet50 = parameters_of(build_model("resnet", {{"depth", "50"}}));
  EXPECT_EQ(elements(resnet50), 25'557'032);
  EXPECT_EQ(text(resnet50.at("layer1.0.downsample.0.weight")), "f32[256, 64, 1, 1]");
  EXPECT_EQ(elements(parameters_of(build_model("resnet", {{"depth", "34"}}))), 21'797'672);
  // BERT base with the masked-token head: 109,514,298 without the pooler that the head does not use.
  const auto bert = parameters_of(build_model("bert", {{"vocabulary", "30522"}, {"context", "512"}, {"layers", "12"}, {"heads", "12"}, {"width", "768"}}));
  EXPECT_EQ(elements(bert), 109'514'298);
  EXPECT_EQ(bert.count("bert.encoder.layer.11.attention.output.LayerNorm.weight"), 1U);
  EXPECT_EQ(bert.count("cls.predictions.transform.dense.bias"), 1U);
}

TEST(Zoo, SizesOfTheNewerOriginals) {
  const auto vit = parameters_of(build_model("vit"));
  EXPECT_EQ(elements(vit), 86'567'656);  // as torchvision's vit_b_16
  EXPECT_EQ(vit.count("vit.encoder.layer.11.attention.attention.query.weight"), 1U);
  EXPECT_EQ(text(vit.at("vit.embeddings.position_embeddings")), "f32[1, 197, 768]");
  const auto convnext = parameters_of(build_model("convnext"));
  EXPECT_EQ(elements(convnext), 28'589'128);  // convnext_tiny
  EXPECT_EQ(text(convnext.at("features.1.2.layer_scale")), "f32[96, 1, 1]");
  EXPECT_EQ(text(convnext.at("features.7.0.block.0.weight")), "f32[768, 1, 7, 7]");
  EXPECT_EQ(convnext.count("classifier.2.bias"), 1U);
  const auto unet = parameters_of(build_model("unet"));
  EXPECT_EQ(elements(unet), 31'037'698);
  EXPECT_EQ(text(unet.at("up1.up.weight")), "f32[1024, 512, 2, 2]");
  const auto llama = parameters_of(build_model("llama", {{"heads", "8"}, {"kv_heads", "2"}, {"inner", "96"}}));
  EXPECT_EQ(text(llama.at("model.layers.1.self_attn.k_proj.weight")), "f32[16, 64]");
  EXPECT_EQ(llama.size(), 3U + 2 * 9);
  const auto lstm = parameters_of(build_model("lstm", {{"width", "8"}}));
  EXPECT_EQ(text(lstm.at("rnn.weight_hh_l1")), "f32[32, 8]");
}

TEST(Zoo, ADeepGptHoldsItsBlockOnce) {
  const auto size_of = [](const char* layers) {
    const Module step = train_step(build_model("gpt", {{"layers", layers}, {"dropout", "0.1"}}), Optimizer{});
    return step.graphs.size();
  };
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(size_of("48"), size_of("2"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST(Zoo, StartsAsThePapersSay) {
  const auto deviation = [](const Literal& value) {
    double squares = 0;
    for (double x : value.to_doubles()) squares += x * x;
    return std::sqrt(squares / static_cast<double>(value.count()));
  };
  ModuleRunner gpt(train_step(build_model("gpt", {{"layers", "8"}}), Optimizer{}));
  EXPECT_NEAR(deviation(gpt.state.at("transformer.wte.weight")), 0.02, 0.001);
  EXPECT_NEAR(deviation(gpt.state.at("transformer.h.3.mlp.c_proj.weight")), 0.02 / 4, 0.0005);
  EXPECT_EQ(deviation(gpt.state.at("transformer.h.3.mlp.c_proj.bias")), 0);
  EXPECT_FALSE(gpt.state.at("transformer.h.3.mlp.c_fc.weight") == gpt.state.at("transformer.h.4.mlp.c_fc.weight"));
  ModuleRunner resnet(train_step(build_model("resnet", {{"size", "32"}, {"width", "16"}}), Optimizer{}));
  EXPECT_NEAR(deviation(resnet.state.at("layer2.1.conv1.weight")), std::sqrt(2.0 / (9 * 32)), 0.005);
  EXPECT_EQ(resnet.state.at("bn1.running_var").at(0), 1);
}

std::string error_of(const std::string& name, const ModelOptionValues& options) {
  try {
    build_model(name, options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Zoo, UnknownNamesAndValuesAreNamed) {
  EXPECT_EQ(error_of("gtp", {}), "there is no model 'gtp'; nearest are gpt, mlp, moe, lstm, vit, bert, unet, llama, resnet, convnet, convnext");
  EXPECT_EQ(error_of("gpt", {{"layer", "2"}}), "model gpt has no option 'layer'; nearest are layers, heads, width");
  EXPECT_EQ(error_of("gpt", {{"layers", "two"}}), "model gpt: option layers is 'two', wanted an integer from 0 to 4096");
  EXPECT_EQ(error_of("gpt", {{"layers", "99999999999999999999"}}), "model gpt: option layers is '99999999999999999999', wanted an integer from 0 to 4096");
  EXPECT_EQ(error_of("gpt", {{"dropout", "1.5"}}), "model gpt: option dropout is '1.5', wanted a number from 0 to 1");
  EXPECT_EQ(error_of("gpt", {{"heads", "3"}}), "gpt: width 64 is no multiple of 3 heads");
  EXPECT_EQ(error_of("mlp", {{"hidden", "12,"}}), "model mlp: option hidden is '12,', wanted integers with commas between them, and found an empty part");
  EXPECT_EQ(error_of("mlp", {{"hidden", "8,,4"}}), "model mlp: option hidden is '8,,4', wanted integers with commas between them, and found an empty part");
  EXPECT_EQ(error_of("mlp", {{"activation", "rleu"}}), "model mlp: option activation is 'rleu', wanted relu, gelu, tanh or silu");
  EXPECT_EQ(error_of("resnet", {{"depth", "19"}}), "resnet: depth is 19, wanted 18, 34, 50, 101 or 152");
  EXPECT_EQ(error_of("mlp", {{"hidden", ""}}), "no error");
  EXPECT_EQ(error_of("llama", {{"heads", "4"}, {"kv_heads", "3"}}), "llama: 4 heads are no multiple of 3 key heads");
  EXPECT_EQ(error_of("vit", {{"patch", "5"}}), "vit: images f32[batch, 3, 224, 224] are no multiple of patches of 5");
  EXPECT_EQ(error_of("unet", {{"size", "24"}}), "unet: images f32[batch, 3, 24, 24] are no multiple of 16");
  EXPECT_EQ(error_of("convnext", {{"size", "16"}}), "model convnext: option size is '16', wanted at least 32 for 4 stages");
  EXPECT_EQ(error_of("convnext", {{"blocks", ""}}), "convnext: blocks is empty, wanted a number for each stage");
}

}  // namespace zoo_test
}  // namespace stepgraph::testing
