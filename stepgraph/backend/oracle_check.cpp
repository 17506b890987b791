// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/oracle_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "stepgraph/backend/compiled_executor.h"
#include "stepgraph/compile/passes/tap.h"
#include "stepgraph/reference/interpreter.h"
#include "stepgraph/run/comm/threads.h"

namespace stepgraph {
namespace {

double allowed_part(DType dtype) {
  if (dtype == DType::F64) return 1e-9;
  if (dtype == DType::F32) return 1e-4;
  return dtype == DType::BF16 ? 0.04 : 0.005;
}
double unit_of(DType dtype) { return dtype == DType::F64 ? 0x1p-52 : dtype == DType::F32 ? 0x1p-23 : dtype == DType::BF16 ? 0x1p-7 : 0x1p-10; }

uint64_t scrambled(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Each element some units in the last place off, up or down.
Literal changed(const Literal& value, uint64_t seed) {
  if (value.dtype() != DType::F32 && value.dtype() != DType::F64) return value;
  Literal result = value;
  const double step = 4 * unit_of(value.dtype());
  for (int64_t i = 0; i < value.count(); ++i) result.set(i, value.at(i) * (1 + (scrambled(seed + static_cast<uint64_t>(i)) % 2 == 0 ? step : -step)));
  return result;
}
std::vector<Literal> changed(const std::vector<Literal>& values) {
  std::vector<Literal> result;
  for (size_t i = 0; i < values.size(); ++i) result.push_back(changed(values[i], i << 40));
  return result;
}

/// A state's numbers are as `init` would draw them, about.
Literal random_literal(const TensorType& type, const SymbolValues& symbols, uint64_t seed, int64_t integers) {
  Sizes sizes;
  for (const Dim& dim : type.shape) sizes.push_back(dim.is_constant() ? dim.constant() : evaluate(dim, symbols));
  Literal value(type.dtype, sizes);
  for (int64_t i = 0; i < value.count(); ++i) {
    const uint64_t bits = scrambled(seed + static_cast<uint64_t>(i));
    if (is_floating(type.dtype)) value.set(i, static_cast<double>(bits >> 11) * 0x1p-53 * 3 - 1.5);
    else value.set_integer(i, static_cast<int64_t>(bits % static_cast<uint64_t>(type.dtype == DType::Bool ? 2 : std::min<int64_t>(integers, 127))));
  }
  return value;
}

SymbolValues sizes_of(const Module& local, int64_t rows) {
  SymbolValues values;
  for (const Symbol& symbol : local.symbols.all()) {
    if (symbol.kind != SymbolKind::Size) continue;
    const int64_t multiple = std::max<int64_t>(symbol.multiple_of, 1);
    const int64_t wanted = std::clamp(rows, symbol.minimum, symbol.maximum);
    values[symbol.name] = std::max(wanted / multiple * multiple, (symbol.minimum + multiple - 1) / multiple * multiple);
  }
  for (const MeshAxis& axis : local.mesh.axes) values["coord." + axis.name] = 0;
  local.symbols.add_derived(values);
  return values;
}

/// One entry, as an executor takes it: states stay states, other inputs are batch arrays by number, other outputs user outputs by number.
Module as_step(Module module, std::string_view entry) {
  const GraphId id = module.entry(entry);
  Graph& graph = module.graph(id);
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (!is_state(graph.inputs[i].role.kind)) graph.inputs[i].role = {RoleKind::Batch, std::to_string(i), 0};
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    if (graph.outputs[i].role.kind != RoleKind::NewState) graph.outputs[i].role = {RoleKind::UserOutput, std::to_string(i), 0};
  module.entries = {{std::string(entry), id}};
  return prune_graphs(std::move(module));
}

std::string output_name(const Role& role, size_t i) {
  if (role.kind == RoleKind::NewState) return "new(" + role.name + ")";
  if (role.kind == RoleKind::Gradient) return "grad(" + role.name + ")";
  const std::string kind = role.kind == RoleKind::None || role.kind == RoleKind::UserOutput ? "" : std::string(name(role.kind));
  if (role.name.empty()) return kind.empty() ? "out" + std::to_string(i) : kind;
  return kind.empty() ? role.name : kind + " " + role.name;
}

struct CompiledValues {
  std::vector<Literal> outputs;  // as the entry's, new states among them
  std::map<std::string, Literal> taps;
};

/// One step of the plan of a kernel module, committed.
CompiledValues run_compiled(const Module& kernels, std::string_view entry, const EntryArguments& arguments, const BackendOptions& options) {
  const MeshBinding binding = bind_mesh(kernels.mesh);
  BackendOptions sized = options;
  for (const auto& [symbol, value] : arguments.symbols) sized.largest[symbol] = value;
  const auto plan = std::make_shared<const StepPlan>(plan_of_kernels(kernels, sized, host_target(options.threads, 1), nullptr));
  const Graph& graph = kernels.graph(kernels.entry(entry));
  CompiledValues values;
  run_ranks(1, [&](int, Communicator& group) {
    const std::unique_ptr<Executor> executor = load_plan(plan, binding, sized);
    executor->connect(group);
    EntryInputs inputs;
    inputs.sizes = arguments.symbols;
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const Role& role = graph.inputs[i].role;
      if (is_state(role.kind)) executor->write_state(role.name, arguments.inputs[i]);
      else inputs.batch.emplace(role.name, arguments.inputs[i]);
    }
    EntryResults results = executor->run(entry, inputs);
    executor->commit();
    for (const GraphOutput& output : graph.outputs) {
      if (output.role.kind == RoleKind::Tap) continue;
      values.outputs.push_back(output.role.kind == RoleKind::NewState ? executor->read_state(output.role.name) : results.outputs.at(output.role.name));
    }
    values.taps = std::move(results.taps);
  });
  return values;
}

void check_comparable(const Module& local, const BackendOptions& options) {
  if (options.backend == Backend::Reference) throw UserError("the reference back end is what others are compared with, wanted eager, segment or full");
  if (local.mesh.device_count() > 1) throw UserError("the compiled program is compared on one device, found mesh " + local.mesh.text());
}

/// The oracle's values of some nodes' results.
std::map<int32_t, Literal> oracle_values(const Module& kernels, GraphId id, const std::vector<Literal>& inputs, const SymbolValues& symbols, std::span<const NamedValue> wanted) {
  const Graph& graph = kernels.graph(id);
  std::vector<char> is_wanted(graph.values.size(), 0);
  for (const NamedValue& value : wanted) is_wanted[static_cast<size_t>(value.value.index)] = 1;
  std::map<int32_t, Literal> values;
  const auto keep = [&](const NodeEvent& event) {
    if (&event.graph != &graph) return;
    for (size_t i = 0; i < event.results.size(); ++i)
      if (is_wanted[static_cast<size_t>(event.node.results[i].index)]) values.insert_or_assign(event.node.results[i].index, event.results[i]);
  };
  Interpreter(kernels, {keep}).run(id, inputs, symbols);
  return values;
}

/// The first of these values that is off, all looked at in one run of the compiled program. `compared` counts those up to it.
std::optional<std::pair<NamedValue, ValueDifference>> first_off(const Module& kernels, std::string_view entry, const EntryArguments& arguments, std::span<const NamedValue> values,
                                                                const BisectOptions& options, int64_t& compared) {
  const GraphId id = kernels.entry(entry);
  const auto wanted = oracle_values(kernels, id, arguments.inputs, arguments.symbols, values);
  const auto noisy = oracle_values(kernels, id, changed(arguments.inputs), arguments.symbols, values);
  const CompiledValues found = run_compiled(tap_values(kernels, id, {values.begin(), values.end()}), entry, arguments, options.backend);
  for (const NamedValue& value : values) {
    ++compared;
    ValueDifference difference = compare_value(value.name, found.taps.at(value.name), wanted.at(value.value.index), noisy.at(value.value.index), options.tolerance);
    if (!difference.ok()) return std::pair(value, std::move(difference));
  }
  return std::nullopt;
}

}  // namespace

ValueDifference compare_value(std::string name, const Literal& found, const Literal& wanted, const Literal& noisy, const OracleTolerance& tolerance) {
  ValueDifference result;
  result.name = std::move(name);
  result.count = wanted.count();
  if (found.dtype() != wanted.dtype() || found.sizes() != wanted.sizes()) {
    result.problem = "found " + found.text(4) + ", wanted " + wanted.text(4);
    return result;
  }
  const bool is_exact = !is_floating(wanted.dtype());
  double noise = 0, squares = 0;
  int64_t differing = 0, noisy_elements = 0;
  for (int64_t i = 0; i < wanted.count(); ++i) {
    const double f = found.at(i), w = wanted.at(i), n = noisy.at(i);
    if (std::isfinite(w)) result.largest = std::max(result.largest, std::fabs(w));
    if (std::isfinite(w) && std::isfinite(n)) noise = std::max(noise, std::fabs(w - n));
    noisy_elements += w != n;
    const bool is_same = f == w || (std::isnan(f) && std::isnan(w));
    const double off = is_same ? 0 : std::isfinite(f) && std::isfinite(w) ? std::fabs(f - w) : std::numeric_limits<double>::infinity();
    squares += off * off;
    differing += !is_same;
    if (off > result.difference || (i == 0 && result.count > 0)) result.difference = off, result.element = i, result.found = f, result.wanted = w;
  }
  if (result.count > 0) result.rms = std::sqrt(squares / static_cast<double>(result.count));
  // What decides between numbers that are nearly equal may decide otherwise now and then.
  if (is_exact) result.allowed = differing <= result.count / 1000 + 4 * noisy_elements ? std::numeric_limits<double>::infinity() : 0;
  else result.allowed = std::max(tolerance.factor * allowed_part(wanted.dtype()) * result.largest, tolerance.noise * noise) + std::numeric_limits<double>::min();
  return result;
}

EntryArguments random_arguments(const Module& local, std::string_view entry, int64_t rows, uint64_t seed, int64_t integers) {
  const Graph& graph = local.graph(local.entry(entry));
  EntryArguments arguments;
  arguments.symbols = sizes_of(local, rows);
  std::map<std::string, Literal> states;
  if (const auto init = local.find_entry("init"); init && entry != "init") {
    const Graph& made = local.graph(*init);
    std::vector<Literal> values = evaluate_graph(local, *init, std::vector<Literal>(made.inputs.size(), Literal::integer(DType::I64, static_cast<int64_t>(seed))));
    for (size_t i = 0; i < values.size(); ++i) states.emplace(made.outputs[i].role.name, std::move(values[i]));
  }
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Role& role = graph.inputs[i].role;
    const TensorType& type = graph.type(graph.inputs[i].value);
    if (const auto state = states.find(role.name); is_state(role.kind) && state != states.end()) arguments.inputs.push_back(state->second);
    else if (role.kind == RoleKind::Seed || role.kind == RoleKind::Step) arguments.inputs.push_back(Literal::integer(DType::I64, role.kind == RoleKind::Seed ? static_cast<int64_t>(seed) : 0));
    else arguments.inputs.push_back(random_literal(type, arguments.symbols, scrambled(seed) + (i << 40), integers));
  }
  return arguments;
}

