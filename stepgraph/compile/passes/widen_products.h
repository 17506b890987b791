// SPDX-License-Identifier: Apache-2.0
// Products of halves for libraries that have none: matmuls, convolutions and attention of f16 or bf16 work on their operands as f32, and what they give is
// converted to the dtype that it had. A product of two halves is exact in f32. Class: default, since a result is rounded to f32 before it is rounded to a half.
// Optional.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

Module widen_products(Module module);

}  // namespace stepgraph
