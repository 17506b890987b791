// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ir/solve_symbols.h"
#include "stepgraph/train/batch.h"

#include <optional>


namespace stepgraph {
void fail_no_array(const std::string& wanted, const std::vector<std::string>& known) {
  std::string list;
  for (const std::string& array_name : known) list += (list.empty() ? "" : ", ") + array_name;
  throw UserError("the batch has no array '" + wanted + "' that the model reads; it has " + (list.empty() ? "none" : list));
}

const Literal& batch_array(const NamedArrays& arrays, const std::string& wanted) {
  if (const Literal* found = find_array(arrays, wanted)) return *found;
  std::vector<std::string> known;
  for (const auto& [array_name, value] : arrays) known.push_back(array_name);
  fail_no_array(wanted, known);
}

void check_batch_dtype(DType found, DType wanted, const std::string& input) {
  if (found == wanted) return;
  if (is_floating(found) != is_floating(wanted) || found == DType::Bool || wanted == DType::Bool)
    throw UserError("batch input " + input + ": found dtype " + std::string(name(found)) + ", the model wants " + std::string(name(wanted)));
}

Literal fit_batch(const Literal& array, const TensorType& type, const std::string& input, int64_t micro_batches) {
  Literal value = array;
  check_batch_dtype(value.dtype(), type.dtype, input);
  if (value.dtype() != type.dtype) {
    value = converted_in_range(array, type.dtype, "batch input " + input);
  }
  if (micro_batches > 1) {
    Sizes sizes = value.sizes();
    if (sizes.empty() || sizes[0] % micro_batches != 0)
      throw UserError("batch input " + input + ": a batch of " + std::to_string(sizes.empty() ? 1 : sizes[0]) + " rows cannot be cut into " +
                      std::to_string(micro_batches) + " equal micro-batches");
    sizes[0] /= micro_batches;
    sizes.insert(sizes.begin(), micro_batches);
    value = value.reshaped(sizes);
  }
  return value;
}

void solve_sizes(const Sizes& sizes, const TensorType& type, const std::string& input, SymbolValues& symbols) {
  auto wrong = [&](const std::string& detail) {
    std::string found;
    for (int64_t size : sizes) found += (found.empty() ? "" : ", ") + std::to_string(size);
    return UserError("batch input " + input + ": found sizes [" + found + "], the model wants " + text(type) + detail);
  };
  if (sizes.size() != type.rank()) throw wrong("");
  for (size_t d = 0; d < type.rank(); ++d) {
    if (const auto symbol = type.shape[d].symbol_name()) {
      const auto [known, inserted] = symbols.emplace(*symbol, sizes[d]);
      if (!inserted && known->second != sizes[d]) throw wrong(" with " + *symbol + " = " + std::to_string(known->second));
    } else if (type.shape[d].is_constant() && type.shape[d].constant() != sizes[d]) {
      throw wrong("");
    }
  }
  // Multiples and the like of a symbol tell its value too, where no size is the symbol itself.
  for (size_t d = 0; d < type.rank(); ++d) {
    const std::optional<LinearDim> linear = as_linear(type.shape[d]);
    if (!linear || symbols.count(linear->symbol)) continue;
    const int64_t rest = sizes[d] - linear->offset;
    if (rest % linear->slope != 0) throw wrong(" with an integer " + linear->symbol);
    symbols.emplace(linear->symbol, rest / linear->slope);
  }
}

std::string index_hint(const BadIndex& bad, const Graph& entry, const NamedArrays& batch) {
  bool any = false;
  for (const GraphInput& input : entry.inputs) {
    if (input.role.kind != RoleKind::Batch) continue;
    const Literal* array = find_array(batch, input.role.name);
    if (!array || !is_integer(array->dtype()) || array->rank() == 0 || array->sizes()[0] == 0) continue;
    any = true;
    const int64_t row = array->count() / array->sizes()[0];
    for (int64_t i = 0; i < array->count(); ++i)
      if (array->integer_at(i) == bad.index)
        return "; batch input " + input.role.name + " holds " + std::to_string(bad.index) + " in row " + std::to_string(i / row) +
               ": a label or token beyond the model's classes or vocabulary?";
  }
  return any ? "; a label or token of the batch beyond the model's classes or vocabulary?" : "";
}

}  // namespace stepgraph
