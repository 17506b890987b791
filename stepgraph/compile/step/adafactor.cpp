// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/step/adafactor.h"

#include "stepgraph/compile/ops/composite/precision.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {
namespace {

Value root_mean_square(const Value& x) { return sqrt(mean(x * x)); }

Value state(const OptimizedParameter& parameter, const char* name, DType dtype, const Shape& shape) {
  return parameter.parameter.builder->input({dtype, shape, {}}, {RoleKind::OptimizerState, parameter.name + "." + name});
}

}  // namespace

Value adafactor(const Optimizer& optimizer, const OptimizedParameter& parameter, const AdafactorScalars& scalars, bool decays,
                std::vector<StateUpdate>& updates) {
  const DType dtype = parameter.parameter.dtype(), wide = scalars.rate.dtype();
  const double small = spacing_at_one(dtype);
  const Value g = convert(parameter.gradient, wide), squares = g * g;
  Value p = convert(parameter.parameter, wide);
  const int64_t rank = p.rank();
  const auto blend = [&](const Value& old, const Value& fresh) { return old + (fresh - old) * scalars.fresh; };
  // The scale is of the parameter before its decay.
  const Value scale = clamp(root_mean_square(p), optimizer.minimum_scale, std::nullopt) * minimum(scalars.rate, rsqrt(scalars.number));
  if (decays) p = p * scalars.left;
  std::vector<StateUpdate> states;
  Value moment;
  if (rank > 1) {
    Shape rows = p.shape(), columns = p.shape();
    rows[static_cast<size_t>(rank - 1)] = Dim(1);
    columns[static_cast<size_t>(rank - 2)] = Dim(1);
    const Value row = blend(state(parameter, "row_var", wide, rows), mean(squares, {-1}, true));
    const Value column = blend(state(parameter, "col_var", wide, columns), mean(squares, {-2}, true));
    moment = row * column / clamp(mean(row, {-2}, true), small, std::nullopt);
    states = {{parameter.name + ".row_var", row, false}, {parameter.name + ".col_var", column, false}};
  } else {
    moment = blend(state(parameter, "variance", wide, p.shape()), squares);
    states = {{parameter.name + ".variance", moment, false}};
  }
  const Value update = g * rsqrt(clamp(moment, small * small, std::nullopt));
  const Value size = clamp(root_mean_square(update) / optimizer.clip_threshold, 1.0, std::nullopt);
  const Value next = convert(p - update * (scale / size), dtype);
  updates.push_back({parameter.name, next, true});
  updates.insert(updates.end(), states.begin(), states.end());
  return next;
}

}  // namespace stepgraph
