// SPDX-License-Identifier: Apache-2.0
// The mixture of experts against plain loops: choices, ties, places, what is dropped, gates, penalties and gradients; rows stand alone.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "stepgraph/compile/ops/composite/experts.h"
#include "stepgraph/train/models/models.h"
#include "stepgraph/train/models/moe.h"
#include "tests/reference/module_runner.h"

namespace stepgraph::testing {
namespace moe_test {

struct Sizes3 {
  int64_t rows = 3, tokens = 7, width = 4, experts = 5, inner = 6;
};
struct Plain {
  std::vector<double> result, balance, squares, dropped;
};

using Numbers = std::vector<double>;

double dot(const double* a, const double* b, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += a[i] * b[i];
  return total;
}

/// One token through one expert.
Numbers through(const double* x, const Numbers& gate, const Numbers& up, const Numbers& down, int64_t e, const Sizes3& s) {
  Numbers inner, out;
  for (int64_t i = 0; i < s.inner; ++i) {
    const int64_t at = (e * s.inner + i) * s.width;
    const double g = dot(x, &gate[static_cast<size_t>(at)], s.width), u = dot(x, &up[static_cast<size_t>(at)], s.width);
    inner.push_back(g / (1 + std::exp(-g)) * u);
  }
  for (int64_t w = 0; w < s.width; ++w) out.push_back(dot(inner.data(), &down[static_cast<size_t>((e * s.width + w) * s.inner)], s.inner));
  return out;
}

/// in: x, router, gate, up, down.
Plain plain_mixture(const std::vector<Numbers>& in, const Sizes3& s, const ExpertOptions& options) {
  Plain plain;
  const auto capacity = std::min(
      s.tokens, static_cast<int64_t>(std::ceil(options.capacity_factor * static_cast<double>(options.top_k * s.tokens) / static_cast<double>(s.experts))));
  for (int64_t b = 0; b < s.rows; ++b) {
    std::vector<Numbers> probabilities;
    std::vector<std::vector<int64_t>> choices;
    double squares = 0;
    for (int64_t t = 0; t < s.tokens; ++t) {
      Numbers p;
      double total = 0;
      for (int64_t e = 0; e < s.experts; ++e)
        p.push_back(std::exp(dot(&in[0][static_cast<size_t>((b * s.tokens + t) * s.width)], &in[1][static_cast<size_t>(e * s.width)], s.width)));
      for (const double value : p) total += value;
      squares += std::log(total) * std::log(total) / static_cast<double>(s.tokens);
      for (double& value : p) value /= total;
      std::vector<int64_t> order;
      for (int64_t e = 0; e < s.experts; ++e) order.push_back(e);
      std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return p[static_cast<size_t>(x)] > p[static_cast<size_t>(y)]; });
      order.resize(static_cast<size_t>(options.top_k));
      probabilities.push_back(p);
      choices.push_back(order);
    }
    Numbers result(static_cast<size_t>(s.tokens * s.width));
    std::vector<int64_t> used(static_cast<size_t>(s.experts));
    double dropped = 0;
    for (int64_t t = 0; t < s.tokens; ++t)
      for (int64_t k = 0; k < options.top_k; ++k) {
        const Numbers& p = probabilities[static_cast<size_t>(t)];
        const auto e = choices[static_cast<size_t>(t)][static_cast<size_t>(k)];
        if (used[static_cast<size_t>(e)]++ >= capacity && !options.dense) {
          ++dropped;
          continue;
        }
        double share = 0;
        for (const int64_t other : choices[static_cast<size_t>(t)]) share += p[static_cast<size_t>(other)];
        const double weight = options.top_k > 1 ? p[static_cast<size_t>(e)] / share : p[static_cast<size_t>(e)];
        const Numbers out = through(&in[0][static_cast<size_t>((b * s.tokens + t) * s.width)], in[2], in[3], in[4], e, s);
        for (int64_t w = 0; w < s.width; ++w) result[static_cast<size_t>(t * s.width + w)] += weight * out[static_cast<size_t>(w)];
      }
    double balance = 0;
    for (int64_t e = 0; e < s.experts; ++e) {
      double mean = 0;
      for (const Numbers& p : probabilities) mean += p[static_cast<size_t>(e)] / static_cast<double>(s.tokens);
      balance += static_cast<double>(used[static_cast<size_t>(e)]) / static_cast<double>(s.tokens * options.top_k) * mean * static_cast<double>(s.experts);
    }
    plain.result.insert(plain.result.end(), result.begin(), result.end());
    plain.balance.push_back(balance);
    plain.squares.push_back(squares);
    plain.dropped.push_back(dropped);
  }
  return plain;
}

std::vector<Literal> inputs_of(const Sizes3& s, double router_scale = 3) {
  const auto values = [](Sizes sizes, uint64_t seed, double scale) {
    Numbers numbers = some_numbers(static_cast<size_t>(element_count(sizes)), seed);
    for (double& value : numbers) value *= scale;
    return f64(std::move(sizes), numbers);
  };
  return {values({s.rows, s.tokens, s.width}, 1, 1), values({s.experts, s.width}, 2, router_scale), values({s.experts, s.inner, s.width}, 3, 1),
          values({s.experts, s.inner, s.width}, 4, 1), values({s.experts, s.width, s.inner}, 5, 1)};
}

