// SPDX-License-Identifier: Apache-2.0
// The words of a plan's text, which its writer and its reader share.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace stepgraph {

struct GemmCut;
class TextScanner;
/// "rows 4": of a product, in plans and in records of tuning.
std::string cut_text(const GemmCut& cut);
GemmCut read_cut(TextScanner& scanner);

inline constexpr int64_t plan_format_version = 1;
inline constexpr int64_t listed_elements_max = 64;  ///< of a constant whose elements stand in every text

// In the order of their enumerations.
inline constexpr std::array<std::string_view, 2> instruction_set_names{"avx2", "avx512"};
inline constexpr std::array<std::string_view, 2> gemm_library_names{"onednn", "openblas"};
inline constexpr std::array<std::string_view, 4> space_names{"state", "constant", "input", "arena"};
inline constexpr std::array<std::string_view, 3> convolution_pass_names{"forward", "input_gradient", "weight_gradient"};
inline constexpr std::array<std::string_view, 4> scatter_names{"add", "product", "max", "min"};
inline constexpr std::array<std::string_view, 3> pool_pass_names{"max", "average", "average_gradient"};
inline constexpr std::array<std::string_view, 5> scan_names{"sum", "product", "logsumexp", "max", "min"};
inline constexpr std::array<std::string_view, 3> collective_names{"all_reduce", "all_gather", "reduce_scatter"};

template <class Names, class Kind>
std::string_view word_of(const Names& names, Kind kind) {
  return names[static_cast<size_t>(kind)];
}

}  // namespace stepgraph
