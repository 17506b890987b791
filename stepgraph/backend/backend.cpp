// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/backend.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <thread>
#include <utility>

#include "stepgraph/backend/compiled_executor.h"
#include "stepgraph/backend/fit_budget.h"
#include "stepgraph/base/hash.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/flat.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/lower/lower.h"
#include "stepgraph/compile/lower/recompute.h"
#include "stepgraph/program/verify_plan.h"
#include "stepgraph/reference/reference_executor.h"

namespace stepgraph {
namespace {

constexpr std::array<std::string_view, 4> backend_names = {"eager", "segment", "full", "reference"};
constexpr std::array<std::string_view, 3> aliases = {"aot_eager", "nvfuser", "inductor"};

bool skips(const BackendOptions& options, std::string_view pass) { return std::find(options.skip.begin(), options.skip.end(), pass) != options.skip.end(); }

/// Passes that a back end leaves out.
std::vector<std::string> left_out(const BackendOptions& options) {
  std::vector<std::string> skip = options.skip;
  if (options.backend != Backend::Full) skip.insert(skip.end(), {"canonicalize", "hoist"});
  std::vector<std::string> known;
  for (const std::string& pass : flat_pass_names())
    if (std::find(skip.begin(), skip.end(), pass) != skip.end()) known.push_back(pass);
  return known;
}

}  // namespace

std::string_view name(Backend backend) { return backend_names[static_cast<size_t>(backend)]; }

std::optional<Backend> backend_from_name(std::string_view text) {
  for (size_t i = 0; i < backend_names.size(); ++i)
    if (backend_names[i] == text || (i < aliases.size() && aliases[i] == text)) return static_cast<Backend>(i);
  return std::nullopt;
}

Backend default_backend() { return has_code_generation() ? Backend::Full : Backend::Reference; }

Target host_target(int threads, int ranks) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) throw UserError("this processor has no AVX2: only --backend reference runs on it");
#else
  throw UserError("code generation is for x86-64 processors: only --backend reference runs here");
#endif
  Target target;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  target.threads = threads > 0 ? threads : std::max(1, cores / std::max(1, ranks));
  return target;
}

namespace {

/// Of what chooses numbers: the program as kernels are made of it, the instructions that they are made of and the library.
std::string freeze_hash(const Module& flat, const Target& target) {
  return Hasher().hash(module_hash(flat)).number(static_cast<int64_t>(target.isa)).number(static_cast<int64_t>(target.gemm)).finish().text();
}

}  // namespace

StepPlan compile_plan(Module local, const BackendOptions& options, const Target& target, PassLog* log, BudgetReport* report) {
  Module flat = flatten_for_kernels(std::move(local), left_out(options), log);
  const std::string freeze = freeze_hash(flat, target);
  PassRunner passes({}, {}, log);
  const bool has_budget = options.memory_budget.kind != MemoryBudget::Kind::None;
  const Module frozen = has_budget ? flat : Module{};
  if (options.backend != Backend::Eager && !skips(options, "recompute")) flat = passes.run("recompute", std::move(flat), recompute_cheap);
  LowerOptions lower;
  lower.target = target;
  lower.largest = options.largest;
  lower.fuse = options.backend != Backend::Eager && !skips(options, "fuse");
  const int64_t start = log != nullptr && log->clock_us ? log->clock_us() : 0;
  StepPlan plan;
  if (has_budget) {
    BudgetReport own;
    plan = plan_within(options.memory_budget, frozen, flat, lower, report != nullptr, report != nullptr ? *report : own);
    emit_code(plan);
  } else {
    plan = lower_to_plan(flat, lower);
  }
  plan.freeze_hash = freeze;
  SymbolValues largest;
  for (const Symbol& symbol : plan.symbols.all())
    if (symbol.kind == SymbolKind::Size) largest[symbol.name] = symbol.maximum - symbol.maximum % symbol.multiple_of;
  for (const MeshAxis& axis : plan.mesh.axes) largest["coord." + axis.name] = 0;
  if (!skips(options, "verify")) verify(plan, largest);
  if (log != nullptr) {
    PassRecord record;
    record.name = "lower";
    record.elapsed_us = log->clock_us ? log->clock_us() - start : 0;
    record.nodes_before = node_count(flat);
    for (const PlanEntry& entry : plan.entries) record.nodes_after += static_cast<int64_t>(entry.instructions.size());
    log->passes.push_back(std::move(record));
  }
  return plan;
}

MakeExecutor make_executors(const BackendOptions& options, PassLog* log) {
  if (options.backend == Backend::Reference) return [](const Module& local, const MeshBinding& binding) { return reference_executor(local, binding); };
  struct Shared {
    std::mutex mutex;
    const Module* module = nullptr;
    std::shared_ptr<CompiledModule> compiled;
  };
  auto shared = std::make_shared<Shared>();
  return [options, log, shared](const Module& local, const MeshBinding& binding) {
    const std::lock_guard lock(shared->mutex);
    if (shared->module != &local) {
      shared->module = &local;
      shared->compiled = std::make_shared<CompiledModule>(local, options, host_target(options.threads, binding.rank_count()), log);
    }
    return compiled_executor(shared->compiled, binding);
  };
}

}  // namespace stepgraph
