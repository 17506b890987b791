// SPDX-License-Identifier: Apache-2.0
// Whole training programs as text: every model of the zoo, at every stage, reads back to the same program.
#include <gtest/gtest.h>

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

TEST(Models, BuiltAgainTheHashIsTheSameAndAnotherModelsIsNot) {
  const auto hash_of = [](const std::string& width) { return module_hash(build_model("gpt", {{"width", width}})); };
  EXPECT_EQ(hash_of("64"), hash_of("64"));
  EXPECT_NE(hash_of("64"), hash_of("32"));
}

}  // namespace models_test
}  // namespace stepgraph
