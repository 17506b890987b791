// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/run_once.h"

#include <algorithm>
#include <utility>

#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ir/solve_symbols.h"
#include "stepgraph/reference/interpreter.h"
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

std::vector<Literal> run_once(const Module& module, std::string_view entry, std::span<const Literal> inputs, const BackendOptions& options, const SymbolValues& symbols) {
  if (options.backend == Backend::Reference) return evaluate_graph(module, module.entry(entry), inputs, symbols);
  return run_local_once(compile(as_arrays(module, module.entry(entry))), "main", inputs, options, symbols);
}

std::vector<Literal> run_local_once(const Module& local, std::string_view entry, std::span<const Literal> inputs, const BackendOptions& options, const SymbolValues& symbols) {
  const GraphId id = local.entry(entry);
  if (options.backend == Backend::Reference) return evaluate_graph(local, id, inputs, symbols);
  BackendOptions sized = options;
  EntryInputs arguments;
  arguments.sizes = solve_symbols(local, local.graph(id), inputs, symbols);
  for (const auto& [symbol, value] : arguments.sizes) sized.largest[symbol] = std::max(sized.largest[symbol], value);
  for (size_t i = 0; i < inputs.size(); ++i) arguments.batch.emplace(numbered(i), inputs[i]);
  const Module arrays = as_arrays(local, id);
  const MeshBinding binding = bind_mesh(arrays.mesh);
  std::vector<Literal> results;
  run_ranks(1, [&](int, Communicator& group) {
    const std::unique_ptr<Executor> executor = make_executors(sized)(arrays, binding);
    executor->connect(group);
    EntryResults found = executor->run("main", arguments);
    for (size_t i = 0; i < found.outputs.size(); ++i) results.push_back(std::move(found.outputs.at(numbered(i))));
  });
  return results;
}

}  // namespace stepgraph
