// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/element.h"

#include <algorithm>
#include <utility>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

/// Strides of a dense row-major tensor, in elements. Of one without elements also none is 0: every index has its own number.
std::vector<Dim> strides_of(const Shape& shape) {
  std::vector<Dim> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = shape[d] == Dim(0) ? strides[d] : strides[d] * shape[d];
  return strides;
}

/// The first dim, major to minor, of which `coefficient` is a multiple of the stride.
std::optional<std::pair<size_t, Dim>> dim_of_coefficient(const Dim& coefficient, const Shape& shape, std::span<const Dim> strides) {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == Dim(1)) continue;
    if (auto quotient = exact_quotient(coefficient, strides[d])) return std::pair{d, *quotient};
  }
  return std::nullopt;
}

/// Whether the terms of an index count through exactly [0, size): each is a whole number of the next, and together they are the size. Of constants also less.
bool stays_within(const Affine& index, const Dim& size, std::span<const Factor> factors) {
  bool constant = index.constant.is_constant() && size.is_constant();
  for (const AffineTerm& term : index.terms) constant = constant && term.coefficient.is_constant() && factors[static_cast<size_t>(term.factor)].size.is_constant();
  if (constant) {
    int64_t least = index.constant.constant(), most = least;
    for (const AffineTerm& term : index.terms) {
      const int64_t reach = term.coefficient.constant() * std::max<int64_t>(factors[static_cast<size_t>(term.factor)].size.constant() - 1, 0);
      (reach < 0 ? least : most) += reach;
    }
    return least >= 0 && most < size.constant();
  }
  const Dim count = counted(index, factors);
  return count != Dim(0) && (count == size || exact_quotient(size, count).has_value());
}

}  // namespace

Dim counted(const Affine& index, std::span<const Factor> factors) {
  if (index.constant != Dim(0)) return 0;
  Dim count = 1;
  std::vector<AffineTerm> left = index.terms;
  while (!left.empty()) {
    const auto next = std::find_if(left.begin(), left.end(), [&](const AffineTerm& term) { return term.coefficient == count; });
    if (next == left.end()) return 0;
    count = count * factors[static_cast<size_t>(next->factor)].size;
    left.erase(next);
  }
  return count;
}

Affine address_of_index(std::span<const Affine> index, std::span<const Dim> strides) {
  Affine address;
  for (size_t d = 0; d < strides.size(); ++d) address = address + index[d] * strides[d];
  return address;
}

Affine number_of_index(std::span<const Affine> index, const Shape& shape) { return address_of_index(index, strides_of(shape)); }

std::optional<std::vector<Affine>> index_of_number(const Affine& number, const Shape& shape, std::span<const Factor> factors, std::optional<FactorSplit>& split) {
  const std::vector<Dim> strides = strides_of(shape);
  std::vector<Affine> index(shape.size());
  Dim rest = number.constant;
  for (size_t d = 0; d < shape.size() && rest != Dim(0); ++d) {
    if (shape[d] == Dim(1)) continue;
    if (rest.is_constant() && strides[d].is_constant()) {
      index[d].constant = floordiv(rest, strides[d]);
      rest = mod(rest, strides[d]);
    } else if (auto quotient = exact_quotient(rest, strides[d])) {
      index[d].constant = *quotient;
      rest = 0;
    }
  }
  if (rest != Dim(0)) return std::nullopt;
  for (const AffineTerm& term : number.terms) {
    const auto place = dim_of_coefficient(term.coefficient, shape, strides);
    if (!place) return std::nullopt;
    const auto& [d, coefficient] = *place;
    const Dim& size = factors[static_cast<size_t>(term.factor)].size;
    // A factor that walks beyond its dim: what is inside of the dim is one factor, what is outside another.
    const Dim step = coefficient.is_constant() && coefficient.constant() < 0 ? Dim(-coefficient.constant()) : coefficient;
    if (const auto inner = exact_quotient(shape[d], step); inner && size != *inner && exact_quotient(size, *inner)) {
      split = FactorSplit{term.factor, *inner};
      return std::nullopt;
    }
    index[d] = index[d] + Affine{0, {{term.factor, coefficient}}};
  }
  for (size_t d = 0; d < shape.size(); ++d)
    if (!stays_within(index[d], shape[d], factors)) return std::nullopt;
  return index;
}

}  // namespace stepgraph
