// SPDX-License-Identifier: Apache-2.0
// Ops of distribution: their values come from the walker, which has a communicator.
#include <fmt/core.h>

#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/compile/ops/rows/rows.h"

namespace stepgraph {
namespace {

void check_axes(std::string_view op, const std::vector<AxisRef>& axes, const Module& module) {
  // One dim split over all of them is legal exactly when no axis is unknown or named twice.
  check_sharding({{DimSharding{axes, 1}}, {}}, 1, module.mesh);
  if (axes.empty()) throw UserError(fmt::format("{}: no mesh axis", op));
}
void check_reduction(std::string_view op, ReduceKind kind, const TensorType& type) {
  const bool wants_bool = kind == ReduceKind::Any || kind == ReduceKind::All;
  if (wants_bool != (type.dtype == DType::Bool))
    throw UserError(fmt::format("{}: '{}' of {}, wanted {}", op, name(kind), text(type), wants_bool ? "bool" : "numbers"));
}
TensorType with_size(const TensorType& type, int64_t dim, const Dim& size) {
  TensorType result{type.dtype, type.shape, {}};
  result.shape[static_cast<size_t>(dim)] = size;
  return result;
}

std::vector<TensorType> infer_reshard(const InferRequest& request) {
  const TensorType& x = request.inputs[0];
  check_sharding(std::get<Reshard>(request.op).target, x.rank(), request.module.mesh);
  return {{x.dtype, x.shape, {}}};
}

std::vector<TensorType> infer_all_reduce(const InferRequest& request) {
  const auto& op = std::get<AllReduce>(request.op);
  check_axes("all_reduce", op.axes, request.module);
  check_reduction("all_reduce", op.kind, request.inputs[0]);
  return {{request.inputs[0].dtype, request.inputs[0].shape, {}}};
}

std::vector<TensorType> infer_all_gather(const InferRequest& request) {
  const auto& op = std::get<AllGather>(request.op);
  check_axes("all_gather", op.axes, request.module);
  check_dim("all_gather", op.dim, request.inputs[0]);
  check_sizes("all_gather", {op.size}, request.module);
  return {with_size(request.inputs[0], op.dim, op.size)};
}

std::vector<TensorType> infer_reduce_scatter(const InferRequest& request) {
  const auto& op = std::get<ReduceScatter>(request.op);
  check_axes("reduce_scatter", op.axes, request.module);
  check_dim("reduce_scatter", op.dim, request.inputs[0]);
  check_reduction("reduce_scatter", op.kind, request.inputs[0]);
  const Dim& whole = request.inputs[0].shape[static_cast<size_t>(op.dim)];
  if (request.module.symbols.less_or_equal(op.start + op.size, whole) == Truth::False || request.module.symbols.less_or_equal(0, op.start) == Truth::False)
    throw UserError(fmt::format("reduce_scatter: a piece of {} at {} of {}", op.size.text(), op.start.text(), text(request.inputs[0])));
  check_sizes("reduce_scatter", {op.size}, request.module);
  return {with_size(request.inputs[0], op.dim, op.size)};
}

OpInfo collective_row(std::vector<TensorType> (*infer)(const InferRequest&)) {
  OpInfo info;
  info.infer = infer;
  info.cost = transfer_cost;
  return info;
}

}  // namespace

OpInfo row_of(OpType<Reshard>) { return collective_row(infer_reshard); }
OpInfo row_of(OpType<AllReduce>) { return collective_row(infer_all_reduce); }
OpInfo row_of(OpType<AllGather>) { return collective_row(infer_all_gather); }
OpInfo row_of(OpType<ReduceScatter>) { return collective_row(infer_reduce_scatter); }

}  // namespace stepgraph
