// SPDX-License-Identifier: Apache-2.0
// Ranks that stay between jobs: errors end a job for all of them, never the program, and nobody is left waiting.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/train/rank_team.h"

namespace stepgraph {
namespace trainer_rank_team_test {

TEST(RankTeamTest, AFailedJobEndsAndTheNextOneRuns) {
  struct Counting : RankWorker {
    int jobs = 0;
  };
  RankTeam team(3, [](int, Communicator&) { return std::make_unique<Counting>(); });
  std::vector<int> jobs(3);
  const RankJob good = [&](int rank, RankWorker& worker) { jobs[static_cast<size_t>(rank)] = ++static_cast<Counting&>(worker).jobs; };
  team.run(good), team.run(good);
  EXPECT_EQ(jobs, (std::vector<int>{2, 2, 2}));
  for (int failing = 0; failing < 3; ++failing) {
    EXPECT_THROW(team.run([&](int rank, RankWorker&) {
                   if (rank == failing) throw UserError("rank " + std::to_string(rank));
                 }),
                 UserError);
    team.run(good);
    EXPECT_EQ(jobs, (std::vector<int>{1, 1, 1})) << "workers are made anew";
  }
}

TEST(RankTeamTest, AWorkerThatCannotBeMadeIsAnError) {
  int tries = 0;
  RankTeam team(2, [&](int rank, Communicator&) -> std::unique_ptr<RankWorker> {
    if (rank == 1 && tries++ == 0) throw UserError("no worker");
    return std::make_unique<RankWorker>();
  });
  EXPECT_THROW(team.run([](int, RankWorker&) {}), UserError);
  team.run([](int, RankWorker&) {});
}

TEST(RankTeamTest, RanksWaitingForAFailedOneAreReleased) {
  std::vector<Communicator*> communicators(3);
  RankTeam team(3, [&](int rank, Communicator& communicator) {
    communicators[static_cast<size_t>(rank)] = &communicator;
    return std::make_unique<RankWorker>();
  });
  const std::vector<int> all{0, 1, 2};
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(team.run([&](int rank, RankWorker&) {
                   if (rank == round % 3) throw UserError("lost");
                   communicators[static_cast<size_t>(rank)]->barrier(all);
                 }),
                 UserError);
  }
}

TEST(RankTeamTest, OneRankRunsOnTheCallersThread) {
  int made = 0;
  Communicator* group = nullptr;
  RankTeam team(1, [&](int, Communicator& communicator) {
    ++made;
    group = &communicator;
    return std::make_unique<RankWorker>();
  });
  std::thread::id where;
  const RankJob job = [&](int rank, RankWorker&) {
    where = std::this_thread::get_id();
    EXPECT_EQ(rank, 0);
    const std::vector<int> all{0};
    group->barrier(all);
    EXPECT_EQ(group->all_reduce(Literal::scalar(DType::F32, 2.5), ReduceKind::Sum, all).at(0), 2.5);
  };
  team.run(job), team.run(job);
  EXPECT_EQ(where, std::this_thread::get_id());
  EXPECT_EQ(made, 1);
  EXPECT_THROW(team.run([](int, RankWorker&) { throw UserError("lost"); }), UserError);
  team.run(job);
  EXPECT_EQ(made, 2) << "workers are made anew";
}

TEST(RankTeamTest, ATeamThatNeverRanAndOneThatOnlyFailedEnd) {
  const MakeWorker make = [](int, Communicator&) { return std::make_unique<RankWorker>(); };
  { RankTeam team(4, make); }
  RankTeam team(4, make);
  EXPECT_THROW(team.run([](int, RankWorker&) { throw UserError("all of them"); }), UserError);
}

}  // namespace trainer_rank_team_test
}  // namespace stepgraph
