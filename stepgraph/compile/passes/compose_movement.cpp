// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/compose_movement.h"

#include <algorithm>

namespace stepgraph {
namespace {

Op reshape_to(const Shape& shape) { return Reshape{shape}; }

/// Gives each dim of -1 a dim of its own below `rank`, so that all ascend; false if there is no room.
bool place_ones(std::vector<int64_t>& dims, int64_t rank) {
  int64_t next = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) dims[i] = next;
    if (dims[i] < next || dims[i] >= rank) return false;
    next = dims[i] + 1;
  }
  return true;
}

std::optional<Op> compose(const Broadcast& inner, const Broadcast& outer) {
  Broadcast both{outer.shape, {}};
  for (const int64_t dim : inner.dims) both.dims.push_back(outer.dims[static_cast<size_t>(dim)]);
  return both;
}

/// A reshape that adds or drops dims of size 1, and a broadcast.
std::optional<Op> compose(const TensorType& operand, const TensorType& between, const Broadcast& outer) {
  std::optional<std::vector<int64_t>> dims = match_without_ones(operand.shape, between.shape);
  if (!dims) return std::nullopt;
  for (int64_t& dim : *dims)
    if (dim >= 0) dim = outer.dims[static_cast<size_t>(dim)];
  if (!place_ones(*dims, static_cast<int64_t>(outer.shape.size()))) return std::nullopt;
  return Broadcast{outer.shape, std::move(*dims)};
}

/// A broadcast, and a reshape that adds or drops dims of size 1.
std::optional<Op> compose(const TensorType& operand, const Broadcast& inner, const Reshape& outer) {
  const std::optional<std::vector<int64_t>> dims = match_without_ones(inner.shape, outer.shape);
  if (!dims) return std::nullopt;
  Broadcast both{outer.shape, {}};
  for (size_t i = 0; i < inner.dims.size(); ++i) {
    const int64_t dim = (*dims)[static_cast<size_t>(inner.dims[i])];
    if (dim < 0 && operand.shape[i] != Dim(1)) return std::nullopt;  // cannot be: it is 1 in the result as well
    both.dims.push_back(dim);
  }
  if (!place_ones(both.dims, static_cast<int64_t>(outer.shape.size()))) return std::nullopt;
  return both;
}

std::optional<Op> compose(const Transpose& inner, const Transpose& outer) {
  Transpose both = outer;
  for (int64_t& dim : both.permutation) dim = inner.permutation[static_cast<size_t>(dim)];
  return both;
}

/// Where the dims of the operand stay in order.
std::optional<Op> compose(const Broadcast& inner, const Transpose& outer) {
  Broadcast both{Shape(inner.shape.size()), {}};
  std::vector<int64_t> place(inner.shape.size());
  for (size_t d = 0; d < place.size(); ++d) {
    both.shape[d] = inner.shape[static_cast<size_t>(outer.permutation[d])];
    place[static_cast<size_t>(outer.permutation[d])] = static_cast<int64_t>(d);
  }
  for (const int64_t dim : inner.dims) both.dims.push_back(place[static_cast<size_t>(dim)]);
  if (!std::is_sorted(both.dims.begin(), both.dims.end())) return std::nullopt;
  return both;
}

std::optional<Op> compose(const Slice& inner, const Slice& outer) {
  Slice both = inner;
  for (size_t d = 0; d < both.starts.size(); ++d) {
    const int64_t stride = inner.strides[d];
    const Dim &first = outer.starts[d], &limit = outer.limits[d];
    // With steps, a slice of nothing could start behind the end.
    if (stride != 1 && !(first.is_constant() && limit.is_constant() && first.constant() < limit.constant())) return std::nullopt;
    both.starts[d] = inner.starts[d] + Dim(stride) * first;
    both.limits[d] = stride == 1 ? inner.starts[d] + limit : inner.starts[d] + Dim(stride) * (limit - 1) + 1;
    both.strides[d] = stride * outer.strides[d];
  }
  return both;
}

