// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/role.h"

#include <array>

namespace stepgraph {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(RoleKind::NewState) + 1> role_names = {
    "none", "parameter", "optimizer_state", "buffer", "derived", "batch", "seed", "step", "scalar", "loss_gradient", "loss_numerator", "loss_denominator",
    "loss_denominator_whole", "loss_denominator_least", "loss_denominator_constant", "metric", "metric_numerator", "metric_denominator", "learning_rate",
    "gradient_norm", "loss_scale", "skipped", "gradient_factor", "gradient", "saved", "user_output", "tap", "new_state"};

}  // namespace

std::string_view name(RoleKind kind) { return role_names[static_cast<size_t>(kind)]; }

std::optional<RoleKind> role_from_name(std::string_view text) {
  for (size_t i = 0; i < role_names.size(); ++i)
    if (role_names[i] == text) return static_cast<RoleKind>(i);
  return std::nullopt;
}

bool is_state(RoleKind kind) { return kind == RoleKind::Parameter || kind == RoleKind::OptimizerState || kind == RoleKind::Buffer; }
bool is_output(RoleKind kind) { return kind >= RoleKind::LossNumerator; }
bool is_loss_denominator(RoleKind kind) { return kind >= RoleKind::LossDenominator && kind <= RoleKind::LossDenominatorConstant; }

void check_metric_name(std::string_view metric, const SourcePlace& place) {
  bool is_taken = metric == "loss";
  for (const RoleKind kind : {RoleKind::LearningRate, RoleKind::GradientNorm, RoleKind::LossScale, RoleKind::Skipped}) is_taken = is_taken || metric == name(kind);
  if (is_taken) throw UserError("metric '" + std::string(metric) + "': the training step reports a number of that name itself", place);
}

std::string_view loss_term(const Role& role) { return role.name.empty() ? std::string_view("loss") : std::string_view(role.name); }

}  // namespace stepgraph
