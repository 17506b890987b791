// SPDX-License-Identifier: Apache-2.0
// Plans written by hand: those that the fuzzer starts from.
#pragma once
#include <string>
#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/program/plan_text.h"
#include "tests/support/places.h"

namespace stepgraph::testing {

/// "step": a training step on two threads. "parts": strided views, gathers, guards, a loop. "calls": each kind of call once.
inline std::string plan_sample(const std::string& name) { return read_file(std::string(source_root()) + "/tests/fuzz/corpus/plan/" + name + ".txt"); }

/// With one place changed; the text that is replaced must stand in it once.
inline std::string plan_with(std::string plan, const std::string& from, const std::string& to) {
  const size_t at = plan.find(from);
  if (at == std::string::npos || plan.find(from, at + 1) != std::string::npos) throw UserError("'" + from + "' does not stand once in the plan");
  return plan.replace(at, from.size(), to);
}

}  // namespace stepgraph::testing
