// SPDX-License-Identifier: Apache-2.0
// The arena of an entry over its instructions as SVG.
#pragma once
#include <string>
#include "stepgraph/backend/memory_use.h"

namespace stepgraph {

/// One self-contained picture: instructions across, addresses up, a rectangle a buffer in the colour of the phase that writes it, the largest with their names; a browser
/// shows the name of each under the pointer. Above it the bytes that live at each instruction, with the peak marked.
std::string memory_map_svg(const EntryMemory& memory, const std::string& title);

}  // namespace stepgraph
