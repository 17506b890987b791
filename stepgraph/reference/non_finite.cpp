// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <optional>
#include <string>

#include "stepgraph/base/error.h"
#include "stepgraph/reference/interpreter.h"

namespace stepgraph {
namespace {

template <class T>
std::optional<int64_t> find_non_finite(const Literal& value) {
  const auto elements = value.as<T>();
  for (size_t i = 0; i < elements.size(); ++i)
    if (!std::isfinite(elements[i])) return static_cast<int64_t>(i);
  return std::nullopt;
}
std::optional<int64_t> first_non_finite(const Literal& value) {
  switch (value.dtype()) {
    case DType::F64: return find_non_finite<double>(value);
    case DType::F32: return find_non_finite<float>(value);
    case DType::BF16:
    case DType::F16:
      for (int64_t i = 0; i < value.count(); ++i)
        if (!std::isfinite(value.at(i))) return i;
      return std::nullopt;
    case DType::I64:
    case DType::I32:
    case DType::I8:
    case DType::U8:
    case DType::Bool: return std::nullopt;
  }
  return std::nullopt;
}

void check_finite(const NodeEvent& event) {
  // Bodies have had their own events. A source without inputs (the -inf of a mask) is what the model wants.
  if (event.inputs.empty() || (is_control(event.node.op) && !std::holds_alternative<MapTensors>(event.node.op))) return;
  for (const Literal& result : event.results) {
    const std::optional<int64_t> index = first_non_finite(result);
    if (!index) continue;
    for (const Literal& input : event.inputs)
      if (first_non_finite(input)) return;
    const Shape shape(result.sizes().begin(), result.sizes().end());
    const std::string scope = event.node.scope.empty() ? "" : " in '" + event.node.scope + "'";
    const double value = result.at(*index);
    throw UserError("first value that is not finite: " + std::string(name(event.node.op)) + scope + " gives " +
                        (std::isnan(value) ? "nan"
                         : value > 0       ? "inf"
                                           : "-inf") +
                        " at element " + std::to_string(*index) + " of " + std::string(name(result.dtype())) + text(shape) + ", from finite inputs",
                    event.node.place);
  }
}

}  // namespace

std::function<void(const NodeEvent&)> stop_at_first_non_finite() { return check_finite; }

}  // namespace stepgraph
