// SPDX-License-Identifier: Apache-2.0
// An AttentionCall with its sizes known. Scores are made, and made again for the gradient, for about 64 queries at a time; threads take pieces, and any number of
// them gives the same bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include "stepgraph/program/target.h"
#include "stepgraph/run/device/gemm.h"
#include "stepgraph/tensor/dtype.h"

namespace stepgraph {

/// q [N, H, T, D], k [N, G, S, D], v [N, G, S, E] with H a multiple of G, out [N, H, T, E], lse [N, H, T], mask [N, H, T, S]. The last stride is 1 but for lse
/// and mask.
struct AttentionOperands {
  StridedOperand q, k, v, out, lse;
  std::optional<StridedOperand> mask;
  DType mask_dtype = DType::F32;  ///< bool or floating
  double scale = 1;
  bool causal = false;
  struct Dropout {
    double rate = 0;
    int64_t origin = 0, step_n = 0, step_h = 0, step_t = 0;  ///< weight [n, h, t, s] is element origin + n step_n + h step_h + t step_t + s of the key's draw
  };
  std::optional<Dropout> dropout;
  struct Gradient {
    StridedOperand d_out, d_lse, d_q, d_k, d_v;
  };
  std::optional<Gradient> gradient;
};
/// The order of the pointers that `run` is given; those of what there is not are not read. The gradient needs neither out nor lse: from the scores again it is
/// more exact.
enum AttentionPointer {
  AttentionQ,
  AttentionK,
  AttentionV,
  AttentionOut,
  AttentionLse,
  AttentionMask,
  AttentionKey,
  AttentionDOut,
  AttentionDLse,
  AttentionDQ,
  AttentionDK,
  AttentionDV
};
inline constexpr int attention_pointers = AttentionDV + 1;

class AttentionWork {
 public:
  AttentionWork(GemmLibrary library, AttentionOperands operands);
  /// By batch, head and block of queries; of the gradient by batch and head of k.
  int64_t pieces() const;
  size_t scratch_bytes() const;
  void run(void* const* pointers, int64_t begin, int64_t end, void* scratch) const;

 private:
  struct Block;
  Block block(void* const* pointers, int64_t n, int64_t head, int64_t first) const;
  void make_scores(const Block& block, float* scores) const;
  void forward_block(void* const* pointers, int64_t n, int64_t head, int64_t first, float* scratch) const;
  void gradient_head(void* const* pointers, int64_t n, int64_t key_head, float* scratch) const;
  void gradient_block(void* const* pointers, const Block& block, float* weights, float* slopes, float* rows) const;
  const float* draw(const Block& block, int64_t i, float* factors) const;
  float soften(const Block& block, float* row, int64_t i, float* addend, float* log_sum) const;
  int64_t width() const;

  GemmLibrary library_;
  AttentionOperands operands_;
  int64_t batches_, heads_, key_heads_, shared_, queries_, keys_, depth_, value_depth_;
  int64_t blocks_ = 0, block_rows_ = 0;  ///< of queries
};

}  // namespace stepgraph
