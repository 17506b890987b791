// SPDX-License-Identifier: Apache-2.0
// Batches of many sizes in one run: one compilation serves them all, and a batch that is larger than any before gives buffers other places, no other code.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "stepgraph/backend/shapes_report.h"
#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/train/trainer.h"
#include "tests/support/error_of.h"

namespace stepgraph {
namespace dynamic_sizes_test {

constexpr int64_t in_width = 6, hidden_width = 5, out_width = 3;

Module small_net(int64_t micro_batches = 1) {
  const Dim batch = Dim::symbol("batch");
  return train_step({{"x", DType::F32, {batch, in_width}}, {"y", DType::F32, {batch, out_width}}},
                    [](Scope s, Inputs in) -> Loss { return mse_loss(linear(s / "b", tanh(linear(s / "a", in["x"], hidden_width)), out_width), in["y"]); }, {},
                    {.micro_batches = micro_batches, .gradients_as_outputs = true});
}

NamedArrays batch_of(int64_t rows) {
  Literal x(DType::F32, {rows, in_width}), y(DType::F32, {rows, out_width});
  for (int64_t i = 0; i < x.count(); ++i) x.set(i, std::sin(1.7 * static_cast<double>(i + rows)));
  for (int64_t i = 0; i < y.count(); ++i) y.set(i, std::cos(2.3 * static_cast<double>(i + 3 * rows)));
  return {{"x", x}, {"y", y}};
}

using Matrix = std::vector<std::vector<double>>;
Matrix matrix(const Literal& value, int64_t rows, int64_t columns) {
  Matrix result(static_cast<size_t>(rows), std::vector<double>(static_cast<size_t>(columns)));
  for (int64_t i = 0; i < rows * columns; ++i) result[static_cast<size_t>(i / columns)][static_cast<size_t>(i % columns)] = value.at(i);
  return result;
}

/// Loss and gradients of the net by plain loops.
struct Wanted {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};
Wanted by_hand(const NamedArrays& state, const NamedArrays& batch) {
  const auto rows = batch[0].second.sizes()[0];
  const Matrix x = matrix(batch[0].second, rows, in_width), y = matrix(batch[1].second, rows, out_width);
  const Matrix wa = matrix(*find_array(state, "a.weight"), hidden_width, in_width), wb = matrix(*find_array(state, "b.weight"), out_width, hidden_width);
  const Literal &ba = *find_array(state, "a.bias"), &bb = *find_array(state, "b.bias");
  Wanted wanted;
  std::vector<double> dwa(hidden_width * in_width), dba(hidden_width), dwb(out_width * hidden_width), dbb(out_width);
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    std::vector<double> h(hidden_width), dh(hidden_width, 0);
    for (size_t j = 0; j < hidden_width; ++j) {
      double sum = ba.at(static_cast<int64_t>(j));
      for (size_t k = 0; k < in_width; ++k) sum += x[r][k] * wa[j][k];
      h[j] = std::tanh(sum);
    }
    for (size_t o = 0; o < out_width; ++o) {
      double sum = bb.at(static_cast<int64_t>(o));
      for (size_t j = 0; j < hidden_width; ++j) sum += h[j] * wb[o][j];
      const double count = static_cast<double>(rows) * out_width, error = sum - y[r][o], d = 2 * error / count;
      wanted.loss += error * error / count;
      dbb[o] += d;
      for (size_t j = 0; j < hidden_width; ++j) dwb[o * hidden_width + j] += d * h[j], dh[j] += d * wb[o][j];
    }
    for (size_t j = 0; j < hidden_width; ++j) {
      const double d = dh[j] * (1 - h[j] * h[j]);
      dba[j] += d;
      for (size_t k = 0; k < in_width; ++k) dwa[j * in_width + k] += d * x[r][k];
    }
  }
  wanted.gradients = {{"a.weight", dwa}, {"a.bias", dba}, {"b.weight", dwb}, {"b.bias", dbb}};
  return wanted;
}

int64_t count_of(const PassLog& log, const std::string& pass) {
  return std::count_if(log.passes.begin(), log.passes.end(), [&](const PassRecord& record) { return record.name == pass; });
}

/// Trains on batches of these rows, each step against the plain loops; what the run compiled and planned.
PassLog train(Trainer& trainer, const std::vector<int64_t>& rows) {
  for (const int64_t count : rows) {
    const NamedArrays batch = batch_of(count);
    const Wanted wanted = by_hand(trainer.state(), batch);
    const StepResult step = trainer.step(batch);
    EXPECT_NEAR(step.loss, wanted.loss, 1e-5 * wanted.loss) << count << " rows";
    EXPECT_EQ(step.gradients.size(), 4u);
    for (const auto& [name, values] : wanted.gradients)
      for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(step.gradients.at(name).at(static_cast<int64_t>(i)), values[i], 1e-5) << count << " rows, " << name << " " << i;
  }
  return trainer.compile_log();
}

/// A batch of one row is a dim like any other, and no 1 / rows is baked in.
TEST(DynamicSizes, OneCompilationServesAllBatches) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  for (const Backend backend : {Backend::Eager, Backend::Segment, Backend::Full}) {
    for (const char* mesh : {"", "data=2"}) {
      SCOPED_TRACE(std::string(name(backend)) + " " + mesh);
      Trainer trainer(small_net(), {.mesh = mesh, .seed = 3, .backend = {.backend = backend, .threads = 2, .fullgraph = true}, .largest_batch = 8});
      EXPECT_EQ(trainer.sizes().compilations, 1);
      PassLog log = train(trainer, {8, 8, 5, 1, 8});
      EXPECT_EQ(count_of(log, "lower"), 1);
      EXPECT_EQ(count_of(log, "plan_room"), 0);
      log = train(trainer, {12, 3, 40, 12});
      EXPECT_EQ(count_of(log, "lower"), 1) << "code was made again";
      EXPECT_EQ(count_of(log, "plan_room"), 2);
    }
  }
}

