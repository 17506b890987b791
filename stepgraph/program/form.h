// SPDX-License-Identifier: Apache-2.0
// A form: a generated kernel as data, one for CPUs and GPUs. It is one expression DAG over iteration factors; reductions are inner nodes that name their
// factors. In which loops and phases it runs follows from that (codegen/schedule.h) and is not stored. Forms are generic: a size that is no constant is a Dim
// in the form's own symbols "s0", "s1", ..., and every scalar (a key, a rate) is read from memory. Equal layers give equal forms, hence one kernel.
//
// Numbers. An expression is its op's fixed IEEE formula rounded to its dtype, wherever it is computed (halves: computed in f32, rounded once). A sum or product of
// floats takes its elements in row-major order of the reduced factors: lane k mod 16 of the innermost one adds in the dtype (halves: f32) in blocks of 4,096
// elements of it; blocks are joined in f64 in order, lanes then by halves, and the whole is rounded once. Where the innermost factor of the form is not
// reduced there is one lane an element, and each factor that is reduced runs in order. Threads and pieces do not enter.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>
#include "stepgraph/program/scalar_kinds.h"
#include "stepgraph/tensor/dim.h"
#include "stepgraph/tensor/dtype.h"
#include "stepgraph/tensor/sharding.h"

namespace stepgraph {

/// An iteration dimension, from 0 below its size.
struct Factor {
  Dim size;
  /// Of a size that is cut into blocks: with the factor `block_of` (one before this) at b, it runs below min(size, total - b * size). -1: not cut.
  int block_of = -1;
  Dim total = 0;
  bool operator==(const Factor&) const = default;
};

/// constant + the sum of coefficient * factor, in elements.
struct AffineTerm {
  int factor = 0;  ///< index into Form::factors
  Dim coefficient = 1;
  bool operator==(const AffineTerm&) const = default;
};
struct Affine {
  Dim constant = 0;
  std::vector<AffineTerm> terms;  ///< by factor ascending, each once, no coefficient 0
  bool operator==(const Affine&) const = default;
};

/// The coefficient of a factor; 0 if it is not in it.
Dim coefficient_of(const Affine& affine, int factor);

/// Memory that the form is given a pointer to: an instruction says which.
struct FormOperand {
  DType dtype = DType::F32;
  bool is_read = false, is_written = false;  ///< both: in place; each element is then stored by the expression that loads it, at the same index
  bool is_watched = false;                   ///< written, f32 or f64: the status says when a number that is stored is not finite
  bool operator==(const FormOperand&) const = default;
};

/// Holds where 0 <= index < size.
struct Guard {
  Affine index;
  Dim size;
  bool operator==(const Guard&) const = default;
};
/// An index that is computed: it adds stride * value to an address. The value must be in [0, size): if not, the element read is any within the operand, and the
/// form says so in its status (see FormCode).
struct IndexTerm {
  Dim stride, size;
  bool operator==(const IndexTerm&) const = default;
};

// ---- expressions: inputs are earlier expressions of the form
/// The element of an operand at an address. Inputs: one i64 for each index term, then with guards the value outside of them (of the dtype).
struct LoadExpr {
  int operand = 0;
  Affine at;
  std::vector<Guard> guards;
  std::vector<IndexTerm> indices;
  bool operator==(const LoadExpr&) const = default;
};
/// An element by its bits, in the low bytes.
struct ConstantExpr {
  uint64_t bits = 0;
  bool operator==(const ConstantExpr&) const = default;
};
/// A number that is known of the place, as i64.
struct IndexExpr {
  Affine value;
  bool operator==(const IndexExpr&) const = default;
};
struct UnaryExpr {
  UnaryKind kind{};
  bool operator==(const UnaryExpr&) const = default;
};
struct BinaryExpr {
  BinaryKind kind{};
  bool operator==(const BinaryExpr&) const = default;
};
struct CompareExpr {
  CompareKind kind{};
  bool operator==(const CompareExpr&) const = default;
};
/// Inputs: condition bool, on_true, on_false.
struct SelectExpr {
  bool operator==(const SelectExpr&) const = default;
};
/// To the expression's dtype, as Literal::converted.
struct ConvertExpr {
  bool operator==(const ConvertExpr&) const = default;
};
/// Inputs: key i64, element i64. uniform_element or normal_element of tensor/philox.h.
struct DrawExpr {
  RandomKind kind{};
  bool operator==(const DrawExpr&) const = default;
};
/// Inputs: key i64, operand i64. fold_key of tensor/philox.h.
struct FoldExpr {
  bool operator==(const FoldExpr&) const = default;
};
/// Input: a value of the form's dtype that varies over `factors` (ascending). Max and Min: NaN wins. Integers wrap in their dtype.
struct ReduceExpr {
  ReduceKind kind{};
  std::vector<int> factors;
  bool operator==(const ReduceExpr&) const = default;
};
/// The number (i64) of the first largest or smallest element along one factor; NaN counts as largest and as smallest.
struct ArgReduceExpr {
  bool is_largest = true;
  int factor = 0;
  bool operator==(const ArgReduceExpr&) const = default;
};
using ExprOp = std::variant<LoadExpr, ConstantExpr, IndexExpr, UnaryExpr, BinaryExpr, CompareExpr, SelectExpr, ConvertExpr, DrawExpr, FoldExpr, ReduceExpr, ArgReduceExpr>;
struct Expr {
  ExprOp op;
  std::vector<int> inputs;
  DType dtype = DType::F32;  ///< of the value
  bool operator==(const Expr&) const = default;
};

/// Writes an expression, of the operand's dtype, at an address; once for each value of the factors in `at`, among which are all that it varies over. Several
/// stores may fill one operand, each its own part.
struct Store {
  int operand = 0;
  Affine at;
  int value = 0;
  bool operator==(const Store&) const = default;
};

struct Form {
  std::vector<Factor> factors;  ///< outer to inner
  int size_count = 0;           ///< symbols "s0" .. of its Dims
  std::vector<FormOperand> operands;
  std::vector<Expr> exprs;  ///< no two are equal
  std::vector<Store> stores;
  bool operator==(const Form&) const = default;
};

/// The name of size symbol `index` of a form: "s0".
std::string form_symbol(int index);

/// Machine code of a form, for one Target. The object file defines
///
///     void <symbol>(void* const* operands, const int64_t* sizes, int64_t begin, int64_t end, void* scratch, int64_t* status)
///
/// which runs parts [begin, end) of [0, parallel): any cut of them into calls gives the same bits, on any threads at once. `scratch` are scratch_bytes of the
/// calling thread's own, aligned to 64. `status` is of the calling thread: after an index outside of its bounds status[0] is 1, status[1] the index and status[2]
/// the size that it should have been below; after a store of a number that is not finite to a watched operand status[3] is 1; else nothing is written.
struct FormCode {
  std::string symbol;
  Dim parallel, scratch_bytes;  ///< in the form's symbols
  std::string object;
  bool operator==(const FormCode&) const = default;
};

}  // namespace stepgraph
