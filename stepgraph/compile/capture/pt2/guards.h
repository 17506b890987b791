// SPDX-License-Identifier: Apache-2.0
// What an exported program assumes of its inputs' sizes: its guards_code, Python over L['ids'].size()[1] with + - * / // % **, comparisons, and, or, not, max,
// min, and truncation of real numbers.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/tensor/dim.h"

namespace stepgraph {

/// What guards say of one symbol.
struct SizeFact {
  std::string symbol;
  int64_t multiple_of = 1;
  std::optional<int64_t> only;  ///< its one value
};

class SizeGuards {
 public:
  SizeGuards() = default;
  /// Of a program with these inputs; one in a container is named by its path: L['x']['a'][0] is "x_a_0". UserError that quotes a guard of another form: a
  /// program whose assumptions are not known would compute something else without a word.
  SizeGuards(const std::vector<std::string>& texts, const std::set<std::string>& inputs);
  size_t count() const { return guards_.size(); }
  /// Size of a dim of an input by name; nothing for what is not there.
  using SizeOf = std::function<std::optional<int64_t>(std::string_view input, int64_t dim)>;
  /// UserError with the first guard that fails, and the sizes that it reads. One that only keeps a size from being 0 or 1, or reads such a size, is passed
  /// over: PyTorch treats these apart at the export, here they are sizes like others.
  void check(const SizeOf& size) const;
  /// By the guards that read one symbol: "rows == 2 * (rows // 2)" makes rows a multiple of 2.
  std::vector<SizeFact> facts(const std::function<std::optional<Dim>(std::string_view input, int64_t dim)>& size) const;

  struct Expression;

 private:
  struct Guard {
    std::string text;
    std::shared_ptr<const Expression> expression;
  };
  std::vector<Guard> guards_;
};

}  // namespace stepgraph
