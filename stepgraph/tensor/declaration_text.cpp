// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/tensor/declaration_text.h"

#include "stepgraph/base/text_scanner.h"

namespace stepgraph {

DType read_dtype(TextScanner& scanner) {
  static const std::string wanted = "a dtype (f64, f32, bf16, f16, i64, i32, i8, u8 or bool)";
  const size_t begin = scanner.mark();
  const std::string word = scanner.identifier(wanted);
  const auto dtype = dtype_from_name(word);
  if (!dtype) scanner.fail_at(begin, "found '" + word + "', wanted " + wanted);
  return *dtype;
}

std::string text(const Symbol& symbol) {
  std::string result = symbol.name;
  switch (symbol.kind) {
    case SymbolKind::Size: break;
    case SymbolKind::Coordinate: result += " coordinate"; break;
    case SymbolKind::Iteration: result += " iteration"; break;
    case SymbolKind::Derived: break;
  }
  if (symbol.minimum != 0 || symbol.maximum != INT64_MAX)
    result += " in [" + std::to_string(symbol.minimum) + ", " + (symbol.maximum == INT64_MAX ? "inf" : std::to_string(symbol.maximum)) + "]";
  if (symbol.multiple_of != 1) result += " multiple " + std::to_string(symbol.multiple_of);
  for (size_t i = 0; i < symbol.buckets.size(); ++i) result += (i == 0 ? " buckets [" : ", ") + std::to_string(symbol.buckets[i]);
  if (!symbol.buckets.empty()) result += "]";
  if (symbol.kind == SymbolKind::Derived) result += " = " + symbol.definition.text();
  return result;
}

Symbol read_symbol(TextScanner& scanner) {
  Symbol symbol;
  symbol.name = scanner.identifier("the symbol's name");
  if (scanner.try_consume("coordinate"))
    symbol.kind = SymbolKind::Coordinate;
  else if (scanner.try_consume("iteration"))
    symbol.kind = SymbolKind::Iteration;
  if (scanner.try_consume("in")) {
    scanner.expect("[");
    symbol.minimum = scanner.integer();
    scanner.expect(",");
    if (!scanner.try_consume("inf")) symbol.maximum = scanner.integer();
    scanner.expect("]");
  }
  if (scanner.try_consume("multiple")) symbol.multiple_of = scanner.integer();
  if (scanner.try_consume("buckets")) scanner.list("[", "]", [&] { symbol.buckets.push_back(scanner.integer()); });
  if (scanner.try_consume("=")) {
    symbol.kind = SymbolKind::Derived;
    symbol.definition = read_dim(scanner);
  }
  return symbol;
}

std::string text(const AxisRef& axis) {
  if (axis.size == 0 && axis.pre == 1) return axis.axis;
  return axis.axis + ":(" + std::to_string(axis.pre) + ")" + std::to_string(axis.size);
}

AxisRef read_axis(TextScanner& scanner) {
  AxisRef axis;
  axis.axis = scanner.identifier("the name of a mesh axis");
  if (!scanner.try_consume(":")) return axis;
  scanner.expect("(");
  axis.pre = scanner.integer();
  scanner.expect(")");
  const size_t begin = scanner.mark();
  axis.size = scanner.integer();
  if (axis.pre < 1 || axis.size < 1) scanner.fail_at(begin, "part of axis '" + axis.axis + "': wanted sizes of at least 1");
  return axis;
}

}  // namespace stepgraph
