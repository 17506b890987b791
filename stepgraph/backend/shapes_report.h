// SPDX-License-Identifier: Apache-2.0
// What a program's size symbols do to its compilation: known before anything runs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "stepgraph/backend/backend.h"

namespace stepgraph {

struct ShapesReport {
  struct Size {
    std::string symbol;
    int64_t minimum = 0, maximum = INT64_MAX;  ///< of this run: as declared, or as announced
    int64_t multiple_of = 1;
    std::vector<int64_t> buckets;
    bool is_announced = false;             ///< by BackendOptions::sizes
    std::vector<std::string> read_from;    ///< "dim 0 of image (step, eval)"
    std::vector<std::string> derived;      ///< "batch.data = ceildiv(batch, 2)": what other sizes are made of it
  };
  /// An operation that has a kernel where sizes are numbers and is run by the interpreter where they are symbols.
  struct Forced {
    std::string entry, op, scope;
    SourcePlace place;
    int64_t count = 1;
  };
  std::vector<Size> sizes;
  std::vector<Forced> forced;
  int64_t evaluated = 0;       ///< operations that the interpreter runs in any case
  int64_t compilations = 0;    ///< in a run, all entries and sizes together
  int64_t memory_plans = 0;    ///< at most; -1: one more for each batch that is larger than any before
};

/// Of a Local module. What is forced is found by lowering the program twice, with symbols and with numbers in their place; no code is made.
ShapesReport explain_shapes(const Module& local, const BackendOptions& options);
/// Without what is forced: nothing is lowered.
ShapesReport describe_sizes(const Module& local, const BackendOptions& options);
std::string text(const ShapesReport& report);
/// One line: "batch in [1, 64] · compiled once · memory for 8, 16 or 64".
std::string summary(const ShapesReport& report);
/// UserError that names what is forced, if anything is.
void refuse_fallback(const ShapesReport& report);

}  // namespace stepgraph
