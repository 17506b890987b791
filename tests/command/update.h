// SPDX-License-Identifier: Apache-2.0
// Whether pages that are made of the command are to be rewritten instead of compared: --update.
#pragma once

namespace stepgraph::testing {

bool& update_wanted();

}  // namespace stepgraph::testing
