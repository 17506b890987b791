// SPDX-License-Identifier: Apache-2.0
// A StepPlan as text: canonical, so that printing what was read gives the same text, one statement a buffer, a value and an instruction, broken at 160 columns.
//
//     stepgraph_plan 1
//     target avx2 threads 4 l1 32768 l2 524288 granularity 2097152
//     freeze "0123456789abcdef0123456789abcdef"
//     symbol batch in [1, 64]
//     state "w" parameter f32[64, 64]
//     constant f32[2] {1, 2}
//     f0 = form sizes 1 {
//       ...
//     }
//     code "sg_1f3a" parallel s0 scratch 0 object 1280 "0123456789abcdef0123456789abcdef"
//
//     entry step arena 2097152 commit 1 {
//       new_state "w"
//       buffer b0 = input 0 f32[64*batch] "x"
//       buffer b1 = state 0 f32[4096] "w"
//       buffer b2 = arena at 0 bytes 16384 f32[64*batch]
//       input batch "x" f32 b0[batch, 64]
//       output user_output "y" f32 b2[batch, 64]
//       meet matmul b0[batch, 64], b1[64, 64] -> b2[batch, 64] f32 onednn phase forward scope "h.0" label "matmul"
//       one_thread form f0 (b2) (batch), (b2 at 64*batch) (batch) label "relu"
//     }
//
// A view is b2[sizes] where it is dense from the buffer's first element, else b2 at OFFSET[sizes] strides [..]; an operand of a form has no sizes. Instructions
// without "meet" run on from what stands before them. Reading checks the form of the text alone; the rest is check's and verify's.
#pragma once
#include <string>
#include <string_view>
#include "stepgraph/base/hash.h"
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

struct PlanTextOptions {
  /// Off: constants of more than 64 elements stand as their hash: f32[1000] hash "...".
  bool constants = true;
};
std::string text(const StepPlan& plan, const PlanTextOptions& options = {});

/// What the text only names by size and hash, in its order, end to end.
struct PlanBytes {
  std::string_view constants = {}, objects = {};
  bool has_objects = false;  ///< false: forms' code is read without its objects
};
/// The elements of constants that a text without them leaves to PlanBytes; the objects of all forms.
std::string constant_bytes(const StepPlan& plan);
std::string object_bytes(const StepPlan& plan);

/// UserError "NAME:12:7: found ..., wanted ..." for the first fault, also for bytes that are not those that the text names.
StepPlan parse_plan(std::string_view text, const std::string& name = "plan", const PlanBytes& bytes = {});

/// Of all that the plan is, its code among it.
Hash128 plan_hash(const StepPlan& plan);

/// The parts, for messages: "b2 at 64[batch, 64]", "matmul b0[batch, 64], ...".
std::string text(const View& view);
std::string text(const Instruction& instruction);
/// Row-major; UserError if a stride overflows.
std::vector<Dim> dense_strides(const Shape& sizes);

}  // namespace stepgraph
