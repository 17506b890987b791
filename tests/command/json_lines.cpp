// SPDX-License-Identifier: Apache-2.0
#include "tests/command/json_lines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

namespace stepgraph::testing {

double JsonLine::number(const std::string& key) const {
  const auto found = values.find(key);
  if (found == values.end()) return std::nan("");
  const nlohmann::json value = nlohmann::json::parse(found->second);
  return value.is_number() ? value.get<double>() : std::nan("");
}

std::vector<JsonLine> read_json_lines(const std::string& text) {
  std::vector<JsonLine> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) {
      ADD_FAILURE() << "not a JSON object: " << line;
      break;
    }
    JsonLine read;
    for (const auto& [key, value] : object.items()) read.values[key] = value.dump();
    lines.push_back(std::move(read));
  }
  return lines;
}

std::map<int, std::string> TrainingLines::losses() const {
  std::map<int, std::string> found;
  for (const JsonLine& line : steps) found[static_cast<int>(line.number("step"))] = line.values.at("loss");
  return found;
}

TrainingLines read_training(const std::string& text) {
  TrainingLines training;
  // A run that was killed may leave half a line.
  const size_t end = text.rfind('\n');
  for (JsonLine& line : read_json_lines(end == std::string::npos ? "" : text.substr(0, end))) {
    if (line.has("step"))
      training.steps.push_back(std::move(line));
    else
      training.last = std::move(line);
  }
  return training;
}

}  // namespace stepgraph::testing
