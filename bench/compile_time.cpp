// SPDX-License-Identifier: Apache-2.0
// How long it takes to capture, differentiate and partition a gpt on two ranks, pass by pass, and how little that grows with the number of layers; and the
// same for a flat graph, as an imported model is, before and after its repeated blocks are outlined.
#include <cstdlib>
#include <map>

#include "bench/measure.h"
#include "stepgraph/compile/capture/train_step.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/passes/expand.h"
#include "stepgraph/compile/passes/outline_repeats.h"
#include "stepgraph/train/models/models.h"

namespace {

using namespace stepgraph;

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void measure(int64_t layers, int repeats) {
  std::map<std::string, std::vector<double>> passes;
  std::vector<std::string> order;
  std::vector<double> captures, steps, totals;
  int64_t nodes = 0, graphs = 0;
  for (int i = 0; i < repeats; ++i) {
    Module module;
    captures.push_back(bench::milliseconds([&] {
      module = build_model("gpt", {{"layers", std::to_string(layers)}, {"width", "64"}, {"heads", "4"}, {"context", "64"}, {"dropout", "0.1"}});
    }));
    steps.push_back(bench::milliseconds([&] { module = train_step(std::move(module), {}, {.clip_norm = 1.0}); }));
    module.entries = {{"step", module.entry("step")}};
    module = prune_graphs(std::move(module));
    PassLog log;
    log.clock_us = now_us;
    CompileOptions options;
    options.mesh = parse_mesh("data=2");
    Module local;
    totals.push_back(captures.back() + steps.back() + bench::milliseconds([&] { local = compile_local(std::move(module), options, &log); }));
    for (const PassRecord& pass : log.passes) {
      if (i == 0) order.push_back(pass.name);
      passes[pass.name].push_back(static_cast<double>(pass.elapsed_us) / 1000);
    }
    nodes = node_count(local);
    graphs = static_cast<int64_t>(local.graphs.size());
  }
  bench::print_head("gpt of " + std::to_string(layers) + " layers, data=2");
  bench::print_row("  capture", bench::spread(captures));
  bench::print_row("  train_step (differentiate, clip, adamw)", bench::spread(steps));
  for (const std::string& name : order) bench::print_row("  " + name, bench::spread(passes[name]));
  bench::print_row("  all, with verification", bench::spread(totals));
  std::printf("  %lld nodes in %lld graphs\n\n", static_cast<long long>(nodes), static_cast<long long>(graphs));
}

/// Differentiated and compiled from a forward module; its nodes at the end.
int64_t compile_step(Module forward) {
  Module module = train_step(std::move(forward), {}, {.clip_norm = 1.0});
  module.entries = {{"step", module.entry("step")}};
  CompileOptions options;
  options.mesh = parse_mesh("data=2");
  return node_count(compile_local(prune_graphs(std::move(module)), options));
}

void measure_flat(int64_t layers, int repeats) {
  const Module model = build_model("gpt", {{"layers", std::to_string(layers)}, {"width", "64"}, {"heads", "4"}, {"context", "64"}});
  const Module flat = inline_calls(model, [](const Graph& graph) { return graph.composite.empty(); });
  std::vector<double> as_it_is, outlines, outlined;
  int64_t nodes_flat = 0, nodes = 0;
  for (int i = 0; i < repeats; ++i) {
    as_it_is.push_back(bench::milliseconds([&] { nodes_flat = compile_step(flat); }));
    Module calls;
    outlines.push_back(bench::milliseconds([&] { calls = outline_repeats(flat); }));
    outlined.push_back(outlines.back() + bench::milliseconds([&] { nodes = compile_step(std::move(calls)); }));
  }
  bench::print_head("flat gpt of " + std::to_string(layers) + " layers, data=2");
  bench::print_row("  differentiated and compiled as it is", bench::spread(as_it_is));
  bench::print_row("  outline_repeats", bench::spread(outlines));
  bench::print_row("  outlined, differentiated and compiled", bench::spread(outlined));
  std::printf("  %lld nodes flat, %lld outlined\n\n", static_cast<long long>(nodes_flat), static_cast<long long>(nodes));
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  for (int64_t layers : {2, 12, 48, 192}) measure(layers, repeats);
  for (int64_t layers : {12, 24, 48}) measure_flat(layers, repeats);
}
