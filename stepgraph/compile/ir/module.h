// SPDX-License-Identifier: Apache-2.0
// A module: a table of graphs and named entries. Plain data; built through Builder, checked by verify.h, printed by text.h.
//
// Names of entries and their signatures (roles):
//   init        seed                                  -> new state of every parameter, buffer and optimizer state
//   step        state..., batch..., seed, step        -> loss numerator and denominator, metrics, new state
//   eval        parameters, buffers, batch..., seed, step -> loss numerator and denominator, metrics, user outputs
//   forward     as eval, in training mode, with new buffers (what the user wrote; train_step differentiates it)
//   main        anything (for `stepgraph run`)
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/base/error.h"
#include "stepgraph/compile/ir/ids.h"
#include "stepgraph/compile/ir/op.h"
#include "stepgraph/program/phase.h"
#include "stepgraph/program/role.h"
#include "stepgraph/compile/ir/state_table.h"
#include "stepgraph/tensor/tensor_type.h"

namespace stepgraph {

struct ValueInfo {
  TensorType type;
  int32_t node = -1;  ///< producer; -1 for a graph input
};
struct Node {
  Op op;
  std::vector<ValueId> inputs, results;
  SourcePlace place;
  std::string scope;  ///< name path of the user's model, "h.0.attn"; of a call: the instance of the layer
  Phase phase = Phase::None;
};
struct GraphInput {
  ValueId value;
  Role role;
};
struct GraphOutput {
  ValueId value;
  Role role;
};
struct Graph {
  std::string name;
  /// Kept identity of a composite: "softmax", "layer_norm", ...; "" for others. Differentiated copies keep it with a suffix.
  std::string composite;
  std::deque<ValueInfo> values;  ///< a reference to a type stays valid while nodes are added: x.shape() is used across them
  std::vector<GraphInput> inputs;
  std::vector<Node> nodes;  ///< in topological order
  std::vector<GraphOutput> outputs;
  /// A gradient of the composite's own: a graph of (inputs, outputs, output gradients) -> gradients of the inputs.
  std::optional<GraphId> gradient;

  const TensorType& type(ValueId value) const { return values[static_cast<size_t>(value.index)].type; }
};
enum class Stage : uint8_t { Logical, Sharded, Local };
std::string_view name(Stage stage);

struct Entry {
  std::string name;
  GraphId graph;
  bool operator==(const Entry&) const = default;
};
struct Module {
  std::string name = "module";
  Stage stage = Stage::Logical;
  SymbolTable symbols;
  Mesh mesh;                 ///< empty at Logical
  std::deque<Graph> graphs;  ///< references stay valid when graphs are added
  std::vector<Entry> entries;
  StateTable states;

  Graph& graph(GraphId id) { return graphs[static_cast<size_t>(id.index)]; }
  const Graph& graph(GraphId id) const { return graphs[static_cast<size_t>(id.index)]; }
  GraphId add_graph(std::string graph_name);
  std::optional<GraphId> find_entry(std::string_view entry) const;
  /// UserError listing the entries that exist.
  GraphId entry(std::string_view entry) const;
  /// Enters a state into the table, unless it is there, and gives the type of its input: at Logical a sharding in `type` is the user's wish and goes into
  /// the table. UserError for a second wish that differs.
  TensorType declare_state(const Role& role, TensorType type);
};
/// More values than this in one graph are an error of what made it: calls without end, or a model that should be a loop.
constexpr size_t graph_values_max = size_t{1} << 20;
/// Input values of a graph with a role.
std::optional<ValueId> find_input(const Graph& graph, RoleKind kind, std::string_view name = {});
/// Inputs in the order of their roles: parameters, buffers, optimizer state, batch, seed, others.
void order_inputs(Graph& graph);
/// The module without graphs that no entry reaches, in first-use order, and without states that no entry takes.
Module prune_graphs(Module module);
/// Each value's producer, after nodes were put between or moved.
void number_producers(Graph& graph);
/// Drops nodes whose results are not used (all ops are pure). Graph inputs stay.
void remove_dead_nodes(Graph& graph);
/// The module with every floating dtype replaced: whole-f64 evaluation of an f32 model.
Module with_floating_dtype(Module module, DType dtype);

}  // namespace stepgraph
