// SPDX-License-Identifier: Apache-2.0
// stepgraph run: evaluates an entry of any module, and gradients of its scalar output.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "stepgraph/backend/given_plan.h"
#include "stepgraph/backend/run_once.h"
#include "stepgraph/base/file.h"
#include "stepgraph/base/nearest.h"
#include "stepgraph/base/printable.h"
#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ir/solve_symbols.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/reference/interpreter.h"
#include "stepgraph/train/data/arrays.h"
#include "tools/backend_flags.h"
#include "tools/value_text.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

struct RunFlags {
  std::string file, entry, mesh, dtype, save, of, plan;
  std::vector<std::string> sets, gradients, shardings;
  BackendFlags backend;
  TapFlags tap;
  int64_t seed = 0;
  bool json = false;
};

/// Inputs and outputs by name: of the role, or by position ("in0", "out0").
std::string input_name(const Graph& graph, size_t i) { return graph.inputs[i].role.name.empty() ? "in" + std::to_string(i) : graph.inputs[i].role.name; }
std::string output_name(const Graph& graph, size_t i) {
  const Role& role = graph.outputs[i].role;
  if (role.name.empty()) return "out" + std::to_string(i);
  switch (role.kind) {
    case RoleKind::LossNumerator:
    case RoleKind::MetricNumerator: return role.name + ".numerator";
    case RoleKind::LossDenominator:
    case RoleKind::MetricDenominator: return role.name + ".denominator";
    case RoleKind::Gradient: return "grad(" + role.name + ")";
    case RoleKind::NewState: return "new(" + role.name + ")";
    default: return role.name;
  }
}

std::vector<std::string> input_names(const Graph& graph) {
  std::vector<std::string> names;
  for (size_t i = 0; i < graph.inputs.size(); ++i) names.push_back(input_name(graph, i));
  return names;
}

size_t find_name(const std::vector<std::string>& names, const std::string& wanted, const std::string& what) {
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found == names.end())
    throw UserError(what + ": there is no '" + wanted + "'; " + (names.empty() ? "the entry has none" : "nearest are " + nearest_names(wanted, names)));
  return static_cast<size_t>(found - names.begin());
}

void check_once(const std::vector<std::string>& names, const std::string& what) {
  for (size_t i = 0; i < names.size(); ++i)
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) != names.begin() + static_cast<std::ptrdiff_t>(i))
      throw UserError(what + ": '" + names[i] + "' is named twice");
}

GraphId choose_entry(const Module& module, const std::string& wanted) {
  if (!wanted.empty()) return module.entry(wanted);
  if (const auto found = module.find_entry("main")) return *found;
  if (module.entries.size() == 1) return module.entries[0].graph;
  if (module.entries.empty() && module.graphs.size() == 1) return {0};
  std::string known;
  for (const Entry& entry : module.entries) known += (known.empty() ? "" : ", ") + entry.name;
  throw UserError("name the entry with --entry; the module has " + (known.empty() ? std::to_string(module.graphs.size()) + " graphs and no entry" : known));
}

/// The entry alone, under its name (init has a meaning of its own), with gradients appended as outputs.
Module with_gradients(Module module, GraphId graph_id, const RunFlags& flags) {
  const auto known = std::find_if(module.entries.begin(), module.entries.end(),
                                  [&](const Entry& entry) { return entry.graph == graph_id && (flags.entry.empty() || entry.name == flags.entry); });
  module.entries = {{known == module.entries.end() ? "main" : known->name, graph_id}};
  if (flags.gradients.empty()) return prune_graphs(std::move(module));
  Builder builder(module, graph_id);
  Graph& graph = module.graph(graph_id);
  std::vector<std::string> outputs;
  for (size_t i = 0; i < graph.outputs.size(); ++i) outputs.push_back(output_name(graph, i));
  std::optional<Value> y;
  if (!flags.of.empty()) {
    y = builder.value(graph.outputs[find_name(outputs, flags.of, "--of")].value);
  } else {
    for (const GraphOutput& output : graph.outputs) {
      const TensorType& type = graph.type(output.value);
      if (!y && type.rank() == 0 && is_floating(type.dtype)) y = builder.value(output.value);
    }
    if (!y) throw UserError("--grad: the entry has no floating scalar output; name one with --of, or add a sum");
  }
  std::vector<Value> xs;
  check_once(flags.gradients, "--grad");
  for (const std::string& wanted : flags.gradients) xs.push_back(builder.value(graph.inputs[find_name(input_names(graph), wanted, "--grad")].value));
  const auto found = gradients(builder, *y, xs);
  for (size_t i = 0; i < xs.size(); ++i) {
    if (found[i])
      builder.output(*found[i], {RoleKind::Gradient, flags.gradients[i]});
    else
      tell("note", flags.gradients[i] + " has no gradient: no differentiable path leads from it to the output");
  }
  return prune_graphs(std::move(module));
}

