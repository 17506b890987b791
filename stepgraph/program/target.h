// SPDX-License-Identifier: Apache-2.0
// What a plan is made for, as declared data. Nothing here is found out by itself: detection is the caller's, and only when it is asked for.
#pragma once
#include <cstdint>
#include <string>

namespace stepgraph {

enum class InstructionSet : uint8_t { Avx2, Avx512 };
/// A library that multiplies matrices. Its bits are part of a plan.
enum class GemmLibrary : uint8_t { OneDnn, OpenBlas };

struct Target {
  InstructionSet isa = InstructionSet::Avx2;
  int threads = 1;
  int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10;  ///< of a core
  int64_t granularity_bytes = 2 << 20;  ///< arenas are a multiple of it
  bool flush_denormals = false;         ///< numbers too small for a normal one are zero, read and written: not IEEE, and the oracle has to do the same
  bool operator==(const Target&) const = default;
};

}  // namespace stepgraph
