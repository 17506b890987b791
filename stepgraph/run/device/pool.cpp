// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/device/pool.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

/// Elements of a window along one dim that lie inside: numbers [first, last).
struct Inside {
  int64_t first, last, origin;
};
Inside inside_of(const PoolOperands& op, size_t d, int64_t in, int64_t position) {
  const int64_t dilation = op.dilation[d], origin = position * op.strides[d] - op.padding_low[d];
  const int64_t first = origin < 0 ? (-origin + dilation - 1) / dilation : 0;
  const int64_t last = origin >= in ? 0 : std::min(op.size[d], (in - 1 - origin) / dilation + 1);
  return {first, std::max(first, last), origin};
}

/// best = the larger one of it and x; place = where that stands. A stride of 0: the one that is given.
template <int64_t fixed_stride>
void take_larger(const float* x, int64_t given_stride, int64_t count, int32_t place, float* best, int32_t* places) {
  const int64_t stride = fixed_stride == 0 ? given_stride : fixed_stride;
  for (int64_t i = 0; i < count; ++i) {
    const float next = x[i * stride], old = best[i];
    const bool takes = !(next <= old) & (old == old);
    best[i] = takes ? next : old;
    places[i] = takes ? place : places[i];
  }
}
void take_larger(const float* x, int64_t stride, int64_t count, int32_t place, float* best, int32_t* places) {
  if (stride == 1) return take_larger<1>(x, 1, count, place, best, places);
  if (stride == 2) return take_larger<2>(x, 2, count, place, best, places);
  take_larger<0>(x, stride, count, place, best, places);
}

}  // namespace

PoolWork::PoolWork(PoolOperands operands) : operands_(std::move(operands)) {
  const bool is_gradient = operands_.pass == PoolPass::AverageGradient;
  const Sizes &x = is_gradient ? operands_.out : operands_.a, &y = is_gradient ? operands_.a : operands_.out;
  const Sizes in(x.begin() + 2, x.end()), result(y.begin() + 2, y.end());
  in_elements_ = element_count(in), results_ = element_count(result);
  in_width_ = in.back(), width_ = result.back(), stride_ = operands_.strides.back();
  for (const int64_t size : operands_.size) window_elements_ *= static_cast<double>(size);
  if (results_ == 0) return;
  find_rows(in, result);
  find_columns(in.back(), result.back());
}

void PoolWork::find_rows(const Sizes& in, const Sizes& result) {
  const size_t dims = in.size() - 1;
  const int64_t rows = results_ / width_;
  std::vector<Inside> inside(dims);
  Sizes at(dims);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row;
    bool any = true;
    for (size_t d = dims; d-- > 0; rest /= result[d]) {
      inside[d] = inside_of(operands_, d, in[d], rest % result[d]);
      at[d] = inside[d].first;
      any = any && inside[d].first < inside[d].last;
    }
    while (any) {
      WindowRow found;
      for (size_t d = 0; d < dims; ++d) {
        found.row = found.row * in[d] + inside[d].origin + at[d] * operands_.dilation[d];
        found.place = found.place * operands_.size[d] + at[d];
      }
      found.place *= operands_.size[dims];
      window_rows_.push_back(found);
      size_t d = dims;
      while (d > 0 && ++at[d - 1] == inside[d - 1].last) at[d - 1] = inside[d - 1].first, --d;
      any = d > 0;
    }
    if (operands_.pass == PoolPass::Max && window_rows_.size() == (ends_.empty() ? 0 : ends_.back()))
      throw UserError("max_pool: a window lies outside its elements");
    ends_.push_back(window_rows_.size());
  }
}

void PoolWork::find_columns(int64_t in, int64_t result) {
  const size_t d = operands_.size.size() - 1;
  const int64_t size = operands_.size[d];
  columns_.assign(static_cast<size_t>(size), {result, 0, 0});
  for (int64_t k = 0; k < size; ++k) columns_[static_cast<size_t>(k)].shift = k * operands_.dilation[d] - operands_.padding_low[d];
  for (int64_t column = 0; column < result; ++column) {
    const Inside inside = inside_of(operands_, d, in, column);
    if (operands_.pass == PoolPass::Max && inside.first == inside.last) throw UserError("max_pool: a window lies outside its elements");
    first_inside_.push_back(static_cast<int32_t>(inside.first));
    inside_.push_back(inside.last - inside.first);
    for (int64_t k = inside.first; k < inside.last; ++k) {
      Columns& columns = columns_[static_cast<size_t>(k)];
      columns.first = std::min(columns.first, column), columns.last = column + 1;
    }
  }
  for (Columns& columns : columns_) columns.last = std::max(columns.first, columns.last);
}

