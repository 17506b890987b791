// SPDX-License-Identifier: Apache-2.0
// What a model's entry wants of a batch: named arrays of a fitting dtype and sizes. One set of messages for what is known before the first step and for
// what only a batch shows.
#pragma once
#include <string>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/train/data/arrays.h"

namespace stepgraph {

/// UserError naming what there is.
const Literal& batch_array(const NamedArrays& arrays, const std::string& wanted);
[[noreturn]] void fail_no_array(const std::string& wanted, const std::vector<std::string>& known);
/// UserError unless arrays of dtype `found` are converted to `wanted`.
void check_batch_dtype(DType found, DType wanted, const std::string& input);
/// As the model's input is typed: leading micro-batches, and integers or floats of another width converted.
Literal fit_batch(const Literal& array, const TensorType& type, const std::string& input, int64_t micro_batches);
/// Values of symbols from the sizes of a whole batch input; also checks them.
void solve_sizes(const Sizes& sizes, const TensorType& type, const std::string& input, SymbolValues& symbols);
/// For an index out of range in a running entry: which batch input holds it, as "; ...".
std::string index_hint(const BadIndex& bad, const Graph& entry, const NamedArrays& batch);

}  // namespace stepgraph
