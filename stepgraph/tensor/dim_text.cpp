// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stepgraph/base/error.h"
#include "stepgraph/base/text_scanner.h"
#include "stepgraph/tensor/dim.h"
#include "stepgraph/tensor/dim_expression.h"

namespace stepgraph {
namespace {

constexpr size_t text_size_max = 1 << 16;
constexpr int nesting_max = 100;  // above the depth that an expression can have, so that every canonical text is read back

std::string_view function_name(AtomKind kind) {
  switch (kind) {
    case AtomKind::FloorDiv: return "floordiv";
    case AtomKind::Mod: return "mod";
    case AtomKind::Min: return "min";
    case AtomKind::Max: return "max";
    case AtomKind::Symbol: return "";
  }
  return "";
}

void append_atom(std::string& out, const Atom& atom) {
  if (atom.kind == AtomKind::Symbol) {
    out += atom.name;
    return;
  }
  out += function_name(atom.kind);
  out += '(';
  for (size_t i = 0; i < atom.args.size(); ++i) {
    if (i > 0) out += ", ";
    out += atom.args[i].text();
  }
  out += ')';
}

/// The term without its sign when `magnitude` is given as a positive coefficient.
void append_term(std::string& out, int64_t coefficient, const std::vector<AtomPtr>& factors) {
  if (factors.empty()) {
    out += std::to_string(coefficient);
    return;
  }
  if (coefficient == -1)
    out += '-';
  else if (coefficient != 1)
    out += std::to_string(coefficient) + "*";
  for (size_t i = 0; i < factors.size(); ++i) {
    if (i > 0) out += '*';
    append_atom(out, *factors[i]);
  }
}

/// Recursive descent. `depth` counts brackets and calls.
class DimParser {
 public:
  explicit DimParser(TextScanner& scanner) : scanner_(scanner) {}
  Dim parse() { return sum(0); }

 private:
  Dim sum(int depth) {
    Dim result = product(depth);
    for (;;) {
      if (scanner_.try_consume("+"))
        result = result + product(depth);
      else if (scanner_.try_consume("-"))
        result = result - product(depth);
      else
        return result;
    }
  }

  Dim product(int depth) {
    Dim result = factor(depth);
    while (scanner_.try_consume("*")) result = result * factor(depth);
    return result;
  }

  Dim factor(int depth) {
    if (depth > nesting_max) scanner_.fail("size expression is nested too deeply");
    const char next = scanner_.peek();
    if (next >= '0' && next <= '9') return scanner_.integer();
    if (next == '-') return negated(depth);
    if (scanner_.try_consume("(")) {
      Dim result = sum(depth + 1);
      scanner_.expect(")");
      return result;
    }
    std::string name = scanner_.identifier("a number, a name or '('");
    if (scanner_.next_is("(")) return call(name, depth);
    return Dim::symbol(std::move(name));
  }

  Dim negated(int depth) {
    TextScanner ahead = scanner_;
    ahead.expect("-");
    const char next = ahead.peek();
    // With its sign, since the magnitude of INT64_MIN is not an int64_t.
    if (next >= '0' && next <= '9' && ahead.offset() == scanner_.offset() + 1) return scanner_.integer();
    scanner_.expect("-");
    return factor(depth + 1) * -1;
  }

  Dim call(const std::string& name, int depth) {
    const bool variadic = name == "min" || name == "max";
    if (!variadic && name != "floordiv" && name != "ceildiv" && name != "mod")
      scanner_.fail("found function '" + name + "', wanted floordiv, ceildiv, mod, min or max");
    scanner_.expect("(");
    Dim result = sum(depth + 1);
    int count = 1;
    while (scanner_.try_consume(",")) {
      const Dim other = sum(depth + 1);
      if (!variadic && ++count > 2) break;
      if (name == "floordiv")
        result = floordiv(result, other);
      else if (name == "ceildiv")
        result = ceildiv(result, other);
      else if (name == "mod")
        result = mod(result, other);
      else if (name == "min")
        result = min(result, other);
      else
        result = max(result, other);
    }
    if (!variadic && count != 2) scanner_.fail(name + " takes two sizes");
    scanner_.expect(")");
    return result;
  }

  TextScanner& scanner_;
};

}  // namespace

std::string Dim::text() const {
  if (is_constant()) return std::to_string(constant_);
  // A positive term goes first if there is one: "10 - 4*c" rather than "-4*c + 10".
  std::vector<const Term*> order;
  for (const Term& term : expression_->terms) order.push_back(&term);
  const auto positive = std::find_if(order.begin(), order.end(), [](const Term* term) { return term->coefficient > 0; });
  if (positive != order.end()) std::rotate(order.begin(), positive, positive + 1);

  std::string result;
  for (size_t i = 0; i < order.size(); ++i) {
    int64_t coefficient = order[i]->coefficient;
    if (i > 0) {
      // INT64_MIN keeps its sign: its magnitude could not be read back.
      const bool minus = coefficient < 0 && coefficient != INT64_MIN;
      result += minus ? " - " : " + ";
      if (minus) coefficient = -coefficient;
    }
    append_term(result, coefficient, order[i]->factors);
  }
  return result;
}

Dim parse_dim(std::string_view text) {
  if (text.size() > text_size_max)
    throw UserError("size expression: found " + std::to_string(text.size()) + " characters, wanted at most " + std::to_string(text_size_max));
  TextScanner scanner(text, "size");
  const Dim result = read_dim(scanner);
  scanner.expect_end();
  return result;
}

Dim read_dim(TextScanner& scanner) { return DimParser(scanner).parse(); }

std::string text(const Shape& shape) {
  std::string result = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) result += ", ";
    result += shape[i].text();
  }
  return result + "]";
}

}  // namespace stepgraph
