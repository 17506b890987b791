// SPDX-License-Identifier: Apache-2.0
// Special functions in f64 that the standard library lacks, or has with a hidden global.
#pragma once
#include <cstdint>

namespace stepgraph {

/// The y with erf(y) = x; infinite at -1 and 1, NaN beyond.
double inverse_erf(double x);
/// log |gamma(x)|.
double log_gamma(double x);
/// Derivative of that order of digamma, order 0 being digamma itself. At a pole: infinite, or NaN where the sign depends on the side.
double polygamma_of(int64_t order, double x);

}  // namespace stepgraph
