// SPDX-License-Identifier: Apache-2.0
// The program of a .pt2 archive: JSON of schema major 8, any minor, as the plain data of program.h.
#pragma once
#include "stepgraph/compile/capture/pt2/archive.h"
#include "stepgraph/compile/capture/pt2/program.h"

namespace stepgraph::pt2 {

/// Reads the archive's model ("model", or the only one) and checks it: types of all fields, every name defined once and before its use, every tensor
/// described, one payload for each parameter and buffer, payload checksums. UserError "model.pt2: models/model.json: graph.nodes[12]...: ..." for
/// whatever is wrong, for another schema major, pickled payloads and script objects.
ExportedProgram read_program(const Pt2Archive& archive);

}  // namespace stepgraph::pt2
