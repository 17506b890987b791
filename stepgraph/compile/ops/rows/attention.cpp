// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/kernels/attention.h"
#include "stepgraph/compile/ops/rows/attention_primitives.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/rows.h"
#include "stepgraph/compile/ops/rows/rules.h"

namespace stepgraph {
namespace {

/// Do so many heads of q fit so many of k: equal, or a multiple?
bool heads_fit(const Module& module, const Dim& heads, const Dim& key_heads) {
  if (same_size(module, heads, key_heads)) return true;
  if (key_heads != Dim(0) && exact_quotient(heads, key_heads)) return true;
  return module.stage == Stage::Local && !(heads.is_constant() && key_heads.is_constant());
}

void check_operands(const InferRequest& request) {
  const TensorType &q = request.inputs[0], &k = request.inputs[1], &v = request.inputs[2];
  const size_t rank = q.rank();
  const auto equal = [&](size_t dim_of_a, const TensorType& a, size_t dim_of_b, const TensorType& b) {
    return same_size(request.module, a.shape[dim_of_a], b.shape[dim_of_b]);
  };
  bool fits = rank >= 2 && k.rank() == rank && v.rank() == rank && q.dtype == k.dtype && q.dtype == v.dtype;
  for (size_t d = 0; fits && d + 3 < rank; ++d) fits = equal(d, q, d, k) && equal(d, q, d, v);
  if (fits && rank > 2) fits = equal(rank - 3, k, rank - 3, v) && heads_fit(request.module, q.shape[rank - 3], k.shape[rank - 3]);
  fits = fits && equal(rank - 1, q, rank - 1, k) && equal(rank - 2, k, rank - 2, v);
  if (!fits)
    throw UserError(
        fmt::format("attention: found query {}, key {}, value {}, wanted [..., T, D], [..., S, D], [..., S, E] of one dtype", text(q), text(k), text(v)));
  check_floating("attention", q);
}

/// [..., H, T, S], of which the first dims are q's.
Shape scores_shape(const TensorType& q, const TensorType& k) {
  Shape shape = q.shape;
  shape.back() = k.shape[k.rank() - 2];
  return shape;
}

void check_mask(const InferRequest& request, const TensorType& mask) {
  const Shape scores = scores_shape(request.inputs[0], request.inputs[1]);
  bool fits = mask.rank() <= scores.size() && (mask.dtype == DType::Bool || is_floating(mask.dtype));
  for (size_t d = 0; fits && d < mask.rank(); ++d)
    fits = mask.shape[d] == Dim(1) || same_size(request.module, mask.shape[d], scores[scores.size() - mask.rank() + d]);
  if (!fits)
    throw UserError(fmt::format("attention: found mask {}, wanted bool or a floating dtype that broadcasts to {}{}", text(mask), text(scores),
                                ranges_of(request.module, mask.shape, scores)));
}

void check_dropout(const InferRequest& request, const Attention& op, const AttentionInputs& at) {
  if (!(op.dropout >= 0 && op.dropout <= 1)) throw UserError(fmt::format("attention: found a dropout of {}, wanted a number from 0 to 1", op.dropout));
  const size_t rank = at.key ? request.inputs[0].rank() : 0;
  if (op.place.global_shape.size() != rank || op.place.starts.size() != rank)
    throw UserError(fmt::format("attention: found global shape {} and starts {}, wanted {} dims, those of the weights", text(op.place.global_shape),
                                text(op.place.starts), rank));
  if (!at.key) return;
  const TensorType& key = request.inputs[*at.key];
  if (key.dtype != DType::I64 || key.rank() != 0) throw UserError(fmt::format("attention: found key {}, wanted i64[]", text(key)));
}

void check_attention(const InferRequest& request, const Attention& op, const AttentionInputs& at) {
  if (!at.fit)
    throw UserError(fmt::format("{}: {} operands; wanted query, key, value, a mask or none{}", name(request.op), request.inputs.size(),
                                op.dropout != 0 ? ", and the key of dropout" : ", and no key without dropout"));
  check_operands(request);
  if (at.mask) check_mask(request, request.inputs[*at.mask]);
  check_dropout(request, op, at);
  if (!std::isfinite(op.scale)) throw UserError(fmt::format("attention: found a scale of {}, wanted a finite number", op.scale));
}

Shape without_last(Shape shape) {
  shape.pop_back();
  return shape;
}

std::vector<TensorType> attention_types(const InferRequest& request) {
  const auto& op = std::get<Attention>(request.op);
  check_attention(request, op, AttentionInputs(op, request.inputs.size()));
  const TensorType& q = request.inputs[0];
  TensorType out{q.dtype, q.shape, {}};
  out.shape.back() = request.inputs[2].shape.back();
  return {out, {wide_dtype(q.dtype), without_last(q.shape), {}}};
}

std::vector<TensorType> attention_gradient_types(const InferRequest& request) {
  const auto& op = std::get<AttentionGradient>(request.op);
  const AttentionInputs at(op, request.inputs.size());
  check_attention(request, op, at);
  const size_t first = at.own;
  const TensorType &q = request.inputs[0], &v = request.inputs[2];
  Shape out = q.shape;
  out.back() = v.shape.back();
  for (size_t i = first; i < request.inputs.size(); ++i) {
    const TensorType& found = request.inputs[i];
    const bool of_rows = (i - first) % 2 == 1;  // log-sum-exp and its gradient
    const Shape wanted = of_rows ? without_last(out) : out;
    if (!same_shape(request.module, found.shape, wanted) || (of_rows ? !is_floating(found.dtype) : found.dtype != q.dtype))
      throw UserError(fmt::format("attention_gradient: found {} as input {}, wanted {}{}", text(found), i,
                                  of_rows ? "a floating dtype of " : std::string(name(q.dtype)), text(wanted)));
  }
  std::vector<TensorType> results(request.inputs.begin(), request.inputs.begin() + 3);
  if (op.mask_gradient) {
    if (!at.mask || !is_floating(request.inputs[*at.mask].dtype)) throw UserError("attention_gradient: mask_gradient wants a floating mask");
    results.push_back(request.inputs[*at.mask]);
  }
  for (TensorType& type : results) type.sharding.reset();
  return results;
}

std::vector<Literal> evaluate_attention_row(const EvaluateRequest& request) {
  return evaluate_attention(std::get<Attention>(request.op), request.inputs, request.results);
}
std::vector<Literal> evaluate_attention_gradient_row(const EvaluateRequest& request) {
  return evaluate_attention_gradient(std::get<AttentionGradient>(request.op), request.inputs, request.results);
}

std::vector<std::optional<Value>> gradient_of_attention(const GradientRequest& request) {
  AttentionGradient op{std::get<Attention>(request.op)};
  const AttentionInputs at(op, request.inputs.size() + 4);
  op.mask_gradient = at.mask && is_floating(request.inputs[*at.mask].dtype()) && request.needed[*at.mask];
  std::vector<Value> inputs = request.inputs;
  inputs.insert(inputs.end(), request.results.begin(), request.results.end());
  for (size_t i = 0; i < 2; ++i) inputs.push_back(request.result_gradients[i] ? *request.result_gradients[i] : zeros_like(request.results[i]));
  std::vector<std::optional<Value>> gradients;
  for (const Value& gradient : request.builder.emit(op, inputs)) gradients.emplace_back(gradient);
  gradients.resize(request.inputs.size());  // none of a bool mask, none of a key
  return gradients;
}

/// Batch and heads are parallel; a key's head is the major part of the heads of q that share it.
struct AttentionFactors {
  ShardingRule rule;
  DimFactors q, k, rows;  // also of v and out; rows: [..., H, T]
};
AttentionFactors attention_factors(const ShardingRequest& request) {
  const Shape &q = request.inputs[0].shape, &k = request.inputs[1].shape;
  AttentionFactors made;
  made.q.resize(q.size()), made.k.resize(q.size());
  for (size_t d = 0; d + 2 < q.size(); ++d) {
    if (k[d] != Dim(1)) made.k[d] = {add_factor(made.rule, FactorKind::Parallel, k[d])};
    made.q[d] = made.k[d];
    if (q[d] == k[d]) continue;
    if (const std::optional<Dim> shared = exact_quotient(q[d], k[d])) made.q[d].push_back(add_factor(made.rule, FactorKind::Parallel, *shared));
  }
  made.rows.assign(made.q.begin(), made.q.end() - 1);
  return made;
}

DimFactors mask_factors(const AttentionFactors& factors, const TensorType& mask) {
  DimFactors dims(mask.rank());
  const size_t extra = factors.q.size() - mask.rank();
  for (size_t d = 0; d < mask.rank(); ++d)
    if (mask.shape[d] != Dim(1)) dims[d] = factors.q[extra + d];
  return dims;
}

void add_optional_factors(AttentionFactors& factors, const ShardingRequest& request, const AttentionInputs& at) {
  if (at.mask) factors.rule.operands.push_back(mask_factors(factors, request.inputs[*at.mask]));
  if (at.key) factors.rule.operands.emplace_back();
}

ShardingRule attention_sharding_rule(const ShardingRequest& request) {
  AttentionFactors made = attention_factors(request);
  made.rule.operands = {made.q, made.k, made.k};
  add_optional_factors(made, request, AttentionInputs(std::get<Attention>(request.op), request.inputs.size()));
  made.rule.results = {made.q, made.rows};
  return made.rule;
}

ShardingRule attention_gradient_sharding_rule(const ShardingRequest& request) {
  AttentionFactors made = attention_factors(request);
  made.rule.operands = {made.q, made.k, made.k};
  add_optional_factors(made, request, AttentionInputs(std::get<AttentionGradient>(request.op), request.inputs.size()));
  made.rule.operands.insert(made.rule.operands.end(), {made.q, made.rows, made.q, made.rows});
  made.rule.results = {made.q, made.k, made.k};
  if (request.results.size() > 3) made.rule.results.push_back(made.rule.operands[3]);
  return made.rule;
}

/// Axes that split dims of q along which this operand is one for all: its gradient is a sum over them.
std::vector<AxisRef> stretched_axes(const PartitionRequest& request, size_t operand) {
  const TensorType &q = request.inputs[0], &type = request.inputs[operand];
  std::vector<AxisRef> axes;
  const size_t extra = q.rank() - type.rank();
  for (size_t d = 0; d + 2 < q.rank() && q.sharding; ++d) {
    if (d >= extra && type.shape[d - extra] != Dim(1)) continue;
    const std::vector<AxisRef>& own = q.sharding->dims[d].axes;
    axes.insert(axes.end(), own.begin(), own.end());
  }
  return axes;
}

/// The weights of this coordinate, placed in those of all.
void place_locally(const PartitionRequest& request, DrawPlace& place) {
  const TensorType& q = request.inputs[0];
  if (place.starts.empty() || !q.sharding) return;
  for (size_t d = 0; d + 2 < q.rank(); ++d)
    place.starts[d] = place.starts[d] + request.sizes.start(q.shape[d], q.sharding->dims[d]);
}

std::vector<Value> partition_attention(const PartitionRequest& request) {
  Attention op = std::get<Attention>(request.op);
  place_locally(request, op.place);
  return request.builder.emit(std::move(op), request.local_inputs);
}

/// What is one for several ranks gets its gradient from all of them; sums of half precision travel in f32.
std::vector<Value> partition_attention_gradient(const PartitionRequest& request) {
  AttentionGradient op = std::get<AttentionGradient>(request.op);
  place_locally(request, op.place);
  std::vector<std::vector<AxisRef>> axes = {{}, stretched_axes(request, 1), stretched_axes(request, 2)};
  if (request.results.size() > 3) axes.push_back(stretched_axes(request, 3));
  const bool sums = std::any_of(axes.begin(), axes.end(), [](const std::vector<AxisRef>& own) { return !own.empty(); });
  std::vector<Value> inputs(request.local_inputs.begin(), request.local_inputs.end());
  if (sums)
    for (Value& input : inputs)
      if (is_half(input.dtype())) input = convert(input, DType::F32);
  std::vector<Value> results = request.builder.emit(std::move(op), inputs);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!axes[i].empty()) results[i] = request.builder.emit_one(AllReduce{ReduceKind::Sum, axes[i]}, {results[i]});
    results[i] = convert(results[i], request.results[i].dtype);
  }
  return results;
}

