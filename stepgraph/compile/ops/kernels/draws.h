// SPDX-License-Identifier: Apache-2.0
// Which elements of the whole draw an op makes: shared by all kernels that draw.
#pragma once
#include "stepgraph/compile/ir/op.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

/// Element (i, j, ...) of the op's draw is element origin + i * strides[0] + j * strides[1] + ... of its key (tensor/philox.h).
struct DrawElements {
  int64_t origin = 0;
  Sizes strides;
};
/// Of a place whose Dims are all constants.
DrawElements draw_elements(const DrawPlace& place);

}  // namespace stepgraph
