// SPDX-License-Identifier: Apache-2.0
// Functions over Values that append primitives: what gradient rules, composites and users write. Binary functions broadcast as NumPy and PyTorch do and
// promote dtypes by explicit Converts (a C++ number takes the dtype of the tensor). Dims may be negative. Errors are UserErrors with the builder's place;
// operators and functions that take a Value record the caller's own line.
#pragma once
#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/functions/indexing.h"
#include "stepgraph/compile/ops/functions/linear_algebra.h"
#include "stepgraph/compile/ops/functions/resampling.h"
#include "stepgraph/compile/ops/functions/shape.h"
#include "stepgraph/compile/ops/functions/statistics.h"
#include "stepgraph/compile/ops/functions/windows.h"
