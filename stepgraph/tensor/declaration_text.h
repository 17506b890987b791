// SPDX-License-Identifier: Apache-2.0
// Dtypes, symbols and mesh axes as they stand in the text of modules and plans.
#pragma once
#include <string>
#include "stepgraph/tensor/dim.h"
#include "stepgraph/tensor/dtype.h"
#include "stepgraph/tensor/sharding.h"

namespace stepgraph {

class TextScanner;

DType read_dtype(TextScanner& scanner);

/// "batch in [1, 64] multiple 2", "rows = floordiv(batch, 2)"
std::string text(const Symbol& symbol);
Symbol read_symbol(TextScanner& scanner);

/// "data", "model:(2)2"
std::string text(const AxisRef& axis);
AxisRef read_axis(TextScanner& scanner);

}  // namespace stepgraph
