// SPDX-License-Identifier: Apache-2.0
// Whole training steps under the compiled back ends: as the oracle's, and to the bit the same for any number of threads, with and without fusion, and where memory that
// nothing has written is NaN.
#include <gtest/gtest.h>

#include "stepgraph/backend/run_once.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "tests/reference/step_programs.h"

namespace stepgraph {
namespace backends_test {

using testing::Program;
using testing::ZooModel;
using Outputs = std::vector<Literal>;

Outputs run(const Program& program, const BackendOptions& options) { return run_local_once(program.local, "step", program.inputs, options, program.symbols); }

void check_backends(const Program& program) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  const Outputs wanted = run(program, {.backend = Backend::Reference});
  const double tolerance = program.tolerance * 20;
  const Outputs full = run(program, {.backend = Backend::Full, .threads = 1});
  testing::expect_same_outputs(full, wanted, tolerance, program.local, program.name + " full");
  const Outputs two = run(program, {.backend = Backend::Full, .threads = 2, .poison = true});
  testing::expect_same_outputs(two, full, 0, program.local, program.name + " on two threads, poisoned");
  const Outputs apart = run(program, {.backend = Backend::Full, .threads = 3, .skip = {"fuse", "recompute"}});
  testing::expect_same_outputs(apart, full, 0, program.local, program.name + " not fused, on three threads");
  const Outputs eager = run(program, {.backend = Backend::Eager, .threads = 2});
  testing::expect_same_outputs(eager, wanted, tolerance, program.local, program.name + " eager");
}

class BackendZoo : public ::testing::TestWithParam<ZooModel> {};
TEST_P(BackendZoo, ComputeTheStep) { check_backends(testing::zoo_program(GetParam(), DType::F32, 1, "")); }
TEST_P(BackendZoo, ComputeMicroBatches) { check_backends(testing::zoo_program(GetParam(), DType::F32, 2, "")); }
TEST_P(BackendZoo, ComputeHalves) {
  if (GetParam().name == "resnet") return;  // twenty batch norms over four rows make much of the last bit of a half
  check_backends(testing::zoo_program(GetParam(), DType::BF16, 1, ""));
}
INSTANTIATE_TEST_SUITE_P(Models, BackendZoo, ::testing::ValuesIn(testing::zoo_models()), [](const auto& info) { return info.param.name; });

class BackendSamples : public ::testing::TestWithParam<const char*> {};
TEST_P(BackendSamples, ComputeTheStep) { check_backends(testing::sample_program(GetParam())); }
INSTANTIATE_TEST_SUITE_P(Imported, BackendSamples, ::testing::ValuesIn(testing::sample_names()), [](const auto& info) { return std::string(info.param); });

}  // namespace backends_test
}  // namespace stepgraph
