// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/bert.h"

#include <fmt/core.h>

#include "stepgraph/train/models/encoder_layers.h"

namespace stepgraph {
namespace {

Value encoder_layer(Scope s, Value x, const BertOptions& options, std::optional<Value> mask) {
  const Scope attention = s / "attention", self = attention / "self";
  MultiHeadOptions heads;
  heads.heads = options.heads;
  heads.dropout = options.dropout;
  heads.mask = mask;
  // One after the other: the order in which a call's arguments run is the compiler's, and the order of declaration gives the initial values.
  const Value query = encoder_dense(self / "query", x, options.width);
  const Value key = encoder_dense(self / "key", x, options.width);
  const Value value = encoder_dense(self / "value", x, options.width);
  Value y = attend(self, query, key, value, heads);
  y = dropout(attention / "output", encoder_dense(attention / "output" / "dense", y, options.width), options.dropout);
  x = encoder_norm(attention / "output" / "LayerNorm", x + y);
  const int64_t inner = options.inner > 0 ? options.inner : 4 * options.width;
  y = encoder_dense(s / "output" / "dense", gelu(encoder_dense(s / "intermediate" / "dense", x, inner)), options.width);
  return encoder_norm(s / "output" / "LayerNorm", x + dropout(s / "output", y, options.dropout));
}

}  // namespace

Value bert(Scope s, Value tokens, const BertOptions& options, std::optional<Value> attention_mask) {
  if (options.layers < 0 || options.heads < 1 || options.width < 1 || options.width % options.heads != 0)
    throw UserError(fmt::format("bert: width {} is no multiple of {} heads", options.width, options.heads));
  const Scope embeddings = s / "bert" / "embeddings", predictions = s / "cls" / "predictions";
  const Value words = (embeddings / "word_embeddings").parameter("weight", {options.vocabulary, options.width}, encoder_start());
  const Value positions = (embeddings / "position_embeddings").parameter("weight", {options.context, options.width}, encoder_start());
  const Value types = (embeddings / "token_type_embeddings").parameter("weight", {2, options.width}, encoder_start());
  // One segment: every token is of type 0.
  Value x = embedding(tokens, words) + slice(positions, 0, 0, tokens.dim(-1)) + select(types, 0, 0);
  x = dropout(embeddings, encoder_norm(embeddings / "LayerNorm", x), options.dropout);
  std::vector<Value> shared;
  if (attention_mask) shared.push_back(unsqueeze(unsqueeze(*attention_mask, 1), 1));
  x = repeat(s / "bert" / "encoder" / "layer", options.layers, x, shared, [&](Scope layer, Value v, std::span<const Value> masks) {
    return encoder_layer(layer, v, options, masks.empty() ? std::nullopt : std::optional<Value>(masks[0]));
  });
  x = encoder_norm(predictions / "transform" / "LayerNorm", gelu(encoder_dense(predictions / "transform" / "dense", x, options.width)));
  return linear(x, words, predictions.parameter("bias", {options.vocabulary}, initialize::zeros()));
}

MaskedTokens mask_tokens(Scope s, Value tokens, double rate, int64_t vocabulary, int64_t mask_token) {
  const auto draw = [&] { return random_uniform(s.key(), DType::F32, tokens.shape()); };
  const Value labels = convert(tokens, DType::I64);
  const Value asked = less(draw(), rate), way = draw();
  const Value any = minimum(convert(draw() * static_cast<double>(vocabulary), DType::I64), full_like(labels, static_cast<double>(vocabulary - 1)));
  const Value changed = where(less(way, 0.8), full_like(labels, static_cast<double>(mask_token)), where(less(way, 0.9), any, labels));
  return {where(asked, changed, labels), where(asked, labels, full_like(labels, -100))};
}

}  // namespace stepgraph
