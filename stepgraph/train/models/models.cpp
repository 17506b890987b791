// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/models.h"

#include <algorithm>
#include <charconv>

#include <fmt/core.h>

#include "stepgraph/base/nearest.h"
#include "stepgraph/train/models/bert.h"
#include "stepgraph/train/models/convnet.h"
#include "stepgraph/train/models/convnext.h"
#include "stepgraph/train/models/gpt.h"
#include "stepgraph/train/models/llama.h"
#include "stepgraph/train/models/lstm.h"
#include "stepgraph/train/models/mlp.h"
#include "stepgraph/train/models/moe.h"
#include "stepgraph/train/models/resnet.h"
#include "stepgraph/train/models/unet.h"
#include "stepgraph/train/models/vit.h"

namespace stepgraph {
namespace {

/// The options of one model, defaults filled in, read by kind.
class Reader {
 public:
  Reader(const ModelInfo& info, const ModelOptionValues& given) : model_(info.name) {
    std::vector<std::string> names;
    for (const ModelOption& option : info.options) {
      names.push_back(option.name);
      values_[option.name] = option.default_value;
    }
    for (const auto& [name, value] : given) {
      if (!values_.contains(name))
        throw UserError(fmt::format("model {} has no option '{}'; nearest are {}", info.name, name, nearest_names(name, names)));
      values_[name] = value;
    }
  }

  const std::string& word(const std::string& name) const {
    const auto found = values_.find(name);
    SG_CHECK(found != values_.end(), name);
    return found->second;
  }
  int64_t integer(const std::string& name, int64_t minimum = 1, int64_t maximum = int64_t{1} << 32) const {
    return parse_integer(name, word(name), minimum, maximum);
  }
  double number(const std::string& name, double minimum, double maximum) const {
    const std::string& text = word(name);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= minimum && value <= maximum))
      refuse(name, text, fmt::format("a number from {} to {}", minimum, maximum));
    return value;
  }
  bool flag(const std::string& name) const {
    const std::string& text = word(name);
    if (text != "true" && text != "false") refuse(name, text, "true or false");
    return text == "true";
  }
  /// "128,64"; "" is none.
  std::vector<int64_t> integers(const std::string& name, int64_t minimum, int64_t maximum) const {
    std::vector<int64_t> result;
    std::string_view rest = word(name);
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      if (comma == 0) refuse(name, word(name), "integers with commas between them, and found an empty part");
      result.push_back(parse_integer(name, rest.substr(0, comma), minimum, maximum));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
      if (rest.empty()) refuse(name, word(name), "integers with commas between them, and found an empty part");
    }
    return result;
  }
  [[noreturn]] void refuse(const std::string& name, std::string_view found, const std::string& wanted) const {
    throw UserError(fmt::format("model {}: option {} is '{}', wanted {}", model_, name, found, wanted));
  }

 private:
  int64_t parse_integer(const std::string& name, std::string_view text, int64_t minimum, int64_t maximum) const {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < minimum || value > maximum)
      refuse(name, text, fmt::format("an integer from {} to {}", minimum, maximum));
    return value;
  }

  std::string model_;
  ModelOptionValues values_;
};

/// Layers and experts have parameters, and so nodes, of their own.
constexpr int64_t width_limit = 1 << 20, layer_limit = 4096;

Dim batch() { return Dim::symbol("batch"); }

std::vector<InputSpec> image_inputs(const Reader& read) {
  const int64_t channels = read.integer("channels", 1, width_limit), size = read.integer("size", 1, width_limit);
  return {{"image", DType::F32, {batch(), channels, size, size}}, {"label", DType::I64, {batch()}}};
}

Loss classified(Value logits, Value labels) { return cross_entropy(logits, labels).output("logits", logits); }

ModelDefinition define_mlp(const Reader& read) {
  MlpOptions options;
  options.hidden = read.integers("hidden", 1, width_limit);
  options.classes = read.integer("classes", 1, width_limit);
  options.dropout = read.number("dropout", 0, 1);
  const std::string& activation = read.word("activation");
  if (activation == "relu") options.activation = Activation::Relu;
  else if (activation == "gelu") options.activation = Activation::Gelu;
  else if (activation == "tanh") options.activation = Activation::Tanh;
  else if (activation == "silu") options.activation = Activation::Silu;
  else read.refuse("activation", activation, "relu, gelu, tanh or silu");
  return {image_inputs(read), [options](Scope s, Inputs in) { return classified(mlp(s, in["image"], options), in["label"]); }, {}};
}

