// SPDX-License-Identifier: Apache-2.0
// The compiled step beside the oracle: what is right is found right, and of a plan with a fault on purpose the value that it makes is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "stepgraph/backend/oracle_check.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "tests/reference/step_programs.h"
#include "tests/support/error_of.h"

namespace stepgraph {
namespace oracle_check_test {

using Change = std::function<bool(StepPlan&, Instruction&)>;

testing::Program program(const std::string& model) {
  for (const testing::ZooModel& zoo : testing::zoo_models())
    if (zoo.name == model) return testing::zoo_program(zoo, DType::F32, 1, "");
  throw UserError("no model " + model);
}

/// A back end whose plans are changed at the first instruction of `step` for which `change` says true.
BackendOptions with_fault(const Change& change) {
  BackendOptions options{.backend = Backend::Full, .threads = 2};
  options.change_plan = [change](StepPlan& plan) {
    for (PlanEntry& entry : plan.entries)
      for (Instruction& instruction : entry.instructions)
        if (change(plan, instruction)) return;
  };
  return options;
}

BisectReport bisect(const testing::Program& program, const BackendOptions& options, int64_t bytes_at_once = 1 << 28) {
  return find_first_difference(program.local, "step", {program.inputs, program.symbols}, {.backend = options, .tolerance = {}, .bytes_at_once = bytes_at_once});
}

TEST(OracleCheck, FindsNothingWrongWithWhatIsRight) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  for (const char* model : {"mlp", "gpt", "lstm"}) {
    const testing::Program step = program(model);
    for (const Backend backend : {Backend::Full, Backend::Eager}) {
      for (const ValueDifference& value : compare_with_oracle(step.local, "step", {step.inputs, step.symbols}, {.backend = backend, .threads = 2}))
        EXPECT_TRUE(value.ok()) << model << " " << value.name << " " << value.difference << " " << value.problem;
      const BisectReport report = bisect(step, {.backend = backend, .threads = 2});
      EXPECT_FALSE(report.first.has_value()) << model << "\n" << text(report);
      EXPECT_EQ(report.compared, report.values);
      EXPECT_GT(report.values, 20);
    }
  }
}

/// Attention of the second layer with another scale.
TEST(OracleCheck, NamesACallThatIsWrong) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  const testing::Program step = program("gpt");
  const BackendOptions broken = with_fault([](StepPlan&, Instruction& instruction) {
    auto* call = std::get_if<AttentionCall>(&instruction.op);
    if (call == nullptr || call->gradient || !instruction.scope.starts_with("transformer.h.1")) return false;
    call->scale *= 1.5;
    return true;
  });
  const auto outputs = compare_with_oracle(step.local, "step", {step.inputs, step.symbols}, broken);
  EXPECT_FALSE(std::all_of(outputs.begin(), outputs.end(), [](const ValueDifference& value) { return value.ok(); }));
  const BisectReport report = bisect(step, broken);
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->op, "attention");
  EXPECT_TRUE(report.first->scope.starts_with("transformer.h.1")) << report.first->scope;
  EXPECT_EQ(report.first->phase, Phase::Forward);
  EXPECT_TRUE(report.first->is_alone);
  EXPECT_LT(report.compared, report.values);
  EXPECT_NE(text(report).find("forward/transformer.h.1"), std::string::npos) << text(report);
  // The same of few values at once.
  const BisectReport slow = bisect(step, broken, 1 << 12);
  ASSERT_TRUE(slow.first.has_value());
  EXPECT_EQ(slow.first->value.name, report.first->value.name);
  EXPECT_GT(slow.runs, report.runs);
}

/// A product of the backward pass that leaves out the last of what it sums.
TEST(OracleCheck, NamesAProductOfTheBackwardPass) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  const BisectReport report = bisect(program("gpt"), with_fault([](StepPlan&, Instruction& instruction) {
    auto* call = std::get_if<MatMulCall>(&instruction.op);
    if (call == nullptr || instruction.phase != Phase::Backward || !instruction.scope.starts_with("transformer.h.0")) return false;
    const int64_t inner = call->lhs.sizes.back().is_constant() ? call->lhs.sizes.back().constant() : 0;
    if (inner < 2) return false;
    call->lhs.sizes.back() = inner - 1;
    call->rhs.sizes[call->rhs.sizes.size() - 2] = inner - 1;
    return true;
  }));
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->op, "matmul");
  EXPECT_EQ(report.first->phase, Phase::Backward);
  EXPECT_TRUE(report.first->scope.starts_with("transformer.h.0")) << report.first->scope;
}

/// Code of a kernel with an addition that subtracts.
TEST(OracleCheck, NamesAnOperationInAKernel) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  int changed = 0;
  const BisectReport report = bisect(program("mlp"), with_fault([&](StepPlan& plan, Instruction& instruction) {
    auto* call = std::get_if<FormCall>(&instruction.op);
    if (call == nullptr) return false;
    Form form = plan.forms[static_cast<size_t>(call->form)];
    for (Expr& expr : form.exprs) {
      auto* binary = std::get_if<BinaryExpr>(&expr.op);
      if (binary == nullptr || binary->kind != BinaryKind::Add || expr.dtype != DType::F32) continue;
      binary->kind = BinaryKind::Subtract;
      call->form = static_cast<int>(plan.forms.size());
      plan.code.push_back(emit_form(form, plan.target));
      plan.forms.push_back(std::move(form));
      return ++changed > 0;
    }
    return false;
  }));
  ASSERT_GT(changed, 0);
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->op, "add");
  EXPECT_EQ(report.first->scope, "layers.0") << text(report);
}

TEST(OracleCheck, Refusals) {
  const testing::Program step = program("mlp");
  EXPECT_NE(testing::error_of([&] { bisect(step, {.backend = Backend::Reference}); }).find("wanted eager, segment or full"), std::string::npos);
  const ValueDifference shape = compare_value("x", Literal(DType::F32, {2}), Literal(DType::F32, {3}), Literal(DType::F32, {3}));
  EXPECT_FALSE(shape.ok());
  EXPECT_NE(shape.problem.find("wanted f32[3]"), std::string::npos) << shape.problem;
}

/// What rounding alone makes is judged by what rounding does to it.
TEST(OracleCheck, TellsNoiseFromFaults) {
  const auto two = [](double a, double b) { return Literal::from_doubles(DType::F32, {2}, std::vector<double>{a, b}); };
  const Literal wanted = two(1e-9, -2e-9), noisy = two(-1e-9, 1e-9);
  EXPECT_TRUE(compare_value("x", two(4e-9, 3e-9), wanted, noisy).ok());
  EXPECT_FALSE(compare_value("x", two(4e-9, 3e-9), wanted, wanted).ok());
  EXPECT_FALSE(compare_value("x", two(4e-9, 3e-6), wanted, noisy).ok());
  EXPECT_TRUE(compare_value("x", two(1, INFINITY), two(1, INFINITY), two(1, INFINITY)).ok());
  EXPECT_FALSE(compare_value("x", two(1, NAN), two(1, INFINITY), two(1, INFINITY)).ok());
}

}  // namespace oracle_check_test
}  // namespace stepgraph
