// SPDX-License-Identifier: Apache-2.0
// The type of a value: dtype, shape, and from the Sharded stage on a sharding. At the Sharded stage the shape is global; at the Local stage it
// is this coordinate's own and the sharding is kept as a record of where it came from.
#pragma once
#include <optional>
#include <string>
#include "stepgraph/tensor/dim.h"
#include "stepgraph/tensor/dtype.h"
#include "stepgraph/tensor/sharding.h"

namespace stepgraph {

struct TensorType {
  DType dtype = DType::F32;
  Shape shape;
  std::optional<Sharding> sharding;
  size_t rank() const { return shape.size(); }
  bool operator==(const TensorType&) const = default;
};
/// "f32[batch, 64]"; with a sharding: "f32[batch, 64]<{data}, {}>".
std::string text(const TensorType& type);
TensorType parse_tensor_type(std::string_view text);
/// dtype and shape equal, sharding ignored.
bool same_dtype_and_shape(const TensorType& a, const TensorType& b);

}  // namespace stepgraph
