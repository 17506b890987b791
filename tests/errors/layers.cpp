// SPDX-License-Identifier: Apache-2.0
// What a user reads when a layer is used wrongly: the layer, what it found, what it wanted, and the user's own line.
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "stepgraph/compile/capture/layers.h"

namespace stepgraph {
namespace layers_test {

/// The message of a model over x [batch, 6, 4], tokens i32 [batch, 5] and label i64 [batch].
std::string message_of(const std::function<Value(Scope, Inputs)>& model) {
  const Dim batch = Dim::symbol("batch");
  try {
    capture({{"x", DType::F32, {batch, 6, 4}}, {"tokens", DType::I32, {batch, 5}}, {"label", DType::I64, {batch}}},
            [&](Scope s, Inputs in) -> Loss { return sum(model(s, in)); });
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

/// The message with the place of the lines just before or at `line`; compilers number the lines of a macro's arguments in different ways.
void expect(const std::string& found, const std::string& wanted, int line) {
  const size_t place = found.rfind(" (layers.cpp:");
  ASSERT_NE(place, std::string::npos) << found;
  EXPECT_EQ(found.substr(0, place), wanted);
  EXPECT_NEAR(std::stoi(found.substr(place + 13)), line, 4) << found;
}

TEST(LayerErrors, SizesOfParameters) {
  expect(message_of([](Scope s, Inputs in) { return linear(s, transpose(in["x"], 0, 2), 3); }),
            "linear: batch of f32[4, 6, batch] sets the shape of a parameter, so it must be constant", __LINE__);
  expect(message_of([](Scope s, Inputs in) { return linear(s, in["x"], 0); }), "linear: out is 0, wanted at least 1", __LINE__);
  expect(message_of([](Scope s, Inputs in) {
              const Value first = linear(s / "a", in["x"], 3);
              return linear(s / "a", first, 3);
            }),
            "a.weight is asked for as f32[3, 3], but exists as f32[3, 4]", __LINE__);
  expect(message_of([](Scope s, Inputs in) { return batch_norm(s, sum(in["x"], {1, 2})); }),
            "batch_norm: found f32[batch], wanted [batch, channels, ...]", __LINE__);
  expect(message_of([](Scope s, Inputs in) { return layer_norm(s, in["x"], {.normalized_rank = 4}); }),
            "layer_norm: normalized rank 4 is out of range for f32[batch, 6, 4]", __LINE__);
}

TEST(LayerErrors, Convolutions) {
  expect(message_of([](Scope s, Inputs in) { return conv(s, in["x"], 4, {.groups = 4}); }),
            "conv: 4 groups do not divide 6 channels in and 4 out", __LINE__);
  expect(message_of([](Scope s, Inputs in) { return conv(s, in["x"], 4, {.kernel = {3, 3}}); }),
            "conv: kernel has 2 numbers for 1 spatial dims", __LINE__);
  expect(message_of([](Scope s, Inputs in) { return conv(s, in["tokens"], 4); }),
            "conv: found i32[batch, 5], wanted [batch, channels, spatial...]", __LINE__);
}

TEST(LayerErrors, DtypesAndRates) {
  expect(message_of([](Scope s, Inputs in) { return embedding(s, in["x"], 10, 4); }),
            "embedding: found indices f32[batch, 6, 4], wanted an integer dtype", __LINE__);
  expect(message_of([](Scope, Inputs in) { return softmax(in["tokens"], 1); }),
            "softmax: found i32[batch, 5], wanted a floating dtype", __LINE__);
  expect(message_of([](Scope s, Inputs in) { return dropout(s, in["x"], 1.5); }), "dropout: rate 1.5 is outside [0, 1]", __LINE__);
  expect(message_of([](Scope, Inputs in) { return log_softmax(in["x"], 3); }),
            "log_softmax: dim 3 is out of range for f32[batch, 6, 4]", __LINE__);
}

TEST(LayerErrors, Attention) {
  expect(message_of([](Scope s, Inputs in) { return multi_head_attention(s, in["x"], {.heads = 3}); }),
            "split_heads: the last dim of f32[batch, 6, 4] is no multiple of 3 heads", __LINE__);
  expect(message_of([](Scope, Inputs in) { return scaled_dot_product_attention(in["x"], transpose(in["x"], 1, 2), in["x"]); }),
            "attention: found query f32[batch, 6, 4], key f32[batch, 4, 6], value f32[batch, 6, 4], wanted [..., T, D], [..., S, D], [..., S, E] of one "
            "dtype", __LINE__);
  expect(message_of([](Scope, Inputs in) { return scaled_dot_product_attention(in["x"], in["x"], in["x"], {.dropout = 0.5}); }),
            "attention: dropout needs a key", __LINE__);
}

TEST(LayerErrors, Losses) {
  expect(message_of([](Scope, Inputs in) { return cross_entropy(in["x"], in["label"]).numerator; }),
            "cross_entropy: logits f32[batch, 6, 4] with classes in dim 2 want targets of [batch, 6], found i64[batch]", __LINE__);
  expect(message_of([](Scope, Inputs in) { return cross_entropy(in["x"], select(in["x"], 2, 0)).numerator; }),
            "cross_entropy: found targets f32[batch, 6], wanted an integer dtype", __LINE__);
  expect(message_of([](Scope, Inputs in) { return mse_loss(in["x"], in["label"]).numerator; }),
            "sub: shapes may differ, f32[batch, 6, 4] and i64[batch] with batch in [1, inf]", __LINE__);
  EXPECT_EQ(message_of([](Scope, Inputs in) { return in["y"]; }), "there is no input 'y'; the inputs are x, tokens, label");
}

TEST(LayerErrors, RepeatedLayersKeepTheirType) {
  EXPECT_EQ(message_of([](Scope s, Inputs in) {
              return repeat(s / "h", 3, in["x"], [](Scope layer, Value x) { return linear(layer, x, 5); });
            }),
            "repeat: the layer turns f32[batch, 6, 4] into f32[batch, 6, 5], a repeated layer keeps its type");
  EXPECT_EQ(message_of([](Scope s, Inputs in) {
              const Value x = in["x"];
              return repeat(s / "h", 3, x, [&](Scope, Value inner) { return inner + x; });
            }).substr(0, 30),
            "add: operands belong to two gr");
}

}  // namespace layers_test
}  // namespace stepgraph
