// SPDX-License-Identifier: Apache-2.0
// What is known of expressions from the declared ranges of their symbols: bounds, divisibility, and the simplifications that follow.
#include <algorithm>
#include <numeric>

#include "stepgraph/base/error.h"
#include "stepgraph/tensor/dim.h"
#include "stepgraph/tensor/dim_expression.h"

namespace stepgraph {
namespace {

constexpr int64_t minus_infinity = INT64_MIN, plus_infinity = INT64_MAX;
using Wide = __int128;

// ---- intervals ----
// An end is an integer or infinite. Finite results beyond 64 bits are rounded outwards for one end and to the last finite value for the other.

bool is_infinite(int64_t x) { return x == minus_infinity || x == plus_infinity; }
int64_t low_end(Wide x) {
  if (x <= minus_infinity) return minus_infinity;
  return x >= plus_infinity ? plus_infinity - 1 : static_cast<int64_t>(x);
}
int64_t high_end(Wide x) {
  if (x >= plus_infinity) return plus_infinity;
  return x <= minus_infinity ? minus_infinity + 1 : static_cast<int64_t>(x);
}

Bounds add(Bounds a, Bounds b) {
  const bool no_low = a.minimum == minus_infinity || b.minimum == minus_infinity;
  const bool no_high = a.maximum == plus_infinity || b.maximum == plus_infinity;
  return {no_low ? minus_infinity : low_end(Wide{a.minimum} + b.minimum), no_high ? plus_infinity : high_end(Wide{a.maximum} + b.maximum)};
}

/// Products of ends, infinite ones included; 0 times infinity is 0, since an end stands for finite values only.
Wide end_product(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (is_infinite(a) || is_infinite(b)) return (a < 0) != (b < 0) ? Wide{minus_infinity} : Wide{plus_infinity};
  return Wide{a} * b;
}

Bounds multiply(Bounds a, Bounds b) {
  const Wide ends[] = {end_product(a.minimum, b.minimum), end_product(a.minimum, b.maximum), end_product(a.maximum, b.minimum),
                       end_product(a.maximum, b.maximum)};
  return {low_end(*std::min_element(std::begin(ends), std::end(ends))), high_end(*std::max_element(std::begin(ends), std::end(ends)))};
}

/// floor(x / y) at ends; y is not 0.
Wide end_quotient(int64_t x, int64_t y) {
  if (is_infinite(y)) return x == 0 || (x < 0) == (y < 0) ? 0 : -1;
  if (is_infinite(x)) return (x < 0) == (y < 0) ? Wide{plus_infinity} : Wide{minus_infinity};
  const Wide quotient = Wide{x} / y;
  return quotient - ((Wide{x} % y != 0 && (x < 0) != (y < 0)) ? 1 : 0);
}

/// The quotient is monotone in x, and in y for y of one sign, so its extremes are at the ends.
Bounds divide(Bounds a, Bounds b) {
  Wide low = Wide{plus_infinity}, high = Wide{minus_infinity};
  const auto over = [&](int64_t from, int64_t to) {
    if (from > to) return;
    for (const int64_t x : {a.minimum, a.maximum}) {
      for (const int64_t y : {from, to}) {
        low = std::min(low, end_quotient(x, y));
        high = std::max(high, end_quotient(x, y));
      }
    }
  };
  over(b.minimum, std::min<int64_t>(b.maximum, -1));
  over(std::max<int64_t>(b.minimum, 1), b.maximum);
  if (low > high) return {minus_infinity, plus_infinity};  // by zero only: no value at all
  return {low_end(low), high_end(high)};
}

Bounds modulo(Bounds a, Bounds b) {
  if (b.minimum == b.maximum && b.minimum > 0 && !is_infinite(a.minimum) && !is_infinite(a.maximum)) {
    const int64_t c = b.minimum, q = checked_floordiv(a.minimum, c);
    if (q == checked_floordiv(a.maximum, c)) return {a.minimum - c * q, a.maximum - c * q};
  }
  Bounds result{0, 0};
  if (b.minimum < 0) result.minimum = b.minimum == minus_infinity ? minus_infinity : b.minimum + 1;
  if (b.maximum > 0) result.maximum = b.maximum == plus_infinity ? plus_infinity : b.maximum - 1;
  // The remainder of a number of the divisor's sign is not further from 0 than the number.
  if (b.minimum > 0 && a.minimum >= 0) result.maximum = std::min(result.maximum, a.maximum);
  return result;
}

// ---- divisibility ----

/// The greatest number known to divide; 0 divides everything, that is: the value is 0.
int64_t known_divisor(const Dim& dim, const SymbolTable& symbols);

int64_t known_divisor(const Atom& atom, const SymbolTable& symbols) {
  switch (atom.kind) {
    case AtomKind::Symbol: {
      const Symbol* symbol = symbols.find(atom.name);
      return symbol == nullptr ? 1 : symbol->multiple_of;
    }
    case AtomKind::FloorDiv: {
      if (!atom.args[1].is_constant()) return 1;
      const int64_t c = atom.args[1].constant(), inner = known_divisor(atom.args[0], symbols);
      return c > 0 && inner % c == 0 ? inner / c : 1;
    }
    case AtomKind::Mod:
    case AtomKind::Min:
    case AtomKind::Max: {
      int64_t result = 0;
      for (const Dim& arg : atom.args) result = std::gcd(result, known_divisor(arg, symbols));
      return result;
    }
  }
  return 1;
}

int64_t known_divisor(const std::vector<AtomPtr>& factors, const SymbolTable& symbols) {
  int64_t result = 1;
  for (const AtomPtr& factor : factors) {
    int64_t next = 0;
    if (!__builtin_mul_overflow(result, known_divisor(*factor, symbols), &next)) result = next;
  }
  return result;
}

int64_t known_divisor(const Term& term, const SymbolTable& symbols) {
  // 2^63 is not an int64_t; 2^62 divides it too.
  const int64_t magnitude = term.coefficient == INT64_MIN ? int64_t{1} << 62 : std::abs(term.coefficient);
  const int64_t rest = known_divisor(term.factors, symbols);
  int64_t result = 0;
  return __builtin_mul_overflow(magnitude, rest, &result) ? std::max(magnitude, rest) : result;
}

int64_t known_divisor(const Dim& dim, const SymbolTable& symbols) {
  int64_t result = 0;
  for (const Term& term : DimAccess::terms(dim)) result = std::gcd(result, known_divisor(term, symbols));
  return result;
}

// ---- bounds ----

Bounds interval(const Dim& dim, const SymbolTable& symbols);

Bounds interval(const Atom& atom, const SymbolTable& symbols) {
  if (atom.kind == AtomKind::Symbol) {
    const Symbol* symbol = symbols.find(atom.name);
    if (symbol == nullptr) return {minus_infinity, plus_infinity};
    Bounds result{symbol->minimum, symbol->maximum};
    const int64_t m = symbol->multiple_of;
    if (m == 1) return result;
    if (result.minimum != minus_infinity) result.minimum = low_end(-(end_quotient(-std::max(result.minimum, -plus_infinity), m) * m));
    if (result.maximum != plus_infinity) result.maximum = high_end(end_quotient(result.maximum, m) * m);
    return result;
  }
  Bounds result = interval(atom.args[0], symbols);
  for (size_t i = 1; i < atom.args.size(); ++i) {
    const Bounds other = interval(atom.args[i], symbols);
    switch (atom.kind) {
      case AtomKind::FloorDiv: result = divide(result, other); break;
      case AtomKind::Mod: result = modulo(result, other); break;
      case AtomKind::Min: result = {std::min(result.minimum, other.minimum), std::min(result.maximum, other.maximum)}; break;
      case AtomKind::Max: result = {std::max(result.minimum, other.minimum), std::max(result.maximum, other.maximum)}; break;
      case AtomKind::Symbol: break;
    }
  }
  return result;
}

Bounds interval(const Term& term, const SymbolTable& symbols) {
  Bounds result{1, 1};
  const auto& factors = term.factors;
  for (size_t i = 0; i < factors.size();) {
    const Bounds base = interval(*factors[i], symbols);
    size_t power = 0;
    Bounds product{1, 1};
    for (; i < factors.size() && (power == 0 || compare(factors[i - 1], factors[i]) == 0); ++i, ++power) product = multiply(product, base);
    if (power % 2 == 0) product.minimum = std::max<int64_t>(product.minimum, 0);
    result = multiply(result, product);
  }
  // The coefficient last and apart from the ends' rules: INT64_MIN as a coefficient is a number, not an infinity.
  if (term.coefficient == INT64_MIN) return multiply(multiply(result, {int64_t{1} << 62, int64_t{1} << 62}), {-2, -2});
  if (term.coefficient == INT64_MAX) return add(multiply(result, {INT64_MAX - 1, INT64_MAX - 1}), result);
  return multiply(result, {term.coefficient, term.coefficient});
}

Bounds interval(const Dim& dim, const SymbolTable& symbols) {
  if (dim.is_constant()) {
    const int64_t c = dim.constant();
    return {c == INT64_MAX ? c - 1 : c, c == INT64_MIN ? c + 1 : c};
  }
  Bounds result{0, 0};
  for (const Term& term : DimAccess::terms(dim)) result = add(result, interval(term, symbols));
  return result;
}

/// A lower bound that also follows an atom's relation to its arguments: min(a, b) is at most a, c*floordiv(a, c) is between a - c + 1 and a.
/// Each such step removes one atom in favour of its arguments; `budget` bounds the steps of the whole search.
class LowerBound {
 public:
  /// `choices_first`: what is one of its arguments, whichever, before a bound that serves all of them is chosen; neither order is always the better.
  LowerBound(const SymbolTable& symbols, bool choices_first) : symbols_(symbols), choices_first_(choices_first) {}

