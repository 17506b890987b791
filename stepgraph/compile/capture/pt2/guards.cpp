// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/guards.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/zip_directory.h"

namespace stepgraph {

/// A number, a size, or an operator on its operands; truth is 0 or 1.
struct SizeGuards::Expression {
  std::string op;  ///< "number", "size", "stride", "offset", or Python's operator or function
  double real = 0;
  int64_t number = 0;  ///< of a whole number; the dim of a size or stride
  bool is_real = false;
  std::string input;
  std::vector<std::shared_ptr<const Expression>> operands;
};

namespace {

using Expression = SizeGuards::Expression;
using Pointer = std::shared_ptr<const Expression>;
constexpr int deepest = 100;
constexpr size_t longest = 10'000;

/// Python's functions, by what they are called here.
const std::map<std::string, std::string, std::less<>>& guard_functions() {
  static const std::map<std::string, std::string, std::less<>> names{{"max", "max"},
                                                                     {"torch.sym_max", "max"},
                                                                     {"min", "min"},
                                                                     {"torch.sym_min", "min"},
                                                                     {"math.trunc", "trunc"},
                                                                     {"int", "trunc"},
                                                                     {"math.floor", "floor"},
                                                                     {"math.ceil", "ceil"},
                                                                     {"round", "round"},
                                                                     {"torch.sym_float", "float"},
                                                                     {"float", "float"},
                                                                     {"math.sqrt", "sqrt"},
                                                                     {"torch._sym_sqrt", "sqrt"},
                                                                     {"torch.sym_sqrt", "sqrt"},
                                                                     {"abs", "abs"}};
  return names;
}

/// Recursive descent; null for what is not understood.
class Parser {
 public:
  Parser(std::string_view text, const std::set<std::string>& inputs) : text_(text), inputs_(inputs) {}
  Pointer whole() {
    Pointer found = disjunction();
    skip();
    return at_ == text_.size() ? found : nullptr;
  }

