// SPDX-License-Identifier: Apache-2.0
// How long it takes to capture, differentiate and partition, pass by pass, in process CPU time: a gpt on two ranks by its number of layers, called and flat (as
// an imported model is), calls that are nested, symbols that are declared alike, and many experts.
#include <cstdlib>
#include <map>

#include "bench/measure.h"
#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/compile/passes/expand.h"
#include "stepgraph/compile/passes/outline_repeats.h"
#include "stepgraph/train/models/models.h"

namespace {

using namespace stepgraph;

/// Samples of rows, in the order in which rows first get one.
class Table {
 public:
  void add(const std::string& row, double sample) {
    const auto [found, is_new] = samples_.try_emplace(row);
    if (is_new) order_.push_back(row);
    found->second.push_back(sample);
  }
  template <class Run>
  void time(const std::string& row, const Run& run) {
    add(row, bench::cpu_milliseconds(run));
  }
  void print(const std::string& head) const {
    bench::print_head(head);
    for (const std::string& row : order_) bench::print_row("  " + row, bench::spread(samples_.at(row)));
  }
  double minimum(const std::string& row) const { return bench::spread(samples_.at(row)).minimum; }

 private:
  std::map<std::string, std::vector<double>> samples_;
  std::vector<std::string> order_;
};

Module compiled(Module module, Table& table) {
  PassLog log;
  log.clock_us = [] { return static_cast<int64_t>(bench::cpu_milliseconds() * 1000); };
  CompileOptions options;
  options.mesh = parse_mesh("data=2");
  module = compile(prune_graphs(std::move(module)), options, &log);
  double verify = 0, spread = 0;
  for (const PassRecord& pass : log.passes) {
    table.add(pass.name, static_cast<double>(pass.elapsed_us) / 1000);
    verify += static_cast<double>(pass.verify_us) / 1000;
    if (pass.name == "propagate" || pass.name == "partition") spread += static_cast<double>(pass.elapsed_us) / 1000;
  }
  table.add("verification, after every pass", verify);
  table.add("propagate, partition and verification", spread + verify);
  return module;
}

Module differentiated(Module module, Table& table) {
  table.time("train_step (differentiate, clip, adamw)", [&] { module = train_step(std::move(module), {}, {.clip_norm = 1.0}); });
  module.entries = {{"step", module.entry("step")}};
  return module;
}

ModelOptionValues gpt_options(int64_t layers, const char* dropout) {
  return {{"layers", std::to_string(layers)}, {"width", "64"}, {"heads", "4"}, {"context", "64"}, {"dropout", dropout}};
}

void measure(int64_t layers, int repeats) {
  Table table;
  Module local;
  for (int i = 0; i < repeats; ++i) {
    table.time("all, with verification", [&] {
      Module module;
      table.time("capture", [&] { module = build_model("gpt", gpt_options(layers, "0.1")); });
      local = compiled(differentiated(std::move(module), table), table);
    });
  }
  table.print("gpt of " + std::to_string(layers) + " layers, data=2");
  std::printf("  %lld nodes in %zu graphs\n\n", static_cast<long long>(node_count(local)), local.graphs.size());
}

/// The time of all of it as it is.
double measure_flat(int64_t layers, int repeats) {
  const Module flat = inline_calls(build_model("gpt", gpt_options(layers, "0")), [](const Graph& graph) { return graph.composite.empty(); });
  Table as_it_is, outlined;
  int64_t nodes = 0;
  for (int i = 0; i < repeats; ++i) {
    as_it_is.time("all, with verification", [&] {
      Module step = differentiated(flat, as_it_is);
      nodes = node_count(step);
      compiled(std::move(step), as_it_is);
    });
    outlined.time("all, with verification", [&] {
      Module calls;
      outlined.time("outline_repeats", [&] { calls = outline_repeats(flat); });
      compiled(differentiated(std::move(calls), outlined), outlined);
    });
  }
  as_it_is.print("flat gpt of " + std::to_string(layers) + " layers, data=2");
  std::printf("  %lld nodes: %.1f us a node for propagate, partition and verification\n\n", static_cast<long long>(nodes),
              as_it_is.minimum("propagate, partition and verification") * 1000 / static_cast<double>(nodes));
  outlined.print("outlined first");
  std::printf("\n");
  return as_it_is.minimum("all, with verification");
}

/// Graphs that call the one before `calls` times, `depth` deep, and the gradient of the last.
Module nested_calls(int depth, int calls) {
  Module module;
  const TensorType type{DType::F32, {8}, {}};
  GraphId callee{-1};
  for (int level = 0; level < depth; ++level) {
    const GraphId graph = module.add_graph("level" + std::to_string(level));
    Builder builder(module, graph);
    Value x = builder.input(type);
    const Value weight = builder.input(type);
    if (level == 0) x = tanh(x * weight);
    for (int i = 0; level > 0 && i < calls; ++i) x = call(builder, callee, std::vector<Value>{x, weight}).at(0);
    builder.output(x);
    callee = graph;
  }
  const GraphId main = module.add_graph("main");
  module.entries = {{"step", main}};
  Builder builder(module, main);
  const Value x = builder.input(type, {RoleKind::Batch, "x"}), weight = builder.input(type, {RoleKind::Parameter, "w"});
  const Value loss = sum(call(builder, callee, std::vector<Value>{x, weight}).at(0));
  builder.output(*gradients(builder, loss, std::vector<Value>{weight}).at(0));
  return module;
}

void measure_nested(int depth, int calls, int repeats) {
  Table table;
  Module module;
  for (int i = 0; i < repeats; ++i) {
    table.time("all, with verification", [&] {
      table.time("differentiate", [&] { module = nested_calls(depth, calls); });
      module = compiled(std::move(module), table);
    });
  }
  size_t values = 0;
  for (const Graph& graph : module.graphs) values += graph.values.size();
  table.print("calls nested " + std::to_string(depth) + " deep, " + std::to_string(calls) + " a level");
  std::printf("  %zu values in %zu graphs\n\n", values, module.graphs.size());
}

void measure_model(const std::string& model, const std::string& option, const std::string& value, int repeats) {
  Table table;
  for (int i = 0; i < repeats; ++i) {
    Module module;
    table.time("capture", [&] { module = build_model(model, {{option, value}}); });
    module = differentiated(std::move(module), table);
    table.time("module_hash", [&] { module_hash(module); });
    table.time("verify", [&] { verify(module); });
  }
  table.print(model + ", " + option + " = " + value);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  for (int64_t layers : {2, 12, 48, 192}) measure(layers, repeats);
  const double flat_12 = measure_flat(12, repeats), flat_48 = measure_flat(48, repeats);
  std::printf("48 flat layers against 12: %.2f times\n\n", flat_48 / flat_12);
  measure_flat(1000, 1);
  measure_nested(30, 1, repeats);
  for (int depth : {12, 14, 16, 18}) measure_nested(depth, 2, depth < 16 ? repeats : 1);
  for (const char* layers : {"50", "100", "200"}) measure_model("lstm", "layers", layers, repeats);
  for (const char* experts : {"1024", "4096"}) measure_model("moe", "experts", experts, 1);
}
