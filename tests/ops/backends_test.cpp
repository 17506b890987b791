// SPDX-License-Identifier: Apache-2.0
// Every op sample under the compiled back ends, in each dtype that the op takes, against the oracle.
#include <gtest/gtest.h>

#include "stepgraph/backend/run_once.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/ops/op_table.h"
#include "tests/ops/sample_program.h"
#include "tests/support/close.h"

namespace stepgraph::testing {
namespace backends_test {

Module program_of(const Op& op, std::span<const Literal> inputs) {
  Module module;
  const GraphId id = module.add_graph("main");
  module.entries = {{"main", id}};
  Builder builder(module, id);
  std::vector<Value> values;
  for (const Literal& input : inputs) values.push_back(builder.input(type_of(input)));
  for (const Value& result : builder.emit(op, values)) builder.output(result);
  return module;
}

void compare_backends(const Op& op, const std::vector<Literal>& inputs) {
  const Module module = program_of(op, inputs);
  const std::vector<Literal> wanted = run_once(module, "main", inputs, {.backend = Backend::Reference});
  for (const Backend backend : {Backend::Eager, Backend::Full}) {
    const std::vector<Literal> found = run_once(module, "main", inputs, {.backend = backend, .threads = 2});
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(compare_values(found[i], wanted[i], tolerance_of(wanted[i].dtype())), "") << name(backend) << " result " << i;
  }
}

TEST(Backends, SamplesAsTheOracle) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  for (const Sample& sample : samples()) {
    for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
      SCOPED_TRACE(describe(sample) + " in " + std::string(name(dtype)));
      std::vector<Literal> inputs;
      bool any = false;
      for (const Literal& input : sample.inputs) {
        any = any || is_floating(input.dtype());
        inputs.push_back(is_floating(input.dtype()) ? input.converted(dtype) : input);
      }
      if (!any && dtype != DType::F32) continue;
      try {
        program_of(sample.op, inputs);
      } catch (const UserError&) {
        continue;  // attributes that name another dtype
      }
      try {
        compare_backends(sample.op, inputs);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

}  // namespace backends_test
}  // namespace stepgraph::testing
