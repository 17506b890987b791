// SPDX-License-Identifier: Apache-2.0
// What a user is told.
#pragma once
#include <functional>
#include <string>

#include "stepgraph/base/error.h"

namespace stepgraph::testing {

/// The message of the UserError that the action ends with.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace stepgraph::testing