Body body_of(const ExpertOptions& options) {
  return [options](Builder&, const std::vector<Value>& in) -> std::vector<Value> {
    const ExpertResult found = mixture_of_experts(in[0], {in[1], in[2], in[3], in[4]}, options);
    return {found.result, found.balance, found.squares, found.dropped};
  };
}

void expect_equal(const std::vector<Literal>& inputs, const Sizes3& s, const ExpertOptions& options, const std::string& what) {
  std::vector<Numbers> numbers;
  for (const Literal& input : inputs) numbers.push_back(input.to_doubles());
  const Plain wanted = plain_mixture(numbers, s, options);
  const std::vector<Literal> found = evaluate(inputs, body_of(options));
  EXPECT_LT(relative_difference(found[0], wanted.result), 1e-12) << what;
  EXPECT_LT(relative_difference(found[1], wanted.balance), 1e-12) << what;
  EXPECT_LT(relative_difference(found[2], wanted.squares), 1e-12) << what;
  EXPECT_EQ(found[3].to_doubles(), wanted.dropped) << what;
}

TEST(Moe, EqualsPlainLoops) {
  const Sizes3 sizes;
  for (const int64_t top_k : {1, 2, 3, 5})
    for (const double factor : {0.3, 1.0, 1.25, 100.0})
      for (const bool dense : {false, true})
        expect_equal(inputs_of(sizes), sizes, {top_k, factor, dense},
                     "top " + std::to_string(top_k) + ", factor " + std::to_string(factor) + (dense ? ", dense" : ""));
  expect_equal(inputs_of({1, 1, 2, 1, 3}), {1, 1, 2, 1, 3}, {1, 1, false}, "one token, one expert");
}

TEST(Moe, TiesGoToTheFirstExpertsAndLateTokensAreDropped) {
  const Sizes3 sizes;
  std::vector<Literal> inputs = inputs_of(sizes, 0);  // every expert is as likely
  const ExpertOptions options{2, 1.0, false};         // room for ceil(14 / 5) = 3 of 7 tokens
  expect_equal(inputs, sizes, options, "ties");
  const std::vector<Literal> found = evaluate(inputs, body_of(options));
  for (int64_t b = 0; b < sizes.rows; ++b) {
    EXPECT_EQ(found[3].at(b), 8);  // four of seven tokens, two choices each
    for (int64_t t = 0; t < sizes.tokens; ++t) {
      double largest = 0;
      for (int64_t w = 0; w < sizes.width; ++w) largest = std::max(largest, std::fabs(found[0].at((b * sizes.tokens + t) * sizes.width + w)));
      EXPECT_EQ(largest == 0, t >= 3) << t;
    }
  }
}

TEST(Moe, WithRoomForAllItIsTheDenseOne) {
  const Sizes3 sizes;
  const std::vector<Literal> inputs = inputs_of(sizes);
  const std::vector<Literal> placed = evaluate(inputs, body_of({2, 1000, false})), dense = evaluate(inputs, body_of({2, 1, true}));
  EXPECT_LT(relative_difference(placed[0], dense[0].to_doubles()), 1e-13);
  for (const double dropped : placed[3].to_doubles()) EXPECT_EQ(dropped, 0);
}

/// What is decoded token by token must not know the next one: not through the room that it takes either.
TEST(Moe, NoTokenDependsOnALaterOne) {
  const Sizes3 sizes;
  const std::vector<Literal> inputs = inputs_of(sizes);
  const int64_t row = sizes.tokens * sizes.width, kept = 4 * sizes.width;
  for (const double factor : {0.4, 1.25}) {
    const std::vector<Literal> before = evaluate(inputs, body_of({2, factor, false}));
    Numbers x = inputs[0].to_doubles();
    for (int64_t i = 0; i < inputs[0].count(); ++i)
      if (i % row >= kept) x[static_cast<size_t>(i)] *= -3;
    std::vector<Literal> changed = inputs;
    changed[0] = f64(inputs[0].sizes(), x);
    const std::vector<Literal> after = evaluate(changed, body_of({2, factor, false}));
    for (int64_t i = 0; i < inputs[0].count(); ++i) {
      if (i % row < kept) { EXPECT_EQ(after[0].at(i), before[0].at(i)); }
    }
    EXPECT_FALSE(after[0] == before[0]);
  }
}

/// A row gives the same alone and among others: no rank and no slice of a batch sees another's tokens.
TEST(Moe, RowsStandAlone) {
  const Sizes3 sizes;
  std::vector<Literal> inputs = inputs_of(sizes);
  const std::vector<Literal> whole = evaluate(inputs, body_of({2, 0.5, false}));
  const Numbers x = inputs[0].to_doubles();
  const int64_t row = sizes.tokens * sizes.width;
  for (int64_t b = 0; b < sizes.rows; ++b) {
    inputs[0] = f64({1, sizes.tokens, sizes.width}, Numbers(x.begin() + b * row, x.begin() + (b + 1) * row));
    const std::vector<Literal> alone = evaluate(inputs, body_of({2, 0.5, false}));
    for (int64_t i = 0; i < row; ++i) EXPECT_EQ(alone[0].at(i), whole[0].at(b * row + i));
    EXPECT_EQ(alone[1].at(0), whole[1].at(b));
    EXPECT_EQ(alone[3].at(0), whole[3].at(b));
  }
}

