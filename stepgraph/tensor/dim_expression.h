// SPDX-License-Identifier: Apache-2.0
// The inside of a Dim, shared by dim.cpp, dim_text.cpp and symbol_table.cpp, and by emit_sizes.cpp, which makes machine code of Dims.
//
// A polynomial is a list of terms in a monomial order (degree descending, then lexicographic), each monomial once, no coefficient 0. A factor that
// stands in a power is repeated. Everything is immutable and shared. Size and depth are bounded when expressions are built, so that recursion over
// them is safe and text stays finite.
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "stepgraph/tensor/dim.h"

namespace stepgraph {

enum class AtomKind : uint8_t { Symbol, FloorDiv, Mod, Min, Max };

struct Atom {
  AtomKind kind = AtomKind::Symbol;
  std::string name;       ///< of a symbol
  std::vector<Dim> args;  ///< of the others
  int64_t weight = 1;     ///< atoms in its tree
  int depth = 0;
};
using AtomPtr = std::shared_ptr<const Atom>;

struct Term {
  int64_t coefficient = 0;
  std::vector<AtomPtr> factors;  ///< sorted; empty in the constant term
};
using Polynomial = std::vector<Term>;

struct Dim::Expression {
  Polynomial terms;
  int64_t weight = 0;
  int depth = 0;
};

/// The terms of a Dim in place, of a constant as well.
class TermsView {
 public:
  explicit TermsView(const Dim& dim, const Polynomial* terms) {
    if (terms != nullptr) {
      begin_ = terms->data();
      end_ = begin_ + terms->size();
    } else if (const int64_t constant = dim.constant(); constant != 0) {
      constant_.coefficient = constant;
      begin_ = &constant_;
      end_ = begin_ + 1;
    }
  }
  TermsView(const TermsView&) = delete;
  TermsView& operator=(const TermsView&) = delete;
  const Term* begin() const { return begin_; }
  const Term* end() const { return end_; }

 private:
  Term constant_;
  const Term *begin_ = nullptr, *end_ = nullptr;
};

struct DimAccess {
  static const Dim::Expression* expression(const Dim& dim) { return dim.expression_.get(); }
  /// Of a constant as well: no term for 0.
  static Polynomial polynomial(const Dim& dim);
  static TermsView terms(const Dim& dim) { return TermsView(dim, dim.expression_ == nullptr ? nullptr : &dim.expression_->terms); }
  /// `terms` sorted and without zeros.
  static Dim dim(Polynomial terms);
};

std::strong_ordering compare(const Atom& a, const Atom& b);
std::strong_ordering compare(const AtomPtr& a, const AtomPtr& b);
std::strong_ordering compare_monomials(const std::vector<AtomPtr>& a, const std::vector<AtomPtr>& b);
Dim dim_of(const Term& term);
Dim dim_of(const AtomPtr& atom);
/// The atom when the Dim is exactly one, else null.
AtomPtr sole_atom(const Dim& dim);
/// The constant term.
int64_t constant_part(const Dim& dim);

int64_t checked_add(int64_t a, int64_t b);
int64_t checked_multiply(int64_t a, int64_t b);
int64_t checked_floordiv(int64_t a, int64_t b);  ///< UserError for b = 0
int64_t checked_mod(int64_t a, int64_t b);

}  // namespace stepgraph
