// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/form_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>

#include "stepgraph/base/text_scanner.h"
#include "stepgraph/tensor/declaration_text.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {
namespace {

template <class... Cases>
struct ExprCases : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
ExprCases(Cases...) -> ExprCases<Cases...>;

constexpr int index_max = 1 << 30;

// ---- constants

uint64_t bits_of(const Literal& literal) {
  uint64_t bits = 0;
  std::memcpy(&bits, literal.data(), literal.byte_count());
  return bits;
}

/// The bits of a number as it stands in the text.
uint64_t read_number(TextScanner& scanner, DType dtype) {
  if (is_floating(dtype)) return bits_of(Literal::scalar(dtype, scanner.real()));
  if (dtype == DType::Bool) return scanner.one_of(std::array<std::string_view, 2>{"false", "true"});
  return bits_of(Literal::integer(dtype, scanner.integer()));
}

uint64_t read_bits(TextScanner& scanner) {
  const size_t begin = scanner.mark();
  const std::string digits = scanner.identifier("bits as x7fc00000");
  uint64_t bits = 0;
  const char* end = digits.data() + digits.size();
  const auto [read_end, error] = std::from_chars(digits.data() + 1, end, bits, 16);
  if (digits[0] != 'x' || error != std::errc{} || read_end != end) scanner.fail_at(begin, "found '" + digits + "', wanted bits as x7fc00000");
  return bits;
}

std::string constant_text(uint64_t bits, DType dtype) {
  Literal literal(dtype, {});
  std::memcpy(literal.mutable_data(), &bits, literal.byte_count());
  std::string number = literal.text(1);  // "f32[] {1}"
  const size_t begin = number.find('{') + 1;
  number = number.substr(begin, number.find('}') - begin);
  const bool is_number = dtype != DType::Bool || bits <= 1;
  TextScanner scanner(number, "constant");
  if (is_number && read_number(scanner, dtype) == bits) return number;
  char digits[16];
  return "bits x" + std::string(digits, std::to_chars(digits, digits + sizeof digits, bits, 16).ptr);
}

// ---- writing

std::string factor_text(int factor) { return "i" + std::to_string(factor); }

/// As a factor of a product: in brackets unless it is one number or symbol.
std::string unit_text(const Dim& dim) { return dim.is_constant() || dim.symbol_name() ? dim.text() : "(" + dim.text() + ")"; }

std::string value_text(const Expr& expr, size_t input) { return input < expr.inputs.size() ? "%" + std::to_string(expr.inputs[input]) : "%?"; }

std::string inputs_text(const Expr& expr) {
  std::string result;
  for (size_t i = 0; i < expr.inputs.size(); ++i) result += (i > 0 ? ", " : " ") + value_text(expr, i);
  return result;
}

std::string load_text(const LoadExpr& load, const Expr& expr) {
  std::string result = "load " + std::to_string(load.operand) + " " + text(load.at);
  for (size_t i = 0; i < load.indices.size(); ++i)
    result += " index " + value_text(expr, i) + " < " + load.indices[i].size.text() + " stride " + load.indices[i].stride.text();
  for (const Guard& guard : load.guards) result += " where " + text(guard.index) + " < " + guard.size.text();
  if (!load.guards.empty()) result += " else " + value_text(expr, load.indices.size());
  return result;
}

std::string op_text(const Expr& expr) {
  const ExprCases cases{
      [&](const LoadExpr& load) { return load_text(load, expr); },
      [&](const ConstantExpr& constant) { return "constant " + constant_text(constant.bits, expr.dtype); },
      [&](const IndexExpr& index) { return "index " + text(index.value); },
      [&](const UnaryExpr& unary) { return std::string(name(unary.kind)) + inputs_text(expr); },
      [&](const BinaryExpr& binary) { return std::string(name(binary.kind)) + inputs_text(expr); },
      [&](const CompareExpr& compare) { return std::string(name(compare.kind)) + inputs_text(expr); },
      [&](const SelectExpr&) { return "select" + inputs_text(expr); },
      [&](const ConvertExpr&) { return "convert" + inputs_text(expr); },
      [&](const DrawExpr& draw) { return std::string(random_names[static_cast<size_t>(draw.kind)]) + inputs_text(expr); },
      [&](const FoldExpr&) { return "fold" + inputs_text(expr); },
      [&](const ReduceExpr& reduce) {
        std::string result = std::string(name(reduce.kind)) + " over";
        for (size_t i = 0; i < reduce.factors.size(); ++i) result += (i > 0 ? ", " : " ") + factor_text(reduce.factors[i]);
        return result + " of" + inputs_text(expr);
      },
      [&](const ArgReduceExpr& reduce) {
        return std::string(reduce.is_largest ? "arg_max" : "arg_min") + " over " + factor_text(reduce.factor) + " of" + inputs_text(expr);
      },
  };
  return std::visit(cases, expr.op);
}

// ---- reading

template <class Names>
std::optional<uint8_t> place_of_name(const Names& names, std::string_view word) {
  const auto found = std::find(std::begin(names), std::end(names), word);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<uint8_t>(found - std::begin(names));
}

/// The number of "i12", or -1.
int factor_number(std::string_view word) {
  if (word.size() < 2 || word.size() > 9 || word[0] != 'i') return -1;
  int number = 0;
  const auto [end, error] = std::from_chars(word.data() + 1, word.data() + word.size(), number);
  return error == std::errc{} && end == word.data() + word.size() && number >= 0 && factor_text(number) == word ? number : -1;
}

class FormReader {
 public:
  explicit FormReader(TextScanner& scanner) : scanner_(scanner) {}

