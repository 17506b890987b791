// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/op_table.h"

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <fmt/core.h>

#include "stepgraph/compile/ops/rows/rows.h"

namespace stepgraph {
namespace {

constexpr size_t any_number = SIZE_MAX;

/// Struct -> row and number of operands. An op without a line here does not compile.
struct Arity {
  size_t least, most;
};
struct Line {
  OpInfo (*row)();
  Arity arity;
};
constexpr Line line(std::type_identity<Constant>) { return {constant_row, {0, 0}}; }
constexpr Line line(std::type_identity<Iota>) { return {iota_row, {0, 0}}; }
constexpr Line line(std::type_identity<SizeValue>) { return {size_value_row, {0, 0}}; }
constexpr Line line(std::type_identity<Random>) { return {random_row, {1, 1}}; }
constexpr Line line(std::type_identity<FoldIn>) { return {fold_in_row, {2, 2}}; }
constexpr Line line(std::type_identity<Unary>) { return {unary_row, {1, 1}}; }
constexpr Line line(std::type_identity<Polygamma>) { return {polygamma_row, {1, 1}}; }
constexpr Line line(std::type_identity<Binary>) { return {binary_row, {2, 2}}; }
constexpr Line line(std::type_identity<Compare>) { return {compare_row, {2, 2}}; }
constexpr Line line(std::type_identity<Select>) { return {select_row, {3, 3}}; }
constexpr Line line(std::type_identity<Convert>) { return {convert_row, {1, 1}}; }
constexpr Line line(std::type_identity<StopGradient>) { return {stop_gradient_row, {1, 1}}; }
constexpr Line line(std::type_identity<Reduce>) { return {reduce_row, {1, 1}}; }
constexpr Line line(std::type_identity<ArgReduce>) { return {arg_reduce_row, {1, 1}}; }
constexpr Line line(std::type_identity<Cumulative>) { return {cumulative_row, {1, 1}}; }
constexpr Line line(std::type_identity<Moments>) { return {moments_row, {1, 1}}; }
constexpr Line line(std::type_identity<Broadcast>) { return {broadcast_row, {1, 1}}; }
constexpr Line line(std::type_identity<Reshape>) { return {reshape_row, {1, 1}}; }
constexpr Line line(std::type_identity<Transpose>) { return {transpose_row, {1, 1}}; }
constexpr Line line(std::type_identity<Reverse>) { return {reverse_row, {1, 1}}; }
constexpr Line line(std::type_identity<Slice>) { return {slice_row, {1, 1}}; }
constexpr Line line(std::type_identity<Pad>) { return {pad_row, {2, 2}}; }
constexpr Line line(std::type_identity<Concatenate>) { return {concatenate_row, {1, any_number}}; }
constexpr Line line(std::type_identity<IndexSelect>) { return {index_select_row, {2, 2}}; }
constexpr Line line(std::type_identity<IndexAdd>) { return {index_add_row, {3, 3}}; }
constexpr Line line(std::type_identity<Gather>) { return {gather_row, {2, 2}}; }
constexpr Line line(std::type_identity<ScatterAdd>) { return {scatter_add_row, {3, 3}}; }
constexpr Line line(std::type_identity<ScatterReduce>) { return {scatter_reduce_row, {3, 3}}; }
constexpr Line line(std::type_identity<ArgSort>) { return {argsort_row, {1, 1}}; }
constexpr Line line(std::type_identity<Pick>) { return {pick_row, {1, 1}}; }
constexpr Line line(std::type_identity<ScatterPosition>) { return {scatter_position_row, {1, 1}}; }
constexpr Line line(std::type_identity<MatMul>) { return {matmul_row, {2, 2}}; }
constexpr Line line(std::type_identity<Attention>) { return {attention_row, {3, 5}}; }
constexpr Line line(std::type_identity<AttentionGradient>) { return {attention_gradient_row, {7, 9}}; }
constexpr Line line(std::type_identity<Convolution>) { return {convolution_row, {2, 2}}; }
constexpr Line line(std::type_identity<Pool>) { return {pool_row, {1, 1}}; }
constexpr Line line(std::type_identity<Call>) { return {call_row, {0, any_number}}; }
constexpr Line line(std::type_identity<Loop>) { return {loop_row, {0, any_number}}; }
constexpr Line line(std::type_identity<MapTensors>) { return {map_tensors_row, {0, any_number}}; }
constexpr Line line(std::type_identity<Reshard>) { return {reshard_row, {1, 1}}; }
constexpr Line line(std::type_identity<AllReduce>) { return {all_reduce_row, {1, 1}}; }
constexpr Line line(std::type_identity<AllGather>) { return {all_gather_row, {1, 1}}; }
constexpr Line line(std::type_identity<ReduceScatter>) { return {reduce_scatter_row, {1, 1}}; }

template <size_t... I>
std::array<OpInfo, sizeof...(I)> make_rows(std::index_sequence<I...>) {
  return {line(std::type_identity<std::variant_alternative_t<I, Op>>{}).row()...};
}
template <size_t... I>
constexpr std::array<Arity, sizeof...(I)> make_arities(std::index_sequence<I...>) {
  return {line(std::type_identity<std::variant_alternative_t<I, Op>>{}).arity...};
}
using OpIndices = std::make_index_sequence<std::variant_size_v<Op>>;
constexpr auto arities = make_arities(OpIndices{});

std::string count_text(const Arity& arity) {
  if (arity.most == any_number) return fmt::format("at least {}", arity.least);
  return std::to_string(arity.least) + (arity.most == arity.least ? "" : " to " + std::to_string(arity.most));
}

}  // namespace

const OpInfo& op_info(const Op& op) {
  static const auto rows = make_rows(OpIndices{});
  return rows[op.index()];
}

std::vector<TensorType> infer_types(const Op& op, std::span<const TensorType> inputs, const Module& module) {
  const Arity& arity = arities[op.index()];
  if (inputs.size() < arity.least || inputs.size() > arity.most) {
    throw UserError(fmt::format("{}: {} operands, {} wanted", name(op), inputs.size(), count_text(arity)));
  }
  return op_info(op).infer({op, inputs, module});
}

Shape PartitionRequest::local_result_shape(size_t i) const {
  SG_CHECK(i < results.size(), "no such result");
  const TensorType& type = results[i];
  return type.sharding ? local_shape(type.shape, *type.sharding, mesh, symbols) : type.shape;
}

}  // namespace stepgraph
