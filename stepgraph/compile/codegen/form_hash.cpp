// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/codegen/form_hash.h"

namespace stepgraph {
namespace {

template <class T>
int64_t number_of(T value) {
  return static_cast<int64_t>(value);
}

void add(Hasher& hasher, const Affine& affine) {
  hasher.text(affine.constant.text()).number(number_of(affine.terms.size()));
  for (const AffineTerm& term : affine.terms) hasher.number(term.factor).text(term.coefficient.text());
}

struct OpHasher {
  Hasher& hasher;
  void operator()(const LoadExpr& op) const {
    hasher.number(op.operand);
    add(hasher, op.at);
    hasher.number(number_of(op.guards.size()));
    for (const Guard& guard : op.guards) {
      add(hasher, guard.index);
      hasher.text(guard.size.text());
    }
    hasher.number(number_of(op.indices.size()));
    for (const IndexTerm& index : op.indices) hasher.text(index.stride.text()).text(index.size.text());
  }
  void operator()(const ConstantExpr& op) const { hasher.number(number_of(op.bits)); }
  void operator()(const IndexExpr& op) const { add(hasher, op.value); }
  void operator()(const UnaryExpr& op) const { hasher.text(name(op.kind)); }
  void operator()(const BinaryExpr& op) const { hasher.text(name(op.kind)); }
  void operator()(const CompareExpr& op) const { hasher.text(name(op.kind)); }
  void operator()(const SelectExpr&) const {}
  void operator()(const ConvertExpr&) const {}
  void operator()(const DrawExpr& op) const { hasher.number(number_of(op.kind)); }
  void operator()(const FoldExpr&) const {}
  void operator()(const ReduceExpr& op) const {
    hasher.text(name(op.kind)).number(number_of(op.factors.size()));
    for (const int factor : op.factors) hasher.number(factor);
  }
  void operator()(const ArgReduceExpr& op) const { hasher.number(op.is_largest ? 1 : 0).number(op.factor); }
};

}  // namespace

Hash128 form_hash(const Form& form) {
  Hasher hasher;
  hasher.number(number_of(form.factors.size()));
  for (const Factor& factor : form.factors) hasher.text(factor.size.text()).number(factor.block_of).text(factor.total.text());
  hasher.number(form.size_count).number(number_of(form.operands.size()));
  for (const FormOperand& operand : form.operands) hasher.text(name(operand.dtype)).number((operand.is_read ? 1 : 0) + (operand.is_written ? 2 : 0));
  hasher.number(number_of(form.exprs.size()));
  for (const Expr& expr : form.exprs) {
    hasher.number(number_of(expr.op.index())).text(name(expr.dtype)).number(number_of(expr.inputs.size()));
    for (const int input : expr.inputs) hasher.number(input);
    std::visit(OpHasher{hasher}, expr.op);
  }
  hasher.number(number_of(form.stores.size()));
  for (const Store& store : form.stores) {
    hasher.number(store.operand).number(store.value);
    add(hasher, store.at);
  }
  return hasher.finish();
}

}  // namespace stepgraph
