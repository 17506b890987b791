// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ir/role.h"

#include <array>

namespace stepgraph {
namespace {

constexpr std::array<std::string_view, 19> role_names = {
    "none", "parameter", "optimizer_state", "buffer", "derived", "batch", "seed", "step", "scalar", "loss_numerator", "loss_denominator",
    "metric", "metric_numerator", "metric_denominator", "gradient", "gradient_factor", "saved", "user_output", "new_state"};

}  // namespace

std::string_view name(RoleKind kind) { return role_names[static_cast<size_t>(kind)]; }

std::optional<RoleKind> role_from_name(std::string_view text) {
  for (size_t i = 0; i < role_names.size(); ++i)
    if (role_names[i] == text) return static_cast<RoleKind>(i);
  return std::nullopt;
}

bool is_state(RoleKind kind) { return kind == RoleKind::Parameter || kind == RoleKind::OptimizerState || kind == RoleKind::Buffer; }

}  // namespace stepgraph
