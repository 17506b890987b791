// SPDX-License-Identifier: Apache-2.0
#include "tests/text/runner.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/flat.h"
#include "stepgraph/compile/ir/graphviz.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/lower/lower.h"
#include "stepgraph/compile/lower/recompute.h"
#include "stepgraph/compile/lower/rematerialize.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/compile/passes/canonicalize.h"
#include "stepgraph/compile/passes/collective_summary.h"
#include "stepgraph/compile/passes/cse.h"
#include "stepgraph/compile/passes/expand.h"
#include "stepgraph/compile/passes/flatten.h"
#include "stepgraph/compile/passes/hoist_from_loops.h"
#include "stepgraph/compile/passes/outline_repeats.h"
#include "stepgraph/compile/passes/partition.h"
#include "stepgraph/compile/passes/propagate_shardings.h"
#include "stepgraph/compile/passes/simplify.h"
#include "stepgraph/compile/passes/widen_products.h"
#include "stepgraph/program/plan_text.h"
#include "stepgraph/program/verify_plan.h"
#include "stepgraph/reference/interpreter.h"
#include "stepgraph/reference/mesh_run.h"

namespace stepgraph::tests {
namespace {

struct State {
  const TextTest& test;
  Module module;
  std::string out;
};
using Words = std::vector<std::string>;

Words split(const std::string& text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// The graph of the entry that a verb names, or of the only entry.
GraphId entry_of(const Module& module, const Words& words) {
  if (!words.empty()) return module.entry(words[0]);
  if (module.entries.empty()) throw UserError("the test's module has no entry");
  return module.entries[0].graph;
}

// ---- values

std::string element(const Literal& literal, int64_t index) {
  if (is_floating(literal.dtype())) return fmt::format("{:.6g}", literal.at(index));
  if (literal.dtype() == DType::Bool) return literal.integer_at(index) != 0 ? "true" : "false";
  return std::to_string(literal.integer_at(index));
}

/// Six digits: sums may be taken in another order.
std::string value_text(const Literal& literal) {
  std::string text = std::string(name(literal.dtype())) + "[";
  for (size_t i = 0; i < literal.rank(); ++i) text += (i > 0 ? ", " : "") + std::to_string(literal.sizes()[i]);
  text += "] {";
  for (int64_t i = 0; i < literal.count(); ++i) text += (i > 0 ? ", " : "") + element(literal, i);
  return text + "}";
}

std::vector<Literal> inputs_of(const Graph& graph, const TextTest& test) {
  std::vector<Literal> inputs;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    auto found = test.inputs.find(std::to_string(i));
    if (found == test.inputs.end()) found = test.inputs.find(graph.inputs[i].role.name);
    if (found == test.inputs.end()) throw UserError("the test has no value for input " + std::to_string(i));
    inputs.push_back(found->second);
  }
  return inputs;
}

// ---- verbs

void run_verify(State& state, const Words&) {
  verify(state.module);
  state.out += "verified\n";
}

void run_print(State& state, const Words& words) {
  PrintOptions options{.places = false, .scopes = true};
  for (const std::string& word : words) {
    if (word == "places") options.places = true;
    if (word == "no-scopes") options.scopes = false;
    if (word == "no-types") options.types = false;
  }
  state.out += print_module(state.module, options);
}

/// What a step sends, in one line.
void run_collectives(State& state, const Words& words) {
  state.out += text(collectives(state.module, entry_of(state.module, words)), state.test.symbols) + "\n";
}

void run_graphviz(State& state, const Words& words) { state.out += graphviz(state.module, entry_of(state.module, words)); }

/// "evaluate", "evaluate main", "evaluate main exact"
void run_evaluate(State& state, const Words& words) {
  const bool exact = words.size() > 1 && words[1] == "exact";
  const Graph& graph = state.module.graph(entry_of(state.module, words));
  const std::vector<Literal> inputs = inputs_of(graph, state.test);
  // A local module runs on every place of its mesh, a thread each.
  const std::vector<Literal> outputs = state.module.stage == Stage::Local
                                           ? run_on_mesh(state.module, entry_of(state.module, words), inputs, state.test.symbols).outputs
                                           : evaluate_graph(state.module, entry_of(state.module, words), inputs, state.test.symbols);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Role& role = graph.outputs[i].role;
    state.out += "output " + std::to_string(i);
    if (role.kind != RoleKind::None) state.out += " " + std::string(name(role.kind)) + (role.name.empty() ? "" : " " + role.name);
    state.out += ": " + (exact ? literal_text(outputs[i]) : value_text(outputs[i])) + "\n";
  }
}

/// Adds the gradient of output 0 with respect to every floating input of the entry as outputs; says which have none.
void run_gradients(State& state, const Words& words) {
  const GraphId id = entry_of(state.module, words);
  Builder builder(state.module, id);
  const Value y = builder.value(builder.graph().outputs.at(0).value);
  std::vector<Value> xs;
  std::vector<std::string> names;
  for (size_t i = 0; i < builder.graph().inputs.size(); ++i) {
    const GraphInput& input = builder.graph().inputs[i];
    if (!is_floating(builder.graph().type(input.value).dtype)) continue;
    xs.push_back(builder.value(input.value));
    names.push_back(input.role.name.empty() ? std::to_string(i) : input.role.name);
  }
  const auto found = gradients(builder, y, xs);
  for (size_t i = 0; i < xs.size(); ++i) {
    if (found[i]) builder.output(*found[i], {RoleKind::Gradient, names[i]});
    else state.out += "no gradient of " + names[i] + "\n";
  }
  verify(state.module);
}

Module remove_dead(Module module, const Words&) {
  for (Graph& graph : module.graphs) remove_dead_nodes(graph);
  return module;
}
/// "pass propagate_shardings data=2 x={data},{} w={},{data}": inputs by name, other batch inputs are split along dim 0.
Module propagate(Module module, const Words& words) {
  ShardingOptions options;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos) throw UserError("found '" + words[i] + "' in the test, wanted an input and its sharding, as x={data},{}");
    options.inputs.push_back({words[i].substr(0, equals), std::nullopt, parse_sharding(words[i].substr(equals + 1))});
  }
  return propagate_shardings(std::move(module), parse_mesh(words.empty() ? "" : words[0]), options);
}

