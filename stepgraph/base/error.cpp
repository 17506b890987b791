// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/error.h"

#include <string_view>
#include <utility>

namespace stepgraph {
namespace {

std::string_view base_name(std::string_view path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

std::string SourcePlace::text() const {
  if (!known()) return {};
  return std::string(base_name(file)) + ":" + std::to_string(line);
}

SourcePlace place_of(const std::source_location& location) { return {location.file_name(), static_cast<int>(location.line())}; }

UserError::UserError(const std::string& message, const SourcePlace& place) : Error(place.known() ? message + " (" + place.text() + ")" : message) {}
UserError::UserError(const std::string& message, BadIndex bad_index) : Error(message), bad_index_(std::make_shared<const BadIndex>(std::move(bad_index))) {}

UserError UserError::retold(const std::string& message, const SourcePlace& place) const {
  UserError error(message, place);
  error.bad_index_ = bad_index_;
  return error;
}

CommError::CommError(const std::string& message, std::string group, std::vector<int> suspects)
    : Error(message), group_(std::move(group)), suspects_(std::move(suspects)) {}

void check_failed(const char* expression, const std::string& detail, const std::source_location& location) {
  std::string message = "internal error: check failed: " + std::string(expression);
  if (!detail.empty()) message += ": " + detail;
  throw InternalError(message + " (" + place_of(location).text() + ")");
}

}  // namespace stepgraph
