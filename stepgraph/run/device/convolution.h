// SPDX-License-Identifier: Apache-2.0
// A ConvolutionCall with its sizes known, by oneDNN. Pieces are images, for the weight gradient groups or output channels: each is computed by itself, so that
// threads may take any of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>
#include "stepgraph/program/step_plan.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

struct ConvolutionOperands {
  ConvolutionPass pass{};
  Sizes a, b, out;  ///< as the call's, dense
  std::vector<int64_t> strides, padding_low, padding_high, dilation;
  int64_t groups = 1;
};

class ConvolutionWork {
 public:
  virtual ~ConvolutionWork() = default;
  virtual int64_t pieces() const = 0;
  virtual size_t scratch_bytes() const = 0;  ///< aligned to 64
  virtual void run(const float* a, const float* b, float* out, int64_t begin, int64_t end, void* scratch) const = 0;
};
/// UserError for one that oneDNN has no code for. The caller's thread must use no library threads.
std::unique_ptr<ConvolutionWork> convolution_work(const ConvolutionOperands& operands);

}  // namespace stepgraph
