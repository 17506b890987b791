// SPDX-License-Identifier: Apache-2.0
// Capture: names, state, what a model may return, repeated layers, and errors that name the user's own line.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/reference/interpreter.h"

namespace stepgraph {
namespace capture_test {

const Dim batch = Dim::symbol("batch");
const std::vector<InputSpec> one_input = {{"x", DType::F32, {batch, 3}}};

std::vector<std::string> names_of(const Module& module, const std::string& entry, RoleKind kind) {
  std::vector<std::string> names;
  for (const GraphInput& input : module.graph(module.entry(entry)).inputs)
    if (input.role.kind == kind) names.push_back(input.role.name);
  return names;
}
std::vector<std::string> outputs_of(const Module& module, const std::string& entry, RoleKind kind) {
  std::vector<std::string> names;
  for (const GraphOutput& output : module.graph(module.entry(entry)).outputs)
    if (output.role.kind == kind) names.push_back(output.role.name);
  return names;
}
using Names = std::vector<std::string>;

/// The message; the error must be the user's, and with `at_line` name a line of this file.
std::string error_of(const std::function<void()>& run, bool at_line = false) {
  try {
    run();
  } catch (const UserError& error) {
    const std::string message = error.what();
    if (at_line) {
      EXPECT_NE(message.find("capture_test.cpp:"), std::string::npos) << message;
    }
    return message;
  }
  ADD_FAILURE() << "no error";
  return {};
}
void expect_holds(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part; }

std::string capture_error(const ModelFunction& model, bool at_line = false) { return error_of([&] { capture(one_input, model); }, at_line); }

std::vector<Literal> run_entry(const Module& module, const std::string& entry, const std::map<std::string, Literal>& values) {
  std::vector<Literal> inputs;
  for (const GraphInput& input : module.graph(module.entry(entry)).inputs) {
    if (input.role.kind == RoleKind::Seed || input.role.kind == RoleKind::Step) inputs.push_back(Literal::integer(DType::I64, 3));
    else inputs.push_back(values.at(input.role.name));
  }
  return evaluate_graph(module, module.entry(entry), inputs);
}
std::map<std::string, Literal> start_of(const Module& module) {
  const auto values = evaluate_graph(module, module.entry("init"), std::vector<Literal>{Literal::integer(DType::I64, 1)});
  std::map<std::string, Literal> state;
  for (size_t i = 0; i < values.size(); ++i) state[module.graph(module.entry("init")).outputs[i].role.name] = values[i];
  return state;
}

TEST(Capture, NamesEntriesAndTheOrderOfInputs) {
  const Module module = capture({{"x", DType::F32, {batch, 3}}, {"label", DType::I64, {batch}}}, [](Scope s, Inputs in) {
    const Value noise = convert(s.step() + s.seed(), DType::F32);  // asked for first, and in this order
    const Value x = batch_norm(s / "bn", linear(s / "layers" / 0, in["x"], 4)) + noise * 0.0;
    return cross_entropy(linear(s / "layers" / 1, x, 2), in["label"]).output("logits", x);
  });
  verify(module);
  EXPECT_EQ(names_of(module, "forward", RoleKind::Parameter),
            (Names{"layers.0.weight", "layers.0.bias", "bn.weight", "bn.bias", "layers.1.weight", "layers.1.bias"}));
  EXPECT_EQ(names_of(module, "forward", RoleKind::Buffer), (Names{"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}));
  const auto& inputs = module.graph(module.entry("forward")).inputs;
  std::vector<RoleKind> kinds;
  for (const GraphInput& input : inputs)
    if (kinds.empty() || kinds.back() != input.role.kind) kinds.push_back(input.role.kind);
  EXPECT_EQ(kinds, (std::vector<RoleKind>{RoleKind::Parameter, RoleKind::Buffer, RoleKind::Batch, RoleKind::Seed, RoleKind::Step}));
  EXPECT_EQ(outputs_of(module, "forward", RoleKind::NewState), (Names{"bn.num_batches_tracked", "bn.running_mean", "bn.running_var"}));
  EXPECT_TRUE(outputs_of(module, "eval", RoleKind::NewState).empty());
  EXPECT_EQ(outputs_of(module, "eval", RoleKind::UserOutput), Names{"logits"});
  EXPECT_TRUE(outputs_of(module, "forward", RoleKind::UserOutput).empty());
  EXPECT_EQ(outputs_of(module, "init", RoleKind::NewState).size(), 9U);
}

TEST(Capture, OneNameIsOneTensor) {
  const Module module = capture(one_input, [](Scope s, Inputs in) {
    const Value a = s.parameter("w", {3}, initialize::ones()), b = s.parameter("w", {3}, initialize::zeros());
    return mean(in["x"] * a * b);
  });
  EXPECT_EQ(names_of(module, "forward", RoleKind::Parameter), Names{"w"});
  EXPECT_EQ(start_of(module).at("w"), Literal::full(DType::F32, {3}, 1)) << "the first initialiser counts";
}

TEST(Capture, StateErrors) {
  expect_holds(capture_error(
                   [](Scope s, Inputs in) {
                     s.parameter("w", {3}, initialize::ones());
                     return mean(in["x"] * s.parameter("w", {1, 3}, initialize::ones()));
                   },
                   true),
               "w is asked for as f32[1, 3], but exists as f32[3]");
  expect_holds(capture_error([](Scope s, Inputs) { return sum(s.parameter("w", {batch}, initialize::ones())); }, true), "wanted constant sizes");
  expect_holds(capture_error([](Scope s, Inputs) { return sum(s.parameter("w", {-1}, initialize::ones())); }, true), "wanted constant sizes");
  expect_holds(capture_error([](Scope s, Inputs) { return sum(s.parameter("w", {2}, initialize::ones(), DType::I64)); }, true), "a parameter is floating");
  expect_holds(capture_error(
                   [](Scope s, Inputs) {
                     s.buffer("w", {3}, initialize::ones());
                     return sum(s.parameter("w", {3}, initialize::ones()));
                   },
                   true),
               "w is asked for");
  expect_holds(capture_error([](Scope s, Inputs in) { return sum(in["x"] * s.parameter("w", {s.training() ? 3 : 1}, initialize::ones())); }),
               "w is f32[3] in training and f32[1] in evaluation");
}

TEST(Capture, Buffers) {
  const Module module = capture(one_input, [](Scope s, Inputs in) {
    const Value before = s.buffer("count", {}, initialize::constant(5), DType::I64);
    s.set_buffer("count", before + 1);
    const Value between = s.buffer("count", {}, initialize::constant(5), DType::I64);  // sees the new value, in training
    s.set_buffer("count", between * 2);
    return mean(in["x"]) * 0.0 + convert(between, DType::F32);
  });
  const std::map<std::string, Literal> values = {{"x", Literal(DType::F32, {2, 3})}, {"count", Literal::integer(DType::I64, 5)}};
  const auto forward = run_entry(module, "forward", values), eval = run_entry(module, "eval", values);
  EXPECT_EQ(forward[0].at(0), 6);
  EXPECT_EQ(forward[2].integer_at(0), 12);
  EXPECT_EQ(eval[0].at(0), 5) << "evaluation changes nothing";
  expect_holds(capture_error(
                   [](Scope s, Inputs in) {
                     s.set_buffer("b", in["x"]);
                     return mean(in["x"]);
                   },
                   true),
               "there is no buffer named b");
  expect_holds(capture_error(
                   [](Scope s, Inputs in) {
                     s.buffer("b", {3}, initialize::zeros());
                     s.set_buffer("b", in["x"]);
                     return mean(in["x"]);
                   },
                   true),
               "set_buffer: b is f32[3], found f32[batch, 3]");
}

TEST(Capture, WhatAModelReturns) {
  expect_holds(capture_error([](Scope, Inputs in) { return in["y"]; }), "there is no input 'y'; the inputs are x");
  expect_holds(capture_error([](Scope, Inputs) { return Value{}; }), "returned no loss");
  expect_holds(capture_error([](Scope, Inputs) { return Loss{}; }), "returned no loss");
  expect_holds(capture_error([](Scope, Inputs in) { return in["x"]; }), "loss is f32[batch, 3], wanted a floating scalar");
  expect_holds(capture_error([](Scope, Inputs in) { return convert(sum(in["x"]), DType::I64); }), "wanted a floating scalar");
  expect_holds(capture_error([](Scope, Inputs in) { return Loss(sum(in["x"]), in["x"]); }), "loss denominator is f32[batch, 3]");
  expect_holds(capture_error([](Scope, Inputs in) {
                 const Value one = sum(in["x"]);
                 return Loss(one).metric("m", one, one).metric("m", one, one);
               }),
               "two metrics named 'm'");
  for (const char* taken : {"loss", "learning_rate", "gradient_norm"})
    expect_holds(capture_error([=](Scope, Inputs in) { return Loss(sum(in["x"])).metric(taken, sum(in["x"]), sum(in["x"])); }), "reports a number of that name itself");
  expect_holds(capture_error([](Scope, Inputs in) { return Loss(sum(in["x"])).metric("m", in["x"], sum(in["x"])); }), "metric 'm' is f32[batch, 3]");
  expect_holds(capture_error([](Scope, Inputs in) { return Loss(sum(in["x"])).output("o", in["x"]).output("o", in["x"]); }), "two outputs named 'o'");
  expect_holds(capture_error([](Scope, Inputs in) { return Loss(sum(in["x"])).output("o", Value{}); }), "output 'o' is no value");
  expect_holds(error_of([] { capture({{"x", DType::F32, {2}}, {"x", DType::F32, {2}}}, [](Scope, Inputs in) { return sum(in["x"]); }); }), "two inputs named 'x'");
  // Counts may be integers, sums may be narrow: both leave as f32.
  const Module module = capture({{"x", DType::BF16, {batch, 3}}}, [](Scope, Inputs in) {
    return Loss(sum(in["x"]), size_value(*in["x"].builder, DType::I64, batch * 3)).metric("m", any(greater(in["x"], 0)), sum(convert(in["x"], DType::I64)));
  });
  for (const GraphOutput& output : module.graph(module.entry("forward")).outputs)
    EXPECT_EQ(module.graph(module.entry("forward")).type(output.value).dtype, DType::F32) << output.role.name;
}

TEST(Capture, ErrorsOfOpsNameTheUsersLine) {
  expect_holds(capture_error([](Scope s, Inputs in) { return mean(matmul(in["x"], s.parameter("w", {4, 2}, initialize::ones()))); }, true), "matmul");
  expect_holds(capture_error([](Scope s, Inputs in) { return mean(in["x"] + s.parameter("w", {4}, initialize::ones())); }, true), "4");
  expect_holds(capture_error([](Scope s, Inputs in) { return mean(linear(s, in["x"], -1)); }, true), "-1");
}

// ---- repeated layers

Value tanh_layer(Scope s, Value x) { return tanh(linear(s / "fc", x, 3)) + x; }

Loss repeated_loss(Scope s, Inputs in, int64_t layers) { return mean(repeat(s / "h", layers, in["x"], tanh_layer) * in["x"]); }
Loss unrolled_loss(Scope s, Inputs in, int64_t layers) {
  Value x = in["x"];
  for (int64_t i = 0; i < layers; ++i) x = tanh_layer(s / "h" / i, x);
  return mean(x * in["x"]);
}

int64_t graphs_named(const Module& module, const std::string& name) {
  return std::count_if(module.graphs.begin(), module.graphs.end(), [&](const Graph& graph) { return graph.name == name; });
}

TEST(Repeat, IsTheUnrolledModel) {
  const Optimizer optimizer;
  const Module repeated = train_step(one_input, [](Scope s, Inputs in) { return repeated_loss(s, in, 4); }, optimizer, {.clip_norm = 1.0, .gradients_as_outputs = true});
  const Module unrolled = train_step(one_input, [](Scope s, Inputs in) { return unrolled_loss(s, in, 4); }, optimizer, {.clip_norm = 1.0, .gradients_as_outputs = true});
  verify(repeated);
  EXPECT_EQ(names_of(repeated, "step", RoleKind::Parameter), names_of(unrolled, "step", RoleKind::Parameter));
  auto state = start_of(repeated);
  EXPECT_EQ(state.size(), start_of(unrolled).size());
  state["x"] = Literal::from_doubles(DType::F32, {2, 3}, std::vector<double>{1, -2, 0.5, 0.25, 3, -1});
  const auto a = run_entry(repeated, "step", state), b = run_entry(unrolled, "step", state);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    for (int64_t e = 0; e < a[i].count(); ++e) EXPECT_NEAR(a[i].at(e), b[i].at(e), 1e-6) << i;
}

TEST(Repeat, TheModuleHoldsALayerOnce) {
  auto nodes = [](int64_t layers) {
    const ModelFunction model = [=](Scope s, Inputs in) {
      const Value x = in["x"] * s.parameter("scale", {3}, initialize::ones());  // so that the first layer needs a gradient of its input, as the others
      return mean(repeat(s / "h", layers, x, tanh_layer));
    };
    const Module module = train_step(one_input, model, {}, {});
    EXPECT_EQ(graphs_named(module, "h"), 1) << "evaluation uses the same graph";
    EXPECT_EQ(graphs_named(module, "h.eval"), 0);
    EXPECT_EQ(graphs_named(module, "h_forward"), 1);
    EXPECT_EQ(graphs_named(module, "h_backward"), 1);
    return module.graphs.size();
  };
  EXPECT_EQ(nodes(2), nodes(20));
}

TEST(Repeat, DropoutHasNoPlaceInEvaluation) {
  const Module module = capture(one_input, [](Scope s, Inputs in) {
    return mean(repeat(s / "h", 3, in["x"], [](Scope layer, Value x) { return dropout(layer, tanh_layer(layer, x), 0.5); }));
  });
  EXPECT_EQ(graphs_named(module, "h"), 1);
  EXPECT_EQ(graphs_named(module, "h.eval"), 1);
  // Each repetition draws a mask of its own: with the same parameters and input the results differ.
  auto values = start_of(module);
  for (auto& [name, value] : values) value = Literal(DType::F32, value.sizes());
  values["x"] = Literal::full(DType::F32, {100, 3}, 1);
  const double three = run_entry(module, "forward", values)[0].at(0);
  EXPECT_GT(three, 0.5);  // 8 on an eighth of the elements; one mask for all would leave half of them
  double kept = three * 300 / 8;
  EXPECT_NEAR(kept, 300.0 / 8, 20);
}

TEST(Repeat, BuffersOfEachRepetition) {
  const Module module = capture(one_input, [](Scope s, Inputs in) {
    return mean(repeat(s / "h", 2, in["x"], [](Scope layer, Value x) {
      const Value count = layer.buffer("count", {}, initialize::zeros());
      layer.set_buffer("count", count + 1);
      return x + count;
    }));
  });
  auto values = start_of(module);
  values["x"] = Literal(DType::F32, {1, 3});
  values["h.0.count"] = Literal::scalar(DType::F32, 3);
  values["h.1.count"] = Literal::scalar(DType::F32, 10);
  const auto forward = run_entry(module, "forward", values);
  EXPECT_EQ(forward[0].at(0), 13);
  EXPECT_EQ(outputs_of(module, "forward", RoleKind::NewState), (Names{"h.0.count", "h.1.count"}));
  EXPECT_EQ(forward[2].at(0), 4);
  EXPECT_EQ(forward[3].at(0), 11);
}

TEST(Repeat, SharedValuesNestingAndTies) {
  const Module module = train_step(
      one_input,
      [](Scope s, Inputs in) {
        const Value mask = s.parameter("mask", {3}, initialize::constant(0.5));
        const std::vector<Value> shared{mask};
        const auto outer = [](Scope layer, Value x, std::span<const Value> values) {
          return repeat(layer / "inner", 2, x, values, [](Scope inner, Value y, std::span<const Value> masks) {
            return y + tanh(linear(inner / "fc", y, 3) * masks[0]);
          });
        };
        Value x = repeat(s / "h", 2, in["x"], shared, outer);
        x = repeat(s / "h", 2, x, shared, outer);  // the same names: tied
        return mean(x * mask);
      },
      Optimizer{}, {.gradients_as_outputs = true});
  verify(module);
  EXPECT_EQ(names_of(module, "step", RoleKind::Parameter).size(), 1 + 4 * 2U);
  for (const char* name : {"h.eval", "inner.eval"}) EXPECT_EQ(graphs_named(module, name), 0) << name;
  EXPECT_EQ(outputs_of(module, "step", RoleKind::Gradient).size(), 9U);
  // Against differences, in f64.
  const Module wide = with_floating_dtype(module, DType::F64);
  auto values = start_of(wide);
  values["x"] = Literal::from_doubles(DType::F64, {2, 3}, std::vector<double>{1, -2, 0.5, 0.25, 3, -1});
  const auto& outputs = wide.graph(wide.entry("step")).outputs;
  const auto found = run_entry(wide, "step", values);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o].role.kind != RoleKind::Gradient) continue;
    Literal& parameter = values.at(outputs[o].role.name);
    const double at = parameter.at(1), h = 1e-6;
    parameter.set(1, at + h);
    const double above = run_entry(wide, "step", values)[0].at(0);
    parameter.set(1, at - h);
    const double below = run_entry(wide, "step", values)[0].at(0);
    parameter.set(1, at);
    EXPECT_NEAR(found[o].at(1), (above - below) / (2 * h), 1e-8) << outputs[o].role.name;
  }
}

TEST(Repeat, Errors) {
  expect_holds(capture_error([](Scope s, Inputs in) { return mean(repeat(s / "h", -1, in["x"], tanh_layer)); }), "a count of -1");
  expect_holds(capture_error([](Scope s, Inputs in) { return mean(repeat(s / "h", 2, in["x"], [](Scope layer, Value x) { return linear(layer, x, 4); })); }),
               "a repeated layer keeps its type");
  expect_holds(capture_error([](Scope s, Inputs in) {
                 const Value outer = in["x"];
                 return mean(repeat(s / "h", 2, in["x"], [&](Scope, Value x) { return x + outer; }));
               }),
               "operands belong to two graphs");
  expect_holds(capture_error([](Scope s, Inputs in) { return mean(repeat(s / "h", 2, in["x"], [](Scope, Value) { return Value{}; })); }), "into nothing");
  Value leaked;
  expect_holds(capture_error([&](Scope s, Inputs in) {
                 repeat(s / "h", 2, in["x"], [&](Scope, Value x) { return leaked = x + 1.0; });
                 return sum(leaked);
               }),
               "another graph");
  const Module none = capture(one_input, [](Scope s, Inputs in) { return repeated_loss(s, in, 0); });
  EXPECT_TRUE(names_of(none, "forward", RoleKind::Parameter).empty());
}

// ---- the training step

TEST(TrainStep, Errors) {
  const ModelFunction model = [](Scope s, Inputs in) { return mean(linear(s / "fc", in["x"], 2)); };
  auto step_error = [&](const Optimizer& optimizer, const StepOptions& options) { return error_of([&] { train_step(one_input, model, optimizer, options); }); };
  expect_holds(step_error({}, {.micro_batches = 0}), "micro_batches: found 0");
  expect_holds(step_error({}, {.clip_norm = -1.0}), "clip_norm");
  expect_holds(step_error({}, {.clip_norm = std::nan("")}), "clip_norm");
  Optimizer groups;
  groups.groups = {{{"fd.*"}, 1, {}, true}};
  expect_holds(step_error(groups, {}), "fd.*");
  expect_holds(error_of([&] { train_step({{"x", DType::F32, {4, 3}}}, model, {}, {.micro_batches = 2}); }), "wanted a symbol as its first dim");
  expect_holds(error_of([&] {
                 train_step({{"x", DType::F32, {batch, 3}}, {"y", DType::F32, {Dim::symbol("other"), 3}}}, model, {}, {.micro_batches = 2});
               }),
               "different first dims");
  expect_holds(error_of([&] {
                 train_step(
                     one_input,
                     [](Scope s, Inputs in) {
                       const Value w = s.parameter("w", {3}, initialize::ones());
                       return Loss(sum(in["x"] * w), sum(w));
                     },
                     {}, {});
               }),
               "the loss denominator depends on parameter w");
}

TEST(TrainStep, StateNamesDoNotMeet) {
  const ModelFunction model = [](Scope s, Inputs in) {
    return mean(in["x"] * s.parameter("w", {3}, initialize::ones()) * s.parameter("w.exp_avg", {3}, initialize::ones()));
  };
  expect_holds(error_of([&] { train_step(one_input, model, {}, {}); }), "state w.exp_avg of the optimizer has the name");
  Optimizer sgd;
  sgd.kind = Optimizer::Kind::Sgd;
  EXPECT_NO_THROW(train_step(one_input, model, sgd, {}));
}

TEST(TrainStep, NothingToTrain) {
  for (int64_t micro_batches : {1, 2}) {
    const Module module = train_step(
        one_input,
        [](Scope s, Inputs in) {
          s.parameter("unused", {2}, initialize::ones());
          return mean(in["x"]);
        },
        {}, {.clip_norm = 1.0, .micro_batches = micro_batches});
    verify(module);
    EXPECT_TRUE(outputs_of(module, "step", RoleKind::NewState).empty());
    auto values = start_of(module);
    values["x"] = Literal::full(DType::F32, micro_batches == 1 ? Sizes{2, 3} : Sizes{2, 1, 3}, 4);
    const auto results = run_entry(module, "step", values);
    EXPECT_EQ(results[0].at(0) / results[1].at(0), 4);
  }
}

TEST(TrainStep, FrozenAndUnusedParametersStay) {
  Optimizer optimizer;
  optimizer.groups = {{{"frozen"}, 1, {}, true}};
  const Module module = train_step(
      one_input,
      [](Scope s, Inputs in) {
        s.parameter("unused", {2}, initialize::ones());
        const Value stopped = stop_gradient(s.parameter("stopped", {3}, initialize::ones()));
        return mean(in["x"] * s.parameter("frozen", {3}, initialize::ones()) * s.parameter("trained", {3}, initialize::ones()) * stopped);
      },
      optimizer, {.gradients_as_outputs = true});
  EXPECT_EQ(outputs_of(module, "step", RoleKind::Gradient), Names{"trained"});
  EXPECT_EQ(outputs_of(module, "step", RoleKind::NewState), (Names{"trained", "trained.exp_avg", "trained.exp_avg_sq"}));
  EXPECT_EQ(names_of(module, "step", RoleKind::Parameter).size(), 4U);
}

TEST(TrainStep, BuffersThroughMicroBatches) {
  // A count that goes on from slice to slice, one that takes a parameter, one that takes another buffer, one that takes the batch.
  const Module module = train_step(
      one_input,
      [](Scope s, Inputs in) {
        const Value w = s.parameter("w", {3}, initialize::constant(2)), count = s.buffer("count", {}, initialize::zeros());
        const Value other = s.buffer("other", {3}, initialize::constant(7));
        for (const char* name : {"copy", "taken", "seen"}) s.buffer(name, {3}, initialize::zeros());
        s.set_buffer("count", count + 1);
        s.set_buffer("copy", w);
        s.set_buffer("taken", other);
        s.set_buffer("seen", sum(in["x"], {0}));
        return mean(in["x"] * w);
      },
      Optimizer{}, {.micro_batches = 2});
  verify(module);
  auto state = start_of(module);
  state["x"] = Literal::from_doubles(DType::F32, {2, 1, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
  const auto results = run_entry(module, "step", state);
  const auto& outputs = module.graph(module.entry("step")).outputs;
  std::map<std::string, Literal> after;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].role.kind == RoleKind::NewState) after[outputs[i].role.name] = results[i];
  EXPECT_EQ(after.at("count").at(0), 2);
  EXPECT_EQ(after.at("copy"), Literal::full(DType::F32, {3}, 2));
  EXPECT_EQ(after.at("taken"), Literal::full(DType::F32, {3}, 7));
  EXPECT_EQ(after.at("seen"), Literal::from_doubles(DType::F32, {3}, std::vector<double>{4, 5, 6}));
}

}  // namespace capture_test
}  // namespace stepgraph
