// SPDX-License-Identifier: Apache-2.0
#include "tests/support/form_interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ops/elementwise_table.h"
#include "stepgraph/tensor/philox.h"

namespace stepgraph::testing {
namespace {

class FormInterpreter {
 public:
  FormInterpreter(const Form& form, std::vector<Literal>& operands, const std::vector<int64_t>& sizes) : form_(form), operands_(operands) {
    for (size_t k = 0; k < sizes.size(); ++k) symbols_[form_symbol(static_cast<int>(k))] = sizes[k];
    for (const Factor& factor : form.factors) extents_.push_back(size(factor.size));
    points_ = 1;
    for (const int64_t extent : extents_) points_ *= extent;
    strides_.resize(extents_.size());
    int64_t stride = 1;
    for (size_t f = extents_.size(); f-- > 0;) strides_[f] = stride, stride *= extents_[f];
  }

  std::optional<BadFormIndex> run() {
    for (const Expr& expr : form_.exprs) values_.push_back(points_ == 0 ? Literal(expr.dtype, {0}) : evaluate_expr(expr));
    for (const Store& store : form_.stores) {
      Literal& target = operands_[static_cast<size_t>(store.operand)];
      const Literal& value = values_[static_cast<size_t>(store.value)];
      for (int64_t p = 0; p < points_; ++p) {
        if (!is_inside(p)) continue;
        // Once for each value of the factors in the address.
        bool first = true;
        for (size_t f = 0; f < extents_.size(); ++f) first = first && (at(p, f) == 0 || has_factor(store.at, f));
        if (first) copy(value, p, target, place(store.at, p));
      }
    }
    return bad_;
  }

 private:
  int64_t size(const Dim& dim) const { return stepgraph::evaluate(dim, symbols_); }
  int64_t at(int64_t point, size_t factor) const { return point / strides_[factor] % extents_[factor]; }
  int64_t place(const Affine& affine, int64_t point) const {
    int64_t sum = size(affine.constant);
    for (const AffineTerm& term : affine.terms) sum += size(term.coefficient) * at(point, static_cast<size_t>(term.factor));
    return sum;
  }
  static bool has_factor(const Affine& affine, size_t factor) {
    return std::any_of(affine.terms.begin(), affine.terms.end(), [&](const AffineTerm& term) { return term.factor == static_cast<int>(factor); });
  }
  /// Not beyond the end of the last block.
  bool is_inside(int64_t point) const {
    for (size_t f = 0; f < extents_.size(); ++f) {
      const Factor& factor = form_.factors[f];
      if (factor.block_of >= 0 && at(point, f) >= size(factor.total) - at(point, static_cast<size_t>(factor.block_of)) * extents_[f]) return false;
    }
    return true;
  }
  static void copy(const Literal& from, int64_t index, Literal& to, int64_t target) {
    const size_t width = size_bytes(from.dtype());
    SG_CHECK(target >= 0 && target < to.count(), "a store within the operand");
    std::copy_n(from.data() + static_cast<size_t>(index) * width, width, to.mutable_data() + static_cast<size_t>(target) * width);
  }
  const Literal& input(const Expr& expr, size_t k) const { return values_[static_cast<size_t>(expr.inputs[k])]; }

  Literal load(const Expr& expr, const LoadExpr& op) {
    const Literal& from = operands_[static_cast<size_t>(op.operand)];
    Literal result(expr.dtype, {points_});
    for (int64_t p = 0; p < points_; ++p) {
      if (!is_inside(p)) continue;
      bool guarded = true;
      for (const Guard& guard : op.guards) guarded = guarded && place(guard.index, p) >= 0 && place(guard.index, p) < size(guard.size);
      if (!guarded) {
        copy(input(expr, op.indices.size()), p, result, p);
        continue;
      }
      int64_t address = place(op.at, p);
      for (size_t k = 0; k < op.indices.size(); ++k) {
        const int64_t index = input(expr, k).integer_at(p), limit = size(op.indices[k].size);
        if (index < 0 || index >= limit) bad_ = BadFormIndex{index, limit};
        address += size(op.indices[k].stride) * std::clamp<int64_t>(index, 0, limit - 1);
      }
      SG_CHECK(address >= 0 && address < from.count(), "a load within the operand");
      copy(from, address, result, p);
    }
    return result;
  }

  static double combine(ReduceKind kind, double a, double b) {
    switch (kind) {
      case ReduceKind::Sum: return a + b;
      case ReduceKind::Product: return a * b;
      case ReduceKind::Max: return a > b || a != a ? a : b;
      case ReduceKind::Min: return a < b || a != a ? a : b;
      case ReduceKind::Any:
      case ReduceKind::All: break;
    }
    return 0;
  }
  static int64_t combine(ReduceKind kind, int64_t a, int64_t b) {
    switch (kind) {
      case ReduceKind::Sum: return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      case ReduceKind::Product: return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      case ReduceKind::Max: return std::max(a, b);
      case ReduceKind::Min: return std::min(a, b);
      case ReduceKind::Any: return a | b;
      case ReduceKind::All: return a & b;
    }
    return 0;
  }
  static double identity(ReduceKind kind, double) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return kind == ReduceKind::Sum ? 0 : kind == ReduceKind::Product ? 1 : kind == ReduceKind::Max ? -infinity : infinity;
  }
  static int64_t identity(ReduceKind kind, int64_t) {
    return kind == ReduceKind::Sum || kind == ReduceKind::Any       ? 0
           : kind == ReduceKind::Product || kind == ReduceKind::All ? 1
           : kind == ReduceKind::Max                                ? INT64_MIN
                                                                    : INT64_MAX;
  }

