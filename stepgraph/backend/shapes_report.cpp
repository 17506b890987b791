// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/shapes_report.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/flat.h"
#include "stepgraph/compile/lower/lower.h"
#include "stepgraph/compile/lower/recompute.h"

namespace stepgraph {
namespace {

/// Numbers in place of sizes: small, and apart from one another.
SymbolValues stand_in_sizes(const Module& module) {
  SymbolValues values;
  int64_t next = 6;
  for (const MeshAxis& axis : module.mesh.axes) values["coord." + axis.name] = 0;
  for (const Symbol& symbol : module.symbols.all()) {
    if (symbol.kind != SymbolKind::Size) continue;
    const int64_t whole = (std::max(next, symbol.minimum) + symbol.multiple_of - 1) / symbol.multiple_of * symbol.multiple_of;
    values[symbol.name] = std::min(whole, symbol.maximum - symbol.maximum % symbol.multiple_of);
    next += 5;
  }
  module.symbols.add_derived(values);
  return values;
}

Module with_sizes(Module module, const SymbolValues& values) {
  for (StateInfo& state : module.states)
    for (Dim& dim : state.type.shape) dim = substitute(dim, values);
  for (Graph& graph : module.graphs) {
    for (ValueInfo& value : graph.values)
      for (Dim& dim : value.type.shape) dim = substitute(dim, values);
    for (Node& node : graph.nodes) node.op = stepgraph::bind(node.op, values);
  }
  return module;
}

struct Evaluated {
  int64_t count = 0;
  SourcePlace place;
};
/// By entry, operation and layer.
using EvaluatedOps = std::map<std::tuple<std::string, std::string, std::string>, Evaluated>;

SourcePlace place_of(const Module& flat, const std::string& op, const std::string& scope) {
  for (const Graph& graph : flat.graphs)
    for (const Node& node : graph.nodes)
      if (node.scope == scope && name(node.op) == op) return node.place;
  return {};
}

void count_evaluated(const std::vector<Instruction>& instructions, const Module& flat, const std::string& entry, EvaluatedOps& found) {
  for (const Instruction& instruction : instructions) {
    if (const auto* repeat = std::get_if<Repeat>(&instruction.op)) count_evaluated(repeat->body, flat, entry, found);
    if (!std::holds_alternative<EvaluateCall>(instruction.op)) continue;
    Evaluated& evaluated = found[{entry, instruction.label, instruction.scope}];
    if (evaluated.count++ == 0) evaluated.place = place_of(flat, instruction.label, instruction.scope);
  }
}

EvaluatedOps evaluated_in(const Module& local, const BackendOptions& options) {
  Module flat = flatten_for_kernels(local, flat_passes_left_out(options), nullptr);
  flat = recompute_cheap(std::move(flat));
  LowerOptions lower;
  for (const Symbol& symbol : flat.symbols.all())
    if (symbol.kind == SymbolKind::Size) lower.largest[symbol.name] = symbol.minimum;  // how much memory there is plays no part
  const StepPlan plan = lower_to_plan(flat, lower);
  EvaluatedOps found;
  for (const PlanEntry& entry : plan.entries) count_evaluated(entry.instructions, flat, entry.name, found);
  return found;
}

std::vector<std::string> inputs_with(const Module& module, const std::string& symbol) {
  std::vector<std::pair<std::string, std::string>> found;  // where, entries
  for (const Entry& entry : module.entries) {
    const Graph& graph = module.graph(entry.graph);
    for (const GraphInput& input : graph.inputs) {
      const Shape& shape = graph.type(input.value).shape;
      for (size_t d = 0; d < shape.size(); ++d) {
        const std::vector<std::string> symbols = module.symbols.expand(shape[d]).symbols();
        if (std::find(symbols.begin(), symbols.end(), symbol) == symbols.end()) continue;
        const std::string where = fmt::format("dim {} of {}", d, input.role.name);
        const auto known = std::find_if(found.begin(), found.end(), [&](const auto& place) { return place.first == where; });
        if (known == found.end()) found.emplace_back(where, entry.name);
        else known->second += ", " + entry.name;
      }
    }
  }
  std::vector<std::string> texts;
  for (const auto& [where, entries] : found) texts.push_back(where + " (" + entries + ")");
  return texts;
}

std::string range_text(const ShapesReport::Size& size) {
  return fmt::format("{} in [{}, {}]{}", size.symbol, size.minimum, size.maximum == INT64_MAX ? "inf" : std::to_string(size.maximum),
                     size.multiple_of == 1 ? "" : fmt::format(", a multiple of {}", size.multiple_of));
}

std::string compilations_text(const ShapesReport& report) {
  if (report.compilations == 0) return "nothing is compiled";
  std::string text = report.compilations == 1 ? "compiled once" : fmt::format("compiled {} times", report.compilations);
  return report.sizes.empty() ? text : text + " for all sizes";
}

std::string memory_text(const ShapesReport& report) {
  if (report.memory_plans < 0) return "memory is planned again for a batch that is larger than any before";
  if (report.memory_plans <= 1) return "memory is planned once";
  return fmt::format("memory is planned at most {} times", report.memory_plans);
}

}  // namespace

ShapesReport describe_sizes(const Module& local, const BackendOptions& options) {
  ShapesReport report;
  report.compilations = options.backend == Backend::Reference ? 0 : 1;
  report.memory_plans = options.backend == Backend::Reference ? 0 : 1;
  for (const Symbol& symbol : local.symbols.all()) {
    if (symbol.kind != SymbolKind::Size) continue;
    ShapesReport::Size size{symbol.name, symbol.minimum, symbol.maximum, symbol.multiple_of, bucket_points(options.sizes, symbol), false, inputs_with(local, symbol.name), {}};
    for (const SizeRange& range : options.sizes) {
      if (range.symbol != symbol.name) continue;
      size.is_announced = true;
      size.minimum = std::max(size.minimum, range.minimum);
      size.maximum = std::min(size.maximum, range.buckets.empty() ? range.maximum : std::min(range.maximum, range.buckets.back()));
    }
    for (const Symbol& other : local.symbols.all()) {
      if (other.kind != SymbolKind::Derived) continue;
      const std::vector<std::string> symbols = local.symbols.expand(other.definition).symbols();
      if (std::find(symbols.begin(), symbols.end(), symbol.name) != symbols.end()) size.derived.push_back(other.name + " = " + other.definition.text());
    }
    if (size.buckets.empty() && size.maximum == INT64_MAX) report.memory_plans = -std::min<int64_t>(report.compilations, 1);
    else if (report.memory_plans > 0) report.memory_plans *= std::max<int64_t>(1, static_cast<int64_t>(size.buckets.size()));
    report.sizes.push_back(std::move(size));
  }
  return report;
}

ShapesReport explain_shapes(const Module& local, const BackendOptions& options) {
  ShapesReport report = describe_sizes(local, options);
  if (options.backend == Backend::Reference) return report;
  const EvaluatedOps with_symbols = evaluated_in(local, options);
  if (with_symbols.empty()) return report;
  EvaluatedOps with_numbers;
  if (!report.sizes.empty()) with_numbers = evaluated_in(with_sizes(local, stand_in_sizes(local)), options);
  else with_numbers = with_symbols;
  for (const auto& [key, evaluated] : with_symbols) {
    const auto known = with_numbers.find(key);
    const int64_t in_any_case = known == with_numbers.end() ? 0 : std::min(known->second.count, evaluated.count);
    report.evaluated += in_any_case;
    if (evaluated.count == in_any_case) continue;
    report.forced.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), evaluated.place, evaluated.count - in_any_case});
  }
  return report;
}

