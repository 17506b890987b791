// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/step_plan.h"

#include <algorithm>

namespace stepgraph {


namespace {

using ViewVisit = std::function<void(const View&)>;
void views_of(const FormCall& call, const ViewVisit& visit) {
  for (const FormLaunch& launch : call.launches) std::for_each(launch.operands.begin(), launch.operands.end(), visit);
}
void views_of(const MatMulCall& call, const ViewVisit& visit) { visit(call.lhs), visit(call.rhs), visit(call.out); }
void views_of(const ConvolutionCall& call, const ViewVisit& visit) { visit(call.a), visit(call.b), visit(call.out); }
void views_of(const AttentionCall& call, const ViewVisit& visit) {
  for (const View* view : {&call.q, &call.k, &call.v, &call.out, &call.lse}) visit(*view);
  if (call.mask) visit(*call.mask);
  if (call.dropout) visit(call.dropout->key);
  if (!call.gradient) return;
  const AttentionCall::Gradient& gradient = *call.gradient;
  for (const View* view : {&gradient.d_out, &gradient.d_lse, &gradient.d_q, &gradient.d_k, &gradient.d_v}) visit(*view);
}
void views_of(const ScatterCall& call, const ViewVisit& visit) {
  if (call.base) visit(*call.base);
  visit(call.index), visit(call.updates), visit(call.out);
}
void views_of(const PoolCall& call, const ViewVisit& visit) {
  visit(call.a), visit(call.out);
  if (call.places) visit(*call.places);
}
void views_of(const ScanCall& call, const ViewVisit& visit) { visit(call.x), visit(call.out); }
void views_of(const EvaluateCall& call, const ViewVisit& visit) {
  std::for_each(call.inputs.begin(), call.inputs.end(), visit);
  std::for_each(call.outputs.begin(), call.outputs.end(), visit);
}
void views_of(const CollectiveCall& call, const ViewVisit& visit) { visit(call.input), visit(call.output); }
void views_of(const Repeat& repeat, const ViewVisit& visit) {
  for (const Instruction& instruction : repeat.body) for_each_view(instruction.op, visit);
}

}  // namespace

void for_each_view(const InstructionOp& op, const ViewVisit& visit) {
  std::visit([&](const auto& call) { views_of(call, visit); }, op);
}

const PlanEntry* StepPlan::find_entry(std::string_view name) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const PlanEntry& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace stepgraph
