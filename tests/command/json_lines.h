// SPDX-License-Identifier: Apache-2.0
// What `--json` prints, read back.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stepgraph::testing {

struct JsonLine {
  std::map<std::string, std::string> values;  ///< name -> JSON text of the value
  bool has(const std::string& key) const { return values.count(key) > 0; }
  /// Not a number: NaN.
  double number(const std::string& key) const;
};
/// Fails the test (and returns what is before) at a line that is not one JSON object.
std::vector<JsonLine> read_json_lines(const std::string& text);

/// Lines of steps, and the last one with the results if it is there.
struct TrainingLines {
  std::vector<JsonLine> steps;
  std::optional<JsonLine> last;
  /// step -> JSON text of its loss: equal texts are equal bits.
  std::map<int, std::string> losses() const;
};
TrainingLines read_training(const std::string& text);

}  // namespace stepgraph::testing
