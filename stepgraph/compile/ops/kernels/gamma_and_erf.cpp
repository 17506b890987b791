// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/kernels/gamma_and_erf.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

namespace stepgraph {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
/// Bernoulli numbers B2, B4, ...
constexpr std::array<double, 12> bernoulli = {1.0 / 6, -1.0 / 30,     1.0 / 42,      -1.0 / 30,       5.0 / 66,       -691.0 / 2730,
                                              7.0 / 6, -3617.0 / 510, 43867.0 / 798, -174611.0 / 330, 854513.0 / 138, -236364091.0 / 2730};

/// Sum of (q + k)^-s over k >= 0, for q > 0 and s > 1: the first terms, and Euler-Maclaurin's formula for the rest.
double zeta_of(double s, double q) {
  double sum = 0, a = q;
  const double far = std::max(15.0, s);
  for (; a < far; a += 1) sum += std::pow(a, -s);
  const double power = std::pow(a, -s);
  sum += power * a / (s - 1) + power / 2;
  double term = power * s / a;  // s (s+1) ... (s+2j-2) / (2j)! a^(-s-2j+1), without the factorial's growth undone
  double factorial = 2;
  for (size_t j = 1; j <= bernoulli.size(); ++j) {
    sum += bernoulli[j - 1] * term / factorial;
    const double n = 2 * static_cast<double>(j);
    term *= (s + n - 1) * (s + n) / (a * a);
    factorial *= (n + 1) * (n + 2);
  }
  return sum;
}

double digamma_of(double x) {
  if (x == 0) return std::copysign(infinity, -x);
  if (x < 0) {
    const double part = x - std::nearbyint(x);  // exact; a distance from below would round to 1 just under zero
    return part == 0 ? not_a_number : digamma_of(1 - x) - std::numbers::pi / std::tan(std::numbers::pi * part);
  }
  double sum = 0;
  for (; x < 12; x += 1) sum -= 1 / x;
  const double inverse_square = 1 / (x * x);
  double power = inverse_square, series = 0;
  for (size_t j = 1; j <= 8; ++j, power *= inverse_square) series += bernoulli[j - 1] / (2 * static_cast<double>(j)) * power;
  return sum + std::log(x) - 0.5 / x - series;
}

}  // namespace

double inverse_erf(double x) {
  if (!(x > -1 && x < 1)) return x == 1 ? infinity : x == -1 ? -infinity : not_a_number;
  if (x == 0) return x;
  if (x < 0) return -inverse_erf(-x);
  // Winitzki's formula is good to three digits; each step of Halley's method triples them.
  constexpr double a = 0.147;
  const double logarithm = std::log1p(-x) + std::log1p(x), t = 2 / (std::numbers::pi * a) + logarithm / 2;
  double y = std::sqrt(std::sqrt(t * t - logarithm / a) - t);
  for (int step = 0; step < 3; ++step) {
    const double excess = x < 0.5 ? std::erf(y) - x : (1 - x) - std::erfc(y);
    const double ratio = excess / (2 * std::numbers::inv_sqrtpi * std::exp(-y * y));
    y -= ratio / (1 + y * ratio);
  }
  return y;
}

double log_gamma(double x) {
  int sign = 0;  // std::lgamma writes it to a global, which ranks would race for
  return ::lgamma_r(x, &sign);
}

double polygamma_of(int64_t order, double x) {
  if (std::isnan(x)) return x;
  if (order == 0) return std::isinf(x) ? (x > 0 ? x : not_a_number) : digamma_of(x);
  if (std::isinf(x)) return x > 0 ? 0 : not_a_number;
  const double s = static_cast<double>(order) + 1;
  const double scale = (order % 2 == 0 ? -1 : 1) * std::tgamma(s);
  if (x > 0) return scale * zeta_of(s, x);
  const double whole = std::floor(x), part = x - whole;
  if (part == 0) return scale > 0 ? infinity : not_a_number;
  // Terms left of 0 have the distances nearest, nearest + 1, ... up to -x.
  const double nearest = -x - (std::ceil(-x) - 1);
  const double left = zeta_of(s, nearest) - zeta_of(s, 1 - x);
  return scale * ((order % 2 == 0 ? -1 : 1) * left + zeta_of(s, part));
}

}  // namespace stepgraph
