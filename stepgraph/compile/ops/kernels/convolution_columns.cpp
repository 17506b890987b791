// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/kernels/convolution_columns.h"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

/// Advances `index`, last dim fastest; false after the last one.
bool next_index(Sizes& index, const Sizes& sizes) {
  for (size_t d = index.size(); d-- > 0;) {
    if (++index[d] < sizes[d]) return true;
    index[d] = 0;
  }
  return false;
}

int64_t ceil_divide(int64_t a, int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

/// The output positions of dim d whose element at window position w lies inside x.
std::pair<int64_t, int64_t> inside(const ConvolutionSizes& sizes, size_t d, int64_t w) {
  const int64_t shift = sizes.attributes.padding_low[d] - w * sizes.attributes.dilation[d], stride = sizes.attributes.strides[d];
  const int64_t first = std::clamp<int64_t>(ceil_divide(shift, stride), 0, sizes.out[d]);
  const int64_t last = std::clamp<int64_t>(ceil_divide(sizes.in[d] + shift, stride), first, sizes.out[d]);
  return {first, last};
}

template <class T>
void fill(const std::vector<ColumnRun>& runs, int64_t length, int64_t stride, const T* x, T* columns) {
  for (const ColumnRun& run : runs) {
    T* to = columns + run.at;
    const T* from = x + run.from;
    for (int64_t i = 0; i < run.first; ++i) to[i] = 0;
    if (stride == 1) {
      for (int64_t i = run.first; i < run.last; ++i) to[i] = from[i - run.first];
    } else {
      for (int64_t i = run.first; i < run.last; ++i) to[i] = from[(i - run.first) * stride];
    }
    for (int64_t i = run.last; i < length; ++i) to[i] = 0;
  }
}

}  // namespace

ConvolutionSizes convolution_sizes(const Sizes& x, const Sizes& weight, const Convolution& op) {
  ConvolutionSizes sizes;
  sizes.samples = x[0];
  sizes.groups = op.groups;
  sizes.in_channels = weight[1];
  sizes.out_channels = weight[0] / op.groups;
  if (x[1] != weight[1] * op.groups || weight[0] % op.groups != 0)
    throw UserError(fmt::format("convolution: sizes [{}] and weight [{}] do not fit {} groups", fmt::join(x, ", "), fmt::join(weight, ", "), op.groups));
  sizes.in.assign(x.begin() + 2, x.end());
  sizes.window.assign(weight.begin() + 2, weight.end());
  sizes.attributes = op.window;
  for (size_t d = 0; d < sizes.in.size(); ++d) {
    // As Dims, whose arithmetic is checked for overflow.
    const int64_t padded = (Dim(sizes.in[d]) + op.window.padding_low[d] + op.window.padding_high[d]).constant();
    const int64_t extent = ((Dim(sizes.window[d]) - 1) * op.window.dilation[d] + 1).constant();
    if (extent > padded || sizes.window[d] < 1)
      throw UserError(fmt::format("convolution: a window of {} does not fit the padded size {} of [{}]", extent, padded, fmt::join(x, ", ")));
    sizes.out.push_back((padded - extent) / op.window.strides[d] + 1);
  }
  if (sizes.in.empty()) {
    sizes.in = sizes.window = sizes.out = {1};
    sizes.attributes = {{1}, {0}, {0}, {1}};
  }
  sizes.in_count = element_count(sizes.in), sizes.window_count = element_count(sizes.window), sizes.out_count = element_count(sizes.out);
  return sizes;
}

std::vector<ColumnRun> column_runs(const ConvolutionSizes& sizes) {
  std::vector<ColumnRun> runs;
  const size_t dims = sizes.in.size(), last_dim = dims - 1;
  const Sizes outer_sizes(sizes.out.begin(), sizes.out.end() - 1);
  const int64_t length = sizes.out.back();
  if (sizes.rows() == 0 || sizes.out_count == 0) return runs;
  runs.reserve(static_cast<size_t>(sizes.rows() * (sizes.out_count / length)));
  for (int64_t channel = 0; channel < sizes.in_channels; ++channel) {
    Sizes window(dims, 0);
    do {
      const auto [first, last] = inside(sizes, last_dim, window[last_dim]);
      Sizes outer(last_dim, 0);
      do {
        bool is_inside = first < last;
        int64_t from = channel;
        for (size_t d = 0; d < dims && is_inside; ++d) {
          const int64_t o = d == last_dim ? first : outer[d];
          const int64_t position = o * sizes.attributes.strides[d] - sizes.attributes.padding_low[d] + window[d] * sizes.attributes.dilation[d];
          is_inside = position >= 0 && position < sizes.in[d];
          if (is_inside) from = from * sizes.in[d] + position;
        }
        runs.push_back(is_inside ? ColumnRun{static_cast<int64_t>(runs.size()) * length, first, last, from}
                                 : ColumnRun{static_cast<int64_t>(runs.size()) * length, 0, 0, 0});
      } while (next_index(outer, outer_sizes));
    } while (next_index(window, sizes.window));
  }
  return runs;
}

void fill_columns(const std::vector<ColumnRun>& runs, const ConvolutionSizes& sizes, const std::byte* x, std::byte* columns, size_t unit) {
  const int64_t length = sizes.out.back(), stride = sizes.attributes.strides.back();
  // Zero has all bits 0 in every dtype, so elements are moved by width.
  if (unit == 8) return fill(runs, length, stride, reinterpret_cast<const uint64_t*>(x), reinterpret_cast<uint64_t*>(columns));
  if (unit == 4) return fill(runs, length, stride, reinterpret_cast<const uint32_t*>(x), reinterpret_cast<uint32_t*>(columns));
  SG_CHECK(unit == 2);
  fill(runs, length, stride, reinterpret_cast<const uint16_t*>(x), reinterpret_cast<uint16_t*>(columns));
}

void add_columns(const std::vector<ColumnRun>& runs, const ConvolutionSizes& sizes, const double* columns, double* x) {
  const int64_t stride = sizes.attributes.strides.back();
  for (const ColumnRun& run : runs) {
    double* to = x + run.from;
    const double* from = columns + run.at + run.first;
    for (int64_t i = 0; i < run.last - run.first; ++i) to[i * stride] += from[i];
  }
}

}  // namespace stepgraph
