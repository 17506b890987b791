// SPDX-License-Identifier: Apache-2.0
// Element-wise ops: types and values; what the kinds differ in is in elementwise_table.h. Their gradients are in elementwise_gradients.cpp.
#include <fmt/core.h>

#include "stepgraph/compile/ops/elementwise_table.h"
#include "stepgraph/compile/ops/kernels/element_maps.h"
#include "stepgraph/compile/ops/kernels/gamma_and_erf.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/element_expressions.h"
#include "stepgraph/compile/ops/rows/elementwise_gradients.h"
#include "stepgraph/compile/ops/rows/rows.h"
#include "stepgraph/compile/ops/rows/rules.h"

namespace stepgraph {
namespace {

/// An uninitialised result; operands must have its count or one element.
Literal new_result(const EvaluateRequest& request) {
  const Sizes sizes = sizes_of(request.results[0]);
  for (const Literal& input : request.inputs) {
    if (input.sizes() != sizes && input.count() != 1) {
      throw UserError(fmt::format("{}: local shapes differ, {} and {}", name(request.op), text(Shape(input.sizes().begin(), input.sizes().end())),
                                  text(request.results[0].shape)));
    }
  }
  return Literal::uninitialised(request.results[0].dtype, sizes);
}

// ---- unary

void check_taken(std::string_view op, Takes takes, const TensorType& x) {
  switch (takes) {
    case Takes::Floats: check_floating(op, x); break;
    case Takes::Numbers:
      if (x.dtype == DType::Bool) throw UserError(fmt::format("{}: found {}, wanted numbers", op, text(x)));
      break;
    case Takes::Bits:
      if (is_floating(x.dtype)) throw UserError(fmt::format("{}: found {}, wanted bool or integers", op, text(x)));
      break;
    case Takes::Anything: break;
  }
}

std::vector<TensorType> infer_unary(const InferRequest& request) {
  const UnaryKind kind = std::get<Unary>(request.op).kind;
  const TensorType& x = request.inputs[0];
  const Takes takes = unary_info(kind).takes;
  check_taken(name(kind), takes, x);
  return {{takes == Takes::Anything ? DType::Bool : x.dtype, x.shape, {}}};
}

/// The values of operands of that dtype.
template <class Map>
Map map_for(const Op& op, DType dtype, Map floats, Map integers) {
  const Map map = is_floating(dtype) ? floats : integers;
  SG_CHECK(map != nullptr, fmt::format("{} of {} passed inference", name(op), name(dtype)));
  return map;
}

std::vector<Literal> evaluate_unary(const EvaluateRequest& request) {
  const UnaryKind kind = std::get<Unary>(request.op).kind;
  const UnaryInfo& info = unary_info(kind);
  Literal result = new_result(request);
  // Of the one bit of a bool, not of the 64 that formulas of integers have.
  if (kind == UnaryKind::Not && result.dtype() == DType::Bool) map_one<int64_t>(request.inputs[0], result, [](int64_t x) { return x == 0; });
  else map_for(request.op, request.inputs[0].dtype(), info.floats, info.integers)(request.inputs[0], result);
  return {result};
}

// ---- binary

std::vector<TensorType> infer_binary(const InferRequest& request) {
  const BinaryKind kind = std::get<Binary>(request.op).kind;
  const TensorType& a = request.inputs[0];
  check_same_dtype(name(kind), a, request.inputs[1]);
  check_same_shape(name(kind), request, a, request.inputs[1]);
  check_taken(name(kind), binary_info(kind).takes, a);
  return {{a.dtype, a.shape, {}}};
}

std::vector<Literal> evaluate_binary(const EvaluateRequest& request) {
  const BinaryInfo& info = binary_info(std::get<Binary>(request.op).kind);
  Literal result = new_result(request);
  map_for(request.op, result.dtype(), info.floats, info.integers)(request.inputs[0], request.inputs[1], result);
  return {result};
}

// ---- compare, select, convert, stop_gradient

std::vector<TensorType> infer_compare(const InferRequest& request) {
  const CompareKind kind = std::get<Compare>(request.op).kind;
  check_same_dtype(name(kind), request.inputs[0], request.inputs[1]);
  check_same_shape(name(kind), request, request.inputs[0], request.inputs[1]);
  return {{DType::Bool, request.inputs[0].shape, {}}};
}

std::vector<Literal> evaluate_compare(const EvaluateRequest& request) {
  const CompareInfo& info = compare_info(std::get<Compare>(request.op).kind);
  Literal result = new_result(request);
  map_for(request.op, request.inputs[0].dtype(), info.floats, info.integers)(request.inputs[0], request.inputs[1], result);
  return {result};
}

std::vector<TensorType> infer_select(const InferRequest& request) {
  if (request.inputs[0].dtype != DType::Bool) throw UserError(fmt::format("select: condition is {}, wanted bool", text(request.inputs[0])));
  check_same_dtype("select", request.inputs[1], request.inputs[2]);
  check_same_shape("select", request, request.inputs[1], request.inputs[2]);
  check_same_shape("select", request, request.inputs[0], request.inputs[1]);
  return {{request.inputs[1].dtype, request.inputs[1].shape, {}}};
}

template <class T>
void select_as(const EvaluateRequest& request, Literal& result) {
  const auto* condition = reinterpret_cast<const uint8_t*>(request.inputs[0].data());
  const auto* on_true = reinterpret_cast<const T*>(request.inputs[1].data());
  const auto* on_false = reinterpret_cast<const T*>(request.inputs[2].data());
  // A step of 0 lets one element stand for all.
  const int64_t c = request.inputs[0].count() != 1, t = request.inputs[1].count() != 1, f = request.inputs[2].count() != 1;
  T* out = reinterpret_cast<T*>(result.mutable_data());
  for (int64_t i = 0; i < result.count(); ++i) out[i] = condition[i * c] != 0 ? on_true[i * t] : on_false[i * f];
}

std::vector<Literal> evaluate_select(const EvaluateRequest& request) {
  Literal result = new_result(request);
  switch (size_bytes(result.dtype())) {
    case 1: select_as<uint8_t>(request, result); break;
    case 2: select_as<uint16_t>(request, result); break;
    case 4: select_as<uint32_t>(request, result); break;
    default: select_as<uint64_t>(request, result); break;
  }
  return {result};
}

std::vector<TensorType> infer_convert(const InferRequest& request) { return {{std::get<Convert>(request.op).dtype, request.inputs[0].shape, {}}}; }
std::vector<Literal> evaluate_convert(const EvaluateRequest& request) { return {request.inputs[0].converted(std::get<Convert>(request.op).dtype)}; }

std::vector<TensorType> infer_same(const InferRequest& request) { return {{request.inputs[0].dtype, request.inputs[0].shape, {}}}; }
std::vector<Literal> evaluate_same(const EvaluateRequest& request) { return {request.inputs[0]}; }

std::vector<TensorType> infer_polygamma(const InferRequest& request) {
  const int64_t order = std::get<Polygamma>(request.op).order;
  if (order < 0 || order > 64) throw UserError(fmt::format("polygamma: found order {}, wanted 0 to 64", order));
  check_floating("polygamma", request.inputs[0]);
  return infer_same(request);
}
std::vector<Literal> evaluate_polygamma(const EvaluateRequest& request) {
  const int64_t order = std::get<Polygamma>(request.op).order;
  Literal result = new_result(request);
  map_one<double>(request.inputs[0], result, [order](double v) { return polygamma_of(order, v); });
  return {result};
}

// ---- sharding and cost

std::vector<std::vector<int>> linear_groups(Linearity linearity) {
  switch (linearity) {
    case Linearity::NotLinear: return {};
    case Linearity::InFirst: return {{0}};
    case Linearity::InEach: return {{0}, {1}};
    case Linearity::InBoth: return {{0, 1}};
  }
  return {};
}

ShardingRule unary_rule(const ShardingRequest& request) {
  return elementwise_rule(request, linear_groups(unary_info(std::get<Unary>(request.op).kind).linearity));
}
ShardingRule binary_rule(const ShardingRequest& request) {
  return elementwise_rule(request, linear_groups(binary_info(std::get<Binary>(request.op).kind).linearity));
}
ShardingRule nonlinear_rule(const ShardingRequest& request) { return elementwise_rule(request, {}); }
ShardingRule choice_rule(const ShardingRequest& request) { return elementwise_rule(request, {{1, 2}}); }
ShardingRule identity_rule(const ShardingRequest& request) { return elementwise_rule(request, {{0}}); }

/// Every value of `from` is one of `to`.
bool widens(DType from, DType to) {
  if (!is_floating(from) || !is_floating(to)) return false;
  return to == DType::F64 || (to == DType::F32 && from != DType::F64);
}
/// Partial sums may be widened before they are added; narrowed, they would lose what the whole sum would not.
ShardingRule convert_rule(const ShardingRequest& request) {
  return widens(request.inputs[0].dtype, std::get<Convert>(request.op).dtype) ? identity_rule(request) : nonlinear_rule(request);
}

int64_t flops_of(ScalarBody body) { return body == ScalarBody::Approximation ? 10 : 1; }
Cost unary_cost(const CostRequest& request) { return elementwise_cost(request, flops_of(unary_info(std::get<Unary>(request.op).kind).body)); }
Cost binary_cost(const CostRequest& request) { return elementwise_cost(request, flops_of(binary_info(std::get<Binary>(request.op).kind).body)); }
Cost approximation_cost(const CostRequest& request) { return elementwise_cost(request, flops_of(ScalarBody::Approximation)); }
Cost instruction_cost(const CostRequest& request) { return elementwise_cost(request, flops_of(ScalarBody::Instruction)); }
Cost identity_cost(const CostRequest& request) { return elementwise_cost(request, 0); }

OpInfo elementwise_row(ShardingRule (*rule)(const ShardingRequest&), Cost (*cost)(const CostRequest&)) {
  OpInfo row;
  row.sharding_rule = rule;
  row.cost = cost;
  row.elementwise = true;
  return row;
}

}  // namespace

OpInfo row_of(OpType<Unary>) {
  OpInfo row = elementwise_row(unary_rule, unary_cost);
  row.infer = infer_unary;
  row.evaluate = evaluate_unary;
  row.element_kind = ElementKind::Pointwise;
  row.element = unary_element;
  row.gradient = unary_gradient;
  return row;
}

OpInfo row_of(OpType<Polygamma>) {
  OpInfo row = elementwise_row(nonlinear_rule, approximation_cost);
  row.infer = infer_polygamma;
  row.evaluate = evaluate_polygamma;
  row.gradient = polygamma_gradient;
  return row;
}

OpInfo row_of(OpType<Binary>) {
  OpInfo row = elementwise_row(binary_rule, binary_cost);
  row.operands = {2, 2};
  row.infer = infer_binary;
  row.evaluate = evaluate_binary;
  row.element_kind = ElementKind::Pointwise;
  row.element = binary_element;
  row.gradient = binary_gradient;
  return row;
}

OpInfo row_of(OpType<Compare>) {
  OpInfo row = elementwise_row(nonlinear_rule, instruction_cost);
  row.operands = {2, 2};
  row.infer = infer_compare;
  row.evaluate = evaluate_compare;
  row.element_kind = ElementKind::Pointwise;
  row.element = compare_element;
  row.differentiable = false;
  return row;
}

OpInfo row_of(OpType<Select>) {
  OpInfo row = elementwise_row(choice_rule, instruction_cost);
  row.operands = {3, 3};
  row.infer = infer_select;
  row.evaluate = evaluate_select;
  row.element_kind = ElementKind::Pointwise;
  row.element = select_element;
  row.gradient = select_gradient;
  return row;
}

OpInfo row_of(OpType<Convert>) {
  OpInfo row = elementwise_row(convert_rule, instruction_cost);
  row.infer = infer_convert;
  row.evaluate = evaluate_convert;
  row.element_kind = ElementKind::Pointwise;
  row.element = convert_element;
  row.gradient = convert_gradient;
  return row;
}

OpInfo row_of(OpType<StopGradient>) {
  OpInfo row = elementwise_row(identity_rule, identity_cost);
  row.infer = infer_same;
  row.evaluate = evaluate_same;
  row.element_kind = ElementKind::View;
  row.element = stop_gradient_element;
  row.differentiable = false;
  return row;
}

}  // namespace stepgraph