std::vector<Literal> read_inputs(const Graph& graph, const RunFlags& flags) {
  const std::vector<std::string> names = input_names(graph);
  std::vector<std::optional<Literal>> values(names.size());
  for (const std::string& assignment : flags.sets) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) throw UserError("--set: found '" + assignment + "', wanted NAME=VALUE or NAME=@file.npz");
    const size_t i = find_name(names, assignment.substr(0, equals), "--set");
    if (values[i]) throw UserError("--set: '" + names[i] + "' is named twice");
    values[i] = read_value(assignment.substr(equals + 1), graph.type(graph.inputs[i].value).dtype, names[i]);
  }
  std::vector<Literal> inputs;
  std::string missing;
  for (size_t i = 0; i < names.size(); ++i) {
    const RoleKind kind = graph.inputs[i].role.kind;
    if (!values[i] && kind == RoleKind::Seed) values[i] = Literal::integer(DType::I64, flags.seed);
    if (!values[i] && kind == RoleKind::Step) values[i] = Literal::integer(DType::I64, 0);
    if (!values[i])
      missing += (missing.empty() ? "" : ", ") + names[i] + " " + text(graph.type(graph.inputs[i].value));
    else
      inputs.push_back(*values[i]);
  }
  if (!missing.empty()) throw UserError("no value is given for " + missing + "; use --set NAME=VALUE or NAME=@file.npz");
  return inputs;
}

RunOutcome run_on(const Module& module, const std::vector<Literal>& inputs, const RunFlags& flags) {
  const Mesh mesh = parse_mesh(flags.mesh);
  if (!flags.shardings.empty() && flags.mesh.empty()) throw UserError("--shard wants a --mesh");
  if (!flags.plan.empty()) {
    if (mesh.device_count() != 1) throw UserError("--plan: a plan of stepgraph compile is run on one device, found --mesh " + flags.mesh);
    if (!flags.tap.patterns.empty()) throw UserError("--plan: a plan that was made before has no taps; wanted --backend with --tap");
    return {run_once(module, module.entries[0].name, inputs, options_of(read_given_plan(flags.plan))), {}};
  }
  BackendOptions backend = backend_options(flags.backend);
  backend.taps = flags.tap.patterns;
  const bool is_local = module.stage != Stage::Logical;
  if (mesh.device_count() == 1 && (is_local || (backend.backend == Backend::Reference && backend.taps.empty()))) {
    if (is_local && module.stage != Stage::Local && backend.backend != Backend::Reference)
      throw UserError(fmt::format("{} is at stage {}, wanted logical or local for --backend {}", flags.file, name(module.stage), name(backend.backend)));
    if (is_local && module.stage == Stage::Local) return run_entry(module, module.entries[0].name, inputs, backend);
    return {evaluate_graph(module, module.entries[0].graph, inputs), {}};
  }
  CompileOptions options;
  options.mesh = mesh;
  std::vector<std::string> laid_out;
  for (const std::string& assignment : flags.shardings) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) throw UserError("--shard: found '" + assignment + "', wanted NAME=SHARDING, e.g. x={data}");
    const Graph& graph = module.graph(module.entries[0].graph);
    find_name(input_names(graph), assignment.substr(0, equals), "--shard");
    laid_out.push_back(assignment.substr(0, equals));
    check_once(laid_out, "--shard");
    options.sharding.inputs.push_back({assignment.substr(0, equals), std::nullopt, parse_sharding(assignment.substr(equals + 1))});
  }
  const SymbolValues symbols = solve_symbols(module, module.graph(module.entries[0].graph), inputs);
  const Module local = compile(module, options);
  return run_entry(local, local.entries[0].name, inputs, backend, symbols);
}