  int64_t of(const Dim& dim) {
    int64_t best = interval(dim, symbols_).minimum;
    if (dim.is_constant()) return best;
    const Polynomial terms = DimAccess::polynomial(dim);
    const auto is_atom = [](const Term& term) { return term.factors.size() == 1 && term.factors[0]->kind != AtomKind::Symbol; };
    auto next = choices_first_ ? std::find_if(terms.begin(), terms.end(), [&](const Term& term) { return is_atom(term) && is_choice(term); }) : terms.end();
    if (next == terms.end()) next = std::find_if(terms.begin(), terms.end(), is_atom);
    if (next == terms.end() || --budget_ < 0) return best;
    return std::max(best, through(dim, *next));  // the others follow in the recursion
  }

 private:
  /// Bounded by all of its arguments, not by any of them.
  static bool is_choice(const Term& term) {
    const AtomKind kind = term.factors[0]->kind;
    return (kind == AtomKind::Min && term.coefficient > 0) || (kind == AtomKind::Max && term.coefficient < 0);
  }
  int64_t through(const Dim& dim, const Term& term) {
    const Atom& atom = *term.factors[0];
    const Dim rest = dim - dim_of(term);
    const int64_t k = term.coefficient;
    switch (atom.kind) {
      case AtomKind::Min: return over_arguments(rest, k, atom.args, k > 0);
      case AtomKind::Max: return over_arguments(rest, k, atom.args, k < 0);
      case AtomKind::FloorDiv: {
        if (!atom.args[1].is_constant() || atom.args[1].constant() <= 0) return of_opaque(dim);
        const int64_t c = atom.args[1].constant();
        const Dim scaled = k < 0 ? atom.args[0] : atom.args[0] - (c - 1);
        const int64_t bound = of(rest * c + scaled * k);
        return bound == minus_infinity ? bound : low_end(-end_quotient(-std::max(bound, -plus_infinity), c));
      }
      case AtomKind::Mod: {
        // At most its first argument, if that is not negative and the divisor positive.
        if (k > 0 || interval(atom.args[0], symbols_).minimum < 0 || interval(atom.args[1], symbols_).minimum <= 0) return of_opaque(dim);
        return std::max(of(rest + atom.args[0] * k), of_opaque(dim));
      }
      case AtomKind::Symbol: break;
    }
    return minus_infinity;
  }

