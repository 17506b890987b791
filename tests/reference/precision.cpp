// SPDX-License-Identifier: Apache-2.0
// Mixed precision: what the lists cast, what they leave, and two models recorded under torch.autocast (tests/samples/autocast, by scripts/record_autocast.py).
#include <gtest/gtest.h>

#include <cmath>

#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/capture/pt2/import.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/composite/recurrent.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/train/data/arrays.h"
#include "stepgraph/train/models/models.h"
#include "stepgraph/train/trainer.h"
#include "tests/reference/module_runner.h"
#include "tests/support/on_reference.h"
#include "tests/support/places.h"

namespace stepgraph {
namespace precision_test {

using testing::Body;
using testing::State;

const Dim batch = Dim::symbol("batch");
using List = Autocast::List;
Autocast bf16(List list = List::Cpu) { return {list, DType::BF16}; }

Optimizer sgd() {
  Optimizer optimizer;
  optimizer.kind = Optimizer::Kind::Sgd;
  optimizer.rate = 0.1;
  return optimizer;
}

// ---- the lists

TEST(AutocastLists, AreThoseOfTheDevice) {
  const auto cast = [](List list, const char* op) { return cast_of({list, DType::F16}, op); };
  for (const List list : {List::Cpu, List::Cuda}) {
    for (const char* op : {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d", "convolution", "conv_transpose2d",
                           "scaled_dot_product_attention", "einsum", "prelu"})
      EXPECT_EQ(cast(list, op), DType::F16) << op;
    for (const char* op :
         {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "cross_entropy_loss", "nll_loss_nd", "kl_div", "prod"})
      EXPECT_EQ(cast(list, op), DType::F32) << op;
    for (const char* op : {"add", "gelu", "relu", "batch_norm", "mean", "embedding", "dropout", "max_pool2d", "lstm", "", "zzz", "linea", "linear_"})
      EXPECT_EQ(cast(list, op), std::nullopt) << op;
  }
  for (const char* op : {"softmax", "log_softmax", "layer_norm", "group_norm", "exp", "log", "pow", "sum", "norm", "cumsum", "rsqrt", "upsample_bilinear2d"}) {
    EXPECT_EQ(cast(List::Cpu, op), std::nullopt) << op;
    EXPECT_EQ(cast(List::Cuda, op), DType::F32) << op;
  }
  EXPECT_EQ(cast(List::Cpu, "avg_pool3d"), DType::F32);
  EXPECT_EQ(cast(List::Cuda, "avg_pool3d"), std::nullopt);
  EXPECT_EQ(cast(List::Cuda, "mv"), DType::F16);
  EXPECT_EQ(cast(List::Cpu, "mv"), std::nullopt);
  EXPECT_EQ(cast_of({}, "linear"), std::nullopt);
  EXPECT_THROW(check(Autocast{List::Cpu, DType::F32}), UserError);
  EXPECT_THROW(check(Autocast{List::Cpu, DType::I64}), UserError);
}

/// The dtype that a function gives in a graph with autocast.
DType result_of(const Autocast& autocast, const std::vector<TensorType>& inputs, const Body& body) {
  Module module;
  Builder builder(module, module.add_graph("g"));
  std::vector<Value> values;
  for (const TensorType& type : inputs) values.push_back(builder.input(type));
  builder.set_autocast(autocast);
  return body(builder, values)[0].dtype();
}
TensorType type(DType dtype, Shape shape) { return {dtype, std::move(shape), {}}; }

TEST(Autocast, FunctionsTakeTheCastsOfTheirList) {
  struct Row {
    const char* name;
    Body body;
    DType cpu, cuda;
  };
  const DType b = DType::BF16, f = DType::F32;
  const auto x = [](const std::vector<Value>& in) { return in[0]; };
  // in[0] f32 [4, 4], in[1] bf16 [4, 4], in[2] f32 [4], in[3] i64 [4]
  const std::vector<Row> rows = {
      {"linear", [](Builder&, const auto& in) -> std::vector<Value> { return {linear(in[0], in[1], in[2])}; }, b, b},
      {"matmul", [](Builder&, const auto& in) -> std::vector<Value> { return {matmul(in[0], in[1])}; }, b, b},
      {"einsum",
       [](Builder&, const auto& in) -> std::vector<Value> {
         return {einsum("ij,jk->i", std::vector<Value>{in[0], in[1]})};
       },
       b, b},
      {"convolution", [](Builder&, const auto& in) -> std::vector<Value> { return {convolution(unsqueeze(in[0], 0), unsqueeze(in[1], 2))}; }, b, b},
      {"convolution_transpose",
       [](Builder&, const auto& in) -> std::vector<Value> { return {convolution_transpose(unsqueeze(in[0], 0), unsqueeze(in[1], 2), {})}; }, b, b},
      {"attention", [](Builder&, const auto& in) -> std::vector<Value> { return {scaled_dot_product_attention(in[0], in[1], in[0])}; }, b, b},
      {"sum of f32 and bf16", [](Builder&, const auto& in) -> std::vector<Value> { return {in[0] + in[1]}; }, f, f},
      {"gelu", [](Builder&, const auto& in) -> std::vector<Value> { return {gelu(in[1])}; }, b, b},
      {"softmax", [](Builder&, const auto& in) -> std::vector<Value> { return {softmax(in[1], -1)}; }, b, f},
      {"log_softmax", [](Builder&, const auto& in) -> std::vector<Value> { return {log_softmax(in[1], -1)}; }, b, f},
      {"layer_norm", [](Builder&, const auto& in) -> std::vector<Value> { return {layer_norm(in[1], 1, in[2], in[2], 1e-5)}; }, b, f},
      {"group_norm", [](Builder&, const auto& in) -> std::vector<Value> { return {group_norm(in[1], 2, in[2], in[2], 1e-5).result}; }, b, f},
      {"batch_norm", [](Builder&, const auto& in) -> std::vector<Value> { return {batch_norm_training(in[1], in[2], in[2], 1e-5).result}; }, b, b},
      {"exp", [](Builder&, const auto& in) -> std::vector<Value> { return {exp(in[1])}; }, b, f},
      {"log", [](Builder&, const auto& in) -> std::vector<Value> { return {log(in[1])}; }, b, f},
      {"rsqrt", [](Builder&, const auto& in) -> std::vector<Value> { return {rsqrt(in[1])}; }, b, f},
      {"sqrt", [](Builder&, const auto& in) -> std::vector<Value> { return {sqrt(in[1])}; }, b, b},
      {"pow", [](Builder&, const auto& in) -> std::vector<Value> { return {pow(in[1], 2.0)}; }, b, f},
      {"sum", [](Builder&, const auto& in) -> std::vector<Value> { return {sum(in[1])}; }, b, f},
      {"mean", [](Builder&, const auto& in) -> std::vector<Value> { return {mean(in[1])}; }, b, b},
      {"prod", [](Builder&, const auto& in) -> std::vector<Value> { return {prod(in[1])}; }, f, f},
      {"cumsum", [](Builder&, const auto& in) -> std::vector<Value> { return {cumsum(in[1], 0)}; }, b, f},
      {"vector_norm", [](Builder&, const auto& in) -> std::vector<Value> { return {vector_norm(in[1], 2, {0})}; }, b, f},
      {"amax", [](Builder&, const auto& in) -> std::vector<Value> { return {amax(in[1])}; }, b, b},
      {"sum of integers", [](Builder&, const auto& in) -> std::vector<Value> { return {sum(in[3])}; }, DType::I64, DType::I64},
      {"mse", [](Builder&, const auto& in) -> std::vector<Value> { return {mse_sum(in[1], in[1]).numerator}; }, f, f},
      {"cross_entropy", [](Builder&, const auto& in) -> std::vector<Value> { return {cross_entropy_sum(in[1], in[3]).numerator}; }, f, f},
      {"resize", [](Builder&, const auto& in) -> std::vector<Value> { return {resize(unsqueeze(in[1], 0), ResizeKind::Linear, {Dim(8)}, false, {})}; }, b, f},
  };
  (void)x;
  const std::vector<TensorType> types = {type(f, {4, 4}), type(b, {4, 4}), type(f, {4}), type(DType::I64, {4})};
  for (const Row& row : rows) {
    EXPECT_EQ(result_of(bf16(List::Cpu), types, row.body), row.cpu) << row.name;
    EXPECT_EQ(result_of(bf16(List::Cuda), types, row.body), row.cuda) << row.name;
  }
}

TEST(Autocast, F64IsNeverNarrowed) {
  const auto product = [](Builder&, const std::vector<Value>& in) -> std::vector<Value> { return {matmul(in[0], in[1])}; };
  EXPECT_EQ(result_of(bf16(), {type(DType::F64, {4, 4}), type(DType::F64, {4, 4})}, product), DType::F64);
  EXPECT_EQ(result_of(bf16(), {type(DType::F64, {4, 4}), type(DType::F32, {4, 4})}, product), DType::F64);
  EXPECT_EQ(result_of(bf16(), {type(DType::F32, {4, 4}), type(DType::F64, {4, 4})}, product), DType::F64);
  // Nor is the f32 beside it, which is about to be widened.
  const std::vector<double> numbers = testing::some_numbers(16);
  const Literal wide = testing::f64({4, 4}, numbers), narrow = testing::f32({4, 4}, numbers);
  const Literal found = testing::evaluate({wide, narrow}, [&](Builder& builder, const std::vector<Value>& in) -> std::vector<Value> {
    builder.set_autocast(bf16());
    return {matmul(in[0], in[1])};
  })[0];
  const Literal wanted =
      testing::evaluate({wide, narrow}, [&](Builder&, const std::vector<Value>& in) -> std::vector<Value> { return {matmul(in[0], in[1])}; })[0];
  EXPECT_EQ(found, wanted);
}

TEST(Autocast, RecurrencesKeepTheirStates) {
  for (const auto& [cell, result] : {std::pair{Cell::Lstm, DType::BF16}, {Cell::Gru, DType::F32}, {Cell::Tanh, DType::BF16}}) {
    const int64_t rows = gates(cell) * 3;
    const auto body = [cell = cell](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
      const std::vector<Value> starts(static_cast<size_t>(states(cell)), in[3]);
      return {recurrent_layer(in[0], cell, starts, {in[1], in[2], {}, {}}).outputs};
    };
    EXPECT_EQ(result_of(bf16(), {type(DType::F32, {5, 2, 4}), type(DType::F32, {rows, 4}), type(DType::F32, {rows, 3}), type(DType::F32, {2, 3})}, body),
              result);
  }
}

TEST(Autocast, CanBeSwitchedOffForAPart) {
  const DType inside = result_of(bf16(), {type(DType::F32, {4, 4})}, [](Builder& builder, const std::vector<Value>& in) -> std::vector<Value> {
    const AutocastScope off(builder, {});
    return {matmul(in[0], in[0])};
  });
  EXPECT_EQ(inside, DType::F32);
  const DType after = result_of(bf16(), {type(DType::F32, {4, 4})}, [](Builder& builder, const std::vector<Value>& in) -> std::vector<Value> {
    { const AutocastScope off(builder, {}); }
    return {matmul(in[0], in[0])};
  });
  EXPECT_EQ(after, DType::BF16);
}

// ---- explicit casts

/// The user's own cast is kept with and without autocast, and by the passes on the way to ranks.
TEST(Precision, ExplicitCastsAreKept) {
  const std::vector<double> x = {1 + 0x1p-9, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-16};
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {3}}};
  const auto model = [](Scope s, Inputs in) -> Loss {
    const Value y = convert(convert(in["x"], DType::BF16), DType::F32) + s.parameter("b", {}, initialize::zeros());
    return Loss(sum(y)).output("y", y);
  };
  for (const Autocast& autocast : {Autocast{}, bf16(), Autocast{List::Cuda, DType::F16}}) {
    CaptureOptions options;
    options.autocast = autocast;
    for (const char* mesh : {"", "data=2"}) {
      Trainer trainer(train_step(inputs, model, sgd(), {}, options), testing::on_reference({.mesh = mesh}));
      const EvalResult result = trainer.eval_batch({{"x", testing::f32({3}, x)}});
      EXPECT_EQ(result.outputs.at("y"), testing::f32({3}, {1.0, 1.015625, 1.0078125}));
    }
  }
}

