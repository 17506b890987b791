// SPDX-License-Identifier: Apache-2.0
// Where other engines' compiled steps went wrong without a word: small programs with their answers worked out, under every back end.
#include <gtest/gtest.h>

#include <cmath>

#include "stepgraph/backend/run_once.h"
#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/normalization.h"
#include "stepgraph/train/trainer.h"

namespace stepgraph {
namespace compiled_cases_test {

using Outputs = std::vector<Literal>;
using Build = std::function<std::vector<Value>(Builder&, std::span<const Value>)>;

/// Every back end, on some threads, with dead memory NaN, with and without what makes values again.
std::vector<BackendOptions> ways() {
  if (!has_code_generation()) return {{.backend = Backend::Reference}};
  return {{.backend = Backend::Reference},
          {.backend = Backend::Eager, .threads = 1, .poison = true},
          {.backend = Backend::Segment, .threads = 2},
          {.backend = Backend::Full, .threads = 1, .poison = true},
          {.backend = Backend::Full, .threads = 3, .skip = {"recompute"}, .poison = true},
          {.backend = Backend::Full, .threads = 2, .skip = {"fuse"}, .canaries = true}};
}

Outputs run(const std::vector<Literal>& inputs, const Build& build, const BackendOptions& options) {
  Module module;
  const GraphId id = module.add_graph("main");
  module.entries = {{"main", id}};
  Builder builder(module, id);
  std::vector<Value> values;
  for (const Literal& input : inputs) values.push_back(builder.input({input.dtype(), Shape(input.sizes().begin(), input.sizes().end()), {}}));
  for (const Value& output : build(builder, values)) builder.output(output);
  return run_once(module, "main", inputs, options);
}
void under_every_back_end(const std::vector<Literal>& inputs, const Build& build, const std::function<void(const Outputs&)>& check) {
  for (const BackendOptions& options : ways()) {
    std::string what = std::string(name(options.backend)) + " on " + std::to_string(options.threads);
    for (const std::string& pass : options.skip) what += " without " + pass;
    SCOPED_TRACE(what);
    check(run(inputs, build, options));
  }
}

Literal f32(Sizes sizes, std::vector<double> values) { return Literal::from_doubles(DType::F32, std::move(sizes), values); }
Literal counted(Sizes sizes, DType dtype = DType::F32) {
  Literal value(dtype, std::move(sizes));
  for (int64_t i = 0; i < value.count(); ++i) value.set(i, static_cast<double>(i));
  return value;
}
Value loss_of(const Value& x) { return sum(convert(x, DType::F32)); }

/// E[x²] - E[x]² would leave nothing of a variance beside a large mean; so would one of its gradient.
TEST(CompiledCases, NormsKeepTheirDigitsBesideALargeMean) {
  using Norm = std::function<Value(const Value&)>;
  const std::vector<std::pair<const char*, Norm>> norms = {
      {"layer norm", [](const Value& x) { return layer_norm(x, 1); }},
      {"group norm", [](const Value& x) { return reshape(group_norm(unsqueeze(x, 1), 1).result, x.shape()); }},
      {"batch norm", [](const Value& x) { return transpose(batch_norm_training(transpose(x, 0, 1), std::nullopt, std::nullopt).result, 0, 1); }},
      {"variance", [](const Value& x) { return (x - mean(x, {1}, true)) / sqrt(moments(x, {1}, true).variance + 1e-5); }},
  };
  for (const double offset : {0.0, 64.0, 512.0, 4096.0}) {
    std::vector<double> x, g;
    for (int row = 0; row < 3; ++row)
      for (int i = 0; i < 32; ++i) x.push_back(offset + i / 256.0), g.push_back(std::sin(1.3 * (i + 40 * row)));
    for (const auto& [what, norm] : norms) {
      SCOPED_TRACE(std::string(what) + " at " + std::to_string(offset));
      const Build build = [&, &norm = norm](Builder& b, std::span<const Value> in) -> std::vector<Value> {
        const Value y = norm(in[0]);
        return {y, *gradients(b, sum(y * in[1]), std::vector<Value>{in[0]})[0]};
      };
      const Outputs exact = run({Literal::from_doubles(DType::F64, {3, 32}, x), Literal::from_doubles(DType::F64, {3, 32}, g)}, build, {.backend = Backend::Reference});
      EXPECT_NEAR(exact[0].at(0), -1.6723, 1e-4);
      under_every_back_end({f32({3, 32}, x), f32({3, 32}, g)}, build, [&](const Outputs& found) {
        for (size_t o = 0; o < 2; ++o)
          for (int64_t i = 0; i < exact[o].count(); ++i) EXPECT_NEAR(found[o].at(i), exact[o].at(i), 5e-2 * std::max(1.0, std::fabs(exact[o].at(i))) * (o == 0 ? 1 : 2)) << o << " " << i;
      });
    }
  }
}

/// A gradient takes the mask of the forward pass, wherever that is made again; another dropout and another step have other masks.
TEST(CompiledCases, GradientsTakeTheMaskOfForward) {
  const Literal ones = Literal::full(DType::F32, {64, 64}, 1), seed = Literal::integer(DType::I64, 11);
  for (const bool deep : {false, true}) {
    std::vector<Literal> before;
    for (const int64_t step : {0, 1, 2}) {
      const Build build = [&](Builder& b, std::span<const Value> in) -> std::vector<Value> {
        const Value key = fold_in(in[1], in[2]);
        const Value first = dropout(in[0], 0.5, fold_in(key, int64_t{0}));
        // Behind values that are cheap to make again, or behind a product whose operand is kept.
        const Value second = deep ? dropout(first * 2.0 + in[0], 0.25, fold_in(key, int64_t{1})) : dropout(in[0], 0.5, fold_in(key, int64_t{1}));
        const Value y = deep ? second * in[0] : first;
        const auto of = [&](const Value& loss) { return *gradients(b, loss, std::vector<Value>{in[0]})[0]; };
        return {first, of(loss_of(first)), second, of(loss_of(second)), y};
      };
      std::optional<Outputs> wanted;
      under_every_back_end({ones, seed, Literal::integer(DType::I64, step)}, build, [&](const Outputs& found) {
        EXPECT_EQ(found[1], found[0]);  // x is one: dL/dx is y / x
        if (!deep) {
          EXPECT_EQ(found[3], found[2]);
        }
        EXPECT_FALSE(found[0] == found[2]);
        if (!wanted) wanted = found;
        for (size_t o = 0; o < found.size(); ++o) EXPECT_EQ(found[o], (*wanted)[o]) << "output " << o << " differs from the oracle's";
      });
      for (const Literal& other : before) EXPECT_FALSE(other == (*wanted)[0]) << "two steps have one mask";
      before.push_back((*wanted)[0]);
    }
  }
}

/// What a region that is run again writes, it writes once.
TEST(CompiledCases, RunningStatisticsMoveOnceAStep) {
  const Dim batch = Dim::symbol("batch");
  const Module step = train_step({{"x", DType::F32, {batch, 2}}},
                                 [](Scope s, Inputs in) -> Loss {
                                   const Value y = batch_norm(s / "bn", in["x"]);
                                   return mse_loss(tanh(y) * y, in["x"]);
                                 },
                                 Optimizer{});
  for (const BackendOptions& options : ways()) {
    for (const char* mesh : {"", "data=2"}) {
      SCOPED_TRACE(std::string(name(options.backend)) + " " + mesh);
      Trainer trainer(step, {.mesh = mesh, .backend = options});
      const auto state = [&](const char* name) { return *find_array(trainer.state(), name); };
      const NamedArrays rows = {{"x", f32({4, 2}, {1, 2, 3, -2, 5, 0, -1, 4})}};
      trainer.step(rows);
      EXPECT_NEAR(state("bn.running_mean").at(0), .2, 1e-6);
      EXPECT_NEAR(state("bn.running_mean").at(1), .1, 1e-6);
      for (int64_t c = 0; c < 2; ++c) EXPECT_NEAR(state("bn.running_var").at(c), 1.566667, 1e-5);
      EXPECT_EQ(state("bn.num_batches_tracked").integer_at(0), 1);
      trainer.step(rows);
      EXPECT_NEAR(state("bn.running_mean").at(0), .38, 1e-6);
      EXPECT_EQ(state("bn.num_batches_tracked").integer_at(0), 2);
    }
  }
}

/// A cast that the user wrote rounds, though both sides of it are in one kernel.
TEST(CompiledCases, CastsRoundInRegistersToo) {
  const Literal x = f32({3}, {1 + 0x1p-9, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-16}), b = Literal(DType::F32, {3});
  const auto through = [](const Value& value, DType dtype) { return convert(convert(value, dtype), DType::F32); };
  under_every_back_end({x, b}, [&](Builder&, std::span<const Value> in) -> std::vector<Value> {
    const Value one = full(*in[0].builder, DType::F32, {1, 1}, 1);
    const Value product = reshape(through(matmul(unsqueeze(in[0], 1), one), DType::BF16), {3});
    return {through(in[0], DType::BF16) + in[1], product + in[1], through(in[0] * 1.0, DType::F16) + in[1], through(through(in[0], DType::F16), DType::BF16), convert(convert(in[0] * 300.5, DType::I32), DType::F32),
            sum(through(in[0], DType::BF16)), convert(convert(in[0], DType::F64) * (1 + 0x1p-30), DType::F32)};
  }, [](const Outputs& found) {
    const Literal bf16 = f32({3}, {1.0, 1.015625, 1.0078125});
    EXPECT_EQ(found[0], bf16);
    EXPECT_EQ(found[1], bf16);
    EXPECT_EQ(found[2], f32({3}, {1.001953125, 1.01171875, 1.00390625}));
    EXPECT_EQ(found[3], f32({3}, {1.0, 1.015625, 1.0}));  // rounded twice, as it says
    EXPECT_EQ(found[4], f32({3}, {301, 304, 301}));
    EXPECT_EQ(found[5].at(0), 3.0234375);
    EXPECT_EQ(found[6], f32({3}, {1 + 0x1p-9, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-16}));
  });
}

/// Memory that is read through a view lives as long as the view.
TEST(CompiledCases, ViewsKeepWhatTheyLookAt) {
  const Literal a = counted({4, 4}), identity = f32({4, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1});
  const Build build = [](Builder& b, std::span<const Value> in) -> std::vector<Value> {
    const Value t = in[0] + 1.0, view = transpose(t, 0, 1), total = sum(t, {0});
    const Value w = matmul(full(b, DType::F32, {4, 4}, 5), in[1]) * 3.0;
    // Three views of one another, the last read behind two products.
    const Value chain = reshape(flip(slice(transpose(t, 0, 1), 0, 1, 4), {1}), {2, 6});
    const Value later = matmul(w, in[1]) + 1.0;
    // A view that backward reads of what forward made.
    const Value product = matmul(view, in[0]);
    return {total, view + w, chain, later, *gradients(b, sum(product * product), std::vector<Value>{in[0]})[0]};
  };
  const Outputs exact = run({a, identity}, build, {.backend = Backend::Reference});
  under_every_back_end({a, identity}, build, [&](const Outputs& found) {
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(found[0].at(i), 28 + 4.0 * static_cast<double>(i));
      for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(found[1].at(4 * i + j), static_cast<double>(4 * j + i + 16));
    }
    const double chain[] = {14, 10, 6, 2, 15, 11, 7, 3, 16, 12, 8, 4};
    for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(found[2].at(i), chain[i]);
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(found[3].at(i), 16);
      EXPECT_NEAR(found[4].at(i), exact[4].at(i), 1e-5 * std::fabs(exact[4].at(i)));
    }
  });
}

