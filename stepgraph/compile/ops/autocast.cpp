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
struct Entry {
  std::string_view name;
  On on;
};

/// Products: computed in the narrow dtype. Names that only decomposed programs have stand beside those that they come from; einsum, and the recurrences' cells,
/// are bmm and linear inside. In order of name.
constexpr std::array narrow_operators{
    Entry{"_convolution", On::Both},
    Entry{"_native_multi_head_attention", On::Cpu},
    Entry{"_scaled_dot_product_attention_math", On::Both},
    Entry{"_scaled_dot_product_efficient_attention", On::Both},
    Entry{"_scaled_dot_product_flash_attention", On::Both},
    Entry{"_scaled_dot_product_flash_attention_for_cpu", On::Both},
    Entry{"addbmm", On::Both},
    Entry{"addmm", On::Both},
    Entry{"addmv", On::Cuda},
    Entry{"addr", On::Cuda},
    Entry{"baddbmm", On::Both},
    Entry{"bmm", On::Both},
    Entry{"chain_matmul", On::Both},
    Entry{"conv1d", On::Both},
    Entry{"conv2d", On::Both},
    Entry{"conv3d", On::Both},
    Entry{"conv_tbc", On::Both},
    Entry{"conv_transpose1d", On::Both},
    Entry{"conv_transpose2d", On::Both},
    Entry{"conv_transpose3d", On::Both},
    Entry{"convolution", On::Both},
    Entry{"einsum", On::Both},
    Entry{"linalg_multi_dot", On::Both},
    Entry{"linalg_vecdot", On::Both},
    Entry{"linear", On::Both},
    Entry{"matmul", On::Both},
    Entry{"mm", On::Both},
    Entry{"mv", On::Cuda},
    Entry{"prelu", On::Both},
    Entry{"scaled_dot_product_attention", On::Both},
    Entry{"tensordot", On::Both},
};

/// Losses and what overflows or cancels: computed in f32. In order of name.
constexpr std::array wide_operators{
    Entry{"_log_softmax", On::Cuda},
    Entry{"_softmax", On::Cuda},
    Entry{"_upsample_bicubic2d_aa", On::Cuda},
    Entry{"_upsample_bilinear2d_aa", On::Cuda},
    Entry{"_upsample_nearest_exact1d", On::Cuda},
    Entry{"_upsample_nearest_exact2d", On::Cuda},
    Entry{"_upsample_nearest_exact3d", On::Cuda},
    Entry{"acos", On::Cuda},
    Entry{"adaptive_avg_pool3d", On::Cpu},
    Entry{"adaptive_max_pool3d", On::Cpu},
    Entry{"asin", On::Cuda},
    Entry{"avg_pool3d", On::Cpu},
    Entry{"binary_cross_entropy", On::Cpu},
    Entry{"binary_cross_entropy_with_logits", On::Both},
    Entry{"cdist", On::Both},
    Entry{"cosh", On::Cuda},
    Entry{"cosine_embedding_loss", On::Both},
    Entry{"cosine_similarity", On::Cuda},
    Entry{"cross_entropy_loss", On::Both},
    Entry{"ctc_loss", On::Cpu},
    Entry{"cumprod", On::Cuda},
    Entry{"cumsum", On::Cuda},
    Entry{"dist", On::Cuda},
    Entry{"erfinv", On::Cuda},
    Entry{"exp", On::Cuda},
    Entry{"expm1", On::Cuda},
    Entry{"fractional_max_pool2d", On::Cpu},
    Entry{"fractional_max_pool3d", On::Cpu},
    Entry{"frobenius_norm", On::Cuda},
    Entry{"grid_sampler", On::Cpu},
    Entry{"grid_sampler_2d", On::Cpu},
    Entry{"grid_sampler_3d", On::Cpu},
    Entry{"group_norm", On::Cuda},
    Entry{"hinge_embedding_loss", On::Both},
    Entry{"huber_loss", On::Both},
    Entry{"kl_div", On::Both},
    Entry{"l1_loss", On::Both},
    Entry{"layer_norm", On::Cuda},
    Entry{"linalg_matrix_norm", On::Cuda},
    Entry{"linalg_vector_norm", On::Cuda},
    Entry{"log", On::Cuda},
    Entry{"log10", On::Cuda},
    Entry{"log1p", On::Cuda},
    Entry{"log2", On::Cuda},
    Entry{"log_softmax", On::Cuda},
    Entry{"logsumexp", On::Cuda},
    Entry{"margin_ranking_loss", On::Both},
    Entry{"max_pool3d", On::Cpu},
    Entry{"mse_loss", On::Both},
    Entry{"multi_margin_loss", On::Both},
    Entry{"multilabel_margin_loss", On::Both},
    Entry{"nanquantile", On::Cpu},
    Entry{"native_group_norm", On::Cuda},
    Entry{"native_layer_norm", On::Cuda},
    Entry{"nll_loss", On::Both},
    Entry{"nll_loss2d", On::Both},
    Entry{"nll_loss2d_forward", On::Both},
    Entry{"nll_loss_forward", On::Both},
    Entry{"nll_loss_nd", On::Both},
    Entry{"norm", On::Cuda},
    Entry{"nuclear_norm", On::Cuda},
    Entry{"pdist", On::Cuda},
    Entry{"poisson_nll_loss", On::Both},
    Entry{"pow", On::Cuda},
    Entry{"prod", On::Both},
    Entry{"quantile", On::Cpu},
    Entry{"reciprocal", On::Cuda},
    Entry{"reflection_pad1d", On::Cpu},
    Entry{"reflection_pad2d", On::Cpu},
    Entry{"renorm", On::Cuda},
    Entry{"replication_pad1d", On::Cpu},
    Entry{"replication_pad2d", On::Cpu},
    Entry{"replication_pad3d", On::Cpu},
    Entry{"rsqrt", On::Cuda},
    Entry{"sinh", On::Cuda},
    Entry{"smooth_l1_loss", On::Both},
    Entry{"soft_margin_loss", On::Both},
    Entry{"softmax", On::Cuda},
    Entry{"softplus", On::Cuda},
    Entry{"sum", On::Cuda},
    Entry{"tan", On::Cuda},
    Entry{"trace", On::Cpu},
    Entry{"triplet_margin_loss", On::Both},
    Entry{"upsample_bicubic2d", On::Cuda},
    Entry{"upsample_bilinear2d", On::Cuda},
    Entry{"upsample_linear1d", On::Cuda},
    Entry{"upsample_nearest1d", On::Cuda},
    Entry{"upsample_nearest2d", On::Cuda},
    Entry{"upsample_nearest3d", On::Cuda},
    Entry{"upsample_trilinear3d", On::Cuda},
};

constexpr bool before(const Entry& a, const Entry& b) { return a.name < b.name; }
static_assert(std::is_sorted(narrow_operators.begin(), narrow_operators.end(), before));
static_assert(std::is_sorted(wide_operators.begin(), wide_operators.end(), before));

template <size_t count>
bool holds(const std::array<Entry, count>& entries, std::string_view name, Autocast::List list) {
  const auto found = std::lower_bound(entries.begin(), entries.end(), Entry{name, On::Both}, before);
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
