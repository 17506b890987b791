// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/tensor/dim.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "stepgraph/base/error.h"
#include "stepgraph/base/hash.h"
#include "stepgraph/tensor/dim_expression.h"

namespace stepgraph {
namespace {

constexpr int64_t weight_max = 10'000;
constexpr int depth_max = 64;

[[noreturn]] void overflow() { throw UserError("size overflows 64 bits"); }
[[noreturn]] void too_large() { throw UserError("size expression is too large"); }

bool is_name(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto rest = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '.'; };
  return !text.empty() && text.size() <= 1000 && letter(text[0]) && std::all_of(text.begin(), text.end(), rest);
}

Dim atom_dim(AtomKind kind, std::vector<Dim> args) {
  Atom atom;
  atom.kind = kind;
  for (const Dim& arg : args) {
    const Dim::Expression* expression = DimAccess::expression(arg);
    atom.weight += expression != nullptr ? expression->weight : 1;
    atom.depth = std::max(atom.depth, expression != nullptr ? expression->depth : 0);
  }
  if (++atom.depth > depth_max || atom.weight > weight_max) too_large();
  atom.args = std::move(args);
  return dim_of(std::make_shared<const Atom>(std::move(atom)));
}

/// Sorts and adds up equal monomials.
Polynomial normalised(Polynomial terms) {
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return compare_monomials(a.factors, b.factors) < 0; });
  Polynomial result;
  for (Term& term : terms) {
    if (!result.empty() && compare_monomials(result.back().factors, term.factors) == 0)
      result.back().coefficient = checked_add(result.back().coefficient, term.coefficient);
    else
      result.push_back(std::move(term));
  }
  std::erase_if(result, [](const Term& term) { return term.coefficient == 0; });
  return result;
}

Polynomial product(const Polynomial& a, const Polynomial& b) {
  if (a.size() * b.size() > static_cast<size_t>(weight_max)) too_large();
  const auto less = [](const AtomPtr& x, const AtomPtr& y) { return compare(x, y) < 0; };
  Polynomial result;
  for (const Term& x : a) {
    for (const Term& y : b) {
      Term term{checked_multiply(x.coefficient, y.coefficient), {}};
      term.factors.reserve(x.factors.size() + y.factors.size());
      std::merge(x.factors.begin(), x.factors.end(), y.factors.begin(), y.factors.end(), std::back_inserter(term.factors), less);
      result.push_back(std::move(term));
    }
  }
  return normalised(std::move(result));
}

/// a / b for single terms, if exact.
std::optional<Term> term_quotient(const Term& a, const Term& b) {
  if (b.coefficient == 0 || (b.coefficient == -1 && a.coefficient == INT64_MIN) || a.coefficient % b.coefficient != 0) return std::nullopt;
  Term result{a.coefficient / b.coefficient, {}};
  size_t j = 0;
  for (const AtomPtr& factor : a.factors) {
    if (j < b.factors.size() && compare(factor, b.factors[j]) == 0)
      ++j;
    else
      result.factors.push_back(factor);
  }
  if (j < b.factors.size()) return std::nullopt;
  return result;
}

/// Moves the terms of `a` that the single-term divisor divides exactly into the quotient; of the constant its multiple of a positive constant divisor.
struct Split {
  Dim quotient, rest;
};
Split split_by(const Dim& a, const Dim& divisor) {
  const Polynomial b = DimAccess::polynomial(divisor);
  if (b.size() != 1) return {0, a};
  Polynomial quotient, rest;
  for (const Term& term : DimAccess::terms(a)) {
    if (auto exact = term_quotient(term, b[0])) {
      quotient.push_back(*std::move(exact));
    } else if (term.factors.empty() && divisor.is_constant()) {
      quotient.push_back({checked_floordiv(term.coefficient, b[0].coefficient), {}});
      rest.push_back({checked_mod(term.coefficient, b[0].coefficient), {}});
    } else {
      rest.push_back(term);
    }
  }
  return {DimAccess::dim(normalised(std::move(quotient))), DimAccess::dim(normalised(std::move(rest)))};
}

