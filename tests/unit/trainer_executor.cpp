// SPDX-License-Identifier: Apache-2.0
// The trainer knows an executor by its interface alone: one that watches, and fails on request, takes the reference's place.
#include <gtest/gtest.h>

#include <atomic>

#include "stepgraph/reference/reference_executor.h"
#include "stepgraph/train/trainer.h"
#include "tests/support/on_reference.h"

namespace stepgraph {
namespace trainer_executor_test {

struct Watch {
  std::atomic<int> connects = 0, runs = 0, commits = 0;
  std::atomic<bool> refuse = false, overflow = false, spoils = false, breaks = false;
};

class WatchedExecutor : public Executor {
 public:
  WatchedExecutor(std::unique_ptr<Executor> inner, Watch& watch) : inner_(std::move(inner)), watch_(watch) {}
  void connect(Communicator& group) override {
    ++watch_.connects;
    inner_->connect(group);
  }
  EntryResults run(std::string_view entry, const EntryInputs& inputs) override {
    ++watch_.runs;
    if (watch_.refuse) throw UserError("refused");
    EntryResults results = inner_->run(entry, inputs);
    if (watch_.overflow) results.non_finite_state = "w";
    return results;
  }
  std::optional<std::string> commit() override {
    ++watch_.commits;
    if (watch_.breaks) throw SystemError("it broke");
    inner_->commit();
    if (watch_.spoils) return "w";
    return std::nullopt;
  }
  void find_non_finite(std::string_view entry, const EntryInputs& inputs) override { inner_->find_non_finite(entry, inputs); }
  Literal read_state(std::string_view name) const override { return inner_->read_state(name); }
  void write_state(std::string_view name, Literal part) override { inner_->write_state(name, std::move(part)); }
  int64_t peak_bytes() const override { return inner_->peak_bytes(); }

 private:
  std::unique_ptr<Executor> inner_;
  Watch& watch_;
};

Module line_step() {
  const Dim batch = Dim::symbol("batch");
  return train_step({{"x", DType::F32, {batch, 3}}, {"y", DType::F32, {batch}}},
                    [](Scope s, Inputs in) -> Loss {
                      const Value w = s.parameter("w", {3}, initialize::normal(0, 1));
                      const Value error = sum(in["x"] * w, {1}) - in["y"];
                      return mean(error * error);
                    },
                    {});
}
NamedArrays line_batch() {
  NamedArrays batch = {{"x", Literal(DType::F32, {4, 3})}, {"y", Literal(DType::F32, {4})}};
  for (auto& [name, array] : batch)
    for (int64_t i = 0; i < array.count(); ++i) array.set(i, static_cast<double>(i % 5) - 1.5);
  return batch;
}

TEST(TrainerExecutor, IsWhatRunsAndKeepsTheState) {
  Watch watch;
  TrainerOptions options{.mesh = "data=2", .seed = 3};
  Trainer plain(line_step(), testing::on_reference(options));
  options.executor = [&](const Module& local, const MeshBinding& binding) {
    return std::make_unique<WatchedExecutor>(reference_executor(local, binding), watch);
  };
  Trainer watched(line_step(), testing::on_reference(options));
  EXPECT_EQ(watch.connects, 2);
  EXPECT_EQ(watch.runs, 2);  // init, on both ranks
  EXPECT_EQ(watch.commits, 2);
  EXPECT_TRUE(watched.state() == plain.state());
  EXPECT_EQ(watched.step(line_batch()).loss, plain.step(line_batch()).loss);
  EXPECT_EQ(watched.eval_batch(line_batch()).loss, plain.eval_batch(line_batch()).loss);
  EXPECT_EQ(watch.runs, 6);
  EXPECT_EQ(watch.commits, 4);  // an evaluation changes nothing
  EXPECT_TRUE(watched.state() == plain.state());
}

TEST(TrainerExecutor, AStepThatFailsCommitsNothingAndTheNextOneRuns) {
  Watch watch;
  TrainerOptions options{.mesh = "data=2"};
  options.executor = [&](const Module& local, const MeshBinding& binding) {
    return std::make_unique<WatchedExecutor>(reference_executor(local, binding), watch);
  };
  Trainer trainer(line_step(), testing::on_reference(options));
  const NamedArrays start = trainer.state();
  watch.refuse = true;
  EXPECT_THROW(trainer.step(line_batch()), UserError);
  watch.refuse = false;
  watch.overflow = true;
  try {
    trainer.step(line_batch());
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("step 0: the new value of w is not finite"), std::string::npos) << error.what();
  }
  watch.overflow = false;
  EXPECT_EQ(watch.commits, 2);  // of init
  EXPECT_TRUE(trainer.state() == start);
  trainer.step(line_batch());
  EXPECT_EQ(watch.connects, 4);  // once more after the run that threw
  EXPECT_EQ(trainer.steps_done(), 1);
  EXPECT_FALSE(trainer.state() == start);
}

/// Of an executor that writes states in place: the state before is lost, and what is there must not be taken for a result.
TEST(TrainerExecutor, AStateThatIsNotFiniteAfterItsCommitIsNeitherSavedNorTrained) {
  for (const char* mesh : {"", "data=2"}) {
    Watch watch;
    TrainerOptions options{.mesh = mesh};
    options.executor = [&](const Module& local, const MeshBinding& binding) {
      return std::make_unique<WatchedExecutor>(reference_executor(local, binding), watch);
    };
    Trainer trainer(line_step(), testing::on_reference(options));
    const NamedArrays start = trainer.state();
    const auto message = [&](auto&& action) -> std::string {
      try {
        action();
      } catch (const UserError& error) {
        return error.what();
      }
      return "nothing";
    };
    watch.spoils = true;
    EXPECT_NE(message([&] { trainer.step(line_batch()); }).find("step 0: the new value of w is not finite"), std::string::npos);
    watch.spoils = false;
    EXPECT_EQ(trainer.steps_done(), 0);
    const std::string wanted = "the value of w is not finite since step 0; wanted an earlier state, as a checkpoint has";
    EXPECT_EQ(message([&] { trainer.state(); }), wanted);
    EXPECT_EQ(message([&] { trainer.weights(); }), wanted);
    EXPECT_EQ(message([&] { trainer.step(line_batch()); }), wanted);
    trainer.load_state(start, 0);
    watch.breaks = true;
    EXPECT_THROW(trainer.step(line_batch()), SystemError);
    watch.breaks = false;
    EXPECT_EQ(message([&] { trainer.state(); }), "step 0 ended while it wrote the state; wanted an earlier state, as a checkpoint has");
    trainer.load_state(start, 0);
    EXPECT_EQ(message([&] { trainer.step(line_batch()); }), "nothing");
  }
}

}  // namespace trainer_executor_test
}  // namespace stepgraph
