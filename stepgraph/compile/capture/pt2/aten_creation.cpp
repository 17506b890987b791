// SPDX-License-Identifier: Apache-2.0
// Tensors made from nothing, and random ones. Random numbers are the engine's own: equal to PyTorch's in distribution only.
#include <cmath>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

Value filled(OperatorCall& call, const Shape& shape, const Operand& value, std::optional<DType> dtype) {
  const DType wanted = dtype.value_or(result_type({value}));
  return broadcast_to(as_value(call.builder(), value, wanted), shape);
}
Number number_of(double value) { return {Number::Kind::Float, value, {}}; }

void full_row(OperatorCall& call) { call.result(filled(call, call.sizes("size"), call.operand("fill_value"), call.dtype())); }
template <int value>
void constant_row(OperatorCall& call) { call.result(filled(call, call.sizes("size"), number_of(value), call.dtype().value_or(DType::F32))); }
void full_like_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(filled(call, x.shape(), call.operand("fill_value"), call.dtype().value_or(x.dtype())));
}
template <int value>
void like_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(filled(call, x.shape(), number_of(value), call.dtype().value_or(x.dtype())));
}
template <int value>
void new_row(OperatorCall& call) { call.result(filled(call, call.sizes("size"), number_of(value), call.dtype().value_or(call.tensor("self").dtype()))); }
void new_full_row(OperatorCall& call) { call.result(filled(call, call.sizes("size"), call.operand("fill_value"), call.dtype().value_or(call.tensor("self").dtype()))); }
void fill_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(filled(call, x.shape(), call.operand("value"), x.dtype()));
}
void zero_row(OperatorCall& call) { call.result(zeros_like(call.tensor("self"))); }
void scalar_tensor_row(OperatorCall& call) { call.result(filled(call, {}, call.operand("s"), call.dtype().value_or(DType::F32))); }

void arange_row(OperatorCall& call) {
  const Operand end = call.operand("end");
  std::optional<Number> start = call.maybe_number("start"), step = call.maybe_number("step");
  std::vector<Operand> all{end};
  if (start) all.emplace_back(*start);
  if (step) all.emplace_back(*step);
  DType dtype = call.dtype().value_or(result_type(all));
  const Number last = call.number("end"), first = start.value_or(Number{Number::Kind::Int, 0, Dim(0)}), by = step.value_or(Number{Number::Kind::Int, 1, Dim(1)});
  const auto is_whole = [](const Number& number) { return number.symbol || number.value == std::trunc(number.value); };
  const auto as_size = [](const Number& number) { return number.symbol ? *number.symbol : Dim(static_cast<int64_t>(number.value)); };
  if (by.symbol && !by.symbol->is_constant()) call.fail("wanted a constant step, found " + by.symbol->text());
  if (!is_floating(dtype) || (is_whole(first) && is_whole(last) && is_whole(by))) {
    const Dim from = as_size(first), to = as_size(last);
    const int64_t stride = as_size(by).constant();
    if (stride == 0) call.fail("a step of 0");
    const Dim count = call.builder().module().symbols.simplify(stride > 0 ? ceildiv(to - from, Dim(stride)) : ceildiv(from - to, Dim(-stride)));
    Value values = iota(call.builder(), DType::I64, {count}, 0);
    if (stride != 1) values = values * static_cast<double>(stride);
    if (!(from == Dim(0))) values = values + size_value(call.builder(), DType::I64, from);
    return call.result(convert(values, dtype));
  }
  for (const Number& number : {first, last})
    if (number.symbol && !number.symbol->is_constant()) call.fail("wanted constant numbers with a step of " + std::to_string(by.value) + ", found " + number.symbol->text());
  if (by.value == 0) call.fail("a step of 0");
  const int64_t count = std::max<int64_t>(0, static_cast<int64_t>(std::ceil((last.value - first.value) / by.value)));
  call.result(convert(iota(call.builder(), DType::F64, {Dim(count)}, 0) * by.value + first.value, dtype));
}
void linspace_row(OperatorCall& call) {
  const double start = call.real("start"), end = call.real("end");
  const int64_t steps = call.integer("steps");
  const double by = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  call.result(convert(iota(call.builder(), DType::F64, {Dim(steps)}, 0) * by + start, call.dtype().value_or(DType::F32)));
}
void eye_row(OperatorCall& call) {
  const Dim n = call.size("n"), m = call.has("m") ? call.size("m") : n;
  const Value same = equal(iota(call.builder(), DType::I64, {n, m}, 0), iota(call.builder(), DType::I64, {n, m}, 1));
  call.result(convert(same, call.dtype().value_or(DType::F32)));
}
void one_hot_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t classes = call.integer("num_classes", -1);
  if (classes < 0) call.fail("num_classes must be given: otherwise the size depends on data");
  Shape shape = x.shape();
  shape.emplace_back(classes);
  call.result(convert(equal(unsqueeze(x, -1), iota(call.builder(), x.dtype(), shape, static_cast<int64_t>(shape.size()) - 1)), DType::I64));
}

