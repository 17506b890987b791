// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/autocast.h"

#include <algorithm>
#include <array>
#include <string>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

/// Which lists an operator is on.
enum class On : uint8_t { Both, Cpu, Cuda };
struct CastRow {
  std::string_view name;
  On on;
};

/// Products: computed in the narrow dtype. Names that only decomposed programs have stand beside those that they come from; einsum, and the recurrences' cells,
/// are bmm and linear inside. In order of name.
constexpr std::array narrow_operators{
    CastRow{"_convolution", On::Both},
    CastRow{"_native_multi_head_attention", On::Cpu},
    CastRow{"_scaled_dot_product_attention_math", On::Both},
    CastRow{"_scaled_dot_product_efficient_attention", On::Both},
    CastRow{"_scaled_dot_product_flash_attention", On::Both},
    CastRow{"_scaled_dot_product_flash_attention_for_cpu", On::Both},
    CastRow{"addbmm", On::Both},
    CastRow{"addmm", On::Both},
    CastRow{"addmv", On::Cuda},
    CastRow{"addr", On::Cuda},
    CastRow{"baddbmm", On::Both},
    CastRow{"bmm", On::Both},
    CastRow{"chain_matmul", On::Both},
    CastRow{"conv1d", On::Both},
    CastRow{"conv2d", On::Both},
    CastRow{"conv3d", On::Both},
    CastRow{"conv_tbc", On::Both},
    CastRow{"conv_transpose1d", On::Both},
    CastRow{"conv_transpose2d", On::Both},
    CastRow{"conv_transpose3d", On::Both},
    CastRow{"convolution", On::Both},
    CastRow{"einsum", On::Both},
    CastRow{"linalg_multi_dot", On::Both},
    CastRow{"linalg_vecdot", On::Both},
    CastRow{"linear", On::Both},
    CastRow{"matmul", On::Both},
    CastRow{"mm", On::Both},
    CastRow{"mv", On::Cuda},
    CastRow{"prelu", On::Both},
    CastRow{"scaled_dot_product_attention", On::Both},
    CastRow{"tensordot", On::Both},
};

