// SPDX-License-Identifier: Apache-2.0
// Functions over Values that append primitives: what gradient rules, composites and users write. Binary functions broadcast as NumPy and PyTorch do and
// promote dtypes by explicit Converts (a C++ number takes the dtype of the tensor). Dims may be negative. Errors are UserErrors with the builder's place;
// operators and functions that take a Value record the caller's own line.
#pragma once
#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <vector>
#include "stepgraph/compile/ops/builder.h"

namespace stepgraph {

/// A Value together with the place where the caller wrote it. Implicit, so that each function below knows the user's line.
struct At {
  Value value;
  std::source_location location;
  At(Value v, std::source_location l = std::source_location::current()) : value(v), location(l) {}  // NOLINT
  const Value* operator->() const { return &value; }
};
using Dims = std::vector<int64_t>;

// ---- sources: `like` gives the builder
Value constant(Builder& builder, Literal value);
Value scalar(Builder& builder, DType dtype, double value);
Value full(Builder& builder, DType dtype, const Shape& shape, double value);
Value zeros_like(At x);
Value ones_like(At x);
Value full_like(At x, double value);
Value iota(Builder& builder, DType dtype, const Shape& shape, int64_t dim);
Value size_value(Builder& builder, DType dtype, const Dim& dim);
/// Takes the next random id of the module.
Value random_uniform(Value seed, Value step, DType dtype, const Shape& shape);
Value random_normal(Value seed, Value step, DType dtype, const Shape& shape);

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
Value clamp(At x, std::optional<double> low, std::optional<double> high);  ///< gradient 1 at the bounds
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
Value stop_gradient(At x);

// ---- reductions. Empty `dims` = none given: reduce all.
Value reduce(ReduceKind kind, At x, Dims dims, bool keep_dims = false);
Value sum(At x, Dims dims = {}, bool keep_dims = false);
Value prod(At x, Dims dims = {}, bool keep_dims = false);
Value amax(At x, Dims dims = {}, bool keep_dims = false);
Value amin(At x, Dims dims = {}, bool keep_dims = false);
Value any(At x, Dims dims = {}, bool keep_dims = false);
Value all(At x, Dims dims = {}, bool keep_dims = false);
Value mean(At x, Dims dims = {}, bool keep_dims = false);
struct MeanVariance {
  Value mean, variance;
};
MeanVariance moments(At x, Dims dims, bool keep_dims = false);
Value argmax(At x, int64_t dim, bool keep_dims = false);
Value argmin(At x, int64_t dim, bool keep_dims = false);
Value cumsum(At x, int64_t dim, bool reverse = false);
Value cumprod(At x, int64_t dim, bool reverse = false);
Value logcumsumexp(At x, int64_t dim, bool reverse = false);

// ---- shape and movement
/// NumPy broadcasting of x to `shape` (dims aligned at the end).
Value broadcast_to(At x, const Shape& shape);
/// Operand dim i goes to result dim dims[i].
Value broadcast_in_dim(At x, const Shape& shape, Dims dims);
Value reshape(At x, const Shape& shape);  ///< exact sizes; no -1 (see flatten, unflatten)
Value flatten(At x, int64_t first, int64_t last);
Value unflatten(At x, int64_t dim, const Shape& sizes);
Value squeeze(At x, Dims dims);
Value unsqueeze(At x, int64_t dim);
Value transpose(At x, int64_t a, int64_t b);  ///< swaps two dims
Value permute(At x, Dims permutation);
Value flip(At x, Dims dims);
Value slice(At x, int64_t dim, const Dim& start, const Dim& limit, int64_t stride = 1);
/// Drops `dim`, keeping element `index` (negative counts from the end).
Value select(At x, int64_t dim, int64_t index);
Value pad(At x, const Shape& low, const Shape& high, double value = 0);
Value concatenate(std::span<const Value> values, int64_t dim, std::source_location location = std::source_location::current());
std::vector<Value> split(At x, int64_t dim, int64_t parts);  ///< equal parts
Value index_select(At x, int64_t dim, At indices);
Value index_add(At base, int64_t dim, At indices, At updates);
Value gather(At x, int64_t dim, At index);
Value scatter_add(At base, int64_t dim, At index, At updates);

// ---- block ops
/// torch.matmul: 1-D and batched operands, batch dims broadcast.
Value matmul(At a, At b);
Value dot_general(At a, At b, MatMul spec);
/// `same` strides etc. for all spatial dims.
struct ConvolutionOptions {
  std::vector<int64_t> strides = {}, padding = {}, dilation = {};  ///< empty: 1, 0, 1; one number: for all spatial dims
  int64_t groups = 1;
};
Value convolution(At x, At weight, const ConvolutionOptions& options = {});
/// weight [C, O/groups, window...], as torch.nn.functional.conv_transpose.
Value convolution_transpose(At x, At weight, const ConvolutionOptions& options, std::vector<int64_t> output_padding = {});
struct PoolOptions {
  std::vector<int64_t> size = {}, strides = {}, padding = {}, dilation = {};  ///< strides empty: size
  bool count_include_pad = true;
};
Value max_pool(At x, const PoolOptions& options);
Value average_pool(At x, const PoolOptions& options);

// ---- control
/// A Call with a fresh site.
std::vector<Value> call(Builder& builder, GraphId graph, std::span<const Value> inputs);

}  // namespace stepgraph
