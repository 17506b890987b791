// SPDX-License-Identifier: Apache-2.0
// Values on the command line and in JSON.
#pragma once
#include <string>
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

/// "3", "[[1, 2], [3, 4]]" (numbers, true, false, nan, inf), or "@file.npz[:array]" (also .safetensors); converted to dtype. `name` is the default array and
/// stands in errors.
Literal read_value(const std::string& text, DType dtype, const std::string& name);
/// Nested lists; not finite numbers are the texts "nan", "inf", "-inf".
std::string value_json(const Literal& value);

}  // namespace stepgraph