ModelDefinition define_convnet(const Reader& read) {
  ConvnetOptions options;
  options.classes = read.integer("classes", 1, width_limit);
  options.width = read.integer("width", 1, width_limit);
  options.dropout = read.number("dropout", 0, 1);
  if (read.integer("size") < 4) read.refuse("size", read.word("size"), "at least 4");
  return {image_inputs(read), [options](Scope s, Inputs in) { return classified(convnet(s, in["image"], options), in["label"]); }, {}};
}

ModelDefinition define_resnet(const Reader& read) {
  ResnetOptions options;
  options.depth = read.integer("depth");
  options.classes = read.integer("classes", 1, width_limit);
  options.width = read.integer("width", 1, width_limit);
  const std::string& stem = read.word("stem");
  if (stem != "imagenet" && stem != "small") read.refuse("stem", stem, "imagenet or small");
  options.small_images = stem == "small";
  options.blocks = read.integers("blocks", 1, layer_limit);
  return {image_inputs(read), [options](Scope s, Inputs in) { return classified(resnet(s, in["image"], options), in["label"]); }, {}};
}

template <class Options>
void read_transformer(const Reader& read, Options& options) {
  options.vocabulary = read.integer("vocabulary", 1, int64_t{1} << 31);
  options.context = read.integer("context", 1, width_limit);
  options.layers = read.integer("layers", 0, layer_limit);
  options.heads = read.integer("heads", 1, width_limit);
  options.width = read.integer("width", 1, width_limit);
  options.dropout = read.number("dropout", 0, 1);
}

ModelDefinition define_gpt(const Reader& read) {
  GptOptions options;
  read_transformer(read, options);
  options.bias = read.flag("bias");
  options.conv1d = read.flag("conv1d");
  const Shape shape{batch(), options.context};
  return {{{"tokens", DType::I32, shape}, {"targets", DType::I32, shape}},
          [options](Scope s, Inputs in) { return classified(gpt(s, in["tokens"], options), in["targets"]); },
          {},
          {{"transformer.wte.weight", {"lm_head.weight"}}},
          {"*.attn.bias", "*.attn.masked_bias"}};
}

std::vector<InputSpec> text_inputs(const Reader& read) {
  const Shape shape{batch(), read.integer("context", 1, width_limit)};
  return {{"tokens", DType::I32, shape}, {"targets", DType::I32, shape}};
}

void read_llama(const Reader& read, LlamaOptions& options) {
  read_transformer(read, options);
  options.kv_heads = read.integer("kv_heads", 0, width_limit);
  options.inner = read.integer("inner", 0, width_limit);
  options.theta = read.number("theta", 1, 1e12);
  options.epsilon = read.number("epsilon", 0, 1);
  options.tied = read.flag("tied");
}
void name_llama(const LlamaOptions& options, ModelDefinition& model) {
  if (options.tied) model.tied = {{"model.embed_tokens.weight", {"lm_head.weight"}}};
  model.unused = {"*.rotary_emb.inv_freq"};
}

ModelDefinition define_llama(const Reader& read) {
  LlamaOptions options;
  read_llama(read, options);
  ModelDefinition model;
  model.inputs = text_inputs(read);
  model.function = [options](Scope s, Inputs in) { return classified(llama(s, in["tokens"], options), in["targets"]); };
  name_llama(options, model);
  return model;
}

ModelDefinition define_moe(const Reader& read) {
  MoeOptions options;
  read_llama(read, options);
  options.experts = read.integer("experts", 1, layer_limit);
  options.routing.top_k = read.integer("top_k", 1, options.experts);
  options.routing.capacity_factor = read.number("capacity_factor", 1e-6, 1e6);
  options.routing.dense = read.flag("dense");
  const MoePenalties penalties{read.number("balance", 0, 1e6), read.number("z_loss", 0, 1e6)};
  ModelDefinition model;
  model.inputs = text_inputs(read);
  model.function = [options, penalties](Scope s, Inputs in) {
    const MoeResult result = moe(s, in["tokens"], options);
    return moe_loss(s, result, in["targets"], options, penalties).output("logits", result.logits);
  };
  name_llama(options, model);
  return model;
}

ModelDefinition define_lstm(const Reader& read) {
  LstmOptions options;
  options.vocabulary = read.integer("vocabulary", 1, int64_t{1} << 31);
  options.layers = read.integer("layers", 1, layer_limit);
  options.width = read.integer("width", 1, width_limit);
  options.dropout = read.number("dropout", 0, 1);
  return {text_inputs(read), [options](Scope s, Inputs in) { return classified(lstm_model(s, in["tokens"], options), in["targets"]); }, {}};
}

