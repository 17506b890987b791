// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/form_builder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "stepgraph/base/hash.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

Affine affine(int factor) { return {0, {{factor, 1}}}; }
Affine affine_constant(const Dim& value) { return {value, {}}; }

Affine operator+(const Affine& a, const Affine& b) {
  Affine sum{a.constant + b.constant, {}};
  auto i = a.terms.begin(), j = b.terms.begin();
  while (i != a.terms.end() || j != b.terms.end()) {
    if (j == b.terms.end() || (i != a.terms.end() && i->factor < j->factor)) {
      sum.terms.push_back(*i++);
    } else if (i == a.terms.end() || j->factor < i->factor) {
      sum.terms.push_back(*j++);
    } else {
      const Dim coefficient = i->coefficient + j->coefficient;
      if (coefficient != Dim(0)) sum.terms.push_back({i->factor, coefficient});
      ++i, ++j;
    }
  }
  return sum;
}

Affine operator*(const Affine& a, const Dim& scale) {
  if (scale == Dim(0)) return {};
  if (scale == Dim(1)) return a;
  Affine product{a.constant * scale, {}};
  for (const AffineTerm& term : a.terms) product.terms.push_back({term.factor, term.coefficient * scale});
  return product;
}

Affine substitute(const Affine& a, std::span<const Affine> replacement) {
  Affine result = affine_constant(a.constant);
  for (const AffineTerm& term : a.terms) result = result + replacement[static_cast<size_t>(term.factor)] * term.coefficient;
  return result;
}

std::optional<Dim> constant_of(const Affine& a) {
  if (!a.terms.empty()) return std::nullopt;
  return a.constant;
}

