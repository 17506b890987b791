// SPDX-License-Identifier: Apache-2.0
// The text form of a module (.sg): grammar and examples are in docs/text-format.md. It is canonical: printing what was read from printed text gives the
// same text. Values and attributes lose nothing; graphs keep their order, values are renumbered in order of appearance, a repeated graph name gets a suffix.
//
// Reading checks the form only: names, brackets, attributes that exist. What a program must be in addition (types that fit their operators, roles, the rules
// of its stage) is checked by compile/ops/verify.h, which belongs after every read of text that this program did not write itself.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/tensor/literal_text.h"

namespace stepgraph {

struct PrintOptions {
  bool places = true;  ///< `at "gpt.cpp:41"`: base names only, so that text is equal on every machine; and `phase backward`
  bool scopes = true;  ///< `scope "h.0.attn"`
  /// Off: for eyes only, the reader wants both.
  bool types = true, literals = true;
};
std::string print_module(const Module& module, const PrintOptions& options = {});
std::string print_graph(const Module& module, GraphId graph, const PrintOptions& options = {});

/// UserError "gpt.sg:12:7: found ..., wanted ..." for the first fault. A node without `at` gets its own line of `file_name` as its place; with an empty
/// `file_name` it has no place, and messages say "text" instead.
Module parse_module(std::string_view text, const std::string& file_name = {});

/// The number that the printed form gives to a value: inputs first, then results, in order of nodes. -1 for a value that none of them defines.
class ValueNumbers {
 public:
  explicit ValueNumbers(const Graph& graph);
  /// "%7"; "%?" for a value without a number.
  std::string text(ValueId value) const;

 private:
  std::vector<int64_t> numbers_;
};
/// A node without types, place and scope, for messages: "%4, %5 = moments(%3, dims=[1])".
std::string node_text(const Module& module, const Node& node, const ValueNumbers& numbers);
/// The name of a graph as it is printed: "@gpt", "@\"a b\"".
std::string graph_text(const Module& module, GraphId graph);

}  // namespace stepgraph