ModelDefinition define_vit(const Reader& read) {
  VitOptions options;
  options.classes = read.integer("classes", 1, width_limit);
  options.patch = read.integer("patch", 1, width_limit);
  options.layers = read.integer("layers", 0, layer_limit);
  options.heads = read.integer("heads", 1, width_limit);
  options.width = read.integer("width", 1, width_limit);
  options.inner = read.integer("inner", 0, width_limit);
  options.dropout = read.number("dropout", 0, 1);
  return {image_inputs(read), [options](Scope s, Inputs in) { return classified(vit(s, in["image"], options), in["label"]); }, {}};
}

ModelDefinition define_unet(const Reader& read) {
  UnetOptions options;
  options.classes = read.integer("classes", 1, width_limit);
  options.width = read.integer("width", 1, width_limit);
  options.levels = read.integer("levels", 0, 16);
  std::vector<InputSpec> inputs = image_inputs(read);
  inputs[1].shape = {batch(), inputs[0].shape[2], inputs[0].shape[3]};
  return {inputs,
          [options](Scope s, Inputs in) {
            const Value logits = unet(s, in["image"], options);
            CrossEntropyOptions pixels;
            pixels.class_dim = 1;
            return cross_entropy(logits, in["label"], pixels).output("logits", logits);
          },
          {}};
}

ModelDefinition define_convnext(const Reader& read) {
  ConvnextOptions options;
  options.blocks = read.integers("blocks", 0, layer_limit);
  options.width = read.integer("width", 1, width_limit);
  options.classes = read.integer("classes", 1, width_limit);
  const int64_t wanted = int64_t{4} << std::min<size_t>(options.blocks.size() - (options.blocks.empty() ? 0 : 1), 20);
  if (read.integer("size") < wanted) read.refuse("size", read.word("size"), fmt::format("at least {} for {} stages", wanted, options.blocks.size()));
  return {image_inputs(read), [options](Scope s, Inputs in) { return classified(convnext(s, in["image"], options), in["label"]); }, {}};
}

ModelDefinition define_bert(const Reader& read) {
  BertOptions options;
  read_transformer(read, options);
  options.inner = read.integer("inner", 0, width_limit);
  const double rate = read.number("mask_rate", 0, 1);
  const int64_t mask_token = read.word("mask_token").empty() ? options.vocabulary - 1 : read.integer("mask_token", 0, options.vocabulary - 1);
  const bool attention_mask = read.flag("attention_mask");
  const Shape shape{batch(), options.context};
  ModelDefinition model;
  model.inputs = {{"tokens", DType::I32, shape}};
  if (rate == 0) model.inputs.push_back({"targets", DType::I32, shape});
  if (attention_mask) model.inputs.push_back({"attention_mask", DType::Bool, shape});
  model.function = [=](Scope s, Inputs in) {
    const MaskedTokens masked =
        rate == 0 ? MaskedTokens{in["tokens"], in["targets"]} : mask_tokens(s, in["tokens"], rate, options.vocabulary, mask_token);
    const std::optional<Value> mask = attention_mask ? std::optional<Value>(in["attention_mask"]) : std::nullopt;
    return classified(bert(s, masked.tokens, options, mask), masked.targets);
  };
  model.tied = {{"bert.embeddings.word_embeddings.weight", {"cls.predictions.decoder.weight"}}, {"cls.predictions.bias", {"cls.predictions.decoder.bias"}}};
  model.unused = {"*.position_ids"};
  return model;
}

struct Row {
  ModelInfo info;
  ModelDefinition (*define)(const Reader&);
};

std::vector<ModelOption> image_options(const char* channels, const char* size, const char* classes) {
  return {{"channels", channels, "channels of the images"},
          {"size", size, "height and width of the images"},
          {"classes", classes, "labels are 0 to classes - 1"}};
}

std::vector<ModelOption> transformer_options(const char* dropout) {
  return {{"vocabulary", "256", "tokens are 0 to vocabulary - 1"},
          {"context", "64", "tokens in a sample"},
          {"layers", "2", "blocks"},
          {"heads", "4", "attention heads; they divide the width"},
          {"width", "64", "size of a token's vector"},
          {"dropout", dropout, "rate from 0 to 1"}};
}

