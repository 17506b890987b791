// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/plan_file.h"

#include <array>

#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/base/section_file.h"
#include "stepgraph/program/plan_text.h"

namespace stepgraph {
namespace {

constexpr std::array<std::string_view, 4> section_names{"text", "constants", "objects", "made_of"};
constexpr SectionFile plan_file{"sgplan\r\n", plan_file_version, "plan file", section_names};

}  // namespace

std::string plan_file_bytes(const StepPlan& plan, const std::string& made_of) {
  const std::array<std::string, 4> sections{text(plan, {.constants = false}), constant_bytes(plan), object_bytes(plan), made_of};
  return section_file_bytes(plan_file, sections);
}

StepPlan plan_of_bytes(std::string_view bytes, const std::string& name, std::string* made_of) {
  const std::vector<std::string_view> sections = read_sections(plan_file, bytes, name);
  if (made_of != nullptr) *made_of = sections[3];
  try {
    return parse_plan(sections[0], name, {.constants = sections[1], .objects = sections[2], .has_objects = true});
  } catch (const UserError& error) {
    const std::string message = error.what();
    if (!message.starts_with(name + ":")) throw UserError(name + ": " + message);
    throw;
  }
}

void write_plan(const std::string& path, const StepPlan& plan, const std::string& made_of) { write_file(path, plan_file_bytes(plan, made_of)); }

StepPlan read_plan(const std::string& path, std::string* made_of) { return plan_of_bytes(read_file(path), path, made_of); }

}  // namespace stepgraph
