// SPDX-License-Identifier: Apache-2.0
// The oracle: walks a module op by op with the op table's `evaluate` (plain loops, f64 accumulation, one rounding). Every other way to run a module
// is compared with it. Values are freed after their last use. Not thread-safe: one Interpreter a rank; the module must outlive it.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/run/comm/communicator.h"
#include "stepgraph/run/comm/mesh_binding.h"

namespace stepgraph {

/// A node that has just run. A Call's, Loop's or MapTensors's own event follows the events of its body.
struct NodeEvent {
  const Graph& graph;
  const Node& node;
  std::span<const Literal> inputs, results;
  std::chrono::nanoseconds elapsed;  ///< with the body's, and the body's hooks
};
struct InterpreterOptions {
  std::function<void(const NodeEvent&)> after_node;  ///< may throw: the run ends with it
};

class Interpreter {
 public:
  /// One device. Collectives act as a group of one; coordinates are 0 unless a run's `symbols` give them.
  explicit Interpreter(const Module& module, InterpreterOptions options = {});
  /// The place of `communicator.rank()` on the binding's mesh. The three references must outlive the interpreter.
  Interpreter(const Module& module, Communicator& communicator, const MeshBinding& binding, InterpreterOptions options = {});
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Outputs of the graph. Sizes of inputs give the values of symbols (coordinates are known), unless `symbols` gives them already: at the Local
  /// stage local sizes do not always tell the global ones. UserError naming the input whose dtype, rank or size does not fit, the symbol that is out
  /// of its range, or the one whose value nothing tells.
  std::vector<Literal> run(GraphId graph, std::vector<Literal> inputs, const SymbolValues& symbols = {});
  std::vector<Literal> run(std::string_view entry, std::vector<Literal> inputs, const SymbolValues& symbols = {});

  /// The largest sum of bytes of values alive at once in any run so far, inputs included; shared storage counts once.
  int64_t peak_bytes() const;
  /// Values of the symbols in the last run.
  const SymbolValues& symbols() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One run on one device.
std::vector<Literal> evaluate_graph(const Module& module, GraphId graph, std::span<const Literal> inputs, const SymbolValues& symbols = {});

/// "h.0.attn: divide" and so on: an event hook that throws UserError at the first node with a result that is not finite while all its inputs are.
/// The message names op, scope and place.
std::function<void(const NodeEvent&)> stop_at_first_non_finite();

}  // namespace stepgraph
