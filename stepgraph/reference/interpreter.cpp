// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/reference/interpreter.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "stepgraph/reference/map_tensors.h"
#include "stepgraph/reference/plan.h"

namespace stepgraph {

struct Interpreter::State {
  const Module& module;
  Communicator* communicator;
  const MeshBinding* binding;
  InterpreterOptions options;
  std::vector<std::unique_ptr<GraphPlan>> plans;  // by graph, made at first use
  SymbolValues symbols;
  bool sizes_change = false;  // a derived symbol depends on the number of an iteration
  LiveBytes live;
  size_t depth = 0;

  GraphPlan& plan(GraphId id);
  std::vector<Literal> run_graph(GraphId id, std::vector<Literal> inputs);
  std::vector<Literal> run_node(const Graph& graph, const Node& node, NodePlan& plan, std::vector<Literal>& inputs);
  std::vector<Literal> evaluate_node(const Node& node, const NodePlan& plan, std::span<const Literal> inputs) const;
  std::vector<Literal> run_loop(const Loop& loop, const NodePlan& plan, std::vector<Literal> inputs);
  std::vector<Literal> run_map(const MapTensors& map, const std::vector<Literal>& inputs);
  Literal run_collective(NodePlan& plan, const Literal& input);
  std::span<const int> group(NodePlan& plan, std::span<const AxisRef> axes) const;
};

namespace {

/// A frame's values, counted while they are held.
class Frame {
 public:
  Frame(const Graph& graph, LiveBytes& live) : values_(graph.values.size()), live_(live) {}
  ~Frame() {
    for (const auto& value : values_)
      if (value) live_.remove(*value);
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  void put(ValueId id, Literal value) {
    live_.add(value);
    values_[static_cast<size_t>(id.index)] = std::move(value);
  }
  const Literal& get(ValueId id) const {
    const auto& value = values_[static_cast<size_t>(id.index)];
    SG_CHECK(value.has_value(), "value " + std::to_string(id.index) + " is used before it is set");
    return *value;
  }
  void drop(ValueId id) {
    auto& value = values_[static_cast<size_t>(id.index)];
    if (value) live_.remove(*value);
    value.reset();
  }

 private:
  std::vector<std::optional<Literal>> values_;
  LiveBytes& live_;
};

void check_results(const Node& node, std::span<const TensorType> types, std::span<const Literal> results) {
  SG_CHECK(types.size() == results.size(), std::string(name(node.op)) + " gave " + std::to_string(results.size()) + " results");
  for (size_t i = 0; i < results.size(); ++i) {
    bool fits = types[i].dtype == results[i].dtype() && types[i].rank() == results[i].rank();
    for (size_t d = 0; fits && d < types[i].rank(); ++d) fits = types[i].shape[d].constant() == results[i].sizes()[d];
    if (fits) continue;
    const Shape found(results[i].sizes().begin(), results[i].sizes().end());
    throw InternalError(std::string(name(node.op)) + ": result " + std::to_string(i) + " is " + std::string(name(results[i].dtype())) + text(found) +
                        ", its type is " + text(types[i]) + (node.place.known() ? " (" + node.place.text() + ")" : ""));
  }
}

/// Element `index` along dim 0, that dim dropped.
Literal row(const Literal& value, int64_t index) {
  const Sizes sizes(value.sizes().begin() + 1, value.sizes().end());
  Literal result = Literal::uninitialised(value.dtype(), sizes);
  if (result.count() > 0) std::memcpy(result.mutable_data(), value.data() + static_cast<size_t>(index) * result.byte_count(), result.byte_count());
  return result;
}
void set_row(Literal& value, int64_t index, const Literal& piece) {
  SG_CHECK(value.rank() == piece.rank() + 1 && std::equal(piece.sizes().begin(), piece.sizes().end(), value.sizes().begin() + 1),
           "loop: an iteration's result has other sizes than its stack");
  if (piece.count() > 0) std::memcpy(value.mutable_data() + static_cast<size_t>(index) * piece.byte_count(), piece.data(), piece.byte_count());
}

bool has_sizes_of_iterations(const SymbolTable& symbols) {
  return std::any_of(symbols.all().begin(), symbols.all().end(), [&](const Symbol& symbol) {
    if (symbol.kind != SymbolKind::Derived) return false;
    const std::vector<std::string> parts = symbols.expand(symbol.definition).symbols();
    return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) { return symbols.find(part)->kind == SymbolKind::Iteration; });
  });
}

}  // namespace

GraphPlan& Interpreter::State::plan(GraphId id) {
  const auto index = static_cast<size_t>(id.index);
  SG_CHECK(index < module.graphs.size(), "graph " + std::to_string(id.index));
  if (plans.size() < module.graphs.size()) plans.resize(module.graphs.size());
  if (!plans[index]) plans[index] = std::make_unique<GraphPlan>(plan_graph(module.graph(id)));
  return *plans[index];
}

