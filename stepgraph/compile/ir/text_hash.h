// SPDX-License-Identifier: Apache-2.0
// Whether two modules are the same program in the same words. (module_hash.h asks whether they compute the same, whatever their words.)
#pragma once
#include "stepgraph/base/hash.h"
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// Of all that passes and plans are made of: graphs in order, names of symbols and states, scopes, phases. Not of places in the user's source.
Hash128 text_hash(const Module& module);

}  // namespace stepgraph