/// "pass rematerialize bandwidth 2": the price of a byte, and layers a segment.
Module rematerialized(Module module, const Words& words) {
  constexpr std::array<std::string_view, 6> prices = {"bandwidth", "4", "no-calls", "16", "64", "any"};
  const auto* const price = std::find(prices.begin(), prices.end(), words.empty() ? "" : words[0]);
  if (price == prices.end()) throw UserError("rematerialize in the test: wanted bandwidth, 4, no-calls, 16, 64 or any, and layers a segment");
  const Rematerialization how{static_cast<Rematerialization::Price>(price - prices.begin()), words.size() > 1 ? std::stoi(words[1]) : 1};
  const SymbolTable symbols = module.symbols;
  return std::move(rematerialize(std::move(module), symbols, how, 1).module);
}

struct PassRow {
  std::string_view name;
  Module (*run)(Module, const Words&);
};
constexpr PassRow passes[] = {
    {"remove_dead_nodes", remove_dead},
    {"prune_graphs", [](Module module, const Words&) { return prune_graphs(std::move(module)); }},
    {"simplify", [](Module module, const Words&) { return simplify(std::move(module)); }},
    {"merge_common_subexpressions", [](Module module, const Words&) { return merge_common_subexpressions(std::move(module)); }},
    {"inline_calls", [](Module module, const Words&) { return inline_calls(std::move(module)); }},
    {"canonicalize", [](Module module, const Words&) { return canonicalize(std::move(module)); }},
    {"flatten", [](Module module, const Words&) { return flatten(std::move(module)); }},
    {"hoist_from_loops", [](Module module, const Words&) { return hoist_from_loops(std::move(module)); }},
    {"widen_products", [](Module module, const Words&) { return widen_products(std::move(module)); }},
    {"outline_repeats", [](Module module, const Words&) { return outline_repeats(std::move(module)); }},
    {"expand_map_tensors", [](Module module, const Words&) { return expand_map_tensors(std::move(module)); }},
    {"propagate_shardings", propagate},
    {"rematerialize", rematerialized},
    {"partition", [](Module module, const Words&) { return partition(std::move(module)); }},
};

void run_pass(State& state, const Words& words) {
  for (const PassRow& row : passes) {
    if (words.empty() || row.name != words[0]) continue;
    state.module = row.run(std::move(state.module), {words.begin() + 1, words.end()});
    return verify(state.module);
  }
  throw UserError("unknown pass in the test");
}

/// "plan": what two threads run, for sizes of 8 where no input tells one; "plan apart": without fusion.
void run_plan(State& state, const Words& words) {
  if (state.module.stage == Stage::Logical) state.module = compile(std::move(state.module));
  LowerOptions options;
  options.target.threads = 2;
  options.fuse = words.empty() || words[0] != "apart";
  SymbolValues sizes;
  for (const Symbol& symbol : state.module.symbols.all())
    if (symbol.kind == SymbolKind::Size) options.largest[symbol.name] = sizes[symbol.name] = std::min<int64_t>(symbol.maximum, 8);
  state.module = recompute_cheap(flatten_for_kernels(std::move(state.module)));
  StepPlan plan = lower_to_plan(state.module, options);
  plan.code.resize(plan.forms.size());
  verify(plan, sizes);
  state.out += text(plan);
}

TrainingOptions& training(CompileOptions& options) { return options.training ? *options.training : options.training.emplace(); }

