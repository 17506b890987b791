// SPDX-License-Identifier: Apache-2.0
// Plans in files that a user keeps: made by one run for others.
#pragma once
#include <memory>
#include <string>
#include "stepgraph/backend/backend.h"
#include "stepgraph/cache/cache_key.h"

namespace stepgraph {

struct GivenPlan {
  StepPlan plan;
  CacheKey made_of;  ///< plan_key (plan_cache.h)
  std::string name;  ///< of the file, for messages
};

void write_given_plan(const std::string& path, const StepPlan& plan, const CacheKey& made_of);
/// Verified. UserError for a file that is no plan, or not a sound one, or does not say what it was made of.
std::shared_ptr<const GivenPlan> read_given_plan(const std::string& path);
/// The largest sizes, by symbol, that the plan was made for.
std::map<std::string, int64_t, std::less<>> room_of(const GivenPlan& given);
/// UserError that names what differs, if the plan is not of this module, these options, this Target or this build. Its room may be made another (plan_room of lower.h).
void check_fits(const GivenPlan& given, const Module& local, const BackendOptions& options, const Target& target);
/// The options that it was made by, to run it with.
BackendOptions options_of(std::shared_ptr<const GivenPlan> given);

}  // namespace stepgraph
