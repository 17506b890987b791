// SPDX-License-Identifier: Apache-2.0
// A content hash of a form: equal forms have equal hashes on every machine.
#pragma once
#include "stepgraph/base/hash.h"
#include "stepgraph/program/form.h"

namespace stepgraph {

Hash128 form_hash(const Form& form);

}  // namespace stepgraph