struct CompileWord {
  std::string_view name;
  void (*set)(CompileOptions&, const std::string&);
};
constexpr CompileWord compile_words[] = {
    {"lr", [](CompileOptions& o, const std::string& v) { training(o).optimizer.rate.rate = std::stod(v); }},
    {"momentum", [](CompileOptions& o, const std::string& v) { training(o).optimizer.momentum = std::stod(v); }},
    {"decay", [](CompileOptions& o, const std::string& v) { training(o).optimizer.weight_decay = std::stod(v); }},
    {"frozen", [](CompileOptions& o, const std::string& v) { training(o).optimizer.groups.push_back({.patterns = {v}, .frozen = true}); }},
    {"adam", [](CompileOptions& o, const std::string&) { training(o).optimizer.kind = Optimizer::Kind::Adam; }},
    {"clip", [](CompileOptions& o, const std::string& v) { training(o).step.clip_norm = std::stod(v); }},
    {"micro_batches", [](CompileOptions& o, const std::string& v) { training(o).step.micro_batches = std::stoll(v); }},
    {"loss_scale", [](CompileOptions& o, const std::string& v) { training(o).step.loss_scale = {.kind = LossScale::Kind::Constant, .start = std::stod(v)}; }},
    {"gradients", [](CompileOptions& o, const std::string&) { training(o).step.gradients_as_outputs = true; }},
    {"mesh", [](CompileOptions& o, const std::string& v) { o.mesh = parse_mesh(v); }},
    {"skip", [](CompileOptions& o, const std::string& v) { o.skip.push_back(v); }},
};

/// "compile clip lr=0.5 clip=1": the step list up to the pass of that name. A forward module is trained by SGD, unless words say otherwise.
void run_compile(State& state, const Words& words) {
  CompileOptions options;
  training(options).optimizer.kind = Optimizer::Kind::Sgd;
  options.stop_at = words.empty() ? "" : words[0];
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i].substr(0, words[i].find('='));
    const auto* row = std::find_if(std::begin(compile_words), std::end(compile_words), [&](const CompileWord& known) { return known.name == word; });
    if (row == std::end(compile_words)) throw UserError("unknown word '" + word + "' behind compile in the test");
    row->set(options, word.size() < words[i].size() ? words[i].substr(word.size() + 1) : "");
  }
  state.module = compile(std::move(state.module), options);
}

struct VerbRow {
  std::string_view name;
  void (*run)(State&, const Words&);
};
constexpr VerbRow verbs[] = {
    {"verify", run_verify},       {"print", run_print}, {"graphviz", run_graphviz}, {"evaluate", run_evaluate},
    {"gradients", run_gradients}, {"pass", run_pass},   {"plan", run_plan},   {"compile", run_compile}, {"collectives", run_collectives},
};

void run_verb(State& state, const std::string& run) {
  Words words = split(run);
  const std::string verb = words.empty() ? "" : words[0];
  for (const VerbRow& row : verbs) {
    if (row.name != verb) continue;
    words.erase(words.begin());
    return row.run(state, words);
  }
  throw UserError("unknown verb '" + verb + "' in the test");
}

/// What holds for every text: printed and read again it is the same, and so is its hash.
void check_round_trip(const Module& module) {
  const std::string text = print_module(module);
  const Module again = parse_module(text);
  EXPECT_EQ(print_module(again), text);
  EXPECT_EQ(again.symbols, module.symbols);
  EXPECT_EQ(again.mesh, module.mesh);
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

TextTest read_text_test(const std::string& path) {
  TextTest test;
  test.name = std::filesystem::path(path).filename().string();
  const std::string text = read_file(path);
  const size_t cut = text.find("\n---\n");
  test.source = cut == std::string::npos ? text : text.substr(0, cut + 1);
  if (cut != std::string::npos) test.expected = text.substr(cut + 5);
  std::istringstream lines(test.source);
  for (std::string line; std::getline(lines, line) && line.starts_with('#');) {
    const auto after = [&](std::string_view start) { return line.starts_with(start) ? line.substr(start.size()) : std::string(); };
    if (const std::string run = after("# run: "); !run.empty()) test.runs.push_back(run);
    const size_t equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    const std::string value = line.substr(equals + 3);
    if (const std::string input = after("# input "); !input.empty())
      test.inputs[line.substr(8, equals - 8)] = parse_literal(value, test.name);
    if (const std::string symbol = after("# symbol "); !symbol.empty()) test.symbols[line.substr(9, equals - 9)] = std::stoll(value);
  }
  return test;
}

std::string run_text_test(const TextTest& test) {
  State state{test, {}, {}};
  try {
    state.module = parse_module(test.source, test.name);
    check_round_trip(state.module);
    for (const std::string& run : test.runs) run_verb(state, run);
  } catch (const UserError& error) {
    state.out += std::string("error: ") + error.what() + "\n";
  }
  return state.out;
}

}  // namespace stepgraph::tests
