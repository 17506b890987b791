// SPDX-License-Identifier: Apache-2.0
// Operands of functions: a Value and the place where the caller wrote it.
#pragma once
#include <cstdint>
#include <source_location>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// A Value together with the place where the caller wrote it. Implicit, so that each function below knows the user's line.
struct At {
  Value value;
  std::source_location location;
  At(Value v, std::source_location l = std::source_location::current()) : value(v), location(l) {}  // NOLINT
  const Value* operator->() const { return &value; }
};
using Dims = std::vector<int64_t>;

}  // namespace stepgraph
