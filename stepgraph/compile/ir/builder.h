// SPDX-License-Identifier: Apache-2.0
// TEMPORARY forwarding header: Builder moved to compile/ops/builder.h, since adding a node infers types. Include that one.
#pragma once
#include "stepgraph/compile/ops/builder.h"
