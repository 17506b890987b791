// SPDX-License-Identifier: Apache-2.0
// Training steps of the zoo's models (small) and of imported samples as Local modules, with inputs for them.
#pragma once
#include <map>
#include <ostream>
#include <string>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/train/models/models.h"

namespace stepgraph::testing {

/// A Local module and what its step takes.
struct Program {
  std::string name;
  Module local;
  std::vector<Literal> inputs;
  SymbolValues symbols;
  double tolerance = 1e-6;
};
struct ZooModel {
  std::string name;
  ModelOptionValues options;
  int64_t rows, classes;
};
inline void PrintTo(const ZooModel& model, std::ostream* out) { *out << model.name; }
std::vector<ZooModel> zoo_models();
/// `autocast` F32: none. `whole_gradients`: they are outputs and clipped, so that they are all there before anything is updated.
Program zoo_program(const ZooModel& model, DType autocast, int64_t micro_batches, const std::string& mesh, bool whole_gradients = true);
const std::vector<const char*>& sample_names();
Program sample_program(const std::string& sample);

/// Outputs of the program's step within `tolerance` of the largest element (0: to the bit). `what` stands before messages.
void expect_same_outputs(const std::vector<Literal>& found, const std::vector<Literal>& wanted, double tolerance, const Module& module, const std::string& what);

}  // namespace stepgraph::testing
