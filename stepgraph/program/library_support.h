// SPDX-License-Identifier: Apache-2.0
// What the libraries behind instructions can do, as a compiler has to know it: what they cannot is left to an EvaluateCall.
#pragma once
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

/// Of 1 to 3 spatial dims, without negative padding, and with channels that are cut into equal groups.
bool convolution_supported(const ConvolutionCall& call);

}  // namespace stepgraph
