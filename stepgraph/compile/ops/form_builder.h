// SPDX-License-Identifier: Apache-2.0
// Makes forms: expressions are added once each, and what is known at once is worked out. Dims are those of the module until the form is finished.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>
#include "stepgraph/program/form.h"

namespace stepgraph {

Affine affine(int factor);
Affine affine_constant(const Dim& value);
Affine operator+(const Affine& a, const Affine& b);
Affine operator*(const Affine& a, const Dim& scale);
/// Each factor replaced; `replacement` has one for each factor of the affine.
Affine substitute(const Affine& a, std::span<const Affine> replacement);
/// The constant, when it has no term.
std::optional<Dim> constant_of(const Affine& a);

class FormBuilder {
 public:
  std::vector<Factor> factors;
  std::vector<FormOperand> operands;
  std::vector<Store> stores;

  int add_factor(const Dim& size);
  int add(ExprOp op, std::vector<int> inputs, DType dtype);
  const Expr& expr(int id) const { return exprs_[static_cast<size_t>(id)]; }
  DType dtype(int id) const { return expr(id).dtype; }

  int constant(DType dtype, double value);
  int integer(DType dtype, int64_t value);
  int index(const Affine& value);
  int unary(UnaryKind kind, int x);
  int binary(BinaryKind kind, int a, int b);
  int compare(CompareKind kind, int a, int b);
  int select(int condition, int on_true, int on_false);
  int convert(DType dtype, int x);
  int reduce(ReduceKind kind, int x, std::vector<int> factors);

  /// The form of what was stored: expressions that no store needs are dropped, factors are in `order` (ids, outer to inner; all that are used), neighbours that
  /// are walked as one are one (kept ones: the order of a sum must not depend on what was fused with it), and each size that is no constant is a symbol. `sizes`
  /// gets the module's Dims of the symbols, `operand_of` for each operand of the form its number here.
  Form finish(std::span<const int> order, std::vector<Dim>& sizes, std::vector<int>& operand_of);

 private:
  std::vector<Expr> exprs_;
  std::unordered_multimap<uint64_t, int> known_;  ///< looked up only
};

}  // namespace stepgraph
