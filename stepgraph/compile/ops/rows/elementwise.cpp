// SPDX-License-Identifier: Apache-2.0
// Element-wise ops: types and values. Their gradients are in elementwise_gradients.cpp.
//
// Values go through blocks of f64 or i64, whatever the dtype. For + - * / and sqrt of f32, bf16 and f16 the f64 result rounded once is the correctly
// rounded one, since f64 has more than twice their mantissa bits. An operand of one element stands for all (bodies of MapTensors have scalar constants).
#include <algorithm>
#include <cmath>
#include <type_traits>

#include <fmt/core.h>

#include "stepgraph/compile/ops/rows/elementwise_gradients.h"
#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/compile/ops/kernels/elements.h"
#include "stepgraph/compile/ops/rows/rows.h"
#include "stepgraph/compile/ops/kernels/gamma_and_erf.h"

namespace stepgraph {
namespace {

// ---- walks over blocks

template <class T>
bool holds(DType dtype) {
  if constexpr (std::is_same_v<T, double>) return dtype == DType::F64;
  if constexpr (std::is_same_v<T, float>) return dtype == DType::F32;
  if constexpr (std::is_same_v<T, int64_t>) return dtype == DType::I64;
}

/// Blocks of an operand as T: where they lie if they are T already; one element fills a block once.
template <class T>
class OperandBlocks {
 public:
  OperandBlocks(const Literal& literal, int64_t count) : literal_(literal), repeats_(literal.count() == 1 && count != 1), direct_(holds<T>(literal.dtype())) {
    if (!repeats_) return;
    std::fill_n(block_, element_block, *read(0, 1));
  }
  const T* load(int64_t first, int64_t count) { return repeats_ ? block_ : read(first, count); }