 private:
  struct Depth {
    explicit Depth(int& depth) : depth_(depth) { ++depth_; }
    ~Depth() { --depth_; }
    int& depth_;
  };

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool word_goes_on() const { return at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'); }
  bool take(std::string_view symbol) {
    skip();
    if (!text_.substr(at_).starts_with(symbol)) return false;
    const size_t before = at_;
    at_ += symbol.size();
    if (std::isalpha(static_cast<unsigned char>(symbol[0])) && word_goes_on()) return at_ = before, false;
    return true;
  }
  static Pointer made(std::string op, std::vector<Pointer> operands) {
    for (const Pointer& operand : operands)
      if (!operand) return nullptr;
    Expression expression;
    expression.op = std::move(op);
    expression.operands = std::move(operands);
    return std::make_shared<Expression>(std::move(expression));
  }

  Pointer disjunction() {
    const Depth depth(depth_);
    if (depth_ > deepest) return nullptr;
    Pointer left = conjunction();
    while (left && take("or")) left = made("or", {left, conjunction()});
    return left;
  }
  Pointer conjunction() {
    Pointer left = negation();
    while (left && take("and")) left = made("and", {left, negation()});
    return left;
  }
  Pointer negation() {
    if (!take("not")) return comparison();
    const Depth depth(depth_);
    return depth_ > deepest ? nullptr : made("not", {negation()});
  }
  /// a < b <= c is a < b and b <= c.
  Pointer comparison() {
    Pointer left = sum(), all;
    while (left) {
      std::string op;
      for (const char* candidate : {"==", "!=", "<=", ">=", "<", ">"})
        if (op.empty() && take(candidate)) op = candidate;
      if (op.empty()) return all ? all : left;
      const Pointer right = sum(), one = made(op, {left, right});
      all = all ? made("and", {all, one}) : one;
      left = right;
    }
    return nullptr;
  }
  Pointer sum() {
    Pointer left = product();
    while (left) {
      if (take("+")) left = made("+", {left, product()});
      else if (take("-")) left = made("-", {left, product()});
      else return left;
    }
    return left;
  }
  Pointer product() {
    Pointer left = sign();
    while (left) {
      if (take("//")) left = made("//", {left, sign()});
      else if (take("/"))
        left = made("/", {left, sign()});
      else if (take("%")) left = made("%", {left, sign()});
      else if (take("*")) left = made("*", {left, sign()});
      else return left;
    }
    return left;
  }
  Pointer sign() {
    const Depth depth(depth_);
    if (depth_ > deepest) return nullptr;
    if (take("-")) return made("negative", {sign()});
    Pointer base = atom();
    return base && take("**") ? made("**", {base, sign()}) : base;
  }
  Pointer atom() {
    if (take("(")) {
      Pointer inner = disjunction();
      return take(")") ? inner : nullptr;
    }
    if (take("L[")) return --at_, input_property();
    skip();
    size_t end = at_;
    while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '_' ||
                                  (text_[end] == '.' && end > at_ && std::isalpha(static_cast<unsigned char>(text_[at_])))))
      ++end;
    const std::string_view name = text_.substr(at_, end - at_);
    if (name == "True" || name == "False") return at_ = end, whole_number(name == "True");
    const auto function = guard_functions().find(name);
    return function == guard_functions().end() ? number() : (at_ = end, applied_function(function->second));
  }
  Pointer applied_function(const std::string& function) {
    if (!take("(")) return nullptr;
    const bool takes_many = function == "max" || function == "min";
    Pointer first = disjunction(), left = takes_many ? first : made(function, {first});
    while (takes_many && left && take(",")) left = made(function, {left, disjunction()});
    return take(")") ? left : nullptr;
  }
  /// ['x'], or [0], as a part of a name.
  std::optional<std::string> key() {
    skip();
    std::string found;
    if (at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"')) {
      const size_t end = text_.find(text_[at_], at_ + 1);
      if (end == std::string_view::npos) return std::nullopt;
      found = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
    } else {
      while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) found += text_[at_++];
    }
    if (found.empty() || !take("]")) return std::nullopt;
    for (char& c : found) c = std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '_';
    return found;
  }
  /// L['x']['a'].size()[0], and strides and offsets, which those of dense arrays have.
  Pointer input_property() {
    Expression made;
    while (take("[")) {
      const auto part = key();
      if (!part) return nullptr;
      made.input += (made.input.empty() ? "" : "_") + *part;
    }
    if (!inputs_.contains(made.input)) return nullptr;
    made.op = take(".size()") ? "size" : take(".stride()") ? "stride" : take(".storage_offset()") ? "offset" : "";
    if (made.op.empty()) return nullptr;
    if (made.op != "offset") {
      if (!take("[")) return nullptr;
      const Pointer dim = number();
      if (!dim || dim->is_real || !take("]")) return nullptr;
      made.number = dim->number;
    }
    return std::make_shared<Expression>(std::move(made));
  }
  static Pointer whole_number(int64_t value) {
    Expression made;
    made.op = "number";
    made.number = value;
    return std::make_shared<Expression>(std::move(made));
  }
  Pointer number() {
    skip();
    const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
    if (begin == end || !std::isdigit(static_cast<unsigned char>(*begin))) return nullptr;
    Expression made;
    made.op = "number";
    const auto whole = std::from_chars(begin, end, made.number);
    if (whole.ec != std::errc{}) return nullptr;
    at_ += static_cast<size_t>(whole.ptr - begin);
    if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e')) {
      const auto real = std::from_chars(begin, end, made.real);
      if (real.ec != std::errc{}) return nullptr;
      made.is_real = true;
      at_ = static_cast<size_t>(real.ptr - text_.data());
    }
    return word_goes_on() ? nullptr : std::make_shared<Expression>(std::move(made));
  }

  std::string_view text_;
  const std::set<std::string>& inputs_;
  size_t at_ = 0;
  int depth_ = 0;
};

using ReadSizes = std::map<std::pair<std::string, int64_t>, int64_t>;

/// A number of Python's.
struct GuardNumber {
  bool is_real = false;
  int64_t whole = 0;
  double real = 0;

  static GuardNumber of(int64_t value) { return {false, value, static_cast<double>(value)}; }
  static GuardNumber of(double value) { return {true, 0, value}; }
  bool truth() const { return is_real ? real != 0 : whole != 0; }
};
using MaybeNumber = std::optional<GuardNumber>;

