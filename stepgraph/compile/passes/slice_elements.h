// SPDX-License-Identifier: Apache-2.0
// Element-wise values that are read in parts: gates of a recurrence, halves of a gated unit.
#pragma once
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// An element-wise value of which only slices along one dim are read, each by element-wise ops, and no two of them meet, is computed slice by slice: each element
/// once at most, and where it is used. Number class: exact.
Module slice_before_elements(Module module);

}  // namespace stepgraph
