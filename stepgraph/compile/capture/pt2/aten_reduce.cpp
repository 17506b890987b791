// SPDX-License-Identifier: Apache-2.0
// Reductions, scans, softmax.
#include <cmath>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

/// sum, prod and cumsum of integers and bools are i64, unless a dtype is asked for.
Value accumulated(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (const auto dtype = call.dtype()) return convert(x, *dtype);
  return is_floating(x.dtype()) ? x : convert(x, DType::I64);
}
Value floating_input(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (const auto dtype = call.dtype()) return convert(x, *dtype);
  return as_floating(x);
}
std::vector<int64_t> reduced(OperatorCall& call, const Value& x) { return call.dims("dim", x.rank()); }

/// The functions take no dims as all dims; a scalar has none to reduce.
template <class F>
Value over(const Value& x, const std::vector<int64_t>& dims, F&& reduce) {
  return x.rank() == 0 ? x : reduce(x, dims);
}

void sum_row(OperatorCall& call) {
  const Value x = accumulated(call);
  call.result(over(x, reduced(call, x), [&](const Value& v, const Dims& dims) { return sum(v, dims, call.boolean("keepdim", false)); }));
}
void mean_row(OperatorCall& call) {
  const Value x = floating_input(call);
  call.result(over(x, reduced(call, x), [&](const Value& v, const Dims& dims) { return mean(v, dims, call.boolean("keepdim", false)); }));
}
void prod_row(OperatorCall& call) {
  const Value x = accumulated(call);
  call.result(over(x, reduced(call, x), [&](const Value& v, const Dims& dims) { return prod(v, dims, call.boolean("keepdim", false)); }));
}
template <ReduceKind kind>
void extreme(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(over(x, reduced(call, x), [&](const Value& v, const Dims& dims) { return reduce(kind, v, dims, call.boolean("keepdim", false)); }));
}
/// max(x, dim): the value at the returned index, which alone gets the gradient.
template <bool is_max>
void extreme_dim(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (x.rank() == 0) return call.results({x, constant(call.builder(), Literal::integer(DType::I64, 0))});
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  const bool keep = call.boolean("keepdim", false);
  const Value index = is_max ? argmax(x, dim, true) : argmin(x, dim, true);
  const Value value = gather(x, dim, index);
  call.results({keep ? value : squeeze(value, {dim}), keep ? index : squeeze(index, {dim})});
}
template <bool is_max>
void arg_row(OperatorCall& call) {
  Value x = call.tensor("self");
  const bool keep = call.boolean("keepdim", false);
  const int64_t rank = x.rank();
  if (!call.has("dim")) {
    x = reshape(x, {element_count(x.shape())});
    Value index = is_max ? argmax(x, 0) : argmin(x, 0);
    if (keep) index = reshape(index, Shape(static_cast<size_t>(rank), Dim(1)));
    return call.result(index);
  }
  if (rank == 0) return call.result(constant(call.builder(), Literal::integer(DType::I64, 0)));
  const int64_t dim = call.wrap(call.integer("dim"), rank);
  call.result(is_max ? argmax(x, dim, keep) : argmin(x, dim, keep));
}
template <ReduceKind kind>
void truth(OperatorCall& call) {
  const Value x = convert(call.tensor("self"), DType::Bool);
  call.result(over(x, reduced(call, x), [&](const Value& v, const Dims& dims) { return reduce(kind, v, dims, call.boolean("keepdim", false)); }));
}
/// Biased variance times n / (n - correction).
MeanVariance variance(OperatorCall& call, const Value& x) {
  const Dims dims = reduced(call, x);
  const bool keep = call.boolean("keepdim", false);
  double correction = 1;
  if (call.has("unbiased")) correction = call.boolean("unbiased") ? 1 : 0;
  if (call.has("correction")) correction = call.real("correction");
  MeanVariance found = moments(x, dims, keep);
  if (correction != 0) {
    Dim count = 1;
    for (int64_t d : dims) count = count * x.dim(d);
    const Value n = size_value(call.builder(), found.variance.dtype(), count);
    const Value degrees = n - correction;
    found.variance = found.variance * (n / maximum(degrees, zeros_like(degrees)));  // infinite without a degree of freedom
  }
  return found;
}
void var_row(OperatorCall& call) { call.result(variance(call, as_floating(call.tensor("self"))).variance); }
/// The gradient at a deviation of zero is zero, as PyTorch's.
Value deviation(const Value& variance) {
  const Value is_zero = equal(variance, 0.0);
  return where(is_zero, zeros_like(variance), sqrt(where(is_zero, ones_like(variance), variance)));
}
/// In f64, where the variance of what f32 holds does not overflow.
MeanVariance standard(OperatorCall& call) {
  const Value x = as_floating(call.tensor("self"));
  const MeanVariance found = variance(call, convert(x, DType::F64));
  return {convert(found.mean, x.dtype()), convert(deviation(found.variance), x.dtype())};
}
void std_row(OperatorCall& call) { call.result(standard(call).variance); }
void std_mean_row(OperatorCall& call) {
  const MeanVariance found = standard(call);
  call.results({found.variance, found.mean});
}
void var_mean_row(OperatorCall& call) {
  const MeanVariance found = variance(call, as_floating(call.tensor("self")));
  call.results({found.variance, found.mean});
}
void linalg_vector_norm(OperatorCall& call) {
  const Value x = floating_input(call);
  call.result(vector_norm(x, call.real("ord", 2), call.dims("dim", x.rank()), call.boolean("keepdim", false)));
}
void norm_row(OperatorCall& call) {
  const Value x = floating_input(call);
  call.result(vector_norm(x, call.real("p", 2), call.dims("dim", x.rank()), call.boolean("keepdim", false)));
}
void logsumexp_row(OperatorCall& call) {
  const Value x = as_floating(call.tensor("self"));
  if (x.rank() == 0) return call.result(x);
  const Dims dims = reduced(call, x);
  const bool keep = call.boolean("keepdim", false);
  const Value largest = stop_gradient(amax(x, dims, true));
  const Value shift = where(is_finite(largest), largest, zeros_like(largest));
  const Value total = log(sum(exp(x - shift), dims, true)) + shift;
  call.result(keep ? total : squeeze(total, dims));
}
void cumsum_row(OperatorCall& call) {
  const Value x = accumulated(call);
  call.result(x.rank() == 0 ? x : cumsum(x, call.wrap(call.integer("dim"), x.rank())));
}
void cumprod_row(OperatorCall& call) {
  const Value x = accumulated(call);
  call.result(x.rank() == 0 ? x : cumprod(x, call.wrap(call.integer("dim"), x.rank())));
}
void logcumsumexp_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(x.rank() == 0 ? x : logcumsumexp(x, call.wrap(call.integer("dim"), x.rank())));
}
Value along(OperatorCall& call, const Value& x, Value (*function)(At, int64_t)) {
  if (x.rank() == 0) return reshape(function(reshape(x, {Dim(1)}), 0), {});
  return function(x, call.wrap(call.integer("dim"), x.rank()));
}
void softmax_row(OperatorCall& call) {
  const Value x = floating_input(call);
  call.result(along(call, x, softmax));
}
void log_softmax_row(OperatorCall& call) {
  const Value x = floating_input(call);
  call.result(along(call, x, log_softmax));
}
void safe_softmax_row(OperatorCall& call) {
  const Value x = floating_input(call);
  call.result(along(call, x, safe_softmax));
}
void count_nonzero(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(over(convert(convert(x, DType::Bool), DType::I64), reduced(call, x), [&](const Value& v, const Dims& dims) { return sum(v, dims); }));
}

}  // namespace

