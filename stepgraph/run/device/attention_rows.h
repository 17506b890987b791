// SPDX-License-Identifier: Apache-2.0
// Rows of attention scores, eight numbers at a time. For attention.cpp. The order of every sum follows from the length of the row alone.
#pragma once
#include <cstdint>

namespace stepgraph {

/// e^x of f32 for x <= 0, within two units in the last place; 0 below -87.3, where numbers lose digits. NaN stays.
void exp_row(float* row, int64_t count);

struct RowSoftness {
  float top = 0;  ///< the largest score; -inf: the row sees no key
  float sum = 0;  ///< of the exponentials
};
/// Scores to e^(scale * score + addend - top), with 0 from `count` on to `width`; the caller divides. `addend` may be null.
RowSoftness soften_row(float* row, int64_t count, int64_t width, float scale, const float* addend);
/// row *= factor
void scale_row(float* row, int64_t count, float factor);
/// weights *= factor; returns the sum of weights * slopes.
float weigh_row(float* weights, const float* slopes, int64_t count, float factor);
/// slopes = weights * (slopes - common) * scale
void slope_row(const float* weights, float* slopes, int64_t count, float common, float scale);

/// row *= factors
void multiply_row(float* row, const float* factors, int64_t count);
/// Of elements [element, element + count) of the key's uniform draw: 0 where it is below threshold / 2^24, else kept.
void draw_row(float* factors, int64_t count, uint64_t key, uint64_t element, uint32_t threshold, float kept);

}  // namespace stepgraph
