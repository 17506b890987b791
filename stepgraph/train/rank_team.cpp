// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/rank_team.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/run/comm/threads.h"

namespace stepgraph {

struct RankTeam::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  const RankJob* job = nullptr;
  int64_t generation = 0;
  int done = 0;
  bool failed = false, stop = false, ended = false;
  std::exception_ptr error;
  std::thread thread;  // holds the ranks' threads

  void serve(int rank, RankWorker& worker) {
    for (int64_t seen = 0;;) {
      const RankJob* current = nullptr;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return generation != seen || stop || failed; });
        if (stop || failed) return;
        seen = generation;
        current = job;
      }
      (*current)(rank, worker);
      std::lock_guard lock(mutex);
      ++done;
      changed.notify_all();
    }
  }
  /// In a catch block. The first error here is the cause: ranks that end because of it come later, and so do those that wait for them in vain.
  void fail() {
    std::lock_guard lock(mutex);
    if (!failed) error = std::current_exception();
    failed = true;
    changed.notify_all();
  }
};

RankTeam::RankTeam(int count, MakeWorker make) : count_(count), make_(std::move(make)) {}

RankTeam::~RankTeam() {
  if (!shared_) return;
  {
    std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
    shared_->changed.notify_all();
  }
  shared_->thread.join();
}

/// On the caller's thread: a step of a small model is shorter than it takes to wake another.
void RankTeam::run_alone(const RankJob& job) {
  try {
    if (!worker_) {
      auto communicator = lone_communicator();
      worker_ = make_(0, *communicator);
      alone_ = std::move(communicator);  // the one before is let go when nothing uses it any more
    }
    job(0, *worker_);
  } catch (...) {
    worker_.reset();
    throw;
  }
}

void RankTeam::run(const RankJob& job) {
  if (count_ == 1) return run_alone(job);
  if (!shared_) {
    auto fresh = std::make_unique<Shared>();  // kept only once its thread runs
    fresh->thread = std::thread([this, shared = fresh.get()] {
      std::vector<int> everyone(static_cast<size_t>(count_));
      std::iota(everyone.begin(), everyone.end(), 0);
      try {
        run_ranks(count_, [&](int rank, Communicator& communicator) {
          try {
            const std::unique_ptr<RankWorker> worker = make_(rank, communicator);
            communicator.barrier(everyone);  // throws if not all ranks could be started: nobody waits for jobs then
            shared->serve(rank, *worker);
          } catch (...) {
            shared->fail();
            throw;
          }
        });
      } catch (...) {
        if (!shared->error) shared->error = std::current_exception();  // threads that could not be started
      }
      std::lock_guard lock(shared->mutex);
      shared->ended = true;
      shared->changed.notify_all();
    });
    shared_ = std::move(fresh);
  }
  std::unique_lock lock(shared_->mutex);
  shared_->job = &job;
  shared_->done = 0;
  ++shared_->generation;
  shared_->changed.notify_all();
  shared_->changed.wait(lock, [&] { return shared_->done == count_ || shared_->ended; });
  if (!shared_->ended) return;
  lock.unlock();
  shared_->thread.join();
  const std::exception_ptr error = shared_->error;
  shared_.reset();
  SG_CHECK(error != nullptr, "ranks ended without an error");
  std::rethrow_exception(error);
}

}  // namespace stepgraph