Value drawn_uniform(OperatorCall& call, DType dtype, const Shape& shape) { return random_uniform(call.key(), dtype, shape); }
void rand_row(OperatorCall& call) { call.result(drawn_uniform(call, call.dtype().value_or(DType::F32), call.sizes("size"))); }
void randn_row(OperatorCall& call) { call.result(random_normal(call.key(), call.dtype().value_or(DType::F32), call.sizes("size"))); }
void rand_like_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(drawn_uniform(call, call.dtype().value_or(x.dtype()), x.shape()));
}
void randn_like_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(random_normal(call.key(), call.dtype().value_or(x.dtype()), x.shape()));
}
void uniform_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const double from = call.real("from", 0), to = call.real("to", 1);
  call.result(drawn_uniform(call, x.dtype(), x.shape()) * (to - from) + from);
}
void normal_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(random_normal(call.key(), x.dtype(), x.shape()) * call.real("std", 1) + call.real("mean", 0));
}
/// bernoulli(x): probabilities in x; bernoulli.p(x, p) and bernoulli_.float: one probability, shape and dtype of x.
void bernoulli_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (call.has("p")) {
    const Operand p = call.operand("p");
    return call.result(convert(less(drawn_uniform(call, DType::F32, x.shape()), as_value(call.builder(), p, DType::F32)), x.dtype()));
  }
  call.result(convert(less(drawn_uniform(call, DType::F32, x.shape()), convert(x, DType::F32)), x.dtype()));
}
void randint_row(OperatorCall& call) {
  const int64_t low = call.integer("low", 0), high = call.integer("high");
  call.result(convert(floor(drawn_uniform(call, DType::F64, call.sizes("size")) * static_cast<double>(high - low)) + static_cast<double>(low), call.dtype().value_or(DType::I64)));
}

}  // namespace

std::vector<NamedRow> creation_rows() {
  return {
      {"full", full_row}, {"zeros", constant_row<0>}, {"ones", constant_row<1>}, {"empty", constant_row<0>}, {"empty_permuted", constant_row<0>}, {"empty_strided", constant_row<0>},
      {"full_like", full_like_row}, {"zeros_like", like_row<0>}, {"ones_like", like_row<1>}, {"empty_like", like_row<0>}, {"new_zeros", new_row<0>}, {"new_ones", new_row<1>},
      {"new_empty", new_row<0>}, {"new_empty_strided", new_row<0>}, {"new_full", new_full_row}, {"fill", fill_row}, {"zero", zero_row}, {"scalar_tensor", scalar_tensor_row},
      {"arange", arange_row}, {"linspace", linspace_row}, {"eye", eye_row}, {"one_hot", one_hot_row}, {"rand", rand_row}, {"randn", randn_row}, {"rand_like", rand_like_row},
      {"randn_like", randn_like_row}, {"uniform", uniform_row}, {"normal", normal_row}, {"bernoulli", bernoulli_row}, {"randint", randint_row},
  };
}

}  // namespace stepgraph::pt2
