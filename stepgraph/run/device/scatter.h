// SPDX-License-Identifier: Apache-2.0
// A ScatterCall with its sizes known. Each piece owns a part of the result, columns or rows, and takes the updates that fall into it in their order: threads
// take pieces, and any number of them gives the same bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include "stepgraph/program/step_plan.h"
#include "stepgraph/run/device/gemm.h"

namespace stepgraph {

struct ScatterOperands {
  ScatterKind kind{};
  DType dtype = DType::F32, index_dtype = DType::I64;
  Sizes out;  ///< [outer, size, inner], dense
  std::optional<StridedOperand> base;
  StridedOperand index, updates;
  bool in_place = false;  ///< the base is out
};
struct ScatterPointers {
  const void *base, *index, *updates;
  void* out;
};

class ScatterWork {
 public:
  explicit ScatterWork(ScatterOperands operands);
  int64_t pieces() const;
  size_t scratch_bytes() const;
  /// An index out of bounds is left out; `status` as that of FormCode.
  void run(const ScatterPointers& pointers, int64_t begin, int64_t end, void* scratch, int64_t* status) const;

 private:
  ScatterOperands operands_;
  int64_t outer_, size_, count_, inner_;
  bool one_index_;                              // for all of a row
  int64_t rows_ = 1, columns_ = 1;              // of a piece
  int64_t row_blocks_ = 1, column_blocks_ = 1;  // one of them 1
};

}  // namespace stepgraph