EntryArguments fitting_arguments(const Module& local, std::string_view entry, int64_t rows, uint64_t seed) {
  for (int64_t integers = 64;;) {
    EntryArguments arguments = random_arguments(local, entry, rows, seed, integers);
    try {
      evaluate_graph(local, local.entry(entry), arguments.inputs, arguments.symbols);
      return arguments;
    } catch (const UserError& error) {
      if (!error.bad_index() || error.bad_index()->size < 1 || error.bad_index()->size >= integers) throw;
      integers = error.bad_index()->size;
    }
  }
}

std::vector<ValueDifference> compare_with_oracle(const Module& local, std::string_view entry, const EntryArguments& arguments, const BackendOptions& options, const OracleTolerance& tolerance) {
  check_comparable(local, options);
  const GraphId id = local.entry(entry);
  const std::vector<Literal> wanted = evaluate_graph(local, id, arguments.inputs, arguments.symbols);
  const std::vector<Literal> noisy = evaluate_graph(local, id, changed(arguments.inputs), arguments.symbols);
  const CompiledValues found = run_compiled(kernel_module(as_step(local, entry), options, nullptr), entry, arguments, options);
  std::vector<ValueDifference> differences;
  const Graph& graph = local.graph(id);
  for (size_t i = 0; i < wanted.size(); ++i) differences.push_back(compare_value(output_name(graph.outputs[i].role, i), found.outputs.at(i), wanted[i], noisy[i], tolerance));
  return differences;
}

