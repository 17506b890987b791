// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/elementwise_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ops/kernels/element_maps.h"
#include "stepgraph/compile/ops/kernels/gamma_and_erf.h"

namespace stepgraph {
namespace {

// ---- formulas

double sigmoid_of(double x) {
  // The exponent is never positive, so that nothing overflows.
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
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

// ---- rows

/// In place of a formula of dtypes that a kind does not take.
struct NoFormula {};
constexpr NoFormula no_formula;

template <class F, class... Ts>
constexpr bool has_formula = !std::is_same_v<std::invoke_result_t<F, Ts...>, NoFormula>;

using MapOne = void (*)(const Literal&, Literal&);
using MapTwo = void (*)(const Literal&, const Literal&, Literal&);

template <class T, class F>
constexpr MapOne map_of_one(F) {
  if constexpr (has_formula<F, T>)
    return [](const Literal& x, Literal& result) { map_one<T>(x, result, F{}); };
  else
    return nullptr;
}
template <class T, class F>
constexpr MapTwo map_of_two(F) {
  if constexpr (has_formula<F, T, T>)
    return [](const Literal& a, const Literal& b, Literal& result) { map_two<T>(a, b, result, F{}); };
  else
    return nullptr;
}
/// An instruction on f32 itself: it rounds to the same.
template <ScalarBody body, class F>
constexpr MapTwo map_of_floats(F) {
  if constexpr (body == ScalarBody::Instruction && has_formula<F, double, double>) {
    return [](const Literal& a, const Literal& b, Literal& result) {
      if (a.dtype() == DType::F32)
        map_two<float>(a, b, result, F{});
      else
        map_two<double>(a, b, result, F{});
    };
  } else {
    return map_of_two<double>(F{});
  }
}

#define STEPGRAPH_UNARY_ROW(kind, text, takes, body, linear, floats, integers)                                                       \
  UnaryInfo{Takes::takes, ScalarBody::body, Linearity::linear, map_of_one<double>([]([[maybe_unused]] double x) { return floats; }), \
            map_of_one<int64_t>([]([[maybe_unused]] int64_t x) { return integers; })},
#define STEPGRAPH_BINARY_ROW(kind, text, takes, body, linear, neutral, order, floats, integers)                        \
  BinaryInfo{Takes::takes,                                                                                             \
             ScalarBody::body,                                                                                         \
             Linearity::linear,                                                                                        \
             Neutral::neutral,                                                                                         \
             OperandOrder::order,                                                                                      \
             map_of_floats<ScalarBody::body>([]([[maybe_unused]] auto a, [[maybe_unused]] auto b) { return floats; }), \
             map_of_two<int64_t>([]([[maybe_unused]] int64_t a, [[maybe_unused]] int64_t b) { return integers; })},
#define STEPGRAPH_COMPARE_ROW(kind, text, formula) \
  CompareInfo{map_of_two<double>([](double a, double b) { return formula; }), map_of_two<int64_t>([](int64_t a, int64_t b) { return formula; })},

constexpr std::array unary_rows{STEPGRAPH_UNARY_KINDS(STEPGRAPH_UNARY_ROW)};
constexpr std::array binary_rows{STEPGRAPH_BINARY_KINDS(STEPGRAPH_BINARY_ROW)};
constexpr std::array compare_rows{STEPGRAPH_COMPARE_KINDS(STEPGRAPH_COMPARE_ROW)};

#undef STEPGRAPH_UNARY_ROW
#undef STEPGRAPH_BINARY_ROW
#undef STEPGRAPH_COMPARE_ROW

}  // namespace

const UnaryInfo& unary_info(UnaryKind kind) { return unary_rows[static_cast<size_t>(kind)]; }
const BinaryInfo& binary_info(BinaryKind kind) { return binary_rows[static_cast<size_t>(kind)]; }
const CompareInfo& compare_info(CompareKind kind) { return compare_rows[static_cast<size_t>(kind)]; }

}  // namespace stepgraph
