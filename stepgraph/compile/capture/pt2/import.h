// SPDX-License-Identifier: Apache-2.0
// A PyTorch model, exported by torch.export.save, as a module to train: read without PyTorch, functionalised here, differentiated here.
// What is trained is the training IR; decomposed (core) programs have lost stop-gradients and are accepted with a warning (ImportOptions::training).
#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>
#include "stepgraph/compile/capture/pt2/guards.h"
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/compile/ops/autocast.h"

namespace stepgraph {

struct ImportOptions {
  /// "": the output under the key `loss` is the program's loss, or else its only floating scalar. Else output:OUTPUT, a scalar of several; or KIND or
  /// KIND:OUTPUT with KIND cross_entropy or mse: a loss of ours on an output of the model (its first, by key or by position), against a batch input "target".
  std::string loss;
  /// What the user is told of values that the file leaves open, by name of symbol ("batch"): a range that replaces the exported one.
  std::vector<Symbol> symbols;
  /// As if the whole forward pass and the loss stood in an autocast region; regions of the program itself stand inside.
  Autocast autocast;
};
struct Imported {
  /// Entries init (zeros), forward and eval. State is named by PyTorch's FQNs, batch inputs by the names of the model's arguments, symbols by the file. Dropout and
  /// batch norm are in training mode in forward as the file says, in evaluation mode in eval.
  Module forward;
  /// Parameters and buffers by FQN; of a tied group the first name only. Views of the mapped file where they are dense.
  std::vector<std::pair<std::string, Literal>> weights;
  /// First name -> the other names of one tied tensor.
  std::map<std::string, std::vector<std::string>> tied;
  /// Non-persistent buffers: in `weights`, but not in PyTorch's state_dict.
  std::set<std::string> unsaved;
  std::vector<std::string> warnings;
  std::set<std::string> frozen;  ///< parameters with requires_grad=False
  SizeGuards guards;  ///< that the program's operators were chosen under
};
/// UserError for a damaged or hostile file, another schema major, pickled payloads, custom objects; and ONE for unknown operators, listing all of them with counts,
/// source lines and what to do.
Imported import_pt2(const std::string& path, const ImportOptions& options = {});

}  // namespace stepgraph