  /// The value is that of one argument, unknown which (`all`: the weakest counts), or not beyond any of them (the best counts).
  int64_t over_arguments(const Dim& rest, int64_t k, const std::vector<Dim>& args, bool all) {
    int64_t result = all ? plus_infinity : minus_infinity;
    for (const Dim& arg : args) {
      const int64_t bound = of(rest + arg * k);
      result = all ? std::min(result, bound) : std::max(result, bound);
    }
    return result;
  }

  int64_t of_opaque(const Dim& dim) { return interval(dim, symbols_).minimum; }

  const SymbolTable& symbols_;
  bool choices_first_;
  int budget_ = 100;
};

int64_t lower_bound(const Dim& dim, const SymbolTable& symbols) {
  // A product on the way may overflow where the bound itself would not: then the plain interval is all that is known.
  try {
    return std::max(LowerBound(symbols, false).of(dim), LowerBound(symbols, true).of(dim));
  } catch (const UserError&) {
    return interval(dim, symbols).minimum;
  }
}

// ---- simplification ----

/// floordiv(k*t, c) for a term known to be divisible by c, as p*floordiv(t, q) in lowest terms: one form however it came about.
Dim exact_part(const Term& term, int64_t c) {
  const int64_t g = std::gcd(term.coefficient, c);
  const Dim t = dim_of(Term{1, term.factors});
  return floordiv(t, c / g) * (term.coefficient / g);
}

Dim simplified_floordiv(const Dim& a, const Dim& b, const SymbolTable& symbols) {
  if (!b.is_constant() || b.constant() <= 0) return floordiv(a, b);
  const int64_t c = b.constant();
  Dim exact = 0, rest = 0;
  for (const Term& term : DimAccess::terms(a)) {
    const bool divides = term.coefficient != INT64_MIN && known_divisor(term, symbols) % c == 0;
    if (divides && !term.factors.empty())
      exact = exact + exact_part(term, c);
    else
      rest = rest + dim_of(term);
  }
  const Dim quotient = floordiv(rest, b);
  const Bounds bounds = symbols.bounds(quotient);
  return exact + (bounds.minimum == bounds.maximum ? Dim(bounds.minimum) : quotient);
}

Dim simplified_mod(const Dim& a, const Dim& b, const SymbolTable& symbols) {
  if (!b.is_constant() || b.constant() <= 0) return mod(a, b);
  const int64_t c = b.constant();
  Dim rest = 0;
  for (const Term& term : DimAccess::terms(a))
    if (known_divisor(term, symbols) % c != 0) rest = rest + dim_of(term);
  const Bounds quotient = symbols.bounds(floordiv(rest, b));
  return quotient.minimum == quotient.maximum ? rest - checked_multiply(quotient.minimum, c) : mod(rest, b);
}

Dim simplified_extremum(const Atom& atom, const std::vector<Dim>& args, const SymbolTable& symbols) {
  const bool smaller = atom.kind == AtomKind::Min;
  std::vector<Dim> kept;
  for (const Dim& arg : args) {
    const auto beaten_by = [&](const Dim& other) { return lower_bound(smaller ? arg - other : other - arg, symbols) >= 0; };
    if (std::any_of(kept.begin(), kept.end(), beaten_by)) continue;
    std::erase_if(kept, [&](const Dim& other) { return lower_bound(smaller ? other - arg : arg - other, symbols) >= 0; });
    kept.push_back(arg);
  }
  Dim result = kept[0];
  for (size_t i = 1; i < kept.size(); ++i) result = smaller ? min(result, kept[i]) : max(result, kept[i]);
  return result;
}

Dim simplified_atom(const AtomPtr& atom, const SymbolTable& symbols) {
  if (atom->kind == AtomKind::Symbol) {
    const Bounds bounds = interval(*atom, symbols);
    return bounds.minimum == bounds.maximum ? Dim(bounds.minimum) : dim_of(atom);
  }
  std::vector<Dim> args;
  for (const Dim& arg : atom->args) args.push_back(symbols.simplify(arg));
  switch (atom->kind) {
    case AtomKind::FloorDiv: return simplified_floordiv(args[0], args[1], symbols);
    case AtomKind::Mod: return simplified_mod(args[0], args[1], symbols);
    case AtomKind::Min:
    case AtomKind::Max: return simplified_extremum(*atom, args, symbols);
    case AtomKind::Symbol: break;
  }
  return dim_of(atom);
}

/// In a sum, k*floordiv(t, c)*u with t divisible by c loses what k and c have in common: 2*floordiv(batch, 2) is batch.
Dim with_exact_terms(const Dim& dim, const SymbolTable& symbols) {
  Dim result = 0;
  for (const Term& term : DimAccess::polynomial(dim)) {
    Dim product = 1;
    int64_t coefficient = term.coefficient;
    for (const AtomPtr& factor : term.factors) {
      const int64_t c = factor->kind == AtomKind::FloorDiv && factor->args[1].is_constant() ? factor->args[1].constant() : 0;
      if (c > 0 && coefficient != INT64_MIN && known_divisor(factor->args[0], symbols) % c == 0) {
        const int64_t g = std::gcd(coefficient, c);
        product = product * floordiv(factor->args[0], c / g);
        coefficient /= g;
      } else {
        product = product * dim_of(factor);
      }
    }
    result = result + product * coefficient;
  }
  return result;
}

}  // namespace

void SymbolTable::check_definition(Symbol& symbol) const {
  const std::string where = "symbol " + symbol.name + ": ";
  for (const std::string& name : symbol.definition.symbols())
    if (find(name) == nullptr) throw UserError(where + "its definition " + symbol.definition.text() + " holds '" + name + "', which is not declared before it");
  const Bounds range = bounds(symbol.definition);
  const bool stated = symbol.minimum != 0 || symbol.maximum != INT64_MAX;
  if (stated && (symbol.minimum != range.minimum || symbol.maximum != range.maximum))
    throw UserError(where + "found the range [" + std::to_string(symbol.minimum) + ", " + std::to_string(symbol.maximum) + "], its definition gives [" +
                    std::to_string(range.minimum) + ", " + std::to_string(range.maximum) + "]");
  symbol.minimum = range.minimum;
  symbol.maximum = range.maximum;
}

Dim SymbolTable::declare(Symbol symbol) {
  Dim result = Dim::symbol(symbol.name);
  const std::string where = "symbol " + symbol.name + ": ";
  if (symbol.kind == SymbolKind::Derived) check_definition(symbol);
  if (symbol.minimum > symbol.maximum) throw UserError(where + "empty range [" + std::to_string(symbol.minimum) + ", " + std::to_string(symbol.maximum) + "]");
  if (symbol.multiple_of < 1) throw UserError(where + "found multiple of " + std::to_string(symbol.multiple_of) + ", wanted at least 1");
  for (size_t i = 0; i < symbol.buckets.size(); ++i) {
    const int64_t bucket = symbol.buckets[i];
    if (i > 0 && bucket <= symbol.buckets[i - 1]) throw UserError(where + "buckets are not ascending at " + std::to_string(bucket));
    if (bucket < symbol.minimum || bucket > symbol.maximum || bucket % symbol.multiple_of != 0)
      throw UserError(where + "bucket " + std::to_string(bucket) + " is not in its range");
  }
  if (const Symbol* known = find(symbol.name)) {
    if (*known != symbol) throw UserError(where + "declared twice with different ranges");
    return result;
  }
  const int64_t m = symbol.multiple_of;
  if (Wide{symbol.maximum} - checked_mod(symbol.maximum, m) < symbol.minimum)
    throw UserError(where + "no multiple of " + std::to_string(m) + " in [" + std::to_string(symbol.minimum) + ", " + std::to_string(symbol.maximum) + "]");
  has_derived_ = has_derived_ || symbol.kind == SymbolKind::Derived;
  index_.emplace(symbol.name, symbols_.size());
  symbols_.push_back(std::move(symbol));
  return result;
}

const Symbol* SymbolTable::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &symbols_[found->second];
}

