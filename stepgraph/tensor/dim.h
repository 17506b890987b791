// SPDX-License-Identifier: Apache-2.0
// Sizes that may be symbolic. A Dim is an integer expression in canonical form: a sum of terms, each an integer coefficient times a product of
// atoms; an atom is a named symbol, or floordiv / mod / min / max of Dims. Equal canonical forms mean equal values for every assignment of the
// symbols; the reverse does not always hold, so predicates have a third answer, Unknown.
#pragma once
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepgraph {

class TextScanner;

enum class Truth { False, True, Unknown };

class Dim {
 public:
  Dim() : Dim(0) {}
  Dim(int64_t constant);  // NOLINT: a size is a number in most code
  Dim(int constant) : Dim(static_cast<int64_t>(constant)) {}
  /// `name`: letters, digits, '_' and '.', starting with a letter or '_'.
  static Dim symbol(std::string name);

  bool is_constant() const { return expression_ == nullptr; }
  /// The value; InternalError if symbolic.
  int64_t constant() const;
  /// The symbol's name when the Dim is exactly one symbol.
  std::optional<std::string> symbol_name() const;
  std::vector<std::string> symbols() const;  ///< sorted, unique
  /// Replaces symbols for which `value` answers. Constant folding applies; floordiv or mod by zero is a UserError.
  Dim substitute(const std::function<std::optional<Dim>(const std::string&)>& value) const;

  /// Canonical text, which parse_dim reads back: "2*batch + 1", "floordiv(batch + 1, 2)", "max(0, min(4, 10 - 4*coord.data))".
  std::string text() const;

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  friend Dim floordiv(const Dim& a, const Dim& b);  ///< rounds towards minus infinity
  friend Dim ceildiv(const Dim& a, const Dim& b);   ///< floordiv(a + b - 1, b)
  friend Dim mod(const Dim& a, const Dim& b);       ///< sign of the divisor
  friend Dim min(const Dim& a, const Dim& b);
  friend Dim max(const Dim& a, const Dim& b);
  /// Structural: equality and a total order of canonical forms (not of values). Deterministic on every machine.
  friend bool operator==(const Dim& a, const Dim& b);
  friend std::strong_ordering operator<=>(const Dim& a, const Dim& b);
  /// Equal forms have equal hashes. For tables in memory: not the same on every machine.
  uint64_t hash() const;
  /// a / b when b divides every coefficient of a exactly as polynomials (constants and products of symbols), else nothing.
  friend std::optional<Dim> exact_quotient(const Dim& a, const Dim& b);

  struct Expression;  // in dim.cpp

 private:
  explicit Dim(std::shared_ptr<const Expression> expression);
  friend struct DimAccess;
  int64_t constant_ = 0;
  std::shared_ptr<const Expression> expression_;
};

/// All arithmetic on constants is overflow-checked: UserError "size overflows 64 bits".
Dim floordiv(const Dim& a, const Dim& b);
Dim ceildiv(const Dim& a, const Dim& b);
Dim mod(const Dim& a, const Dim& b);
Dim min(const Dim& a, const Dim& b);
Dim max(const Dim& a, const Dim& b);
std::optional<Dim> exact_quotient(const Dim& a, const Dim& b);
/// Parses canonical or free-form text; UserError with the position on bad input. Nesting is bounded.
Dim parse_dim(std::string_view text);
/// The size that comes next; what follows it stays.
Dim read_dim(TextScanner& scanner);

using Shape = std::vector<Dim>;
std::string text(const Shape& shape);   ///< "[batch, 64]"
Dim element_count(const Shape& shape);  ///< product; 1 for a scalar

/// What a symbol stands for. All are scalars fixed at launch, usable in Dims and as values.
enum class SymbolKind {
  Size,        ///< a size of an input
  Coordinate,  ///< this rank's coordinate on a mesh axis; the name is "coord." + axis
  Iteration,   ///< the iteration number of a Loop
  Derived,     ///< the value of an expression of others, under a name
};
struct Symbol {
  std::string name;
  SymbolKind kind = SymbolKind::Size;
  int64_t minimum = 0, maximum = INT64_MAX;  ///< inclusive
  int64_t multiple_of = 1;
  std::vector<int64_t> buckets = {};  ///< listed points, ascending; empty: none
  Dim definition = {};                ///< of a Derived one, in symbols declared before it; its range follows from theirs
  bool operator==(const Symbol&) const = default;
};
/// Values of symbols at run time.
using SymbolValues = std::map<std::string, int64_t, std::less<>>;
struct Bounds {
  int64_t minimum, maximum;  ///< inclusive; INT64_MIN / INT64_MAX mean unbounded
};

/// The symbols of a module, in order of declaration.
class SymbolTable {
 public:
  /// Declares or re-declares with an equal declaration; UserError for a differing one, an empty range or a bad name. The range of a Derived symbol is worked
  /// out; one that is stated must be the same.
  Dim declare(Symbol symbol);
  const Symbol* find(std::string_view name) const;
  const std::vector<Symbol>& all() const { return symbols_; }
  Bounds bounds(const Dim& dim) const;
  Truth equal(const Dim& a, const Dim& b) const;
  Truth less_or_equal(const Dim& a, const Dim& b) const;
  Truth divides(const Dim& divisor, const Dim& dim) const;
  /// floordiv(a, b) made exact where divides(b, a) is True, e.g. batch multiple of 2: floordiv(4*batch, 8) = floordiv(batch, 2).
  Dim simplify(const Dim& dim) const;
  /// Derived symbols replaced by what they stand for, until none is left.
  Dim expand(const Dim& dim) const;
  /// Gives each Derived symbol its value where all that it is made of have theirs.
  void add_derived(SymbolValues& values) const;
  /// "batch in [1, 4096]" for each symbol of the dim, for messages.
  std::string describe(const Dim& dim) const;
  bool operator==(const SymbolTable& other) const { return symbols_ == other.symbols_; }

 private:
  void check_definition(Symbol& symbol) const;
  std::vector<Symbol> symbols_;
  std::map<std::string, size_t, std::less<>> index_;
  bool has_derived_ = false;
};

/// UserError if a symbol has no value.
int64_t evaluate(const Dim& dim, const SymbolValues& values);
Dim substitute(const Dim& dim, const SymbolValues& values);

}  // namespace stepgraph