/// The greatest common divisor of `c` and the coefficients of all terms but the constant.
int64_t common_divisor(const Dim& a, int64_t c) {
  for (const Term& term : DimAccess::terms(a))
    if (!term.factors.empty() && term.coefficient != INT64_MIN)
      c = std::gcd(c, term.coefficient);
    else if (!term.factors.empty())
      c = std::gcd(c, int64_t{1} << 62);
  return c;
}

Dim without_constant(const Dim& a) { return a - constant_part(a); }

/// floordiv(a, c) for c > 1, a not constant.
Dim floordiv_by_constant(const Dim& a, int64_t c) {
  Split split = split_by(a, c);
  Dim rest = std::move(split.rest);
  if (rest.is_constant()) return split.quotient;  // in [0, c): its own quotient is 0
  if (const int64_t g = common_divisor(rest, c); g > 1) {
    const Dim reduced = *exact_quotient(without_constant(rest), g) + constant_part(rest) / g;
    return split.quotient + floordiv(reduced, c / g);
  }
  // floordiv(floordiv(x, d) + k, c) = floordiv(x + k*d, c*d)
  const AtomPtr inner = sole_atom(without_constant(rest));
  if (inner != nullptr && inner->kind == AtomKind::FloorDiv && inner->args[1].is_constant()) {
    const int64_t d = inner->args[1].constant(), k = constant_part(rest);
    int64_t both = 0, offset = 0;
    if (d > 0 && !__builtin_mul_overflow(c, d, &both) && !__builtin_mul_overflow(k, d, &offset))
      return split.quotient + floordiv(inner->args[0] + offset, both);
  }
  return split.quotient + atom_dim(AtomKind::FloorDiv, {rest, c});
}

/// In mod(a, c), a term k*mod(x, d) may become k*x when c divides k*d; coefficients are taken modulo c with their sign.
Dim reduced_modulo(const Dim& a, int64_t c) {
  Dim result = 0;
  for (const Term& term : DimAccess::terms(a)) {
    const int64_t k = term.factors.empty() ? checked_mod(term.coefficient, c) : term.coefficient % c;
    if (term.factors.size() == 1 && term.factors[0]->kind == AtomKind::Mod && term.factors[0]->args[1].is_constant()) {
      int64_t period = 0;
      if (!__builtin_mul_overflow(k, term.factors[0]->args[1].constant(), &period) && period % c == 0) {
        result = result + reduced_modulo(term.factors[0]->args[0], c) * k;
        continue;
      }
    }
    result = result + dim_of(Term{k, term.factors});
  }
  return result;
}

/// mod(a, c) for c > 1, a not constant.
Dim mod_by_constant(const Dim& a, int64_t c) {
  Dim rest = a;
  // Taking modulo c can bring up new terms, out of an inner mod: until nothing changes. Each round drops terms or shrinks coefficients.
  for (int round = 0; round < depth_max; ++round) {
    Dim next = reduced_modulo(rest, c);
    if (next == rest) break;
    rest = std::move(next);
  }
  if (rest.is_constant()) return checked_mod(rest.constant(), c);
  if (const int64_t g = common_divisor(rest, c); g > 1) {
    const int64_t k = constant_part(rest);
    const Dim reduced = *exact_quotient(without_constant(rest), g) + k / g;
    return mod(reduced, c / g) * g + k % g;
  }
  const AtomPtr inner = sole_atom(rest);
  if (inner != nullptr && inner->kind == AtomKind::Mod && inner->args[1].is_constant()) {
    const int64_t d = inner->args[1].constant();
    if (d > 0 && d <= c) return rest;
  }
  return atom_dim(AtomKind::Mod, {rest, c});
}

bool is_one_of(int64_t value, int64_t a, int64_t b) { return value == a || value == b; }

Dim extremum(AtomKind kind, const Dim& a, const Dim& b) {
  const bool smaller = kind == AtomKind::Min;
  std::vector<Dim> args;
  for (const Dim& arg : {a, b}) {
    const AtomPtr atom = sole_atom(arg);
    if (atom != nullptr && atom->kind == kind)
      args.insert(args.end(), atom->args.begin(), atom->args.end());
    else
      args.push_back(arg);
  }
  // Of arguments that differ by a constant one wins; that removes duplicates and folds constants as well.
  std::vector<std::pair<Dim, int64_t>> best;
  for (const Dim& arg : args) {
    const int64_t constant = constant_part(arg);
    const Dim variable = arg.is_constant() ? Dim(0) : without_constant(arg);
    const auto at = std::lower_bound(best.begin(), best.end(), variable, [](const auto& x, const Dim& y) { return x.first < y; });
    if (at == best.end() || at->first != variable)
      best.insert(at, {variable, constant});
    else
      at->second = smaller ? std::min(at->second, constant) : std::max(at->second, constant);
  }
  if (best.size() == 1) return best[0].first + best[0].second;
  args.clear();
  for (const auto& [variable, constant] : best) args.push_back(variable + constant);
  std::sort(args.begin(), args.end());
  return atom_dim(kind, std::move(args));
}

