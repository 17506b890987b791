// SPDX-License-Identifier: Apache-2.0
// CRC-32 of a whole from the CRC-32 of its parts, so that the parts can be summed at the same time.
#pragma once
#include <cstdint>

namespace stepgraph::pt2 {

/// The checksum of a followed by b, from the checksums of both and the length of b in bytes.
uint32_t crc32_joined(uint32_t a, uint32_t b, uint64_t bytes_of_b);

}  // namespace stepgraph::pt2
