// SPDX-License-Identifier: Apache-2.0
// Which elements of the whole draw an op makes: shared by all kernels that draw.
#pragma once
#include "stepgraph/compile/ir/op.h"
#include "stepgraph/compile/ops/kernels/elements.h"

namespace stepgraph {

/// Element (i, j, ...) of the op's draw is element origin + i * strides[0] + j * strides[1] + ... of its key (tensor/philox.h).
struct DrawElements {
  int64_t origin = 0;
  Sizes strides;
};
/// Of a place whose Dims are all constants.
inline DrawElements draw_elements(const DrawPlace& place) {
  Sizes global;
  for (const Dim& dim : place.global_shape) global.push_back(dim.constant());
  DrawElements elements{0, row_major_strides(global)};
  for (size_t d = 0; d < place.starts.size(); ++d) elements.origin = wrap_add(elements.origin, wrap_multiply(place.starts[d].constant(), elements.strides[d]));
  return elements;
}

}  // namespace stepgraph
