// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/executor/results.h"

#include <utility>

namespace stepgraph {
namespace {

LossQuotient& term_of(const Role& role, EntryResults& results) { return results.loss[std::string(loss_term(role))]; }

}  // namespace

void take_result(const Role& role, Literal value, EntryResults& results) {
  switch (role.kind) {
    case RoleKind::LossNumerator: term_of(role, results).numerator = value.at(0); break;
    case RoleKind::LossDenominator:
    case RoleKind::LossDenominatorWhole: term_of(role, results).sum = value.at(0); break;
    case RoleKind::LossDenominatorLeast: term_of(role, results).least = value.at(0); break;
    case RoleKind::LossDenominatorConstant: term_of(role, results).constant = value.at(0); break;
    case RoleKind::LearningRate: results.learning_rate = value.at(0); break;
    case RoleKind::GradientNorm: results.gradient_norm = value.at(0); break;
    case RoleKind::LossScale: results.loss_scale = value.at(0); break;
    case RoleKind::Skipped: results.skipped = value.at(0) != 0; break;
    case RoleKind::Metric: results.numbers[role.name] = value.at(0); break;
    case RoleKind::MetricNumerator: results.quotients[role.name].first = value.at(0); break;
    case RoleKind::MetricDenominator: results.quotients[role.name].second = value.at(0); break;
    case RoleKind::Gradient: results.gradients.insert_or_assign(role.name, std::move(value)); break;
    case RoleKind::UserOutput: results.outputs.insert_or_assign(role.name, std::move(value)); break;
    case RoleKind::Tap: results.taps.insert_or_assign(role.name, std::move(value)); break;
    default: break;
  }
}

}  // namespace stepgraph
