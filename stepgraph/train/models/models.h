// SPDX-License-Identifier: Apache-2.0
// The zoo by name: what `stepgraph train --model NAME` builds. In C++ the models' own headers are nicer: gpt(scope, tokens, {.layers = 12}).
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/compile/capture/capture.h"

namespace stepgraph {

struct ModelOption {
  std::string name, default_value, help;
};
struct ModelInfo {
  std::string name, help;
  std::vector<ModelOption> options;
};
/// All models, each with all its options.
std::vector<ModelInfo> models();

/// Options as text; those left out take their defaults.
using ModelOptionValues = std::map<std::string, std::string>;
struct ModelDefinition {
  std::vector<InputSpec> inputs;  ///< the batch dim is the symbol "batch"
  ModelFunction function;
  CaptureOptions capture;
  std::map<std::string, std::vector<std::string>> tied = {};  ///< parameter -> other names that PyTorch's model has for it
  std::vector<std::string> unused = {};                       ///< patterns of buffers in files of PyTorch's models that are computed here
};
/// UserError for an unknown model or option, naming the nearest ones, or for a value that is not understood.
ModelDefinition define_model(std::string_view name, const ModelOptionValues& options = {});
/// Captured: entries init, forward, eval. Image models read image f32 [batch, channels, size, size] and label i64 [batch]; language models tokens and
/// targets i32 [batch, context]. The eval entry gives "logits".
Module build_model(std::string_view name, const ModelOptionValues& options = {}, const Autocast& autocast = {});

}  // namespace stepgraph