void collect_symbols(const Dim& dim, std::set<std::string>& names) {
  const Dim::Expression* expression = DimAccess::expression(dim);
  if (expression == nullptr) return;
  for (const Term& term : expression->terms) {
    for (const AtomPtr& factor : term.factors) {
      if (factor->kind == AtomKind::Symbol) names.insert(factor->name);
      for (const Dim& arg : factor->args) collect_symbols(arg, names);
    }
  }
}

Dim substituted_atom(const AtomPtr& atom, const std::function<std::optional<Dim>(const std::string&)>& value) {
  if (atom->kind == AtomKind::Symbol) return value(atom->name).value_or(dim_of(atom));
  std::vector<Dim> args;
  for (const Dim& arg : atom->args) args.push_back(arg.substitute(value));
  Dim result = args[0];
  for (size_t i = 1; i < args.size(); ++i) {
    switch (atom->kind) {
      case AtomKind::FloorDiv: result = floordiv(result, args[i]); break;
      case AtomKind::Mod: result = mod(result, args[i]); break;
      case AtomKind::Min: result = min(result, args[i]); break;
      case AtomKind::Max: result = max(result, args[i]); break;
      case AtomKind::Symbol: break;
    }
  }
  return result;
}

int64_t evaluate_atom(const Atom& atom, const SymbolValues& values) {
  if (atom.kind == AtomKind::Symbol) {
    const auto found = values.find(atom.name);
    if (found == values.end()) throw UserError("size symbol '" + atom.name + "' has no value");
    return found->second;
  }
  int64_t result = evaluate(atom.args[0], values);
  for (size_t i = 1; i < atom.args.size(); ++i) {
    const int64_t other = evaluate(atom.args[i], values);
    switch (atom.kind) {
      case AtomKind::FloorDiv: result = checked_floordiv(result, other); break;
      case AtomKind::Mod: result = checked_mod(result, other); break;
      case AtomKind::Min: result = std::min(result, other); break;
      case AtomKind::Max: result = std::max(result, other); break;
      case AtomKind::Symbol: break;
    }
  }
  return result;
}

}  // namespace

// ---- checked arithmetic ----