/// Where what is cut is equal along the dim.
std::optional<Op> compose(const TensorType& operand, const Broadcast& inner, const Slice& outer) {
  Broadcast both = inner;
  for (size_t d = 0; d < both.shape.size(); ++d) {
    if (outer.strides[d] != 1) return std::nullopt;
    both.shape[d] = outer.limits[d] - outer.starts[d];
  }
  for (size_t i = 0; i < inner.dims.size(); ++i) {
    const auto d = static_cast<size_t>(inner.dims[i]);
    if (operand.shape[i] != Dim(1) && both.shape[d] != inner.shape[d]) return std::nullopt;
  }
  return both;
}

int significant_bits(DType dtype) {
  switch (dtype) {
    case DType::F64: return 53;
    case DType::F32: return 24;
    case DType::F16: return 11;
    case DType::BF16: return 8;
    case DType::I64: return 63;
    case DType::I32: return 31;
    case DType::I8: return 7;
    case DType::U8: return 8;
    case DType::Bool: return 1;
  }
  return 0;
}

/// Every value of `from` is one of `to`.
bool loses_nothing(DType from, DType to) {
  if (from == DType::Bool) return true;
  if (to == DType::Bool) return false;
  if (is_floating(from)) return is_floating(to) && (to == DType::F64 || (to == DType::F32 && from != DType::F64) || to == from);
  if (!is_floating(to) && from != DType::U8 && to == DType::U8) return false;  // signs
  return significant_bits(to) >= significant_bits(from);
}

std::optional<Op> compose(DType from, const Convert& inner, const Convert& outer) {
  if (!loses_nothing(from, inner.dtype)) return std::nullopt;
  // Too large a number saturates on its way from floating to integer, and loses bits from integer to integer.
  if (is_floating(inner.dtype) && !is_floating(from) && !is_floating(outer.dtype) && !loses_nothing(from, outer.dtype)) return std::nullopt;
  return Convert{outer.dtype, inner.is_explicit || outer.is_explicit};
}

}  // namespace

std::optional<std::vector<int64_t>> match_without_ones(const Shape& from, const Shape& to) {
  std::vector<int64_t> dims;
  size_t next = 0;
  const auto skip_ones = [&] {
    while (next < to.size() && to[next] == Dim(1)) ++next;
  };
  for (const Dim& size : from) {
    if (size == Dim(1)) {
      dims.push_back(-1);
      continue;
    }
    skip_ones();
    if (next == to.size() || to[next] != size) return std::nullopt;
    dims.push_back(static_cast<int64_t>(next++));
  }
  skip_ones();
  if (next != to.size()) return std::nullopt;
  return dims;
}

std::optional<Op> compose_movement(const TensorType& operand, const Op& inner, const TensorType& between, const Op& outer) {
  if (const auto* first = std::get_if<Broadcast>(&inner)) {
    if (const auto* second = std::get_if<Broadcast>(&outer)) return compose(*first, *second);
    if (const auto* second = std::get_if<Reshape>(&outer)) return compose(operand, *first, *second);
    if (const auto* second = std::get_if<Transpose>(&outer)) return compose(*first, *second);
    if (const auto* second = std::get_if<Slice>(&outer)) return compose(operand, *first, *second);
  }
  if (std::holds_alternative<Reshape>(inner)) {
    if (const auto* second = std::get_if<Reshape>(&outer)) return reshape_to(second->shape);
    if (const auto* second = std::get_if<Broadcast>(&outer)) return compose(operand, between, *second);
  }
  if (const auto* first = std::get_if<Transpose>(&inner))
    if (const auto* second = std::get_if<Transpose>(&outer)) return compose(*first, *second);
  if (const auto* first = std::get_if<Slice>(&inner))
    if (const auto* second = std::get_if<Slice>(&outer)) return compose(*first, *second);
  if (const auto* first = std::get_if<Convert>(&inner))
    if (const auto* second = std::get_if<Convert>(&outer)) return compose(operand.dtype, *first, *second);
  return std::nullopt;
}

}  // namespace stepgraph
