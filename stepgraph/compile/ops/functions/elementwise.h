// SPDX-License-Identifier: Apache-2.0
// Sources, and functions of each element.
#pragma once
#include <cstdint>
#include <optional>
#include "stepgraph/compile/ops/functions/at.h"

namespace stepgraph {

// ---- sources: `like` gives the builder
Value constant(Builder& builder, Literal value);
Value scalar(Builder& builder, DType dtype, double value);
Value full(Builder& builder, DType dtype, const Shape& shape, double value);
Value zeros(Builder& builder, const TensorType& type);
Value zeros_like(At x);
Value ones_like(At x);
Value full_like(At x, double value);
Value iota(Builder& builder, DType dtype, const Shape& shape, int64_t dim);
Value size_value(Builder& builder, DType dtype, const Dim& dim);
/// Functions of a key, an i64 scalar: the same key and shape draw the same numbers. Draws that shall differ take keys that differ, as those of Scope::key.
Value random_uniform(Value key, DType dtype, const Shape& shape);
Value random_normal(Value key, DType dtype, const Shape& shape);
/// Another key, of a key (a seed is one) and a number: of the step, of an iteration, of a draw.
Value fold_in(Value key, Value operand);
Value fold_in(Value key, int64_t operand);

// ---- element-wise
Value unary(UnaryKind kind, At x);
Value neg(At x);
Value abs(At x);
Value sign(At x);
Value exp(At x);
Value expm1(At x);
Value log(At x);
Value log1p(At x);
Value sqrt(At x);
Value rsqrt(At x);
Value reciprocal(At x);
Value sin(At x);
Value cos(At x);
Value tanh(At x);
Value sigmoid(At x);
Value erf(At x);
Value floor(At x);
Value ceil(At x);
Value round(At x);
Value relu(At x);
Value logical_not(At x);
Value is_finite(At x);
Value is_nan(At x);
Value binary(BinaryKind kind, At a, At b);
Value operator+(At a, At b);
Value operator-(At a, At b);
Value operator*(At a, At b);
Value operator/(At a, At b);
Value operator-(At a);
Value operator+(At a, double b);
Value operator-(At a, double b);
Value operator*(At a, double b);
Value operator/(At a, double b);
Value operator+(double a, At b);
Value operator-(double a, At b);
Value operator*(double a, At b);
Value operator/(double a, At b);
Value floor_divide(At a, At b);
Value remainder(At a, At b);
Value pow(At a, At b);
Value pow(At a, double b);
Value maximum(At a, At b);
Value minimum(At a, At b);
Value clamp(At x, std::optional<double> low, std::optional<double> high);  ///< gradient 1 at the bounds, 0 outside and at NaN
Value logical_and(At a, At b);
Value logical_or(At a, At b);
Value logical_xor(At a, At b);
Value compare(CompareKind kind, At a, At b);
Value equal(At a, At b);
Value not_equal(At a, At b);
Value less(At a, At b);
Value less_equal(At a, At b);
Value greater(At a, At b);
Value greater_equal(At a, At b);
Value equal(At a, double b);
Value not_equal(At a, double b);
Value less(At a, double b);
Value less_equal(At a, double b);
Value greater(At a, double b);
Value greater_equal(At a, double b);
Value where(At condition, At on_true, At on_false);
Value convert(At x, DType dtype, bool is_explicit = true);  ///< x itself if it has that dtype
/// f16 and bf16 as f32, others as they are. What sums up, squares or takes several steps of arithmetic is computed so and rounded once at the end, as
/// PyTorch's kernels do.
Value widened(At x);
Value stop_gradient(At x);
/// `result`, to which `x` counts as a part with the gradient zero: not the same as none, since a parameter with a gradient decays.
Value with_zero_gradient(At result, Value x);
Value trunc(At x);  ///< gradient zero
/// Remainder with the sign of the dividend; gradient 1 and -trunc(a / b).
Value fmod(At a, At b);

}  // namespace stepgraph
