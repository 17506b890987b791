// SPDX-License-Identifier: Apache-2.0
// How this thread treats denormal numbers, for as long as an object lives.
#pragma once
#include <cstdint>

namespace stepgraph {

/// With `flush`: those that are read or would be written are zero. Else, and where the processor cannot, they are what IEEE says.
class FloatMode {
 public:
#if defined(__SSE__)
  explicit FloatMode(bool flush) : before_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(flush ? before_ | zero : before_ & ~zero); }
  ~FloatMode() { __builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & ~zero) | (before_ & zero)); }

 private:
  static constexpr uint32_t zero = 0x8040;  // results, operands
  uint32_t before_;
#else
  explicit FloatMode(bool) {}
#endif
 public:
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
};

}  // namespace stepgraph
