// SPDX-License-Identifier: Apache-2.0
// Which library multiplies which matrices, and in which pieces: a record that was measured, as plain data with a text that can be kept and replayed, and a rule
// for what has no record. A plan is given its choices when it is made, so its bits are those of the record; nothing is chosen while it runs.
//
//     stepgraph_tuning 1
//     measured_with "onednn 2.6.3, openblas 0.3.21"
//     matmul f32 batch 1 m 2048 n 384 k 1536 avx2 threads 2 -> onednn rows 4
//     matmul f32 batch 1 m 512 n 512 k 256 transpose_a avx2 threads 2 -> openblas rows 2
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include "stepgraph/program/step_plan.h"

namespace stepgraph {

inline constexpr int64_t tuning_format_version = 1;

/// A product as a library sees it, whose result lies row by row: C [m, n] = A [m, k] B [k, n], a transposed one stored as [k, m] or [n, k].
struct MatMulProblem {
  DType dtype = DType::F32;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  InstructionSet isa = InstructionSet::Avx2;
  int threads = 1;
  auto operator<=>(const MatMulProblem&) const = default;
};
struct MatMulChoice {
  GemmLibrary library = GemmLibrary::OneDnn;
  std::optional<GemmCut> cut;  ///< absent: by the shape
  bool operator==(const MatMulChoice&) const = default;
};
struct Tuning {
  std::string measured_with;  ///< the libraries; for people: another version may have another order of speed
  std::map<MatMulProblem, MatMulChoice> matmuls;
  bool operator==(const Tuning&) const = default;
};

/// What is chosen without a record. By the shape alone and never by the number of threads, so that any number of them gives the same bits.
MatMulChoice choice_by_rule(const MatMulProblem& problem);

/// The products of a plan at the largest values of its symbols, each with how often it stands there. Those of unknown size are left out.
std::map<MatMulProblem, int64_t> products_of(const StepPlan& plan);
/// Gives every product of the plan its library and cut: those of the record, else those of the rule. Only bits of products change.
void choose_products(StepPlan& plan, const Tuning& tuning);

std::string text(const Tuning& tuning);
/// UserError with the place for a text that is none, or that names a product twice. `name` stands before places.
Tuning parse_tuning(std::string_view text, const std::string& name = "tuning");

}  // namespace stepgraph
