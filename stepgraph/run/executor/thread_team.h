// SPDX-License-Identifier: Apache-2.0
// The threads of one executor: the caller and those that wait for its jobs. Meetings are frequent and short, so threads spin some microseconds before they sleep.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace stepgraph {

class ThreadTeam {
 public:
  /// `start` is called once on each thread but the caller's.
  ThreadTeam(int count, void (*start)());
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int count() const { return count_; }
  /// job(thread) on all threads, of which the caller is 0; returns when all have ended. It must not throw.
  template <class Job>
  void run(Job&& job) {
    run_job([](void* what, int thread) { (*static_cast<std::remove_reference_t<Job>*>(what))(thread); }, &job);
  }
  /// Within a job: returns when all threads have called it.
  void meet();

 private:
  void run_job(void (*job)(void*, int), void* what);
  void serve(int thread);

  int count_;
  void (*job_)(void*, int) = nullptr;
  void* what_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<uint32_t> jobs_ = 0;      // given so far
  alignas(64) std::atomic<int> arrived_ = 0;        // at the meeting that is next
  alignas(64) std::atomic<uint32_t> meetings_ = 0;  // held so far
  std::vector<std::thread> threads_;
};

}  // namespace stepgraph
