// SPDX-License-Identifier: Apache-2.0
// Losses by margins and distances, and of counts. reduction: 0 none, 1 mean, 2 sum.
#include <cmath>
#include <numbers>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

/// max(x, 0) with gradient 1 at 0, as PyTorch's clamp_min.
Value excess(const Value& x) { return clamp(x, 0.0, std::nullopt); }
Value distance(const Value& a, const Value& b, double p, double epsilon, bool keep) {
  const Value difference = a - b + epsilon;
  return vector_norm(difference, p, {difference.rank() - 1}, keep);
}

void margin_ranking_row(OperatorCall& call) {
  const Value target = call.tensor("target"), difference = call.tensor("input1") - call.tensor("input2");
  loss_result(call, excess(neg(target * difference) + call.real("margin", 0)));
}
void hinge_embedding_row(OperatorCall& call) {
  const Value x = call.tensor("self"), target = broadcast_pair(call.tensor("target"), x.shape());
  const Value far = where(not_equal(target, 1.0), excess(call.real("margin", 1) - x), zeros_like(x));
  loss_result(call, far + where(not_equal(target, -1.0), x, zeros_like(x)));
}
void cosine_embedding_row(OperatorCall& call) {
  const Value a = call.tensor("input1"), b = call.tensor("input2"), target = call.tensor("target");
  const int64_t dim = target.rank();
  const Value cosine = sum(a * b, {dim}) / sqrt((sum(a * a, {dim}) + 1e-12) * (sum(b * b, {dim}) + 1e-12));
  const Value near = where(equal(target, 1.0), 1.0 - cosine, zeros_like(cosine));
  loss_result(call, near + where(equal(target, -1.0), excess(cosine - call.real("margin", 0)), zeros_like(cosine)));
}
void triplet_margin_row(OperatorCall& call) {
  const Value anchor = call.tensor("anchor"), positive = call.tensor("positive"), negative = call.tensor("negative");
  const double p = call.real("p", 2), epsilon = call.real("eps", 1e-6);
  Value far = distance(anchor, negative, p, epsilon, false);
  if (call.boolean("swap", false)) far = minimum(far, distance(positive, negative, p, epsilon, false));
  loss_result(call, excess(distance(anchor, positive, p, epsilon, false) - far + call.real("margin", 1)));
}
void pairwise_distance_row(OperatorCall& call) {
  call.result(distance(call.tensor("x1"), call.tensor("x2"), call.real("p", 2), call.real("eps", 1e-6), call.boolean("keepdim", false)));
}
void poisson_nll_row(OperatorCall& call) {
  const Value x = call.tensor("input"), target = call.tensor("target");
  Value losses = call.boolean("log_input") ? exp(x) - target * x : x - target * log(x + call.real("eps"));
  if (call.boolean("full")) {
    // Stirling's approximation of log(target!), which is 0 up to 1.
    const Value large = greater(target, 1.0), kept = where(large, target, ones_like(target));
    const Value stirling = kept * log(kept) - kept + log(kept * (2 * std::numbers::pi)) * 0.5;
    losses = losses + where(large, stirling, zeros_like(stirling));
  }
  loss_result(call, losses);
}

/// Of rows [N, C], or of one row.
struct Rows {
  Value x, target;
  bool single;
};
Rows rows_of(OperatorCall& call, bool target_has_classes) {
  const Value x = call.tensor("self"), target = call.tensor("target");
  if (x.rank() > 1) return {x, target, false};
  const Value row = reshape(x, {Dim(1), element_count(x.shape())});
  return {row, target_has_classes ? reshape(target, row.shape()) : reshape(target, {Dim(1)}), true};
}
void finish_rows(OperatorCall& call, const Rows& rows, const Value& losses) {
  const Value scaled = losses / size_value(call.builder(), losses.dtype(), rows.x.dim(1));
  loss_result(call, rows.single && call.integer("reduction", 1) == 0 ? reshape(scaled, {}) : scaled);
}
/// Classes that come closer to the target's score than the margin.
void multi_margin_row(OperatorCall& call) {
  const Rows rows = rows_of(call, false);
  const double p = call.real("p", 1);
  const Value wanted = unsqueeze(rows.target, 1);
  Value over = relu(rows.x - gather(rows.x, 1, wanted) + call.real("margin", 1));
  if (p == 2)
    over = over * over;
  else if (p != 1)
    call.fail("found p = " + std::to_string(p) + ", wanted 1 or 2");
  if (const auto weight = call.maybe_tensor("weight")) over = over * unsqueeze(index_select(*weight, 0, rows.target), 1);
  const Value other = not_equal(iota(call.builder(), wanted.dtype(), rows.x.shape(), 1), broadcast_to(wanted, rows.x.shape()));
  finish_rows(call, rows, sum(where(other, over, zeros_like(over)), {1}));
}
/// Each target (up to the first negative one) against each class that is no target. The second result serves PyTorch's own backward.
void multilabel_margin_row(OperatorCall& call) {
  const Rows rows = rows_of(call, true);
  const Value listed = cumprod(convert(greater_equal(rows.target, 0.0), DType::I64), 1), valid = equal(listed, 1.0);
  const Value target = where(valid, rows.target, zeros_like(rows.target));
  const Shape pairs{rows.x.dim(0), rows.x.dim(1), rows.x.dim(1)};
  const Value classes = iota(call.builder(), target.dtype(), pairs, 2), valid_pairs = broadcast_to(unsqueeze(valid, 2), pairs);
  const Value names = logical_and(valid_pairs, equal(broadcast_to(unsqueeze(target, 2), pairs), classes));
  const Value is_target = any(names, {1});
  const Value over = relu(unsqueeze(rows.x, 1) - unsqueeze(gather(rows.x, 1, target), 2) + 1.0);
  const Value counts = logical_and(valid_pairs, broadcast_to(unsqueeze(logical_not(is_target), 1), pairs));
  finish_rows(call, rows, sum(where(counts, over, zeros_like(over)), {1, 2}));
  if (call.node().outputs.size() > 1) call.result(convert(is_target, rows.x.dtype()));
}

}  // namespace

std::vector<NamedRow> margin_rows() {
  return {
      {"margin_ranking_loss", in_f32<margin_ranking_row>}, {"hinge_embedding_loss", in_f32<hinge_embedding_row>},     {"cosine_embedding_loss", in_f32<cosine_embedding_row>},
      {"triplet_margin_loss", in_f32<triplet_margin_row>}, {"pairwise_distance", in_f32<pairwise_distance_row>},      {"poisson_nll_loss", in_f32<poisson_nll_row>},
      {"multi_margin_loss", in_f32<multi_margin_row>},     {"multilabel_margin_loss", in_f32<multilabel_margin_row>}, {"multilabel_margin_loss_forward", in_f32<multilabel_margin_row>},
  };
}

}  // namespace stepgraph::pt2
