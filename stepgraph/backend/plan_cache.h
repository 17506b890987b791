// SPDX-License-Identifier: Apache-2.0
// Plans and machine code in the compile cache. A plan stands under what it was made of and by; its code besides, form by form, under what a form is and by what
// it was made, so that another plan with equal forms has it.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/backend/backend.h"
#include "stepgraph/cache/compile_cache.h"

namespace stepgraph {

/// Of modules that passes gave, as text (train/cached_module.h).
inline constexpr std::string_view module_cache_kind = "module";

/// What a plan is made of beside the module: a further option that changes plans joins here, under a name of its own.
CacheKey plan_key(const Module& local, const BackendOptions& options, const Target& target);
CacheKey form_key(const Form& form, const Target& target);
/// By which Stepgraph, libraries and formats an entry is made.
void add_versions(CacheKey& key);

/// The plan, as it was verified when it was made: the hashes of its entry hold, and the key names the verifier's build.
std::optional<StepPlan> find_plan(CompileCache& cache, const CacheKey& key);
/// Trims the cache too.
void store_plan(CompileCache& cache, const CacheKey& key, const StepPlan& plan, const std::string& module_name);
/// Why there is no such entry: "the cache has nothing like it", "module: was 3f.., now 9a..".
std::string why_missed(const CompileCache& cache, const CacheKey& key);

/// Puts the code of forms that have none, and that the cache has, into the plan.
void take_code(CompileCache& cache, StepPlan& plan);
/// Code of the forms of these numbers.
void store_code(CompileCache& cache, const StepPlan& plan, const std::vector<size_t>& forms);

/// What is wrong with an entry: its hashes, and whether its content is a plan or a module that verifies, or a form's code. Empty: nothing.
std::string problem_of(const CompileCache& cache, const CacheEntry& entry);

}  // namespace stepgraph