/// bf16(X @ W) + b: the product is rounded to bf16 before f32 is added, whoever asks for it.
TEST(Precision, ProductsAreRoundedBeforeTheyAreAddedTo) {
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {1, 2}}};
  const auto model = [](bool cast) {
    return [cast](Scope s, Inputs in) -> Loss {
      const Value w = s.parameter("w", {2, 1}, initialize::ones());
      const Value product = matmul(in["x"], w);
      const Value y = (cast ? convert(product, DType::BF16) : product) + s.parameter("b", {1}, initialize::zeros());
      return Loss(sum(y)).output("y", y);
    };
  };
  CaptureOptions options;
  options.autocast = bf16();
  const NamedArrays x = {{"x", testing::f32({1, 2}, {256, 1})}};
  for (const Module& module : {capture(inputs, model(true)), capture(inputs, model(false), options), capture(inputs, model(true), options)}) {
    Trainer trainer(train_step(module, sgd()), testing::on_reference());
    const Literal y = trainer.eval_batch(x).outputs.at("y");
    EXPECT_EQ(y, testing::f32({1, 1}, {256})) << "257 is no bf16";
  }
}

// ---- models

Value narrowing_layer(Scope s, Value x) { return relu(linear(s / "fc", batch_norm(s / "bn", x), 4)); }

