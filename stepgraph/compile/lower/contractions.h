// SPDX-License-Identifier: Apache-2.0
// Products over several dims that do not lie side by side in an operand get a transposed view of it in which they do, as its last ones: a call contracts one
// dim, which these then make. Class: exact.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// Of a flat module: in its entries and in the bodies of their loops.
Module join_contracted_dims(Module flat);

}  // namespace stepgraph
