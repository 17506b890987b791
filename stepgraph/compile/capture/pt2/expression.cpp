// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/expression.h"
#include <fmt/core.h>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>
#include "stepgraph/base/error.h"

namespace stepgraph::pt2 {
namespace {

constexpr size_t expression_length_max = 16 * 1024;
constexpr int expression_depth_max = 100;
constexpr int64_t power_max = 32;

/// A quotient of Dims, so that a ceiling of a true division can be told; no value: not expressible.
struct Quotient {
  Dim over = 0, under = 1;
  bool is_rounded = false;  ///< a real number that is no such quotient, but near: of its products with sizes only the whole part is known
};
using MaybeQuotient = std::optional<Quotient>;

/// An argument of a constructor: a value, or the quoted name of a symbol.
struct SizeArgument {
  MaybeQuotient value;
  std::optional<std::string> quoted;
};

MaybeQuotient reduced(Dim over, Dim under) {
  if (under == Dim(0)) throw UserError("division by zero");
  if (const auto whole = exact_quotient(over, under)) return Quotient{*whole, 1};
  return Quotient{std::move(over), std::move(under)};
}
MaybeQuotient add(const MaybeQuotient& a, const MaybeQuotient& b) {
  if (!a || !b || a->is_rounded || b->is_rounded) return {};
  if (a->under == b->under) return reduced(a->over + b->over, a->under);
  return reduced(a->over * b->under + b->over * a->under, a->under * b->under);
}
/// Whole, and not known to be negative.
bool is_size(const Quotient& value) { return value.under == Dim(1) && !value.is_rounded && !(value.over.is_constant() && value.over.constant() < 0); }
MaybeQuotient multiply(const MaybeQuotient& a, const MaybeQuotient& b) {
  if (!a || !b || (a->is_rounded && !is_size(*b)) || (b->is_rounded && !is_size(*a))) return {};
  MaybeQuotient product = reduced(a->over * b->over, a->under * b->under);
  product->is_rounded = a->is_rounded || b->is_rounded;
  return product;
}
MaybeQuotient divide(const MaybeQuotient& a, const MaybeQuotient& b) {
  if (!a || !b || a->is_rounded || b->is_rounded) return {};
  return reduced(a->over * b->under, a->under * b->over);
}
MaybeQuotient negate(const MaybeQuotient& a) { return multiply(a, Quotient{-1, 1}); }
MaybeQuotient floor_of(const MaybeQuotient& a) {
  if (!a) return {};
  return Quotient{floordiv(a->over, a->under), 1};
}
MaybeQuotient ceiling_of(const MaybeQuotient& a) { return negate(floor_of(negate(a))); }
MaybeQuotient floor_divide(const MaybeQuotient& a, const MaybeQuotient& b) { return floor_of(divide(a, b)); }
bool whole(const MaybeQuotient& a) { return a && a->under == Dim(1) && !a->is_rounded; }
MaybeQuotient modulo(const MaybeQuotient& a, const MaybeQuotient& b) {
  if (!whole(a) || !whole(b)) return {};
  return Quotient{mod(a->over, b->over), 1};
}
MaybeQuotient power(const MaybeQuotient& base, const MaybeQuotient& exponent) {
  if (!base || !whole(exponent) || !exponent->over.is_constant()) return {};
  const int64_t times = exponent->over.constant();
  if (times > power_max || times < -power_max) return {};
  MaybeQuotient result = Quotient{1, 1};
  for (int64_t i = 0; i < (times < 0 ? -times : times); ++i) result = multiply(result, base);
  return times < 0 ? divide(Quotient{1, 1}, result) : result;
}

/// A constant of Python's as a quotient of whole numbers, if truncated products of sizes with it are told by it: exactly for fractions of a power of two, by
/// trial up to a size that no dim has for others.
MaybeQuotient fraction(double constant) {
  constexpr int64_t most = 1024, tried = int64_t{1} << 17;
  if (!(std::fabs(constant) < 1e6)) return {};
  for (int64_t under = 1; under <= most; ++under) {
    const double over = std::nearbyint(constant * static_cast<double>(under));
    if (std::fabs(over / static_cast<double>(under) - constant) > 1e-15 * std::fabs(constant)) continue;
    const auto whole_over = static_cast<int64_t>(over);
    const bool is_exact = (under & (under - 1)) == 0 && over / static_cast<double>(under) == constant;
    for (int64_t n = 0; n < tried && !is_exact; ++n)
      if (static_cast<int64_t>(std::floor(static_cast<double>(n) * constant)) != (n * whole_over - (whole_over < 0 ? under - 1 : 0)) / under) return {};
    return Quotient{whole_over, under, !is_exact};
  }
  return {};
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Dim> all() {
    if (text_.size() > expression_length_max) throw UserError(fmt::format("an expression of {} bytes, wanted at most {}", text_.size(), expression_length_max));
    const MaybeQuotient value = comparison();
    skip_spaces();
    if (at_ < text_.size()) fail("the end");
    if (!whole(value)) return {};
    return value->over;
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    std::string_view rest = text_.substr(at_, 20);
    throw UserError(fmt::format("expression: {} at position {}, wanted {}", rest.empty() ? std::string("the end") : fmt::format("'{}'", rest), at_, wanted));
  }
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  static bool digit(char c) { return c >= '0' && c <= '9'; }
  std::string_view identifier() {
    skip_spaces();
    const size_t begin = at_;
    while (at_ < text_.size() && (letter(text_[at_]) || (at_ > begin && digit(text_[at_])))) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  MaybeQuotient comparison() {
    struct Nesting {
      int& depth;
      ~Nesting() { --depth; }
    } nesting{++depth_};
    if (depth_ > expression_depth_max) throw UserError(fmt::format("an expression nested more than {} deep", expression_depth_max));
    MaybeQuotient value = sum();
    for (;;) {
      bool found = false;
      for (const std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"}) found = found || take(sign);
      if (!found) return value;
      sum();
      value = {};
    }
  }
  MaybeQuotient sum() {
    MaybeQuotient value = product();
    for (;;) {
      if (take("+"))
        value = add(value, product());
      else if (take("-"))
        value = add(value, negate(product()));
      else
        return value;
    }
  }
  MaybeQuotient product() {
    MaybeQuotient value = signed_value();
    for (;;) {
      if (take("//"))
        value = floor_divide(value, signed_value());
      else if (take("/"))
        value = divide(value, signed_value());
      else if (take("*"))
        value = multiply(value, signed_value());
      else if (take("%"))
        value = modulo(value, signed_value());
      else
        return value;
    }
  }
  MaybeQuotient signed_value() {
    bool negative = false;
    while (take("-")) negative = !negative;
    MaybeQuotient value = primary();
    if (take("**")) value = power(value, exponent());
    return negative ? negate(value) : value;
  }
  MaybeQuotient exponent() {
    const bool negative = take("-");
    const MaybeQuotient value = primary();
    return negative ? negate(value) : value;
  }
  MaybeQuotient primary() {
    if (take("(")) {
      const MaybeQuotient value = comparison();
      if (!take(")")) fail("')'");
      return value;
    }
    skip_spaces();
    if (at_ < text_.size() && digit(text_[at_])) return number();
    const std::string_view name = identifier();
    if (name.empty()) fail("a number, a symbol or a function");
    if (take("(")) return call(name);
    if (name == "True" || name == "False" || name == "oo" || name == "int_oo" || name == "nan" || name == "zoo") return {};
    return Quotient{Dim::symbol(std::string(name)), 1};
  }
  MaybeQuotient number() {
    int64_t value = 0;
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    const auto result = std::from_chars(begin, end, value);
    if (result.ec != std::errc{}) fail("a number below 2^63");
    at_ += static_cast<size_t>(result.ptr - begin);
    bool is_whole = true;
    while (at_ < text_.size() && (digit(text_[at_]) || text_[at_] == '.' || text_[at_] == 'e')) {
      is_whole = false;
      ++at_;
    }
    if (!is_whole) return fraction(std::strtod(std::string(begin, text_.data() + at_).c_str(), nullptr));
    return Quotient{value, 1};
  }
  std::string quoted() {
    const char mark = text_[at_++];
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != mark) ++at_;
    if (at_ == text_.size()) fail("a quote");
    return std::string(text_.substr(begin, at_++ - begin));
  }

  MaybeQuotient call(std::string_view name) {
    std::vector<SizeArgument> items;
    while (!take(")")) {
      if (!items.empty() && !take(",")) fail("',' or ')'");
      items.push_back(item());
    }
    return apply(name, items);
  }
  SizeArgument item() {
    skip_spaces();
    if (at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"')) return {{}, quoted()};
    // Assumptions ("positive=True") say nothing that the ranges do not.
    const size_t begin = at_;
    if (!identifier().empty() && take("=") && !take("=")) {
      comparison();
      return {};
    }
    at_ = begin;
    return {comparison(), {}};
  }

  MaybeQuotient symbol(const std::vector<SizeArgument>& items) const {
    if (items.empty() || !items[0].quoted) fail("Symbol('name')");
    const std::string& name = *items[0].quoted;
    bool good = !name.empty() && letter(name[0]);
    for (const char c : name) good = good && (letter(c) || digit(c) || c == '.');
    if (!good) throw UserError(fmt::format("expression: '{}' is no name of a symbol", name.substr(0, 40)));
    return Quotient{Dim::symbol(name), 1};
  }
  static MaybeQuotient folded(const std::vector<SizeArgument>& items, MaybeQuotient start, MaybeQuotient (*step)(const MaybeQuotient&, const MaybeQuotient&)) {
    for (const SizeArgument& item : items) start = step(start, item.value);
    return start;
  }
  template <class Pick>
  static MaybeQuotient extreme(const std::vector<SizeArgument>& items, Pick pick) {
    MaybeQuotient result;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!whole(items[i].value)) return {};
      result = i == 0 ? items[i].value : MaybeQuotient(Quotient{pick(result->over, items[i].value->over), 1});
    }
    return result;
  }
  MaybeQuotient apply(std::string_view name, const std::vector<SizeArgument>& items) const {
    if (name == "Symbol") return symbol(items);
    if (name == "Mul") return folded(items, Quotient{1, 1}, multiply);
    if (name == "Add") return folded(items, Quotient{0, 1}, add);
    if (name == "Max") return extreme(items, [](const Dim& a, const Dim& b) { return max(a, b); });
    if (name == "Min") return extreme(items, [](const Dim& a, const Dim& b) { return min(a, b); });
    if (name == "Float" && !items.empty() && items[0].quoted) return fraction(std::strtod(items[0].quoted->c_str(), nullptr));
    if (items.size() == 1) {
      const MaybeQuotient& a = items[0].value;
      if (name == "Integer" || name == "ToFloat" || name == "Identity") return a;
      if (name == "CeilToInt" || name == "ceiling") return ceiling_of(a);
      if (name == "FloorToInt" || name == "TruncToInt" || name == "floor") return floor_of(a);
    }
    if (items.size() == 2) {
      const MaybeQuotient &a = items[0].value, &b = items[1].value;
      if (name == "FloorDiv" || name == "CleanDiv") return floor_divide(a, b);
      if (name == "CeilDiv") return ceiling_of(divide(a, b));
      if (name == "Mod" || name == "PythonMod") return modulo(a, b);
      if (name == "Rational" || name == "IntTrueDiv" || name == "FloatTrueDiv") return divide(a, b);
      if (name == "Pow" || name == "PowByNatural") return power(a, b);
    }
    if (items.size() == 3 && name == "ModularIndexing") return modulo(floor_divide(items[0].value, items[1].value), items[2].value);
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<Dim> parse_expression(std::string_view text) { return Parser(text).all(); }

std::optional<Dim> scaled_size(const Dim& size, double factor) {
  const MaybeQuotient scaled = floor_of(multiply(Quotient{size, 1}, fraction(factor)));
  return scaled ? std::optional(scaled->over) : std::nullopt;
}

}  // namespace stepgraph::pt2
