// SPDX-License-Identifier: Apache-2.0
// Matrix products by libraries, against plain loops; and that neither threads nor places in memory change a bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/run/device/gemm.h"
#include "stepgraph/tensor/philox.h"

namespace stepgraph {
namespace gemm_test {

const float nan = std::numeric_limits<float>::quiet_NaN();

template <class T>
std::vector<T> drawn(int64_t count, uint64_t key) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(normal_element(key, i));
  return values;
}

class Gemm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_libraries()) GTEST_SKIP() << "a build without libraries";
    load_libraries({});
    use_no_library_threads();
  }
};

template <class T>
void check(GemmLibrary library, const GemmShape& s, bool accumulate) {
  const int64_t a_rows = s.transpose_a ? s.k : s.m, b_rows = s.transpose_b ? s.n : s.k;
  const std::vector<T> a = drawn<T>(a_rows * s.lda, 1), b = drawn<T>(b_rows * s.ldb, 2);
  std::vector<T> c = accumulate ? drawn<T>(s.m * s.ldc, 3) : std::vector<T>(static_cast<size_t>(s.m * s.ldc), static_cast<T>(nan));
  const std::vector<T> before = c;
  gemm(library, sizeof(T) == 4 ? DType::F32 : DType::F64, s, a.data(), b.data(), accumulate, c.data());
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.ldc; ++j) {
      const auto at = static_cast<size_t>(i * s.ldc + j);
      if (j >= s.n) {
        ASSERT_EQ(std::memcmp(&c[at], &before[at], sizeof(T)), 0) << "beyond the row";
        continue;
      }
      double wanted = accumulate ? static_cast<double>(before[at]) : 0, size = std::abs(wanted);
      for (int64_t k = 0; k < s.k; ++k) {
        const double product = static_cast<double>(a[static_cast<size_t>(s.transpose_a ? k * s.lda + i : i * s.lda + k)]) *
                               static_cast<double>(b[static_cast<size_t>(s.transpose_b ? j * s.ldb + k : k * s.ldb + j)]);
        wanted += product, size += std::abs(product);
      }
      ASSERT_NEAR(static_cast<double>(c[at]), wanted, size * (sizeof(T) == 4 ? 1e-6 : 1e-14))
          << s.m << " x " << s.n << " x " << s.k << " at " << i << ", " << j;
    }
  }
}

