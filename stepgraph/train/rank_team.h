// SPDX-License-Identifier: Apache-2.0
// Ranks that stay: a thread each, or the caller's where there is but one; with what it keeps between jobs (interpreters, its part of the state).
#pragma once
#include <functional>
#include <memory>
#include "stepgraph/run/comm/communicator.h"

namespace stepgraph {

/// What a rank keeps; made on its own thread and destroyed there, if it has one.
class RankWorker {
 public:
  virtual ~RankWorker() = default;
};
using MakeWorker = std::function<std::unique_ptr<RankWorker>(int rank, Communicator& communicator)>;
using RankJob = std::function<void(int rank, RankWorker& worker)>;

class RankTeam {
 public:
  RankTeam(int count, MakeWorker make);
  ~RankTeam();
  RankTeam(const RankTeam&) = delete;
  RankTeam& operator=(const RankTeam&) = delete;
  /// Runs the job on every rank and waits. If a rank throws, the others are released, the first error is rethrown and the workers are made anew for the
  /// next job.
  void run(const RankJob& job);

 private:
  struct Shared;
  void run_alone(const RankJob& job);
  int count_;
  MakeWorker make_;
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<Communicator> alone_;  // of one rank
  std::unique_ptr<RankWorker> worker_;
};

}  // namespace stepgraph
