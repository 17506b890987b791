// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process.
#pragma once
#include <functional>
#include <memory>
#include "stepgraph/run/comm/communicator.h"

namespace stepgraph {

/// More ranks than this as threads of one process is a mistyped mesh: UserError.
inline constexpr int most_thread_ranks = 256;

/// Runs `body(rank, communicator)` for ranks 0 .. count-1, a thread each, and waits for all of them. When a rank throws, or returns while others wait
/// for it, or all wait for each other, the waiting ranks get a CommError naming the suspects. Rethrows the first error that is not such an echo.
void run_ranks(int count, const std::function<void(int rank, Communicator& communicator)>& body);

/// A group of one rank, for the thread that asks: nothing is waited for.
std::unique_ptr<Communicator> lone_communicator();

}  // namespace stepgraph
