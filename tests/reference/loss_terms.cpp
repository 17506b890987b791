// SPDX-License-Identifier: Apache-2.0
// Losses of imported programs (scripts/record_losses.py), of one weight: the same step and the same evaluation however the rows are cut.
#include <gtest/gtest.h>

#include <cmath>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/import.h"
#include "stepgraph/compile/step/train_step.h"
#include "stepgraph/train/trainer.h"
#include "tests/support/error_of.h"
#include "tests/support/on_reference.h"
#include "tests/support/places.h"

namespace stepgraph {
namespace loss_terms_test {

Imported loss_program(const std::string& name) { return import_pt2(std::string(testing::source_root()) + "/tests/samples/losses/" + name + ".pt2"); }

Trainer loss_trainer(const std::string& name, int64_t micro_batches = 1, const std::string& mesh = "") {
  Optimizer optimizer;
  optimizer.kind = Optimizer::Kind::Sgd;
  optimizer.rate = 1;
  return Trainer(train_step(loss_program(name).forward, optimizer, {.micro_batches = micro_batches}), testing::on_reference({.mesh = mesh}));
}

NamedArrays loss_rows(const std::vector<double>& x, const std::vector<double>& v) {
  const auto rows = static_cast<int64_t>(x.size());
  return {{"x", Literal::from_doubles(DType::F32, {rows}, x)}, {"v", Literal::from_doubles(DType::F32, {rows}, v)}};
}
const NamedArrays& entry_rows() {
  static const NamedArrays rows = loss_rows({8, 5, 2, 2}, {1, 0, 1, 1});
  return rows;
}

double weight_after(const std::string& name, int64_t micro_batches, const std::string& mesh = "") {
  Trainer trainer = loss_trainer(name, micro_batches, mesh);
  trainer.step(entry_rows());
  return find_array(trainer.state(), "w")->at(0);
}

struct LossCase {
  std::string name;
  double weight;  // after one step from 0: the negative gradient, by hand
};
void PrintTo(const LossCase& value, std::ostream* out) { *out << value.name; }
class LossTerms : public ::testing::TestWithParam<LossCase> {};

TEST_P(LossTerms, AStepIsThatOfTheWholeBatch) {
  const auto& [name, weight] = GetParam();
  for (const int64_t micro_batches : {1, 2, 4}) EXPECT_NEAR(weight_after(name, micro_batches), weight, 1e-5) << micro_batches << " micro-batches";
  EXPECT_NEAR(weight_after(name, 1, "data=2"), weight, 1e-5);
  EXPECT_NEAR(weight_after(name, 2, "data=2"), weight, 1e-5);
}

TEST_P(LossTerms, AnEvaluationIsThatOfAllRows) {
  Trainer trainer = loss_trainer(GetParam().name);
  trainer.step(entry_rows());  // so that the weight is not zero
  const double whole = trainer.eval_batch(entry_rows()).loss.value();
  const std::vector<double> x = {8, 5, 2, 2}, v = {1, 0, 1, 1};
  for (const size_t part : {1, 2, 3}) {
    size_t next = 0;
    const EvalResult result = trainer.eval([&]() -> std::optional<NamedArrays> {
      if (next >= x.size()) return std::nullopt;
      const size_t begin = next;
      next = std::min(next + part, x.size());
      const auto rows = [&](const std::vector<double>& all) {
        return std::vector<double>(all.begin() + static_cast<ptrdiff_t>(begin), all.begin() + static_cast<ptrdiff_t>(next));
      };
      return loss_rows(rows(x), rows(v));
    });
    EXPECT_NEAR(result.loss.value(), whole, 1e-5 * (1 + std::fabs(whole))) << "batches of " << part;
  }
}

// x = 8, 5, 2, 2 of which v = 1, 0, 1, 1 count. At w = 0 a cross entropy of (w x, -w x) has the gradient -x for class 0 and x for class 1.
INSTANTIATE_TEST_SUITE_P(All, LossTerms,
                         ::testing::Values(LossCase{"mean", -17.0 / 4}, LossCase{"sum", -12}, LossCase{"over_rows", -3}, LossCase{"masked", -4},
                                           LossCase{"weights", -4}, LossCase{"means", -4}, LossCase{"product", -4}, LossCase{"inverse", -4},
                                           LossCase{"at_least", -4}, LossCase{"shifted", -12 / 3.5}, LossCase{"counted", -4}, LossCase{"classes", -4},
                                           LossCase{"weighted_classes", -(3 * 12 - 5) / 10.0}, LossCase{"summed_classes", -12},
                                           LossCase{"several", -(2 * 4 + 0.5 * 17 / 4 - 3 + 0.25 * 4)}, LossCase{"stacked", -(17.0 / 4 + 4)}),
                         [](const ::testing::TestParamInfo<LossCase>& info) { return info.param.name; });

// No valid element in some of the parts, and then in none.
TEST(LossTermsByHand, APartWithoutAValidElement) {
  for (const int64_t micro_batches : {1, 2, 4})
    for (const char* name : {"masked", "classes", "counted", "weights", "inverse", "means", "product"}) {
      Trainer trainer = loss_trainer(name, micro_batches);
      trainer.step(loss_rows({1, 7, 3, 9}, {0, 0, 1, 0}));
      EXPECT_NEAR(find_array(trainer.state(), "w")->at(0), -3, 1e-5) << name << " by " << micro_batches;
      EXPECT_EQ(trainer.step(loss_rows({1, 7, 3, 9}, {0, 0, 0, 0})).loss, 0) << name;
    }
}

/// Losses that no parts make are right for whole batches, and refused in parts.
TEST(LossTermsByHand, OtherLossesAreOfWholeBatches) {
  for (const char* name : {"root", "largest", "normalised", "learned", "below_largest", "softmax_rows", "power", "detached", "own_sum", "spread_sum"}) {
    EXPECT_TRUE(std::isfinite(weight_after(name, 1, "data=2"))) << name;
    EXPECT_TRUE(testing::error_of([&] {
                  weight_after(name, 2);
                }).starts_with("micro_batches: the loss of the model is not found to be made of sums over the rows of the batch"))
        << name;
    Trainer trainer = loss_trainer(name);
    int64_t left = 1;
    const auto next = [&]() -> std::optional<NamedArrays> { return left-- > 0 ? std::optional(entry_rows()) : std::nullopt; };
    EXPECT_TRUE(std::isfinite(trainer.eval(next).loss.value())) << name;
    left = 2;
    EXPECT_NE(testing::error_of([&] {
                trainer.eval(next);
              }).find("the losses of several batches have no mean; wanted such a loss, one batch for all samples (--eval-batch)"),
              std::string::npos)
        << name;
  }
}

}  // namespace loss_terms_test
}  // namespace stepgraph
