// SPDX-License-Identifier: Apache-2.0
// What makes a form a form: check of form_text.h.
#include <algorithm>
#include <unordered_set>

#include "stepgraph/base/error.h"
#include "stepgraph/program/form_text.h"

namespace stepgraph {
namespace {

constexpr size_t factors_max = 64;
using FactorSet = uint64_t;
FactorSet only(int factor) { return FactorSet{1} << factor; }

class FormChecker {
 public:
  explicit FormChecker(const Form& form) : form_(form) {}

  void run() {
    if (form_.size_count < 0) fail("found " + std::to_string(form_.size_count) + " sizes");
    if (form_.factors.size() > factors_max) fail("found " + std::to_string(form_.factors.size()) + " factors, wanted at most " + std::to_string(factors_max));
    factors();
    std::unordered_set<std::string> seen;
    for (size_t i = 0; i < form_.exprs.size(); ++i) {
      place_ = "%" + std::to_string(i);
      inputs(form_.exprs[i], i);
      varies_.push_back(std::visit([&](const auto& op) { return expr(op, form_.exprs[i]); }, form_.exprs[i].op));
      std::string line = expr_text(form_, i);
      line.erase(0, line.find('='));
      if (!seen.insert(std::move(line)).second) fail("another value is the same");
      place_ = "";
    }
    for (size_t i = 0; i < form_.stores.size(); ++i) {
      place_ = "store " + std::to_string(i);
      store(form_.stores[i]);
    }
    place_ = "";
    in_place();
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw InternalError("form: " + (place_.empty() ? "" : place_ + ": ") + message); }

