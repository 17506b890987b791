// SPDX-License-Identifier: Apache-2.0
// A PoolCall with its sizes known. A piece is a channel of an image. Results are the oracle's to the bit: the first of equal elements, NaN above all, sums in
// f64 in the order of the window.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>
#include "stepgraph/program/step_plan.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

struct PoolOperands {
  PoolPass pass{};
  Sizes a, out;  ///< dense
  DType places_dtype = DType::U8;
  std::vector<int64_t> size, strides, padding_low, padding_high, dilation;
  bool count_padding = false;
};

class PoolWork {
 public:
  /// UserError for a window of which nothing lies inside, where a largest element is wanted.
  explicit PoolWork(PoolOperands operands);
  int64_t pieces() const { return operands_.out[0] * operands_.out[1]; }
  size_t scratch_bytes() const;
  void run(const float* a, float* out, void* places, int64_t begin, int64_t end, void* scratch) const;

 private:
  /// A row of the plane that a row of results reads, and the place in the window of its first element.
  struct WindowRow {
    int64_t row = 0, place = 0;
  };
  /// Results [first, last) of a row, whose element number k of a window row lies inside.
  struct Columns {
    int64_t first = 0, last = 0, shift = 0;  ///< element = stride * result + shift
  };
  void find_rows(const Sizes& in, const Sizes& result);
  void find_columns(int64_t in, int64_t result);
  void run_max(const float* x, float* out, void* places, int32_t* best) const;
  void store_places(const int32_t* from, void* to, int64_t first) const;
  void run_average(const float* x, float* out, double* sums) const;
  void run_gradient(const float* gradient, float* out, double* sums) const;
  double divisor(size_t row, int64_t column) const;

  PoolOperands operands_;
  int64_t in_elements_ = 1, results_ = 1;          // of a plane
  int64_t in_width_ = 1, width_ = 1, stride_ = 1;  // of rows
  double window_elements_ = 1;
  std::vector<WindowRow> window_rows_;
  std::vector<size_t> ends_;           // of a row of results, in window_rows_
  std::vector<Columns> columns_;       // by number in the window row
  std::vector<int32_t> first_inside_;  // by column: the first number that lies inside
  std::vector<int64_t> inside_;        // and how many do
};

}  // namespace stepgraph
