// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace stepgraph {

/// One line. Bytes that are no UTF-8, as in the name of a file, are replaced.
std::string json_line(const nlohmann::ordered_json& json);

}  // namespace stepgraph