/// Losses and what overflows or cancels: computed in f32. In order of name.
constexpr std::array wide_operators{
    CastRow{"_log_softmax", On::Cuda},
    CastRow{"_softmax", On::Cuda},
    CastRow{"_upsample_bicubic2d_aa", On::Cuda},
    CastRow{"_upsample_bilinear2d_aa", On::Cuda},
    CastRow{"_upsample_nearest_exact1d", On::Cuda},
    CastRow{"_upsample_nearest_exact2d", On::Cuda},
    CastRow{"_upsample_nearest_exact3d", On::Cuda},
    CastRow{"acos", On::Cuda},
    CastRow{"adaptive_avg_pool3d", On::Cpu},
    CastRow{"adaptive_max_pool3d", On::Cpu},
    CastRow{"asin", On::Cuda},
    CastRow{"avg_pool3d", On::Cpu},
    CastRow{"binary_cross_entropy", On::Cpu},
    CastRow{"binary_cross_entropy_with_logits", On::Both},
    CastRow{"cdist", On::Both},
    CastRow{"cosh", On::Cuda},
    CastRow{"cosine_embedding_loss", On::Both},
    CastRow{"cosine_similarity", On::Cuda},
    CastRow{"cross_entropy_loss", On::Both},
    CastRow{"ctc_loss", On::Cpu},
    CastRow{"cumprod", On::Cuda},
    CastRow{"cumsum", On::Cuda},
    CastRow{"dist", On::Cuda},
    CastRow{"erfinv", On::Cuda},
    CastRow{"exp", On::Cuda},
    CastRow{"expm1", On::Cuda},
    CastRow{"fractional_max_pool2d", On::Cpu},
    CastRow{"fractional_max_pool3d", On::Cpu},
    CastRow{"frobenius_norm", On::Cuda},
    CastRow{"grid_sampler", On::Cpu},
    CastRow{"grid_sampler_2d", On::Cpu},
    CastRow{"grid_sampler_3d", On::Cpu},
    CastRow{"group_norm", On::Cuda},
    CastRow{"hinge_embedding_loss", On::Both},
    CastRow{"huber_loss", On::Both},
    CastRow{"kl_div", On::Both},
    CastRow{"l1_loss", On::Both},
    CastRow{"layer_norm", On::Cuda},
    CastRow{"linalg_matrix_norm", On::Cuda},
    CastRow{"linalg_vector_norm", On::Cuda},
    CastRow{"log", On::Cuda},
    CastRow{"log10", On::Cuda},
    CastRow{"log1p", On::Cuda},
    CastRow{"log2", On::Cuda},
    CastRow{"log_softmax", On::Cuda},
    CastRow{"logsumexp", On::Cuda},
    CastRow{"margin_ranking_loss", On::Both},
    CastRow{"max_pool3d", On::Cpu},
    CastRow{"mse_loss", On::Both},
    CastRow{"multi_margin_loss", On::Both},
    CastRow{"multilabel_margin_loss", On::Both},
    CastRow{"nanquantile", On::Cpu},
    CastRow{"native_group_norm", On::Cuda},
    CastRow{"native_layer_norm", On::Cuda},
    CastRow{"nll_loss", On::Both},
    CastRow{"nll_loss2d", On::Both},
    CastRow{"nll_loss2d_forward", On::Both},
    CastRow{"nll_loss_forward", On::Both},
    CastRow{"nll_loss_nd", On::Both},
    CastRow{"norm", On::Cuda},
    CastRow{"nuclear_norm", On::Cuda},
    CastRow{"pdist", On::Cuda},
    CastRow{"poisson_nll_loss", On::Both},
    CastRow{"pow", On::Cuda},
    CastRow{"prod", On::Both},
    CastRow{"quantile", On::Cpu},
    CastRow{"reciprocal", On::Cuda},
    CastRow{"reflection_pad1d", On::Cpu},
    CastRow{"reflection_pad2d", On::Cpu},
    CastRow{"renorm", On::Cuda},
    CastRow{"replication_pad1d", On::Cpu},
    CastRow{"replication_pad2d", On::Cpu},
    CastRow{"replication_pad3d", On::Cpu},
    CastRow{"rsqrt", On::Cuda},
    CastRow{"sinh", On::Cuda},
    CastRow{"smooth_l1_loss", On::Both},
    CastRow{"soft_margin_loss", On::Both},
    CastRow{"softmax", On::Cuda},
    CastRow{"softplus", On::Cuda},
    CastRow{"sum", On::Cuda},
    CastRow{"tan", On::Cuda},
    CastRow{"trace", On::Cpu},
    CastRow{"triplet_margin_loss", On::Both},
    CastRow{"upsample_bicubic2d", On::Cuda},
    CastRow{"upsample_bilinear2d", On::Cuda},
    CastRow{"upsample_linear1d", On::Cuda},
    CastRow{"upsample_nearest1d", On::Cuda},
    CastRow{"upsample_nearest2d", On::Cuda},
    CastRow{"upsample_nearest3d", On::Cuda},
    CastRow{"upsample_trilinear3d", On::Cuda},
};

constexpr bool before(const CastRow& a, const CastRow& b) { return a.name < b.name; }
static_assert(std::is_sorted(narrow_operators.begin(), narrow_operators.end(), before));
static_assert(std::is_sorted(wide_operators.begin(), wide_operators.end(), before));

template <size_t count>
bool holds(const std::array<CastRow, count>& entries, std::string_view name, Autocast::List list) {
  const auto found = std::lower_bound(entries.begin(), entries.end(), CastRow{name, On::Both}, before);
  if (found == entries.end() || found->name != name) return false;
  return found->on == On::Both || (found->on == On::Cpu) == (list == Autocast::List::Cpu);
}

}  // namespace

void check(const Autocast& autocast) {
  if (autocast.dtype && *autocast.dtype != DType::BF16 && *autocast.dtype != DType::F16)
    throw UserError("precision: found " + std::string(name(*autocast.dtype)) + ", wanted bf16, f16 or none");
}

std::optional<DType> cast_of(const Autocast& autocast, std::string_view operator_name) {
  if (!autocast.dtype) return std::nullopt;
  if (holds(narrow_operators, operator_name, autocast.list)) return autocast.dtype;
  if (holds(wide_operators, operator_name, autocast.list)) return DType::F32;
  return std::nullopt;
}

}  // namespace stepgraph
