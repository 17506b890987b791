// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/plan_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stepgraph/backend/build_id.h"
#include "stepgraph/base/version.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ir/text_hash.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/program/form_text.h"
#include "stepgraph/program/plan_file.h"
#include "stepgraph/program/plan_words.h"
#include "stepgraph/run/device/gemm.h"

namespace stepgraph {
namespace {

constexpr std::string_view plan_kind = "plan", form_kind = "form";

std::string joined(std::vector<std::string> words) {
  std::sort(words.begin(), words.end());
  return fmt::format("{}", fmt::join(words, ","));
}

/// One form and its code, as a plan of nothing else.
StepPlan plan_of_form(const Form& form, const FormCode& code, const Target& target) {
  StepPlan plan;
  plan.target = target;
  plan.forms = {form};
  plan.code = {code};
  return plan;
}

}  // namespace

void add_versions(CacheKey& key) {
  key.components["stepgraph"] = std::string(version_string) + " build " + std::string(build_id());
  key.components["llvm"] = code_generator_version();
  key.components["plan_file"] = std::to_string(plan_file_version);
}

CacheKey plan_key(const Module& local, const BackendOptions& options, const Target& target) {
  CacheKey key{std::string(plan_kind), {}};
  auto& parts = key.components;
  parts["module"] = text_hash(local).text();
  parts["backend"] = name(options.backend);
  parts["skip"] = joined(options.skip);
  std::vector<std::string> largest;
  for (const auto& [symbol, size] : options.largest) largest.push_back(symbol + "=" + std::to_string(size));
  parts["largest"] = joined(std::move(largest));
  parts["target.isa"] = instruction_set_names[static_cast<size_t>(target.isa)];
  parts["target.threads"] = std::to_string(target.threads);
  parts["target.l1_bytes"] = std::to_string(target.l1_bytes);
  parts["target.l2_bytes"] = std::to_string(target.l2_bytes);
  parts["target.flush_denormals"] = target.flush_denormals ? "true" : "false";
  parts["target.granularity_bytes"] = std::to_string(target.granularity_bytes);
  const MemoryBudget& budget = options.memory_budget;
  parts["memory_budget"] = text(budget);
  parts["taps"] = joined(options.taps);
  parts["tuning"] = options.tuning.matmuls.empty() ? "" : Hasher().text(text(options.tuning)).finish().text();
  load_libraries(target);
  parts["libraries"] = library_versions();
  add_versions(key);
  return key;
}

CacheKey form_key(const Form& form, const Target& target) {
  CacheKey key{std::string(form_kind), {}};
  key.components["form"] = form_hash(form).text();
  key.components["isa"] = instruction_set_names[static_cast<size_t>(target.isa)];
  add_versions(key);
  return key;
}

std::optional<StepPlan> find_plan(CompileCache& cache, const CacheKey& key) {
  const std::optional<std::string> content = cache.find(key);
  if (!content) return std::nullopt;
  try {
    return plan_of_bytes(*content, "plan");
  } catch (const UserError& problem) {
    cache.reject(key, problem.what());
    return std::nullopt;
  }
}

void store_plan(CompileCache& cache, const CacheKey& key, const StepPlan& plan, const std::string& module_name) {
  std::string about = module_name + ": ";
  for (const PlanEntry& entry : plan.entries) about += entry.name + " " + std::to_string(entry.instructions.size()) + ", ";
  cache.store(key, about + std::to_string(plan.forms.size()) + " forms", plan_file_bytes(plan));
  cache.trim();
}

std::string why_missed(const CompileCache& cache, const CacheKey& key) {
  const std::optional<CacheEntry> nearest = cache.nearest(key);
  if (!nearest) return "the cache has nothing like it";
  const std::string different = text(differences(nearest->key, key));
  return different.empty() ? "its entry is damaged" : different;
}

void take_code(CompileCache& cache, StepPlan& plan) {
  for (size_t i = 0; i < plan.forms.size(); ++i) {
    if (!plan.code[i].symbol.empty()) continue;
    const CacheKey key = form_key(plan.forms[i], plan.target);
    const std::optional<std::string> content = cache.find(key);
    if (!content) continue;
    try {
      StepPlan found = plan_of_bytes(*content, "form");
      if (found.forms.size() != 1 || found.forms[0] != plan.forms[i]) throw UserError("holds another form");
      plan.code[i] = std::move(found.code[0]);
    } catch (const UserError& problem) {
      cache.reject(key, problem.what());
    }
  }
}

void store_code(CompileCache& cache, const StepPlan& plan, const std::vector<size_t>& forms) {
  for (const size_t i : forms) {
    const StepPlan alone = plan_of_form(plan.forms[i], plan.code[i], plan.target);
    cache.store(form_key(plan.forms[i], plan.target), plan.code[i].symbol, plan_file_bytes(alone));
  }
}

std::string problem_of(const CompileCache& cache, const CacheEntry& entry) {
  if (!entry.problem.empty()) return entry.problem;
  try {
    if (entry.key.kind == module_cache_kind) {
      verify(parse_module(cache.content(entry)));
      return "";
    }
    const StepPlan plan = plan_of_bytes(cache.content(entry), entry.path);
    if (entry.key.kind == plan_kind) verify_at_largest(plan);
    for (const Form& form : plan.forms) check(form);
  } catch (const Error& problem) {
    return problem.what();
  }
  return "";
}

}  // namespace stepgraph
