// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/device/gemm.h"

#include <algorithm>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

/// How an operand's matrices are stored: by rows, or by columns and then transposed.
struct Storage {
  bool transposed = false;
  int64_t stride = 1;
};
Storage storage_of(const StridedOperand& operand) {
  const size_t rank = operand.sizes.size();
  const int64_t rows = operand.sizes[rank - 2], columns = operand.sizes[rank - 1];
  const int64_t row_stride = operand.strides[rank - 2], column_stride = operand.strides[rank - 1];
  SG_CHECK(rows == 0 || columns == 0 || ((rows == 1 || row_stride > 0) && (columns == 1 || column_stride > 0)), "a matrix product walks forwards in memory");
  // The stride of a dim of size 1 says nothing.
  if (column_stride == 1 || columns <= 1) return {false, rows <= 1 ? std::max<int64_t>(columns, 1) : row_stride};
  SG_CHECK(row_stride == 1 || rows <= 1, "a matrix product wants rows or columns without gaps");
  return {true, column_stride};
}

/// Of the larger of rows and columns, in pieces that depend on the shape alone: quarters, which cost a library little, but none so small that packing shows and
/// none so large that more threads would wait for it.
int64_t cut_of(int64_t length) { return std::clamp<int64_t>(((length + 3) / 4 + 15) & ~int64_t{15}, 64, 1024); }
int64_t cut_of(int64_t length, int pieces) { return std::max<int64_t>(((length + pieces - 1) / pieces + 15) & ~int64_t{15}, 16); }

}  // namespace

MatMulWork::MatMulWork(GemmLibrary library, DType dtype, bool accumulate, const StridedOperand& lhs, const StridedOperand& rhs, const StridedOperand& out,
                       std::optional<GemmCut> cut)
    : library_(library), dtype_(dtype), accumulate_(accumulate) {
  const size_t rank = out.sizes.size();
  SG_CHECK(rank >= 2 && lhs.sizes.size() == rank && rhs.sizes.size() == rank, "a matrix product wants operands of one rank");
  SG_CHECK(lhs.sizes[rank - 1] == rhs.sizes[rank - 2] && lhs.sizes[rank - 2] == out.sizes[rank - 2] && rhs.sizes[rank - 1] == out.sizes[rank - 1],
           "a matrix product wants [M, K], [K, N] and [M, N]");
  Storage a = storage_of(lhs), b = storage_of(rhs), c = storage_of(out);
  shape_.m = out.sizes[rank - 2], shape_.n = out.sizes[rank - 1], shape_.k = lhs.sizes[rank - 1];
  swapped_ = c.transposed;  // C^T = B^T A^T
  if (swapped_) {
    std::swap(a, b), std::swap(shape_.m, shape_.n);
    a.transposed = !a.transposed, b.transposed = !b.transposed;
  }
  shape_.transpose_a = a.transposed, shape_.transpose_b = b.transposed;
  shape_.lda = a.stride, shape_.ldb = b.stride, shape_.ldc = c.stride;
  batch_.assign(out.sizes.begin(), out.sizes.end() - 2);
  const auto leading = [&](const StridedOperand& operand) { return Sizes(operand.strides.begin(), operand.strides.end() - 2); };
  a_batch_ = leading(swapped_ ? rhs : lhs), b_batch_ = leading(swapped_ ? lhs : rhs), c_batch_ = leading(out);
  batches_ = element_count(batch_);
  cut_rows_ = cut ? cut->rows : shape_.m >= shape_.n;
  const int64_t length = cut_rows_ ? shape_.m : shape_.n;
  if (shape_.m == 0 || shape_.n == 0) batches_ = 0;
  cut_ = cut ? cut_of(length, cut->pieces) : batches_ >= 4 ? std::max<int64_t>(length, 1) : cut_of(length);
  cuts_ = (length + cut_ - 1) / cut_;
}

void MatMulWork::run(const void* lhs, const void* rhs, void* out, int64_t begin, int64_t end) const {
  const auto unit = static_cast<int64_t>(size_bytes(dtype_));
  const auto* a = static_cast<const std::byte*>(swapped_ ? rhs : lhs);
  const auto* b = static_cast<const std::byte*>(swapped_ ? lhs : rhs);
  auto* c = static_cast<std::byte*>(out);
  for (int64_t piece = begin; piece < end; ++piece) {
    int64_t a_at = 0, b_at = 0, c_at = 0, batch = piece / cuts_;
    for (size_t d = batch_.size(); d-- > 0; batch /= batch_[d]) {
      const int64_t i = batch % batch_[d];
      a_at += i * a_batch_[d], b_at += i * b_batch_[d], c_at += i * c_batch_[d];
    }
    GemmShape part = shape_;
    const int64_t first = piece % cuts_ * cut_;
    if (cut_rows_) {
      part.m = std::min(cut_, shape_.m - first);
      a_at += shape_.transpose_a ? first : first * shape_.lda;
      c_at += first * shape_.ldc;
    } else {
      part.n = std::min(cut_, shape_.n - first);
      b_at += shape_.transpose_b ? first * shape_.ldb : first;
      c_at += first;
    }
    gemm(library_, dtype_, part, a + a_at * unit, b + b_at * unit, accumulate_, c + c_at * unit);
  }
}

}  // namespace stepgraph