  Form read() {
    scanner_.expect("form");
    scanner_.expect("sizes");
    form_.size_count = index();
    scanner_.expect("{");
    while (scanner_.try_consume("factor")) read_factor();
    while (scanner_.try_consume("operand")) read_operand();
    while (scanner_.peek() == '%') read_expr();
    while (scanner_.try_consume("store")) read_store();
    if (!scanner_.try_consume("}")) scanner_.fail_wanted("'}', or factors, operands, values as %0 and stores in this order");
    return std::move(form_);
  }

 private:
  int index() {
    const size_t begin = scanner_.mark();
    const int64_t value = scanner_.integer();
    if (value < 0 || value > index_max) scanner_.fail_at(begin, "found " + std::to_string(value) + ", wanted a number from 0");
    return static_cast<int>(value);
  }

  int factor() {
    const size_t begin = scanner_.mark();
    const std::string word = scanner_.identifier("a factor as i0");
    const int number = factor_number(word);
    if (number < 0) scanner_.fail_at(begin, "found '" + word + "', wanted a factor as i0");
    return number;
  }

  /// The items of a form carry their numbers: they must be those that come next.
  void expect_number(size_t begin, std::string_view sign, int found, size_t wanted) {
    if (static_cast<size_t>(found) == wanted) return;
    scanner_.fail_at(begin, "found " + std::string(sign) + std::to_string(found) + ", wanted " + std::string(sign) + std::to_string(wanted));
  }

  Affine affine() {
    Affine result;
    scanner_.expect("[");
    do {
      const size_t begin = scanner_.mark();
      Dim unit;
      int number = -1;
      if (scanner_.try_consume("(")) {
        unit = read_dim(scanner_);
        scanner_.expect(")");
      } else if (const auto word = scanner_.try_identifier()) {
        number = factor_number(*word);
        unit = number < 0 ? Dim::symbol(*word) : Dim(1);
      } else {
        unit = scanner_.integer();
      }
      if (number < 0 && scanner_.try_consume("*")) number = factor();
      if (number < 0) {
        result.constant = result.constant + unit;
      } else {
        if (!result.terms.empty() && result.terms.back().factor >= number) scanner_.fail_at(begin, "factors of an address stand once, in ascending order");
        result.terms.push_back({number, unit});
      }
    } while (scanner_.try_consume("+"));
    scanner_.expect("]");
    return result;
  }

  void read_factor() {
    const size_t begin = scanner_.mark();
    expect_number(begin, "i", factor(), form_.factors.size());
    scanner_.expect("=");
    Factor factor{.size = read_dim(scanner_)};
    if (scanner_.try_consume("block_of")) {
      factor.block_of = this->factor();
      scanner_.expect("total");
      factor.total = read_dim(scanner_);
    }
    form_.factors.push_back(std::move(factor));
  }

  void read_operand() {
    const size_t begin = scanner_.mark();
    expect_number(begin, "operand ", index(), form_.operands.size());
    FormOperand operand;
    operand.is_read = scanner_.try_consume("read");
    operand.is_written = scanner_.try_consume("write");
    operand.is_watched = scanner_.try_consume("watch");
    operand.dtype = read_dtype(scanner_);
    form_.operands.push_back(operand);
  }

  int value() {
    const size_t begin = scanner_.mark();
    if (!scanner_.try_consume("%")) scanner_.fail_wanted("a value as %0");
    const int number = index();
    if (static_cast<size_t>(number) >= form_.exprs.size()) scanner_.fail_at(begin, "value %" + std::to_string(number) + " is not defined before its use");
    return number;
  }

  void read_expr() {
    const size_t begin = scanner_.mark();
    scanner_.expect("%");
    expect_number(begin, "%", index(), form_.exprs.size());
    scanner_.expect("=");
    Expr expr;
    TextScanner constant = scanner_;
    read_op(expr, constant);
    scanner_.expect(":");
    expr.dtype = read_dtype(scanner_);
    if (std::holds_alternative<ConstantExpr>(expr.op)) expr.op = read_constant(constant, expr.dtype);
    form_.exprs.push_back(std::move(expr));
  }

  /// A number is read by its dtype, which stands after it.
  static ConstantExpr read_constant(TextScanner& scanner, DType dtype) {
    const ConstantExpr result{scanner.try_consume("bits") ? read_bits(scanner) : read_number(scanner, dtype)};
    scanner.expect(":");
    return result;
  }

  void read_inputs(Expr& expr) {
    do expr.inputs.push_back(value());
    while (scanner_.try_consume(","));
  }

