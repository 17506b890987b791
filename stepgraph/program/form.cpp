// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/form.h"

namespace stepgraph {

Dim coefficient_of(const Affine& affine, int factor) {
  for (const AffineTerm& term : affine.terms)
    if (term.factor == factor) return term.coefficient;
  return 0;
}

std::string form_symbol(int index) { return "s" + std::to_string(index); }

}  // namespace stepgraph