TEST(Precision, RepeatedLayersMayNarrowAndEqualThoseWrittenOut) {
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {batch, 4}}};
  const auto model = [](bool repeated) {
    return [repeated](Scope s, Inputs in) -> Loss {
      Value x = in["x"];
      if (repeated)
        x = repeat(s / "h", 3, x, narrowing_layer);
      else
        for (int64_t i = 0; i < 3; ++i) x = narrowing_layer(s / "h" / i, x);
      EXPECT_EQ(x.dtype(), DType::BF16);
      return Loss(mean(x)).output("y", x);
    };
  };
  CaptureOptions options;
  options.autocast = bf16();
  options.symbols = {{"batch", SymbolKind::Size, 2, INT64_MAX, 1, {}}};
  testing::ModuleRunner together(train_step(inputs, model(true), sgd(), {.gradients_as_outputs = true}, options));
  testing::ModuleRunner apart(train_step(inputs, model(false), sgd(), {.gradients_as_outputs = true}, options));
  EXPECT_NO_THROW(verify(together.module));
  EXPECT_EQ(print_module(parse_module(print_module(together.module))), print_module(together.module));
  together.state = apart.state;
  const State x = {{"x", testing::f32({5, 4}, testing::some_numbers(20))}};
  const auto a = together.step(x), b = apart.step(x);
  EXPECT_EQ(a.loss(), b.loss());
  ASSERT_EQ(a.gradients.size(), 12u);
  EXPECT_TRUE(a.gradients == b.gradients);
  EXPECT_TRUE(together.state == apart.state);
}

