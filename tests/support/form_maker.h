// SPDX-License-Identifier: Apache-2.0
// Forms written in a few lines, and run by generated code or by the interpreter of forms.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stepgraph/program/form.h"
#include "stepgraph/program/target.h"
#include "stepgraph/run/device/code_loader.h"
#include "stepgraph/tensor/literal.h"
#include "tests/support/form_interpreter.h"

namespace stepgraph::testing {

class FormMaker {
 public:
  Form form;

  int factor(Dim size) {
    form.factors.push_back({std::move(size)});
    return static_cast<int>(form.factors.size()) - 1;
  }
  int reads(DType dtype) { return operand({dtype, true, false}); }
  int writes(DType dtype) { return operand({dtype, false, true}); }
  int updates(DType dtype) { return operand({dtype, true, true}); }
  /// An address: constant and (factor, coefficient) pairs; zeros are left out.
  static Affine at(std::vector<std::pair<int, Dim>> terms, Dim constant = 0);
  /// An expression, or the one that is equal.
  int expr(ExprOp op, std::vector<int> inputs, DType dtype);
  int load(int operand, Affine at) { return expr(LoadExpr{operand, std::move(at), {}, {}}, {}, dtype_of(operand)); }
  int constant(DType dtype, double value);
  int number(Affine value) { return expr(IndexExpr{std::move(value)}, {}, DType::I64); }
  int unary(UnaryKind kind, int x) { return expr(UnaryExpr{kind}, {x}, kind == UnaryKind::IsFinite || kind == UnaryKind::IsNan ? DType::Bool : type(x)); }
  int binary(BinaryKind kind, int x, int y) { return expr(BinaryExpr{kind}, {x, y}, type(x)); }
  int compare(CompareKind kind, int x, int y) { return expr(CompareExpr{kind}, {x, y}, DType::Bool); }
  int select(int condition, int x, int y) { return expr(SelectExpr{}, {condition, x, y}, type(x)); }
  int convert(int x, DType dtype) { return expr(ConvertExpr{}, {x}, dtype); }
  int reduce(ReduceKind kind, int x, std::vector<int> factors) { return expr(ReduceExpr{kind, std::move(factors)}, {x}, type(x)); }
  int arg_reduce(bool largest, int x, int factor) { return expr(ArgReduceExpr{largest, factor}, {x}, DType::I64); }
  void store(int operand, Affine at, int value) { form.stores.push_back({operand, std::move(at), value}); }
  DType type(int expr) const { return form.exprs[static_cast<size_t>(expr)].dtype; }
  DType dtype_of(int operand) const { return form.operands[static_cast<size_t>(operand)].dtype; }

 private:
  int operand(FormOperand operand) {
    form.operands.push_back(operand);
    return static_cast<int>(form.operands.size()) - 1;
  }
};

struct FormResult {
  std::vector<Literal> operands;
  std::optional<BadFormIndex> bad;
  bool is_noticed = false;  ///< a number that is not finite went to a watched operand
  int64_t parallel = 0;
};
/// A form as machine code in this process.
class CompiledForm {
 public:
  explicit CompiledForm(const Form& form, InstructionSet isa = InstructionSet::Avx2);
  ~CompiledForm();
  /// Runs it in parts of at most `cut` (0: in one call). Memory before and after each operand is checked to stay as it is.
  FormResult run(const std::vector<Literal>& operands, const std::vector<int64_t>& sizes = {}, int64_t cut = 0) const;
  const FormCode& code() const { return code_; }

 private:
  FormCode code_;
  std::unique_ptr<LoadedCode> loaded_;
};
inline FormResult run_form(const Form& form, const std::vector<Literal>& operands, const std::vector<int64_t>& sizes = {}) {
  return CompiledForm(form).run(operands, sizes);
}
/// The same by the interpreter.
FormResult run_by_interpreter(const Form& form, std::vector<Literal> operands, const std::vector<int64_t>& sizes = {});

/// "" if results are equal: floats within `relative` of their magnitude (or of 1 with `absolute`), infinities and NaN alike; others to the bit.
std::string difference(const Literal& found, const Literal& wanted, double relative, double absolute = 0);
/// Numbers with a few special ones among them, the same for the same seed. Integers are small, bools both.
Literal some_values(DType dtype, int64_t count, uint32_t seed, bool with_specials = true);

}  // namespace stepgraph::testing
