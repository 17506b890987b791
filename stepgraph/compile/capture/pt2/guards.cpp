// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/guards.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/zip_directory.h"

namespace stepgraph {

/// A number, a size, or an operator on its operands; truth is 0 or 1.
struct SizeGuards::Expression {
  std::string op;  ///< "number", "size", or Python's
  int64_t number = 0;
  std::string input;
  std::vector<std::shared_ptr<const Expression>> operands;
};

namespace {

using Expression = SizeGuards::Expression;
using Pointer = std::shared_ptr<const Expression>;
constexpr int deepest = 100;
constexpr size_t longest = 10'000;

/// Recursive descent; null for what is not understood.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}
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
    return std::make_shared<Expression>(Expression{std::move(op), 0, {}, std::move(operands)});
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
    for (const char* function : {"max", "min"}) {
      if (!take(function)) continue;
      if (!take("(")) return nullptr;
      Pointer left = disjunction();
      while (left && take(",")) left = made(function, {left, disjunction()});
      return take(")") ? left : nullptr;
    }
    if (take("L[")) return size();
    return number();
  }
  Pointer size() {
    skip();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return nullptr;
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return nullptr;
    Expression made{"size", 0, std::string(text_.substr(at_ + 1, end - at_ - 1)), {}};
    at_ = end + 1;
    if (!take("]") || !take(".size()") || !take("[")) return nullptr;
    const Pointer dim = number();
    if (!dim || !take("]")) return nullptr;
    made.number = dim->number;
    return std::make_shared<Expression>(std::move(made));
  }
  Pointer number() {
    skip();
    int64_t value = 0;
    const size_t begin = at_;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_)
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text_[at_] - '0', &value)) return nullptr;
    if (at_ == begin || word_goes_on() || (at_ < text_.size() && text_[at_] == '.')) return nullptr;
    return std::make_shared<Expression>(Expression{"number", value, {}, {}});
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

using ReadSizes = std::map<std::pair<std::string, int64_t>, int64_t>;

std::optional<int64_t> power(int64_t base, int64_t exponent) {
  if (exponent < 0 || exponent > 64) return std::nullopt;
  int64_t value = 1;
  for (int64_t i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(value, base, &value)) return std::nullopt;
  return value;
}

std::optional<int64_t> applied(const std::string& op, int64_t a, int64_t b) {
  int64_t value = 0;
  if (op == "==") return a == b;
  if (op == "!=") return a != b;
  if (op == "<=") return a <= b;
  if (op == ">=") return a >= b;
  if (op == "<") return a < b;
  if (op == ">") return a > b;
  if (op == "max") return std::max(a, b);
  if (op == "min") return std::min(a, b);
  if (op == "**") return power(a, b);
  if (op == "+") return __builtin_add_overflow(a, b, &value) ? std::nullopt : std::optional<int64_t>(value);
  if (op == "-") return __builtin_sub_overflow(a, b, &value) ? std::nullopt : std::optional<int64_t>(value);
  if (op == "*") return __builtin_mul_overflow(a, b, &value) ? std::nullopt : std::optional<int64_t>(value);
  if (b == 0 || (a == INT64_MIN && b == -1)) return std::nullopt;
  // Python's: towards minus infinity, the remainder with the divisor's sign.
  const int64_t quotient = a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
  return op == "//" ? quotient : a - quotient * b;
}

/// Nothing where a size is not known or the arithmetic has no value.
std::optional<int64_t> value_of(const Expression& expression, const SizeGuards::SizeOf& size, ReadSizes& read) {
  if (expression.op == "number") return expression.number;
  if (expression.op == "size") {
    const std::optional<int64_t> found = size(expression.input, expression.number);
    if (found) read[{expression.input, expression.number}] = *found;
    return found;
  }
  const std::optional<int64_t> a = value_of(*expression.operands[0], size, read);
  if (!a) return std::nullopt;
  if (expression.op == "not") return *a == 0;
  if (expression.op == "negative") return applied("-", 0, *a);
  if (expression.op == "and" && *a == 0) return 0;
  if (expression.op == "or" && *a != 0) return 1;
  const std::optional<int64_t> b = value_of(*expression.operands[1], size, read);
  if (!b || expression.op == "and" || expression.op == "or") return b ? std::optional<int64_t>(*b != 0) : std::nullopt;
  return applied(expression.op, *a, *b);
}

}  // namespace

SizeGuards::SizeGuards(const std::vector<std::string>& texts) {
  for (const std::string& text : texts)
    if (text.size() <= longest)
      if (Pointer expression = Parser(text).whole()) guards_.push_back({text, std::move(expression)});
}

void SizeGuards::check(const SizeOf& size) const {
  for (const Guard& guard : guards_) {
    ReadSizes read;
    const std::optional<int64_t> value = value_of(*guard.expression, size, read);
    if (!value || *value != 0) continue;
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