TEST(DynamicSizes, BucketsBoundHowOftenMemoryIsPlanned) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  BackendOptions backend{.backend = Backend::Full, .threads = 1, .poison = true};
  backend.sizes = parse_size_ranges("batch=1..64", "batch=8,16,64");
  Trainer trainer(small_net(), {.seed = 3, .backend = backend});
  const ShapesReport sizes = trainer.sizes();
  EXPECT_EQ(sizes.memory_plans, 3);
  EXPECT_EQ(summary(sizes), "batch in [1, 64] · compiled once for all sizes · memory is planned at most 3 times (batch of 8, 16, 64)");
  const PassLog log = train(trainer, {1, 5, 8, 9, 12, 16, 3, 17, 64, 40, 8});
  EXPECT_EQ(count_of(log, "lower"), 1);
  EXPECT_EQ(count_of(log, "plan_room"), 2);
  EXPECT_EQ(testing::error_of([&] { trainer.step(batch_of(65)); }), "found a batch where batch is 65, this run was announced with batch=1..64");
  train(trainer, {7});  // and goes on
}

TEST(DynamicSizes, RangesThatAreAnnouncedAreKept) {
  for (const Backend backend : {Backend::Reference, default_backend()}) {
    BackendOptions options{.backend = backend, .threads = 1};
    options.sizes = parse_size_ranges("batch=2..9");
    Trainer trainer(small_net(), {.backend = options});
    train(trainer, {9, 2});
    EXPECT_EQ(testing::error_of([&] { trainer.step(batch_of(1)); }), "found a batch where batch is 1, this run was announced with batch=2..9");
    EXPECT_EQ(testing::error_of([&] { trainer.step(batch_of(10)); }), "found a batch where batch is 10, this run was announced with batch=2..9");
  }
  const auto refused = [](const char* ranges, const char* buckets) {
    BackendOptions options;
    options.sizes = parse_size_ranges(ranges, buckets);
    Trainer trainer(small_net(), {.backend = options});
  };
  EXPECT_EQ(testing::error_of([&] { refused("rows=1..4", ""); }), "sizes: the program has no size 'rows', it has batch");
  EXPECT_EQ(testing::error_of([&] { refused("batch=0..4", ""); }), "sizes: found batch=0..4, the program is made for batch in [1, inf]");
  EXPECT_EQ(testing::error_of([&] { refused("batch=1..4", "batch=2,8"); }), "sizes: bucket 8 of batch is not in its range batch=1..4");
  EXPECT_EQ(testing::error_of([&] { refused("batch=4..1", ""); }), "found 'batch=4..1', wanted the smaller size first");
  EXPECT_EQ(testing::error_of([&] { refused("batch", ""); }), "found 'batch', wanted SYMBOL=LOW..HIGH, as batch=1..64");
  EXPECT_EQ(testing::error_of([&] { refused("batch=x..3", ""); }), "found 'x' in 'batch=x..3', wanted a size");
  EXPECT_EQ(testing::error_of([&] { refused("", "batch=8,4"); }), "buckets of batch are not ascending at 4");
  EXPECT_EQ(testing::error_of([&] { refused("", "8,4"); }), "found '8', wanted SYMBOL=SIZE,SIZE,..., as batch=8,16,64");
}

TEST(DynamicSizes, TheReportTellsWhereSizesComeFrom) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  Trainer trainer(small_net(), {.mesh = "data=2", .backend = {.backend = Backend::Full}});
  EXPECT_EQ(text(explain_shapes(trainer.local(), {.backend = Backend::Full})),
            "size batch in [1, inf]\n"
            "  read from   dim 0 of x (step, eval), dim 0 of y (step, eval)\n"
            "  gives       batch.data = max(0, min(batch - coord.data*floordiv(batch + 1, 2), floordiv(batch + 1, 2)))\n"
            "  buckets     none\n"
            "compiled once for all sizes; memory is planned again for a batch that is larger than any before\n"
            "guards: none splits the program\n"
            "fallback: none; no operation is run by the interpreter because sizes are symbols\n");
}

TEST(DynamicSizes, FullgraphMakesFallbackAnError) {
  ShapesReport report;
  report.forced = {{"step", "argsort", "head", {"net.cpp", 12}, 2}, {"eval", "pick", "", {}, 1}};
  EXPECT_EQ(testing::error_of([&] { refuse_fallback(report); }),
            "--fullgraph: found operations that only the interpreter runs because sizes are symbols: argsort in entry step of head (net.cpp:12); pick in entry eval; "
            "wanted sizes that are numbers there, or no --fullgraph");
  EXPECT_EQ(testing::error_of([&] { Trainer trainer(small_net(), {.backend = {.backend = Backend::Reference, .fullgraph = true}}); }),
            "--fullgraph: nothing is compiled by the back end reference, wanted eager, segment or full");
}

}  // namespace dynamic_sizes_test
}  // namespace stepgraph
