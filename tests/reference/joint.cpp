// SPDX-License-Identifier: Apache-2.0
// Programs that hold their gradients, and PyTorch's backward operators (tests/samples/joint, made by scripts/record_joint.py).
#include <gtest/gtest.h>

#include <algorithm>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/import.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/train/check.h"
#include "stepgraph/train/job.h"
#include "tests/support/on_reference.h"
#include "tests/support/places.h"

namespace stepgraph {
namespace joint_test {

const std::string folder = std::string(testing::source_root()) + "/tests/samples/joint";
const std::string net = folder + "/net/model_joint.pt2";

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}
int64_t outputs_of(const Module& module, const char* entry, RoleKind kind) {
  const std::vector<GraphOutput>& outputs = module.graph(module.entry(entry)).outputs;
  return std::count_if(outputs.begin(), outputs.end(), [&](const GraphOutput& output) { return output.role.kind == kind; });
}

TEST(Joint, AgreesOnOneAndTwoRanks) {
  for (const char* mesh : {"", "data=2"}) {
    const CheckReport report = check_folder(folder + "/net", {"model_joint.pt2", mesh, {}});
    EXPECT_TRUE(report.ok()) << text(report, 12);
    EXPECT_GE(report.rows.size(), 20U);
    ASSERT_EQ(report.warnings.size(), 1U);
    EXPECT_NE(report.warnings[0].find("is a joint program"), std::string::npos) << report.warnings[0];
  }
}

TEST(Joint, BackwardOperatorsHavePyTorchsValues) {
  const CheckReport report = check_folder(folder + "/backward");
  EXPECT_TRUE(report.ok()) << text(report, 12);
}

/// The gradients are outputs of the forward entry, and evaluation does without what they alone need.
TEST(Joint, EvaluationIsTheForwardPart) {
  const Module module = import_pt2(net).forward;
  EXPECT_EQ(outputs_of(module, "forward", RoleKind::Gradient), 5);  // first.weight counts once for both of its names
  EXPECT_EQ(outputs_of(module, "forward", RoleKind::NewState), 3);
  EXPECT_EQ(outputs_of(module, "eval", RoleKind::Gradient), 0);
  EXPECT_LT(module.graph(module.entry("eval")).nodes.size() * 2, module.graph(module.entry("forward")).nodes.size());
}

TEST(Joint, ScaledLossesGiveTheSameGradients) {
  StepOptions options;
  options.clip_norm = 1.0;
  options.loss_scale.kind = LossScale::Kind::Constant;
  const Module module = train_step(import_pt2(net).forward, Optimizer{}, options);
  EXPECT_GT(outputs_of(module, "step", RoleKind::NewState), 10);
}

TEST(Joint, WhatCannotBeDoneWithOneIsRefused) {
  StepOptions halves;
  halves.micro_batches = 2;
  EXPECT_EQ(error_of([&] { train_step(import_pt2(net).forward, Optimizer{}, halves); }),
            "micro_batches: the model brings its own gradients, of the mean over the whole batch, which cannot be made of parts; wanted micro_batches 1");
  ImportOptions other_loss;
  other_loss.loss = "mse";
  EXPECT_EQ(error_of([&] { import_pt2(net, other_loss); }),
            net + " holds its loss and gradients (a joint program), so that no other loss can be put on it; use the program that torch.export.export returns");
  ImportOptions narrow;
  narrow.autocast.dtype = DType::BF16;
  EXPECT_EQ(error_of([&] { import_pt2(net, narrow); }),
            net + " holds its loss and gradients (a joint program), so that its precision is fixed; use the program that torch.export.export returns");
}

/// What the exporter assumed of sizes is checked before a step.
TEST(Guards, ABatchOfOtherSizesIsOneError) {
  Imported imported = import_pt2(folder + "/../mlp_gelu/model.pt2");
  EXPECT_EQ(imported.guards.count(), 1U);
  NamedArrays batch;
  for (const auto& [name, value] : read_safetensors(folder + "/../mlp_gelu/data.safetensors").arrays)
    if (name.starts_with("input.")) batch.emplace_back(name.substr(6), value);
  const int64_t rows = find_array(batch, "x")->sizes()[0];
  TrainerOptions options;
  options.guards = SizeGuards({"L['x'].size()[0] > 1", "L['x'].size()[0] % " + std::to_string(rows) + " == 1"}, {"x"});
  Trainer trainer(train_step(std::move(imported.forward), Optimizer{}), testing::on_reference(options));
  const std::string message = "the exported program assumes L['x'].size()[0] % " + std::to_string(rows) + " == 1, but x dim 0 is " + std::to_string(rows) +
                              "; take other sizes, or export the model with these";
  EXPECT_EQ(error_of([&] { trainer.step(batch); }), message);
  EXPECT_EQ(error_of([&] { trainer.eval_batch(batch); }), message);
}

}  // namespace joint_test
}  // namespace stepgraph
