// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/backend.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "stepgraph/backend/fit_budget.h"
#include "stepgraph/backend/given_plan.h"
#include "stepgraph/backend/plan_cache.h"
#include "stepgraph/backend/timed_part.h"
#include "stepgraph/base/hash.h"
#include "stepgraph/base/nearest.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/flat.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/lower/lower.h"
#include "stepgraph/compile/lower/recompute.h"
#include "stepgraph/compile/passes/tap.h"
#include "stepgraph/program/verify_plan.h"

namespace stepgraph {
namespace {

constexpr std::array<std::string_view, 4> backend_names = {"eager", "segment", "full", "reference"};
constexpr std::array<std::string_view, 3> aliases = {"aot_eager", "nvfuser", "inductor"};

bool skips(const BackendOptions& options, std::string_view pass) { return std::find(options.skip.begin(), options.skip.end(), pass) != options.skip.end(); }

}  // namespace

const std::vector<std::string>& plan_passes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result(flat_pass_names().begin() + 1, flat_pass_names().end());  // but flatten
    result.insert(result.end(), {"recompute", "fuse"});
    return result;
  }();
  return names;
}

SkippedPasses skipped_passes(const std::vector<std::string>& names) {
  SkippedPasses result;
  for (const std::string& name : names) {
    const bool is_compile = std::find(optional_passes.begin(), optional_passes.end(), name) != optional_passes.end();
    const bool is_plan = std::find(plan_passes().begin(), plan_passes().end(), name) != plan_passes().end();
    if (!is_compile && !is_plan) {
      std::vector<std::string> all(optional_passes.begin(), optional_passes.end());
      all.insert(all.end(), plan_passes().begin(), plan_passes().end());
      throw UserError("no optional pass '" + name + "' to skip; nearest are " + nearest_names(name, all));
    }
    (is_compile ? result.compile : result.plan).push_back(name);
  }
  return result;
}

std::vector<std::string> flat_passes_left_out(const BackendOptions& options) {
  std::vector<std::string> skip = options.skip;
  if (options.backend != Backend::Full) skip.insert(skip.end(), {"canonicalize", "hoist"});
  std::vector<std::string> known;
  for (const std::string& pass : flat_pass_names())
    if (std::find(skip.begin(), skip.end(), pass) != skip.end()) known.push_back(pass);
  return known;
}

namespace {

int64_t instruction_count(const StepPlan& plan) {
  int64_t count = 0;
  for (const PlanEntry& entry : plan.entries) count += static_cast<int64_t>(entry.instructions.size());
  return count;
}

/// A module that had to be made is another one than the nearest plan's: what differs of what it was made of says more.
std::string first_reason(const PassLog& log) {
  const auto found = std::find_if(log.passes.begin(), log.passes.end(), [](const PassRecord& record) { return !record.why.empty(); });
  return found->why;
}

/// Machine code, from the cache where it has it.
void add_code(StepPlan& plan, CompileCache* cache, PlanRecord& record) {
  plan.code.resize(plan.forms.size());
  if (cache != nullptr) take_code(*cache, plan);
  const std::vector<size_t> made = emit_code(plan);
  if (cache != nullptr) store_code(*cache, plan, made);
  record.forms = static_cast<int64_t>(plan.forms.size());
  record.forms_made = static_cast<int64_t>(made.size());
}

/// The plan that is given, with room for what is wanted.
StepPlan given_plan(const Module& local, const BackendOptions& options, const Target& target) {
  check_fits(*options.plan, local, options, target);
  StepPlan plan = options.plan->plan;
  if (room_of(*options.plan) == options.largest) return plan;
  plan_room(plan, local.symbols, options.largest);
  verify_at_largest(plan);
  return plan;
}

}  // namespace

std::string_view name(Backend backend) { return backend_names[static_cast<size_t>(backend)]; }

std::optional<Backend> backend_from_name(std::string_view text) {
  for (size_t i = 0; i < backend_names.size(); ++i)
    if (backend_names[i] == text || (i < aliases.size() && aliases[i] == text)) return static_cast<Backend>(i);
  return std::nullopt;
}

Backend default_backend() { return has_code_generation() ? Backend::Full : Backend::Reference; }

void announce_rest(BackendOptions& options, const SymbolTable& symbols) {
  check(options.sizes, symbols);
  for (const Symbol& symbol : symbols.all()) {
    if (symbol.kind != SymbolKind::Size) continue;
    const auto announced = options.largest.find(symbol.name);
    options.largest[symbol.name] = room_for(options.sizes, symbol, announced == options.largest.end() ? symbol.minimum : announced->second);
  }
}

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

