// SPDX-License-Identifier: Apache-2.0
// The indices that a form computes. An instruction that reads by an index of the data finds fault with one that is out of range; once all elements of a buffer
// were held to a range that way, what reads or scatters by them within the same range cannot fail. The compiler, which orders by it, and the verifier, which
// proves it of bytes, ask here.
#pragma once
#include <vector>
#include "stepgraph/program/form.h"

namespace stepgraph {

struct IndexUse {
  int load = 0;            ///< expression: reads by the index
  int index = 0;           ///< expression: the index, as it lies in memory: a LoadExpr without guards and indices. -1: it is worked out in another way
  Dim bound;               ///< it has to be in [0, bound)
  bool holds_all = false;  ///< every element of the index that the form reads is held to the range, if each factor has a value
};
std::vector<IndexUse> index_uses(const Form& form);

}  // namespace stepgraph
