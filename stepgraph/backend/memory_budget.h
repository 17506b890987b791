// SPDX-License-Identifier: Apache-2.0
// How much memory a rank may plan for: states, constants, the arena and what threads have for themselves, as the executor maps them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace stepgraph {

struct MemoryBudget {
  enum class Kind : uint8_t {
    None,      ///< nothing is made again for want of memory
    Bytes,
    Share,     ///< of what is planned without a budget
    Smallest,  ///< the least that is found
  };
  Kind kind = Kind::None;
  int64_t bytes = 0;
  double share = 1;
  bool operator==(const MemoryBudget&) const = default;
};
/// "512MiB" (also KiB, GiB, kB, MB, GB, B), "60%", "min", or "none". UserError for another text.
MemoryBudget parse_memory_budget(std::string_view text);
/// As it is parsed: "none", "536870912B", "60%", "min".
std::string text(const MemoryBudget& budget);

}  // namespace stepgraph