 private:
  const T* read(int64_t first, int64_t count) {
    if (direct_) return reinterpret_cast<const T*>(literal_.data()) + first;
    if constexpr (!std::is_same_v<T, float>) load_elements(literal_, first, count, block_);
    return block_;
  }
  const Literal& literal_;
  bool repeats_, direct_;
  T block_[element_block];
};

/// Fills the result block by block: fill(first, count, out) writes `count` values of R.
template <class R, class Fill>
void for_each_block(Literal& result, Fill fill) {
  const bool direct = holds<R>(result.dtype());
  R block[element_block];
  std::byte* data = result.mutable_data();
  for (int64_t first = 0; first < result.count(); first += element_block) {
    const int64_t count = std::min(element_block, result.count() - first);
    std::byte* target = data + static_cast<size_t>(first) * size_bytes(result.dtype());
    fill(first, count, direct ? reinterpret_cast<R*>(target) : block);
    if constexpr (!std::is_same_v<R, float>) {
      if (!direct) store_elements(result.dtype(), target, count, block);
    }
  }
}

/// What a function's values are kept as before they are stored: bool as i64.
template <class R>
using Kept = std::conditional_t<std::is_same_v<R, bool>, int64_t, R>;

/// Reads T, writes the function's result.
template <class T, class F>
void map_one(const Literal& x, Literal& result, F f) {
  using R = Kept<std::invoke_result_t<F, T>>;
  OperandBlocks<T> xs(x, result.count());
  for_each_block<R>(result, [&](int64_t first, int64_t count, R* out) {
    const T* a = xs.load(first, count);
    for (int64_t i = 0; i < count; ++i) out[i] = f(a[i]);
  });
}

template <class T, class F>
void map_two(const Literal& x, const Literal& y, Literal& result, F f) {
  using R = Kept<std::invoke_result_t<F, T, T>>;
  OperandBlocks<T> xs(x, result.count()), ys(y, result.count());
  for_each_block<R>(result, [&](int64_t first, int64_t count, R* out) {
    const T* a = xs.load(first, count);
    const T* b = ys.load(first, count);
    for (int64_t i = 0; i < count; ++i) out[i] = f(a[i], b[i]);
  });
}

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

bool is_transcendental(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::Negate: case UnaryKind::Abs: case UnaryKind::Sign: case UnaryKind::Floor: case UnaryKind::Ceil: case UnaryKind::Round:
    case UnaryKind::Relu: case UnaryKind::Not: case UnaryKind::IsFinite: case UnaryKind::IsNan: case UnaryKind::Sqrt: case UnaryKind::Reciprocal:
      return false;
    case UnaryKind::Exp: case UnaryKind::Expm1: case UnaryKind::Log: case UnaryKind::Log1p: case UnaryKind::Rsqrt: case UnaryKind::Sin:
    case UnaryKind::Cos: case UnaryKind::Tanh: case UnaryKind::Sigmoid: case UnaryKind::Erf:
    case UnaryKind::Exp2: case UnaryKind::Log2: case UnaryKind::Log10: case UnaryKind::Tan: case UnaryKind::Asin: case UnaryKind::Acos:
    case UnaryKind::Atan: case UnaryKind::Sinh: case UnaryKind::Cosh: case UnaryKind::Asinh: case UnaryKind::Acosh: case UnaryKind::Atanh:
    case UnaryKind::Erfc: case UnaryKind::Erfinv: case UnaryKind::Lgamma:
      return true;
  }
  return false;
}

std::vector<TensorType> infer_unary(const InferRequest& request) {
  const UnaryKind kind = std::get<Unary>(request.op).kind;
  const TensorType& x = request.inputs[0];
  switch (kind) {
    case UnaryKind::Exp: case UnaryKind::Expm1: case UnaryKind::Log: case UnaryKind::Log1p: case UnaryKind::Sqrt: case UnaryKind::Rsqrt:
    case UnaryKind::Reciprocal: case UnaryKind::Sin: case UnaryKind::Cos: case UnaryKind::Tanh: case UnaryKind::Sigmoid: case UnaryKind::Erf:
    case UnaryKind::Exp2: case UnaryKind::Log2: case UnaryKind::Log10: case UnaryKind::Tan: case UnaryKind::Asin: case UnaryKind::Acos:
    case UnaryKind::Atan: case UnaryKind::Sinh: case UnaryKind::Cosh: case UnaryKind::Asinh: case UnaryKind::Acosh: case UnaryKind::Atanh:
    case UnaryKind::Erfc: case UnaryKind::Erfinv: case UnaryKind::Lgamma:
      check_floating(name(kind), x);
      return {{x.dtype, x.shape, {}}};
    case UnaryKind::Negate: case UnaryKind::Abs: case UnaryKind::Sign: case UnaryKind::Floor: case UnaryKind::Ceil: case UnaryKind::Round: case UnaryKind::Relu:
      if (x.dtype == DType::Bool) throw UserError(fmt::format("{}: found {}, wanted a number", name(kind), text(x)));
      return {{x.dtype, x.shape, {}}};
    case UnaryKind::Not:
      if (is_floating(x.dtype)) throw UserError(fmt::format("{}: found {}, wanted bool or an integer", name(kind), text(x)));
      return {{x.dtype, x.shape, {}}};
    case UnaryKind::IsFinite: case UnaryKind::IsNan: return {{DType::Bool, x.shape, {}}};
  }
  return {};
}

double sigmoid_of(double x) {
  // The exponent is never positive, so that nothing overflows.
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}

void unary_floats(UnaryKind kind, const Literal& x, Literal& r) {
  switch (kind) {
    case UnaryKind::Negate: map_one<double>(x, r, [](double v) { return -v; }); break;
    case UnaryKind::Abs: map_one<double>(x, r, [](double v) { return std::fabs(v); }); break;
    case UnaryKind::Sign: map_one<double>(x, r, [](double v) { return v > 0 ? 1.0 : v < 0 ? -1.0 : v; }); break;
    case UnaryKind::Exp: map_one<double>(x, r, [](double v) { return std::exp(v); }); break;
    case UnaryKind::Expm1: map_one<double>(x, r, [](double v) { return std::expm1(v); }); break;
    case UnaryKind::Log: map_one<double>(x, r, [](double v) { return std::log(v); }); break;
    case UnaryKind::Log1p: map_one<double>(x, r, [](double v) { return std::log1p(v); }); break;
    case UnaryKind::Sqrt: map_one<double>(x, r, [](double v) { return std::sqrt(v); }); break;
    case UnaryKind::Rsqrt: map_one<double>(x, r, [](double v) { return 1 / std::sqrt(v); }); break;
    case UnaryKind::Reciprocal: map_one<double>(x, r, [](double v) { return 1 / v; }); break;
    case UnaryKind::Sin: map_one<double>(x, r, [](double v) { return std::sin(v); }); break;
    case UnaryKind::Cos: map_one<double>(x, r, [](double v) { return std::cos(v); }); break;
    case UnaryKind::Tanh: map_one<double>(x, r, [](double v) { return std::tanh(v); }); break;
    case UnaryKind::Sigmoid: map_one<double>(x, r, sigmoid_of); break;
    case UnaryKind::Erf: map_one<double>(x, r, [](double v) { return std::erf(v); }); break;
    case UnaryKind::Exp2: map_one<double>(x, r, [](double v) { return std::exp2(v); }); break;
    case UnaryKind::Log2: map_one<double>(x, r, [](double v) { return std::log2(v); }); break;
    case UnaryKind::Log10: map_one<double>(x, r, [](double v) { return std::log10(v); }); break;
    case UnaryKind::Tan: map_one<double>(x, r, [](double v) { return std::tan(v); }); break;
    case UnaryKind::Asin: map_one<double>(x, r, [](double v) { return std::asin(v); }); break;
    case UnaryKind::Acos: map_one<double>(x, r, [](double v) { return std::acos(v); }); break;
    case UnaryKind::Atan: map_one<double>(x, r, [](double v) { return std::atan(v); }); break;
    case UnaryKind::Sinh: map_one<double>(x, r, [](double v) { return std::sinh(v); }); break;
    case UnaryKind::Cosh: map_one<double>(x, r, [](double v) { return std::cosh(v); }); break;
    case UnaryKind::Asinh: map_one<double>(x, r, [](double v) { return std::asinh(v); }); break;
    case UnaryKind::Acosh: map_one<double>(x, r, [](double v) { return std::acosh(v); }); break;
    case UnaryKind::Atanh: map_one<double>(x, r, [](double v) { return std::atanh(v); }); break;
    case UnaryKind::Erfc: map_one<double>(x, r, [](double v) { return std::erfc(v); }); break;
    case UnaryKind::Erfinv: map_one<double>(x, r, inverse_erf); break;
    case UnaryKind::Lgamma: map_one<double>(x, r, log_gamma); break;
    case UnaryKind::Floor: map_one<double>(x, r, [](double v) { return std::floor(v); }); break;
    case UnaryKind::Ceil: map_one<double>(x, r, [](double v) { return std::ceil(v); }); break;
    case UnaryKind::Round: map_one<double>(x, r, [](double v) { return std::nearbyint(v); }); break;
    case UnaryKind::Relu: map_one<double>(x, r, [](double v) { return v <= 0 ? 0.0 : v; }); break;
    case UnaryKind::IsFinite: map_one<double>(x, r, [](double v) { return std::isfinite(v); }); break;
    case UnaryKind::IsNan: map_one<double>(x, r, [](double v) { return std::isnan(v); }); break;
    case UnaryKind::Not: SG_CHECK(false, "not of a float passed inference"); break;
  }
}

void unary_integers(UnaryKind kind, const Literal& x, Literal& r) {
  switch (kind) {
    case UnaryKind::Negate: map_one<int64_t>(x, r, [](int64_t v) { return wrap_subtract(0, v); }); break;
    case UnaryKind::Abs: map_one<int64_t>(x, r, [](int64_t v) { return v < 0 ? wrap_subtract(0, v) : v; }); break;
    case UnaryKind::Sign: map_one<int64_t>(x, r, [](int64_t v) { return static_cast<int64_t>(v > 0) - static_cast<int64_t>(v < 0); }); break;
    case UnaryKind::Floor: case UnaryKind::Ceil: case UnaryKind::Round: map_one<int64_t>(x, r, [](int64_t v) { return v; }); break;
    case UnaryKind::Relu: map_one<int64_t>(x, r, [](int64_t v) { return v < 0 ? int64_t{0} : v; }); break;
    case UnaryKind::Not:
      if (x.dtype() == DType::Bool) map_one<int64_t>(x, r, [](int64_t v) { return v == 0; });
      else map_one<int64_t>(x, r, [](int64_t v) { return ~v; });
      break;
    case UnaryKind::IsFinite: map_one<int64_t>(x, r, [](int64_t) { return true; }); break;
    case UnaryKind::IsNan: map_one<int64_t>(x, r, [](int64_t) { return false; }); break;
    case UnaryKind::Exp: case UnaryKind::Expm1: case UnaryKind::Log: case UnaryKind::Log1p: case UnaryKind::Sqrt: case UnaryKind::Rsqrt:
    case UnaryKind::Reciprocal: case UnaryKind::Sin: case UnaryKind::Cos: case UnaryKind::Tanh: case UnaryKind::Sigmoid: case UnaryKind::Erf:
    case UnaryKind::Exp2: case UnaryKind::Log2: case UnaryKind::Log10: case UnaryKind::Tan: case UnaryKind::Asin: case UnaryKind::Acos:
    case UnaryKind::Atan: case UnaryKind::Sinh: case UnaryKind::Cosh: case UnaryKind::Asinh: case UnaryKind::Acosh: case UnaryKind::Atanh:
    case UnaryKind::Erfc: case UnaryKind::Erfinv: case UnaryKind::Lgamma:
      SG_CHECK(false, "a floating op of integers passed inference");
      break;
  }
}

std::vector<Literal> evaluate_unary(const EvaluateRequest& request) {
  const UnaryKind kind = std::get<Unary>(request.op).kind;
  const Literal& x = request.inputs[0];
  Literal result = new_result(request);
  if (is_floating(x.dtype())) unary_floats(kind, x, result);
  else unary_integers(kind, x, result);
  return {result};
}

// ---- binary

std::vector<TensorType> infer_binary(const InferRequest& request) {
  const BinaryKind kind = std::get<Binary>(request.op).kind;
  const TensorType& a = request.inputs[0];
  check_same_dtype(name(kind), a, request.inputs[1]);
  check_same_shape(name(kind), request, a, request.inputs[1]);
  switch (kind) {
    case BinaryKind::Add: case BinaryKind::Subtract: case BinaryKind::Multiply: case BinaryKind::FloorDivide: case BinaryKind::Remainder:
    case BinaryKind::Power: case BinaryKind::Maximum: case BinaryKind::Minimum:
      if (a.dtype == DType::Bool) throw UserError(fmt::format("{}: found {}, wanted numbers", name(kind), text(a)));
      break;
    case BinaryKind::Divide: case BinaryKind::Atan2: check_floating(name(kind), a); break;
    case BinaryKind::And: case BinaryKind::Or: case BinaryKind::Xor:
      if (is_floating(a.dtype)) throw UserError(fmt::format("{}: found {}, wanted bool or integers", name(kind), text(a)));
      break;
  }
  return {{a.dtype, a.shape, {}}};
}

double remainder_of(double a, double b) {
  const double mod = std::fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}

double floor_divide_of(double a, double b) {
  if (b == 0) return a / b;
  const double mod = std::fmod(a, b);
  double quotient = (a - mod) / b;  // all but exact: a - mod is a multiple of b
  if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

/// In f32 itself where that rounds to the same: the four operations.
template <class F>
void map_arithmetic(const Literal& x, const Literal& y, Literal& r, F f) {
  if (r.dtype() == DType::F32) map_two<float>(x, y, r, f);
  else map_two<double>(x, y, r, f);
}

void binary_floats(BinaryKind kind, const Literal& x, const Literal& y, Literal& r) {
  switch (kind) {
    case BinaryKind::Add: map_arithmetic(x, y, r, [](auto a, auto b) { return a + b; }); break;
    case BinaryKind::Subtract: map_arithmetic(x, y, r, [](auto a, auto b) { return a - b; }); break;
    case BinaryKind::Multiply: map_arithmetic(x, y, r, [](auto a, auto b) { return a * b; }); break;
    case BinaryKind::Divide: map_arithmetic(x, y, r, [](auto a, auto b) { return a / b; }); break;
    case BinaryKind::FloorDivide: map_two<double>(x, y, r, floor_divide_of); break;
    case BinaryKind::Remainder: map_two<double>(x, y, r, remainder_of); break;
    case BinaryKind::Power: map_two<double>(x, y, r, [](double a, double b) { return std::pow(a, b); }); break;
    case BinaryKind::Maximum: map_two<double>(x, y, r, [](double a, double b) { return a > b || a != a ? a : b; }); break;
    case BinaryKind::Minimum: map_two<double>(x, y, r, [](double a, double b) { return a < b || a != a ? a : b; }); break;
    case BinaryKind::Atan2: map_two<double>(x, y, r, [](double a, double b) { return std::atan2(a, b); }); break;
    case BinaryKind::And: case BinaryKind::Or: case BinaryKind::Xor: SG_CHECK(false, "a logical op of floats passed inference"); break;
  }
}

int64_t floor_divide_integers(int64_t a, int64_t b) {
  if (b == 0) throw UserError("floor_div: integer division by zero");
  if (b == -1) return wrap_subtract(0, a);  // the one quotient that overflows
  const int64_t quotient = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t remainder_integers(int64_t a, int64_t b) {
  if (b == 0) throw UserError("remainder: integer division by zero");
  if (b == -1) return 0;
  const int64_t mod = a % b;
  return mod != 0 && (mod < 0) != (b < 0) ? mod + b : mod;
}

/// By squaring, wrapping. A negative exponent gives what is left of the fraction: 0, but for bases 1 and -1.
int64_t power_integers(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = wrap_multiply(result, base);
    base = wrap_multiply(base, base);
  }
  return result;
}

void binary_integers(BinaryKind kind, const Literal& x, const Literal& y, Literal& r) {
  switch (kind) {
    case BinaryKind::Add: map_two<int64_t>(x, y, r, wrap_add); break;
    case BinaryKind::Subtract: map_two<int64_t>(x, y, r, wrap_subtract); break;
    case BinaryKind::Multiply: map_two<int64_t>(x, y, r, wrap_multiply); break;
    case BinaryKind::FloorDivide: map_two<int64_t>(x, y, r, floor_divide_integers); break;
    case BinaryKind::Remainder: map_two<int64_t>(x, y, r, remainder_integers); break;
    case BinaryKind::Power: map_two<int64_t>(x, y, r, power_integers); break;
    case BinaryKind::Maximum: map_two<int64_t>(x, y, r, [](int64_t a, int64_t b) { return std::max(a, b); }); break;
    case BinaryKind::Minimum: map_two<int64_t>(x, y, r, [](int64_t a, int64_t b) { return std::min(a, b); }); break;
    case BinaryKind::And: map_two<int64_t>(x, y, r, [](int64_t a, int64_t b) { return a & b; }); break;
    case BinaryKind::Or: map_two<int64_t>(x, y, r, [](int64_t a, int64_t b) { return a | b; }); break;
    case BinaryKind::Xor: map_two<int64_t>(x, y, r, [](int64_t a, int64_t b) { return a ^ b; }); break;
    case BinaryKind::Divide: case BinaryKind::Atan2: SG_CHECK(false, "a floating op of integers passed inference"); break;
  }
}

std::vector<Literal> evaluate_binary(const EvaluateRequest& request) {
  const BinaryKind kind = std::get<Binary>(request.op).kind;
  Literal result = new_result(request);
  if (is_floating(result.dtype())) binary_floats(kind, request.inputs[0], request.inputs[1], result);
  else binary_integers(kind, request.inputs[0], request.inputs[1], result);
  return {result};
}

// ---- compare, select, convert, stop_gradient

std::vector<TensorType> infer_compare(const InferRequest& request) {
  const CompareKind kind = std::get<Compare>(request.op).kind;
  check_same_dtype(name(kind), request.inputs[0], request.inputs[1]);
  check_same_shape(name(kind), request, request.inputs[0], request.inputs[1]);
  return {{DType::Bool, request.inputs[0].shape, {}}};
}

template <class T>
void compare_as(CompareKind kind, const Literal& x, const Literal& y, Literal& r) {
  switch (kind) {
    case CompareKind::Equal: map_two<T>(x, y, r, [](T a, T b) { return a == b; }); break;
    case CompareKind::NotEqual: map_two<T>(x, y, r, [](T a, T b) { return a != b; }); break;
    case CompareKind::Less: map_two<T>(x, y, r, [](T a, T b) { return a < b; }); break;
    case CompareKind::LessEqual: map_two<T>(x, y, r, [](T a, T b) { return a <= b; }); break;
    case CompareKind::Greater: map_two<T>(x, y, r, [](T a, T b) { return a > b; }); break;
    case CompareKind::GreaterEqual: map_two<T>(x, y, r, [](T a, T b) { return a >= b; }); break;
  }
}

std::vector<Literal> evaluate_compare(const EvaluateRequest& request) {
  const CompareKind kind = std::get<Compare>(request.op).kind;
  Literal result = new_result(request);
  if (is_floating(request.inputs[0].dtype())) compare_as<double>(kind, request.inputs[0], request.inputs[1], result);
  else compare_as<int64_t>(kind, request.inputs[0], request.inputs[1], result);
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

std::vector<std::vector<int>> linear_groups(const Op& op) {
  if (const auto* unary = std::get_if<Unary>(&op)) return unary->kind == UnaryKind::Negate ? std::vector<std::vector<int>>{{0}} : std::vector<std::vector<int>>{};
  if (const auto* binary = std::get_if<Binary>(&op)) {
    switch (binary->kind) {
      case BinaryKind::Add: case BinaryKind::Subtract: return {{0, 1}};
      case BinaryKind::Multiply: return {{0}, {1}};
      case BinaryKind::Divide: return {{0}};
      case BinaryKind::FloorDivide: case BinaryKind::Remainder: case BinaryKind::Power: case BinaryKind::Maximum: case BinaryKind::Minimum:
      case BinaryKind::And: case BinaryKind::Or: case BinaryKind::Xor: case BinaryKind::Atan2:
        return {};
    }
  }
  if (std::holds_alternative<Select>(op)) return {{1, 2}};
  if (std::holds_alternative<StopGradient>(op)) return {{0}};
  return {};
}

ShardingRule elementwise_sharding_rule(const ShardingRequest& request) { return elementwise_rule(request, linear_groups(request.op)); }

Cost unit_cost(const CostRequest& request) {
  const auto* unary = std::get_if<Unary>(&request.op);
  const auto* binary = std::get_if<Binary>(&request.op);
  const bool slow = std::holds_alternative<Polygamma>(request.op) || (unary != nullptr && is_transcendental(unary->kind)) || (binary != nullptr && (binary->kind == BinaryKind::Power || binary->kind == BinaryKind::Atan2));
  return elementwise_cost(request, slow ? 10 : std::holds_alternative<StopGradient>(request.op) ? 0 : 1);
}

OpInfo elementwise_row(std::string_view family) {
  OpInfo row;
  row.name = family;
  row.sharding_rule = elementwise_sharding_rule;
  row.cost = unit_cost;
  row.elementwise = true;
  return row;
}

}  // namespace

OpInfo unary_row() {
  OpInfo row = elementwise_row("unary");
  row.infer = infer_unary;
  row.evaluate = evaluate_unary;
  row.gradient = unary_gradient;
  return row;
}

OpInfo polygamma_row() {
  OpInfo row = elementwise_row("polygamma");
  row.infer = infer_polygamma;
  row.evaluate = evaluate_polygamma;
  row.gradient = polygamma_gradient;
  return row;
}

OpInfo binary_row() {
  OpInfo row = elementwise_row("binary");
  row.infer = infer_binary;
  row.evaluate = evaluate_binary;
  row.gradient = binary_gradient;
  return row;
}

OpInfo compare_row() {
  OpInfo row = elementwise_row("compare");
  row.infer = infer_compare;
  row.evaluate = evaluate_compare;
  row.differentiable = false;
  return row;
}

OpInfo select_row() {
  OpInfo row = elementwise_row("select");
  row.infer = infer_select;
  row.evaluate = evaluate_select;
  row.gradient = select_gradient;
  return row;
}

OpInfo convert_row() {
  OpInfo row = elementwise_row("convert");
  row.infer = infer_convert;
  row.evaluate = evaluate_convert;
  row.gradient = convert_gradient;
  return row;
}

OpInfo stop_gradient_row() {
  OpInfo row = elementwise_row("stop_gradient");
  row.infer = infer_same;
  row.evaluate = evaluate_same;
  row.differentiable = false;
  return row;
}

}  // namespace stepgraph
