// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/device/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "stepgraph/base/error.h"
#include "stepgraph/run/device/attention_rows.h"

namespace stepgraph {
namespace {

constexpr int64_t usual_rows = 64, most_rows = usual_rows + usual_rows / 2;  // of a block

float* at(void* pointer, const StridedOperand& operand, int64_t n, int64_t head, int64_t row) {
  return static_cast<float*>(pointer) + n * operand.strides[0] + head * operand.strides[1] + row * operand.strides[2];
}
/// From a row to the next; of a single row the stride says nothing.
int64_t row_stride(const StridedOperand& operand) { return operand.sizes[2] > 1 ? operand.strides[2] : std::max<int64_t>(operand.sizes[3], 1); }

template <class T, class ToFloat>
void load_addends(const std::byte* from, int64_t stride, int64_t count, float* to, const ToFloat& convert) {
  const auto* elements = reinterpret_cast<const T*>(from);
  for (int64_t j = 0; j < count; ++j) to[j] = convert(elements[j * stride]);
}
/// What a row of the mask adds to its scores.
void load_addends(DType dtype, const std::byte* from, int64_t stride, int64_t count, float* to) {
  switch (dtype) {
    case DType::Bool:
      return load_addends<uint8_t>(from, stride, count, to, [](uint8_t seen) { return seen != 0 ? 0.0F : -std::numeric_limits<float>::infinity(); });
    case DType::F64: return load_addends<double>(from, stride, count, to, [](double x) { return static_cast<float>(x); });
    case DType::F32: return load_addends<float>(from, stride, count, to, [](float x) { return x; });
    case DType::BF16: return load_addends<uint16_t>(from, stride, count, to, bf16_to_f32);
    case DType::F16: return load_addends<uint16_t>(from, stride, count, to, f16_to_f32);
    default: SG_CHECK(false, "a mask is bool or floating");
  }
}

}  // namespace

/// Queries [first, first + rows) of one head, and the keys that any of them sees: the first `seen`.
struct AttentionWork::Block {
  int64_t n, head, key_head, first, rows, seen;
  const float *q, *k, *v;
  const std::byte* mask;
  uint64_t key;  ///< of dropout
};

AttentionWork::AttentionWork(GemmLibrary library, AttentionOperands operands) : library_(library), operands_(std::move(operands)) {
  const Sizes &q = operands_.q.sizes, &k = operands_.k.sizes, &v = operands_.v.sizes;
  SG_CHECK(q.size() == 4 && k.size() == 4 && v.size() == 4 && q[0] == k[0] && q[3] == k[3] && k[2] == v[2] && k[1] == v[1],
           "attention wants [N, H, T, D], [N, G, S, D], [N, G, S, E]");
  batches_ = q[0], heads_ = q[1], queries_ = q[2], depth_ = q[3];
  key_heads_ = k[1], keys_ = k[2], value_depth_ = v[3];
  shared_ = key_heads_ == 0 ? 0 : heads_ / key_heads_;
  SG_CHECK(shared_ * key_heads_ == heads_, "attention wants as many heads of q as of k, or a multiple");
  // A block of few rows would pay for its calls and do nothing.
  blocks_ = std::max<int64_t>((queries_ + usual_rows / 2) / usual_rows, 1);
  block_rows_ = (queries_ + blocks_ - 1) / blocks_;
  blocks_ = block_rows_ == 0 ? 0 : (queries_ + block_rows_ - 1) / block_rows_;
}

int64_t AttentionWork::pieces() const { return operands_.gradient ? batches_ * key_heads_ : batches_ * heads_ * blocks_; }

/// Of a row of scores in memory. Rows whose places differ by a power of two would push one another out of a cache.
int64_t AttentionWork::width() const {
  const int64_t padded = (keys_ + 15) / 16 * 16;
  return padded % 256 == 0 ? padded + 16 : padded;
}
size_t AttentionWork::scratch_bytes() const {
  const int64_t blocks = operands_.gradient ? 2 : 1;
  return static_cast<size_t>((blocks * block_rows_ + 2) * width()) * sizeof(float);  // a row of addends, one of dropout
}

void AttentionWork::run(void* const* pointers, int64_t begin, int64_t end, void* scratch) const {
  for (int64_t piece = begin; piece < end; ++piece) {
    if (operands_.gradient)
      gradient_head(pointers, piece / key_heads_, piece % key_heads_, static_cast<float*>(scratch));
    else
      forward_block(pointers, piece / blocks_ / heads_, piece / blocks_ % heads_, piece % blocks_ * block_rows_, static_cast<float*>(scratch));
  }
}

AttentionWork::Block AttentionWork::block(void* const* pointers, int64_t n, int64_t head, int64_t first) const {
  Block block{n, head, head / shared_, first, std::min(block_rows_, queries_ - first), keys_, nullptr, nullptr, nullptr, nullptr, 0};
  if (operands_.causal) block.seen = std::min(keys_, first + block.rows);
  block.q = at(pointers[AttentionQ], operands_.q, n, head, first);
  block.k = at(pointers[AttentionK], operands_.k, n, block.key_head, 0);
  block.v = at(pointers[AttentionV], operands_.v, n, block.key_head, 0);
  if (operands_.dropout) block.key = *static_cast<const uint64_t*>(pointers[AttentionKey]);
  if (operands_.mask) {
    const Sizes& strides = operands_.mask->strides;
    block.mask = static_cast<const std::byte*>(pointers[AttentionMask]) +
                 (n * strides[0] + head * strides[1] + first * strides[2]) * static_cast<int64_t>(size_bytes(operands_.mask_dtype));
  }
  return block;
}

void AttentionWork::make_scores(const Block& b, float* scores) const {
  gemm(library_, DType::F32, {false, true, b.rows, b.seen, depth_, row_stride(operands_.q), row_stride(operands_.k), width()}, b.q, b.k, false, scores);
}

/// Row i of the block to exponentials; returns what makes weights of them.
float AttentionWork::soften(const Block& b, float* row, int64_t i, float* addend, float* log_sum) const {
  const int64_t count = operands_.causal ? std::min(b.seen, b.first + i + 1) : b.seen;
  if (b.mask != nullptr) {
    const Sizes& strides = operands_.mask->strides;
    load_addends(operands_.mask_dtype, b.mask + i * strides[2] * static_cast<int64_t>(size_bytes(operands_.mask_dtype)), strides[3], count, addend);
  }
  const RowSoftness softness = soften_row(row, count, b.seen, static_cast<float>(operands_.scale), b.mask != nullptr ? addend : nullptr);
  const bool is_empty = softness.sum == 0;
  if (log_sum != nullptr) *log_sum = is_empty ? -std::numeric_limits<float>::infinity() : softness.top + std::log(softness.sum);
  return is_empty ? 0.0F : 1.0F / softness.sum;
}

/// What dropout multiplies row i of the block with.
const float* AttentionWork::draw(const Block& b, int64_t i, float* factors) const {
  const AttentionOperands::Dropout& dropout = *operands_.dropout;
  const int64_t element = dropout.origin + b.n * dropout.step_n + b.head * dropout.step_h + (b.first + i) * dropout.step_t;
  // Draws are of f32, and so is what they are compared with.
  const auto threshold = static_cast<uint32_t>(std::ceil(static_cast<double>(static_cast<float>(dropout.rate)) * 0x1p24));
  draw_row(factors, b.seen, b.key, static_cast<uint64_t>(element), threshold, dropout.rate == 1 ? 0.0F : static_cast<float>(1 / (1 - dropout.rate)));
  return factors;
}

void AttentionWork::forward_block(void* const* pointers, int64_t n, int64_t head, int64_t first, float* scratch) const {
  const Block b = block(pointers, n, head, first);
  float* const addend = scratch + block_rows_ * width();
  float factors[most_rows];
  make_scores(b, scratch);
  for (int64_t i = 0; i < b.rows; ++i) {
    float* const row = scratch + i * width();
    factors[i] = soften(b, row, i, addend, at(pointers[AttentionLse], operands_.lse, n, head, first + i));
    if (operands_.dropout) multiply_row(row, draw(b, i, addend + width()), b.seen);
  }
  float* const out = at(pointers[AttentionOut], operands_.out, n, head, first);
  const int64_t stride = row_stride(operands_.out);
  gemm(library_, DType::F32, {false, false, b.rows, value_depth_, b.seen, width(), row_stride(operands_.v), stride}, scratch, b.v, false, out);
  for (int64_t i = 0; i < b.rows; ++i) scale_row(out + i * stride, value_depth_, factors[i]);
}

/// All heads of q that share one of k, in order: their parts of its gradients are added up.
void AttentionWork::gradient_head(void* const* pointers, int64_t n, int64_t key_head, float* scratch) const {
  const AttentionOperands::Gradient& gradient = *operands_.gradient;
  for (int64_t j = 0; j < keys_; ++j) {
    std::fill_n(at(pointers[AttentionDK], gradient.d_k, n, key_head, j), depth_, 0.0F);
    std::fill_n(at(pointers[AttentionDV], gradient.d_v, n, key_head, j), value_depth_, 0.0F);
  }
  float* const slopes = scratch + block_rows_ * width();
  for (int64_t head = key_head * shared_; head < (key_head + 1) * shared_; ++head)
    for (int64_t first = 0; first < queries_; first += block_rows_)
      gradient_block(pointers, block(pointers, n, head, first), scratch, slopes, slopes + block_rows_ * width());
}

void AttentionWork::gradient_block(void* const* pointers, const Block& b, float* weights, float* slopes, float* rows) const {
  const AttentionOperands::Gradient& gradient = *operands_.gradient;
  const float* const d_out = at(pointers[AttentionDOut], gradient.d_out, b.n, b.head, b.first);
  const int64_t d_out_stride = row_stride(gradient.d_out), wide = width();
  const auto scale = static_cast<float>(operands_.scale);
  make_scores(b, weights);
  gemm(library_, DType::F32, {false, true, b.rows, b.seen, value_depth_, d_out_stride, row_stride(operands_.v), wide}, d_out, b.v, false, slopes);
  for (int64_t i = 0; i < b.rows; ++i) {
    float *const row = weights + i * wide, *const slope = slopes + i * wide;
    const float factor = soften(b, row, i, rows, nullptr);
    const float* const drawn = operands_.dropout ? draw(b, i, rows + wide) : nullptr;
    if (drawn != nullptr) multiply_row(slope, drawn, b.seen);
    const float d_lse = *at(pointers[AttentionDLse], gradient.d_lse, b.n, b.head, b.first + i);
    slope_row(row, slope, b.seen, weigh_row(row, slope, b.seen, factor) - d_lse, scale);
    if (drawn != nullptr) multiply_row(row, drawn, b.seen);
  }
  gemm(library_, DType::F32, {true, false, b.seen, value_depth_, b.rows, wide, d_out_stride, row_stride(gradient.d_v)}, weights, d_out, true,
       at(pointers[AttentionDV], gradient.d_v, b.n, b.key_head, 0));
  gemm(library_, DType::F32, {false, false, b.rows, depth_, b.seen, wide, row_stride(operands_.k), row_stride(gradient.d_q)}, slopes, b.k, false,
       at(pointers[AttentionDQ], gradient.d_q, b.n, b.head, b.first));
  gemm(library_, DType::F32, {true, false, b.seen, depth_, b.rows, wide, row_stride(operands_.q), row_stride(gradient.d_k)}, slopes, b.q, true,
       at(pointers[AttentionDK], gradient.d_k, b.n, b.key_head, 0));
}

}  // namespace stepgraph