int64_t checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) overflow();
  return result;
}
int64_t checked_multiply(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) overflow();
  return result;
}
int64_t checked_floordiv(int64_t a, int64_t b) {
  if (b == 0) throw UserError("size: floordiv by zero");
  if (a == INT64_MIN && b == -1) overflow();
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
int64_t checked_mod(int64_t a, int64_t b) {
  if (b == 0) throw UserError("size: mod by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// ---- order and access ----

std::strong_ordering compare(const AtomPtr& a, const AtomPtr& b) { return a == b ? std::strong_ordering::equal : compare(*a, *b); }

std::strong_ordering compare(const Atom& a, const Atom& b) {
  if (const auto order = a.kind <=> b.kind; order != 0) return order;
  if (const auto order = a.name <=> b.name; order != 0) return order;
  if (const auto order = a.args.size() <=> b.args.size(); order != 0) return order;
  for (size_t i = 0; i < a.args.size(); ++i)
    if (const auto order = a.args[i] <=> b.args[i]; order != 0) return order;
  return std::strong_ordering::equal;
}

std::strong_ordering compare_monomials(const std::vector<AtomPtr>& a, const std::vector<AtomPtr>& b) {
  if (const auto order = b.size() <=> a.size(); order != 0) return order;
  for (size_t i = 0; i < a.size(); ++i)
    if (const auto order = compare(a[i], b[i]); order != 0) return order;
  return std::strong_ordering::equal;
}

std::strong_ordering operator<=>(const Dim& a, const Dim& b) {
  if (a.expression_ == b.expression_) return a.constant_ <=> b.constant_;
  if (a.is_constant() != b.is_constant()) return a.is_constant() ? std::strong_ordering::less : std::strong_ordering::greater;
  const Polynomial& x = a.expression_->terms;
  const Polynomial& y = b.expression_->terms;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (const auto order = compare_monomials(x[i].factors, y[i].factors); order != 0) return order;
    if (const auto order = x[i].coefficient <=> y[i].coefficient; order != 0) return order;
  }
  return x.size() <=> y.size();
}
bool operator==(const Dim& a, const Dim& b) { return (a <=> b) == 0; }

uint64_t Dim::hash() const {
  if (is_constant()) return mix_hash(1, static_cast<uint64_t>(constant_));
  uint64_t result = 2;
  for (const Term& term : expression_->terms) {
    result = mix_hash(result, static_cast<uint64_t>(term.coefficient));
    for (const AtomPtr& factor : term.factors) {
      result = mix_hash(mix_hash(result, static_cast<uint64_t>(factor->kind)), std::hash<std::string>()(factor->name));
      for (const Dim& arg : factor->args) result = mix_hash(result, arg.hash());
    }
  }
  return result;
}

Polynomial DimAccess::polynomial(const Dim& dim) {
  if (dim.expression_ != nullptr) return dim.expression_->terms;
  if (dim.constant_ == 0) return {};
  return {Term{dim.constant_, {}}};
}

Dim DimAccess::dim(Polynomial terms) {
  if (terms.empty()) return 0;
  if (terms.size() == 1 && terms[0].factors.empty()) return terms[0].coefficient;
  auto expression = std::make_shared<Dim::Expression>();
  for (const Term& term : terms) {
    ++expression->weight;
    for (const AtomPtr& factor : term.factors) {
      expression->weight += factor->weight;
      expression->depth = std::max(expression->depth, factor->depth);
    }
  }
  if (expression->weight > weight_max) too_large();
  expression->terms = std::move(terms);
  return Dim(std::move(expression));
}

Dim dim_of(const Term& term) { return DimAccess::dim(term.coefficient == 0 ? Polynomial{} : Polynomial{term}); }
Dim dim_of(const AtomPtr& atom) { return DimAccess::dim({Term{1, {atom}}}); }

AtomPtr sole_atom(const Dim& dim) {
  const Dim::Expression* expression = DimAccess::expression(dim);
  if (expression == nullptr || expression->terms.size() != 1) return nullptr;
  const Term& term = expression->terms[0];
  return term.coefficient == 1 && term.factors.size() == 1 ? term.factors[0] : nullptr;
}

int64_t constant_part(const Dim& dim) {
  const Dim::Expression* expression = DimAccess::expression(dim);
  if (expression == nullptr) return dim.constant();
  const Term& last = expression->terms.back();  // degree 0 sorts last
  return last.factors.empty() ? last.coefficient : 0;
}

// ---- Dim ----

Dim::Dim(int64_t constant) : constant_(constant) {}
Dim::Dim(std::shared_ptr<const Expression> expression) : expression_(std::move(expression)) {}

Dim Dim::symbol(std::string name) {
  if (!is_name(name)) throw UserError("size symbol: found name '" + name + "', wanted letters, digits, '_' and '.', starting with a letter or '_'");
  Atom atom;
  atom.name = std::move(name);
  return dim_of(std::make_shared<const Atom>(std::move(atom)));
}

int64_t Dim::constant() const {
  SG_CHECK(is_constant(), "size " + text() + " is symbolic");
  return constant_;
}

std::optional<std::string> Dim::symbol_name() const {
  const AtomPtr atom = sole_atom(*this);
  if (atom == nullptr || atom->kind != AtomKind::Symbol) return std::nullopt;
  return atom->name;
}

std::vector<std::string> Dim::symbols() const {
  if (const AtomPtr atom = sole_atom(*this); atom != nullptr && atom->kind == AtomKind::Symbol) return {atom->name};
  std::set<std::string> names;
  collect_symbols(*this, names);
  return {names.begin(), names.end()};
}

Dim Dim::substitute(const std::function<std::optional<Dim>(const std::string&)>& value) const {
  if (is_constant()) return *this;
  Dim result = 0;
  for (const Term& term : expression_->terms) {
    Dim part = term.coefficient;
    for (const AtomPtr& factor : term.factors) part = part * substituted_atom(factor, value);
    result = result + part;
  }
  return result;
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return checked_add(a.constant_, b.constant_);
  Polynomial terms = DimAccess::polynomial(a);
  const Polynomial more = DimAccess::polynomial(b);
  terms.insert(terms.end(), more.begin(), more.end());
  return DimAccess::dim(normalised(std::move(terms)));
}

Dim operator-(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) {
    int64_t result = 0;
    if (__builtin_sub_overflow(a.constant_, b.constant_, &result)) overflow();
    return result;
  }
  return a + b * -1;
}

Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return checked_multiply(a.constant_, b.constant_);
  return DimAccess::dim(product(DimAccess::polynomial(a), DimAccess::polynomial(b)));
}

