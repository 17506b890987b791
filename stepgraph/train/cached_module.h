// SPDX-License-Identifier: Apache-2.0
// Passes over a module, or what they gave before: with the plan in the cache too, a run starts without any pass.
#pragma once
#include <memory>
#include "stepgraph/cache/compile_cache.h"
#include "stepgraph/compile/compile.h"

namespace stepgraph {

/// The module, with the user's places, and every option by name.
CacheKey module_key(const Module& module, const CompileOptions& options);
/// `compile`. `cache` and `log` may be null; a log that wants dumps gets its passes.
Module compile_cached(Module module, const CompileOptions& options, const std::shared_ptr<CompileCache>& cache, PassLog* log);

}  // namespace stepgraph
