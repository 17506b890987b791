// SPDX-License-Identifier: Apache-2.0
// Rows of PyTorch's operators on their own: distributions of random numbers, which no recording can show, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "tests/reference/module_runner.h"

namespace stepgraph::testing {
namespace pt2_rows_test {

using pt2::Argument;
using Arguments = std::vector<std::pair<std::string, Argument>>;

/// Results of one operator; the argument "self" (or another name, by TensorRef) reads `tensors`.
std::vector<Literal> run_row(const std::string& target, const std::map<std::string, Literal>& tensors, const Arguments& arguments, bool training = true,
                             size_t outputs = 1) {
  std::vector<Literal> inputs{Literal::integer(DType::I64, 3), Literal::integer(DType::I64, 0)};
  std::vector<std::string> names;
  for (const auto& [name, value] : tensors) names.push_back(name), inputs.push_back(value);
  return evaluate(inputs, [&](Builder& builder, const std::vector<Value>& values) {
    pt2::ExportedNode node;
    node.target = "torch.ops.aten." + target;
    node.name = target;
    std::map<std::string, pt2::Item> items;
    for (size_t i = 0; i < names.size(); ++i) {
      items[names[i]] = pt2::Tensor(values[2 + i]);
      node.inputs.push_back({names[i], pt2::TensorRef{names[i]}});
    }
    for (const auto& [name, value] : arguments) node.inputs.push_back({name, value});
    for (size_t i = 0; i < outputs; ++i) node.outputs.push_back(pt2::TensorRef{"out" + std::to_string(i)});
    int64_t draws = 0;
    pt2::Surroundings surroundings{builder, training, [&] { return fold_in(fold_in(values[0], values[1]), draws++); }};
    pt2::OperatorCall call(node, surroundings, items);
    const pt2::Row row = pt2::find_row(node.target);
    if (!row) throw UserError("no row for " + target);
    row(call);
    std::vector<Value> results;
    for (const pt2::Item& item : call.outputs()) results.push_back(std::get<pt2::Tensor>(item).value());
    return results;
  });
}

std::vector<double> sorted(const Literal& values) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < values.count(); ++i) numbers.push_back(values.at(i));
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}
/// Largest distance between the distribution of the numbers and the one wanted (Kolmogorov's statistic).
double distance(const std::vector<double>& numbers, const std::function<double(double)>& below) {
  double largest = 0;
  const double n = static_cast<double>(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double wanted = below(numbers[i]);
    largest = std::max({largest, std::fabs(wanted - static_cast<double>(i) / n), std::fabs(wanted - static_cast<double>(i + 1) / n)});
  }
  return largest;
}
const Literal many = Literal::full(DType::F32, {40000}, 0);
constexpr double allowed = 0.0098;  // 40000 numbers of the right distribution are farther away once in a thousand times

TEST(Pt2Rows, ContinuousDistributions) {
  EXPECT_LT(distance(sorted(run_row("exponential.default", {{"self", many}}, {{"lambd", 2.0}}).at(0)), [](double x) { return 1 - std::exp(-2 * x); }), allowed);
  EXPECT_LT(distance(sorted(run_row("cauchy.default", {{"self", many}}, {{"median", 1.0}, {"sigma", 0.5}}).at(0)),
                     [](double x) { return std::atan((x - 1) / 0.5) / std::acos(-1.0) + 0.5; }),
            allowed);
  const auto normal = [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; };
  EXPECT_LT(distance(sorted(run_row("log_normal.default", {{"self", many}}, {{"mean", 0.5}, {"std", 0.25}}).at(0)),
                     [&](double x) { return normal((std::log(x) - 0.5) / 0.25); }),
            allowed);
  const Literal ones = Literal::full(DType::F32, {40000}, 1);
  EXPECT_LT(distance(sorted(run_row("normal.Tensor_Tensor", {{"mean", many}, {"std", ones}}, {}).at(0)), normal), allowed);
  EXPECT_LT(
      distance(
          sorted(run_row("rrelu.default", {{"self", Literal::full(DType::F32, {40000}, -1)}}, {{"lower", 0.25}, {"upper", 0.75}, {"training", true}}).at(0)),
          [](double x) { return (x + 0.75) / 0.5; }),
      allowed);
}

