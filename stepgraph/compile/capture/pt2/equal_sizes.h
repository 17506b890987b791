// SPDX-License-Identifier: Apache-2.0
// Sizes that the exporter left as symbols of their own although the program runs only where they agree: it keeps `rows * columns of ids == rows * columns of
// targets` as a guard and no more.
#pragma once
#include "stepgraph/compile/capture/pt2/program.h"

namespace stepgraph::pt2 {

/// For each guard that equates sizes of two inputs: if it holds once their dims are equal one by one (or the one dim of one input is all elements of the
/// other), they become equal. What is refused more than in PyTorch are inputs with as many elements in other shapes.
void unite_equal_sizes(ExportedProgram& program);

}  // namespace stepgraph::pt2
