// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/ranged_indices.h"

#include <algorithm>
#include <string>

#include "stepgraph/program/index_bounds.h"

namespace stepgraph {
namespace {

class FormIndices {
 public:
  FormIndices(const Form& form, std::span<const Dim> sizes, const SymbolTable& symbols) : form_(form), sizes_(sizes), symbols_(symbols) {}

  Dim in_module(const Dim& dim) const {
    return dim.substitute([&](const std::string& symbol) -> std::optional<Dim> {
      for (size_t i = 0; i < sizes_.size(); ++i)
        if (form_symbol(static_cast<int>(i)) == symbol) return sizes_[i];
      return std::nullopt;
    });
  }
  /// Whatever the sizes are.
  bool runs() const {
    return std::all_of(form_.factors.begin(), form_.factors.end(),
                       [&](const Factor& factor) { return factor.block_of < 0 && symbols_.bounds(in_module(factor.size)).minimum > 0; });
  }
  /// Row by row through so many elements.
  bool walks_through(const Affine& at, const Dim& elements) const {
    Dim walked = 1;
    std::vector<AffineTerm> terms = at.terms;
    while (!terms.empty()) {
      const auto next = std::find_if(terms.begin(), terms.end(), [&](const AffineTerm& term) { return in_module(term.coefficient) == walked; });
      if (next == terms.end()) return false;
      walked = walked * in_module(form_.factors[static_cast<size_t>(next->factor)].size);
      terms.erase(next);
    }
    return at.constant == Dim(0) && walked == elements;
  }

 private:
  const Form& form_;
  std::span<const Dim> sizes_;
  const SymbolTable& symbols_;
};

}  // namespace

std::optional<std::vector<RangedIndex>> ranged_indices(const Form& form, std::span<const ValueId> operands, std::span<const Dim> sizes, const Graph& graph,
                                                       const SymbolTable& symbols) {
  const FormIndices indices(form, sizes, symbols);
  const bool runs = indices.runs();
  std::vector<RangedIndex> found;
  for (const IndexUse& use : index_uses(form)) {
    if (use.index < 0) return std::nullopt;
    const auto& load = std::get<LoadExpr>(form.exprs[static_cast<size_t>(use.index)].op);
    const ValueId value = operands[static_cast<size_t>(load.operand)];
    found.push_back({value, indices.in_module(use.bound), use.holds_all && runs && indices.walks_through(load.at, element_count(graph.type(value).shape))});
  }
  return found;
}

bool is_held(const RangedIndex& index, std::span<const RangedIndex> held, const SymbolTable& symbols) {
  return std::any_of(held.begin(), held.end(), [&](const RangedIndex& one) {
    return one.holds_all && one.value == index.value && symbols.less_or_equal(one.bound, index.bound) == Truth::True;
  });
}

}  // namespace stepgraph
