// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/tuning.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "stepgraph/base/text_scanner.h"
#include "stepgraph/program/plan_words.h"
#include "stepgraph/tensor/declaration_text.h"

namespace stepgraph {
namespace {

constexpr int64_t unknown_size = INT64_MAX;

/// A dim of one element has no stride that says anything.
bool lies_by_columns(const View& matrix) {
  const size_t rank = matrix.sizes.size();
  return matrix.strides[rank - 1] != Dim(1) && matrix.sizes[rank - 1] != Dim(1);
}

using Size = std::function<int64_t(const Dim&)>;
MatMulProblem problem_of(const MatMulCall& call, const Size& size) {
  const size_t rank = call.out.sizes.size();
  MatMulProblem problem;
  problem.dtype = call.dtype, problem.accumulate = call.accumulate;
  for (size_t d = 0; d + 2 < rank; ++d) problem.batch *= size(call.out.sizes[d]);
  problem.m = size(call.out.sizes[rank - 2]), problem.n = size(call.out.sizes[rank - 1]), problem.k = size(call.lhs.sizes[rank - 1]);
  problem.transpose_a = lies_by_columns(call.lhs), problem.transpose_b = lies_by_columns(call.rhs);
  if (!lies_by_columns(call.out)) return problem;
  std::swap(problem.m, problem.n);  // C^T = B^T A^T
  std::swap(problem.transpose_a, problem.transpose_b);
  problem.transpose_a = !problem.transpose_a, problem.transpose_b = !problem.transpose_b;
  return problem;
}

using VisitProduct = std::function<void(MatMulCall& call, bool one_thread)>;
void for_each_product(std::vector<Instruction>& instructions, const VisitProduct& visit) {
  for (Instruction& instruction : instructions) {
    if (auto* call = std::get_if<MatMulCall>(&instruction.op)) visit(*call, instruction.one_thread);
    if (auto* repeat = std::get_if<Repeat>(&instruction.op)) for_each_product(repeat->body, visit);
  }
}

/// Calls visit(call, problem) for every product; problem is absent where a size is not known.
template <class Visit>
void for_each_problem(StepPlan& plan, const Visit& visit) {
  for (PlanEntry& entry : plan.entries) {
    for_each_product(entry.instructions, [&](MatMulCall& call, bool one_thread) {
      bool is_known = true;
      MatMulProblem problem = problem_of(call, [&](const Dim& dim) {
        const int64_t most = plan.symbols.bounds(dim).maximum;
        is_known = is_known && most != unknown_size;
        return most == unknown_size ? int64_t{1} : most;
      });
      problem.isa = plan.target.isa, problem.threads = one_thread ? 1 : plan.target.threads;
      visit(call, problem, is_known);
    });
  }
}

std::string problem_text(const MatMulProblem& p) {
  std::string result = "matmul " + std::string(name(p.dtype)) + " batch " + std::to_string(p.batch) + " m " + std::to_string(p.m) + " n " +
                       std::to_string(p.n) + " k " + std::to_string(p.k);
  if (p.transpose_a) result += " transpose_a";
  if (p.transpose_b) result += " transpose_b";
  if (p.accumulate) result += " accumulate";
  return result + " " + std::string(word_of(instruction_set_names, p.isa)) + " threads " + std::to_string(p.threads);
}

int64_t read_size(TextScanner& scanner, int64_t minimum) {
  const size_t begin = scanner.mark();
  const int64_t value = scanner.integer();
  if (value < minimum) scanner.fail_at(begin, "found " + std::to_string(value) + ", wanted at least " + std::to_string(minimum));
  return value;
}

MatMulProblem read_problem(TextScanner& scanner) {
  MatMulProblem problem;
  const size_t begin = scanner.mark();
  problem.dtype = read_dtype(scanner);
  if (problem.dtype != DType::F32 && problem.dtype != DType::F64)
    scanner.fail_at(begin, "found a product of " + std::string(name(problem.dtype)) + ", wanted f32 or f64");
  for (const auto& [word, size] : {std::pair<const char*, int64_t*>{"batch", &problem.batch}, {"m", &problem.m}, {"n", &problem.n}, {"k", &problem.k}}) {
    scanner.expect(word);
    *size = read_size(scanner, 0);
  }
  problem.transpose_a = scanner.try_consume("transpose_a");
  problem.transpose_b = scanner.try_consume("transpose_b");
  problem.accumulate = scanner.try_consume("accumulate");
  problem.isa = static_cast<InstructionSet>(scanner.one_of(instruction_set_names));
  scanner.expect("threads");
  problem.threads = static_cast<int>(std::min<int64_t>(read_size(scanner, 1), INT32_MAX));
  return problem;
}

}  // namespace

std::string cut_text(const GemmCut& cut) { return (cut.rows ? "rows " : "columns ") + std::to_string(cut.pieces); }
GemmCut read_cut(TextScanner& scanner) {
  GemmCut cut;
  cut.rows = !scanner.try_consume("columns");
  if (cut.rows) scanner.expect("rows");
  constexpr int64_t pieces_max = 1 << 20;
  const size_t begin = scanner.mark();
  const int64_t pieces = scanner.integer();
  if (pieces < 1) scanner.fail_at(begin, "found " + std::to_string(pieces) + " pieces, wanted at least 1");
  if (pieces > pieces_max) scanner.fail_at(begin, "found " + std::to_string(pieces) + " pieces, wanted at most " + std::to_string(pieces_max));
  cut.pieces = static_cast<int>(pieces);
  return cut;
}

/// Measured on a Zen 3, with AVX2, for the products of the models in bench/cpu. oneDNN is ahead by 5 to 15 % where A lies by rows, as in forward products and
/// in gradients of activations. It transposes A badly where the place from one row to the next is a multiple of a page (35 against 75 GFLOP/s a core), as in
/// gradients of weights, and its columns of a wide B that lies transposed come slower (63 against 74: the head of a language model). Below some microseconds
/// oneDNN's calls cost less.
MatMulChoice choice_by_rule(const MatMulProblem& problem) {
  if (problem.dtype == DType::F64) return {GemmLibrary::OpenBlas, {}};
  constexpr double small_flops = 4e6;
  constexpr int64_t wide = 16384;
  const double flops = 2.0 * static_cast<double>(problem.m) * static_cast<double>(problem.n) * static_cast<double>(problem.k);
  if (flops < small_flops) return {GemmLibrary::OneDnn, {}};
  const bool is_blas = problem.transpose_a || (problem.transpose_b && problem.n >= wide);
  return {is_blas ? GemmLibrary::OpenBlas : GemmLibrary::OneDnn, {}};
}

std::map<MatMulProblem, int64_t> products_of(const StepPlan& plan) {
  std::map<MatMulProblem, int64_t> counts;
  StepPlan copy;
  copy.target = plan.target, copy.symbols = plan.symbols, copy.entries = plan.entries;
  for_each_problem(copy, [&](const MatMulCall&, const MatMulProblem& problem, bool is_known) {
    if (is_known) ++counts[problem];
  });
  return counts;
}

void choose_products(StepPlan& plan, const Tuning& tuning) {
  for_each_problem(plan, [&](MatMulCall& call, const MatMulProblem& problem, bool is_known) {
    const auto found = is_known ? tuning.matmuls.find(problem) : tuning.matmuls.end();
    const MatMulChoice choice = found != tuning.matmuls.end() ? found->second : choice_by_rule(problem);
    call.library = choice.library, call.cut = choice.cut;
  });
}

std::string text(const Tuning& tuning) {
  std::string result = "stepgraph_tuning " + std::to_string(tuning_format_version) + "\nmeasured_with " + quoted_text(tuning.measured_with) + "\n";
  for (const auto& [problem, choice] : tuning.matmuls)
    result +=
        problem_text(problem) + " -> " + std::string(word_of(gemm_library_names, choice.library)) + (choice.cut ? " " + cut_text(*choice.cut) : "") + "\n";
  return result;
}

Tuning parse_tuning(std::string_view text, const std::string& name) {
  TextScanner scanner(text, name);
  scanner.expect("stepgraph_tuning");
  const size_t version_begin = scanner.mark();
  const int64_t version = scanner.integer();
  if (version != tuning_format_version)
    scanner.fail_at(version_begin, "found format version " + std::to_string(version) + ", wanted " + std::to_string(tuning_format_version));
  Tuning tuning;
  scanner.expect("measured_with");
  tuning.measured_with = scanner.quoted_string();
  while (!scanner.at_end()) {
    const size_t begin = scanner.mark();
    if (!scanner.try_consume("matmul")) scanner.fail_wanted("'matmul' or the end");
    const MatMulProblem problem = read_problem(scanner);
    scanner.expect("->");
    MatMulChoice choice;
    choice.library = static_cast<GemmLibrary>(scanner.one_of(gemm_library_names));
    if (scanner.next_is("rows") || scanner.next_is("columns")) choice.cut = read_cut(scanner);
    if (!tuning.matmuls.emplace(problem, choice).second) scanner.fail_at(begin, "a product that has a choice already");
  }
  return tuning;
}

}  // namespace stepgraph
