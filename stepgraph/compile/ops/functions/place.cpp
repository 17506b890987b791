// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions/place.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/rows/checks.h"

namespace stepgraph {
namespace {

/// Sources of the engine all lie below the folder that this file's own path names.
bool is_engine_source(std::string_view file) {
  static constexpr std::string_view own = "compile/ops/functions/place.cpp";
  std::string_view here = std::source_location::current().file_name();
  if (!here.ends_with(own)) return false;
  here.remove_suffix(own.size());
  return file.starts_with(here);
}

Builder& builder_of(const Value& value) {
  if (value.builder == nullptr || value.id.index < 0) throw UserError("found a value that belongs to no graph, as a default-made Value does");
  return *value.builder;
}

}  // namespace

// ---- place, errors, dims

PlaceScope::PlaceScope(const Value& value, const std::source_location& location) : builder_(builder_of(value)), saved_(builder_.place()) {
  if (!is_engine_source(location.file_name())) builder_.set_place(place_of(location));
}
PlaceScope::~PlaceScope() { builder_.set_place(std::move(saved_)); }

Value autocast(std::string_view operator_name, const Value& x) {
  Value operand = x;
  autocast(operator_name, {&operand});
  return operand;
}

void autocast(std::string_view operator_name, std::initializer_list<Value*> operands) {
  std::optional<DType> to;
  for (const Value* operand : operands) {
    if (!to) to = cast_of(builder_of(*operand).autocast(), operator_name);
    if (!to || operand->dtype() == DType::F64) return;
  }
  for (Value* operand : operands)
    if (is_floating(operand->dtype())) *operand = convert(*operand, *to, false);
}

void fail(const Builder& builder, const std::string& message) { throw UserError(message, builder.place()); }

void check_same_graph(std::string_view function, const Value& a, const Value& b) {
  if (&builder_of(a) != &builder_of(b)) fail(*a.builder, fmt::format("{}: operands belong to two graphs", function));
}

int64_t dim_of(std::string_view function, const Value& x, int64_t dim) {
  const int64_t rank = x.rank();
  if (dim < -rank || dim >= rank) fail(*x.builder, fmt::format("{}: dim {} is out of range for {}", function, dim, text(x.type())));
  return dim < 0 ? dim + rank : dim;
}

Dims dims_of(std::string_view function, const Value& x, const Dims& dims) {
  Dims result;
  for (int64_t dim : dims) result.push_back(dim_of(function, x, dim));
  std::sort(result.begin(), result.end());
  const auto twice = std::adjacent_find(result.begin(), result.end());
  if (twice != result.end()) fail(*x.builder, fmt::format("{}: dim {} is given twice", function, *twice));
  return result;
}

int64_t constant_size(const Value& x, int64_t dim, const char* function) {
  if (!x.dim(dim).is_constant())
    fail(*x.builder, std::string(function) + ": dim " + std::to_string(dim) + " of " + text(x.type()) + " is symbolic, wanted a constant size");
  return x.dim(dim).constant();
}

Dims all_dims(const Value& x) {
  Dims dims(static_cast<size_t>(x.rank()));
  std::iota(dims.begin(), dims.end(), int64_t{0});
  return dims;
}

// ---- matching of operands

Shape broadcast_shape(std::string_view function, const Builder& builder, const TensorType& a, const TensorType& b) {
  const SymbolTable& symbols = builder.module().symbols;
  const Shape& longer = a.rank() >= b.rank() ? a.shape : b.shape;
  const Shape& shorter = a.rank() >= b.rank() ? b.shape : a.shape;
  Shape result = longer;
  const size_t offset = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    Dim& dim = result[offset + i];
    const Dim& other = shorter[i];
    if (dim == other || other == Dim(1)) continue;
    if (dim == Dim(1)) {
      dim = other;
      continue;
    }
    const Truth equal = symbols.equal(dim, other);
    if (equal == Truth::True) continue;
    fail(builder, fmt::format("{}: shapes {}, {} and {}{}", function, equal == Truth::False ? "differ" : "may differ", text(a), text(b),
                              ranges_of(builder.module(), a.shape, b.shape)));
  }
  return result;
}

Value stretch(const Value& x, const Shape& shape) {
  const SymbolTable& symbols = x.builder->module().symbols;
  const Shape& from = x.shape();
  bool same = from.size() == shape.size();
  for (size_t i = 0; same && i < from.size(); ++i) same = symbols.equal(from[i], shape[i]) == Truth::True;
  if (same) return x;
  Dims dims;
  for (size_t i = 0; i < from.size(); ++i) dims.push_back(static_cast<int64_t>(shape.size() - from.size() + i));
  return x.builder->emit_one(Broadcast{shape, std::move(dims)}, {x});
}

Operands same_dtype(std::string_view function, const Value& a, const Value& b) {
  check_same_graph(function, a, b);
  const DType dtype = promote(a.dtype(), b.dtype());
  return {convert(a, dtype), convert(b, dtype)};
}

}  // namespace stepgraph
