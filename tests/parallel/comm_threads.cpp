// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: values of each collective, one order of summation, and that a fault on one rank ends all of them.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "stepgraph/base/error.h"
#include "stepgraph/run/comm/threads.h"

namespace stepgraph {
namespace comm_threads_test {

std::vector<int> all_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}
/// Numbers whose sum depends on the order in which it is taken.
Literal awkward(DType dtype, Sizes sizes, int rank) {
  Literal value(dtype, std::move(sizes));
  for (int64_t i = 0; i < value.count(); ++i)
    value.set(i, std::ldexp(1.0 + 0.37 * static_cast<double>(i % 17) - 0.9 * rank, static_cast<int>((i + rank * 5) % 23) - 11));
  return value;
}

class Ranks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Comm, Ranks, ::testing::Values(1, 2, 3, 4, 5));

TEST_P(Ranks, AllReduceSumsInRankOrderAndRoundsOnce) {
  const int count = GetParam();
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{5000}}) {
      std::vector<Literal> got(static_cast<size_t>(count));
      run_ranks(count, [&](int rank, Communicator& comm) {
        got[static_cast<size_t>(rank)] = comm.all_reduce(awkward(dtype, {size}, rank), ReduceKind::Sum, all_ranks(count));
      });
      Literal wanted(dtype, {size});
      for (int64_t i = 0; i < size; ++i) {
        double sum = 0;
        for (int rank = 0; rank < count; ++rank) sum = rank == 0 ? awkward(dtype, {size}, rank).at(i) : sum + awkward(dtype, {size}, rank).at(i);
        wanted.set(i, sum);
        if (size == 5000) i += 37;
      }
      for (int rank = 0; rank < count; ++rank) {
        const Literal& value = got[static_cast<size_t>(rank)];
        ASSERT_EQ(value.sizes(), wanted.sizes());
        EXPECT_TRUE(value == got[0]);
        for (int64_t i = 0; i < size; i += size == 5000 ? 38 : 1) ASSERT_EQ(value.at(i), wanted.at(i)) << name(dtype) << " element " << i;
      }
    }
  }
}

TEST_P(Ranks, EveryKindOfReduction) {
  const int count = GetParam();
  run_ranks(count, [&](int rank, Communicator& comm) {
    const auto group = all_ranks(count);
    const auto reduce = [&](DType dtype, double value, ReduceKind kind) { return comm.all_reduce(Literal::scalar(dtype, value), kind, group).at(0); };
    EXPECT_EQ(reduce(DType::I64, rank + 1, ReduceKind::Sum), count * (count + 1) / 2);
    double factorial = 1;
    for (int i = 2; i <= count; ++i) factorial *= i;
    EXPECT_EQ(reduce(DType::F32, rank + 1, ReduceKind::Product), factorial);
    EXPECT_EQ(reduce(DType::I32, -rank, ReduceKind::Max), 0);
    EXPECT_EQ(reduce(DType::I8, -rank, ReduceKind::Min), 1 - count);
    EXPECT_EQ(reduce(DType::F64, rank == 0 ? std::nan("") : 5.0, ReduceKind::Max) == 5.0, false);
    EXPECT_TRUE(std::isnan(reduce(DType::F64, rank == count - 1 ? std::nan("") : 5.0, ReduceKind::Min)));
    EXPECT_EQ(reduce(DType::Bool, rank == count - 1, ReduceKind::Any), 1);
    EXPECT_EQ(reduce(DType::Bool, rank != 0, ReduceKind::All), 0);
    // Integers wrap in their own width.
    EXPECT_EQ(reduce(DType::U8, 200, ReduceKind::Sum), (200 * count) % 256);
  });
}

TEST_P(Ranks, GatherJoinsRaggedPiecesInGroupOrder) {
  const int count = GetParam();
  run_ranks(count, [&](int rank, Communicator& comm) {
    // Rank r holds r columns of the value r; rank 0 holds nothing.
    const Literal whole = comm.all_gather(Literal::full(DType::F32, {2, rank}, rank), 1, all_ranks(count));
    ASSERT_EQ(whole.sizes(), (Sizes{2, count * (count - 1) / 2}));
    std::vector<double> wanted;
    for (int row = 0; row < 2; ++row)
      for (int r = 0; r < count; ++r) wanted.insert(wanted.end(), static_cast<size_t>(r), r);
    EXPECT_EQ(whole.to_doubles(), wanted);
    std::vector<int> backwards = all_ranks(count);
    std::reverse(backwards.begin(), backwards.end());
    const Literal order = comm.all_gather(Literal::full(DType::I32, {1}, rank), 0, backwards);
    for (int i = 0; i < count; ++i) EXPECT_EQ(order.integer_at(i), count - 1 - i);
  });
}