/// Parameters, gradients and optimizer state are f32 and start as without autocast.
TEST(Precision, MasterWeightsAreF32) {
  for (const char* name : {"mlp", "convnet", "gpt", "llama", "lstm", "vit", "unet", "convnext", "bert", "resnet"}) {
    ModelOptionValues small = {{"width", "8"}};
    if (std::string(name) == "mlp") small = {};
    if (std::string(name) == "resnet") small["size"] = "32";
    if (std::string(name) == "convnext" || std::string(name) == "vit") small["size"] = "32";
    if (std::string(name) == "unet") small = {{"width", "4"}, {"size", "16"}, {"levels", "2"}};
    if (std::string(name) == "vit" || std::string(name) == "gpt" || std::string(name) == "bert" || std::string(name) == "llama") small["heads"] = "2";
    const ModelDefinition plain = define_model(name, small);
    ModelDefinition mixed = plain;
    mixed.capture.autocast = bf16();
    const Module a = train_step(plain.inputs, plain.function, {}, {.gradients_as_outputs = true}, plain.capture);
    const Module b = train_step(mixed.inputs, mixed.function, {}, {.gradients_as_outputs = true}, mixed.capture);
    const testing::ModuleRunner wanted(a), found(b);
    EXPECT_TRUE(found.state == wanted.state) << name;
    const Graph& graph = b.graph(b.entry("step"));
    int64_t narrow = 0;
    for (const GraphOutput& output : graph.outputs)
      EXPECT_FALSE(is_floating(graph.type(output.value).dtype) && graph.type(output.value).dtype != DType::F32) << name;
    for (const Node& node : graph.nodes)
      for (ValueId result : node.results) narrow += graph.type(result).dtype == DType::BF16;
    EXPECT_GT(narrow, 0) << name;
  }
}

// ---- recorded in PyTorch

const std::string samples = std::string(testing::source_root()) + "/tests/samples/autocast/";