Dim floordiv(const Dim& a, const Dim& b) {
  if (b.is_constant()) {
    const int64_t c = b.constant();
    if (a.is_constant()) return checked_floordiv(a.constant(), c);
    if (c == 0) throw UserError("size: floordiv by zero: " + a.text());
    if (is_one_of(c, 1, -1)) return a * c;
    return c < 0 ? floordiv_by_constant(a * -1, checked_multiply(c, -1)) : floordiv_by_constant(a, c);
  }
  if (auto exact = exact_quotient(a, b)) return *exact;
  Split split = split_by(a, b);
  return split.quotient + atom_dim(AtomKind::FloorDiv, {split.rest, b});
}

Dim ceildiv(const Dim& a, const Dim& b) { return floordiv(a + b - 1, b); }

Dim mod(const Dim& a, const Dim& b) {
  if (b.is_constant()) {
    const int64_t c = b.constant();
    if (a.is_constant()) return checked_mod(a.constant(), c);
    if (c == 0) throw UserError("size: mod by zero: " + a.text());
    if (is_one_of(c, 1, -1)) return 0;
    return c < 0 ? mod_by_constant(a * -1, checked_multiply(c, -1)) * -1 : mod_by_constant(a, c);
  }
  if (exact_quotient(a, b)) return 0;
  return atom_dim(AtomKind::Mod, {split_by(a, b).rest, b});
}

Dim min(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return std::min(a.constant(), b.constant());
  return extremum(AtomKind::Min, a, b);
}
Dim max(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return std::max(a.constant(), b.constant());
  return extremum(AtomKind::Max, a, b);
}

std::optional<Dim> exact_quotient(const Dim& a, const Dim& b) {
  const Polynomial divisor = DimAccess::polynomial(b);
  if (divisor.empty()) return std::nullopt;
  // Long division by the leading terms. The order of monomials is kept by products, so the leading term of the rest falls at each step.
  Polynomial quotient;
  Polynomial rest = DimAccess::polynomial(a);
  for (int step = 0; !rest.empty(); ++step) {
    auto term = term_quotient(rest[0], divisor[0]);
    if (!term || step >= 1000) return std::nullopt;
    Term negative = *term;
    negative.coefficient = checked_multiply(negative.coefficient, -1);
    Polynomial less = product({negative}, divisor);
    rest.insert(rest.end(), std::make_move_iterator(less.begin()), std::make_move_iterator(less.end()));
    rest = normalised(std::move(rest));
    quotient.push_back(*std::move(term));
  }
  return DimAccess::dim(normalised(std::move(quotient)));
}

Dim element_count(const Shape& shape) {
  Dim count = 1;
  for (const Dim& size : shape) count = count * size;
  return count;
}

int64_t evaluate(const Dim& dim, const SymbolValues& values) {
  const Dim::Expression* expression = DimAccess::expression(dim);
  if (expression == nullptr) return dim.constant();
  int64_t sum = 0;
  for (const Term& term : expression->terms) {
    int64_t part = term.coefficient;
    for (const AtomPtr& factor : term.factors) part = checked_multiply(part, evaluate_atom(*factor, values));
    sum = checked_add(sum, part);
  }
  return sum;
}

Dim substitute(const Dim& dim, const SymbolValues& values) {
  return dim.substitute([&](const std::string& name) -> std::optional<Dim> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return Dim(found->second);
  });
}

}  // namespace stepgraph
