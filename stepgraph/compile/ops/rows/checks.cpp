// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/rows/checks.h"

#include <fmt/core.h>

namespace stepgraph {

bool same_size(const Module& module, const Dim& a, const Dim& b) {
  if (a == b) return true;
  const Truth equal = module.symbols.equal(a, b);
  return equal == Truth::True || (equal == Truth::Unknown && module.stage == Stage::Local);
}

bool same_shape(const Module& module, const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Dim& x, const Dim& y) { return same_size(module, x, y); });
}

std::string ranges_of(const Module& module, const Shape& a, const Shape& b) {
  Dim all = 0;
  for (const Shape* shape : {&a, &b}) {
    for (const Dim& dim : *shape) all = max(all, dim);
  }
  return all.is_constant() ? "" : " with " + module.symbols.describe(all);
}

void check_same_shape(std::string_view op, const InferRequest& request, const TensorType& a, const TensorType& b) {
  if (same_shape(request.module, a.shape, b.shape)) return;
  throw UserError(fmt::format("{}: shapes differ, {} and {}{}", op, text(a), text(b), ranges_of(request.module, a.shape, b.shape)));
}

void check_same_dtype(std::string_view op, const TensorType& a, const TensorType& b) {
  if (a.dtype != b.dtype) throw UserError(fmt::format("{}: dtypes differ, {} and {}", op, text(a), text(b)));
}

void check_floating(std::string_view op, const TensorType& type) {
  if (!is_floating(type.dtype)) throw UserError(fmt::format("{}: found {}, wanted a floating dtype", op, text(type)));
}

void check_dim(std::string_view op, int64_t dim, const TensorType& type) {
  if (dim < 0 || dim >= static_cast<int64_t>(type.rank())) throw UserError(fmt::format("{}: dim {} is out of range for {}", op, dim, text(type)));
}

void check_dims(std::string_view op, const std::vector<int64_t>& dims, const TensorType& type) {
  for (size_t i = 0; i < dims.size(); ++i) {
    check_dim(op, dims[i], type);
    if (i > 0 && dims[i - 1] >= dims[i]) throw UserError(fmt::format("{}: dims must ascend, found {} before {}", op, dims[i - 1], dims[i]));
  }
}

void check_sizes(std::string_view op, const Shape& shape, const Module& module) {
  for (const Dim& dim : shape) {
    if (module.symbols.less_or_equal(0, dim) == Truth::False) {
      throw UserError(fmt::format("{}: negative size in {}{}", op, text(shape), ranges_of(module, shape)));
    }
  }
}

}  // namespace stepgraph
