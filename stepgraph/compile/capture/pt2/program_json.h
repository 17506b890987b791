// SPDX-License-Identifier: Apache-2.0
// The parts of a program's JSON: arguments, tensors, graphs. Types of fields are checked here, names by program_check.h.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include "stepgraph/compile/capture/pt2/json_tree.h"
#include "stepgraph/compile/capture/pt2/program.h"

namespace stepgraph::pt2 {

/// Reads size expressions; the same ones come again and again.
class SizeReader {
 public:
  /// Nothing for an expression that a Dim cannot express.
  std::optional<Dim> expression(const std::string& text, const JsonAt& at);
  /// A union of as_int and as_expr.
  std::optional<Dim> size(const JsonAt& at);
  TensorMeta tensor(const JsonAt& at);

 private:
  std::map<std::string, std::optional<Dim>, std::less<>> known_;
};

Argument read_argument(const JsonAt& at, SizeReader& sizes);
ExportedGraph read_graph(const JsonAt& at, SizeReader& sizes);
/// The element type of a number of PyTorch's serialised ScalarType, if the engine has it.
std::optional<DType> dtype_of_number(int64_t number);
/// Its name in messages: the engine's, else PyTorch's ("complex64").
std::string type_of_number(int64_t number);

}  // namespace stepgraph::pt2
