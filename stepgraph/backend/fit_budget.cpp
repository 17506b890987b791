// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/fit_budget.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

struct Candidate {
  Module module;
  BudgetRung rung;
};

/// By time.
std::vector<Candidate> ladder(const Module& flat, const LowerOptions& options) {
  using Price = Rematerialization::Price;
  const SymbolTable symbols = narrowed_symbols(flat.symbols, options.largest);
  std::vector<Candidate> candidates;
  int layers = 1;
  for (int count = 1; count <= std::max(1, layers); count *= 2) {
    for (const Price price : {Price::Bandwidth, Price::FourTimes, Price::AnyWithoutCalls, Price::SixteenTimes, Price::SixtyFourTimes, Price::Any}) {
      for (int eighths = price == Price::Bandwidth || count > 1 ? 8 : 1; eighths <= 8; ++eighths) {
        const Rematerialization how{price, count, eighths};
        RematerializeResult found = rematerialize(flat, symbols, how, options.target.threads);
        layers = found.layers;
        // One that keeps hardly less than another of no more layers, and takes no less time, has nothing for it.
        constexpr double hardly_less = 0.98;
        const bool is_worse = std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& other) {
          return other.rung.seconds <= found.seconds && static_cast<double>(found.kept_bytes) > hardly_less * static_cast<double>(other.rung.kept_bytes);
        });
        if (is_worse || found.clones == 0) continue;
        candidates.push_back({std::move(found.module), {how, {}, found.read_later_bytes, found.kept_bytes, found.seconds}});
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.rung.seconds < b.rung.seconds; });
  return candidates;
}

std::string bytes_text(int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

[[noreturn]] void fail(const BudgetReport& report) {
  const BudgetRung& least = report.rungs[report.chosen];
  throw UserError(fmt::format("memory budget: found {}, wanted at least {} (of which states {}): no smaller plan was found, {} without a budget", bytes_text(report.budget_bytes),
                              bytes_text(least.memory.total()), bytes_text(least.memory.states), bytes_text(report.rungs[0].memory.total())));
}

}  // namespace

StepPlan plan_within(const MemoryBudget& budget, const Module& flat, const Module& kept, const LowerOptions& options, BudgetReport& report, PlanReport* told) {
  const bool whole_ladder = told != nullptr;
  LowerReport lowered;
  const auto plan_of = [&](const Module& module, BudgetRung rung) {
    lowered.clear();
    StepPlan plan = lower_to_plan(module, options, told != nullptr ? &lowered : nullptr);
    rung.memory = planned_memory(plan);
    report.rungs.push_back(std::move(rung));
    return plan;
  };
  StepPlan plan = plan_of(kept, {});
  if (told != nullptr) told->lower = lowered;
  const int64_t most = report.rungs[0].memory.total();
  const bool smallest = budget.kind == MemoryBudget::Kind::Smallest;
  report.budget_bytes = budget.kind == MemoryBudget::Kind::Share ? static_cast<int64_t>(static_cast<double>(most) * budget.share) : budget.bytes;
  bool fits = !smallest && most <= report.budget_bytes;
  if (fits && !whole_ladder) return plan;
  for (Candidate& candidate : ladder(flat, options)) {
    if (fits && !whole_ladder) break;
    StepPlan next = plan_of(candidate.module, candidate.rung);
    candidate.module = {};
    // Until one fits, the smallest is held: it is what a budget is measured by that nothing fits.
    if (fits || report.rungs.back().memory.total() >= report.rungs[report.chosen].memory.total()) continue;
    plan = std::move(next);
    if (told != nullptr) told->lower = lowered;
    report.chosen = report.rungs.size() - 1;
    fits = !smallest && report.rungs.back().memory.total() <= report.budget_bytes;
  }
  if (!fits && !smallest) fail(report);
  return plan;
}

}  // namespace stepgraph
