// SPDX-License-Identifier: Apache-2.0
// Denormal numbers keep their IEEE meaning, unless they are flushed: then in every back end.
#include <gtest/gtest.h>

#include "stepgraph/backend/run_once.h"
#include "stepgraph/base/float_mode.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/ir/text.h"

namespace stepgraph {
namespace float_mode_test {

float product(float a, float b) {
  const volatile float x = a, y = b;
  return x * y;
}

TEST(FloatMode, LastsAsLongAsTheObject) {
  EXPECT_GT(product(1e-30F, 1e-10F), 0);
  {
    const FloatMode flush(true);
    EXPECT_EQ(product(1e-30F, 1e-10F), 0);
    {
      const FloatMode keep(false);
      EXPECT_GT(product(1e-30F, 1e-10F), 0);
    }
    EXPECT_EQ(product(1e-40F, 1e10F), 0) << "operands too";
  }
  EXPECT_GT(product(1e-30F, 1e-10F), 0);
}

TEST(FloatMode, BackEndsAgree) {
  const Module module = parse_module(
      "stepgraph 1\nmodule m\ngraph @main {\n  input %0 : f32[4]\n  input %1 : f32[4]\n  %2 = mul(%0, %1) : f32[4]\n  output %2\n}\nentry main @main\n");
  const std::vector<Literal> inputs = {Literal::of<float>({4}, std::vector<float>{1e-30F, 1e-40F, -3, 1e-20F}),
                                       Literal::of<float>({4}, std::vector<float>{1e-10F, 1e10F, 2, 1e-10F})};
  for (const Backend backend : {Backend::Reference, Backend::Full, Backend::Eager}) {
    if (backend != Backend::Reference && !has_code_generation()) continue;
    for (const bool flush : {false, true}) {
      const Literal found = run_once(module, "main", inputs, {.backend = backend, .threads = 2, .flush_denormals = flush}).at(0);
      EXPECT_EQ(found.at(0) != 0, !flush) << name(backend);
      EXPECT_EQ(found.at(1) != 0, !flush) << name(backend);
      EXPECT_EQ(found.at(2), -6);
      EXPECT_GT(found.at(3), 0) << "1e-30 is a normal number";
    }
  }
  EXPECT_GT(product(1e-30F, 1e-10F), 0) << "the caller's own mode is as it was";
}

}  // namespace float_mode_test
}  // namespace stepgraph
