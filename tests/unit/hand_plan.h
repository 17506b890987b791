// SPDX-License-Identifier: Apache-2.0
// StepPlans written by hand, with functions of C++ for forms.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include "stepgraph/run/comm/threads.h"
#include "stepgraph/run/executor/plan_executor.h"

namespace stepgraph {

class FunctionsAsCode : public LoadedCode {
 public:
  explicit FunctionsAsCode(std::vector<FormFunction> functions) : functions_(std::move(functions)) {}
  FormFunction function(size_t form) const override { return functions_[form]; }

 private:
  std::vector<FormFunction> functions_;
};

inline Instruction instruction(InstructionOp op, const std::string& label = "op", const std::string& scope = "") {
  return Instruction{std::move(op), Phase::None, label, scope};
}

/// One entry, "step".
struct HandPlan {
  explicit HandPlan(int threads) {
    plan.target.threads = threads;
    plan.entries.emplace_back().name = "step";
  }
  PlanEntry& entry() { return plan.entries[0]; }

  int add_buffer(Buffer buffer) {
    entry().buffers.push_back(std::move(buffer));
    return static_cast<int>(entry().buffers.size()) - 1;
  }
  int input(const std::string& name, DType dtype, Shape sizes) {
    const auto index = static_cast<int>(entry().inputs.size());
    const int buffer = add_buffer({Space::Input, index, element_count(sizes), dtype, 0, 0, name});
    entry().inputs.push_back({{RoleKind::Batch, name}, dtype, dense(buffer, std::move(sizes))});
    return buffer;
  }
  int state(int index, Dim elements) { return add_buffer({Space::State, index, std::move(elements), DType::F32, 0, 0, plan.states[static_cast<size_t>(index)].name}); }
  int arena(Dim elements, int64_t bytes, const std::string& label, DType dtype = DType::F32) {
    const int64_t offset = entry().arena_bytes;
    entry().arena_bytes += (bytes + 63) / 64 * 64;
    return add_buffer({Space::Arena, 0, std::move(elements), dtype, offset, bytes, label});
  }
  static View view(int buffer) { return {buffer, 0, {}, {}}; }
  static View dense(int buffer, Shape sizes) {
    View view{buffer, 0, std::move(sizes), {}};
    view.strides.assign(view.sizes.size(), Dim(1));
    for (size_t d = view.sizes.size(); d-- > 1;) view.strides[d - 1] = view.strides[d] * view.sizes[d];
    return view;
  }

  /// Operands of f32; `writes`: which are written.
  int form(FormFunction function, const std::vector<bool>& writes, Dim parallel) {
    Form form;
    form.size_count = 1;
    for (const bool written : writes) form.operands.push_back({DType::F32, true, written});
    plan.forms.push_back(form);
    plan.code.push_back({"f" + std::to_string(functions.size()), std::move(parallel), 0, ""});
    functions.push_back(function);
    return static_cast<int>(functions.size()) - 1;
  }
  void insert(size_t at, InstructionOp op, const std::string& label = "op", const std::string& scope = "") {
    entry().instructions.insert(entry().instructions.begin() + static_cast<std::ptrdiff_t>(at), instruction(std::move(op), label, scope));
    if (at < static_cast<size_t>(entry().commit_begin)) ++entry().commit_begin;
  }
  void insert(size_t at, int form, std::vector<View> operands, std::vector<Dim> sizes, const std::string& label = "op", const std::string& scope = "") {
    insert(at, FormCall{form, {{std::move(operands), std::move(sizes)}}}, label, scope);
  }
  void add(InstructionOp op) { insert(entry().instructions.size(), std::move(op)); }
  void add(int form, std::vector<View> operands, std::vector<Dim> sizes) { insert(entry().instructions.size(), form, std::move(operands), std::move(sizes)); }
  void loss(int buffer) { entry().outputs.push_back({{RoleKind::LossNumerator, ""}, DType::F32, dense(buffer, {})}); }
  void output(const std::string& name, View view, DType dtype = DType::F32) { entry().outputs.push_back({{RoleKind::UserOutput, name}, dtype, std::move(view)}); }

  /// On each rank of the plan's mesh.
  void run(const std::function<void(Executor& executor)>& body) {
    const MeshBinding binding = bind_mesh(plan.mesh);
    options.load_code = [this](std::span<const FormCode>) { return std::make_unique<FunctionsAsCode>(functions); };
    const auto shared = std::make_shared<const StepPlan>(plan);
    run_ranks(binding.rank_count(), [&](int, Communicator& group) {
      const std::unique_ptr<Executor> executor = plan_executor(shared, binding, options);
      executor->connect(group);
      body(*executor);
    });
  }

  StepPlan plan;
  PlanExecutorOptions options;
  std::vector<FormFunction> functions;
};

}  // namespace stepgraph
