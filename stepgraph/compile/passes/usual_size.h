// SPDX-License-Identifier: Apache-2.0
// What a size is likely to be, for rewrites that are right at any size and pay at some.
#pragma once
#include <cstdint>
#include <optional>
#include "stepgraph/tensor/dim.h"

namespace stepgraph {

/// The dim where each size of an input is 8, or what of its range and multiples is next to it, and each coordinate 0. Nothing of a dim with other symbols, or
/// that has no value there.
std::optional<int64_t> usual_size(const SymbolTable& symbols, const Dim& dim);

}  // namespace stepgraph
