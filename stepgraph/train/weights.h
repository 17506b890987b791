// SPDX-License-Identifier: Apache-2.0
// Weights by PyTorch's names: a .safetensors as a model's state_dict, in and out.
#pragma once
#include <string>
#include "stepgraph/train/imported_model.h"
#include "stepgraph/train/trainer.h"

namespace stepgraph {

/// Parameters and buffers from a .safetensors file, as load_state_dict(..., strict=True): one UserError lists all names that are missing or unexpected and all
/// whose shape is another. Floating dtypes are converted. Of a tied tensor one of its names is enough. Buffers that are computed here (BuiltModel::unused) may
/// be there. The optimizer's state and the number of steps stay. What no step reads is kept in `model` for save_state_dict.
void load_weights(const std::string& path, Trainer& trainer, BuiltModel& model);

}  // namespace stepgraph
