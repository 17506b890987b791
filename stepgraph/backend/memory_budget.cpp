// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/backend/memory_budget.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 8> units = {{
    {"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"KiB", 1024}, {"MiB", 1024.0 * 1024}, {"GiB", 1024.0 * 1024 * 1024}, {"%", 0.01}}};

}  // namespace

MemoryBudget parse_memory_budget(std::string_view text) {
  using Kind = MemoryBudget::Kind;
  if (text == "none") return {};
  if (text == "min") return {Kind::Smallest};
  const auto fail = [&]() -> MemoryBudget {
    throw UserError("a memory budget: found '" + std::string(text) + "', wanted bytes with a unit as 512MiB (B, kB, MB, GB, KiB, MiB, GiB), a share as 60%, min or none");
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return fail();
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  for (const auto& [name, factor] : units) {
    if (name != unit) continue;
    if (name == "%") return {Kind::Share, 0, number * factor};
    constexpr double most = 9e18;
    if (number * factor > most) return fail();
    return {Kind::Bytes, static_cast<int64_t>(number * factor), 1};
  }
  return fail();
}

std::string text(const MemoryBudget& budget) {
  switch (budget.kind) {
    case MemoryBudget::Kind::None: return "none";
    case MemoryBudget::Kind::Bytes: return fmt::format("{}B", budget.bytes);
    case MemoryBudget::Kind::Share: return fmt::format("{}%", budget.share * 100);
    case MemoryBudget::Kind::Smallest: return "min";
  }
  throw InternalError("unknown kind of memory budget");
}

}  // namespace stepgraph
