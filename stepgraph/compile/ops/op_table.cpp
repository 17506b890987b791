// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/op_table.h"

#include <array>
#include <utility>

#include <fmt/core.h>

#include "stepgraph/compile/ops/rows/rows.h"

namespace stepgraph {
namespace {

template <size_t... I>
std::array<OpInfo, sizeof...(I)> make_rows(std::index_sequence<I...>) {
  return {row_of(OpType<std::variant_alternative_t<I, Op>>{})...};
}

std::string count_text(const Arity& arity) {
  if (arity.most == any_number) return fmt::format("at least {}", arity.least);
  return std::to_string(arity.least) + (arity.most == arity.least ? "" : " to " + std::to_string(arity.most));
}

}  // namespace

const OpInfo& op_info(const Op& op) {
  static const auto rows = make_rows(std::make_index_sequence<std::variant_size_v<Op>>{});
  return rows[op.index()];
}

std::vector<TensorType> infer_types(const Op& op, std::span<const TensorType> inputs, const Module& module) {
  const OpInfo& info = op_info(op);
  const Arity& arity = info.operands;
  if (inputs.size() < arity.least || inputs.size() > arity.most) {
    throw UserError(fmt::format("{}: {} operands, {} wanted", name(op), inputs.size(), count_text(arity)));
  }
  return info.infer({op, inputs, module});
}

Shape PartitionRequest::local_result_shape(size_t i) const {
  SG_CHECK(i < results.size(), "no such result");
  const TensorType& type = results[i];
  return type.sharding ? sizes.shape(type.shape, *type.sharding) : type.shape;
}

}  // namespace stepgraph