/// One model under three precisions in one process: nothing that was compiled for one serves another, in any order.
TEST(CompiledCases, PrecisionsDoNotServeOneAnother) {
  const auto answer = [](const std::optional<DType>& dtype, const BackendOptions& backend) {
    CaptureOptions options;
    options.autocast.dtype = dtype;
    const Module step = train_step({{"x", DType::F32, {2, 1}}},
                                   [](Scope s, Inputs in) -> Loss {
                                     const Value y = convert(matmul(in["x"], s.parameter("w", {1, 1}, initialize::ones())), DType::F32);
                                     return Loss(sum(y)).output("y", y);
                                   },
                                   Optimizer{}, {}, options);
    Trainer trainer(step, {.backend = backend});
    return trainer.eval_batch({{"x", f32({2, 1}, {1 + 0x1p-9, 1 + 0x1p-12})}}).outputs.at("y");
  };
  std::vector<std::pair<std::optional<DType>, Literal>> answers = {
      {std::nullopt, f32({2, 1}, {1.001953125, 1.000244140625})}, {DType::F16, f32({2, 1}, {1.001953125, 1})}, {DType::BF16, f32({2, 1}, {1, 1})}};
  std::vector<size_t> order = {0, 1, 2};
  do {
    for (const size_t i : order)
      for (const BackendOptions& backend : {ways().front(), ways().back()})
        EXPECT_EQ(answer(answers[i].first, backend), answers[i].second) << (answers[i].first ? name(*answers[i].first) : "none") << " under " << name(backend.backend);
  } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace compiled_cases_test
}  // namespace stepgraph
