// SPDX-License-Identifier: Apache-2.0
// Operators that PyTorch documents as another name of one ("Alias for ..."), and whose arguments have the same names.
#include <map>

#include "stepgraph/compile/capture/pt2/aten_call.h"

namespace stepgraph::pt2 {

std::string_view canonical_name(std::string_view base) {
  static const std::map<std::string_view, std::string_view> names{
      {"absolute", "abs"},        {"negative", "neg"},        {"moveaxis", "movedim"},        {"swapdims", "transpose"},          {"linalg_matmul", "matmul"},
      {"special_logit", "logit"}, {"special_xlogy", "xlogy"}, {"special_softmax", "softmax"}, {"special_logsumexp", "logsumexp"}, {"special_i0", "i0"},
  };
  const auto found = names.find(base);
  return found == names.end() ? base : found->second;
}

}  // namespace stepgraph::pt2