MaybeNumber whole_power(int64_t base, int64_t exponent) {
  if (exponent < 0 || exponent > 64) return std::nullopt;
  int64_t value = 1;
  for (int64_t i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(value, base, &value)) return std::nullopt;
  return GuardNumber::of(value);
}

template <class T>
std::optional<bool> compared(const std::string& op, T a, T b) {
  if (op == "==") return a == b;
  if (op == "!=") return a != b;
  if (op == "<=") return a <= b;
  if (op == ">=") return a >= b;
  if (op == "<") return a < b;
  if (op == ">") return a > b;
  return std::nullopt;
}

MaybeNumber applied_to_reals(const std::string& op, double a, double b) {
  if (op == "+") return GuardNumber::of(a + b);
  if (op == "-") return GuardNumber::of(a - b);
  if (op == "*") return GuardNumber::of(a * b);
  if (op == "**") return GuardNumber::of(std::pow(a, b));
  if (b == 0) return std::nullopt;
  if (op == "/") return GuardNumber::of(a / b);
  if (op == "//") return GuardNumber::of(std::floor(a / b));
  return GuardNumber::of(a - b * std::floor(a / b));
}

MaybeNumber applied(const std::string& op, const GuardNumber& x, const GuardNumber& y) {
  const bool reals = x.is_real || y.is_real;
  if (const auto truth = reals ? compared(op, x.real, y.real) : compared(op, x.whole, y.whole)) return GuardNumber::of(int64_t{*truth});
  if (op == "max") return (reals ? x.real < y.real : x.whole < y.whole) ? y : x;
  if (op == "min") return (reals ? y.real < x.real : y.whole < x.whole) ? y : x;
  if (reals || op == "/") return applied_to_reals(op, x.real, y.real);
  const int64_t a = x.whole, b = y.whole;
  int64_t value = 0;
  if (op == "**") return b < 0 ? applied_to_reals(op, x.real, y.real) : whole_power(a, b);
  if (op == "+") return __builtin_add_overflow(a, b, &value) ? MaybeNumber() : GuardNumber::of(value);
  if (op == "-") return __builtin_sub_overflow(a, b, &value) ? MaybeNumber() : GuardNumber::of(value);
  if (op == "*") return __builtin_mul_overflow(a, b, &value) ? MaybeNumber() : GuardNumber::of(value);
  if (b == 0 || (a == INT64_MIN && b == -1)) return std::nullopt;
  // Python's: towards minus infinity, the remainder with the divisor's sign.
  const int64_t quotient = a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
  return GuardNumber::of(op == "//" ? quotient : a - quotient * b);
}

MaybeNumber applied(const std::string& function, const GuardNumber& x) {
  if (function == "not") return GuardNumber::of(int64_t{!x.truth()});
  if (function == "negative") return x.is_real ? GuardNumber::of(-x.real) : applied("-", GuardNumber::of(int64_t{0}), x);
  if (function == "float") return GuardNumber::of(x.real);
  if (function == "sqrt") return x.real < 0 ? MaybeNumber() : GuardNumber::of(std::sqrt(x.real));
  if (function == "abs") return x.is_real ? GuardNumber::of(std::fabs(x.real)) : x.whole == INT64_MIN ? MaybeNumber() : GuardNumber::of(std::abs(x.whole));
  if (!x.is_real) return x;
  const double rounded = function == "trunc"   ? std::trunc(x.real)
                         : function == "floor" ? std::floor(x.real)
                         : function == "ceil"  ? std::ceil(x.real)
                                               : std::nearbyint(x.real);
  constexpr double limit = 9.0e18;
  if (!(std::fabs(rounded) < limit)) return std::nullopt;
  return GuardNumber::of(static_cast<int64_t>(rounded));
}

MaybeNumber size_value_of(const Expression& expression, const SizeGuards::SizeOf& size, ReadSizes& read) {
  const auto one = [&](int64_t dim) {
    const std::optional<int64_t> found = size(expression.input, dim);
    if (found) read[{expression.input, dim}] = *found;
    return found;
  };
  if (expression.op == "offset") return GuardNumber::of(int64_t{0});
  const std::optional<int64_t> own = one(expression.number);
  if (!own) return std::nullopt;
  if (expression.op == "size") return GuardNumber::of(*own);
  int64_t stride = 1;
  for (int64_t dim = expression.number + 1; const auto next = one(dim); ++dim)
    if (__builtin_mul_overflow(stride, *next, &stride)) return std::nullopt;
  return GuardNumber::of(stride);
}

