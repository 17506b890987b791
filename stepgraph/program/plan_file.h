// SPDX-License-Identifier: Apache-2.0
// A StepPlan as one file of hashed sections (base/section_file.h): its text without long constants, their elements, the objects of its forms as they are, and a word of whoever
// wrote it on what it was made of.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

/// Of the file, and of the text in it.
inline constexpr uint32_t plan_file_version = 2;

std::string plan_file_bytes(const StepPlan& plan, const std::string& made_of = {});
/// UserError "NAME: ..." for what is damaged, cut off, followed by more, or of another version. Allocates no more than a small multiple of what is there. A
/// plan that was read is what was written; that it can be run is for verify (verify_plan.h) to say where the file is not known to be one's own.
StepPlan plan_of_bytes(std::string_view bytes, const std::string& name, std::string* made_of = nullptr);

/// Replaces the file as a whole (base/file.h).
void write_plan(const std::string& path, const StepPlan& plan, const std::string& made_of = {});
StepPlan read_plan(const std::string& path, std::string* made_of = nullptr);

}  // namespace stepgraph