Dim SymbolTable::expand(const Dim& dim) const {
  if (!has_derived_) return dim;
  // A definition holds symbols of before it only, so this ends.
  return dim.substitute([&](const std::string& name) -> std::optional<Dim> {
    const Symbol* symbol = find(name);
    if (symbol == nullptr || symbol->kind != SymbolKind::Derived) return std::nullopt;
    return expand(symbol->definition);
  });
}

void SymbolTable::add_derived(SymbolValues& values) const {
  for (const Symbol& symbol : symbols_) {
    if (symbol.kind != SymbolKind::Derived) continue;
    const std::vector<std::string> parts = symbol.definition.symbols();
    if (std::all_of(parts.begin(), parts.end(), [&](const std::string& part) { return values.count(part) > 0; }))
      values[symbol.name] = evaluate(symbol.definition, values);
  }
}

Bounds SymbolTable::bounds(const Dim& dim) const {
  if (dim.is_constant()) return {dim.constant(), dim.constant()};
  Bounds result = interval(dim, *this);
  if (const AtomPtr atom = sole_atom(dim); atom != nullptr && atom->kind == AtomKind::Symbol) return result;
  result.minimum = std::max(result.minimum, lower_bound(dim, *this));
  const int64_t negative = [&] {
    try {
      return lower_bound(dim * -1, *this);
    } catch (const UserError&) {  // a coefficient of INT64_MIN
      return minus_infinity;
    }
  }();
  if (negative != minus_infinity) result.maximum = std::min(result.maximum, -negative);
  return result;
}

