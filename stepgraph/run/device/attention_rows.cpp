// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/device/attention_rows.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace stepgraph {
namespace {

constexpr int64_t lanes = 8;
constexpr float never = -std::numeric_limits<float>::infinity();

__m256 all(float x) { return _mm256_set1_ps(x); }

/// The first `count` < 8 lanes, others 0.
__m256i lanes_below(int64_t count) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }

/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its series, whose coefficients are fitted in the last two; 2^n by its exponent.
__m256 exp_of(__m256 x) {
  const __m256 magic = all(12582912.0F);  // 1.5 * 2^23: the sum has n in its low bits
  const __m256 shifted = _mm256_fmadd_ps(x, all(1.44269504F), magic);
  const __m256 n = _mm256_sub_ps(shifted, magic);
  __m256 r = _mm256_fnmadd_ps(n, all(0.693359375F), x);
  r = _mm256_fnmadd_ps(n, all(-2.12194440e-4F), r);
  __m256 p = all(1.9875691500e-4F);
  for (const float c : {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F}) p = _mm256_fmadd_ps(p, r, all(c));
  p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r);
  p = _mm256_add_ps(p, all(1.0F));
  const __m256 power = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
  const __m256 low = _mm256_cmp_ps(x, all(-87.3F), _CMP_LT_OQ);
  const __m256 none = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_blendv_ps(_mm256_andnot_ps(low, power), x, none);
}

float sum_of(__m256 x) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
float largest_of(__m256 x) {
  const __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

/// Words of four blocks of Philox 4x32-10 (tensor/philox.h), of the draw's elements 4 * block and on: 16 numbers of 24 bits in their order.
void draw_words(uint64_t key, uint64_t block, uint32_t* words) {
  const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF), first = _mm256_set1_epi64x(0xD2511F53), second = _mm256_set1_epi64x(0xCD9E8D57);
  const __m256i number = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<long long>(block)), _mm256_setr_epi64x(0, 1, 2, 3));
  // A word a lane of 64 bits; what stands above it a product does not read.
  __m256i c0 = number, c1 = _mm256_srli_epi64(number, 32), c2 = _mm256_setzero_si256(), c3 = c2;
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
    const __m256i p = _mm256_mul_epu32(first, c0), q = _mm256_mul_epu32(second, c2);
    c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(q, 32), c1), _mm256_set1_epi64x(k0));
    c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p, 32), c3), _mm256_set1_epi64x(k1));
    c1 = q, c3 = p;
  }
  const __m256i even = _mm256_or_si256(_mm256_and_si256(c0, low), _mm256_slli_epi64(c1, 32)),
                odd = _mm256_or_si256(_mm256_and_si256(c2, low), _mm256_slli_epi64(c3, 32));
  const __m256i a = _mm256_srli_epi32(_mm256_unpacklo_epi64(even, odd), 8), b = _mm256_srli_epi32(_mm256_unpackhi_epi64(even, odd), 8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), _mm256_permute2x128_si256(a, b, 0x20));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 8), _mm256_permute2x128_si256(a, b, 0x31));
}

/// Calls body(i, load, store) for lanes [i, i + 8) of the row; the last ones are masked.
template <class Body>
void for_lanes(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, [](const float* at) { return _mm256_loadu_ps(at); }, [](float* at, __m256 x) { _mm256_storeu_ps(at, x); });
  if (i == count) return;
  const __m256i mask = lanes_below(count - i);
  body(i, [mask](const float* at) { return _mm256_maskload_ps(at, mask); }, [mask](float* at, __m256 x) { _mm256_maskstore_ps(at, mask, x); });
}

}  // namespace

void exp_row(float* row, int64_t count) {
  for_lanes(count, [&](int64_t i, auto load, auto store) { store(row + i, exp_of(load(row + i))); });
}

RowSoftness soften_row(float* row, int64_t count, int64_t width, float scale, const float* addend) {
  RowSoftness result{never, 0};
  __m256 top = all(never);
  const __m256 factor = all(scale);
  const int64_t whole = count / lanes * lanes;
  for_lanes(whole, [&](int64_t i, auto load, auto store) {
    __m256 x = _mm256_mul_ps(load(row + i), factor);
    if (addend != nullptr) x = _mm256_add_ps(x, load(addend + i));
    store(row + i, x);
    top = _mm256_max_ps(x, top);
  });
  result.top = largest_of(top);
  for (int64_t i = whole; i < count; ++i) {
    row[i] *= scale;
    if (addend != nullptr) row[i] += addend[i];
    result.top = std::max(result.top, row[i]);
  }
  std::fill(row + count, row + width, 0.0F);
  bool is_empty = result.top == never;
  // No number is larger than NaN: a row of NaN and -inf is not one that sees no key.
  for (int64_t i = 0; i < count && is_empty; ++i) is_empty = row[i] == never;
  if (is_empty) {
    std::fill(row, row + count, 0.0F);
    return result;
  }
  const __m256 shift = all(result.top);
  __m256 sum = all(0.0F);
  for_lanes(whole, [&](int64_t i, auto load, auto store) {
    const __m256 e = exp_of(_mm256_sub_ps(load(row + i), shift));
    store(row + i, e);
    sum = _mm256_add_ps(sum, e);
  });
  if (whole < count) {
    const __m256i mask = lanes_below(count - whole);
    const __m256 e = _mm256_and_ps(exp_of(_mm256_sub_ps(_mm256_maskload_ps(row + whole, mask), shift)), _mm256_castsi256_ps(mask));
    _mm256_maskstore_ps(row + whole, mask, e);
    sum = _mm256_add_ps(sum, e);
  }
  result.sum = sum_of(sum);
  return result;
}

void scale_row(float* row, int64_t count, float factor) {
  for_lanes(count, [&](int64_t i, auto load, auto store) { store(row + i, _mm256_mul_ps(load(row + i), all(factor))); });
}

float weigh_row(float* weights, const float* slopes, int64_t count, float factor) {
  __m256 sum = all(0.0F);
  for_lanes(count, [&](int64_t i, auto load, auto store) {
    const __m256 w = _mm256_mul_ps(load(weights + i), all(factor));
    store(weights + i, w);
    sum = _mm256_fmadd_ps(w, load(slopes + i), sum);
  });
  return sum_of(sum);
}

void slope_row(const float* weights, float* slopes, int64_t count, float common, float scale) {
  for_lanes(count, [&](int64_t i, auto load, auto store) {
    const __m256 slope = _mm256_mul_ps(load(weights + i), _mm256_sub_ps(load(slopes + i), all(common)));
    store(slopes + i, _mm256_mul_ps(slope, all(scale)));
  });
}

void multiply_row(float* row, const float* factors, int64_t count) {
  for_lanes(count, [&](int64_t i, auto load, auto store) { store(row + i, _mm256_mul_ps(load(row + i), load(factors + i))); });
}

void draw_row(float* factors, int64_t count, uint64_t key, uint64_t element, uint32_t threshold, float kept) {
  constexpr int64_t together = 16;
  uint32_t words[together];
  int64_t first = -static_cast<int64_t>(element % 4);
  for (uint64_t block = element / 4; first < count; block += together / 4, first += together) {
    draw_words(key, block, words);
    const int64_t end = std::min(together, count - first);
    for (int64_t i = std::max<int64_t>(-first, 0); i < end; ++i) factors[first + i] = words[i] < threshold ? 0.0F : kept;
  }
}

}  // namespace stepgraph