TEST_F(Gemm, IsAProductForEveryShapeAndOrientation) {
  for (const GemmLibrary library : {GemmLibrary::OpenBlas, GemmLibrary::OneDnn}) {
    for (const auto& [m, n, k] :
         {std::tuple(1, 1, 1), {1, 17, 5}, {17, 1, 5}, {3, 4, 0}, {0, 4, 3}, {4, 0, 3}, {1, 1, 300}, {16, 16, 16}, {33, 65, 129}, {64, 7, 400}, {2, 100, 2}}) {
      for (int flags = 0; flags < 16; ++flags) {
        const bool gaps = (flags & 8) != 0;
        GemmShape s{(flags & 1) != 0, (flags & 2) != 0, m, n, k};
        s.lda = std::max<int64_t>(s.transpose_a ? m : k, 1) + (gaps ? 3 : 0);
        s.ldb = std::max<int64_t>(s.transpose_b ? k : n, 1) + (gaps ? 5 : 0);
        s.ldc = std::max<int64_t>(n, 1) + (gaps ? 1 : 0);
        check<float>(library, s, (flags & 4) != 0);
        check<double>(library, s, (flags & 4) != 0);
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Runs pieces in runs of `step`.
std::vector<float> product(const MatMulWork& matmul, const float* a, const float* b, size_t count, int64_t step) {
  std::vector<float> c(count, nan);
  for (int64_t piece = 0; piece < matmul.pieces(); piece += step) matmul.run(a, b, c.data(), piece, std::min(piece + step, matmul.pieces()));
  return c;
}
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_F(Gemm, NeitherTheDealOfPiecesNorThePlaceInMemoryChangesABit) {
  for (const GemmLibrary library : {GemmLibrary::OpenBlas, GemmLibrary::OneDnn}) {
    for (const auto& [m, n, k] : {std::tuple(300, 40, 96), {40, 300, 96}, {512, 130, 384}, {5, 7, 9}, {1100, 3, 64}}) {
      const MatMulWork matmul(library, DType::F32, false, {{m, k}, {k, 1}}, {{k, n}, {1, k}}, {{m, n}, {n, 1}});
      EXPECT_GE(matmul.pieces(), std::max(m, n) > 256 ? 3 : 1);
      const std::vector<float> a = drawn<float>(m * k, 1), b = drawn<float>(n * k, 2);
      const std::vector<float> whole = product(matmul, a.data(), b.data(), static_cast<size_t>(m * n), 1000);
      EXPECT_TRUE(std::none_of(whole.begin(), whole.end(), [](float x) { return std::isnan(x); }));
      for (const int64_t step : {1, 2, 3}) EXPECT_TRUE(same_bits(whole, product(matmul, a.data(), b.data(), whole.size(), step)));
      for (const size_t shift : {1, 3, 5, 16}) {
        std::vector<float> a_moved(shift), b_moved(shift);
        a_moved.insert(a_moved.end(), a.begin(), a.end()), b_moved.insert(b_moved.end(), b.begin(), b.end());
        EXPECT_TRUE(same_bits(whole, product(matmul, a_moved.data() + shift, b_moved.data() + shift, whole.size(), 1)));
      }
    }
  }
}

TEST_F(Gemm, APlanMaySayThePieces) {
  const int64_t m = 100, n = 70, k = 48;
  const std::vector<float> a = drawn<float>(m * k, 1), b = drawn<float>(n * k, 2);
  const auto work = [&](std::optional<GemmCut> cut, bool by_columns) {
    return MatMulWork(GemmLibrary::OneDnn, DType::F32, false, {{m, k}, {k, 1}}, {{k, n}, {1, k}}, {{m, n}, by_columns ? Sizes{1, m} : Sizes{n, 1}}, cut);
  };
  for (const bool by_columns : {false, true}) {
    const std::vector<float> wanted = product(work({}, by_columns), a.data(), b.data(), static_cast<size_t>(m * n), 1);
    for (const auto& [cut, pieces] :
         {std::pair(GemmCut{true, 1}, 1), {GemmCut{true, 2}, 2}, {GemmCut{false, 4}, by_columns ? 4 : 3}, {GemmCut{true, 1000}, by_columns ? 5 : 7}}) {
      const MatMulWork matmul = work(cut, by_columns);
      EXPECT_EQ(matmul.pieces(), pieces);
      const std::vector<float> found = product(matmul, a.data(), b.data(), wanted.size(), 1);
      for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(found[i], wanted[i], 1e-4) << i;
    }
  }
}

/// Batches in any layout: [batch, heads, rows, columns] as a view of [batch, rows, heads, columns], operands that are one for all, results stored by columns.
TEST_F(Gemm, BatchesMayBeStridedAndShared) {
  const int64_t batch = 3, heads = 2, m = 20, n = 12, k = 9;
  const std::vector<float> a = drawn<float>(batch * m * heads * k, 1), b = drawn<float>(heads * k * n, 2);
  for (const bool by_columns : {false, true}) {
    const StridedOperand lhs{{batch, heads, m, k}, {m * heads * k, k, heads * k, 1}}, rhs{{batch, heads, k, n}, {0, k * n, 1, k}};
    const StridedOperand out{{batch, heads, m, n}, by_columns ? Sizes{heads * m * n, m * n, 1, m} : Sizes{heads * m * n, m * n, n, 1}};
    const MatMulWork matmul(GemmLibrary::OpenBlas, DType::F32, false, lhs, rhs, out);
    const std::vector<float> c = product(matmul, a.data(), b.data(), static_cast<size_t>(batch * heads * m * n), 2);
    const auto at = [](const StridedOperand& operand, int64_t i, int64_t j, int64_t r, int64_t s) {
      return static_cast<size_t>(i * operand.strides[0] + j * operand.strides[1] + r * operand.strides[2] + s * operand.strides[3]);
    };
    for (int64_t i = 0; i < batch * heads * m * n; ++i) {
      const int64_t s = i % n, r = i / n % m, j = i / n / m % heads, o = i / n / m / heads;
      double wanted = 0;
      for (int64_t e = 0; e < k; ++e) wanted += static_cast<double>(a[at(lhs, o, j, r, e)]) * static_cast<double>(b[at(rhs, o, j, e, s)]);
      ASSERT_NEAR(static_cast<double>(c[at(out, o, j, r, s)]), wanted, 1e-5);
    }
  }
}

TEST_F(Gemm, LibrariesServeOneKindOfInstructions) {
  load_libraries({});
  EXPECT_THROW(load_libraries({.isa = InstructionSet::Avx512}), UserError);
}

TEST_F(Gemm, EmptyProducts) {
  const MatMulWork none(GemmLibrary::OpenBlas, DType::F32, false, {{0, 4}, {4, 1}}, {{4, 3}, {3, 1}}, {{0, 3}, {3, 1}});
  EXPECT_EQ(none.pieces(), 0);
  const MatMulWork no_batch(GemmLibrary::OpenBlas, DType::F32, false, {{0, 2, 4}, {8, 4, 1}}, {{0, 4, 3}, {12, 3, 1}}, {{0, 2, 3}, {6, 3, 1}});
  EXPECT_EQ(no_batch.pieces(), 0);
  const MatMulWork zeros(GemmLibrary::OpenBlas, DType::F32, false, {{2, 0}, {0, 1}}, {{0, 3}, {3, 1}}, {{2, 3}, {3, 1}});
  EXPECT_TRUE(same_bits(product(zeros, nullptr, nullptr, 6, 9), std::vector<float>(6, 0.0F)));
}

}  // namespace gemm_test
}  // namespace stepgraph