  /// The point whose reduced factors are 0, for each point.
  int64_t first_of(int64_t point, const std::vector<int>& factors) const {
    for (const int factor : factors) point -= at(point, static_cast<size_t>(factor)) * strides_[static_cast<size_t>(factor)];
    return point;
  }

  template <class T>
  Literal reduce(const Expr& expr, const ReduceExpr& op) {
    std::vector<T> totals(static_cast<size_t>(points_), identity(op.kind, T{}));
    const Literal& x = input(expr, 0);
    for (int64_t p = 0; p < points_; ++p) {
      T& total = totals[static_cast<size_t>(first_of(p, op.factors))];
      T value;
      if constexpr (std::is_same_v<T, double>)
        value = x.at(p);
      else
        value = x.integer_at(p);
      if (is_inside(p)) total = combine(op.kind, total, value);
    }
    Literal result(expr.dtype, {points_});
    for (int64_t p = 0; p < points_; ++p) {
      const T total = totals[static_cast<size_t>(first_of(p, op.factors))];
      if constexpr (std::is_same_v<T, double>)
        result.set(p, total);
      else
        result.set_integer(p, total);
    }
    return result;
  }

  Literal arg_reduce(const Expr& expr, const ArgReduceExpr& op) {
    const Literal& x = input(expr, 0);
    const auto factor = static_cast<size_t>(op.factor);
    Literal result(DType::I64, {points_});
    const bool real = is_floating(x.dtype());
    for (int64_t p = 0; p < points_; ++p) {
      const int64_t first = first_of(p, {op.factor});
      int64_t best = 0;
      for (int64_t i = 1; i < extents_[factor]; ++i) {
        const int64_t a = first + i * strides_[factor], c = first + best * strides_[factor];
        const double v = x.at(a), b = x.at(c);
        const bool better = real ? !std::isnan(b) && (std::isnan(v) || (op.is_largest ? v > b : v < b))
                                 : (op.is_largest ? x.integer_at(a) > x.integer_at(c) : x.integer_at(a) < x.integer_at(c));
        if (better) best = i;
      }
      result.set_integer(p, best);
    }
    return result;
  }

  Literal scalar_op(const Expr& expr) {
    Literal result(expr.dtype, {points_});
    const DType from = input(expr, 0).dtype();
    if (const auto* unary = std::get_if<UnaryExpr>(&expr.op)) {
      const UnaryInfo& info = unary_info(unary->kind);
      if (unary->kind == UnaryKind::Not && from == DType::Bool) {
        for (int64_t p = 0; p < points_; ++p) result.set_integer(p, input(expr, 0).integer_at(p) == 0);
      } else {
        (is_floating(from) ? info.floats : info.integers)(input(expr, 0), result);
      }
    } else if (const auto* binary = std::get_if<BinaryExpr>(&expr.op)) {
      const BinaryInfo& info = binary_info(binary->kind);
      (is_floating(from) ? info.floats : info.integers)(input(expr, 0), input(expr, 1), result);
    } else if (const auto* compare = std::get_if<CompareExpr>(&expr.op)) {
      const CompareInfo& info = compare_info(compare->kind);
      (is_floating(from) ? info.floats : info.integers)(input(expr, 0), input(expr, 1), result);
    } else {
      for (int64_t p = 0; p < points_; ++p) copy(input(expr, input(expr, 0).integer_at(p) != 0 ? 1 : 2), p, result, p);
    }
    return result;
  }

  Literal evaluate_expr(const Expr& expr) {
    if (const auto* op = std::get_if<LoadExpr>(&expr.op)) return load(expr, *op);
    if (const auto* op = std::get_if<ReduceExpr>(&expr.op)) return is_floating(expr.dtype) ? reduce<double>(expr, *op) : reduce<int64_t>(expr, *op);
    if (const auto* op = std::get_if<ArgReduceExpr>(&expr.op)) return arg_reduce(expr, *op);
    if (std::holds_alternative<ConvertExpr>(expr.op)) return input(expr, 0).converted(expr.dtype);
    Literal result(expr.dtype, {points_});
    for (int64_t p = 0; p < points_; ++p) {
      if (const auto* constant = std::get_if<ConstantExpr>(&expr.op)) {
        std::copy_n(reinterpret_cast<const std::byte*>(&constant->bits), size_bytes(expr.dtype),
                    result.mutable_data() + static_cast<size_t>(p) * size_bytes(expr.dtype));
      } else if (const auto* op = std::get_if<IndexExpr>(&expr.op)) {
        result.set_integer(p, place(op->value, p));
      } else if (const auto* draw = std::get_if<DrawExpr>(&expr.op)) {
        const auto key = static_cast<uint64_t>(input(expr, 0).integer_at(p)), element = static_cast<uint64_t>(input(expr, 1).integer_at(p));
        result.set(p, draw->kind == RandomKind::Uniform ? uniform_element(key, element, expr.dtype) : normal_element(key, element));
      } else if (std::holds_alternative<FoldExpr>(expr.op)) {
        result.set_integer(
            p, static_cast<int64_t>(fold_key(static_cast<uint64_t>(input(expr, 0).integer_at(p)), static_cast<uint64_t>(input(expr, 1).integer_at(p)))));
      } else {
        return scalar_op(expr);
      }
    }
    return result;
  }

  const Form& form_;
  std::vector<Literal>& operands_;
  SymbolValues symbols_;
  std::vector<int64_t> extents_, strides_;
  int64_t points_ = 1;
  std::vector<Literal> values_;
  std::optional<BadFormIndex> bad_;
};

}  // namespace

std::optional<BadFormIndex> interpret_form(const Form& form, std::vector<Literal>& operands, const std::vector<int64_t>& sizes) {
  return FormInterpreter(form, operands, sizes).run();
}

}  // namespace stepgraph::testing