void run_file(const RunFlags& flags) {
  if (flags.file.ends_with(".pt2"))
    throw UserError(flags.file + ": run evaluates .sg files; for a PyTorch program use `stepgraph eval --model`, `stepgraph train --model` or `stepgraph check`, or write it as text with `stepgraph show " +
                    flags.file + "`");
  check_taps(flags.tap);
  if (flags.seed < 0) throw UserError(fmt::format("--seed: found {}, wanted at least 0", flags.seed));
  Module module = parse_module(read_text(flags.file), flags.file);
  verify(module);
  if (module.stage != Stage::Logical && (module.mesh.device_count() > 1 || !flags.mesh.empty()))
    throw UserError(
        fmt::format("{} is at stage {} for mesh {}, wanted logical: run lays a module on a mesh itself", flags.file, name(module.stage), module.mesh.text()));
  const GraphId graph_id = choose_entry(module, flags.entry);
  if (!flags.dtype.empty()) {
    const auto dtype = dtype_from_name(flags.dtype);
    if (!dtype || !is_floating(*dtype)) throw UserError("--dtype: found '" + flags.dtype + "', wanted f64, f32, bf16 or f16");
    module = with_floating_dtype(std::move(module), *dtype);
  }
  module = with_gradients(std::move(module), graph_id, flags);
  const Graph& graph = module.graph(module.entries[0].graph);
  const RunOutcome outcome = run_on(module, read_inputs(graph, flags), flags);
  NamedArrays arrays;
  for (size_t i = 0; i < outcome.outputs.size(); ++i) arrays.emplace_back(output_name(graph, i), outcome.outputs[i]);
  if (flags.tap.file.empty())
    for (const auto& [value_name, value] : outcome.taps) arrays.emplace_back("tap(" + value_name + ")", value);
  else
    write_taps(flags.tap, outcome.taps);
  if (!flags.save.empty() || flags.json) {
    std::vector<std::string> names;
    for (const auto& [array_name, value] : arrays) names.push_back(array_name);
    check_once(names, "outputs");
  }
  if (!flags.save.empty()) write_npz(flags.save, arrays);
  if (flags.json) {
    std::string all;
    for (const auto& [array_name, value] : arrays) all += (all.empty() ? "" : ",") + nlohmann::json(printable(array_name)).dump() + ":" + value_json(value);
    std::puts(("{" + all + "}").c_str());
    return;
  }
  for (const auto& [array_name, value] : arrays) fmt::print("{} = {}\n", printable(array_name), value.text(64));
  if (!flags.save.empty()) fmt::print("saved {}\n", flags.save);
}

}  // namespace

void add_run(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* verb = app.add_subcommand("run", "evaluate a module's entry, and gradients of its scalar output");
  verb->add_option("file", flags->file, "a .sg file")->required()->type_name("FILE.sg");
  verb->add_option("--entry", flags->entry, "which entry; default: main, or the only one")->type_name("NAME");
  verb->add_option("-s,--set", flags->sets, "value of an input: a number, a list like [[1,2],[3,4]], or @file.npz[:array]; may be repeated")
      ->type_name("NAME=VALUE");
  verb->add_option("-g,--grad", flags->gradients, "inputs whose gradient is wanted")->delimiter(',')->type_name("NAME,...");
  verb->add_option("--of", flags->of, "the scalar output to differentiate; default: the first")->type_name("NAME");
  verb->add_option("--mesh", flags->mesh, "ranks as threads, e.g. data=2; inputs of role batch are split")->type_name("AXES");
  verb->add_option("--shard", flags->shardings, "layout of an input on the mesh, e.g. 'x={data}, {}'; may be repeated")->type_name("NAME=SHARDING");
  verb->add_option("--dtype", flags->dtype, "evaluate with every floating dtype replaced: f64, f32, bf16, f16")->type_name("DTYPE");
  add_backend_flags(*verb, flags->backend, "reference: plain loops, what the others are compared with");
  add_tap_flags(*verb, flags->tap, "printed with the outputs");
  verb->add_option("--plan", flags->plan, "run this plan of stepgraph compile instead of the reference")->type_name("FILE");
  verb->add_option("--seed", flags->seed, "value of the input of role seed")->type_name("N");
  verb->add_option("--save", flags->save, "write all values to this .npz")->type_name("FILE");
  verb->add_flag("--json", flags->json, "one JSON object: name -> nested lists");
  verb->footer("Example:\n  stepgraph run examples/square.sg --set x=[1,2,3] --grad x --mesh data=3 --shard x={data}");
  verb->callback([flags] { run_file(*flags); });
}

}  // namespace stepgraph
