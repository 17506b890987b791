// SPDX-License-Identifier: Apache-2.0
// Normalisations on moments(): mean and variance in one stable pass, never E[x²] - E[x]².
#pragma once
#include <optional>
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

/// Over the last `normalized_rank` dims (Ba et al., 2016); weight and bias have the shape of these dims.
Value layer_norm(At x, int64_t normalized_rank, std::optional<Value> weight = std::nullopt, std::optional<Value> bias = std::nullopt,
                 double epsilon = 1e-5);

/// x / sqrt(mean(x²) + epsilon) * weight over the last `normalized_rank` dims (Zhang, Sennrich, 2019). Epsilon absent: the spacing of x's dtype at 1, as
/// torch.nn.RMSNorm.
Value rms_norm(At x, int64_t normalized_rank, std::optional<Value> weight = std::nullopt, std::optional<double> epsilon = std::nullopt);

struct GroupNorm {
  Value result;
  Value mean, scale;  ///< [N, groups]; scale is 1 / sqrt(variance + epsilon)
};
/// x [N, C, ...] in `groups` runs of channels, each with its own mean and variance (Wu, He, 2018). weight, bias [C].
GroupNorm group_norm(At x, int64_t groups, std::optional<Value> weight = std::nullopt, std::optional<Value> bias = std::nullopt, double epsilon = 1e-5);
/// Each channel of each sample by itself (Ulyanov et al., 2016). The number of channels is constant.
Value instance_norm(At x, std::optional<Value> weight = std::nullopt, std::optional<Value> bias = std::nullopt, double epsilon = 1e-5);

struct BatchNorm {
  Value result;
  Value mean, variance;  ///< [C], of the whole batch; the variance is the biased one
};
/// x [N, C, ...]: statistics of each channel over the whole batch and all positions (Ioffe, Szegedy, 2015). weight, bias [C].
BatchNorm batch_norm_training(At x, std::optional<Value> weight, std::optional<Value> bias, double epsilon = 1e-5);
/// Whether a graph is that composite, or the copy of it that also returns what its backward pass reads.
bool is_batch_norm_training(const Graph& graph);
/// Of x [N, C, ...]: N times the positions.
Dim values_per_channel(const Shape& x);
/// By running statistics [C].
Value batch_norm_evaluation(At x, Value mean, Value variance, std::optional<Value> weight, std::optional<Value> bias, double epsilon = 1e-5);
/// (1 - momentum) * running + momentum * value of this batch, no gradient. The running variance takes the unbiased one, as PyTorch's: x gives the number
/// of values a channel.
struct RunningStatistics {
  Value mean, variance;
};
RunningStatistics update_running(RunningStatistics running, const BatchNorm& batch, const Shape& x, double momentum = 0.1);

}  // namespace stepgraph
