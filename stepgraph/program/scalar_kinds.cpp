// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/scalar_kinds.h"

namespace stepgraph {

bool accepts(Takes takes, DType dtype) {
  switch (takes) {
    case Takes::Floats: return is_floating(dtype);
    case Takes::Numbers: return dtype != DType::Bool;
    case Takes::Bits: return !is_floating(dtype);
    case Takes::Anything: return true;
  }
  return false;
}

}  // namespace stepgraph
