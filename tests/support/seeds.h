// SPDX-License-Identifier: Apache-2.0
// Which seeds random tests run: STEPGRAPH_SEEDS=17 or STEPGRAPH_SEEDS=1-2000 on request.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>

#include "stepgraph/compile/codegen/emit_form.h"

namespace stepgraph::testing {

struct Seeds {
  uint64_t first = 1, last = 1;  ///< inclusive
};
inline Seeds seeds_of_command(Seeds usual) {
  const char* const text = std::getenv("STEPGRAPH_SEEDS");
  if (text == nullptr) return usual;
  char* rest = nullptr;
  Seeds seeds;
  seeds.first = seeds.last = std::strtoull(text, &rest, 10);
  if (*rest == '-') seeds.last = std::strtoull(rest + 1, nullptr, 10);
  return seeds;
}
/// Until some of them fail: each is a program to read.
inline void check_seeds(Seeds seeds, const std::function<bool(uint64_t seed)>& check) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  constexpr int most_failures = 8;
  int failures = 0;
  for (uint64_t seed = seeds.first; seed <= seeds.last && failures < most_failures; ++seed) failures += check(seed) ? 0 : 1;
}

}  // namespace stepgraph::testing
