// SPDX-License-Identifier: Apache-2.0
// The one way in which a pass runs: named, timed, verified after, dumped when asked. An optional pass can be skipped by name, and never changes results
// beyond its declared class.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

struct PassRecord {
  std::string name;
  int64_t elapsed_us = 0;  ///< 0 without a clock
  int64_t nodes_before = 0, nodes_after = 0;
  int64_t verify_us = 0;  ///< of the module that it gave; not in elapsed_us
  std::string why = {};   ///< of a look into the cache: why it had nothing
};
/// How a plan came about.
struct PlanRecord {
  bool is_given = false;    ///< by the user
  bool is_cached = false;   ///< as a whole
  std::string why_made;     ///< what kept it from being taken from the cache; empty without one
  int64_t forms = 0, forms_made = 0;  ///< the code of the others was in the cache
};
/// What the passes of one compilation did. The compiler reads no clock of its own: times are only here.
struct PassLog {
  std::vector<PassRecord> passes;
  std::vector<PlanRecord> plans;                                     ///< one for each that was made, or taken from a cache
  std::function<int64_t()> clock_us;                                 ///< empty: no times
  std::function<void(const std::string& pass, const Module&)> dump;  ///< after each pass; empty: none
};

class PassRunner {
 public:
  /// `stop_at` names the last pass to run; empty: all. `log` may be null.
  PassRunner(std::vector<std::string> skip, std::string stop_at, PassLog* log) : skip_(std::move(skip)), stop_at_(std::move(stop_at)), log_(log) {}
  using Pass = std::function<Module(Module)>;
  Module run(std::string_view name, Module module, const Pass& pass);
  /// May be skipped.
  Module run_optional(std::string_view name, Module module, const Pass& pass);
  /// At the end: UserError if `skip` or `stop_at` names no pass (or no optional one) of those that ran by.
  void check_names() const;

 private:
  bool stopped_ = false;
  std::vector<std::string> skip_;
  std::string stop_at_;
  PassLog* log_;
  std::vector<std::string> seen_, optional_;
};

/// Nodes of all graphs.
int64_t node_count(const Module& module);

}  // namespace stepgraph
