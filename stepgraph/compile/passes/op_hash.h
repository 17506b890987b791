// SPDX-License-Identifier: Apache-2.0
// A number that equal ops share and different ones rarely do; equality decides. For tables that are looked up and never iterated.
#pragma once
#include <cstdint>
#include "stepgraph/base/hash.h"
#include "stepgraph/compile/ir/op.h"
#include "stepgraph/tensor/tensor_type.h"

namespace stepgraph {

/// Of all attributes; a large literal counts by its first and last bytes.
uint64_t op_hash(const Op& op);
uint64_t type_hash(const TensorType& type);

}  // namespace stepgraph