TEST(Moe, GradientsAreThoseOfCentralDifferences) {
  const Sizes3 sizes{2, 4, 3, 3, 2};
  for (const ExpertOptions& options : {ExpertOptions{2, 1.0, false}, ExpertOptions{1, 0.7, false}, ExpertOptions{2, 1.0, true}}) {
    const auto value = [&](Builder& builder, const std::vector<Value>& in) {
      const ExpertResult found = mixture_of_experts(in[0], {in[1], in[2], in[3], in[4]}, options);
      const Value weights = constant(builder, f64({sizes.rows, sizes.tokens, sizes.width}, some_numbers(24, 9)));
      return sum(found.result * weights) + sum(found.balance) * 0.7 + sum(found.squares) * 0.3;
    };
    const std::vector<Literal> inputs = inputs_of(sizes);
    const Differentiated found = differentiate(inputs, value);
    for (size_t i = 0; i < inputs.size(); ++i) {
      ASSERT_TRUE(found.gradients[i]) << i;
      Numbers wanted;
      for (int64_t e = 0; e < inputs[i].count(); ++e) {
        const double step = 1e-6;
        double ends[2];
        for (const int side : {0, 1}) {
          std::vector<Literal> moved = inputs;
          Numbers numbers = inputs[i].to_doubles();
          numbers[static_cast<size_t>(e)] += side ? step : -step;
          moved[i] = f64(inputs[i].sizes(), numbers);
          ends[side] = evaluate(moved, [&](Builder& b, const std::vector<Value>& in) -> std::vector<Value> { return {value(b, in)}; })[0].at(0);
        }
        wanted.push_back((ends[1] - ends[0]) / (2 * step));
      }
      EXPECT_LT(relative_difference(*found.gradients[i], wanted), 1e-7) << "input " << i << " of top " << options.top_k;
    }
  }
}

/// Of narrow tokens and experts the result is narrow; what the router says is not.
TEST(Moe, TheRouterIsF32) {
  const Sizes3 sizes;
  std::vector<Literal> inputs = inputs_of(sizes), wide;
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = inputs[i].converted(i == 1 ? DType::F32 : DType::BF16);
    wide.push_back(inputs[i].converted(DType::F64));
  }
  const std::vector<Literal> found = evaluate(inputs, body_of({2, 1.25, false})), wanted = evaluate(wide, body_of({2, 1.25, false}));
  EXPECT_EQ(found[0].dtype(), DType::BF16);
  EXPECT_EQ(found[1].dtype(), DType::F32);
  EXPECT_LT(relative_difference(found[1], wanted[1].to_doubles()), 1e-6);
  EXPECT_LT(relative_difference(found[2], wanted[2].to_doubles()), 1e-6);
  EXPECT_LT(relative_difference(found[0], wanted[0].to_doubles()), 0.03);
}

TEST(Moe, PenaltiesAreOfTraining) {
  const ModelOptionValues small = {{"vocabulary", "11"}, {"context", "6"},   {"width", "8"},   {"heads", "2"},
                                   {"inner", "4"},       {"balance", "0.5"}, {"z_loss", "0.1"}};
  ModuleRunner runner(train_step(build_model("moe", small), Optimizer{}));
  State batch;
  for (const char* name : {"tokens", "targets"}) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < 12; ++i) values.push_back((i * 5 + 1) % 11);
    batch[name] = i32({2, 6}, values);
  }
  // The router starts near even: a balance of about 1 and logits of about log(4).
  const double plain = runner.eval(batch).loss();
  const EntryOutputs trained = runner.step(batch);
  EXPECT_NEAR(trained.loss() - plain, 0.5 + 0.1 * std::log(4.0) * std::log(4.0), 0.02);
  EXPECT_EQ(trained.metrics.at("dropped.denominator").at(0), 2 * 6 * 2 * 2);
}

TEST(Moe, WhatDoesNotFitIsRefused) {
  const auto error_of = [](const ModelOptionValues& options) -> std::string {
    try {
      build_model("moe", options);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of({{"top_k", "5"}}), "model moe: option top_k is '5', wanted an integer from 1 to 4");
  EXPECT_EQ(error_of({{"capacity_factor", "0"}}), "model moe: option capacity_factor is '0', wanted a number from 1e-06 to 1000000");
  EXPECT_EQ(error_of({{"layers", "0"}}), "moe: 0 layers, wanted at least 1");
  EXPECT_THROW(evaluate(inputs_of({}), body_of({6, 1, false})), UserError);
  std::vector<Literal> inputs = inputs_of({});
  inputs[4] = inputs[3];
  EXPECT_THROW(evaluate(inputs, body_of({})), UserError);
}

}  // namespace moe_test
}  // namespace stepgraph::testing
