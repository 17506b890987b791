// SPDX-License-Identifier: Apache-2.0
// Random numbers of micro-batches: each slice draws what the whole batch would have drawn in its place.
#include <gtest/gtest.h>

#include <map>

#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/compile/step/micro_batches.h"
#include "stepgraph/reference/interpreter.h"

namespace stepgraph {
namespace capture_micro_batches_test {

const Dim batch = Dim::symbol("batch");

/// Outputs of a step by role and name, on x = 0, 1, 2, ... of `rows` rows.
std::map<std::string, Literal> run_step(const std::vector<InputSpec>& inputs, const ModelFunction& model, int64_t rows, int64_t micro_batches) {
  Optimizer sgd;
  sgd.kind = Optimizer::Kind::Sgd;
  const Module module = train_step(inputs, model, sgd, {.micro_batches = micro_batches, .gradients_as_outputs = true});
  verify(module);
  const auto start = evaluate_graph(module, module.entry("init"), std::vector<Literal>{Literal::integer(DType::I64, 1)});
  const Graph& graph = module.graph(module.entry("step"));
  std::vector<Literal> values;
  size_t next = 0;
  for (const GraphInput& input : graph.inputs) {
    if (is_state(input.role.kind)) {
      values.push_back(start[next++]);
    } else if (input.role.kind == RoleKind::Batch) {
      Sizes sizes;
      for (const Dim& dim : graph.type(input.value).shape) sizes.push_back(dim.is_constant() ? dim.constant() : rows / micro_batches);
      Literal value(DType::F32, sizes);
      for (int64_t i = 0; i < value.count(); ++i) value.set(i, static_cast<double>(i + 1));
      values.push_back(value);
    } else {
      values.push_back(Literal::integer(DType::I64, 9));
    }
  }
  const auto results = evaluate_graph(module, module.entry("step"), values);
  std::map<std::string, Literal> found;
  // A mean is one numerator a slice: only the quotient is the same for all.
  found["loss"] = Literal::scalar(DType::F64, results[0].at(0) / results[1].at(0));
  for (size_t i = 0; i < results.size(); ++i) found[std::string(name(graph.outputs[i].role.kind)) + " " + graph.outputs[i].role.name] = results[i];
  return found;
}

void expect_independent_of_slices(const std::vector<InputSpec>& inputs, const ModelFunction& model) {
  const auto wanted = run_step(inputs, model, 12, 1);
  for (int64_t micro_batches : {2, 3, 12}) {
    const auto found = run_step(inputs, model, 12, micro_batches);
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [name, value] : wanted)
      for (int64_t i = 0; i < value.count() && !name.starts_with("loss_"); ++i)
        EXPECT_NEAR(found.at(name).at(i), value.at(i), 1e-6 * std::max(1.0, std::abs(value.at(i)))) << name << " of " << micro_batches;
  }
}

TEST(MicroBatchRandom, BatchInAnyDimOrAsOuterFactor) {
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {batch, 3}}};
  const auto weight = [](Scope s) { return s.parameter("w", {}, initialize::ones()); };
  expect_independent_of_slices(inputs, [=](Scope s, Inputs in) { return mean(dropout(s, in["x"], 0.5)) * weight(s); });
  expect_independent_of_slices(inputs, [=](Scope s, Inputs in) { return mean(dropout(s, transpose(in["x"], 0, 1), 0.5)) * weight(s); });
  expect_independent_of_slices(inputs, [=](Scope s, Inputs in) { return mean(dropout(s, flatten(in["x"], 0, 1), 0.5)) * weight(s); });
  // Not of the batch: one mask for all slices.
  expect_independent_of_slices(inputs, [=](Scope s, Inputs in) { return mean(in["x"] * dropout(s, s.parameter("v", {3}, initialize::ones()), 0.5)) * weight(s); });
  // In layers and layers of layers.
  expect_independent_of_slices(inputs, [=](Scope s, Inputs in) {
    return mean(repeat(s / "h", 2, in["x"], [](Scope outer, Value x) {
             return repeat(outer / "g", 2, x, [](Scope inner, Value y) { return dropout(inner, tanh(linear(inner, y, 3)), 0.25); });
           })) * weight(s);
  });
}

TEST(MicroBatchRandom, ADenominatorThatIsDrawn) {
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {batch, 5}}};
  const ModelFunction model = [](Scope s, Inputs in) {
    const Value kept = convert(less(random_uniform(s.key(), DType::F32, in["x"].shape()), 0.5), DType::F32);
    return Loss(sum(kept * in["x"]) * s.parameter("w", {}, initialize::ones()), sum(kept));
  };
  expect_independent_of_slices(inputs, model);
}

/// One row of masks an iteration, each of its own, summed: what a recurrence with dropout does.
Value drawn_in_a_loop(Scope s, Value x) {
  Builder& builder = s.builder();
  Module& module = builder.module();
  Loop loop;
  loop.trip_count = 3;
  loop.carried = 1;
  loop.symbol = iteration_symbol(module);
  loop.body = module.add_graph("recurrence");
  Builder body(module, loop.body);
  const Value carried = body.input(x.type()), key = body.input({DType::I64, {}, {}});
  const Value own = fold_in(key, size_value(body, DType::I64, Dim::symbol(loop.symbol)));
  body.output(carried + convert(less(random_uniform(own, DType::F32, x.shape()), 0.5), DType::F32));
  return builder.emit(loop, {x, s.key()})[0];
}