BisectReport find_first_difference(const Module& local, std::string_view entry, const EntryArguments& arguments, const BisectOptions& options) {
  check_comparable(local, options.backend);
  const Module kernels = kernel_module(as_step(local, entry), options.backend, nullptr);
  const Graph& graph = kernels.graph(kernels.entry(entry));
  const std::vector<NamedValue> values = value_names(graph);
  SymbolValues symbols = arguments.symbols;
  for (const MeshAxis& axis : kernels.mesh.axes) symbols["coord." + axis.name] = 0;
  kernels.symbols.add_derived(symbols);
  BisectReport report;
  report.values = static_cast<int64_t>(values.size());
  for (size_t begin = 0; begin < values.size() && !report.first;) {
    size_t end = begin;
    for (int64_t bytes = 0; end < values.size() && (end == begin || bytes < options.bytes_at_once); ++end) {
      const TensorType& type = graph.type(values[end].value);
      bytes += evaluate(element_count(type.shape), symbols) * static_cast<int64_t>(size_bytes(type.dtype));
    }
    const std::span<const NamedValue> part = std::span(values).subspan(begin, end - begin);
    ++report.runs;
    if (auto off = first_off(kernels, entry, arguments, part, options, report.compared)) {
      const Node& node = graph.nodes[static_cast<size_t>(off->first.node)];
      FirstDifference first{std::move(off->second), std::string(name(node.op)), node.scope, text(graph.type(off->first.value)), node.phase, node.place, false};
      int64_t again = 0;
      ++report.runs;
      first.is_alone = first_off(kernels, entry, arguments, std::span(&off->first, 1), options, again).has_value();
      report.first = std::move(first);
    }
    begin = end;
  }
  return report;
}

std::string text(const BisectReport& report) {
  if (!report.first) return fmt::format("no value is off: {} values compared with the oracle's, in {} runs\n", report.compared, report.runs);
  const FirstDifference& first = *report.first;
  const ValueDifference& value = first.value;
  std::string told = fmt::format("the first value that is off, {} of {} in the order of the program: {}\n", report.compared, report.values, value.name);
  told += fmt::format("  operation {}, {}{}{}\n", first.op, first.type, first.scope.empty() ? "" : ", layer " + first.scope,
                      first.phase == Phase::None ? "" : ", phase " + std::string(name(first.phase)));
  if (first.place.known()) told += "  written at " + first.place.text() + "\n";
  if (!value.problem.empty()) told += "  " + value.problem + "\n";
  else told += fmt::format("  element {} of {}: found {:.9g}, the oracle has {:.9g}; they differ by {:.3g}, allowed {:.3g} (largest magnitude {:.3g})\n", value.element, value.count, value.found,
                           value.wanted, value.difference, value.allowed, value.largest);
  if (!first.is_alone) told += "  it is off only while other values are looked at too: a kernel is wrong that the program has only then\n";
  return told;
}

}  // namespace stepgraph
