// SPDX-License-Identifier: Apache-2.0
// What holds for every op of the table: it has a sample, values fit the inferred types, gradients agree with central differences, and so do gradients
// of gradients; narrow dtypes give the f64 value rounded once.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ops/op_table.h"
#include "tests/ops/sample_program.h"

namespace stepgraph::testing {
namespace op_test {

std::vector<std::string> names_with_samples() {
  std::set<std::string> names;
  for (const Sample& sample : samples()) names.insert(std::string(name(sample.op)));
  return {names.begin(), names.end()};
}

TEST(OpTable, EveryOpHasASample) {
  std::set<std::string> names;
  for (const std::string& sampled : names_with_samples()) names.insert(sampled);
  for (const auto& [elsewhere, file] : covered_elsewhere()) names.insert(elsewhere);
  for (const Op& op : all_ops()) EXPECT_TRUE(names.contains(std::string(name(op)))) << "no sample for " << name(op);
}

TEST(OpTable, RowsAreComplete) {
  for (const Op& op : all_ops()) {
    const OpInfo& info = op_info(op);
    EXPECT_NE(info.infer, nullptr) << name(op);
    if (is_control(op)) continue;
    EXPECT_NE(info.cost, nullptr) << name(op);
    if (is_collective(op) || std::holds_alternative<Reshard>(op)) continue;
    EXPECT_NE(info.evaluate, nullptr) << name(op);
    EXPECT_NE(info.sharding_rule, nullptr) << name(op);
    if (info.differentiable) {
      EXPECT_TRUE(info.gradient != nullptr || info.decompose != nullptr) << name(op);
    }
  }
}

TEST(OpTable, CountsOperands) {
  const TensorType x{DType::F32, {4}, {}};
  try {
    infer_types(Binary{BinaryKind::Add}, std::vector<TensorType>{x}, Module{});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "add: 1 operands, 2 wanted");
  }
}

class EachOp : public ::testing::TestWithParam<std::string> {
 protected:
  template <class F>
  void for_samples(F f) {
    for (const Sample& sample : samples()) {
      if (name(sample.op) != GetParam()) continue;
      SCOPED_TRACE(describe(sample));
      f(sample);
      if (HasFailure()) return;
    }
  }
};

TEST_P(EachOp, ValuesFitTheInferredTypes) {
  for_samples([](const Sample& sample) {
    const std::vector<TensorType> types = infer_sample(sample.op, sample.inputs);
    const std::vector<Literal> results = run_sample(sample.op, sample.inputs);
    ASSERT_EQ(results.size(), types.size());
    for (size_t i = 0; i < types.size(); ++i) EXPECT_EQ(text(type_of(results[i])), text(types[i]));
  });
}

TEST_P(EachOp, GradientsAgreeWithDifferences) {
  for_samples([](const Sample& sample) {
    const auto scalar = weighted_results(sample);
    if (!scalar || !sample.check_gradient) return;
    EXPECT_EQ(compare_with_differences(*scalar, sample.inputs), "");
  });
}

TEST_P(EachOp, GradientsOfGradientsAgreeWithDifferences) {
  for_samples([](const Sample& sample) {
    const auto scalar = weighted_results(sample);
    if (!scalar || !sample.check_gradient) return;
    EXPECT_EQ(compare_with_differences(weighted_gradients(*scalar, sample.inputs), sample.inputs, 4, 2e-6), "");
  });
}

/// Inputs of f64 converted; others as they are.
std::vector<Literal> converted_inputs(const Sample& sample, DType dtype) {
  std::vector<Literal> inputs = sample.inputs;
  for (Literal& input : inputs) {
    if (input.dtype() == DType::F64) input = input.converted(dtype);
  }
  return inputs;
}

TEST_P(EachOp, NarrowFloatsAreTheF64ValueRoundedOnce) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for_samples([dtype](const Sample& sample) {
      const std::vector<Literal> narrow = converted_inputs(sample, dtype);
      if (std::none_of(narrow.begin(), narrow.end(), [dtype](const Literal& input) { return input.dtype() == dtype; })) return;
      std::vector<Literal> wide = narrow;
      for (Literal& input : wide) {
        if (input.dtype() == dtype) input = input.converted(DType::F64);
      }
      const std::vector<Literal> got = run_sample(sample.op, narrow), exact = run_sample(sample.op, wide);
      for (size_t i = 0; i < got.size(); ++i) {
        const Literal wanted = exact[i].converted(got[i].dtype());
        EXPECT_TRUE(got[i] == wanted) << got[i].text(20) << " wanted " << wanted.text(20);
      }
    });
  }
}

TEST_P(EachOp, IntegersGiveValuesOrAnError) {
  for (DType dtype : {DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool}) {
    for_samples([dtype](const Sample& sample) {
      const std::vector<Literal> inputs = converted_inputs(sample, dtype);
      try {
        const std::vector<TensorType> types = infer_sample(sample.op, inputs);
        const std::vector<Literal> results = run_sample(sample.op, inputs);
        for (size_t i = 0; i < types.size(); ++i) EXPECT_EQ(text(type_of(results[i])), text(types[i]));
      } catch (const UserError&) {
        // As a logarithm of integers.
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EachOp, ::testing::ValuesIn(names_with_samples()), [](const auto& info) { return info.param; });

}  // namespace op_test
}  // namespace stepgraph::testing
