// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/verify.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {
namespace {

enum class Presence : uint8_t { Forbidden, Optional, Required };
struct StageRule {
  Stage stage;
  Presence mesh, shardings, reshard, collectives;
};
constexpr std::array<StageRule, 3> stage_rules = {{
    {Stage::Logical, Presence::Forbidden, Presence::Forbidden, Presence::Forbidden, Presence::Forbidden},
    {Stage::Sharded, Presence::Optional, Presence::Required, Presence::Optional, Presence::Forbidden},
    {Stage::Local, Presence::Optional, Presence::Optional, Presence::Forbidden, Presence::Optional},
}};

constexpr size_t node_text_max = 200;
constexpr int call_depth_max = 1000;

class Verifier {
 public:
  explicit Verifier(const Module& module) : module_(module) {}

  void run() {
    for (const Graph& graph : module_.graphs) check_structure(graph);
    check_entries();
    check_no_recursion();
    for (const Graph& graph : module_.graphs) {
      check_values(graph);
      check_gradient(graph);
      for (const Node& node : graph.nodes) check_node(graph, node);
      check_roles(graph);
    }
    check_states();
    check_stage();
  }

 private:
  // ---- messages

  std::string graph_name(const Graph& graph) const {
    for (size_t i = 0; i < module_.graphs.size(); ++i)
      if (&module_.graphs[i] == &graph) return graph_text(module_, {static_cast<int32_t>(i)});
    return "@" + graph.name;
  }
  [[noreturn]] void fail(const std::string& message) const { throw UserError(message + " (module " + module_.name + ")"); }
  [[noreturn]] void fail(const Graph& graph, const std::string& message) const { throw UserError(message + "; in graph " + graph_name(graph)); }
  [[noreturn]] void fail(const Graph& graph, const Node& node, const std::string& message) const {
    std::string text = node_text(module_, node, ValueNumbers(graph));
    if (text.size() > node_text_max) text = text.substr(0, node_text_max) + "...";
    throw UserError(message + "; in " + text + " of graph " + graph_name(graph), node.place);
  }

  /// Of a value: with the node that makes it.
  [[noreturn]] void fail(const Graph& graph, const ValueInfo& value, const std::string& message) const {
    if (value.node >= 0) fail(graph, graph.nodes[static_cast<size_t>(value.node)], message);
    fail(graph, message);
  }

  // ---- ids

  static bool in_range(ValueId value, const Graph& graph) { return value.index >= 0 && static_cast<size_t>(value.index) < graph.values.size(); }
  bool in_range(GraphId graph) const { return graph.index >= 0 && static_cast<size_t>(graph.index) < module_.graphs.size(); }

  void check_structure(const Graph& graph) const {
    if (graph.values.size() > graph_values_max)
      fail(graph, "found " + std::to_string(graph.values.size()) + " values, wanted at most " + std::to_string(graph_values_max));
    std::vector<bool> defined(graph.values.size(), false);
    const auto define = [&](ValueId value, int32_t node) {
      if (!in_range(value, graph)) fail(graph, "value id " + std::to_string(value.index) + " is out of range");
      const auto index = static_cast<size_t>(value.index);
      if (defined[index]) fail(graph, "value id " + std::to_string(value.index) + " is defined twice");
      if (graph.values[index].node != node) fail(graph, "value id " + std::to_string(value.index) + " names another node as its producer");
      defined[index] = true;
    };
    for (const GraphInput& input : graph.inputs) define(input.value, -1);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      for (const ValueId input : node.inputs)
        if (!in_range(input, graph) || !defined[static_cast<size_t>(input.index)])
          fail(graph, node, "input with value id " + std::to_string(input.index) + " is not defined before its use");
      for (const ValueId result : node.results) define(result, static_cast<int32_t>(n));
      for (const GraphId called : called_graphs(node.op))
        if (!in_range(called)) fail(graph, node, std::string(name(node.op)) + " names no graph of the module");
    }
    for (const GraphOutput& output : graph.outputs)
      if (!in_range(output.value, graph) || !defined[static_cast<size_t>(output.value.index)])
        fail(graph, "output with value id " + std::to_string(output.value.index) + " is not defined");
    if (const auto missing = std::find(defined.begin(), defined.end(), false); missing != defined.end())
      fail(graph, "value id " + std::to_string(missing - defined.begin()) + " is neither an input nor the result of a node");
    if (graph.gradient && !in_range(*graph.gradient)) fail(graph, "the gradient names no graph of the module");
  }