/// Multiply-adds for each score, softmax included, times the scores.
Cost cost_of_scores(const CostRequest& request, const Dim& flops) {
  return {element_count(scores_shape(request.inputs[0], request.inputs[1])) * flops, bytes_of(request.inputs) + bytes_of(request.results)};
}
Cost attention_cost(const CostRequest& request) { return cost_of_scores(request, (request.inputs[0].shape.back() + request.inputs[2].shape.back()) * 2 + 5); }
Cost attention_gradient_cost(const CostRequest& request) {
  return cost_of_scores(request, request.inputs[0].shape.back() * 6 + request.inputs[2].shape.back() * 4 + 6);
}

}  // namespace

OpInfo row_of(OpType<Attention>) {
  OpInfo info;
  info.operands = {3, 5};
  info.infer = attention_types;
  info.evaluate = evaluate_attention_row;
  info.gradient = gradient_of_attention;
  info.decompose = attention_by_primitives;
  info.sharding_rule = attention_sharding_rule;
  info.partition = partition_attention;
  info.cost = attention_cost;
  return info;
}

OpInfo row_of(OpType<AttentionGradient>) {
  OpInfo info;
  info.operands = {7, 9};
  info.infer = attention_gradient_types;
  info.evaluate = evaluate_attention_gradient_row;
  info.decompose = attention_gradient_by_primitives;
  info.sharding_rule = attention_gradient_sharding_rule;
  info.partition = partition_attention_gradient;
  info.cost = attention_gradient_cost;
  return info;
}

}  // namespace stepgraph
