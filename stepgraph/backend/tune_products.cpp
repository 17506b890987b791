// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/tune_products.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "stepgraph/run/device/gemm.h"
#include "stepgraph/run/executor/thread_team.h"

namespace stepgraph {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
/// Of this thread.
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Candidate {
  MatMulChoice choice;
  MatMulWork work;
  double best = std::numeric_limits<double>::infinity();
};
struct Case {
  MatMulProblem problem;
  double flops = 0;  ///< of all its places in the plan
  std::vector<Candidate> candidates;
  int rounds = 0;
};

MatMulWork work_of(const MatMulProblem& p, const MatMulChoice& choice) {
  const auto matrix = [&](int64_t rows, int64_t columns, bool transposed) {
    return StridedOperand{{p.batch, rows, columns}, {rows * columns, transposed ? 1 : columns, transposed ? rows : 1}};
  };
  return {choice.library, p.dtype, p.accumulate, matrix(p.m, p.k, p.transpose_a), matrix(p.k, p.n, p.transpose_b), matrix(p.m, p.n, false), choice.cut};
}

/// The first is that of the rule.
std::vector<Candidate> candidates_of(const MatMulProblem& problem) {
  constexpr int64_t smallest_piece = 32;
  std::vector<MatMulChoice> choices = {choice_by_rule(problem)};
  for (const GemmLibrary library : {GemmLibrary::OneDnn, GemmLibrary::OpenBlas}) {
    choices.push_back({library, {}});
    for (const bool rows : {true, false})
      for (const int share : {1, 2, 4}) {
        const int pieces = problem.threads * share;
        if (pieces == 1 ? rows : (rows ? problem.m : problem.n) >= pieces * smallest_piece) choices.push_back({library, GemmCut{rows, pieces}});
      }
  }
  std::vector<Candidate> result;
  for (const MatMulChoice& choice : choices) {
    Candidate candidate{choice, work_of(problem, choice)};
    const bool is_known = std::any_of(result.begin(), result.end(), [&](const Candidate& other) {
      const bool is_whole = other.work.pieces() == problem.batch && candidate.work.pieces() == problem.batch;
      return other.choice == choice || (other.choice.library == choice.library && is_whole);
    });
    if (!is_known) result.push_back(std::move(candidate));
  }
  return result;
}

class Bench {
 public:
  explicit Bench(int threads) : team_(threads, use_no_library_threads), spent_(static_cast<size_t>(threads), 0.0) {}

  void make_room(const MatMulProblem& p) {
    const auto grow = [](std::vector<float>& memory, int64_t elements) { memory.resize(std::max(memory.size(), static_cast<size_t>(elements)), 0.5F); };
    grow(a_, p.batch * p.m * p.k), grow(b_, p.batch * p.k * p.n), grow(c_, p.batch * p.m * p.n);
  }
  /// One more look at each candidate, in turn: clocks drift.
  void look(Case& one) {
    constexpr double least = 100e-6;  // below that a clock would be measured
    for (Candidate& candidate : one.candidates) {
      double spent = 0;
      int runs = 0;
      for (; spent < least; ++runs) spent += run(candidate.work, one.problem.threads);
      candidate.best = std::min(candidate.best, spent / runs);
    }
    ++one.rounds;
  }

 private:
  /// What the thread with the most work spends of its processor: others that run on the machine do not count.
  double run(const MatMulWork& work, int threads) {
    auto share = [&](int thread) {
      const int64_t pieces = work.pieces();
      const double start = processor_seconds();
      work.run(a_.data(), b_.data(), c_.data(), pieces * thread / threads, pieces * (thread + 1) / threads);
      spent_[static_cast<size_t>(thread)] = processor_seconds() - start;
    };
    if (threads == 1) {
      share(0);
      return spent_[0];
    }
    team_.run(share);
    return *std::max_element(spent_.begin(), spent_.end());
  }

  ThreadTeam team_;
  std::vector<double> spent_;  // by thread
  std::vector<float> a_, b_, c_;
};

std::vector<Case> cases_of(const StepPlan& plan, const Tuning& tuning) {
  std::vector<Case> cases;
  for (const auto& [problem, count] : products_of(plan)) {
    const double flops = 2.0 * static_cast<double>(problem.batch * problem.m) * static_cast<double>(problem.n * problem.k);
    if (flops > 0 && problem.dtype == DType::F32 && !tuning.matmuls.contains(problem))
      cases.push_back({problem, flops * static_cast<double>(count), candidates_of(problem), 0});
  }
  std::stable_sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) { return a.flops > b.flops; });
  return cases;
}

}  // namespace

bool tune_products(const StepPlan& plan, Tuning& tuning, double seconds) {
  // The first look warms up; of the rest the least counts.
  constexpr int looks_at_least = 3, looks_at_most = 40;
  std::vector<Case> cases = cases_of(plan, tuning);
  if (cases.empty()) return false;
  const Clock::time_point start = Clock::now();
  load_libraries(plan.target);
  const NoLibraryThreads alone;
  Bench bench(plan.target.threads);
  for (int round = 0; round <= looks_at_most && since(start) < seconds; ++round) {
    for (Case& one : cases) {
      bench.make_room(one.problem);
      for (int look = round == 0 ? looks_at_least : 1; look > 0 && since(start) < seconds; --look) bench.look(one);
    }
  }
  bool any = false;
  for (const Case& one : cases) {
    if (one.rounds < looks_at_least) continue;
    constexpr double worth = 0.98;  // of the rule's time
    const auto best = std::min_element(one.candidates.begin(), one.candidates.end(), [](const Candidate& a, const Candidate& b) { return a.best < b.best; });
    tuning.matmuls[one.problem] = best->best < one.candidates.front().best * worth ? best->choice : one.candidates.front().choice;
    any = true;
  }
  if (any) tuning.measured_with = library_versions();
  return any;
}

}  // namespace stepgraph
