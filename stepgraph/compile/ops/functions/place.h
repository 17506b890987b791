// SPDX-License-Identifier: Apache-2.0
// Shared by the .cpp files of this folder: the caller's place, errors there, dims that count from the end, and the matching of operands.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include "stepgraph/compile/ops/functions/at.h"

namespace stepgraph {

/// Nodes emitted during its life carry the place where the caller wrote the call. A caller inside the engine (a gradient rule, a composite) keeps the
/// builder's place, so that its nodes carry the line of the user whose model it serves.
class PlaceScope {
 public:
  explicit PlaceScope(const At& at) : PlaceScope(at.value, at.location) {}
  PlaceScope(const Value& value, const std::source_location& location);
  ~PlaceScope();
  PlaceScope(const PlaceScope&) = delete;
  PlaceScope& operator=(const PlaceScope&) = delete;

 private:
  Builder& builder_;
  SourcePlace saved_;
};

/// The operand as the builder's autocast gives it to PyTorch's operator of that name: cast implicitly, or itself.
Value autocast(std::string_view operator_name, const Value& x);
/// All operands of one operator; where one is f64 none is cast, since a narrow one beside it would be a loss without a gain.
void autocast(std::string_view operator_name, std::initializer_list<Value*> operands);

/// UserError at the builder's place.
[[noreturn]] void fail(const Builder& builder, const std::string& message);
/// UserError when the values belong to different graphs.
void check_same_graph(std::string_view function, const Value& a, const Value& b);
/// dim in [0, rank), negative counted from the end; UserError when out of range.
int64_t dim_of(std::string_view function, const Value& x, int64_t dim);
/// Each by dim_of, sorted; UserError when one is repeated.
Dims dims_of(std::string_view function, const Value& x, const Dims& dims);

/// 0, 1, ..., rank - 1.
Dims all_dims(const Value& x);
/// The size of a dim that must be constant; UserError when it is symbolic.
int64_t constant_size(const Value& x, int64_t dim, const char* function);

/// The broadcast of two shapes: dims that are provably equal, or 1 against any other. UserError naming both types and the symbols' ranges.
Shape broadcast_shape(std::string_view function, const Builder& builder, const TensorType& a, const TensorType& b);
/// x stretched to `shape`, of which its dims are known to be equal or 1; x itself when nothing changes.
Value stretch(const Value& x, const Shape& shape);
struct Operands {
  Value a, b;
};
/// Both of the promoted dtype, shapes as they are.
Operands same_dtype(std::string_view function, const Value& a, const Value& b);

}  // namespace stepgraph
