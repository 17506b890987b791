// SPDX-License-Identifier: Apache-2.0
// Composites: functions that build primitives in a graph of their own and Call it, so that their identity ("layer_norm") survives until the pass that
// needs it, while gradients and sharding come from the primitives. Equal composites (same tag, same nodes, same types) share one graph.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// Builds the outputs from the inputs, in the builder of the composite's graph.
using CompositeBody = std::function<std::vector<Value>(Builder&, const std::vector<Value>&)>;

/// Results of a Call to the composite `tag`. `gradient`, if given, builds the composite's own gradient graph: its inputs are the composite's inputs, its
/// outputs, and the gradients of the outputs; it returns one gradient for each input (for an input that has none, zeros).
std::vector<Value> composite(Builder& builder, const std::string& tag, std::span<const Value> inputs, const CompositeBody& body,
                             const CompositeBody& gradient = nullptr);

/// An earlier graph of the same tag that equals `id`, the module's last, which then is dropped; else `id`, with a name of its own.
GraphId unite_graph(Module& module, GraphId id);

/// Whether two graphs are equal but for their names, places and scopes.
bool equal_graphs(const Graph& a, const Graph& b);
/// Whether they have the same values, inputs, outputs and nodes, ops being compared by `same_op`; gradients and composite tags are left to the caller.
bool equal_graphs(const Graph& a, const Graph& b, const std::function<bool(const Op& a, const Op& b)>& same_op);

}  // namespace stepgraph
