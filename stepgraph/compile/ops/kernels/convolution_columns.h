// SPDX-License-Identifier: Apache-2.0
// Convolution as matrix products (im2col): for one sample and group, the matrix of all window positions, [channels * window, output positions].
// Chellapilla, Puri, Simard, "High performance convolutional neural networks for document processing" (2006).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>
#include "stepgraph/compile/ir/op.h"

namespace stepgraph {

/// Sizes of a convolution, from x, weight and the attributes. At least one spatial dim: one of size 1 is added when there is none.
struct ConvolutionSizes {
  int64_t samples = 0, groups = 1, in_channels = 0, out_channels = 0;  // channels of one group
  Sizes in, window, out;                                               // spatial
  Window attributes;
  int64_t in_count = 1, window_count = 1, out_count = 1;
  int64_t rows() const { return in_channels * window_count; }
};
/// UserError when the sizes do not go together, or the window is larger than the padded input.
ConvolutionSizes convolution_sizes(const Sizes& x, const Sizes& weight, const Convolution& op);

/// Elements [at + first, at + last) of the matrix are x[from], x[from + stride], ...; the rest of the run is padding.
struct ColumnRun {
  int64_t at, first, last, from;
};
/// All runs of the matrix in order; each is out.back() long.
std::vector<ColumnRun> column_runs(const ConvolutionSizes& sizes);
/// x: the group's channels of one sample, elements of `unit` bytes.
void fill_columns(const std::vector<ColumnRun>& runs, const ConvolutionSizes& sizes, const std::byte* x, std::byte* columns, size_t unit);
/// The transpose: adds each element of the matrix to the element of x that it came from.
void add_columns(const std::vector<ColumnRun>& runs, const ConvolutionSizes& sizes, const double* columns, double* x);

}  // namespace stepgraph
