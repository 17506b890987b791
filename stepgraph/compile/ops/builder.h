// SPDX-License-Identifier: Apache-2.0
// Builder appends nodes to one graph of a module; types are inferred by the op table as each node is added, so a wrong model fails at its own line.
// Value is a handle to a value of a builder's graph; the functions of compile/ops/functions.h work on it.
#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/compile/ops/autocast.h"

namespace stepgraph {

class Builder;
struct Value {
  Builder* builder = nullptr;
  ValueId id;
  const TensorType& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int64_t rank() const { return static_cast<int64_t>(type().shape.size()); }
  const Dim& dim(int64_t index) const;  ///< negative counts from the end; UserError when out of range
};

class Builder {
 public:
  Builder(Module& module, GraphId graph) : module_(module), graph_(graph) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  Module& module() { return module_; }
  const Module& module() const { return module_; }
  GraphId graph_id() const { return graph_; }
  Graph& graph() { return module_.graph(graph_); }
  const Graph& graph() const { return module_.graph(graph_); }

  /// One with the role of a state is entered into the module's table.
  Value input(TensorType type, Role role = {});
  void output(Value value, Role role = {});
  /// Infers result types and appends a node. An error of inference gets the current place.
  std::vector<Value> emit(Op op, std::span<const Value> inputs);
  std::vector<Value> emit(Op op, std::initializer_list<Value> inputs) { return emit(std::move(op), std::span<const Value>(inputs.begin(), inputs.size())); }
  Value emit_one(Op op, std::initializer_list<Value> inputs) { return emit(std::move(op), inputs).at(0); }
  /// Appends a node with given result types (text reader, passes).
  std::vector<Value> append(Op op, std::span<const Value> inputs, std::vector<TensorType> results);

  Value value(ValueId id) { return {this, id}; }
  /// Place, scope and phase given to the nodes that follow.
  void set_place(SourcePlace place) { place_ = std::move(place); }
  const SourcePlace& place() const { return place_; }
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  const std::string& scope() const { return scope_; }
  void set_phase(Phase phase) { phase_ = phase; }
  Phase phase() const { return phase_; }
  /// Implicit casts of what the functions take from now on. Graphs of composites and gradients are built without.
  void set_autocast(const Autocast& autocast) { autocast_ = autocast; }
  const Autocast& autocast() const { return autocast_; }
  /// A copied sub-graph: maps `inputs` of `source` (a graph of this module) to values, appends copies of its nodes, returns its outputs. Nodes without a place,
  /// scope or phase of their own take the builder's.
  std::vector<Value> inline_graph(const Graph& source, std::span<const Value> inputs);

 private:
  Module& module_;
  GraphId graph_;
  SourcePlace place_;
  std::string scope_;
  Phase phase_ = Phase::None;
  Autocast autocast_;
};

std::vector<Value> call(Builder& builder, GraphId graph, std::span<const Value> inputs);

/// The name of a Loop's iteration number, declared in the module: it tells how many loops are inside of the body, and nothing of what is around, so that
/// loops that do the same are equal wherever they stand.
std::string iteration_symbol(Module& module, int64_t loops_inside = 0);

/// Autocast while it lives: on for a part of a model, or off (`AutocastScope off(s.builder(), {});`) as torch.autocast(..., enabled=False).
class AutocastScope {
 public:
  AutocastScope(Builder& builder, const Autocast& autocast) : builder_(builder), before_(builder.autocast()) { builder.set_autocast(autocast); }
  ~AutocastScope() { builder_.set_autocast(before_); }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  Builder& builder_;
  Autocast before_;
};

}  // namespace stepgraph