namespace {

// ---- hashing, for the table of known expressions

uint64_t hash_of(uint64_t hash, const Affine& a) {
  hash = mix_hash(hash, a.constant.hash());
  for (const AffineTerm& term : a.terms) hash = mix_hash(mix_hash(hash, static_cast<uint64_t>(term.factor)), term.coefficient.hash());
  return hash;
}
uint64_t hash_of(const Expr& expr) {
  uint64_t hash = mix_hash(expr.op.index(), static_cast<uint64_t>(expr.dtype));
  for (const int input : expr.inputs) hash = mix_hash(hash, static_cast<uint64_t>(input));
  if (const auto* load = std::get_if<LoadExpr>(&expr.op)) hash = hash_of(mix_hash(hash, static_cast<uint64_t>(load->operand)), load->at);
  if (const auto* constant = std::get_if<ConstantExpr>(&expr.op)) hash = mix_hash(hash, constant->bits);
  if (const auto* index = std::get_if<IndexExpr>(&expr.op)) hash = hash_of(hash, index->value);
  if (const auto* unary = std::get_if<UnaryExpr>(&expr.op)) hash = mix_hash(hash, static_cast<uint64_t>(unary->kind));
  if (const auto* binary = std::get_if<BinaryExpr>(&expr.op)) hash = mix_hash(hash, static_cast<uint64_t>(binary->kind));
  return hash;
}

uint64_t bits_of(const Literal& scalar) {
  uint64_t bits = 0;
  std::memcpy(&bits, scalar.data(), scalar.byte_count());
  return bits;
}

// ---- what finish does

template <class Function>
void for_each_affine(Expr& expr, const Function& function) {
  if (auto* load = std::get_if<LoadExpr>(&expr.op)) {
    function(load->at);
    for (Guard& guard : load->guards) function(guard.index);
  }
  if (auto* index = std::get_if<IndexExpr>(&expr.op)) function(index->value);
}
template <class Function>
void for_each_affine(Form& form, const Function& function) {
  for (Expr& expr : form.exprs) for_each_affine(expr, function);
  for (Store& store : form.stores) function(store.at);
}
template <class Function>
void for_each_reduced(Form& form, const Function& function) {
  for (Expr& expr : form.exprs) {
    if (auto* reduce = std::get_if<ReduceExpr>(&expr.op))
      for (int& factor : reduce->factors) function(factor);
    if (auto* reduce = std::get_if<ArgReduceExpr>(&expr.op)) function(reduce->factor);
  }
}

void keep_used(Form& form) {
  std::vector<char> used(form.exprs.size(), 0);
  for (const Store& store : form.stores) used[static_cast<size_t>(store.value)] = 1;
  for (size_t i = form.exprs.size(); i-- > 0;) {
    if (!used[i]) continue;
    for (const int input : form.exprs[i].inputs) used[static_cast<size_t>(input)] = 1;
  }
  std::vector<int> number(form.exprs.size(), -1);
  std::vector<Expr> kept;
  for (size_t i = 0; i < form.exprs.size(); ++i) {
    if (!used[i]) continue;
    number[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(form.exprs[i]));
    for (int& input : kept.back().inputs) input = number[static_cast<size_t>(input)];
  }
  form.exprs = std::move(kept);
  for (Store& store : form.stores) store.value = number[static_cast<size_t>(store.value)];
}

/// Operands that nothing loads or stores go.
void keep_used_operands(Form& form, std::vector<int>& operand_of) {
  std::vector<int> number(form.operands.size(), -1);
  for (FormOperand& operand : form.operands) operand.is_read = operand.is_written = false;
  for (const Expr& expr : form.exprs)
    if (const auto* load = std::get_if<LoadExpr>(&expr.op)) form.operands[static_cast<size_t>(load->operand)].is_read = true;
  for (const Store& store : form.stores) form.operands[static_cast<size_t>(store.operand)].is_written = true;
  std::vector<FormOperand> kept;
  for (size_t i = 0; i < form.operands.size(); ++i) {
    if (!form.operands[i].is_read && !form.operands[i].is_written) continue;
    number[i] = static_cast<int>(kept.size());
    kept.push_back(form.operands[i]);
    operand_of.push_back(static_cast<int>(i));
  }
  form.operands = std::move(kept);
  for (Expr& expr : form.exprs)
    if (auto* load = std::get_if<LoadExpr>(&expr.op)) load->operand = number[static_cast<size_t>(load->operand)];
  for (Store& store : form.stores) store.operand = number[static_cast<size_t>(store.operand)];
}

/// Factors by `order`; those of one element are gone, as index 0.
void order_factors(Form& form, std::span<const int> order) {
  std::vector<int> number(form.factors.size(), -1);
  std::vector<Factor> ordered;
  for (const int factor : order) {
    if (form.factors[static_cast<size_t>(factor)].size == Dim(1)) continue;
    number[static_cast<size_t>(factor)] = static_cast<int>(ordered.size());
    ordered.push_back(form.factors[static_cast<size_t>(factor)]);
  }
  form.factors = std::move(ordered);
  for_each_affine(form, [&](Affine& a) {
    std::vector<AffineTerm> terms;
    for (AffineTerm& term : a.terms) {
      term.factor = number[static_cast<size_t>(term.factor)];
      if (term.factor >= 0) terms.push_back(term);
    }
    std::sort(terms.begin(), terms.end(), [](const AffineTerm& x, const AffineTerm& y) { return x.factor < y.factor; });
    a.terms = std::move(terms);
  });
  for (Expr& expr : form.exprs) {
    if (auto* reduce = std::get_if<ReduceExpr>(&expr.op)) {
      std::vector<int> factors;
      for (const int factor : reduce->factors)
        if (number[static_cast<size_t>(factor)] >= 0) factors.push_back(number[static_cast<size_t>(factor)]);
      std::sort(factors.begin(), factors.end());
      reduce->factors = std::move(factors);
    }
    if (auto* reduce = std::get_if<ArgReduceExpr>(&expr.op)) reduce->factor = number[static_cast<size_t>(reduce->factor)];
  }
}

void remove_factor(Form& form, int factor) {
  form.factors.erase(form.factors.begin() + factor);
  for_each_affine(form, [&](Affine& a) {
    std::erase_if(a.terms, [&](const AffineTerm& term) { return term.factor == factor; });
    for (AffineTerm& term : a.terms) term.factor -= term.factor > factor;
  });
  for_each_reduced(form, [&](int& reduced) { reduced -= reduced > factor; });
}

/// Kept factors that are walked as one become one. Reduced ones stay as they are: the order of a sum must not depend on what was fused with it.
void join_factors(Form& form) {
  std::vector<char> reduced(form.factors.size(), 0);
  for_each_reduced(form, [&](int& factor) { reduced[static_cast<size_t>(factor)] = 1; });
  for (int inner = static_cast<int>(form.factors.size()) - 1; inner > 0; --inner) {
    const int outer = inner - 1;
    if (reduced[static_cast<size_t>(inner)] || reduced[static_cast<size_t>(outer)]) continue;
    const Dim size = form.factors[static_cast<size_t>(inner)].size;
    bool joins = true;
    for_each_affine(form, [&](Affine& a) { joins = joins && coefficient_of(a, outer) == coefficient_of(a, inner) * size; });
    if (!joins) continue;
    form.factors[static_cast<size_t>(inner)].size = form.factors[static_cast<size_t>(outer)].size * size;
    remove_factor(form, outer);
    reduced.erase(reduced.begin() + outer);
  }
}

/// Sizes that are no constants become symbols; a constant multiple stays outside, so that a kernel knows what divides.
class SizeSymbols {
 public:
  explicit SizeSymbols(std::vector<Dim>& sizes) : sizes_(sizes) {}
  void replace(Dim& dim) {
    if (dim.is_constant()) return;
    int64_t content = 1;
    for (int64_t candidate : {int64_t{4096}, int64_t{2048}, int64_t{1024}, int64_t{512}, int64_t{256}, int64_t{128}, int64_t{64}, int64_t{32}, int64_t{16}, int64_t{8}, int64_t{4}, int64_t{2}}) {
      const auto quotient = exact_quotient(dim, Dim(candidate));
      if (!quotient) continue;
      content = candidate;
      dim = *quotient;
      break;
    }
    const auto found = std::find(sizes_.begin(), sizes_.end(), dim);
    const auto index = found - sizes_.begin();
    if (found == sizes_.end()) sizes_.push_back(dim);
    dim = Dim::symbol(form_symbol(static_cast<int>(index))) * Dim(content);
  }
  void replace(Affine& a) {
    replace(a.constant);
    for (AffineTerm& term : a.terms) replace(term.coefficient);
  }