/// Nothing where a size is not known or the arithmetic has no value.
MaybeNumber value_of(const Expression& expression, const SizeGuards::SizeOf& size, ReadSizes& read) {
  if (expression.op == "number") return expression.is_real ? GuardNumber::of(expression.real) : GuardNumber::of(expression.number);
  if (expression.operands.empty()) return size_value_of(expression, size, read);
  const MaybeNumber a = value_of(*expression.operands[0], size, read);
  if (!a) return std::nullopt;
  if (expression.operands.size() == 1) return applied(expression.op, *a);
  if (expression.op == "and" && !a->truth()) return GuardNumber::of(int64_t{0});
  if (expression.op == "or" && a->truth()) return GuardNumber::of(int64_t{1});
  const MaybeNumber b = value_of(*expression.operands[1], size, read);
  if (!b) return std::nullopt;
  if (expression.op == "and" || expression.op == "or") return GuardNumber::of(int64_t{b->truth()});
  return applied(expression.op, *a, *b);
}

/// One that failed because a size made of others is 0 or 1, which is all that it excludes: "n - n//2 != 1", "3*(n//2) >= 2".
bool keeps_from_small(const Expression& guard, const SizeGuards::SizeOf& size) {
  if (guard.operands.size() != 2) return false;
  for (size_t side = 0; side < 2; ++side) {
    const Expression& bound = *guard.operands[1 - side];
    if (bound.op != "number" || bound.is_real) continue;
    const std::string &op = guard.op, more = side == 0 ? ">" : "<";
    const bool excludes =
        (op == "!=" && (bound.number == 0 || bound.number == 1)) || (op == more && bound.number <= 1) || (op == more + "=" && bound.number <= 2);
    ReadSizes read;
    const MaybeNumber value = value_of(*guard.operands[side], size, read);
    if (excludes && value && !value->is_real && (value->whole == 0 || value->whole == 1)) return true;
  }
  return false;
}

// ---- facts

using DimOf = std::function<std::optional<Dim>(std::string_view, int64_t)>;

/// The symbols of all sizes; nothing where a size is none of an input.
bool collect_symbols(const Expression& expression, const DimOf& size, std::set<std::string>& symbols) {
  if (expression.op == "size") {
    const auto dim = size(expression.input, expression.number);
    if (!dim) return false;
    for (const std::string& symbol : dim->symbols()) symbols.insert(symbol);
  }
  return expression.op != "stride" &&
         std::all_of(expression.operands.begin(), expression.operands.end(), [&](const Pointer& operand) { return collect_symbols(*operand, size, symbols); });
}

/// P such that value(n + P) - value(n) is one number for all n: sums, and quotients and remainders by numbers, of one symbol. 0: none is known.
int64_t period(const Expression& expression, const DimOf& size) {
  constexpr int64_t longest_period = 4096;
  const auto constant = [](const Expression& operand) { return operand.op == "number" && !operand.is_real ? operand.number : 0; };
  if (expression.op == "number") return expression.is_real ? 0 : 1;
  if (expression.op == "size") {
    const auto dim = size(expression.input, expression.number);
    return dim && (dim->is_constant() || dim->symbol_name()) ? 1 : 0;
  }
  if (expression.op == "negative") return period(*expression.operands[0], size);
  if (expression.operands.size() != 2) return 0;
  const Expression &a = *expression.operands[0], &b = *expression.operands[1];
  const int64_t left = period(a, size), right = period(b, size);
  int64_t found = 0;
  const auto is_number = [](const Expression& operand) { return operand.op == "number" || (operand.op == "negative" && operand.operands[0]->op == "number"); };
  if (expression.op == "+" || expression.op == "-") found = left && right ? std::lcm(left, right) : 0;
  if (expression.op == "*") found = is_number(a) ? right : is_number(b) ? left : 0;
  if ((expression.op == "//" || expression.op == "%") && constant(b) > 0 && constant(b) <= longest_period) found = left * constant(b);
  return found > longest_period ? 0 : found;
}