std::vector<Literal> Interpreter::State::run_graph(GraphId id, std::vector<Literal> inputs) {
  const Graph& graph = module.graph(id);
  GraphPlan& steps = plan(id);
  SG_CHECK(inputs.size() == graph.inputs.size(), graph.name + " got " + std::to_string(inputs.size()) + " inputs");
  if (depth >= module.graphs.size()) throw UserError("graph '" + graph.name + "' calls itself");
  ++depth;
  Frame frame(graph, live);
  for (size_t i = 0; i < inputs.size(); ++i) frame.put(graph.inputs[i].value, std::move(inputs[i]));
  for (const ValueId unused : steps.unused_inputs) frame.drop(unused);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    NodePlan& step = steps.nodes[n];
    std::vector<Literal> arguments;
    arguments.reserve(node.inputs.size());
    for (const ValueId input : node.inputs) arguments.push_back(frame.get(input));
    const bool control = is_control(node.op);
    // A body frees its inputs by itself, which it can only do when the caller holds them no longer.
    if (control && !options.after_node)
      for (const ValueId value : step.last_uses) frame.drop(value);
    const auto start = options.after_node ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
    std::vector<Literal> results = run_node(graph, node, step, arguments);
    check_results(node, step.results, results);
    if (options.after_node) {
      const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start);
      if (control) {  // its own were handed over
        arguments.clear();
        for (const ValueId input : node.inputs) arguments.push_back(frame.get(input));
      }
      options.after_node({graph, node, arguments, results, elapsed});
    }
    for (size_t r = 0; r < results.size(); ++r) frame.put(node.results[r], std::move(results[r]));
    for (const ValueId value : step.last_uses) frame.drop(value);
  }
  std::vector<Literal> outputs;
  for (const GraphOutput& output : graph.outputs) outputs.push_back(frame.get(output.value));
  --depth;
  return outputs;
}

std::vector<Literal> Interpreter::State::run_node(const Graph& graph, const Node& node, NodePlan& step, std::vector<Literal>& inputs) {
  bind_node(step, graph, node, symbols);
  if (const auto* call = std::get_if<Call>(&step.op)) return run_graph(call->graph, std::move(inputs));
  if (const auto* loop = std::get_if<Loop>(&step.op)) return run_loop(*loop, step, std::move(inputs));
  if (const auto* map = std::get_if<MapTensors>(&step.op)) return run_map(*map, inputs);
  if (std::holds_alternative<Reshard>(step.op)) return {inputs.at(0)};  // before partition every value is global
  if (is_collective(step.op)) return {run_collective(step, inputs.at(0))};
  return evaluate_node(node, step, inputs);
}

std::vector<Literal> Interpreter::State::evaluate_node(const Node& node, const NodePlan& step, std::span<const Literal> inputs) const {
  SG_CHECK(step.info->evaluate != nullptr, std::string(name(node.op)) + " has no values of its own");
  try {
    return step.info->evaluate({step.op, inputs, step.results});
  } catch (const UserError& error) {
    if (!node.place.known()) throw;
    throw error.retold(error.what(), node.place);
  }
}

std::vector<Literal> Interpreter::State::run_loop(const Loop& loop, const NodePlan& step, std::vector<Literal> inputs) {
  const int64_t trips = loop.trip_count.constant();
  const auto carried = static_cast<size_t>(loop.carried), scanned = static_cast<size_t>(loop.scanned);
  for (size_t s = 0; s < scanned; ++s)
    SG_CHECK(inputs[carried + s].sizes().at(0) == trips, "loop: a scanned input has " + std::to_string(inputs[carried + s].sizes()[0]) + " slices");
  std::vector<Literal> results(inputs.begin(), inputs.begin() + loop.carried);
  std::vector<Literal> constant(inputs.begin() + loop.carried, inputs.end());  // scanned, then invariants
  inputs.clear();
  for (size_t r = carried; r < step.results.size(); ++r) {
    Sizes sizes;
    for (const Dim& dim : step.results[r].shape) sizes.push_back(dim.constant());
    results.push_back(Literal::uninitialised(step.results[r].dtype, std::move(sizes)));
  }
  for (const Literal& value : constant) live.add(value);
  for (size_t r = carried; r < results.size(); ++r) live.add(results[r]);

  const auto before = symbols.find(loop.symbol) == symbols.end() ? std::nullopt : std::optional<int64_t>(symbols.find(loop.symbol)->second);
  for (int64_t i = 0; i < trips; ++i) {
    const int64_t iteration = loop.reverse ? trips - 1 - i : i;
    if (!loop.symbol.empty()) symbols[loop.symbol] = iteration;
    if (sizes_change) module.symbols.add_derived(symbols);
    std::vector<Literal> arguments;
    for (size_t c = 0; c < carried; ++c) arguments.push_back(std::exchange(results[c], Literal()));
    for (size_t s = 0; s < constant.size(); ++s) arguments.push_back(s < scanned ? row(constant[s], iteration) : constant[s]);
    std::vector<Literal> outputs = run_graph(loop.body, std::move(arguments));
    SG_CHECK(outputs.size() == results.size(), "loop: its body gave " + std::to_string(outputs.size()) + " values");
    for (size_t c = 0; c < carried; ++c) results[c] = std::move(outputs[c]);
    for (size_t r = carried; r < results.size(); ++r) set_row(results[r], iteration, outputs[r]);
  }
  if (before)
    symbols[loop.symbol] = *before;
  else
    symbols.erase(loop.symbol);
  for (const Literal& value : constant) live.remove(value);
  for (size_t r = carried; r < results.size(); ++r) live.remove(results[r]);
  return results;
}

