// SPDX-License-Identifier: Apache-2.0
// What lowering did, for people: which operations each instruction is made of, which values are stored although another group reads them, and why.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "stepgraph/base/error.h"
#include "stepgraph/program/phase.h"

namespace stepgraph {

struct LoweredOp {
  std::string op, scope;
  Phase phase = Phase::None;
  SourcePlace place;
};
/// An instruction. Bytes are at the largest sizes of the plan, those of a loop's body for all of its iterations.
struct LoweredUnit {
  std::vector<int> at;         ///< its index; in a loop that of the loop before it
  std::vector<LoweredOp> ops;  ///< in the order of the program
  int64_t read = 0, written = 0;
  int64_t apart = 0;  ///< what kernels of one operation each would read and write
};
/// A value between two groups.
struct StoredValue {
  LoweredOp from, to;
  int64_t bytes = 0;
  std::string why;
};
struct LoweredEntry {
  std::string name;
  int64_t nodes = 0;  ///< of the flat program, those of loop bodies among them
  std::vector<LoweredUnit> units;
  std::vector<StoredValue> stored;
};
using LowerReport = std::vector<LoweredEntry>;

}  // namespace stepgraph
