// SPDX-License-Identifier: Apache-2.0
#include "tests/support/close.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

namespace stepgraph::testing {

double tolerance_of(DType dtype) {
  if (dtype == DType::F64) return 1e-12;
  if (dtype == DType::F32) return 4e-6;
  return dtype == DType::BF16 ? 0x1p-7 : 0x1p-10;
}

std::string compare_values(const Literal& found, const Literal& wanted, double tolerance) {
  if (found.dtype() != wanted.dtype() || found.sizes() != wanted.sizes()) return "found " + found.text(4) + ", wanted " + wanted.text(4);
  if (!is_floating(wanted.dtype())) return found == wanted ? "" : "found " + found.text(40) + ", wanted " + wanted.text(40);
  double scale = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < wanted.count(); ++i)
    if (std::isfinite(wanted.at(i))) scale += std::fabs(wanted.at(i)), ++finite;
  scale /= static_cast<double>(std::max<int64_t>(1, finite));
  double worst = 0;
  int64_t place = -1;
  for (int64_t i = 0; i < wanted.count(); ++i) {
    const double f = found.at(i), w = wanted.at(i);
    const bool same = std::isnan(w) ? std::isnan(f) : std::isinf(w) ? f == w : std::isfinite(f);
    const double error = !same ? INFINITY : std::isfinite(w) && f != w ? std::fabs(f - w) / std::max({std::fabs(w), scale, 1e-30}) : 0;
    if (error > worst) worst = error, place = i;
  }
  if (worst <= tolerance) return "";
  return fmt::format("element {} of {}: found {}, wanted {} (relative error {:.3g}, allowed {:.3g})", place, wanted.count(), found.at(place), wanted.at(place), worst, tolerance);
}

}  // namespace stepgraph::testing
