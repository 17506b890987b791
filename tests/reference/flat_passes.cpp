// SPDX-License-Identifier: Apache-2.0
// Whole training steps on the interpreter, before and after each pass that makes the flat program for kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "stepgraph/compile/flat.h"
#include "stepgraph/reference/mesh_run.h"
#include "tests/reference/step_programs.h"

namespace stepgraph {
namespace flat_passes_test {

using testing::expect_same_outputs;
using testing::Program;
using testing::sample_program;
using testing::zoo_program;
using testing::ZooModel;
using Outputs = std::vector<Literal>;

Outputs run_step(const Program& program, const Module& module) { return run_on_mesh(module, module.entry("step"), program.inputs, program.symbols).outputs; }

/// Passes that may take sums in another order, or leave out a rounding.
bool is_default_class(const std::string& pass) {
  static const std::set<std::string> names = {"canonicalize", "widen_products", "hoist"};
  return names.count(pass) > 0;
}

/// After each pass the step computes what it did before it.
void check_passes(const Program& program) {
  const Outputs start = run_step(program, program.local);
  for (const Literal& output : start)
    for (int64_t i = 0; i < output.count(); ++i) ASSERT_TRUE(std::isfinite(output.at(i))) << program.name;
  Outputs before = start;
  for (const std::string& pass : flat_pass_names()) {
    const Module module = flatten_for_kernels(program.local, {}, nullptr, pass);
    const Outputs after = run_step(program, module);
    expect_same_outputs(after, before, is_default_class(pass) ? program.tolerance : 0, module, program.name + " after " + pass);
    if (::testing::Test::HasFailure()) return;
    before = after;
  }
}

/// The whole list without any one of its passes computes the same.
void check_without_each(const Program& program) {
  const Outputs start = run_step(program, program.local);
  for (const std::string& pass : flat_pass_names()) {
    if (pass == "flatten") continue;
    const Module module = flatten_for_kernels(program.local, {pass});
    expect_same_outputs(run_step(program, module), start, program.tolerance, module, program.name + " without " + pass);
    if (::testing::Test::HasFailure()) return;
  }
}

class FlatZoo : public ::testing::TestWithParam<ZooModel> {};
TEST_P(FlatZoo, EachPassKeepsTheStep) { check_passes(zoo_program(GetParam(), DType::F32, 1, "")); }
TEST_P(FlatZoo, EachPassKeepsMicroBatches) { check_passes(zoo_program(GetParam(), DType::F32, 2, "")); }
TEST_P(FlatZoo, EachPassKeepsTheStepOfARank) { check_passes(zoo_program(GetParam(), DType::F32, 1, "data=2")); }
TEST_P(FlatZoo, EachPassKeepsHalves) {
  if (GetParam().name == "resnet") return;  // twenty batch norms over four rows make much of the last bit of a half
  check_passes(zoo_program(GetParam(), DType::BF16, 1, ""));
}
TEST_P(FlatZoo, EachPassMayBeSkipped) { check_without_each(zoo_program(GetParam(), DType::F32, 1, "")); }
INSTANTIATE_TEST_SUITE_P(Models, FlatZoo, ::testing::ValuesIn(testing::zoo_models()), [](const auto& info) { return info.param.name; });

class FlatSamples : public ::testing::TestWithParam<const char*> {};
TEST_P(FlatSamples, EachPassKeepsTheStep) { check_passes(sample_program(GetParam())); }
INSTANTIATE_TEST_SUITE_P(Imported, FlatSamples, ::testing::ValuesIn(testing::sample_names()), [](const auto& info) { return std::string(info.param); });

}  // namespace flat_passes_test
}  // namespace stepgraph
