// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/phase.h"

#include <array>

namespace stepgraph {
namespace {

constexpr std::array<std::string_view, 7> phase_names = {"none", "forward", "backward", "recompute", "sync", "update", "evaluation"};

}  // namespace

std::string_view name(Phase phase) { return phase_names[static_cast<size_t>(phase)]; }

std::optional<Phase> phase_from_name(std::string_view text) {
  for (size_t i = 1; i < phase_names.size(); ++i)
    if (phase_names[i] == text) return static_cast<Phase>(i);
  return std::nullopt;
}

}  // namespace stepgraph
