// SPDX-License-Identifier: Apache-2.0
// Any bytes as a plan, as text or as a file: a UserError, or a plan that prints to text which reads back to the same; the verifier bears whatever was read.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "stepgraph/base/error.h"
#include "stepgraph/program/plan_file.h"
#include "stepgraph/program/plan_text.h"
#include "stepgraph/program/verify_plan.h"

using namespace stepgraph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  StepPlan plan;
  try {
    plan = bytes.starts_with("sgplan") ? plan_of_bytes(bytes, "fuzz.plan") : parse_plan(bytes, "fuzz.plan");
  } catch (const UserError&) {
    return 0;
  }
  const std::string printed = text(plan);
  if (text(parse_plan(printed)) != printed) abort();
  if (text(plan_of_bytes(plan_file_bytes(plan), "fuzz.plan")) != printed) abort();
  try {
    verify(plan, {{"batch", 4}, {"rows", 3}});
  } catch (const InternalError&) {
  }
  return 0;
}
