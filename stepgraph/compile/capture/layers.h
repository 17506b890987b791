// SPDX-License-Identifier: Apache-2.0
// Layers over a Scope, with PyTorch's parameter names, layouts and initial values: linear(s / "fc", x, 10) has fc.weight [10, in] and fc.bias [10].
#pragma once
#include <optional>
#include <source_location>
#include <vector>
#include "stepgraph/compile/capture/capture.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/attention.h"
#include "stepgraph/compile/ops/composite/linear.h"
#include "stepgraph/compile/ops/composite/losses.h"
#include "stepgraph/compile/ops/composite/normalization.h"
#include "stepgraph/compile/ops/composite/rotary.h"

namespace stepgraph {

struct LinearOptions {
  bool bias = true;
  std::optional<Initializer> weight_start = {}, bias_start = {};  ///< default: uniform in ±1/sqrt(in)
};
/// x [..., in] -> [..., out]. Parameters weight [out, in], bias [out].
Value linear(Scope s, Value x, int64_t out, const LinearOptions& options = {}, std::source_location location = std::source_location::current());

struct ConvOptions {
  std::vector<int64_t> kernel = {3};  ///< one number: for all spatial dims, as below
  std::vector<int64_t> stride = {1}, padding = {0}, dilation = {1};
  int64_t groups = 1;
  bool bias = true;
  std::optional<Initializer> weight_start = {}, bias_start = {};  ///< default: uniform in ±1/sqrt(in / groups * window)
};
/// x [N, in, spatial...] -> [N, out, spatial...]. Parameters weight [out, in/groups, kernel...], bias [out].
Value conv(Scope s, Value x, int64_t out, const ConvOptions& options = {}, std::source_location location = std::source_location::current());

/// x [N, in, spatial...] -> [N, out, spatial...], stretched by the stride, as torch.nn.ConvTranspose2d. Parameters weight [in, out/groups, kernel...], bias [out].
Value conv_transpose(Scope s, Value x, int64_t out, const ConvOptions& options = {}, std::source_location location = std::source_location::current());

struct EmbeddingOptions {
  Initializer start = initialize::normal(0, 1);
};
/// Parameter weight [count, width].
Value embedding(Scope s, Value indices, int64_t count, int64_t width, const EmbeddingOptions& options = {},
                std::source_location location = std::source_location::current());

struct LayerNormOptions {
  double epsilon = 1e-5;
  int64_t normalized_rank = 1;  ///< over so many last dims
  bool weight = true, bias = true;
};
/// Parameters weight and bias of the last dims' shape.
Value layer_norm(Scope s, Value x, const LayerNormOptions& options = {}, std::source_location location = std::source_location::current());

struct RmsNormOptions {
  std::optional<double> epsilon = {};  ///< absent: the spacing of x's dtype at 1, as torch.nn.RMSNorm
  int64_t normalized_rank = 1;
  bool weight = true;
};
/// Parameter weight of the last dims' shape.
Value rms_norm(Scope s, Value x, const RmsNormOptions& options = {}, std::source_location location = std::source_location::current());

struct GroupNormOptions {
  double epsilon = 1e-5;
  bool affine = true;
};
/// x [N, C, ...], groups of channels; parameters weight, bias [C].
Value group_norm(Scope s, Value x, int64_t groups, const GroupNormOptions& options = {}, std::source_location location = std::source_location::current());

struct BatchNormOptions {
  double epsilon = 1e-5, momentum = 0.1;
  bool affine = true;
};
/// x [N, C, ...]. In training by the statistics of the whole batch (of each micro-batch when there are several), in evaluation by the running ones.
/// Parameters weight, bias [C]; buffers running_mean, running_var [C], num_batches_tracked.
Value batch_norm(Scope s, Value x, const BatchNormOptions& options = {}, std::source_location location = std::source_location::current());

/// Identity in evaluation.
Value dropout(Scope s, Value x, double rate, std::source_location location = std::source_location::current());

struct MultiHeadOptions {
  int64_t heads = 1;
  bool causal = false, bias = true;
  double dropout = 0;          ///< of the attention weights, in training
  std::optional<Value> mask = {};   ///< as AttentionOptions::mask
};
/// Attention of heads that lie side by side in the last dim: query [B, T, E], key and value [B, S, E] -> [B, T, E]. No parameters.
Value attend(Scope s, Value query, Value key, Value value, const MultiHeadOptions& options,
             std::source_location location = std::source_location::current());
/// torch.nn.MultiheadAttention over one sequence x [B, T, E], batch first. Parameters in_proj_weight [3E, E], in_proj_bias, out_proj.weight, out_proj.bias.
Value multi_head_attention(Scope s, Value x, const MultiHeadOptions& options, std::source_location location = std::source_location::current());

struct RecurrentLayerOptions {
  int64_t hidden = 1, layers = 1;
  bool bias = true, bidirectional = false;
  bool batch_first = true;  ///< x [B, T, F]; else [T, B, F]
  double dropout = 0;       ///< between layers, in training
};
/// torch.nn.LSTM, from states of zeros: outputs [B, T, H] ([B, T, 2H] in both directions). T may be symbolic. Parameters weight_ih_l0 [4H, F],
/// weight_hh_l0 [4H, H], bias_ih_l0, bias_hh_l0, then _l1 ..., each with _reverse for the second direction.
Value lstm(Scope s, Value x, const RecurrentLayerOptions& options, std::source_location location = std::source_location::current());
/// torch.nn.GRU; three gates.
Value gru(Scope s, Value x, const RecurrentLayerOptions& options, std::source_location location = std::source_location::current());

/// Mean over the targets that count, over the whole batch; metric "accuracy". `targets`: integers of the logits' shape without the class dim.
Loss cross_entropy(Value logits, Value targets, const CrossEntropyOptions& options = {},
                   std::source_location location = std::source_location::current());
/// Mean of squared differences over all elements of the whole batch.
Loss mse_loss(Value prediction, Value target, std::source_location location = std::source_location::current());

}  // namespace stepgraph