/// A comparison whose truth repeats says which remainders a size may have; an equation whose sides move apart has one solution.
std::optional<SizeFact> fact_of(const Expression& guard, const DimOf& size) {
  if (guard.operands.size() != 2 || !compared<int64_t>(guard.op, 0, 0)) return std::nullopt;
  std::set<std::string> symbols;
  if (!collect_symbols(guard, size, symbols) || symbols.size() != 1) return std::nullopt;
  const int64_t left = period(*guard.operands[0], size), right = period(*guard.operands[1], size), length = left && right ? std::lcm(left, right) : 0;
  if (length == 0 || length > 100'000) return std::nullopt;
  const auto at = [&](const Expression& expression, int64_t n) {
    ReadSizes read;
    return value_of(
        expression, [&](std::string_view input, int64_t dim) { return std::optional<int64_t>(evaluate(*size(input, dim), {{*symbols.begin(), n}})); }, read);
  };
  const auto difference = [&](int64_t n) {
    const MaybeNumber a = at(*guard.operands[0], n), b = at(*guard.operands[1], n);
    return a && b ? applied("-", *a, *b) : std::nullopt;
  };
  const MaybeNumber first = difference(0), next = difference(length);
  if (!first || !next) return std::nullopt;
  SizeFact fact{*symbols.begin(), 1, {}};
  if (first->whole != next->whole) {
    if (guard.op != "==") return std::nullopt;
    std::vector<int64_t> solutions;  // n + k * length, by the difference at n and how it grows
    const int64_t slope = next->whole - first->whole;
    for (int64_t n = 0; n < length; ++n) {
      const MaybeNumber found = difference(n);
      if (found && found->whole % slope == 0 && -(found->whole / slope) >= 0) solutions.push_back(n - found->whole / slope * length);
    }
    if (solutions.size() != 1) return std::nullopt;
    fact.only = solutions[0];
    return fact;
  }
  int64_t common = length;
  bool any = false;
  for (int64_t n = 0; n < length; ++n)
    if (const MaybeNumber truth = at(guard, n); truth && truth->truth()) common = std::gcd(common, n), any = true;
  if (!any || common <= 1) return std::nullopt;
  fact.multiple_of = common;
  return fact;
}

void collect_facts(const Expression& guard, const DimOf& size, std::vector<SizeFact>& facts) {
  if (guard.op == "and") {
    for (const Pointer& operand : guard.operands) collect_facts(*operand, size, facts);
  } else if (auto fact = fact_of(guard, size)) {
    facts.push_back(*std::move(fact));
  }
}

}  // namespace

SizeGuards::SizeGuards(const std::vector<std::string>& texts, const std::set<std::string>& inputs) {
  for (const std::string& text : texts) {
    Pointer expression = text.size() <= longest ? Parser(text, inputs).whole() : nullptr;
    if (!expression)
      throw UserError("the exported program assumes " + pt2::shown(text) +
                      ", which is not understood here; make its sizes follow from the inputs' by + - * // %, or fix them (no dynamic_shapes)");
    guards_.push_back({text, std::move(expression)});
  }
}

std::vector<SizeFact> SizeGuards::facts(const DimOf& size) const {
  std::vector<SizeFact> found;
  for (const Guard& guard : guards_) collect_facts(*guard.expression, size, found);
  return found;
}

void SizeGuards::check(const SizeOf& size) const {
  for (const Guard& guard : guards_) {
    ReadSizes read;
    const MaybeNumber value = value_of(*guard.expression, size, read);
    if (!value || value->truth() || keeps_from_small(*guard.expression, size)) continue;
    std::string sizes;
    bool apart = false;
    for (const auto& [where, found] : read) {
      apart |= found < 2;
      sizes += (sizes.empty() ? "" : ", ") + pt2::shown(where.first) + " dim " + std::to_string(where.second) + " is " + std::to_string(found);
    }
    if (!apart) throw UserError("the exported program assumes " + pt2::shown(guard.text) + ", but " + sizes + "; take other sizes, or export the model with these");
  }
}

}  // namespace stepgraph