TEST(Pt2Rows, DiscreteDistributions) {
  const std::vector<double> trials = sorted(run_row("geometric.default", {{"self", many}}, {{"p", 0.25}}).at(0));
  EXPECT_EQ(trials.front(), 1);
  EXPECT_NEAR(std::accumulate(trials.begin(), trials.end(), 0.0) / 40000, 4, 0.07);
  const std::vector<double> integers = sorted(run_row("randint_like.low_dtype", {{"self", many}}, {{"low", int64_t{-2}}, {"high", int64_t{3}}}).at(0));
  EXPECT_EQ(integers.front(), -2);
  EXPECT_EQ(integers.back(), 2);
  EXPECT_NEAR(static_cast<double>(std::count(integers.begin(), integers.end(), 0)), 8000, 400);
  const std::vector<double> order = sorted(run_row("randperm.default", {}, {{"n", int64_t{100}}}).at(0));
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], static_cast<double>(i));
}

/// Whole channels are dropped together; alpha dropout keeps mean and variance; evaluation drops nothing.
TEST(Pt2Rows, DropoutOfChannels) {
  const Literal images = Literal::full(DType::F32, {50, 40, 4}, 1);
  const Literal dropped = run_row("feature_dropout.default", {{"input", images}}, {{"p", 0.25}, {"train", true}}).at(0);
  int64_t kept = 0;
  for (int64_t channel = 0; channel < 2000; ++channel) {
    for (int64_t i = 1; i < 4; ++i) ASSERT_EQ(dropped.at(channel * 4 + i), dropped.at(channel * 4));
    kept += dropped.at(channel * 4) != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept), 1500, 80);
  EXPECT_TRUE(run_row("feature_dropout.default", {{"input", images}}, {{"p", 0.25}, {"train", true}}, false).at(0) == images);
  EXPECT_TRUE(run_row("alpha_dropout.default", {{"input", images}}, {{"p", 0.25}, {"train", false}}).at(0) == images);
  // Reversed: in a program of its own the dropout draws from the same numbers.
  const Literal drawn = run_row("randn_like.default", {{"self", many}}, {}).at(0);
  Literal standard = drawn;
  for (int64_t i = 0; i < 40000; ++i) standard.set(i, drawn.at(39999 - i));
  const Literal alpha = run_row("alpha_dropout.default", {{"input", standard}}, {{"p", 0.25}, {"train", true}}).at(0);
  double mean = 0, square = 0;
  for (int64_t i = 0; i < 40000; ++i) mean += alpha.at(i) / 40000, square += alpha.at(i) * alpha.at(i) / 40000;
  EXPECT_NEAR(mean, 0, 0.03);
  EXPECT_NEAR(square, 1, 0.05);
}

