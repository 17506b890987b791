// SPDX-License-Identifier: Apache-2.0
// Which bytes of its operands a form reads and writes, by its maps and the ranges of its factors.
#pragma once
#include <span>
#include <vector>
#include "stepgraph/program/byte_region.h"
#include "stepgraph/program/form.h"

namespace stepgraph {

struct FormAccess {
  int operand = 0;
  bool is_write = false;
  ByteRegion region;     ///< from the operand's first element
  bool is_exact = true;  ///< false: some of these bytes may be left out
};
/// Of each load and store, those that touch nothing left out. `sizes` are the values of s0, s1, ... InternalError for a store that may write an element twice
/// or for stores of one operand that share bytes; UserError where a number leaves 64 bits.
std::vector<FormAccess> form_accesses(const Form& form, std::span<const int64_t> sizes);
/// Of the LoadExpr `expr`; an empty region if it touches nothing.
FormAccess load_access(const Form& form, int expr, std::span<const int64_t> sizes);
/// Whether each factor runs over something.
bool runs_at_all(const Form& form, std::span<const int64_t> sizes);

}  // namespace stepgraph