std::vector<ModelOption> joined(std::vector<ModelOption> a, const std::vector<ModelOption>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<ModelOption> llama_options() {
  return joined(transformer_options("0"), {{"kv_heads", "0", "heads of keys and values; they divide heads; 0: as many"},
                                           {"inner", "0", "width of the feed-forward part; 0 is four times the width"},
                                           {"theta", "10000", "base of the rotary positions"},
                                           {"epsilon", "1e-6", "of the norms"},
                                           {"tied", "false", "output weights are the token embedding"}});
}

std::vector<Row> rows() {
  return {
      {{"mlp", "multi-layer perceptron on flattened images",
        joined(image_options("1", "8", "10"), {{"hidden", "128,64", "widths of the hidden layers"},
                                               {"activation", "relu", "relu, gelu, tanh or silu"},
                                               {"dropout", "0", "rate after each hidden layer"}})},
       define_mlp},
      {{"convnet", "three convolutions with batch norm, for small images",
        joined(image_options("1", "8", "10"),
               {{"width", "16", "channels of the first convolution"}, {"dropout", "0", "rate before the last layer"}})},
       define_convnet},
      {{"resnet", "residual network, names and layouts of torchvision's",
        joined(image_options("3", "224", "1000"), {{"depth", "18", "18, 34, 50, 101 or 152"},
                                                   {"width", "64", "channels of the first stage"},
                                                   {"blocks", "", "of each stage, e.g. 1,1,1,1; as the depth says when empty"},
                                                   {"stem", "imagenet", "imagenet (7x7, stride 2, pooling) or small (3x3)"}})},
       define_resnet},
      {{"gpt", "decoder-only transformer as GPT-2", joined(transformer_options("0"), {{"bias", "true", "biases in linear layers and norms"},
                                                                                            {"conv1d", "false", "weights are [in, out], as in transformers"}})},
       define_gpt},
      {{"bert", "encoder with a masked-token head",
        joined(transformer_options("0.1"),
               {{"inner", "0", "width of the feed-forward part; 0 is four times the width"},
                {"mask_rate", "0.15", "tokens that the model masks and must guess; 0: the data brings targets, -100 where none is asked"},
                {"mask_token", "", "token that stands for a masked one; the last of the vocabulary when empty"},
                {"attention_mask", "false", "read attention_mask bool [batch, context]"}})},
       define_bert},
      {{"llama", "decoder-only transformer as LLaMA", llama_options()}, define_llama},
      {{"moe", "decoder-only transformer with a mixture of experts, as Mixtral",
        joined(llama_options(), {{"experts", "4", "feed-forward parts of each layer"},
                                 {"top_k", "2", "experts that a token is sent to"},
                                 {"capacity_factor", "1.25", "room of an expert: this times its even share of a row's tokens; the rest is dropped"},
                                 {"dense", "false", "every expert sees every token: nothing is dropped, more is computed"},
                                 {"balance", "0.01", "factor of the penalty for uneven experts, in training"},
                                 {"z_loss", "0", "factor of the penalty for large router logits, in training"}})},
       define_moe},
      {{"lstm", "language model of LSTM layers",
        {{"vocabulary", "256", "tokens are 0 to vocabulary - 1"},
         {"context", "64", "tokens in a sample"},
         {"layers", "2", "LSTM layers"},
         {"width", "64", "size of a token's vector and of the states"},
         {"dropout", "0", "rate from 0 to 1"}}},
       define_lstm},
      {{"vit", "vision transformer",
        joined(image_options("3", "224", "1000"), {{"patch", "16", "height and width of a patch; it divides the size"},
                                                   {"layers", "12", "blocks"},
                                                   {"heads", "12", "attention heads; they divide the width"},
                                                   {"width", "768", "size of a patch's vector"},
                                                   {"inner", "0", "width of the feed-forward part; 0 is four times the width"},
                                                   {"dropout", "0", "rate from 0 to 1"}})},
       define_vit},
      {{"unet", "U-Net: a class for each pixel; label i64 [batch, size, size]",
        joined(image_options("3", "256", "2"),
               {{"width", "64", "channels of the first convolution"}, {"levels", "4", "times that the image is halved; 2^levels divides the size"}})},
       define_unet},
      {{"convnext", "convolutional network as ConvNeXt, names and layouts of torchvision's",
        joined(image_options("3", "224", "1000"), {{"blocks", "3,3,9,3", "blocks of each stage"}, {"width", "96", "channels of the first stage"}})},
       define_convnext},
  };
}

}  // namespace

std::vector<ModelInfo> models() {
  std::vector<ModelInfo> result;
  for (Row& row : rows()) result.push_back(std::move(row.info));
  return result;
}

ModelDefinition define_model(std::string_view name, const ModelOptionValues& options) {
  std::vector<std::string> names;
  for (const Row& row : rows()) {
    if (row.info.name == name) {
      ModelDefinition model = row.define(Reader(row.info, options));
      model.capture.name = row.info.name;
      return model;
    }
    names.push_back(row.info.name);
  }
  throw UserError(fmt::format("there is no model '{}'; nearest are {}", name, nearest_names(name, names, names.size())));
}

Module build_model(std::string_view name, const ModelOptionValues& options, const Autocast& autocast) {
  ModelDefinition model = define_model(name, options);
  model.capture.autocast = autocast;
  return capture(model.inputs, model.function, model.capture);
}

}  // namespace stepgraph
