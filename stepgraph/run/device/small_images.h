// SPDX-License-Identifier: Apache-2.0
// The weight gradient of a convolution over images so small that a library's own loops have nothing to run along: one product over all positions of all images.
#pragma once
#include <memory>
#include "stepgraph/run/device/convolution.h"

namespace stepgraph {

/// Whether it is for this one: at most 8 positions, no groups, and columns that a thread can hold.
bool is_of_small_images(const ConvolutionOperands& call);
std::unique_ptr<ConvolutionWork> small_image_work(const ConvolutionOperands& call);

}  // namespace stepgraph
