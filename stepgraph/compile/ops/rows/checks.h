// SPDX-License-Identifier: Apache-2.0
// What inference of several rows checks alike.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

/// Are the sizes equal, as far as this stage must know? At the Local stage sizes are expressions of coordinates of which equality may be undecidable:
/// there Unknown passes, and evaluation checks.
bool same_size(const Module& module, const Dim& a, const Dim& b);
bool same_shape(const Module& module, const Shape& a, const Shape& b);
/// UserError "add: shapes differ, f32[4] and f32[5]", with the ranges of symbols.
void check_same_shape(std::string_view op, const InferRequest& request, const TensorType& a, const TensorType& b);
void check_same_dtype(std::string_view op, const TensorType& a, const TensorType& b);
void check_floating(std::string_view op, const TensorType& type);
/// Each in [0, rank), ascending, none twice.
void check_dims(std::string_view op, const std::vector<int64_t>& dims, const TensorType& type);
void check_dim(std::string_view op, int64_t dim, const TensorType& type);
/// No dim may be negative for certain.
void check_sizes(std::string_view op, const Shape& shape, const Module& module);
/// " with batch in [1, 8]", or "" without symbols.
std::string ranges_of(const Module& module, const Shape& a, const Shape& b = {});

}  // namespace stepgraph
