// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/pass.h"

#include <algorithm>

#include "stepgraph/compile/ops/verify.h"

namespace stepgraph {
namespace {

bool contains(const std::vector<std::string>& names, std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); }

std::string listed(const std::vector<std::string>& names) {
  std::string result;
  for (const std::string& name : names) result += (result.empty() ? "" : ", ") + name;
  return result.empty() ? "none" : result;
}

}  // namespace

int64_t node_count(const Module& module) {
  int64_t count = 0;
  for (const Graph& graph : module.graphs) count += static_cast<int64_t>(graph.nodes.size());
  return count;
}

Module PassRunner::run(std::string_view name, Module module, const Pass& pass) {
  seen_.emplace_back(name);
  if (stopped_) return module;
  PassRecord record{std::string(name), 0, node_count(module), 0, 0};
  const bool timed = log_ != nullptr && log_->clock_us;
  const int64_t begin = timed ? log_->clock_us() : 0;
  module = pass(std::move(module));
  if (timed) record.elapsed_us = log_->clock_us() - begin;
  record.nodes_after = node_count(module);
  const int64_t verify_begin = timed ? log_->clock_us() : 0;
  try {
    verify(module);
  } catch (const UserError& error) {
    throw InternalError("pass " + record.name + " gives an invalid module: " + error.what());
  }
  if (timed) record.verify_us = log_->clock_us() - verify_begin;
  if (log_ != nullptr && log_->dump) log_->dump(record.name, module);
  if (log_ != nullptr) log_->passes.push_back(std::move(record));
  stopped_ = name == stop_at_;
  return module;
}

Module PassRunner::run_optional(std::string_view name, Module module, const Pass& pass) {
  optional_.emplace_back(name);
  if (!contains(skip_, name)) return run(name, std::move(module), pass);
  seen_.emplace_back(name);
  stopped_ = stopped_ || name == stop_at_;
  return module;
}

void PassRunner::check_names() const {
  for (const std::string& name : skip_)
    if (!contains(optional_, name)) throw UserError("no optional pass '" + name + "' to skip; there are: " + listed(optional_));
  if (!stop_at_.empty() && !contains(seen_, stop_at_)) throw UserError("no pass '" + stop_at_ + "' to stop at; there are: " + listed(seen_));
}

}  // namespace stepgraph
