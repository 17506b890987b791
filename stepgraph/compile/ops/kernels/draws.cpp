// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/kernels/draws.h"

#include "stepgraph/compile/ops/kernels/elements.h"

namespace stepgraph {

DrawElements draw_elements(const DrawPlace& place) {
  Sizes global;
  for (const Dim& dim : place.global_shape) global.push_back(dim.constant());
  DrawElements elements{0, row_major_strides(global)};
  for (size_t d = 0; d < place.starts.size(); ++d) elements.origin = wrap_add(elements.origin, wrap_multiply(place.starts[d].constant(), elements.strides[d]));
  return elements;
}

}  // namespace stepgraph
