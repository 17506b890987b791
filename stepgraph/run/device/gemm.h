// SPDX-License-Identifier: Apache-2.0
// Products of matrices by libraries, one thread a call. A product is cut into pieces by its shape alone, since a library's bits depend on the shape that it is
// given, or as the plan says: threads take pieces, and any number of them gives the same bits.
#pragma once
#include <cstdint>
#include <optional>
#include "stepgraph/program/step_plan.h"
#include "stepgraph/tensor/dtype.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

/// Whether this build can (the CMake option STEPGRAPH_CODEGEN).
bool has_libraries();
/// Loads the libraries for a Target; once for all in a process. UserError if they are not there, or are in use for another instruction set already.
void load_libraries(const Target& target);
/// "onednn 2.6.3, openblas 0.3.21"
std::string library_versions();
/// To be called by each thread before its first product or convolution: libraries use no threads of their own.
void use_no_library_threads();
/// The same for as long as this lives, on a thread that is the caller's.
class NoLibraryThreads {
 public:
  NoLibraryThreads();
  ~NoLibraryThreads();
  NoLibraryThreads(const NoLibraryThreads&) = delete;
  NoLibraryThreads& operator=(const NoLibraryThreads&) = delete;

 private:
  int before_ = 0;
};

struct GemmShape {
  bool transpose_a = false, transpose_b = false;  ///< stored as [K, M], as [N, K]
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;  ///< elements from one stored row to the next
};
/// C = A B, or C += A B. Row-major. f32 and f64; products of f64 are OpenBLAS's, whatever the library. What was in C does not matter if it is not added to.
void gemm(GemmLibrary library, DType dtype, const GemmShape& shape, const void* a, const void* b, bool accumulate, void* c);

/// What a call reads or writes, from a pointer on; strides in elements.
struct StridedOperand {
  Sizes sizes, strides;
};
/// A MatMulCall with its sizes known.
class MatMulWork {
 public:
  MatMulWork(GemmLibrary library, DType dtype, bool accumulate, const StridedOperand& lhs, const StridedOperand& rhs, const StridedOperand& out,
             std::optional<GemmCut> cut = {});
  int64_t pieces() const { return batches_ * cuts_; }
  void run(const void* lhs, const void* rhs, void* out, int64_t begin, int64_t end) const;

 private:
  GemmLibrary library_;
  DType dtype_;
  bool accumulate_, swapped_ = false;
  GemmShape shape_;
  Sizes batch_, a_batch_, b_batch_, c_batch_;  // sizes; strides
  int64_t batches_ = 1, cuts_ = 1, cut_ = 0;   // of `cut_` rows, or columns, of C
  bool cut_rows_ = true;
};

}  // namespace stepgraph
