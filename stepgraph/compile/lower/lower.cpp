// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/lower.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/lower/contractions.h"
#include "stepgraph/compile/lower/entry_lowering.h"
#include "stepgraph/compile/lower/plan_memory.h"

namespace stepgraph {

SymbolTable narrowed_symbols(const SymbolTable& symbols, const std::map<std::string, int64_t, std::less<>>& largest) {
  SymbolTable result;
  for (Symbol symbol : symbols.all()) {
    if (symbol.kind == SymbolKind::Derived) {
      symbol.minimum = 0, symbol.maximum = INT64_MAX;
      result.declare(std::move(symbol));
      continue;
    }
    if (const auto found = largest.find(symbol.name); found != largest.end()) symbol.maximum = std::clamp(found->second, symbol.minimum, symbol.maximum);
    std::erase_if(symbol.buckets, [&](int64_t point) { return point > symbol.maximum; });
    result.declare(std::move(symbol));
  }
  return result;
}

std::vector<size_t> emit_code(StepPlan& plan) {
  plan.code.resize(plan.forms.size());
  std::vector<size_t> missing;
  for (size_t i = 0; i < plan.forms.size(); ++i)
    if (plan.code[i].symbol.empty()) missing.push_back(i);
  std::atomic<size_t> next{0};
  std::vector<std::exception_ptr> errors(missing.size());
  const auto work = [&] {
    for (size_t i = next++; i < missing.size(); i = next++) {
      try {
        plan.code[missing[i]] = emit_form(plan.forms[missing[i]], plan.target);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  if (missing.size() > 1) {
    std::thread other(work);
    work();
    other.join();
  } else {
    work();
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return missing;
}

StepPlan lower_to_plan(const Module& module, const LowerOptions& options, LowerReport* report) {
  SG_CHECK(module.stage == Stage::Local, "a plan is made of a local module");
  const Module flat = join_contracted_dims(module);
  StepPlan plan;
  plan.target = options.target;
  plan.symbols = narrowed_symbols(flat.symbols, options.largest);
  plan.mesh = flat.mesh;
  for (const StateInfo& state : flat.states) plan.states.push_back({state.name, state.role, state.type.dtype, state.type.shape});
  FormTable forms(plan.forms);
  for (const Entry& entry : flat.entries) {
    LoweredEntry* told = report != nullptr ? &report->emplace_back() : nullptr;
    plan.entries.push_back(lower_entry(flat, entry, options, plan, forms, told));
    plan_memory(plan.entries.back(), plan.symbols, plan.target);
  }
  choose_products(plan, options.tuning);
  return plan;
}

void plan_room(StepPlan& plan, const SymbolTable& symbols, const std::map<std::string, int64_t, std::less<>>& largest) {
  // Those that passes declared are the plan's own; the module's have their declared maxima again.
  SymbolTable declared;
  for (const Symbol& symbol : plan.symbols.all()) {
    const Symbol* original = symbols.find(symbol.name);
    Symbol whole = original != nullptr ? *original : symbol;
    if (whole.kind == SymbolKind::Derived) whole.minimum = 0, whole.maximum = INT64_MAX;
    declared.declare(std::move(whole));
  }
  plan.symbols = narrowed_symbols(declared, largest);
  for (PlanEntry& entry : plan.entries) plan_memory(entry, plan.symbols, plan.target);
}

}  // namespace stepgraph
