// SPDX-License-Identifier: Apache-2.0
// A PyTorch model (.pt2) in a training job: its weights at the start, data under the names of its arguments, and weights saved so that PyTorch loads
// them by name.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>
#include "stepgraph/compile/capture/pt2/import.h"
#include "stepgraph/compile/ops/autocast.h"
#include "stepgraph/train/data/dataset.h"
#include "stepgraph/train/trainer.h"

namespace stepgraph {

struct ModelChoice;

/// A module with what its file says beside it; of a model of the zoo the names that PyTorch's has besides; of a .sg file the module alone.
struct BuiltModel {
  Module module;
  NamedArrays weights;                                    ///< at the start; of tied ones the first name only
  std::map<std::string, std::vector<std::string>> tied;   ///< first name -> other names
  std::set<std::string> unsaved;                          ///< buffers that PyTorch does not keep in a state_dict
  std::vector<std::string> unused;                        ///< patterns of names that files may hold and the model does not want
  std::vector<std::string> warnings;
  std::set<std::string> frozen;  ///< parameters that want no gradient
  SizeGuards guards;  ///< for TrainerOptions
  PassLog log;        ///< of the passes that made a training step of it; for TrainerOptions
};

bool is_pt2(const std::string& model_name);
/// Entries init, forward, eval. The option `loss` is import.h's; UserError for another one.
BuiltModel import_model(const ModelChoice& model, const Autocast& autocast = {});
/// Moves weights over those of `init`; the rest of the state stays. What no entry reads stays in `weights`: nothing is held twice.
void start_from(Trainer& trainer, NamedArrays& weights);
/// Parameters and buffers as a state_dict: every name of a tied tensor, buffers that no step reads, no optimizer state.
void save_state_dict(const std::string& path, const Trainer& trainer, const BuiltModel& model);

/// The dataset with fields under the names of the model's inputs: input -> field. UserError for a field that it does not have.
DatasetPointer bind_fields(DatasetPointer dataset, const std::map<std::string, std::string>& bind);

}  // namespace stepgraph