Truth SymbolTable::equal(const Dim& a, const Dim& b) const {
  if (a == b) return Truth::True;
  const Dim difference = simplify(a - b);
  if (difference.is_constant()) return difference.constant() == 0 ? Truth::True : Truth::False;
  const Bounds bounds = this->bounds(difference);
  if (bounds.minimum > 0 || bounds.maximum < 0) return Truth::False;
  if (bounds.minimum == 0 && bounds.maximum == 0) return Truth::True;
  const int64_t constant = constant_part(difference);
  if (constant != 0) {
    const int64_t divisor = known_divisor(difference - constant, *this);
    if (divisor != 0 && constant % divisor != 0) return Truth::False;
  }
  return Truth::Unknown;
}

Truth SymbolTable::less_or_equal(const Dim& a, const Dim& b) const {
  const Bounds bounds = this->bounds(simplify(b - a));
  if (bounds.minimum >= 0) return Truth::True;
  return bounds.maximum < 0 ? Truth::False : Truth::Unknown;
}

Truth SymbolTable::divides(const Dim& divisor, const Dim& dim) const {
  const Dim d = simplify(divisor), value = simplify(dim);
  if (d == Dim(0)) return equal(value, 0);
  if (exact_quotient(value, d)) return Truth::True;
  if (!d.is_constant()) return Truth::Unknown;
  const int64_t c = d.constant();
  if (c == INT64_MIN) return Truth::Unknown;
  if (known_divisor(value, *this) % c == 0) return Truth::True;
  const int64_t constant = constant_part(value);
  const int64_t common = std::gcd(c, known_divisor(value - constant, *this));
  return constant % common != 0 ? Truth::False : Truth::Unknown;
}

Dim SymbolTable::simplify(const Dim& dim) const {
  if (dim.is_constant()) return dim;
  Dim result = 0;
  for (const Term& term : DimAccess::terms(dim)) {
    Dim part = term.coefficient;
    for (const AtomPtr& factor : term.factors) part = part * simplified_atom(factor, *this);
    result = result + part;
  }
  return with_exact_terms(result, *this);
}

std::string SymbolTable::describe(const Dim& dim) const {
  std::string result;
  for (const std::string& name : dim.symbols()) {
    if (!result.empty()) result += ", ";
    const Symbol* symbol = find(name);
    if (symbol == nullptr) {
      result += name + " not declared";
      continue;
    }
    const bool bounded = symbol->maximum != INT64_MAX;
    result += name + " in [" + (symbol->minimum == INT64_MIN ? "-inf" : std::to_string(symbol->minimum)) + ", " +
              (bounded ? std::to_string(symbol->maximum) : "inf") + "]";
    if (symbol->multiple_of > 1) result += " multiple of " + std::to_string(symbol->multiple_of);
  }
  return result;
}

}  // namespace stepgraph
