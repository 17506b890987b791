// SPDX-License-Identifier: Apache-2.0
// A ScanCall with its sizes known: each column from one end to the other, threads take columns.
#pragma once
#include <cstdint>
#include "stepgraph/program/step_plan.h"
#include "stepgraph/run/device/gemm.h"

namespace stepgraph {

struct ScanOperands {
  ScanKind kind{};
  DType dtype = DType::F32;
  bool reverse = false;
  StridedOperand x;  ///< [outer, length, inner]; the result is dense
};

class ScanWork {
 public:
  explicit ScanWork(ScanOperands operands);
  int64_t pieces() const;
  void run(const void* x, void* out, int64_t begin, int64_t end) const;

 private:
  ScanOperands operands_;
  int64_t blocks_;  // of columns
};

}  // namespace stepgraph