  void dim(const Dim& dim, std::string_view what) const {
    if (dim.is_constant()) return;
    for (const std::string& symbol : dim.symbols()) {
      const bool known = symbol.size() > 1 && symbol.size() < 10 && symbol[0] == 's' &&
                         std::all_of(
                             symbol.begin() + 1, symbol.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
                         std::stoi(symbol.substr(1)) < form_.size_count && form_symbol(std::stoi(symbol.substr(1))) == symbol;
      if (!known)
        fail(std::string(what) + " " + dim.text() + ": the form has " + std::to_string(form_.size_count) + " sizes, '" + symbol + "' is none of them");
    }
  }

  void factor(int factor) const {
    if (factor < 0 || static_cast<size_t>(factor) >= form_.factors.size())
      fail("factor i" + std::to_string(factor) + " does not exist, there are " + std::to_string(form_.factors.size()));
  }

  void factors() {
    for (size_t i = 0; i < form_.factors.size(); ++i) {
      place_ = "i" + std::to_string(i);
      const Factor& factor = form_.factors[i];
      dim(factor.size, "size");
      dim(factor.total, "total");
      if (factor.block_of < -1 || factor.block_of >= static_cast<int>(i))
        fail("cut into the blocks of i" + std::to_string(factor.block_of) + ", wanted a factor before it");
      if (factor.block_of < 0 && factor.total != Dim(0)) fail("a total belongs to a factor that is cut");
    }
    place_ = "";
  }

  /// The factors that an address or a number varies over. How far a factor that is cut runs depends on its block.
  FactorSet affine(const Affine& affine) const {
    FactorSet result = 0;
    dim(affine.constant, "constant");
    int last = -1;
    for (const AffineTerm& term : affine.terms) {
      factor(term.factor);
      if (term.factor <= last) fail("factors of " + text(affine) + " stand once, in ascending order");
      if (term.coefficient == Dim(0)) fail("factor i" + std::to_string(term.factor) + " of " + text(affine) + " has the coefficient 0");
      dim(term.coefficient, "coefficient");
      last = term.factor;
      result |= only(term.factor);
    }
    return result;
  }

  void inputs(const Expr& expr, size_t index) const {
    for (const int input : expr.inputs)
      if (input < 0 || static_cast<size_t>(input) >= index) fail("input %" + std::to_string(input) + " is no value before it");
  }

  const Expr& input(const Expr& expr, size_t i) const { return form_.exprs[static_cast<size_t>(expr.inputs[i])]; }

  /// The number of inputs and, where one is named, their dtypes; the factors that they vary over.
  FactorSet takes(const Expr& expr, size_t count) const {
    if (expr.inputs.size() != count) fail("found " + std::to_string(expr.inputs.size()) + " inputs, wanted " + std::to_string(count));
    FactorSet result = 0;
    for (const int input : expr.inputs) result |= varies_[static_cast<size_t>(input)];
    return result;
  }
  void want(const Expr& expr, size_t i, DType dtype) const {
    const DType found = input(expr, i).dtype;
    if (found != dtype) fail("input " + std::to_string(i) + " is " + std::string(name(found)) + ", wanted " + std::string(name(dtype)));
  }
  void gives(const Expr& expr, DType dtype) const {
    if (expr.dtype != dtype) fail("is " + std::string(name(expr.dtype)) + ", wanted " + std::string(name(dtype)));
  }

  const FormOperand& operand(int index) const {
    if (index < 0 || static_cast<size_t>(index) >= form_.operands.size())
      fail("operand " + std::to_string(index) + " does not exist, there are " + std::to_string(form_.operands.size()));
    return form_.operands[static_cast<size_t>(index)];
  }

  FactorSet expr(const LoadExpr& load, const Expr& expr) const {
    const FormOperand& from = operand(load.operand);
    if (!from.is_read) fail("operand " + std::to_string(load.operand) + " is not read by declaration");
    gives(expr, from.dtype);
    FactorSet result = takes(expr, load.indices.size() + (load.guards.empty() ? 0 : 1)) | affine(load.at);
    for (size_t i = 0; i < load.indices.size(); ++i) {
      want(expr, i, DType::I64);
      dim(load.indices[i].size, "size of an index");
      dim(load.indices[i].stride, "stride of an index");
    }
    for (const Guard& guard : load.guards) {
      result |= affine(guard.index);
      dim(guard.size, "size of a guard");
    }
    if (!load.guards.empty()) want(expr, load.indices.size(), from.dtype);
    return result;
  }
  FactorSet expr(const ConstantExpr& constant, const Expr& expr) const {
    const size_t bits = 8 * size_bytes(expr.dtype);
    if (bits < 64 && constant.bits >> bits != 0) fail("bits beyond the " + std::to_string(bits) + " of " + std::string(name(expr.dtype)));
    if (expr.dtype == DType::Bool && constant.bits > 1) fail("found the bool " + std::to_string(constant.bits) + ", wanted 0 or 1");
    return takes(expr, 0);
  }
  FactorSet expr(const IndexExpr& index, const Expr& expr) const {
    gives(expr, DType::I64);
    return takes(expr, 0) | affine(index.value);
  }
  FactorSet expr(const UnaryExpr& unary, const Expr& expr) const {
    const FactorSet result = takes(expr, 1);
    const DType from = input(expr, 0).dtype;
    if (!accepts(unary.kind, from)) fail(std::string(name(unary.kind)) + " does not take " + std::string(name(from)));
    gives(expr, unary.kind == UnaryKind::IsFinite || unary.kind == UnaryKind::IsNan ? DType::Bool : from);
    return result;
  }
  FactorSet expr(const BinaryExpr& binary, const Expr& expr) const {
    const FactorSet result = takes(expr, 2);
    const DType from = input(expr, 0).dtype;
    want(expr, 1, from);
    if (!accepts(binary.kind, from)) fail(std::string(name(binary.kind)) + " does not take " + std::string(name(from)));
    gives(expr, from);
    return result;
  }
  FactorSet expr(const CompareExpr&, const Expr& expr) const {
    const FactorSet result = takes(expr, 2);
    want(expr, 1, input(expr, 0).dtype);
    gives(expr, DType::Bool);
    return result;
  }
  FactorSet expr(const SelectExpr&, const Expr& expr) const {
    const FactorSet result = takes(expr, 3);
    want(expr, 0, DType::Bool);
    want(expr, 1, expr.dtype);
    want(expr, 2, expr.dtype);
    return result;
  }
  FactorSet expr(const ConvertExpr&, const Expr& expr) const { return takes(expr, 1); }
  FactorSet expr(const DrawExpr&, const Expr& expr) const {
    if (!is_floating(expr.dtype)) fail("draws " + std::string(name(expr.dtype)) + ", wanted a floating dtype");
    return two_integers(expr);
  }
  FactorSet expr(const FoldExpr&, const Expr& expr) const {
    gives(expr, DType::I64);
    return two_integers(expr);
  }
  FactorSet two_integers(const Expr& expr) const {
    const FactorSet result = takes(expr, 2);
    want(expr, 0, DType::I64);
    want(expr, 1, DType::I64);
    return result;
  }
  FactorSet expr(const ReduceExpr& reduce, const Expr& expr) const {
    const FactorSet of = takes(expr, 1);
    want(expr, 0, expr.dtype);
    const bool logical = reduce.kind == ReduceKind::Any || reduce.kind == ReduceKind::All;
    if (logical != (expr.dtype == DType::Bool)) fail(std::string(name(reduce.kind)) + " does not take " + std::string(name(expr.dtype)));
    if (reduce.factors.empty()) fail("reduces no factor");
    for (size_t i = 1; i < reduce.factors.size(); ++i)
      if (reduce.factors[i] <= reduce.factors[i - 1]) fail("factors stand once, in ascending order");
    return without(of, reduce.factors);
  }
  FactorSet expr(const ArgReduceExpr& reduce, const Expr& expr) const {
    const FactorSet of = takes(expr, 1);
    gives(expr, DType::I64);
    return without(of, {reduce.factor});
  }

  FactorSet without(FactorSet varies, const std::vector<int>& factors) const {
    FactorSet reduced = 0;
    for (const int reduced_factor : factors) {
      factor(reduced_factor);
      reduced |= only(reduced_factor);
      const int block = form_.factors[static_cast<size_t>(reduced_factor)].block_of;
      if (block >= 0) varies |= only(block);
    }
    return varies & ~reduced;
  }

  void store(const Store& store) const {
    const FormOperand& to = operand(store.operand);
    if (!to.is_written) fail("operand " + std::to_string(store.operand) + " is not written by declaration");
    if (to.is_watched && to.dtype != DType::F32 && to.dtype != DType::F64) fail("operand " + std::to_string(store.operand) + " is watched, wanted f32 or f64");
    const FactorSet at = affine(store.at);
    if (store.value < 0 || static_cast<size_t>(store.value) >= form_.exprs.size()) fail("value %" + std::to_string(store.value) + " does not exist");
    gives(form_.exprs[static_cast<size_t>(store.value)], to.dtype);
    FactorSet needed = varies_[static_cast<size_t>(store.value)];
    for (const AffineTerm& term : store.at.terms)
      if (const int block = form_.factors[static_cast<size_t>(term.factor)].block_of; block >= 0) needed |= only(block);
    if (const FactorSet missing = needed & ~at; missing != 0)
      fail("%" + std::to_string(store.value) + " varies over i" + std::to_string(__builtin_ctzll(missing)) + ", which is not in " + text(store.at));
  }

  /// What is read and written is read where it is written and nowhere else.
  void in_place() {
    std::vector<const Affine*> at(form_.operands.size());
    for (const Store& store : form_.stores) {
      const auto index = static_cast<size_t>(store.operand);
      if (!form_.operands[index].is_read) continue;
      if (at[index] != nullptr) fail("operand " + std::to_string(index) + " is changed in place by more than one store");
      at[index] = &store.at;
    }
    for (size_t i = 0; i < form_.exprs.size(); ++i) {
      const auto* load = std::get_if<LoadExpr>(&form_.exprs[i].op);
      if (load == nullptr) continue;
      const Affine* stored = at[static_cast<size_t>(load->operand)];
      if (stored == nullptr) continue;
      place_ = "%" + std::to_string(i);
      if (load->at != *stored || !load->indices.empty())
        fail("operand " + std::to_string(load->operand) + " is changed in place at " + text(*stored) + " and read at " + text(load->at));
    }
    place_ = "";
  }

  const Form& form_;
  std::vector<FactorSet> varies_;  ///< of each expression
  std::string place_;
};

}  // namespace

void check(const Form& form) { FormChecker(form).run(); }

}  // namespace stepgraph
