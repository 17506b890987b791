// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/run_once.h"

#include <algorithm>
#include <utility>

#include "stepgraph/base/float_mode.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ir/solve_symbols.h"
#include "stepgraph/reference/interpreter.h"
#include "stepgraph/reference/mesh_run.h"
#include "stepgraph/run/comm/parts.h"
#include "stepgraph/run/comm/threads.h"

namespace stepgraph {
namespace {

std::string numbered(size_t i) { return std::to_string(i); }

/// The entry alone, its inputs batch arrays and its outputs user outputs, by number: what an executor takes and gives.
Module as_arrays(Module module, GraphId id) {
  Graph& graph = module.graph(id);
  for (size_t i = 0; i < graph.inputs.size(); ++i) graph.inputs[i].role = {RoleKind::Batch, numbered(i), 0};
  for (size_t i = 0; i < graph.outputs.size(); ++i) graph.outputs[i].role = {RoleKind::UserOutput, numbered(i), 0};
  module.entries = {{"main", id}};
  module.states = {};
  return prune_graphs(std::move(module));
}

}  // namespace

RunOutcome run_entry(const Module& local, std::string_view entry, std::span<const Literal> inputs, const BackendOptions& options, const SymbolValues& symbols) {
  const GraphId id = local.entry(entry);
  const bool is_oracle = options.backend == Backend::Reference && options.taps.empty() && !options.flush_denormals;
  if (is_oracle && local.mesh.device_count() == 1) return {evaluate_graph(local, id, inputs, symbols), {}};
  if (is_oracle) return {run_on_mesh(local, id, inputs, symbols).outputs, {}};
  const MeshBinding binding = bind_mesh(local.mesh);
  const Graph& graph = local.graph(id);
  SG_CHECK(inputs.size() == graph.inputs.size(), graph.name + " got " + std::to_string(inputs.size()) + " inputs");
  BackendOptions sized = options;
  const SymbolValues sizes = local.mesh.device_count() == 1 ? solve_symbols(local, graph, inputs, symbols) : symbols;
  for (const auto& [symbol, value] : sizes) sized.largest[symbol] = std::max(sized.largest[symbol], value);
  const Module arrays = as_arrays(local, id);
  const MakeExecutor make = make_executors(sized);
  std::vector<EntryResults> results(static_cast<size_t>(binding.rank_count()));
  run_ranks(binding.rank_count(), [&](int rank, Communicator& group) {
    EntryInputs arguments;
    arguments.sizes = sizes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto& sharding = graph.type(graph.inputs[i].value).sharding;
      arguments.batch.emplace(numbered(i), sharding ? local_part(inputs[i], *sharding, local.mesh, binding.coordinates(rank), local.symbols) : inputs[i]);
    }
    const std::unique_ptr<Executor> executor = make(arrays, binding);
    executor->connect(group);
    results[static_cast<size_t>(rank)] = executor->run("main", arguments);
  });
  RunOutcome outcome;
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    std::vector<Literal> parts;
    for (const EntryResults& of_rank : results) parts.push_back(of_rank.outputs.at(numbered(o)));
    const Sharding sharding = graph.type(graph.outputs[o].value).sharding.value_or(Sharding::replicated(parts[0].rank()));
    outcome.outputs.push_back(results.size() == 1 ? std::move(parts[0]) : join_parts(parts, sharding, joined_sizes(parts, sharding, binding), local.mesh, local.symbols));
  }
  for (size_t rank = 0; rank < results.size(); ++rank)
    for (auto& [name, value] : results[rank].taps) outcome.taps.emplace(results.size() == 1 ? name : name + "@" + std::to_string(rank), std::move(value));
  return outcome;
}

Module run_program(const Module& module, std::string_view entry) {
  const Module local = compile(as_arrays(module, module.entry(entry)));
  return as_arrays(local, local.entry("main"));
}

std::vector<Literal> run_once(const Module& module, std::string_view entry, std::span<const Literal> inputs, const BackendOptions& options, const SymbolValues& symbols) {
  if (options.backend == Backend::Reference && options.taps.empty()) {
    const FloatMode mode(options.flush_denormals);
    return evaluate_graph(module, module.entry(entry), inputs, symbols);
  }
  return run_entry(compile(as_arrays(module, module.entry(entry))), "main", inputs, options, symbols).outputs;
}

std::vector<Literal> run_local_once(const Module& local, std::string_view entry, std::span<const Literal> inputs, const BackendOptions& options, const SymbolValues& symbols) {
  return run_entry(local, entry, inputs, options, symbols).outputs;
}

}  // namespace stepgraph
