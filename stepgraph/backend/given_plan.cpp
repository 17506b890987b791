// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/given_plan.h"

#include <charconv>
#include <utility>

#include "stepgraph/backend/plan_cache.h"
#include "stepgraph/base/split_at.h"
#include "stepgraph/program/plan_file.h"

namespace stepgraph {
namespace {

std::string component(const GivenPlan& given, const std::string& name) {
  const auto found = given.made_of.components.find(name);
  return found == given.made_of.components.end() ? "" : found->second;
}

}  // namespace

void write_given_plan(const std::string& path, const StepPlan& plan, const CacheKey& made_of) { write_plan(path, plan, key_bytes(made_of)); }

std::shared_ptr<const GivenPlan> read_given_plan(const std::string& path) {
  auto given = std::make_shared<GivenPlan>();
  given->name = path;
  std::string made_of;
  given->plan = read_plan(path, &made_of);
  try {
    given->made_of = key_of_bytes(made_of);
    verify_at_largest(given->plan);
  } catch (const Error& problem) {
    throw UserError(path + ": " + problem.what() + "; wanted a plan of stepgraph compile");
  }
  return given;
}

std::map<std::string, int64_t, std::less<>> room_of(const GivenPlan& given) {
  std::map<std::string, int64_t, std::less<>> sizes;
  const std::string largest = component(given, "largest");
  for (const std::string_view word : split_at(largest, ',')) {
    const size_t equals = word.rfind('=');
    if (equals == std::string_view::npos) continue;
    int64_t size = 0;
    std::from_chars(word.data() + equals + 1, word.data() + word.size(), size);
    sizes[std::string(word.substr(0, equals))] = size;
  }
  return sizes;
}

void check_fits(const GivenPlan& given, const Module& local, const BackendOptions& options, const Target& target) {
  BackendOptions wanted = options;
  wanted.largest = room_of(given);
  const std::vector<KeyDifference> different = differences(given.made_of, plan_key(local, wanted, target));
  if (!different.empty()) throw UserError(given.name + ": the plan does not fit what is to be run: " + text(different));
}

BackendOptions options_of(std::shared_ptr<const GivenPlan> given) {
  BackendOptions options;
  if (const std::optional<Backend> backend = backend_from_name(component(*given, "backend"))) options.backend = *backend;
  options.threads = given->plan.target.threads;
  options.flush_denormals = given->plan.target.flush_denormals;
  const std::string skip = component(*given, "skip");
  for (const std::string_view pass : split_at(skip, ',')) options.skip.emplace_back(pass);
  options.largest = room_of(*given);
  options.plan = std::move(given);
  return options;
}

}  // namespace stepgraph
