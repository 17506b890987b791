// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/tensor/tensor_type.h"

#include "stepgraph/base/error.h"
#include "stepgraph/base/text_scanner.h"

namespace stepgraph {

std::string text(const TensorType& type) {
  std::string result = std::string(name(type.dtype)) + text(type.shape);
  if (type.sharding) result.append("<").append(text(*type.sharding)).append(">");
  return result;
}

TensorType parse_tensor_type(std::string_view text) {
  TensorType type;
  TextScanner scanner(text, "type");
  TextScanner start = scanner;
  const std::string dtype_name = scanner.identifier("a dtype");
  const auto dtype = dtype_from_name(dtype_name);
  if (!dtype) start.fail("found '" + dtype_name + "', wanted a dtype: f64, f32, bf16, f16, i64, i32, i8, u8 or bool");
  type.dtype = *dtype;
  scanner.expect("[");
  if (!scanner.try_consume("]")) {
    do type.shape.push_back(parse_dim(scanner.balanced_until(",]")));
    while (scanner.try_consume(","));
    scanner.expect("]");
  }
  if (scanner.try_consume("<")) {
    type.sharding = parse_sharding(scanner.balanced_until(">"));
    scanner.expect(">");
    if (type.sharding->dims.size() != type.shape.size())
      throw UserError("type: found a sharding of " + std::to_string(type.sharding->dims.size()) + " dims for a shape of " + std::to_string(type.shape.size()));
  }
  scanner.expect_end();
  return type;
}

bool same_dtype_and_shape(const TensorType& a, const TensorType& b) { return a.dtype == b.dtype && a.shape == b.shape; }

}  // namespace stepgraph
