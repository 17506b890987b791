// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/vit.h"

#include <fmt/core.h>

#include "stepgraph/train/models/encoder_layers.h"

namespace stepgraph {
namespace {

Value vit_block(Scope s, Value x, const VitOptions& options) {
  const Scope self = s / "attention" / "attention";
  MultiHeadOptions heads;
  heads.heads = options.heads;
  heads.dropout = options.dropout;
  const Value y = encoder_norm(s / "layernorm_before", x);
  const Value query = encoder_dense(self / "query", y, options.width);
  const Value key = encoder_dense(self / "key", y, options.width);
  const Value value = encoder_dense(self / "value", y, options.width);
  const Scope out = s / "attention" / "output";
  x = x + dropout(out, encoder_dense(out / "dense", attend(self, query, key, value, heads), options.width), options.dropout);
  const int64_t inner = options.inner > 0 ? options.inner : 4 * options.width;
  const Value wide = gelu(encoder_dense(s / "intermediate" / "dense", encoder_norm(s / "layernorm_after", x), inner));
  return x + dropout(s / "output", encoder_dense(s / "output" / "dense", wide, options.width), options.dropout);
}

}  // namespace

Value vit(Scope s, Value images, const VitOptions& options) {
  if (options.layers < 0 || options.heads < 1 || options.width < 1 || options.width % options.heads != 0)
    throw UserError(fmt::format("vit: width {} is no multiple of {} heads", options.width, options.heads));
  for (int64_t d : {2, 3})
    if (!images.dim(d).is_constant() || options.patch < 1 || images.dim(d).constant() % options.patch != 0)
      throw UserError(fmt::format("vit: images {} are no multiple of patches of {}", text(images.type()), options.patch));
  const Scope embeddings = s / "vit" / "embeddings";
  const Value cls = embeddings.parameter("cls_token", {1, 1, options.width}, encoder_start());
  const int64_t patches = images.dim(2).constant() / options.patch * (images.dim(3).constant() / options.patch);
  const Value positions = embeddings.parameter("position_embeddings", {1, patches + 1, options.width}, encoder_start());
  ConvOptions cut;
  cut.kernel = cut.stride = {options.patch};
  cut.weight_start = encoder_start();
  cut.bias_start = initialize::zeros();
  Value x = transpose(flatten(conv(embeddings / "patch_embeddings" / "projection", images, options.width, cut), 2, 3), 1, 2);
  const Value first = broadcast_to(cls, {x.dim(0), 1, options.width});
  x = dropout(embeddings, concatenate(std::vector<Value>{first, x}, 1) + positions, options.dropout);
  x = repeat(s / "vit" / "encoder" / "layer", options.layers, x, [&](Scope layer, Value v) { return vit_block(layer, v, options); });
  x = encoder_norm(s / "vit" / "layernorm", x);
  return encoder_dense(s / "classifier", select(x, 1, 0), options.classes);
}

}  // namespace stepgraph
