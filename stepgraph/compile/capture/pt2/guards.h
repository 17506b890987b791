// SPDX-License-Identifier: Apache-2.0
// What an exported program assumes of its inputs' sizes: its guards_code, Python over L['ids'].size()[1] with + - * // % **, comparisons, and, or, not.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepgraph {

class SizeGuards {
 public:
  /// Guards of another form are left out: they are advice, and the operators check their sizes themselves.
  SizeGuards() = default;
  explicit SizeGuards(const std::vector<std::string>& texts);
  size_t count() const { return guards_.size(); }
  /// Size of a dim of an input by name; nothing for what is not there.
  using SizeOf = std::function<std::optional<int64_t>(std::string_view input, int64_t dim)>;
  /// UserError with the first guard that fails, and the sizes that it reads. One that reads a size of 0 or 1 is passed over: PyTorch treats these apart at
  /// the export, here they are sizes like others.
  void check(const SizeOf& size) const;

  struct Expression;

 private:
  struct Guard {
    std::string text;
    std::shared_ptr<const Expression> expression;
  };
  std::vector<Guard> guards_;
};

}  // namespace stepgraph