testing::EntryOutputs run(const std::string& program, const Autocast& autocast, const NamedArrays& recorded, const std::string& model) {
  ImportOptions options;
  options.autocast = autocast;
  Imported imported = import_pt2(samples + program, options);
  testing::ModuleRunner runner(train_step(std::move(imported.forward), sgd(), {.gradients_as_outputs = true}));
  for (const auto& [name, value] : imported.weights) runner.state[name] = value;
  State inputs;
  for (const char* input : {"x", "label"}) inputs[input] = *find_array(recorded, model + ".input." + input);
  return runner.step(inputs);
}

class RecordedAutocast : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, RecordedAutocast, ::testing::Values("mixed", "recurrent"), [](const auto& info) { return std::string(info.param); });

/// The plain program under `precision` is the one that was exported inside the region, bit for bit; and both are what PyTorch computes, as far as bf16 goes.
TEST_P(RecordedAutocast, PlainWithPrecisionEqualsTheRegion) {
  const std::string model = GetParam();
  const NamedArrays recorded = read_safetensors(samples + "recorded.safetensors").arrays;
  const auto region = run(model + "_region.pt2", {}, recorded, model), plain = run(model + "_plain.pt2", bf16(), recorded, model);
  EXPECT_EQ(plain.loss(), region.loss());
  EXPECT_EQ(plain.gradients.size(), region.gradients.size());
  for (const auto& [name, gradient] : plain.gradients) {
    const auto found = region.gradients.find("model." + name);
    ASSERT_NE(found, region.gradients.end()) << name;
    EXPECT_EQ(gradient, found->second) << name;
  }
  // One rounding to bf16 is 2^-9 of a value; a gradient passes some of them.
  const double loss = find_array(recorded, model + ".loss")->at(0), without = find_array(recorded, model + ".loss_f32")->at(0);
  EXPECT_NEAR(plain.loss(), loss, 0x1p-9 * loss);
  for (const auto& [name, gradient] : plain.gradients) {
    if (name == "conv.bias") continue;  // a batch norm follows: zero but for roundings
    const Literal& wanted = *find_array(recorded, model + ".grad." + name);
    double largest = 1e-6, error = 0;
    for (int64_t i = 0; i < wanted.count(); ++i)
      largest = std::max(largest, std::abs(wanted.at(i))), error = std::max(error, std::abs(gradient.at(i) - wanted.at(i)));
    RecordProperty(name, std::to_string(error / largest));
    EXPECT_LT(error / largest, 0x1p-6) << name;  // found: at most 0.0103
  }
  const auto full = run(model + "_plain.pt2", {}, recorded, model);
  EXPECT_NEAR(full.loss(), without, 2e-6 * without);
  EXPECT_NE(full.loss(), plain.loss());
}

TEST(AutocastRegions, ProductsInsideOfRecurrencesAreCast) {
  const Module module = import_pt2(samples + "recurrent_region.pt2").forward;
  int64_t products = 0;
  for (const Graph& graph : module.graphs)
    for (const Node& node : graph.nodes) {
      if (!std::holds_alternative<MatMul>(node.op)) continue;
      ++products;
      for (const ValueId input : node.inputs) EXPECT_EQ(graph.type(input).dtype, DType::BF16) << graph.name;
    }
  EXPECT_GE(products, 7) << "three layers in two products each, and the head";
}

TEST(AutocastRegions, DisabledRegionsStandInsideOfThePrecision) {
  const NamedArrays recorded = read_safetensors(samples + "recorded.safetensors").arrays;
  ImportOptions options;
  options.autocast = bf16();
  const Module module = import_pt2(samples + "mixed_plain.pt2", options).forward;
  const Graph& graph = module.graph(module.entry("forward"));
  bool head_found = false, gate_found = false;
  for (const Node& node : graph.nodes) {
    const Call* call = std::get_if<Call>(&node.op);
    if (!call || module.graph(call->graph).composite != "linear") continue;
    const bool is_head = graph.type(node.results[0]).shape.back() == Dim(5);
    (is_head ? head_found : gate_found) = true;
    EXPECT_EQ(graph.type(node.results[0]).dtype, is_head ? DType::F32 : DType::BF16);
  }
  EXPECT_TRUE(head_found && gate_found);
}

}  // namespace precision_test
}  // namespace stepgraph
