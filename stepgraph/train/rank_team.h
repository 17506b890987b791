// SPDX-License-Identifier: Apache-2.0
// Ranks that stay: a thread each, with what it keeps between jobs (interpreters, its part of the state).
#pragma once
#include <functional>
#include <memory>
#include "stepgraph/run/comm/communicator.h"

namespace stepgraph {

/// What a rank keeps; made on its own thread, destroyed there.
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
  int count_;
  MakeWorker make_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace stepgraph
