// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/library_support.h"

#include <algorithm>
#include <string>
#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

bool reaches_over(const View& view, size_t outer, size_t inner, const Reaches& reaches) {
  const bool has_no_gaps = view.strides[inner] == Dim(1) || view.sizes[inner] == Dim(1);
  return has_no_gaps && (view.sizes[outer] == Dim(1) || reaches(view.strides[outer], view.sizes[inner]));
}

}  // namespace

bool has_rows(const View& view, const Reaches& reaches) { return reaches_over(view, view.sizes.size() - 2, view.sizes.size() - 1, reaches); }
bool is_matrix(const View& view, const Reaches& reaches) {
  return has_rows(view, reaches) || reaches_over(view, view.sizes.size() - 1, view.sizes.size() - 2, reaches);
}

void check_matrices(const InstructionOp& op, const Reaches& reaches) {
  const auto check = [&](const char* operand, const View& view, bool is_one) {
    if (!is_one) throw UserError(std::string(operand) + " in buffer b" + std::to_string(view.buffer) + " is no matrix that a library takes");
  };
  if (const auto* product = std::get_if<MatMulCall>(&op)) {
    check("lhs", product->lhs, is_matrix(product->lhs, reaches));
    check("rhs", product->rhs, is_matrix(product->rhs, reaches));
    check("out", product->out, is_matrix(product->out, reaches));
  }
  const auto* attention = std::get_if<AttentionCall>(&op);
  if (attention == nullptr) return;
  const auto rows = [&](const char* operand, const View& view) { check(operand, view, has_rows(view, reaches)); };
  rows("q", attention->q), rows("k", attention->k), rows("v", attention->v), rows("out", attention->out);
  if (!attention->gradient) return;
  rows("d_out", attention->gradient->d_out), rows("d_q", attention->gradient->d_q), rows("d_k", attention->gradient->d_k), rows("d_v", attention->gradient->d_v);
}

bool convolution_supported(const ConvolutionCall& call) {
  const size_t spatial = call.strides.size(), rank = spatial + 2;
  const auto all_from = [](const std::vector<int64_t>& values, int64_t least) {
    return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value >= least; });
  };
  const bool one_rank = call.padding_low.size() == spatial && call.padding_high.size() == spatial && call.dilation.size() == spatial &&
                        call.a.sizes.size() == rank && call.b.sizes.size() == rank && call.out.sizes.size() == rank;
  return spatial >= 1 && spatial <= 3 && one_rank && call.groups >= 1 && all_from(call.strides, 1) && all_from(call.dilation, 1) &&
         all_from(call.padding_low, 0) && all_from(call.padding_high, 0);
}

bool scatter_supported(const ScatterCall& call) { return call.dtype != DType::Bool && is_integer(call.index_dtype); }
bool scan_supported(const ScanCall& call) { return call.kind == ScanKind::LogSumExp ? is_floating(call.dtype) : call.dtype != DType::Bool; }

}  // namespace stepgraph
