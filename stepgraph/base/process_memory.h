// SPDX-License-Identifier: Apache-2.0
// Resident memory of this process.
#pragma once
#include <cstdint>

namespace stepgraph {

/// 0 where the system does not tell.
int64_t resident_bytes();
int64_t resident_bytes_max();  ///< the most so far

}  // namespace stepgraph