TEST(MicroBatchRandom, ADenominatorThatIsDrawnInALoopInALayer) {
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {batch, 5}}};
  const ModelFunction model = [](Scope s, Inputs in) {
    const Value drawn = repeat(s / "h", 2, in["x"] * 0.0, [](Scope layer, Value x) { return drawn_in_a_loop(layer, x); });
    return Loss(sum(drawn) * s.parameter("w", {}, initialize::ones()), sum(drawn));
  };
  for (int64_t micro_batches : {1, 2, 3}) {
    const auto found = run_step(inputs, model, 12, micro_batches);
    EXPECT_EQ(found.at("loss_numerator loss"), found.at("loss_denominator loss")) << micro_batches;
    EXPECT_GT(found.at("loss_denominator loss").at(0), 100);
    EXPECT_NEAR(found.at("gradient w").at(0), 1, 1e-6);
  }
  expect_independent_of_slices(inputs, model);
}

TEST(MicroBatchRandom, BatchAsInnerFactor) {
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {batch, 3, 2}}};
  const auto weight = [](Scope s) { return s.parameter("w", {}, initialize::ones()); };
  // sequence * batch, sequence * batch * features, and with the batch between two dims.
  expect_independent_of_slices(inputs, [=](Scope s, Inputs in) { return mean(dropout(s, flatten(transpose(in["x"], 0, 1), 0, 1), 0.5)) * weight(s); });
  expect_independent_of_slices(inputs, [=](Scope s, Inputs in) { return mean(dropout(s, flatten(transpose(in["x"], 0, 1), 0, 2), 0.5)) * weight(s); });
  // Told by what is done later: the draw is made first and taken apart behind.
  expect_independent_of_slices(inputs, [=](Scope s, Inputs in) {
    const Value noise = random_uniform(s.key(), DType::F32, {Dim(3) * batch, 2});
    return mean(transpose(unflatten(noise, 0, {3, batch}), 0, 1) * in["x"]) * weight(s);
  });
  // One layer, called with the batch inside and outside.
  expect_independent_of_slices(inputs, [=](Scope s, Inputs in) {
    const Value outer = flatten(in["x"], 0, 1), inner = flatten(transpose(in["x"], 0, 1), 0, 1);
    const auto layer = [](Scope inside, Value x) { return dropout(inside, x, 0.5); };
    return (mean(repeat(s / "a", 2, outer, layer)) + mean(repeat(s / "b", 2, inner, layer)) * 3.0) * weight(s);
  });
}

/// The error of the step by two micro-batches; without them there is none.
std::string refusal(const ModelFunction& model) {
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {batch, 3}}};
  EXPECT_NO_THROW(train_step(inputs, model, {}, {}));
  try {
    train_step(inputs, model, {}, {.micro_batches = 2});
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MicroBatchRandom, ADrawWhosePlaceIsNotKnownIsRefused) {
  const auto loss = [](Scope s, Inputs in, const Value& drawn) { return (mean(in["x"]) + mean(drawn)) * s.parameter("w", {}, initialize::ones()); };
  const std::string apart = refusal([=](Scope s, Inputs in) { return loss(s, in, random_uniform(s.key(), DType::F32, {Dim(3) * batch})); });
  EXPECT_NE(apart.find("random numbers of shape [3*batch] cannot be drawn by micro-batches: it is not known where batch lies in dim 0"), std::string::npos)
      << apart;
  const std::string twice = refusal([=](Scope s, Inputs in) { return loss(s, in, random_uniform(s.key(), DType::F32, {batch * batch})); });
  EXPECT_NE(twice.find("dim 0 is not a multiple of batch"), std::string::npos) << twice;
  const std::string loop = refusal([=](Scope s, Inputs in) {
    Builder& builder = s.builder();
    Loop op;
    op.trip_count = batch, op.scanned = 1, op.symbol = iteration_symbol(builder.module()), op.body = builder.module().add_graph("rows");
    Builder body(builder.module(), op.body);
    const Value row = body.input({DType::F32, {3}, {}}), key = body.input({DType::I64, {}, {}});
    body.output(dropout(row, 0.5, fold_in(key, size_value(body, DType::I64, Dim::symbol(op.symbol)))));
    return loss(s, in, builder.emit_one(op, {in["x"], s.key()}));
  });
  EXPECT_NE(loop.find("a loop of batch iterations draws random numbers"), std::string::npos) << loop;
}

TEST(MicroBatchRandom, ADimThatIsNoMultipleOfTheBatchIsRefused) {
  const std::vector<InputSpec> inputs = {{"x", DType::F32, {batch, 3}}};
  const ModelFunction model = [](Scope s, Inputs in) {
    return mean(dropout(s, pad(in["x"], {1, 0}, {0, 0}), 0.5)) * s.parameter("w", {}, initialize::ones());
  };
  EXPECT_NO_THROW(train_step(inputs, model, {}, {}));
  try {
    train_step(inputs, model, {}, {.micro_batches = 2});
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("is not a multiple of batch"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("capture_micro_batches.cpp:"), std::string::npos) << error.what();
  }
}

}  // namespace capture_micro_batches_test
}  // namespace stepgraph