 private:
  std::vector<Dim>& sizes_;
};

void name_sizes(Form& form, std::vector<Dim>& sizes) {
  SizeSymbols symbols(sizes);
  for (Factor& factor : form.factors) {
    symbols.replace(factor.size);
    symbols.replace(factor.total);
  }
  for (Expr& expr : form.exprs) {
    for_each_affine(expr, [&](Affine& a) { symbols.replace(a); });
    if (auto* load = std::get_if<LoadExpr>(&expr.op)) {
      for (Guard& guard : load->guards) symbols.replace(guard.size);
      for (IndexTerm& index : load->indices) symbols.replace(index.stride), symbols.replace(index.size);
    }
  }
  for (Store& store : form.stores) symbols.replace(store.at);
  form.size_count = static_cast<int>(sizes.size());
}

}  // namespace

int FormBuilder::add_factor(const Dim& size) {
  factors.push_back({size, -1, 0});
  return static_cast<int>(factors.size()) - 1;
}

int FormBuilder::add(ExprOp op, std::vector<int> inputs, DType dtype) {
  Expr expr{std::move(op), std::move(inputs), dtype};
  const uint64_t hash = hash_of(expr);
  const auto [begin, end] = known_.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (exprs_[static_cast<size_t>(at->second)] == expr) return at->second;
  exprs_.push_back(std::move(expr));
  const int id = static_cast<int>(exprs_.size()) - 1;
  known_.emplace(hash, id);
  return id;
}

int FormBuilder::constant(DType dtype, double value) { return add(ConstantExpr{bits_of(Literal::scalar(dtype, value))}, {}, dtype); }
int FormBuilder::integer(DType dtype, int64_t value) { return add(ConstantExpr{bits_of(Literal::integer(dtype, value))}, {}, dtype); }
int FormBuilder::index(const Affine& value) { return add(IndexExpr{value}, {}, DType::I64); }
int FormBuilder::unary(UnaryKind kind, int x) {
  const bool is_predicate = kind == UnaryKind::IsFinite || kind == UnaryKind::IsNan;
  return add(UnaryExpr{kind}, {x}, is_predicate ? DType::Bool : dtype(x));
}
int FormBuilder::binary(BinaryKind kind, int a, int b) { return add(BinaryExpr{kind}, {a, b}, dtype(a)); }
int FormBuilder::compare(CompareKind kind, int a, int b) { return add(CompareExpr{kind}, {a, b}, DType::Bool); }
int FormBuilder::select(int condition, int on_true, int on_false) {
  return on_true == on_false ? on_true : add(SelectExpr{}, {condition, on_true, on_false}, dtype(on_true));
}
int FormBuilder::convert(DType to, int x) { return to == dtype(x) ? x : add(ConvertExpr{}, {x}, to); }
int FormBuilder::reduce(ReduceKind kind, int x, std::vector<int> over) {
  std::sort(over.begin(), over.end());
  return over.empty() ? x : add(ReduceExpr{kind, std::move(over)}, {x}, dtype(x));
}

Form FormBuilder::finish(std::span<const int> order, std::vector<Dim>& sizes, std::vector<int>& operand_of) {
  Form form;
  form.factors = factors;
  form.operands = operands;
  form.exprs = exprs_;
  form.stores = stores;
  keep_used(form);
  keep_used_operands(form, operand_of);
  order_factors(form, order);
  join_factors(form);
  name_sizes(form, sizes);
  return form;
}

}  // namespace stepgraph
