// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/index_bounds.h"

namespace stepgraph {
namespace {

/// Through conversions to i64, which keep any integer as it is. -1 for what is not read as it lies.
int plain_load(const Form& form, int expr) {
  for (;;) {
    const Expr& one = form.exprs[static_cast<size_t>(expr)];
    if (const auto* load = std::get_if<LoadExpr>(&one.op)) return load->guards.empty() && load->indices.empty() && is_integer(one.dtype) ? expr : -1;
    if (!std::holds_alternative<ConvertExpr>(one.op) || one.dtype != DType::I64) return -1;
    expr = one.inputs[0];
    if (!is_integer(form.exprs[static_cast<size_t>(expr)].dtype)) return -1;
  }
}

}  // namespace

std::vector<IndexUse> index_uses(const Form& form) {
  std::vector<char> is_stored(form.exprs.size(), 0);  // itself or what is made of it: nothing else has to be computed
  for (const Store& store : form.stores) is_stored[static_cast<size_t>(store.value)] = 1;
  for (size_t e = form.exprs.size(); e-- > 0;)
    for (const int input : form.exprs[e].inputs)
      if (is_stored[e]) is_stored[static_cast<size_t>(input)] = 1;
  std::vector<IndexUse> uses;
  for (size_t e = 0; e < form.exprs.size(); ++e) {
    const auto* load = std::get_if<LoadExpr>(&form.exprs[e].op);
    for (size_t k = 0; load != nullptr && k < load->indices.size(); ++k)
      uses.push_back({static_cast<int>(e), plain_load(form, form.exprs[e].inputs[k]), load->indices[k].size, load->guards.empty() && is_stored[e] != 0});
  }
  return uses;
}

}  // namespace stepgraph
