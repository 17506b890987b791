// SPDX-License-Identifier: Apache-2.0
// A StepPlan as one file: its text without long constants, then their elements and the objects of its forms as they are.
//
//     "sgplan\r\n"   8 bytes
//     version        4 bytes; all numbers are little-endian
//     3 sections     4 bytes, then for each its size (8 bytes) and hash (16 bytes): text, constants, objects
//     hash           16 bytes, of all that is before it
//     the sections, end to end; the file ends with the last one
#pragma once
#include <string>
#include <string_view>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

std::string plan_file_bytes(const StepPlan& plan);
/// UserError "NAME: ..." for what is damaged, cut off, followed by more, or of another version. Allocates no more than a small multiple of what is there. A
/// plan that was read is what was written; that it can be run is for verify (verify_plan.h) to say where the file is not known to be one's own.
StepPlan plan_of_bytes(std::string_view bytes, const std::string& name);

/// Replaces the file as a whole (base/file.h).
void write_plan(const std::string& path, const StepPlan& plan);
StepPlan read_plan(const std::string& path);

}  // namespace stepgraph
