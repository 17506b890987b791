// SPDX-License-Identifier: Apache-2.0
// MatMul against the definition: one sequential sum over the inner indices for each element, in f64, rounded once. Bits must agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {
namespace ops_matmul_test {

Literal numbers(DType dtype, const Sizes& sizes, uint64_t seed) {
  Literal value(dtype, sizes);
  for (int64_t i = 0; i < value.count(); ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    if (is_floating(dtype))
      value.set(i, static_cast<double>(static_cast<int64_t>(seed >> 11)) / 9007199254740992.0 - 0.5);
    else
      value.set_integer(i, static_cast<int64_t>(seed >> 20));
  }
  return value;
}
TensorType type_of(const Literal& value) { return {value.dtype(), Shape(value.sizes().begin(), value.sizes().end()), {}}; }

Literal multiply(const MatMul& op, const Literal& a, const Literal& b) {
  const std::vector<TensorType> types = infer_types(op, std::vector<TensorType>{type_of(a), type_of(b)}, Module{});
  const std::vector<Literal> inputs = {a, b};
  return op_info(op).evaluate({op, inputs, types}).at(0);
}

bool next(Sizes& index, const Sizes& sizes) {
  for (size_t d = sizes.size(); d-- > 0;) {
    if (++index[d] < sizes[d]) return true;
    index[d] = 0;
  }
  return false;
}
int64_t offset(const Sizes& index, const Sizes& sizes) {
  int64_t result = 0;
  for (size_t d = 0; d < sizes.size(); ++d) result = result * sizes[d] + index[d];
  return result;
}
std::vector<size_t> free_dims(size_t rank, const std::vector<int64_t>& batch, const std::vector<int64_t>& contract) {
  std::vector<size_t> result;
  for (size_t d = 0; d < rank; ++d)
    if (std::count(batch.begin(), batch.end(), d) + std::count(contract.begin(), contract.end(), d) == 0) result.push_back(d);
  return result;
}

Literal naive(const MatMul& op, const Literal& a, const Literal& b) {
  const auto lhs_free = free_dims(a.rank(), op.lhs_batch, op.lhs_contract), rhs_free = free_dims(b.rank(), op.rhs_batch, op.rhs_contract);
  Sizes sizes, inner;
  for (const int64_t d : op.lhs_batch) sizes.push_back(a.sizes()[static_cast<size_t>(d)]);
  for (const size_t d : lhs_free) sizes.push_back(a.sizes()[d]);
  for (const size_t d : rhs_free) sizes.push_back(b.sizes()[d]);
  for (const int64_t d : op.lhs_contract) inner.push_back(a.sizes()[static_cast<size_t>(d)]);
  Literal result(a.dtype(), sizes);
  if (result.count() == 0) return result;
  Sizes index(sizes.size(), 0);
  do {
    Sizes i(a.rank()), j(b.rank()), k(inner.size(), 0);
    size_t at = 0;
    for (size_t p = 0; p < op.lhs_batch.size(); ++p, ++at) i[static_cast<size_t>(op.lhs_batch[p])] = j[static_cast<size_t>(op.rhs_batch[p])] = index[at];
    for (const size_t d : lhs_free) i[d] = index[at++];
    for (const size_t d : rhs_free) j[d] = index[at++];
    double sum = 0;
    uint64_t integer = 0;
    if (element_count(inner) > 0) {
      do {
        for (size_t p = 0; p < inner.size(); ++p) i[static_cast<size_t>(op.lhs_contract[p])] = j[static_cast<size_t>(op.rhs_contract[p])] = k[p];
        const int64_t x = offset(i, a.sizes()), y = offset(j, b.sizes());
        if (is_floating(a.dtype()))
          sum += a.at(x) * b.at(y);
        else
          integer += static_cast<uint64_t>(a.integer_at(x)) * static_cast<uint64_t>(b.integer_at(y));
      } while (next(k, inner));
    }
    if (is_floating(a.dtype()))
      result.set(offset(index, sizes), sum);
    else
      result.set_integer(offset(index, sizes), static_cast<int64_t>(integer));
  } while (next(index, sizes));
  return result;
}

struct Case {
  Sizes a, b;
  MatMul op;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> result = {
      {{3, 4}, {4, 6}, {{}, {}, {1}, {0}}},
      {{1, 1}, {1, 1}, {{}, {}, {1}, {0}}},
      {{}, {}, {{}, {}, {}, {}}},
      {{5}, {5}, {{}, {}, {0}, {0}}},
      {{5}, {7}, {{}, {}, {}, {}}},
      {{9, 4}, {11, 4}, {{}, {}, {1}, {1}}},
      {{4, 9}, {4, 11}, {{}, {}, {0}, {0}}},
      {{0, 4}, {4, 3}, {{}, {}, {1}, {0}}},
      {{2, 0}, {0, 3}, {{}, {}, {1}, {0}}},
      {{3, 4}, {4, 0}, {{}, {}, {1}, {0}}},
      {{2, 3, 4}, {2, 4, 5}, {{0}, {0}, {2}, {1}}},
      {{3, 2, 4}, {4, 5, 2}, {{1}, {2}, {2}, {0}}},
      {{2, 3, 4, 5}, {5, 2, 6, 4}, {{0}, {1}, {2, 3}, {3, 0}}},  // inner dims in another order on each side
      {{2, 3, 4, 5}, {5, 2, 6, 4}, {{0}, {1}, {3, 2}, {0, 3}}},
      {{2, 3, 2}, {3, 2, 2}, {{0, 1}, {1, 0}, {}, {}}},
      {{3, 5, 2, 4}, {4, 3}, {{}, {}, {3}, {0}}},  // several free dims
      {{3, 4}, {2, 4, 3, 2}, {{}, {}, {0, 1}, {2, 1}}},
      {{67, 9}, {9, 13}, {{}, {}, {1}, {0}}},    // across row blocks
      {{5, 519}, {519, 9}, {{}, {}, {1}, {0}}},  // across inner blocks
      {{6, 7}, {7, 261}, {{}, {}, {1}, {0}}},    // across column blocks
      {{1030, 3}, {3, 5}, {{}, {}, {1}, {0}}},   // across blocks of sums
  };
  return result;
}

TEST(MatMul, EveryElementIsOneSequentialSum) {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I64, DType::I32, DType::I8, DType::U8}) {
    for (size_t c = 0; c < cases().size(); ++c) {
      const Case& test = cases()[c];
      const Literal a = numbers(dtype, test.a, 2 * c + 1), b = numbers(dtype, test.b, 2 * c + 2);
      EXPECT_TRUE(multiply(test.op, a, b) == naive(test.op, a, b)) << name(dtype) << " case " << c;
    }
  }
}

