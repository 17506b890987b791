// SPDX-License-Identifier: Apache-2.0
// Random forms against the interpreter of forms: layouts, dtypes, broadcasts, guards, reductions, sizes that are symbols.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include <fmt/core.h>

#include "tests/support/effort.h"
#include "tests/support/form_maker.h"

namespace stepgraph {
namespace codegen_random_test {

using testing::CompiledForm;
using testing::difference;
using testing::FormMaker;
using testing::FormResult;
using testing::run_by_interpreter;
using testing::some_values;

class RandomForm {
 public:
  explicit RandomForm(uint32_t seed) : random_(seed) {
    make_factors();
    for (int k = 0; k < 3; ++k) values_.push_back(some_load());
    for (int k = 0; k < 6; ++k) values_.push_back(some_op(values_));
    if (!reduced_.empty()) add_reductions();
    for (int k = 0; k < 2; ++k) add_store(values_[values_.size() - 1 - static_cast<size_t>(pick(static_cast<int>(values_.size())))]);
    add_store(values_.back());
  }

  FormMaker maker;
  std::vector<Literal> operands;
  std::vector<int64_t> sizes;

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }
  bool chance(int percent) { return pick(100) < percent; }

  void make_factors() {
    const int count = 1 + pick(3);
    const int64_t choices[] = {1, 2, 3, 7, 16, 17, 32, 45, 64, 70, 129};
    for (int f = 0; f < count; ++f) {
      const int64_t extent = choices[pick(f + 1 == count ? 11 : 5)];
      extents_.push_back(extent);
      if (chance(30)) {
        sizes.push_back(extent);
        dims_.push_back(Dim::symbol(form_symbol(static_cast<int>(sizes.size()) - 1)));
      } else {
        dims_.emplace_back(extent);
      }
      maker.factor(dims_.back());
      if (chance(35)) reduced_.push_back(f);
    }
    maker.form.size_count = static_cast<int>(sizes.size());
  }

  /// Some of the factors in some order, as a dense layout; perhaps one backwards.
  struct Layout {
    Affine at;
    int64_t elements = 1;
  };
  Layout some_layout(bool all) {
    std::vector<int> order;
    for (int f = 0; f < static_cast<int>(extents_.size()); ++f) {
      if (all || chance(70)) order.push_back(f);
    }
    if (chance(30)) std::shuffle(order.begin(), order.end(), random_);
    return dense(order, chance(15));
  }
  Layout dense(const std::vector<int>& order, bool backwards) {
    Layout layout;
    std::vector<std::pair<int, Dim>> terms;
    Dim stride = 1, constant = 0;
    for (size_t k = order.size(); k-- > 0;) {
      const auto f = static_cast<size_t>(order[k]);
      const bool turns = backwards && k + 1 == order.size();
      terms.emplace_back(order[k], turns ? Dim(0) - stride : stride);
      if (turns) constant = stride * (dims_[f] - Dim(1));
      stride = stride * dims_[f];
      layout.elements *= extents_[f];
    }
    layout.at = FormMaker::at(terms, constant);
    return layout;
  }

  DType some_dtype() {
    const DType choices[] = {DType::F32, DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32, DType::I64, DType::U8, DType::Bool};
    return choices[pick(10)];
  }
  int as_float(int e) { return maker.type(e) == DType::F32 ? e : maker.convert(e, DType::F32); }

  int some_load() {
    const DType dtype = some_dtype();
    const Layout layout = some_layout(chance(60));
    const int operand = maker.reads(dtype);
    operands.push_back(some_values(dtype, layout.elements, static_cast<uint32_t>(random_()), false));
    if (!chance(30)) return as_float(maker.load(operand, layout.at));
    // Shifted along a factor, with another value outside.
    const int f = pick(static_cast<int>(extents_.size()));
    const int64_t shift = pick(5) - 2;
    Dim stride = 0;
    for (const AffineTerm& term : layout.at.terms) {
      if (term.factor == f) stride = term.coefficient;
    }
    LoadExpr load{operand, layout.at, {{FormMaker::at({{f, 1}}, shift), dims_[static_cast<size_t>(f)]}}, {}};
    load.at.constant = load.at.constant + Dim(shift) * stride;
    return as_float(maker.expr(load, {maker.constant(dtype, 1)}, dtype));
  }