size_t PoolWork::scratch_bytes() const {
  switch (operands_.pass) {
    case PoolPass::Max: return static_cast<size_t>(width_) * sizeof(int32_t);
    case PoolPass::Average: return static_cast<size_t>(width_) * sizeof(double);
    case PoolPass::AverageGradient: return static_cast<size_t>(in_elements_ + width_) * sizeof(double);
  }
  return 0;
}

void PoolWork::run(const float* a, float* out, void* places, int64_t begin, int64_t end, void* scratch) const {
  const auto place_bytes = static_cast<int64_t>(size_bytes(operands_.places_dtype));
  for (int64_t plane = begin; plane < end; ++plane) {
    switch (operands_.pass) {
      case PoolPass::Max:
        run_max(a + plane * in_elements_, out + plane * results_, static_cast<std::byte*>(places) + plane * results_ * place_bytes,
                static_cast<int32_t*>(scratch));
        break;
      case PoolPass::Average: run_average(a + plane * in_elements_, out + plane * results_, static_cast<double*>(scratch)); break;
      case PoolPass::AverageGradient: run_gradient(a + plane * results_, out + plane * in_elements_, static_cast<double*>(scratch)); break;
    }
  }
}

void PoolWork::run_max(const float* x, float* out, void* places, int32_t* best) const {
  size_t next = 0;
  for (size_t row = 0; row < ends_.size(); ++row) {
    float* const to = out + static_cast<int64_t>(row) * width_;
    std::fill_n(to, width_, -std::numeric_limits<float>::infinity());
    for (int64_t i = 0; i < width_; ++i) best[i] = static_cast<int32_t>(window_rows_[next].place) + first_inside_[static_cast<size_t>(i)];
    for (; next < ends_[row]; ++next) {
      const WindowRow& window = window_rows_[next];
      const float* const from = x + window.row * in_width_;
      for (size_t k = 0; k < columns_.size(); ++k) {
        const Columns& columns = columns_[k];
        if (columns.first == columns.last) continue;
        take_larger(from + columns.first * stride_ + columns.shift, stride_, columns.last - columns.first,
                    static_cast<int32_t>(window.place) + static_cast<int32_t>(k), to + columns.first, best + columns.first);
      }
    }
    store_places(best, places, static_cast<int64_t>(row) * width_);
  }
}
void PoolWork::store_places(const int32_t* from, void* to, int64_t first) const {
  if (operands_.places_dtype == DType::U8)
    for (int64_t i = 0; i < width_; ++i) static_cast<uint8_t*>(to)[first + i] = static_cast<uint8_t>(from[i]);
  else
    std::copy_n(from, width_, static_cast<int32_t*>(to) + first);
}

double PoolWork::divisor(size_t row, int64_t column) const {
  if (operands_.count_padding) return window_elements_;
  const size_t rows = ends_[row] - (row == 0 ? 0 : ends_[row - 1]);
  return static_cast<double>(std::max<int64_t>(static_cast<int64_t>(rows) * inside_[static_cast<size_t>(column)], 1));
}

void PoolWork::run_average(const float* x, float* out, double* sums) const {
  size_t next = 0;
  for (size_t row = 0; row < ends_.size(); ++row) {
    std::fill_n(sums, width_, 0.0);
    for (; next < ends_[row]; ++next) {
      const float* const from = x + window_rows_[next].row * in_width_;
      for (const Columns& columns : columns_)
        for (int64_t i = columns.first; i < columns.last; ++i) sums[i] += static_cast<double>(from[i * stride_ + columns.shift]);
    }
    float* const to = out + static_cast<int64_t>(row) * width_;
    for (int64_t i = 0; i < width_; ++i) to[i] = static_cast<float>(sums[i] / divisor(row, i));
  }
}

/// To each element its results in their order: of one row, the last number in the window belongs to the first of them.
void PoolWork::run_gradient(const float* gradient, float* out, double* sums) const {
  std::fill_n(sums, in_elements_, 0.0);
  double* const shares = sums + in_elements_;
  size_t next = 0;
  for (size_t row = 0; row < ends_.size(); ++row) {
    const float* const from = gradient + static_cast<int64_t>(row) * width_;
    for (int64_t i = 0; i < width_; ++i) shares[i] = static_cast<double>(from[i]) / divisor(row, i);
    for (; next < ends_[row]; ++next) {
      double* const to = sums + window_rows_[next].row * in_width_;
      for (size_t k = columns_.size(); k-- > 0;) {
        const Columns& columns = columns_[k];
        for (int64_t i = columns.first; i < columns.last; ++i) to[i * stride_ + columns.shift] += shares[i];
      }
    }
  }
  for (int64_t i = 0; i < in_elements_; ++i) out[i] = static_cast<float>(sums[i]);
}

}  // namespace stepgraph
