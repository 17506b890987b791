// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/device/scan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "stepgraph/run/device/wide_elements.h"

namespace stepgraph {
namespace {

constexpr int64_t scan_columns = 32;  // that are walked together

/// log(e^a + e^b) with the greater one taken out. Equal infinities would give inf - inf.
double log_add_exp_of(double a, double b) {
  if (a != a || b != b) return a + b;
  const double high = std::max(a, b), low = std::min(a, b);
  if (std::isinf(high)) return high;
  return high + std::log1p(std::exp(low - high));
}
int64_t log_add_exp_of(int64_t, int64_t) { SG_CHECK(false, "a logarithm of sums is floating"); }

template <class Element, class Combine>
void scan_block(const ScanOperands& operands, const void* x, void* out, int64_t outer, int64_t first, int64_t count, typename Element::Wide start,
                const Combine& combine) {
  using Stored = typename Element::Stored;
  using Wide = typename Element::Wide;
  const Sizes &sizes = operands.x.sizes, &strides = operands.x.strides;
  const Stored* const from = static_cast<const Stored*>(x) + outer * strides[0] + first * strides[2];
  Stored* const to = static_cast<Stored*>(out) + outer * sizes[1] * sizes[2] + first;
  Wide running[scan_columns];
  std::fill_n(running, scan_columns, start);
  for (int64_t step = 0; step < sizes[1]; ++step) {
    const int64_t row = operands.reverse ? sizes[1] - 1 - step : step;
    for (int64_t c = 0; c < count; ++c) {
      running[c] = combine(running[c], Element::load(from[row * strides[1] + c * strides[2]]));
      to[row * sizes[2] + c] = Element::store(running[c]);
    }
  }
}

}  // namespace

ScanWork::ScanWork(ScanOperands operands) : operands_(std::move(operands)), blocks_((operands_.x.sizes[2] + scan_columns - 1) / scan_columns) {}

int64_t ScanWork::pieces() const { return operands_.x.sizes[0] * blocks_; }

void ScanWork::run(const void* x, void* out, int64_t begin, int64_t end) const {
  with_wide_element(operands_.dtype, [&](auto element) {
    using Element = decltype(element);
    using Wide = typename Element::Wide;
    using Limits = std::numeric_limits<Wide>;
    const Wide lowest = Limits::has_infinity ? -Limits::infinity() : Limits::min(), highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
    const auto all = [&](Wide start, const auto& combine) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t first = piece % blocks_ * scan_columns;
        scan_block<Element>(operands_, x, out, piece / blocks_, first, std::min(scan_columns, operands_.x.sizes[2] - first), start, combine);
      }
    };
    switch (operands_.kind) {
      case ScanKind::Sum: return all(0, [](Wide a, Wide b) { return wide_add(a, b); });
      case ScanKind::Product: return all(1, [](Wide a, Wide b) { return wide_multiply(a, b); });
      case ScanKind::LogSumExp: return all(lowest, [](Wide a, Wide b) { return log_add_exp_of(a, b); });
      case ScanKind::Max: return all(lowest, [](Wide a, Wide b) { return wide_max(a, b); });
      case ScanKind::Min: return all(highest, [](Wide a, Wide b) { return wide_min(a, b); });
    }
  });
}

}  // namespace stepgraph
