// SPDX-License-Identifier: Apache-2.0
// Where a training step takes statistics over a batch: a channel of one value has no variance, and PyTorch refuses to train on it.
#pragma once
#include <string>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph {

struct BatchNormUse {
  std::string layer;  ///< "layer1.bn1 (model.py:12)", as far as it is known
  Dim values;         ///< a channel, in symbols of the module
};
/// Of the batch norms in training mode below a graph, in order of their first use; equal ones once.
std::vector<BatchNormUse> batch_norm_uses(const Module& module, GraphId graph);
/// UserError naming the first layer that would see one value a channel.
void check_values_per_channel(const std::vector<BatchNormUse>& uses, const SymbolValues& symbols);

}  // namespace stepgraph