std::string error_of(const std::string& target, const std::map<std::string, Literal>& tensors, const Arguments& arguments) {
  try {
    run_row(target, tensors, arguments);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Pt2Rows, WhatIsRefused) {
  const Literal x = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(error_of("nonzero.default", {{"self", x}}, {}), "torch.ops.aten.nonzero.default (nonzero.default): the size of the result depends on data");
  EXPECT_NE(error_of("_unique2.default", {{"self", x}}, {}).find("depends on data"), std::string::npos);
  EXPECT_NE(error_of("repeat_interleave.self_Tensor", {{"self", x}, {"repeats", i64({3}, {1, 2, 0})}}, {{"dim", int64_t{1}}}).find("give output_size"),
            std::string::npos);
  EXPECT_NE(error_of("multinomial.default", {{"self", x}}, {{"num_samples", int64_t{1}}}).find("is not supported"), std::string::npos);
  EXPECT_NE(error_of("embedding_renorm_", {{"self", x}, {"indices", i64({1}, {0})}}, {{"max_norm", 1.0}}).find("max_norm"), std::string::npos);
  EXPECT_NE(error_of("polar.default", {{"abs", x}, {"angle", x}}, {}).find("complex"), std::string::npos);
  EXPECT_NE(error_of("scatter_reduce.two", {{"self", x}, {"index", i64({1, 3}, {0, 0, 0})}, {"src", x}}, {{"dim", int64_t{0}}, {"reduce", std::string("xor")}})
                .find("'xor'"),
            std::string::npos);
  EXPECT_NE(error_of("linalg_matrix_norm.default", {{"self", x}}, {{"ord", int64_t{2}}}).find("not supported"), std::string::npos);
  EXPECT_NE(error_of("linalg_matrix_power.default", {{"self", f32({1, 1}, {2})}}, {{"n", int64_t{-1}}}).find("inverses"), std::string::npos);
  EXPECT_NE(error_of("kthvalue.default", {{"self", x}}, {{"k", int64_t{4}}}).find("k = 4"), std::string::npos);
  EXPECT_NE(error_of("bitwise_left_shift.Tensor", {{"self", x}, {"other", x}}, {}).find("wanted integers"), std::string::npos);
  EXPECT_NE(error_of("cross.default", {{"self", f32({2}, {1, 2})}, {"other", f32({2}, {1, 2})}}, {}).find("size 3"), std::string::npos);
  EXPECT_NE(error_of("tensor_split.sections", {{"self", x}}, {{"sections", int64_t{0}}}).find("at least 1"), std::string::npos);
}

TEST(Pt2Rows, RepeatsOfAGivenSize) {
  const Literal x = f32({1, 3}, {5, 6, 7});
  const Literal found =
      run_row("repeat_interleave.self_Tensor", {{"self", x}, {"repeats", i64({3}, {2, 0, 1})}}, {{"dim", int64_t{1}}, {"output_size", int64_t{3}}}).at(0);
  EXPECT_TRUE(found == f32({1, 3}, {5, 5, 7})) << found.text(9);
}

/// NaN in quantiles and medians, bounds of searches.
TEST(Pt2Rows, OrderWithNaN) {
  const double nan = std::nan("");
  const Literal x = f32({2, 3}, {3, nan, 1, 4, 2, 8});
  const auto row = [&](const std::string& target, const Arguments& more) {
    Arguments arguments{{"dim", int64_t{1}}};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_row(target, {{"self", x}}, arguments, true, target.find("median") != std::string::npos ? 2 : 1).at(0);
  };
  EXPECT_TRUE(std::isnan(row("quantile.scalar", {{"q", 0.25}}).at(0)));
  EXPECT_EQ(row("quantile.scalar", {{"q", 0.25}}).at(1), 3);
  EXPECT_EQ(row("nanquantile.scalar", {{"q", 0.25}}).at(0), 1.5);
  EXPECT_EQ(row("quantile.scalar", {{"q", 0.7}, {"interpolation", std::string("lower")}}).at(1), 4);
  EXPECT_EQ(row("quantile.scalar", {{"q", 0.7}, {"interpolation", std::string("higher")}}).at(1), 8);
  EXPECT_EQ(row("quantile.scalar", {{"q", 0.7}, {"interpolation", std::string("midpoint")}}).at(1), 6);
  EXPECT_TRUE(std::isnan(row("median.dim", {}).at(0)));
  EXPECT_EQ(row("nanmedian.dim", {}).at(0), 1);
  const Literal edges = f32({3}, {1, 2, 2});
  const auto found = [&](bool right) {
    return run_row("searchsorted.Tensor", {{"sorted_sequence", edges}, {"self", f32({4}, {0, 2, 3, nan})}}, {{"right", right}}).at(0);
  };
  EXPECT_TRUE(found(false) == i64({4}, {0, 1, 3, 3})) << found(false).text(9);
  EXPECT_TRUE(found(true) == i64({4}, {0, 3, 3, 3})) << found(true).text(9);
}

}  // namespace pt2_rows_test
}  // namespace stepgraph::testing
