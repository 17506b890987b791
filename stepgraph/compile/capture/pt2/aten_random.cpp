// SPDX-License-Identifier: Apache-2.0
// Random numbers of rarer distributions, and dropout of whole channels. They are the engine's own: equal to PyTorch's in distribution only.
#include <cmath>
#include <numbers>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

Value uniform(OperatorCall& call, DType dtype, const Shape& shape) { return random_uniform(call.key(), dtype, shape); }
Value normal(OperatorCall& call, DType dtype, const Shape& shape) { return random_normal(call.key(), dtype, shape); }

void exponential_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(neg(log1p(neg(uniform(call, x.dtype(), x.shape())))) / call.real("lambd", 1));
}
/// The number of trials up to the first success.
void geometric_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const double p = call.real("p");
  if (!(p > 0 && p < 1)) call.fail("found p = " + std::to_string(p) + ", wanted it between 0 and 1");
  call.result(convert(floor(log1p(neg(uniform(call, DType::F64, x.shape()))) / std::log1p(-p)) + 1.0, x.dtype()));
}
void cauchy_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(unary(UnaryKind::Tan, (uniform(call, x.dtype(), x.shape()) - 0.5) * std::numbers::pi) * call.real("sigma", 1) + call.real("median", 0));
}
void log_normal_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(exp(normal(call, x.dtype(), x.shape()) * call.real("std", 2) + call.real("mean", 1)));
}
/// normal with tensors of means or deviations.
void normal_tensors_row(OperatorCall& call) {
  const Operand mean = call.operand("mean"), deviation = call.has("std") ? call.operand("std") : Operand(Number{Number::Kind::Float, 1, {}});
  const DType dtype = result_type({mean, deviation});
  const Value a = as_value(call.builder(), mean, dtype), b = as_value(call.builder(), deviation, dtype);
  const Shape shape = broadcast_pair(a, b.shape()).shape();
  call.result(normal(call, dtype, shape) * b + a);
}
void normal_sizes_row(OperatorCall& call) { call.result(normal(call, call.dtype().value_or(DType::F32), call.sizes("size")) * call.real("std") + call.real("mean")); }
void randperm_row(OperatorCall& call) {
  const Value keys = uniform(call, DType::F64, {call.size("n")});
  call.result(convert(sort(keys, 0).indices, call.dtype().value_or(DType::I64)));
}
void randint_like_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t low = call.integer("low", 0), high = call.integer("high");
  if (high <= low) call.fail("found low " + std::to_string(low) + " and high " + std::to_string(high) + ", wanted low below high");
  const Value drawn = floor(uniform(call, DType::F64, x.shape()) * static_cast<double>(high - low)) + static_cast<double>(low);
  call.result(convert(drawn, call.dtype().value_or(x.dtype())));
}

/// True where an element stays: one draw for each element, or for each channel of each sample.
Value keeps(OperatorCall& call, const Value& x, bool channels) {
  Shape shape = x.shape();
  if (channels) {
    if (x.rank() < 2) call.fail("found " + text(x.type()) + ", wanted at least 2 dims");
    for (size_t d = 2; d < shape.size(); ++d) shape[d] = 1;
  }
  return broadcast_to(greater_equal(uniform(call, DType::F32, shape), call.real("p")), x.shape());
}
bool drops(OperatorCall& call) {
  const double p = call.real("p");
  if (!(p >= 0 && p <= 1)) call.fail("found p = " + std::to_string(p) + ", wanted 0 to 1");
  return call.boolean("train") && call.training() && p > 0;
}
void feature_dropout_row(OperatorCall& call) {
  const Value x = call.tensor("input");
  if (!drops(call)) return call.alias(call.handle("input"));
  const double p = call.real("p");
  call.result(p == 1 ? x * 0.0 : where(keeps(call, x, true), x / (1 - p), zeros_like(x)));
}
/// What is dropped takes the value that selu approaches far below 0; mean and variance are put back (Klambauer et al., 2017).
template <bool channels>
void alpha_dropout_row(OperatorCall& call) {
  const Value x = call.tensor("input");
  if (!drops(call)) return call.result(x);
  const double p = call.real("p");
  if (p == 1) return call.result(x * 0.0);
  constexpr double least = -1.7580993408473766;
  const double scale = 1 / std::sqrt((1 - p) * (1 + p * least * least));
  call.result(where(keeps(call, x, channels), x, full_like(x, least)) * scale - scale * p * least);
}
void refused(OperatorCall& call) { call.fail("draws from a distribution that is not supported"); }

}  // namespace

std::vector<NamedRow> random_rows() {
  return {
      {"exponential", exponential_row},
      {"geometric", geometric_row},
      {"cauchy", cauchy_row},
      {"log_normal", log_normal_row},
      {"normal.Tensor_float", normal_tensors_row},
      {"normal.float_Tensor", normal_tensors_row},
      {"normal.Tensor_Tensor", normal_tensors_row},
      {"normal.float_float", normal_sizes_row},
      {"randperm", randperm_row},
      {"randint_like", randint_like_row},
      {"feature_dropout", feature_dropout_row},
      {"alpha_dropout", alpha_dropout_row<false>},
      {"feature_alpha_dropout", alpha_dropout_row<true>},
      {"multinomial", refused},
      {"poisson", refused},
      {"binomial", refused},
      {"_standard_gamma", refused},
  };
}

}  // namespace stepgraph::pt2