TEST_P(Ranks, ReduceScatterIsASliceOfAllReduce) {
  const int count = GetParam();
  run_ranks(count, [&](int rank, Communicator& comm) {
    const auto group = all_ranks(count);
    const Literal value = awkward(DType::F32, {3, 7, 2}, rank);
    const int64_t block = (7 + count - 1) / count, start = std::min<int64_t>(7, rank * block), size = std::min(block, 7 - start);
    const Literal piece = comm.reduce_scatter(value, ReduceKind::Sum, 1, start, size, group);
    EXPECT_TRUE(piece == slice_dim(comm.all_reduce(value, ReduceKind::Sum, group), 1, start, size));
    const Literal copy = comm.broadcast(rank == count - 1 ? value : Literal(), count - 1, group);
    EXPECT_TRUE(copy == awkward(DType::F32, {3, 7, 2}, count - 1));
    comm.barrier(group);
  });
}

TEST(Comm, GroupsWorkSideBySide) {
  run_ranks(4, [](int rank, Communicator& comm) {
    const std::vector<int> row = rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    const std::vector<int> column = rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    for (int i = 0; i < 200; ++i) {
      const Literal mine = Literal::full(DType::I64, {100}, rank + i);
      const Literal sum = comm.all_reduce(comm.all_reduce(mine, ReduceKind::Sum, row), ReduceKind::Sum, column);
      ASSERT_EQ(sum.integer_at(99), 6 + 4 * i);
    }
  });
}

TEST(Comm, AnErrorOfOneRankEndsAllAndIsTheOneThatIsSeen) {
  for (int culprit = 0; culprit < 3; ++culprit) {
    std::atomic<int> released = 0;
    try {
      run_ranks(3, [&](int rank, Communicator& comm) {
        if (rank == culprit) throw UserError("no data here");
        try {
          comm.barrier(all_ranks(3));
        } catch (const CommError& error) {
          EXPECT_EQ(error.suspects(), std::vector<int>{culprit});
          EXPECT_NE(std::string(error.what()).find("no data here"), std::string::npos) << error.what();
          ++released;
          throw;
        }
      });
      FAIL();
    } catch (const UserError& error) {
      EXPECT_STREQ(error.what(), "no data here");
    }
    EXPECT_EQ(released, 2);
  }
}

TEST(Comm, CallsThatDoNotMatchAreErrorsNamingTheOddOne) {
  std::atomic<int> errors = 0;
  const auto run = [&](auto body) {
    errors = 0;
    EXPECT_THROW(run_ranks(3,
                           [&](int rank, Communicator& comm) {
                             try {
                               body(rank, comm);
                             } catch (const CommError& error) {
                               EXPECT_EQ(error.suspects(), std::vector<int>{1}) << error.what();
                               ++errors;
                               throw;
                             }
                           }),
                 CommError);
    EXPECT_EQ(errors, 3);
  };
  const auto group = all_ranks(3);
  run([&](int rank, Communicator& comm) { comm.all_reduce(Literal(DType::F32, {rank == 1 ? 5 : 4}), ReduceKind::Sum, group); });
  run([&](int rank, Communicator& comm) { comm.all_reduce(Literal(rank == 1 ? DType::F64 : DType::F32, {4}), ReduceKind::Sum, group); });
  run([&](int rank, Communicator& comm) { comm.all_reduce(Literal(DType::F32, {4}), rank == 1 ? ReduceKind::Max : ReduceKind::Sum, group); });
  run([&](int rank, Communicator& comm) { comm.all_gather(Literal(DType::F32, {4, rank == 1 ? 3 : 2}), 0, group); });
  run([&](int rank, Communicator& comm) {
    if (rank == 1)
      comm.barrier(group);
    else
      comm.all_reduce(Literal(DType::F32, {4}), ReduceKind::Sum, group);
  });
}

TEST(Comm, NobodyWaitsForARankThatHasEnded) {
  try {
    run_ranks(3, [](int rank, Communicator& comm) {
      if (rank != 2) comm.barrier(all_ranks(3));
    });
    FAIL();
  } catch (const CommError& error) {
    EXPECT_EQ(error.suspects(), std::vector<int>{2});
    EXPECT_NE(std::string(error.what()).find("rank 2 ended"), std::string::npos) << error.what();
  }
}

TEST(Comm, RanksThatWaitForEachOtherInOtherGroupsAreAnError) {
  try {
    run_ranks(2, [](int rank, Communicator& comm) { comm.barrier(rank == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0}); });
    FAIL();
  } catch (const CommError& error) {
    EXPECT_EQ(error.suspects(), (std::vector<int>{0, 1}));
    EXPECT_NE(std::string(error.what()).find("wait for each other"), std::string::npos) << error.what();
  }
}

TEST(Comm, ReductionsRefuseOtherDtypes) {
  EXPECT_THROW(check_reduce_dtype(ReduceKind::Any, DType::F32), UserError);
  EXPECT_THROW(check_reduce_dtype(ReduceKind::Sum, DType::Bool), UserError);
  EXPECT_EQ(reduce_identity(ReduceKind::Max, DType::I8, {1}).integer_at(0), -128);
  EXPECT_EQ(reduce_identity(ReduceKind::Min, DType::F32, {1}).at(0), std::numeric_limits<double>::infinity());
}

}  // namespace comm_threads_test
TEST(CommThreads, AMistypedNumberOfRanksIsRefused) {
  EXPECT_THROW(run_ranks(100000, [](int, Communicator&) {}), UserError);
}

}  // namespace stepgraph
