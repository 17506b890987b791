// SPDX-License-Identifier: Apache-2.0
// What is behind instructions, libraries and loops of our own, can do, as a compiler has to know it: what they cannot is left to an EvaluateCall.
#pragma once
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

/// Of 1 to 3 spatial dims, without negative padding, and with channels that are cut into equal groups.
bool convolution_supported(const ConvolutionCall& call);
/// Numbers of any dtype, by integers.
bool scatter_supported(const ScatterCall& call);
/// Numbers of any dtype; logarithms of sums floating.
bool scan_supported(const ScanCall& call);

}  // namespace stepgraph