Target target_of(const BackendOptions& options, int ranks) {
  Target target = host_target(options.threads, ranks);
  target.flush_denormals = options.flush_denormals;
  return target;
}

Module kernel_module(Module local, const BackendOptions& options, PassLog* log) {
  if (const SkippedPasses skip = skipped_passes(options.skip); !skip.compile.empty()) throw UserError("no pass '" + skip.compile.front() + "' of a plan to skip");
  Module flat = flatten_for_kernels(std::move(local), flat_passes_left_out(options), log);
  if (!options.taps.empty()) flat = PassRunner({}, {}, log).run("tap", std::move(flat), [&](Module module) { return tap(std::move(module), options.taps); });
  return flat;
}

StepPlan compile_plan(const Module& local, const BackendOptions& options, const Target& target, PassLog* log, PlanReport* report) {
  if (options.plan) {
    StepPlan plan = given_plan(local, options, target);
    if (log != nullptr) log->plans.push_back({.is_given = true, .why_made = {}, .forms = static_cast<int64_t>(plan.forms.size())});
    return plan;
  }
  if (!options.cache || report != nullptr || options.change_plan) return plan_of_kernels(kernel_module(local, options, log), options, target, log, report);
  TimedPart looking("cache", log);
  const CacheKey key = plan_key(local, options, target);
  if (std::optional<StepPlan> plan = find_plan(*options.cache, key)) {
    looking.end(node_count(local), instruction_count(*plan));
    if (log != nullptr) log->plans.push_back({.is_cached = true, .why_made = {}, .forms = static_cast<int64_t>(plan->forms.size())});
    return std::move(*plan);
  }
  const std::string why = why_missed(*options.cache, key);
  looking.end(node_count(local), 0, why);
  const bool is_first = log != nullptr && log->plans.empty();
  StepPlan plan = plan_of_kernels(kernel_module(local, options, log), options, target, log);
  if (log != nullptr) log->plans.back().why_made = is_first ? first_reason(*log) : why;
  store_plan(*options.cache, key, plan, local.name);
  return plan;
}

std::string freeze_hash(const Module& kernels, const StepPlan& plan, const Tuning& tuning) {
  Hasher hasher;
  hasher.hash(module_hash(kernels)).number(static_cast<int64_t>(plan.target.isa)).number(plan.target.flush_denormals ? 1 : 0);
  // Without a record a rule chooses libraries, by shapes alone. A record's lines are for a number of threads.
  if (!tuning.matmuls.empty()) hasher.number(plan.target.threads).text(text(tuning));
  return hasher.finish().text();
}

StepPlan plan_of_kernels(const Module& kernels, const BackendOptions& options, const Target& target, PassLog* log, PlanReport* report) {
  PassRunner passes({}, {}, log);
  const bool makes_again = options.backend != Backend::Eager && !skips(options, "recompute");
  const Module cheap = makes_again ? passes.run("recompute", kernels, recompute_cheap) : kernels;
  LowerOptions lower;
  lower.target = target;
  lower.largest = options.largest;
  lower.tuning = options.tuning;
  lower.fuse = options.backend != Backend::Eager && !skips(options, "fuse");
  TimedPart lowering("lower", log);
  StepPlan plan;
  if (options.memory_budget.kind == MemoryBudget::Kind::None) {
    plan = lower_to_plan(cheap, lower, report != nullptr ? &report->lower : nullptr);
  } else {
    BudgetReport own;
    plan = plan_within(options.memory_budget, kernels, cheap, lower, report != nullptr ? report->budget : own, report);
  }
  plan.freeze_hash = freeze_hash(kernels, plan, options.tuning);
  lowering.end(node_count(cheap), instruction_count(plan));
  TimedPart emitting("emit", log);
  PlanRecord record;
  add_code(plan, options.cache.get(), record);
  emitting.end(record.forms, record.forms_made);
  TimedPart verifying("verify", log);
  verify_at_largest(plan);
  verifying.end(instruction_count(plan), instruction_count(plan));
  if (log != nullptr) log->plans.push_back(std::move(record));
  if (options.change_plan) options.change_plan(plan);
  return plan;
}

void verify_at_largest(const StepPlan& plan) { verify(plan, largest_sizes(plan)); }

}  // namespace stepgraph