std::vector<Literal> Interpreter::State::run_map(const MapTensors& map, const std::vector<Literal>& inputs) {
  const Graph& body = module.graph(map.body);
  GraphPlan& steps = plan(map.body);
  for (size_t n = 0; n < body.nodes.size(); ++n) bind_node(steps.nodes[n], body, body.nodes[n], symbols);
  for (const Literal& value : inputs) live.add(value);
  std::vector<Literal> results = map_tensors(map, body, steps, inputs);
  for (const Literal& value : inputs) live.remove(value);
  return results;
}

std::span<const int> Interpreter::State::group(NodePlan& step, std::span<const AxisRef> axes) const {
  if (step.group.empty()) step.group = binding->group(communicator->rank(), axes);
  return step.group;
}

Literal Interpreter::State::run_collective(NodePlan& step, const Literal& input) {
  if (const auto* reduce = std::get_if<AllReduce>(&step.op))
    return communicator ? communicator->all_reduce(input, reduce->kind, group(step, reduce->axes)) : input;
  if (const auto* gather = std::get_if<AllGather>(&step.op))
    return communicator ? communicator->all_gather(input, gather->dim, group(step, gather->axes)) : input;
  const auto& scatter = std::get<ReduceScatter>(step.op);
  const int64_t size = scatter.size.constant(), start = size == 0 ? 0 : scatter.start.constant();  // an empty piece may start past the end
  if (!communicator) return slice_dim(input, scatter.dim, start, size);
  return communicator->reduce_scatter(input, scatter.kind, scatter.dim, start, size, group(step, scatter.axes));
}

Interpreter::Interpreter(const Module& module, InterpreterOptions options)
    : state_(new State{module, nullptr, nullptr, std::move(options), {}, {}, false, {}}) {}
Interpreter::Interpreter(const Module& module, Communicator& communicator, const MeshBinding& binding, InterpreterOptions options)
    : state_(new State{module, &communicator, &binding, std::move(options), {}, {}, false, {}}) {
  SG_CHECK(communicator.size() == binding.rank_count(), "communicator and mesh have different numbers of ranks");
}
Interpreter::~Interpreter() = default;

std::vector<Literal> Interpreter::run(GraphId graph, std::vector<Literal> inputs, const SymbolValues& symbols) {
  SymbolValues known = symbols;
  for (const Symbol& symbol : state_->module.symbols.all())
    if (symbol.kind == SymbolKind::Coordinate) known.try_emplace(symbol.name, 0);
  if (state_->binding) {
    const MeshBinding& binding = *state_->binding;
    for (const auto& [symbol, value] : coordinate_values(binding.mesh(), binding.coordinates(state_->communicator->rank()))) known[symbol] = value;
  }
  state_->sizes_change = has_sizes_of_iterations(state_->module.symbols);
  state_->symbols = solve_symbols(state_->module, state_->module.graph(graph), inputs, known);
  state_->live.reset();
  state_->depth = 0;
  return state_->run_graph(graph, std::move(inputs));
}
std::vector<Literal> Interpreter::run(std::string_view entry, std::vector<Literal> inputs, const SymbolValues& symbols) {
  return run(state_->module.entry(entry), std::move(inputs), symbols);
}
int64_t Interpreter::peak_bytes() const { return state_->live.peak(); }
const SymbolValues& Interpreter::symbols() const { return state_->symbols; }

std::vector<Literal> evaluate_graph(const Module& module, GraphId graph, std::span<const Literal> inputs, const SymbolValues& symbols) {
  Interpreter interpreter(module);
  return interpreter.run(graph, std::vector<Literal>(inputs.begin(), inputs.end()), symbols);
}

}  // namespace stepgraph
