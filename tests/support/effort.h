// SPDX-License-Identifier: Apache-2.0
// How much random tests do: less under sanitizers, where each round takes many times as long.
#pragma once
#include <algorithm>
#include <cstdint>

namespace stepgraph::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif
#else
constexpr bool is_sanitized = false;
#endif

/// Of this many rounds in a release build.
constexpr int64_t rounds(int64_t in_release) { return is_sanitized ? std::max<int64_t>(1, in_release / 12) : in_release; }

}  // namespace stepgraph::testing
