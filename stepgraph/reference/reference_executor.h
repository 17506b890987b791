// SPDX-License-Identifier: Apache-2.0
// The interpreter behind the interface that a trainer uses.
#pragma once
#include <memory>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/run/comm/mesh_binding.h"
#include "stepgraph/run/executor/executor.h"

namespace stepgraph {

/// Loads a Local module; module and binding must outlive it. The state has no values until an entry's new state is committed or they are written.
/// `flush_denormals`: numbers below the smallest normal one are zero.
std::unique_ptr<Executor> reference_executor(const Module& local, const MeshBinding& binding, bool flush_denormals = false);

}  // namespace stepgraph