std::vector<NamedRow> reduction_rows() {
  return {
      {"sum", sum_row}, {"mean", mean_row}, {"prod", prod_row}, {"amax", extreme<ReduceKind::Max>}, {"amin", extreme<ReduceKind::Min>}, {"max", extreme<ReduceKind::Max>},
      {"min", extreme<ReduceKind::Min>}, {"max.dim", extreme_dim<true>}, {"min.dim", extreme_dim<false>}, {"argmax", arg_row<true>}, {"argmin", arg_row<false>},
      {"any", truth<ReduceKind::Any>}, {"all", truth<ReduceKind::All>}, {"var", in_f32<var_row>}, {"std", std_row}, {"var_mean", in_f32<var_mean_row>}, {"std_mean", std_mean_row}, {"linalg_vector_norm", linalg_vector_norm},
      {"norm", norm_row}, {"logsumexp", in_f32<logsumexp_row>}, {"cumsum", cumsum_row}, {"cumprod", cumprod_row}, {"logcumsumexp", in_f32<logcumsumexp_row>}, {"softmax", softmax_row},
      {"_softmax", softmax_row}, {"log_softmax", log_softmax_row}, {"_log_softmax", log_softmax_row}, {"special_log_softmax", log_softmax_row}, {"_safe_softmax", safe_softmax_row},
      {"count_nonzero", count_nonzero},
  };
}

}  // namespace stepgraph::pt2