TEST(MatMul, NotANumberStaysInItsRow) {
  Literal a = Literal::full(DType::F32, {6, 3}, 1), b = Literal::full(DType::F32, {3, 10}, 2);
  a.set(4 * 3 + 1, std::numeric_limits<double>::quiet_NaN());
  b.set(2, std::numeric_limits<double>::infinity());
  const Literal result = multiply({{}, {}, {1}, {0}}, a, b);
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 10; ++j) {
      const double value = result.at(i * 10 + j);
      if (i == 4) {
        EXPECT_TRUE(std::isnan(value));
      } else {
        EXPECT_EQ(value, j == 2 ? std::numeric_limits<double>::infinity() : 6.0);
      }
    }
}

std::string error_of(const MatMul& op, const TensorType& a, const TensorType& b) {
  try {
    infer_types(op, std::vector<TensorType>{a, b}, Module{});
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MatMul, ErrorsNameTheShapes) {
  const TensorType a{DType::F32, {4, 512}, {}}, b{DType::F32, {768, 3}, {}};
  EXPECT_EQ(error_of({{}, {}, {1}, {0}}, a, b), "matmul: inner dims differ, 512 and 768, in f32[4, 512] and f32[768, 3]");
  EXPECT_EQ(error_of({{}, {}, {1}, {0}}, a, {DType::BF16, {512, 3}, {}}), "matmul: dtypes differ, f32[4, 512] and bf16[512, 3]");
  EXPECT_EQ(error_of({{}, {}, {1}, {}}, a, b), "matmul: 1 inner dims of f32[4, 512], but 0 of f32[768, 3]");
  EXPECT_EQ(error_of({{0}, {0}, {0}, {0}}, a, a), "matmul: dim 0 of the left side f32[4, 512] is named twice");
  EXPECT_EQ(error_of({{}, {}, {2}, {0}}, a, b), "matmul: dim 2 is out of range for f32[4, 512]");
}

/// The quickstart trains on this. The floor is far below what it does, so that a busy machine does not fail it.
TEST(MatMul, IsNotSlow) {
  const Literal a = numbers(DType::F32, {1024, 64}, 1), b = numbers(DType::F32, {64, 256}, 2);
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Literal result = multiply({{}, {}, {1}, {0}}, a, b);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    ASSERT_EQ(result.count(), 1024 * 256);
  }
  const double gflops = 2.0 * 1024 * 64 * 256 / best * 1e-9;
  RecordProperty("gflops", std::to_string(gflops));
#if defined(NDEBUG)
  EXPECT_GT(gflops, 0.5);
#endif
  std::printf("matmul 1024 x 64 x 256 f32: %.1f GFLOP/s\n", gflops);
}

}  // namespace ops_matmul_test
}  // namespace stepgraph