  /// Only what is exact to the bit, so that nothing near a step is left to chance.
  int some_op(const std::vector<int>& from) {
    const auto any = [&] { return from[static_cast<size_t>(pick(static_cast<int>(from.size())))]; };
    switch (pick(7)) {
      case 0: return maker.binary(BinaryKind::Add, any(), any());
      case 1: return maker.binary(BinaryKind::Subtract, any(), any());
      case 2: return maker.binary(BinaryKind::Maximum, any(), maker.unary(UnaryKind::Negate, any()));
      case 3: return maker.select(maker.compare(CompareKind::Less, any(), any()), any(), any());
      case 4: return as_float(maker.convert(any(), chance(50) ? DType::BF16 : DType::F16));
      case 5: return maker.binary(BinaryKind::Multiply, maker.unary(UnaryKind::Relu, any()), maker.constant(DType::F32, 0.37));
      default: return as_float(maker.number(FormMaker::at({{pick(static_cast<int>(extents_.size())), 3}}, 1)));
    }
  }

  void add_reductions() {
    const int largest = maker.reduce(ReduceKind::Max, values_.back(), reduced_);
    const int spread = maker.unary(UnaryKind::Sigmoid, maker.binary(BinaryKind::Subtract, values_.back(), largest));
    const int sum = maker.reduce(ReduceKind::Sum, maker.binary(BinaryKind::Multiply, spread, maker.constant(DType::F32, 0.01)), reduced_);
    values_.push_back(largest);
    values_.push_back(maker.binary(BinaryKind::Divide, spread, maker.binary(BinaryKind::Add, sum, maker.constant(DType::F32, 1))));
    values_.push_back(maker.binary(BinaryKind::Add, sum, largest));
  }

  /// The factors that a value varies over, and sometimes others.
  void add_store(int value) {
    std::vector<bool> varies(extents_.size(), false);
    mark(value, varies);
    std::vector<int> order;
    for (int f = 0; f < static_cast<int>(extents_.size()); ++f) {
      if (varies[static_cast<size_t>(f)] || chance(50)) order.push_back(f);
    }
    if (chance(20)) std::shuffle(order.begin(), order.end(), random_);
    const Layout layout = dense(order, chance(10));
    const int operand = maker.writes(DType::F32);
    operands.push_back(Literal(DType::F32, {layout.elements}));
    maker.store(operand, layout.at, value);
  }
  void mark(int index, std::vector<bool>& varies) {
    const Expr& expr = maker.form.exprs[static_cast<size_t>(index)];
    std::vector<bool> inside(varies.size(), false);
    for (const int input : expr.inputs) mark(input, inside);
    const auto add = [&](const Affine& affine) {
      for (const AffineTerm& term : affine.terms) inside[static_cast<size_t>(term.factor)] = true;
    };
    if (const auto* load = std::get_if<LoadExpr>(&expr.op)) {
      add(load->at);
      for (const Guard& guard : load->guards) add(guard.index);
    } else if (const auto* number = std::get_if<IndexExpr>(&expr.op)) {
      add(number->value);
    } else if (std::holds_alternative<ReduceExpr>(expr.op)) {
      for (const int factor : reduced_) inside[static_cast<size_t>(factor)] = false;
    }
    for (size_t f = 0; f < varies.size(); ++f) varies[f] = varies[f] || inside[f];
  }

  std::mt19937 random_;
  std::vector<int64_t> extents_;
  std::vector<Dim> dims_;
  std::vector<int> reduced_, values_;
};

TEST(CodegenRandom, FormsAreAsInterpreted) {
  int with_reductions = 0, with_symbols = 0;
  for (int64_t seed = 1; seed <= testing::rounds(300); ++seed) {
    const RandomForm made(static_cast<uint32_t>(seed));
    const Form& form = made.maker.form;
    with_symbols += form.size_count > 0 ? 1 : 0;
    const bool reduces = std::any_of(form.exprs.begin(), form.exprs.end(), [](const Expr& expr) { return std::holds_alternative<ReduceExpr>(expr.op); });
    with_reductions += reduces ? 1 : 0;
    const FormResult wanted = run_by_interpreter(form, made.operands, made.sizes);
    const CompiledForm compiled(form);
    const FormResult found = compiled.run(made.operands, made.sizes), again = compiled.run(made.operands, made.sizes, 1);
    for (size_t k = 0; k < made.operands.size(); ++k) {
      EXPECT_EQ(difference(found.operands[k], wanted.operands[k], reduces ? 2e-6 : 0, reduces ? 1e-6 : 1e-300), "") << "seed " << seed << " operand " << k;
      EXPECT_TRUE(found.operands[k] == again.operands[k]) << "seed " << seed << " operand " << k;
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(with_reductions, testing::rounds(300) / 5);
  EXPECT_GT(with_symbols, testing::rounds(300) / 5);
}

}  // namespace codegen_random_test
}  // namespace stepgraph