std::string text(const ShapesReport& report) {
  std::string result;
  for (const ShapesReport::Size& size : report.sizes) {
    result += fmt::format("size {}{}\n", range_text(size), size.is_announced ? ", as announced" : "");
    result += fmt::format("  read from   {}\n", size.read_from.empty() ? "no input" : fmt::format("{}", fmt::join(size.read_from, ", ")));
    if (!size.derived.empty()) result += fmt::format("  gives       {}\n", fmt::join(size.derived, ", "));
    result += size.buckets.empty() ? "  buckets     none\n" : fmt::format("  buckets     {}\n", fmt::join(size.buckets, ", "));
  }
  if (report.sizes.empty()) result += "every size is a number\n";
  result += compilations_text(report) + "; " + memory_text(report) + "\n";
  result += "guards: none splits the program\n";
  if (report.forced.empty()) result += "fallback: none; no operation is run by the interpreter because sizes are symbols\n";
  for (const ShapesReport::Forced& forced : report.forced)
    result += fmt::format("fallback: {}: {} x {}{}{} has a kernel only where sizes are numbers\n", forced.entry, forced.count, forced.op,
                          forced.scope.empty() ? "" : " of " + forced.scope, forced.place.known() ? fmt::format(" ({})", forced.place.text()) : "");
  if (report.evaluated > 0) result += fmt::format("{} operations are run by the interpreter for any sizes\n", report.evaluated);
  return result;
}

std::string summary(const ShapesReport& report) {
  std::string result;
  for (const ShapesReport::Size& size : report.sizes) result += range_text(size) + " · ";
  result += compilations_text(report);
  if (!report.sizes.empty()) result += " · " + memory_text(report);
  for (const ShapesReport::Size& size : report.sizes)
    if (!size.buckets.empty()) result += fmt::format(" ({} of {})", size.symbol, fmt::join(size.buckets, ", "));
  return result;
}

void refuse_fallback(const ShapesReport& report) {
  if (report.forced.empty()) return;
  std::string found;
  for (const ShapesReport::Forced& forced : report.forced)
    found += fmt::format("{}{} in entry {}{}{}", found.empty() ? "" : "; ", forced.op, forced.entry, forced.scope.empty() ? "" : " of " + forced.scope,
                         forced.place.known() ? fmt::format(" ({})", forced.place.text()) : "");
  throw UserError("--fullgraph: found operations that only the interpreter runs because sizes are symbols: " + found + "; wanted sizes that are numbers there, or no --fullgraph");
}

}  // namespace stepgraph
