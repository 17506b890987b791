// SPDX-License-Identifier: Apache-2.0
// In which loops a form runs. A pure function of the form: threads and instruction sets do not enter.
//
// One factor is the vector factor: its elements go sixteen at a time. Factors that are neither reduced nor the vector factor are parallel: their values, and
// pieces of the vector factor where it is not reduced, number the parts that threads share. In a part the reduced factors are run once for each phase (depth of
// reductions), and once more for stores that vary over them.
#pragma once
#include <cstdint>
#include <vector>
#include "stepgraph/program/form.h"

namespace stepgraph {

/// A set of factors; form.h's factors are at most 64.
using FactorSet = uint64_t;
constexpr FactorSet factor_bit(int factor) { return FactorSet{1} << factor; }

/// An expression that costs, varies over all reduced factors and is needed in more than one phase lies in scratch from the first of them on, one element for
/// each value of the reduced factors.
struct KeptRow {
  int expr = 0, phase = 0;
  Dim offset;  ///< in scratch, in bytes
};

struct FormSchedule {
  int vector = -1;  ///< -1: a form without factors
  bool vector_is_reduced = false;
  std::vector<int> parallel, reduced;  ///< outer to inner; `reduced` holds the vector factor if it is reduced
  int64_t piece = 0;                   ///< elements of the vector factor in a part, where it is not reduced
  Dim pieces;                          ///< of the vector factor
  Dim parallel_count;
  int phases = 0;                 ///< the last one is that of the stores
  std::vector<int> phase_of;      ///< by expression: that at whose end it is known (reductions), or the first in which it can be computed
  std::vector<FactorSet> varies;  ///< by expression
  std::vector<KeptRow> kept;
  Dim scratch_bytes;
};

/// Elements of the innermost reduced factor that are added in the dtype, before f64 takes over.
inline constexpr int64_t reduction_block = 4096;
/// Elements of the vector factor in a part with reductions: whole cache lines.
inline constexpr int64_t column_piece = 64;
inline constexpr int64_t pointwise_piece = 4096;

/// InternalError for a form that is not well formed, or whose reductions differ in their factors.
FormSchedule schedule_form(const Form& form);
/// The factors in an address.
FactorSet factors_of(const Affine& affine);

}  // namespace stepgraph
