// SPDX-License-Identifier: Apache-2.0
#include "tools/json_line.h"

#include <nlohmann/json.hpp>

namespace stepgraph {

std::string json_line(const nlohmann::ordered_json& json) { return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace); }

}  // namespace stepgraph
