// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/executor/thread_team.h"

namespace stepgraph {
namespace {

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Until `value` is another than `old`. Sleeps when that takes long: there may be fewer cores than threads.
void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  constexpr int spins = 2000;
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_briefly();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

void tell_change(std::atomic<uint32_t>& value) {
  value.fetch_add(1, std::memory_order_release);
  value.notify_all();
}

}  // namespace

ThreadTeam::ThreadTeam(int count, void (*start)()) : count_(count) {
  const auto end_all = [this] {
    stop_ = true;
    tell_change(jobs_);
    for (std::thread& thread : threads_) thread.join();
  };
  try {
    for (int thread = 1; thread < count; ++thread)
      threads_.emplace_back([this, thread, start] {
        start();
        serve(thread);
      });
  } catch (...) {
    end_all();
    throw;
  }
}

ThreadTeam::~ThreadTeam() {
  stop_ = true;
  tell_change(jobs_);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::run_job(void (*job)(void*, int), void* what) {
  if (count_ == 1) return job(what, 0);
  job_ = job, what_ = what;
  tell_change(jobs_);
  job(what, 0);
  meet();
}

void ThreadTeam::serve(int thread) {
  for (uint32_t seen = 0;; ++seen) {
    wait_for_change(jobs_, seen);
    if (stop_) return;
    job_(what_, thread);
    meet();
  }
}

void ThreadTeam::meet() {
  if (count_ == 1) return;
  const uint32_t meeting = meetings_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < count_) return wait_for_change(meetings_, meeting);
  arrived_.store(0, std::memory_order_relaxed);
  tell_change(meetings_);
}

}  // namespace stepgraph
