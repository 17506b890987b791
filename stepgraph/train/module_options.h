// SPDX-License-Identifier: Apache-2.0
// What a job says of its training step's module, as text: saved with each checkpoint, so that a refusal to go on can name what differs.
#pragma once
#include <map>
#include <string>
#include "stepgraph/train/job.h"

namespace stepgraph {

using ModuleOptions = std::map<std::string, std::string>;
/// By the keys of job files: the model and its options, optimizer, schedule, clipping, micro-batches, precision.
ModuleOptions module_options(const TrainJob& job);
/// What decides which samples a step sees, in what order: what shapes the data, the last-batch rule, shuffling. `content` is their content_hash, which says
/// whether they are the same; the options say why not. (Seed and place are in the cursor.)
ModuleOptions order_options(const TrainJob& job, const std::string& content);
bool same_order(const ModuleOptions& saved, const ModuleOptions& now);
/// "optimizer.lr: saved 0.001, now 0.01; ..."; empty if nothing differs.
std::string differences(const ModuleOptions& saved, const ModuleOptions& now);

}  // namespace stepgraph
