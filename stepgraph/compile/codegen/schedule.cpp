// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/codegen/schedule.h"

#include <algorithm>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/codegen/emit_form.h"

namespace stepgraph {
namespace {

bool contains(FactorSet set, int factor) { return (set & factor_bit(factor)) != 0; }

/// The factors that an expression reduces.
FactorSet reduced_by(const Expr& expr) {
  FactorSet set = 0;
  if (const auto* reduce = std::get_if<ReduceExpr>(&expr.op)) {
    for (const int factor : reduce->factors) set |= factor_bit(factor);
  } else if (const auto* arg = std::get_if<ArgReduceExpr>(&expr.op)) {
    set = factor_bit(arg->factor);
  }
  return set;
}

// ---- checks

void check_affine(const Form& form, const Affine& affine) {
  int last = -1;
  for (const AffineTerm& term : affine.terms) {
    SG_CHECK(term.factor > last && term.factor < static_cast<int>(form.factors.size()), "terms of an address are by factor ascending");
    last = term.factor;
  }
}

void check_expr(const Form& form, size_t index) {
  const Expr& expr = form.exprs[index];
  for (const int input : expr.inputs) SG_CHECK(input >= 0 && static_cast<size_t>(input) < index, "an input is an earlier expression");
  const auto dtype_of = [&](size_t k) { return form.exprs[static_cast<size_t>(expr.inputs[k])].dtype; };
  const auto wants = [&](size_t count) { SG_CHECK(expr.inputs.size() == count, "inputs of an expression"); };
  if (const auto* load = std::get_if<LoadExpr>(&expr.op)) {
    SG_CHECK(load->operand >= 0 && static_cast<size_t>(load->operand) < form.operands.size(), "a load names an operand");
    const FormOperand& operand = form.operands[static_cast<size_t>(load->operand)];
    SG_CHECK(operand.is_read && operand.dtype == expr.dtype, "a load is of the operand's dtype");
    check_affine(form, load->at);
    for (const Guard& guard : load->guards) check_affine(form, guard.index);
    wants(load->indices.size() + (load->guards.empty() ? 0 : 1));
    for (size_t k = 0; k < load->indices.size(); ++k) SG_CHECK(dtype_of(k) == DType::I64, "an index is i64");
    if (!load->guards.empty()) SG_CHECK(dtype_of(load->indices.size()) == expr.dtype, "what stands outside is of the dtype");
  } else if (const auto* place = std::get_if<IndexExpr>(&expr.op)) {
    check_affine(form, place->value);
    SG_CHECK(expr.dtype == DType::I64 && expr.inputs.empty(), "an index is i64");
  } else if (std::holds_alternative<ConstantExpr>(expr.op)) {
    wants(0);
  } else if (const auto* unary = std::get_if<UnaryExpr>(&expr.op)) {
    wants(1);
    const bool is_question = unary->kind == UnaryKind::IsFinite || unary->kind == UnaryKind::IsNan;
    SG_CHECK(expr.dtype == (is_question ? DType::Bool : dtype_of(0)) && can_emit(unary->kind, dtype_of(0)), "dtypes of a unary expression");
  } else if (const auto* binary = std::get_if<BinaryExpr>(&expr.op)) {
    wants(2);
    SG_CHECK(dtype_of(0) == expr.dtype && dtype_of(1) == expr.dtype && can_emit(binary->kind, expr.dtype), "dtypes of a binary expression");
  } else if (std::holds_alternative<CompareExpr>(expr.op)) {
    wants(2);
    SG_CHECK(dtype_of(0) == dtype_of(1) && expr.dtype == DType::Bool, "dtypes of a comparison");
  } else if (std::holds_alternative<SelectExpr>(expr.op)) {
    wants(3);
    SG_CHECK(dtype_of(0) == DType::Bool && dtype_of(1) == expr.dtype && dtype_of(2) == expr.dtype, "dtypes of a select");
  } else if (std::holds_alternative<DrawExpr>(expr.op) || std::holds_alternative<FoldExpr>(expr.op)) {
    wants(2);
    SG_CHECK(dtype_of(0) == DType::I64 && dtype_of(1) == DType::I64, "keys and numbers are i64");
    SG_CHECK(std::holds_alternative<FoldExpr>(expr.op) ? expr.dtype == DType::I64 : is_floating(expr.dtype), "dtype of what a key gives");
  } else {
    wants(1);
    if (std::holds_alternative<ReduceExpr>(expr.op)) SG_CHECK(dtype_of(0) == expr.dtype, "dtypes of a reduction");
    if (std::holds_alternative<ArgReduceExpr>(expr.op)) SG_CHECK(expr.dtype == DType::I64, "the number of an element is i64");
  }
}

void check_form(const Form& form) {
  SG_CHECK(form.factors.size() <= 64, "at most 64 factors");
  for (size_t f = 0; f < form.factors.size(); ++f) {
    SG_CHECK(form.factors[f].block_of < static_cast<int>(f), "the factor that counts blocks stands before them");
  }
  for (size_t e = 0; e < form.exprs.size(); ++e) check_expr(form, e);
  for (const Store& store : form.stores) {
    SG_CHECK(store.operand >= 0 && static_cast<size_t>(store.operand) < form.operands.size(), "a store names an operand");
    SG_CHECK(store.value >= 0 && static_cast<size_t>(store.value) < form.exprs.size(), "a store names an expression");
    const FormOperand& operand = form.operands[static_cast<size_t>(store.operand)];
    SG_CHECK(operand.is_written && operand.dtype == form.exprs[static_cast<size_t>(store.value)].dtype, "a store is of the operand's dtype");
    check_affine(form, store.at);
  }
}

// ---- what an expression varies over, and when it is known

FactorSet varies_over(const Form& form, const Expr& expr, const std::vector<FactorSet>& varies) {
  FactorSet set = 0;
  for (const int input : expr.inputs) set |= varies[static_cast<size_t>(input)];
  if (const auto* load = std::get_if<LoadExpr>(&expr.op)) {
    set |= factors_of(load->at);
    for (const Guard& guard : load->guards) set |= factors_of(guard.index);
  } else if (const auto* place = std::get_if<IndexExpr>(&expr.op)) {
    set |= factors_of(place->value);
  }
  const FactorSet reduced = reduced_by(expr);
  if (reduced == 0) return set;
  set &= ~reduced;
  for (size_t f = 0; f < form.factors.size(); ++f) {
    if (contains(reduced, static_cast<int>(f)) && form.factors[f].block_of >= 0 && !contains(reduced, form.factors[f].block_of)) {
      set |= factor_bit(form.factors[f].block_of);
    }
  }
  return set;
}

void find_phases(const Form& form, FormSchedule& schedule) {
  for (const Expr& expr : form.exprs) {
    int phase = 0;
    for (const int input : expr.inputs) {
      const Expr& from = form.exprs[static_cast<size_t>(input)];
      phase = std::max(phase, schedule.phase_of[static_cast<size_t>(input)] + (reduced_by(from) != 0 ? 1 : 0));
    }
    schedule.phase_of.push_back(phase);
    schedule.varies.push_back(varies_over(form, expr, schedule.varies));
    if (reduced_by(expr) != 0) schedule.phases = std::max(schedule.phases, phase + 1);
  }
  for (const Store& store : form.stores) {
    SG_CHECK((schedule.varies[static_cast<size_t>(store.value)] & ~factors_of(store.at)) == 0, "a store's address has all factors that its value varies over");
  }
  ++schedule.phases;
}

// ---- the choice of loops

/// Most loads and stores that go through consecutive elements; the inner one of equals.
int best_vector_factor(const Form& form) {
  int best = -1, best_count = -1;
  for (int f = static_cast<int>(form.factors.size()) - 1; f >= 0; --f) {
    int count = 0;
    const auto look_at = [&](const Affine& at) { count += coefficient_of(at, f) == Dim(1) ? 1 : 0; };
    for (const Expr& expr : form.exprs) {
      if (const auto* load = std::get_if<LoadExpr>(&expr.op)) look_at(load->at);
    }
    for (const Store& store : form.stores) look_at(store.at);
    if (count > best_count) best = f, best_count = count;
  }
  return best;
}

bool is_dear(const Expr& expr) {
  if (std::holds_alternative<DrawExpr>(expr.op)) return true;
  if (const auto* load = std::get_if<LoadExpr>(&expr.op)) return !load->indices.empty();
  if (const auto* binary = std::get_if<BinaryExpr>(&expr.op)) {
    switch (binary->kind) {
      case BinaryKind::Divide:
      case BinaryKind::FloorDivide:
      case BinaryKind::Remainder:
      case BinaryKind::Power:
      case BinaryKind::Atan2: return true;
      default: return false;
    }
  }
  const auto* unary = std::get_if<UnaryExpr>(&expr.op);
  if (unary == nullptr) return false;
  switch (unary->kind) {
    case UnaryKind::Negate:
    case UnaryKind::Abs:
    case UnaryKind::Sign:
    case UnaryKind::Floor:
    case UnaryKind::Ceil:
    case UnaryKind::Round:
    case UnaryKind::Relu:
    case UnaryKind::Not:
    case UnaryKind::IsFinite:
    case UnaryKind::IsNan: return false;
    default: return true;
  }
}

/// The expressions that a phase starts from: what its reductions take, or what is stored.
std::vector<int> roots_of(const Form& form, const FormSchedule& schedule, int phase) {
  std::vector<int> roots;
  if (phase + 1 == schedule.phases) {
    for (const Store& store : form.stores) roots.push_back(store.value);
    return roots;
  }
  for (size_t e = 0; e < form.exprs.size(); ++e) {
    if (reduced_by(form.exprs[e]) != 0 && schedule.phase_of[e] == phase) roots.push_back(form.exprs[e].inputs[0]);
  }
  return roots;
}

/// Marks what the roots need and no reduction gives, not beyond where `stops` says so.
template <class Stops>
std::vector<bool> needed_by(const Form& form, const std::vector<int>& roots, Stops stops) {
  std::vector<bool> needed(form.exprs.size(), false);
  for (const int root : roots) needed[static_cast<size_t>(root)] = true;
  for (size_t e = form.exprs.size(); e-- > 0;) {
    if (!needed[e] || reduced_by(form.exprs[e]) != 0 || stops(e)) continue;
    for (const int input : form.exprs[e].inputs) needed[static_cast<size_t>(input)] = true;
  }
  return needed;
}

void keep_rows(const Form& form, FactorSet reduced, FormSchedule& schedule) {
  const size_t count = form.exprs.size();
  std::vector<int> first(count, -1);
  std::vector<bool> kept(count, false);
  for (int phase = 0; phase < schedule.phases; ++phase) {
    const std::vector<int> roots = roots_of(form, schedule, phase);
    const auto is_earlier = [&](size_t e) { return is_dear(form.exprs[e]) && (schedule.varies[e] & reduced) == reduced && first[e] >= 0 && first[e] < phase; };
    const std::vector<bool> needed = needed_by(form, roots, is_earlier);
    for (size_t e = 0; e < count; ++e) {
      if (!needed[e]) continue;
      if (is_earlier(e))
        kept[e] = true;
      else if (first[e] < 0)
        first[e] = phase;
    }
  }
  Dim elements = 1;
  for (const int factor : schedule.reduced) elements = elements * form.factors[static_cast<size_t>(factor)].size;
  elements = elements + Dim(16);  // the last vector is stored whole
  for (size_t e = 0; e < count; ++e) {
    if (!kept[e]) continue;
    const DType dtype = form.exprs[e].dtype;
    const int64_t bytes = is_half(dtype) ? 4 : static_cast<int64_t>(size_bytes(dtype));
    schedule.kept.push_back({static_cast<int>(e), first[e], schedule.scratch_bytes});
    schedule.scratch_bytes = schedule.scratch_bytes + Dim(64) * ceildiv(elements * Dim(bytes), 64);
  }
}

}  // namespace

FactorSet factors_of(const Affine& affine) {
  FactorSet set = 0;
  for (const AffineTerm& term : affine.terms) set |= factor_bit(term.factor);
  return set;
}

FormSchedule schedule_form(const Form& form) {
  check_form(form);
  FormSchedule schedule;
  FactorSet reduced = 0;
  for (const Expr& expr : form.exprs) {
    const FactorSet set = reduced_by(expr);
    SG_CHECK(set == 0 || reduced == 0 || set == reduced, "all reductions of a form are over the same factors");
    reduced |= set;
  }
  find_phases(form, schedule);
  const int factors = static_cast<int>(form.factors.size());
  schedule.vector = reduced != 0 ? factors - 1 : best_vector_factor(form);
  schedule.vector_is_reduced = schedule.vector >= 0 && contains(reduced, schedule.vector);
  schedule.parallel_count = 1;
  for (int f = 0; f < factors; ++f) {
    if (contains(reduced, f)) {
      schedule.reduced.push_back(f);
    } else if (f != schedule.vector) {
      schedule.parallel.push_back(f);
      schedule.parallel_count = schedule.parallel_count * form.factors[static_cast<size_t>(f)].size;
    }
  }
  schedule.pieces = 1;
  if (schedule.vector >= 0 && !schedule.vector_is_reduced) {
    schedule.piece = reduced != 0 ? column_piece : pointwise_piece;
    schedule.pieces = ceildiv(form.factors[static_cast<size_t>(schedule.vector)].size, schedule.piece);
    schedule.parallel_count = schedule.parallel_count * schedule.pieces;
  }
  if (schedule.vector_is_reduced) keep_rows(form, reduced, schedule);
  return schedule;
}

}  // namespace stepgraph
