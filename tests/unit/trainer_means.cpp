// SPDX-License-Identifier: Apache-2.0
// Evaluation of losses and metrics that are plain means: it must not depend on how the test set is cut into batches.
#include <gtest/gtest.h>

#include <algorithm>

#include "stepgraph/compile/capture/layers.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/train/data/dataset.h"
#include "stepgraph/train/trainer.h"
#include "tests/support/on_reference.h"

namespace stepgraph {
namespace trainer_means_test {

Loss mean_model(Scope s, Inputs in) {
  const Value y = linear(s / "a", in["x"], 2);
  const Value squares = mean(y * y);
  Loss loss(squares);
  const Value one = scalar(*y.builder, DType::F32, 1);
  loss.metric("mean", mean(y), one);
  loss.metric("share", sum(y), size_value(*y.builder, DType::F32, y.dim(0)));
  return loss;
}

class TrainerMeans : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Meshes, TrainerMeans, ::testing::Values("", "data=2"), [](const auto& info) { return std::string(*info.param ? "two" : "one"); });

TEST_P(TrainerMeans, CountBatchesByTheirRows) {
  Trainer trainer(train_step({{"x", DType::F32, {Dim::symbol("batch"), 3}}}, mean_model, Optimizer{}), testing::on_reference({.mesh = GetParam()}));
  constexpr int64_t rows = 7;
  Literal whole(DType::F32, {rows, 3});
  for (int64_t i = 0; i < whole.count(); ++i) whole.set(i, static_cast<double>(i * i % 11));
  const auto evaluated = [&](int64_t batch) {
    int64_t start = 0;
    return trainer.eval([&]() -> std::optional<NamedArrays> {
      if (start >= rows) return std::nullopt;
      const int64_t count = std::min(batch, rows - start);
      NamedArrays part = slice_rows({{"x", whole}}, start, count);
      start += count;
      return part;
    });
  };
  const EvalResult at_once = evaluated(rows);
  EXPECT_GT(at_once.loss.value(), 0.01);
  for (const int64_t batch : {1, 2, 3, 6}) {
    const EvalResult parts = evaluated(batch);
    EXPECT_NEAR(parts.loss.value(), at_once.loss.value(), 1e-5 * at_once.loss.value()) << batch;
    for (const char* metric : {"mean", "share"}) EXPECT_NEAR(parts.metrics.at(metric), at_once.metrics.at(metric), 1e-5) << metric << " " << batch;
  }
}

}  // namespace trainer_means_test
}  // namespace stepgraph
