// SPDX-License-Identifier: Apache-2.0
// What every executor does with the outputs of an entry.
#pragma once
#include "stepgraph/program/role.h"
#include "stepgraph/run/executor/executor.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

/// Puts an output where its role belongs. New states and outputs without a meaning to a trainer are left out.
void take_result(const Role& role, Literal value, EntryResults& results);

}  // namespace stepgraph