  void check_entries() const {
    std::set<std::string> names;
    for (const Entry& entry : module_.entries) {
      if (!in_range(entry.graph)) fail("entry '" + entry.name + "' names no graph of the module");
      if (!names.insert(entry.name).second) fail("entry '" + entry.name + "' is defined twice");
    }
  }

  std::vector<GraphId> callees(GraphId id) const {
    std::set<GraphId> result;
    for (const Node& node : module_.graph(id).nodes)
      for (const GraphId called : called_graphs(node.op)) result.insert(called);
    return {result.begin(), result.end()};
  }

  /// Depth first with a stack of our own, since text may hold chains of any length; what walks a verified module may recurse.
  void check_no_recursion() const {
    enum class State : uint8_t { New, Open, Done };
    std::vector<State> states(module_.graphs.size(), State::New);
    std::vector<int> depths(module_.graphs.size(), 1);
    struct Visit {
      GraphId graph;
      std::vector<GraphId> callees;
    };
    for (size_t root = 0; root < states.size(); ++root) {
      std::vector<Visit> path;
      const auto enter = [&](GraphId id) {
        states[static_cast<size_t>(id.index)] = State::Open;
        path.push_back({id, callees(id)});
      };
      if (states[root] == State::New) enter({static_cast<int32_t>(root)});
      while (!path.empty()) {
        const GraphId current = path.back().graph;
        int& depth = depths[static_cast<size_t>(current.index)];
        if (path.back().callees.empty()) {
          if (depth > call_depth_max) fail("calls from graph " + graph_text(module_, current) + " are nested deeper than " + std::to_string(call_depth_max));
          states[static_cast<size_t>(current.index)] = State::Done;
          path.pop_back();
          continue;
        }
        const GraphId next = path.back().callees.back();
        const State state = states[static_cast<size_t>(next.index)];
        if (state == State::Open) fail("graph " + graph_text(module_, next) + " calls itself, through " + graph_text(module_, current));
        if (state == State::New) {
          enter(next);
          continue;
        }
        depth = std::max(depth, depths[static_cast<size_t>(next.index)] + 1);
        path.back().callees.pop_back();
      }
    }
  }

  // ---- types: texts are made for errors alone, and a size that stands in many types is looked into once

  /// "%3", of a value of the graph.
  static std::string value_text(const Graph& graph, const ValueInfo& value) {
    const auto found = std::find_if(graph.values.begin(), graph.values.end(), [&](const ValueInfo& other) { return &other == &value; });
    return ValueNumbers(graph).text({static_cast<int32_t>(found - graph.values.begin())});
  }

  /// The first symbol that is not declared.
  std::optional<std::string> undeclared(const Dim& dim) {
    if (dim.is_constant() || declared_.count(dim) > 0) return std::nullopt;
    for (std::string& symbol : dim.symbols())
      if (module_.symbols.find(symbol) == nullptr) return std::move(symbol);
    declared_.insert(dim);
    return std::nullopt;
  }

  bool is_negative(const Dim& dim) {
    if (dim.is_constant()) return dim.constant() < 0;
    const auto [known, is_new] = negative_.emplace(dim, false);
    if (is_new) known->second = module_.symbols.bounds(dim).maximum < 0;
    return known->second;
  }

  void check_values(const Graph& graph) {
    for (const ValueInfo& value : graph.values) {
      const TensorType& type = value.type;
      for (const Dim& dim : type.shape) {
        if (const auto symbol = undeclared(dim))
          fail(graph, value, "symbol '" + *symbol + "' of " + value_text(graph, value) + " : " + text(type) + " is not declared");
        if (is_negative(dim)) fail(graph, value, "size " + dim.text() + " of " + value_text(graph, value) + " is negative");
      }
      if (!type.sharding) continue;
      for (const DimSharding& dim : type.sharding->dims)
        if (const auto symbol = undeclared(dim.grain))
          fail(graph, value, "symbol '" + *symbol + "' of the sharding of " + value_text(graph, value) + " is not declared");
    }
  }

