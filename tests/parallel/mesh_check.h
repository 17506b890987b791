// SPDX-License-Identifier: Apache-2.0
// Runs one logical module on one rank and on meshes of threads, and compares: the meaning of sharding is that nothing changes.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// A module with the one entry `main` that `build` fills.
Module module_of(const std::function<void(Builder&)>& build);
/// Numbers in a fixed order that look random, in [-1, 1).
Literal numbers(DType dtype, const Sizes& sizes, int64_t start = 0);
/// Integers below `limit`.
Literal indices(const Sizes& sizes, int64_t limit, int64_t start = 0);
Value batch_input(Builder& builder, const std::string& name, DType dtype, const Shape& shape);
Value parameter_input(Builder& builder, const std::string& name, DType dtype, const Shape& shape);
void user_output(Value value, const std::string& name);

std::vector<Literal> on_one_rank(const Module& module, const std::vector<Literal>& inputs, const SymbolValues& symbols = {});
/// Global outputs. Replicas that differ in a bit are an error.
std::vector<Literal> on_mesh(const Module& module, const std::string& mesh, const std::vector<Literal>& inputs, const ShardingOptions& sharding = {},
                             const SymbolValues& symbols = {});
/// Element by element, relative to the largest magnitude of the tensor (but at least 1); NaN equals NaN; integers and bools exactly.
void expect_close(const std::vector<Literal>& got, const std::vector<Literal>& wanted, double tolerance, const std::string& what);
/// On `data=1` to `data=4`.
void expect_ranks_agree(const Module& module, const std::vector<Literal>& inputs, double tolerance, const std::string& what,
                        const ShardingOptions& sharding = {}, const SymbolValues& symbols = {});
/// The options that lay the input `name` as `sharding` says, in text form.
ShardingOptions laid(const std::string& name, const std::string& sharding);

/// Nodes of a kind in a graph and all that it runs.
template <class T>
int64_t count_nodes(const Module& module, GraphId graph) {
  int64_t count = 0;
  for (const Node& node : module.graph(graph).nodes) {
    count += std::holds_alternative<T>(node.op) ? 1 : 0;
    for (GraphId callee : called_graphs(node.op)) count += count_nodes<T>(module, callee);
  }
  return count;
}

}  // namespace stepgraph
