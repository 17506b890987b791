// SPDX-License-Identifier: Apache-2.0
// Values of forward that backward reads are kept, or made again when backward comes to them: by a minimum cut, segment by segment, the last one first.
//
// A segment is a layer of the model (nodes whose scope is one up to its first number, "h.3"), or several in a row. In it the vertices are nodes n and values v:
// source→n the time to run n again, n→v the price of keeping v, u→n without limit for each operand u of n that is not there anyway, v→sink without limit where v is
// read later. What lies at the edge of a segment, inputs of the graph and states are there; what a cut reads of an earlier segment is then wanted of that one. Equal
// networks are solved once. (After Jain et al., "Checkmate", 2020, and the partitioner of PyTorch's AOT autograd, without their solvers.)
//
// Nodes that are run again have phase Recompute and stand right before their first reader; lowering puts them there (groups.h). A clone is the same function of
// the same values. Bodies of loops over micro-batches are cut as the entry is; recurrences are kept. Class: exact.
#pragma once
#include <cstdint>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

/// One way to choose. The price of keeping a byte is a multiple of the time to write it and read it.
struct Rematerialization {
  enum class Price : uint8_t { Bandwidth, FourTimes, AnyWithoutCalls, SixteenTimes, SixtyFourTimes, Any };  ///< AnyWithoutCalls: library calls are not run again
  Price price = Price::Bandwidth;
  int layers = 1;   ///< of the model, a segment
  int eighths = 8;  ///< so much of the segments, from the first one, whose values wait longest, are cut at that price, the others at the one below
  bool operator==(const Rematerialization&) const = default;
};

struct RematerializeResult {
  Module module;
  int layers = 0;             ///< of the model, where there are most
  int64_t read_later_bytes = 0;  ///< of forward, by backward: without running anything again
  int64_t kept_bytes = 0;
  double seconds = 0;            ///< estimated, of what is run again in a step
  int64_t clones = 0;
};

/// Of a flat module: entries with a backward part, and the bodies of their loops over micro-batches. Sizes are at their maxima by `symbols`, those of the
/// module narrowed; `threads` is for the estimate alone.
RematerializeResult rematerialize(Module flat, const SymbolTable& symbols, const Rematerialization& how, int threads);

}  // namespace stepgraph