  /// A gradient of a composite's own takes its inputs, its outputs and their gradients, and gives the gradients of its inputs.
  void check_gradient(const Graph& graph) const {
    if (!graph.gradient) return;
    const Graph& gradient = module_.graph(*graph.gradient);
    std::vector<TensorType> taken, given;
    for (const GraphInput& input : graph.inputs) given.push_back(graph.type(input.value));
    taken = given;
    for (int pass = 0; pass < 2; ++pass)
      for (const GraphOutput& output : graph.outputs) taken.push_back(graph.type(output.value));
    const auto check = [&](const char* what, const auto& found, const std::vector<TensorType>& wanted) {
      const auto of = [&] { return " of the gradient of " + graph_name(graph); };
      if (found.size() != wanted.size()) fail(gradient, std::string("found ") + std::to_string(found.size()) + " " + what + "s" + of() + ", wanted " + std::to_string(wanted.size()));
      for (size_t i = 0; i < wanted.size(); ++i)
        if (const TensorType& type = gradient.type(found[i].value); !equal_types(type, wanted[i]))
          fail(gradient, std::string(what) + " " + std::to_string(i) + of() + " is " + text(type) + ", wanted " + text(wanted[i]));
    };
    check("input", gradient.inputs, taken);
    check("output", gradient.outputs, given);
  }

  void check_node(const Graph& graph, const Node& node) {
    const StageRule& rule = stage_rules[static_cast<size_t>(module_.stage)];
    if ((is_collective(node.op) && rule.collectives == Presence::Forbidden) || (std::holds_alternative<Reshard>(node.op) && rule.reshard == Presence::Forbidden))
      fail(graph, node, std::string(name(node.op)) + " at stage " + std::string(name(rule.stage)));
    const auto check_symbols = [&](const Dim& dim) {
      if (const auto symbol = undeclared(dim)) fail(graph, node, "symbol '" + *symbol + "' is not declared");
    };
    for_each_dim(node.op, check_symbols);
    for_each_field<Sharding>(node.op, [&](const Sharding& sharding) {
      for (const DimSharding& dim : sharding.dims) check_symbols(dim.grain);
    });
    if (const auto* loop = std::get_if<Loop>(&node.op); loop != nullptr && !loop->symbol.empty()) {
      const Symbol* symbol = module_.symbols.find(loop->symbol);
      if (symbol == nullptr) fail(graph, node, "symbol '" + loop->symbol + "' is not declared");
      if (symbol->kind != SymbolKind::Iteration) fail(graph, node, "symbol '" + loop->symbol + "' is not declared as an iteration");
    }
    check_types(graph, node);
  }

  void check_types(const Graph& graph, const Node& node) const {
    std::vector<TensorType> inputs, inferred;
    inputs.reserve(node.inputs.size());
    for (const ValueId input : node.inputs) {
      const TensorType& type = graph.type(input);
      inputs.push_back({type.dtype, type.shape, {}});
    }
    try {
      inferred = infer_types(node.op, inputs, module_);
    } catch (const UserError& error) {
      fail(graph, node, error.what());
    }
    if (inferred.size() != node.results.size())
      fail(graph, node, std::string(name(node.op)) + ": found " + std::to_string(node.results.size()) + " results, wanted " + std::to_string(inferred.size()));
    for (size_t i = 0; i < inferred.size(); ++i) {
      if (equal_types(graph.type(node.results[i]), inferred[i])) continue;
      TensorType stated = graph.type(node.results[i]);
      stated.sharding.reset();
      inferred[i].sharding.reset();
      fail(graph, node, std::string(name(node.op)) + ": result " + std::to_string(i) + " is stated as " + text(stated) + ", its inputs give " + text(inferred[i]));
    }
  }

  bool equal_types(const TensorType& a, const TensorType& b) const {
    if (a.dtype != b.dtype || a.shape.size() != b.shape.size()) return false;
    for (size_t i = 0; i < a.shape.size(); ++i)
      if (a.shape[i] != b.shape[i] && module_.symbols.equal(a.shape[i], b.shape[i]) != Truth::True) return false;
    return true;
  }

