// SPDX-License-Identifier: Apache-2.0
// What is behind instructions, libraries and loops of our own, can do, as a compiler has to know it: what they cannot is left to an EvaluateCall.
#pragma once
#include <functional>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

/// Whether rows (or columns) that lie `stride` apart hold `size` elements each without overlapping: of numbers stride >= size; of Dims what can be proved.
using Reaches = std::function<bool(const Dim& stride, const Dim& size)>;
/// The last two dims are a matrix as libraries take it: one without gaps, the other in steps that reach over it. (A library that is given another stride writes
/// nothing and says so nowhere.)
bool is_matrix(const View& view, const Reaches& reaches);
/// The same with the last dim the one without gaps.
bool has_rows(const View& view, const Reaches& reaches);
/// UserError naming the operand of a MatMulCall or an AttentionCall that is none.
void check_matrices(const InstructionOp& op, const Reaches& reaches);

/// Of 1 to 3 spatial dims, without negative padding, and with channels that are cut into equal groups.
bool convolution_supported(const ConvolutionCall& call);
/// Numbers of any dtype, by integers.
bool scatter_supported(const ScatterCall& call);
/// Numbers of any dtype; logarithms of sums floating.
bool scan_supported(const ScanCall& call);

}  // namespace stepgraph
