// SPDX-License-Identifier: Apache-2.0
// Mixed precision as torch.autocast has it: which operators compute in f16 or bf16, which in f32, by the device that the lists are of. One table serves models that are
// captured (the functions and composites ask it for a builder whose autocast is on) and imported programs (rows ask it by the region that they stand in).
#pragma once
#include <optional>
#include <string_view>
#include "stepgraph/tensor/dtype.h"

namespace stepgraph {

struct Autocast {
  /// PyTorch's lists differ: on CUDA softmax, norms, exponentials and sums are computed in f32; on the CPU they take what comes.
  enum class List : uint8_t { Cpu, Cuda } list = List::Cpu;
  std::optional<DType> dtype = {};  ///< BF16 or F16; none: off
  bool operator==(const Autocast&) const = default;
};
/// UserError for another dtype than these.
void check(const Autocast& autocast);
/// What floating operands of PyTorch's operator of that name ("linear", "softmax") are cast to; none: they stay as they come. F64 never is cast.
std::optional<DType> cast_of(const Autocast& autocast, std::string_view operator_name);

}  // namespace stepgraph