  // ---- roles

  static std::string role_text(const Role& role) { return std::string(name(role.kind)) + (role.name.empty() ? "" : " '" + role.name + "'"); }

  void check_roles(const Graph& graph) const {
    // States share their names, whatever their kind: a checkpoint finds them by name.
    std::set<std::string> states;
    std::set<std::pair<RoleKind, std::string>> seen;
    for (const GraphInput& input : graph.inputs) {
      const Role& role = input.role;
      if (role.kind == RoleKind::None) continue;
      if (is_output(role.kind)) fail(graph, "an input has the role " + role_text(role) + ", which is for outputs");
      if (role.batch_dim < 0 || (role.batch_dim > 0 && role.batch_dim >= static_cast<int64_t>(graph.type(input.value).rank())))
        fail(graph,
             "an input with the role " + role_text(role) + " has its rows in dim " + std::to_string(role.batch_dim) + " of " + text(graph.type(input.value)));
      if (is_state(role.kind) && role.name.empty()) fail(graph, "an input with the role " + role_text(role) + " has no name");
      if (is_state(role.kind) && !states.insert(role.name).second) fail(graph, "two inputs are the state '" + role.name + "'");
      if (!is_repeatable(role) && !seen.emplace(role.kind, role.name).second) fail(graph, "two inputs have the role " + role_text(role));
    }
    for (const GraphOutput& output : graph.outputs) {
      const Role& role = output.role;
      if (role.kind == RoleKind::None) continue;
      if (!is_output(role.kind)) fail(graph, "an output has the role " + role_text(role) + ", which is for inputs");
      if (role.kind >= RoleKind::LossNumerator && role.kind <= RoleKind::GradientFactor && graph.type(output.value).rank() != 0)
        fail(graph, "the output with the role " + role_text(role) + " is " + text(graph.type(output.value)) + ", wanted a scalar");
      if (role.kind == RoleKind::NewState && role.name.empty()) fail(graph, "an output with the role new_state has no name");
      if (!is_repeatable(role) && !seen.emplace(role.kind, role.name).second) fail(graph, "two outputs have the role " + role_text(role));
    }
    const auto partner = [](RoleKind kind) { return kind == RoleKind::MetricNumerator ? RoleKind::MetricDenominator : RoleKind::MetricNumerator; };
    for (const GraphOutput& output : graph.outputs) {
      const Role& role = output.role;
      if (role.kind != RoleKind::MetricNumerator && role.kind != RoleKind::MetricDenominator) continue;
      const Role wanted{partner(role.kind), role.name};
      if (seen.count({wanted.kind, wanted.name}) == 0) fail(graph, "an output has the role " + role_text(role) + ", and none the role " + role_text(wanted));
    }
  }

  /// Without a name there may be several, but of those of which there is one at all.
  static bool is_repeatable(const Role& role) {
    constexpr RoleKind repeatable[] = {RoleKind::Batch, RoleKind::Scalar, RoleKind::Metric, RoleKind::Gradient, RoleKind::Saved, RoleKind::UserOutput, RoleKind::Derived};
    return role.name.empty() && std::find(std::begin(repeatable), std::end(repeatable), role.kind) != std::end(repeatable);
  }