  void read_op(Expr& expr, TextScanner& constant) {
    const size_t begin = scanner_.mark();
    const std::string word = scanner_.identifier("an operation");
    if (word == "load") return read_load(expr);
    if (word == "index") {
      expr.op = IndexExpr{affine()};
      return;
    }
    if (word == "constant") {
      constant = scanner_;
      expr.op = ConstantExpr{};
      scanner_.balanced_until(":");
      return;
    }
    if (word == "arg_max" || word == "arg_min") {
      scanner_.expect("over");
      expr.op = ArgReduceExpr{word == "arg_max", factor()};
      scanner_.expect("of");
    } else if (const auto reduce = reduce_kind_from_name(word)) {
      ReduceExpr op{.kind = *reduce, .factors = {}};
      scanner_.expect("over");
      do op.factors.push_back(factor());
      while (scanner_.try_consume(","));
      scanner_.expect("of");
      expr.op = std::move(op);
    } else if (const auto unary = place_of_name(unary_names, word)) {
      expr.op = UnaryExpr{static_cast<UnaryKind>(*unary)};
    } else if (const auto binary = place_of_name(binary_names, word)) {
      expr.op = BinaryExpr{static_cast<BinaryKind>(*binary)};
    } else if (const auto compare = place_of_name(compare_names, word)) {
      expr.op = CompareExpr{static_cast<CompareKind>(*compare)};
    } else if (const auto draw = place_of_name(random_names, word)) {
      expr.op = DrawExpr{static_cast<RandomKind>(*draw)};
    } else if (word == "select") {
      expr.op = SelectExpr{};
    } else if (word == "convert") {
      expr.op = ConvertExpr{};
    } else if (word == "fold") {
      expr.op = FoldExpr{};
    } else {
      scanner_.fail_at(begin, "unknown operation '" + word + "' of a form");
    }
    read_inputs(expr);
  }

  void read_load(Expr& expr) {
    LoadExpr load{.operand = index(), .at = affine(), .guards = {}, .indices = {}};
    while (scanner_.try_consume("index")) {
      expr.inputs.push_back(value());
      scanner_.expect("<");
      IndexTerm term;
      term.size = read_dim(scanner_);
      scanner_.expect("stride");
      term.stride = read_dim(scanner_);
      load.indices.push_back(std::move(term));
    }
    while (scanner_.try_consume("where")) {
      Guard guard;
      guard.index = affine();
      scanner_.expect("<");
      guard.size = read_dim(scanner_);
      load.guards.push_back(std::move(guard));
    }
    if (!load.guards.empty()) {
      scanner_.expect("else");
      expr.inputs.push_back(value());
    }
    expr.op = std::move(load);
  }

  void read_store() {
    Store store;
    store.operand = index();
    store.at = affine();
    scanner_.expect("=");
    store.value = value();
    form_.stores.push_back(std::move(store));
  }

  TextScanner& scanner_;
  Form form_;
};

}  // namespace

std::string text(const Affine& affine) {
  std::string result;
  for (const AffineTerm& term : affine.terms) {
    if (!result.empty()) result += " + ";
    if (term.coefficient != Dim(1)) result += unit_text(term.coefficient) + "*";
    result += factor_text(term.factor);
  }
  if (affine.constant != Dim(0) || result.empty()) result += (result.empty() ? "" : " + ") + unit_text(affine.constant);
  return "[" + result + "]";
}

std::string expr_text(const Form& form, size_t index) {
  const Expr& expr = form.exprs[index];
  return "%" + std::to_string(index) + " = " + op_text(expr) + " : " + std::string(name(expr.dtype));
}

std::string text(const Form& form) {
  std::string out = "form sizes " + std::to_string(form.size_count) + " {\n";
  const auto line = [&](const std::string& statement) { out += broken_statement("  " + statement) + "\n"; };
  for (size_t i = 0; i < form.factors.size(); ++i) {
    const Factor& factor = form.factors[i];
    const std::string cut = factor.block_of < 0 ? "" : " block_of " + factor_text(factor.block_of) + " total " + factor.total.text();
    line("factor " + factor_text(static_cast<int>(i)) + " = " + factor.size.text() + cut);
  }
  for (size_t i = 0; i < form.operands.size(); ++i) {
    const FormOperand& operand = form.operands[i];
    line("operand " + std::to_string(i) + (operand.is_read ? " read" : "") + (operand.is_written ? " write" : "") + (operand.is_watched ? " watch" : "") + " " + std::string(name(operand.dtype)));
  }
  for (size_t i = 0; i < form.exprs.size(); ++i) line(expr_text(form, i));
  for (const Store& store : form.stores) line("store " + std::to_string(store.operand) + " " + text(store.at) + " = %" + std::to_string(store.value));
  return out + "}\n";
}

Form read_form(TextScanner& scanner) { return FormReader(scanner).read(); }

Form parse_form(std::string_view text, const std::string& name) {
  TextScanner scanner(text, name);
  Form result = read_form(scanner);
  scanner.expect_end();
  return result;
}

Hash128 form_hash(const Form& form) {
  const std::string form_text = text(form);
  return hash_bytes(std::as_bytes(std::span(form_text)));
}

}  // namespace stepgraph
