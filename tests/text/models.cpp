// SPDX-License-Identifier: Apache-2.0
// Whole training programs as text: every model of the zoo, at every stage, reads back to the same program.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ir/graphviz.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/train/models/models.h"

namespace stepgraph {
namespace models_test {

void expect_round_trip(const Module& module, const std::string& name) {
  SCOPED_TRACE(name);
  const std::string text = print_module(module);
  const Module again = parse_module(text);
  EXPECT_EQ(print_module(again), text);
  EXPECT_NO_THROW(verify(again));
  EXPECT_EQ(module_hash(again), module_hash(module));
  for (const Entry& entry : module.entries) EXPECT_NE(graphviz(module, entry.graph).find("digraph"), std::string::npos);
}

TEST(Models, EveryStageReadsBack) {
  for (const ModelInfo& model : models()) {
    const Module step = train_step(build_model(model.name), Optimizer{}, {.clip_norm = 1.0, .micro_batches = 2});
    expect_round_trip(step, model.name + " logical");
    CompileOptions options;
    options.mesh = parse_mesh("data=2");
    for (const char* stop_at : {"propagate", "partition"}) {
      options.stop_at = stop_at;
      expect_round_trip(compile(step, options), model.name + " after " + stop_at);
    }
  }
}

/// Where a size of this place is a long expression, types hold its name.
void expect_readable(const Module& local, const std::string& name) {
  SCOPED_TRACE(name);
  for (const Graph& graph : local.graphs)
    for (const ValueInfo& value : graph.values) {
      const std::string type = text(value.type);
      for (const char* word : {"min(", "max(", "floordiv(", "mod("}) EXPECT_EQ(type.find(word), std::string::npos) << type;
    }
  std::istringstream lines(print_module(local));
  for (std::string line; std::getline(lines, line);) {
    const bool is_data = line.find("base64") != std::string::npos;  // a string stays whole
    EXPECT_LE(is_data ? 0 : line.size(), 160U) << line;
  }
}

TEST(Models, LocalProgramsAreReadable) {
  CompileOptions options;
  for (const char* mesh : {"data=2", "data=3,model=2"}) {
    options.mesh = parse_mesh(mesh);
    for (const ModelInfo& model : models())
      expect_readable(compile(train_step(build_model(model.name), Optimizer{}), options), model.name + " on " + mesh);
  }
}

TEST(Models, BuiltAgainTheHashIsTheSameAndAnotherModelsIsNot) {
  const auto hash_of = [](const std::string& width) { return module_hash(build_model("gpt", {{"width", width}})); };
  EXPECT_EQ(hash_of("64"), hash_of("64"));
  EXPECT_NE(hash_of("64"), hash_of("32"));
}

}  // namespace models_test
}  // namespace stepgraph
