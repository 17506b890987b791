// SPDX-License-Identifier: Apache-2.0
// The part of an iteration that a node of a graph, or an instruction of a plan, belongs to.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace stepgraph {

/// Nodes of entries know it, calls among them; what a called graph holds has none: each of its calls has. Where a node comes from, as its place and scope: no
/// part of any comparison or hash.
/// Recompute: values of forward that are made again for backward.
enum class Phase : uint8_t { None, Forward, Backward, Recompute, Sync, Update, Evaluation };
std::string_view name(Phase phase);  ///< "forward", ...
std::optional<Phase> phase_from_name(std::string_view text);

}  // namespace stepgraph
