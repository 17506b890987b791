// SPDX-License-Identifier: Apache-2.0
#include "tests/support/form_maker.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include <fmt/core.h>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/codegen/emit_form.h"

namespace stepgraph::testing {

Affine FormMaker::at(std::vector<std::pair<int, Dim>> terms, Dim constant) {
  std::sort(terms.begin(), terms.end());
  Affine result{std::move(constant), {}};
  for (auto& [factor, coefficient] : terms) {
    if (coefficient != Dim(0)) result.terms.push_back({factor, coefficient});
  }
  return result;
}

int FormMaker::expr(ExprOp op, std::vector<int> inputs, DType dtype) {
  const Expr made{std::move(op), std::move(inputs), dtype};
  for (size_t e = 0; e < form.exprs.size(); ++e) {
    if (form.exprs[e] == made) return static_cast<int>(e);
  }
  form.exprs.push_back(made);
  return static_cast<int>(form.exprs.size()) - 1;
}

int FormMaker::constant(DType dtype, double value) {
  const Literal element = Literal::scalar(dtype, value);
  ConstantExpr op;
  std::memcpy(&op.bits, element.data(), element.byte_count());
  return expr(op, {}, dtype);
}

namespace {

constexpr size_t margin = 256;

/// An operand between bytes that nobody may write, at an address that is a multiple of no more than its element's size.
class GuardedMemory {
 public:
  explicit GuardedMemory(const Literal& from) : bytes_(from.byte_count()), memory_(bytes_ + 2 * margin + 64, std::byte{0xA5}) {
    const auto base = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = margin + (64 - base % 64) % 64 + size_bytes(from.dtype());
    if (bytes_ > 0) std::memcpy(data(), from.data(), bytes_);
  }
  std::byte* data() { return memory_.data() + start_; }
  Literal take(const Literal& like) {
    for (size_t k = 0; k < memory_.size(); ++k) {
      if (k < start_ || k >= start_ + bytes_) SG_CHECK(memory_[k] == std::byte{0xA5}, "memory around an operand stays as it is");
    }
    Literal result = Literal::uninitialised(like.dtype(), like.sizes());
    if (bytes_ > 0) std::memcpy(result.mutable_data(), data(), bytes_);
    return result;
  }

 private:
  size_t bytes_, start_ = 0;
  std::vector<std::byte> memory_;
};

}  // namespace

CompiledForm::CompiledForm(const Form& form, InstructionSet isa) {
  Target target;
  target.isa = isa;
  code_ = emit_form(form, target);
  loaded_ = load_code({&code_, 1});
}
CompiledForm::~CompiledForm() = default;

FormResult CompiledForm::run(const std::vector<Literal>& operands, const std::vector<int64_t>& sizes, int64_t cut) const {
  SymbolValues symbols;
  for (size_t k = 0; k < sizes.size(); ++k) symbols[form_symbol(static_cast<int>(k))] = sizes[k];
  FormResult result;
  result.parallel = evaluate(code_.parallel, symbols);
  const auto scratch_bytes = static_cast<size_t>(evaluate(code_.scratch_bytes, symbols));
  std::vector<GuardedMemory> memory;
  memory.reserve(operands.size());
  std::vector<void*> pointers;
  for (const Literal& operand : operands) pointers.push_back(memory.emplace_back(operand).data());
  const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, scratch_bytes + 64), &std::free);
  int64_t status[4] = {0, 0, 0, 0};
  const int64_t step = cut == 0 ? std::max<int64_t>(result.parallel, 1) : cut;
  // Cut runs go backwards: parts may run in any order.
  for (int64_t part = (result.parallel + step - 1) / step - 1; part >= 0; --part) {
    loaded_->function(0)(pointers.data(), sizes.data(), part * step, std::min(result.parallel, (part + 1) * step), scratch.get(), status);
  }
  for (size_t k = 0; k < operands.size(); ++k) result.operands.push_back(memory[k].take(operands[k]));
  result.is_noticed = status[3] != 0;
  if (status[0] != 0) result.bad = BadFormIndex{status[1], status[2]};
  return result;
}

FormResult run_by_interpreter(const Form& form, std::vector<Literal> operands, const std::vector<int64_t>& sizes) {
  FormResult result;
  result.bad = interpret_form(form, operands, sizes);
  result.operands = std::move(operands);
  return result;
}

std::string difference(const Literal& found, const Literal& wanted, double relative, double absolute) {
  if (found.dtype() != wanted.dtype() || found.count() != wanted.count()) return "dtype or count";
  for (int64_t k = 0; k < found.count(); ++k) {
    if (!is_floating(found.dtype())) {
      if (found.integer_at(k) != wanted.integer_at(k)) return fmt::format("element {}: found {}, wanted {}", k, found.integer_at(k), wanted.integer_at(k));
      continue;
    }
    const double a = found.at(k), b = wanted.at(k);
    const bool equal = std::isnan(b) ? std::isnan(a) : a == b || std::fabs(a - b) <= relative * std::fabs(b) + absolute;
    if (!equal || (a == 0 && b == 0 && absolute == 0 && std::signbit(a) != std::signbit(b))) return fmt::format("element {}: found {}, wanted {}", k, a, b);
  }
  return "";
}

Literal some_values(DType dtype, int64_t count, uint32_t seed, bool with_specials) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> real(-4, 4);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double specials[] = {0.0,  -0.0, infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 1e-40, -1e-40, 1e30, -1e30, 1, -1, 0.5,
                             -2.5, 127,  300,      3e9};
  Literal result(dtype, {count});
  for (int64_t k = 0; k < count; ++k) {
    if (is_floating(dtype))
      result.set(k, with_specials && random() % 4 == 0 ? specials[random() % std::size(specials)] : real(random));
    else if (dtype == DType::Bool)
      result.set_integer(k, random() % 2);
    else
      result.set_integer(k, with_specials && random() % 8 == 0 ? static_cast<int64_t>(random()) << 33 ^ random()
                                                               : static_cast<int64_t>(random() % 13) - (dtype == DType::U8 ? 0 : 6));
  }
  return result;
}

}  // namespace stepgraph::testing