  /// A state is one tensor through all entries, as the module's table says: one role, one type, and what replaces it has that type. Only `init` makes
  /// states that it does not take.
  void check_states() const {
    std::map<std::string, TensorType> states;
    for (const StateInfo& state : module_.states) {
      if (!is_state(state.role) || !states.emplace(state.name, state.type).second)
        fail("the table of states has '" + state.name + "' twice, or in no role of a state");
      if (state.wish && state.wish->dims.size() != state.type.shape.size())
        fail("state '" + state.name + "' is " + text(state.type) + ", its layout <" + text(*state.wish) + "> has " + std::to_string(state.wish->dims.size()) +
             " dims");
    }
    const auto agree = [&](const std::string& state, const TensorType& type, const Graph& graph) {
      const auto [found, added] = states.emplace(state, type);
      if (added || (equal_types(found->second, type) && found->second.sharding == type.sharding)) return;
      fail(graph, "state '" + state + "' is " + text(type) + " here, " + text(found->second) + " elsewhere");
    };
    for (const Entry& entry : module_.entries) {
      const Graph& graph = module_.graph(entry.graph);
      for (const GraphInput& input : graph.inputs) {
        if (!is_state(input.role.kind)) continue;
        const StateInfo* state = module_.states.find(input.role.name);
        if (!state) fail(graph, "state '" + input.role.name + "' is not in the module's table of states");
        if (state->role != input.role.kind)
          fail(graph,
               "state '" + input.role.name + "' is a " + std::string(name(input.role.kind)) + " here, a " + std::string(name(state->role)) + " elsewhere");
        agree(input.role.name, graph.type(input.value), graph);
      }
    }
    for (const Entry& entry : module_.entries) {
      const Graph& graph = module_.graph(entry.graph);
      std::set<std::string_view> taken;
      for (const GraphInput& input : graph.inputs)
        if (is_state(input.role.kind)) taken.insert(input.role.name);
      for (const GraphOutput& output : graph.outputs) {
        if (output.role.kind != RoleKind::NewState) continue;
        if (entry.name != "init" && !taken.count(output.role.name))
          fail(graph, "new_state '" + output.role.name + "' replaces no state input of this graph");
        agree(output.role.name, graph.type(output.value), graph);
      }
    }
  }

  // ---- the stage

  void check_stage() const {
    const StageRule& rule = stage_rules[static_cast<size_t>(module_.stage)];
    if (rule.mesh == Presence::Forbidden && !module_.mesh.axes.empty())
      fail("a mesh (" + module_.mesh.text() + ") at stage " + std::string(name(rule.stage)));
    // Bodies of MapTensors are scalar templates, laid over nothing.
    std::vector<bool> reached(module_.graphs.size(), false);
    std::vector<GraphId> todo;
    for (const Entry& entry : module_.entries) todo.push_back(entry.graph);
    if (module_.entries.empty())
      for (size_t i = 0; i < module_.graphs.size(); ++i) todo.push_back({static_cast<int32_t>(i)});
    while (!todo.empty()) {
      const GraphId id = todo.back();
      todo.pop_back();
      if (reached[static_cast<size_t>(id.index)]) continue;
      reached[static_cast<size_t>(id.index)] = true;
      const Graph& graph = module_.graph(id);
      check_stage(graph, rule);
      for (const Node& node : graph.nodes)
        if (!std::holds_alternative<MapTensors>(node.op))
          for (const GraphId called : called_graphs(node.op)) todo.push_back(called);
    }
  }

  void check_stage(const Graph& graph, const StageRule& rule) const {
    const std::string at = " at stage " + std::string(name(rule.stage));
    for (const ValueInfo& value : graph.values) {
      const TensorType& type = value.type;
      if (rule.shardings == Presence::Forbidden && type.sharding && value.node >= 0) fail(graph, value, value_text(graph, value) + " has a sharding" + at);
      if (rule.shardings == Presence::Required && !type.sharding) fail(graph, value, value_text(graph, value) + " has no sharding" + at);
      if (!type.sharding || rule.mesh == Presence::Forbidden) continue;  // a wish is checked when there is a mesh to lay it on
      try {
        check_sharding(*type.sharding, type.rank(), module_.mesh);
      } catch (const UserError& error) {
        fail(graph, value, value_text(graph, value) + " : " + text(type) + ": " + error.what());
      }
    }
    for (const Node& node : graph.nodes) check_axes(graph, node);
  }

  void check_axes(const Graph& graph, const Node& node) const {
    try {
      for_each_field<std::vector<AxisRef>>(node.op, [&](const std::vector<AxisRef>& axes) {
        Sharding sharding = Sharding::replicated(1);
        sharding.dims[0].axes = axes;
        check_sharding(sharding, 1, module_.mesh);
      });
      for_each_field<Sharding>(node.op, [&](const Sharding& sharding) { check_sharding(sharding, sharding.dims.size(), module_.mesh); });
    } catch (const UserError& error) {
      fail(graph, node, error.what());
    }
  }

  const Module& module_;
  std::set<Dim> declared_;
  std::map<Dim, bool> negative_;
};

}  // namespace

void verify(const Module& module) { Verifier(module).run(); }

}  // namespace stepgraph
