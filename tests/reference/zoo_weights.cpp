// SPDX-License-Identifier: Apache-2.0
// Weights from PyTorch into the zoo and back: a state_dict by its names gives PyTorch's logits, and is saved again bit for bit (tests/zoo, recorded by
// scripts/record_zoo.py). What does not fit is told as a whole.
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include <gtest/gtest.h>

#include "stepgraph/train/job.h"
#include "stepgraph/train/weights.h"
#include "tests/support/on_reference.h"
#include "tests/support/places.h"

namespace stepgraph {
namespace zoo_weights_test {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// The formula of scripts/record_zoo.py.
double uniform(const std::string& name, uint64_t index) {
  uint32_t salt = 2166136261u;
  for (const char c : name) salt = (salt ^ static_cast<unsigned char>(c)) * 16777619u;
  return static_cast<double>((index * 2654435761u + salt) & 0xffffffffu) / 4294967296.0 - 0.5;
}
Literal weight(const std::string& name, DType dtype, const Sizes& sizes) {
  Literal value(dtype, sizes);
  if (!is_floating(dtype)) {
    for (int64_t i = 0; i < value.count(); ++i) value.set_integer(i, 3);
    return value;
  }
  const double fan_in = sizes.size() >= 2 ? static_cast<double>(value.count() / sizes[0]) : 1;
  for (int64_t i = 0; i < value.count(); ++i) {
    const double u = uniform(name, static_cast<uint64_t>(i));
    value.set(i, name.ends_with("running_var") ? 1 + u : sizes.size() >= 2 ? u * (2 / std::sqrt(fan_in)) : name.ends_with("weight") ? 1 + u * 0.5 : u * 0.5);
  }
  return value;
}

struct Record {
  ModelChoice model;
  NamedArrays batch;
  Literal logits;
  NamedArrays state_dict;
};

Record read_record(const std::string& name) {
  const Safetensors file = read_safetensors(std::string(testing::source_root()) + "/tests/zoo/" + name + ".safetensors");
  Record record;
  record.model.name = file.metadata.at("model");
  for (const std::string& option : split(file.metadata.at("options"), '\n'))
    record.model.options[option.substr(0, option.find('='))] = option.substr(option.find('=') + 1);
  for (const auto& [key, value] : file.arrays) {
    if (key == "logits") {
      record.logits = value;
      continue;
    }
    record.batch.emplace_back(key, value);
    // The loss is of no interest here.
    if (key == "tokens") record.batch.emplace_back("targets", Literal(DType::I32, value.sizes()));
    if (key == "image") record.batch.emplace_back("label", Literal(DType::I64, {value.sizes()[0]}));
  }
  // PyTorch gives tied tensors under each of their names: the first one's value.
  std::map<std::string, std::string> first;
  TrainJob job;
  job.model = record.model;
  for (const auto& [name_of_first, others] : build_job_model(job).tied)
    for (const std::string& other : others) first[other] = name_of_first;
  for (const std::string& line : split(file.metadata.at("tensors"), '\n')) {
    const std::vector<std::string> words = split(line, ' ');
    Sizes sizes;
    if (words.size() > 2)
      for (const std::string& size : split(words[2], ',')) sizes.push_back(std::stoll(size));
    const auto tied = first.find(words[0]);
    record.state_dict.emplace_back(words[0], weight(tied == first.end() ? words[0] : tied->second, words[1] == "int64" ? DType::I64 : DType::F32, sizes));
  }
  return record;
}

class Files {
 public:
  Files() {
    std::string name = (fs::temp_directory_path() / "stepgraph-weights-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("test: cannot make a folder");
    path_ = name;
  }
  ~Files() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

struct Loaded {
  explicit Loaded(const ModelChoice& choice) {
    TrainJob job;
    job.model = choice;
    model = build_job_model(job);
    trainer = std::make_unique<Trainer>(std::move(model.module), testing::on_reference());
  }
  BuiltModel model;
  std::unique_ptr<Trainer> trainer;
};

class ZooWeights : public ::testing::TestWithParam<std::string> {};
TEST_P(ZooWeights, GivePyTorchsLogitsAndComeBackBitForBit) {
  const Files files;
  const Record record = read_record(GetParam());
  write_safetensors(files / "in.safetensors", {record.state_dict, {}});
  Loaded loaded(record.model);
  load_weights(files / "in.safetensors", *loaded.trainer, loaded.model);
  const Literal found = loaded.trainer->eval_batch(record.batch).outputs.at("logits");
  ASSERT_EQ(found.sizes(), record.logits.sizes());
  double worst = 0;
  for (int64_t i = 0; i < found.count(); ++i) worst = std::max(worst, std::fabs(found.at(i) - record.logits.at(i)));
  EXPECT_LT(worst, 1e-5);
  save_state_dict(files / "out.safetensors", *loaded.trainer, loaded.model);
  const Safetensors out = read_safetensors(files / "out.safetensors"), in = read_safetensors(files / "in.safetensors");
  EXPECT_EQ(out.metadata.at("format"), "pt");
  std::vector<std::string> out_names, in_names;
  for (const auto& [name, value] : out.arrays) out_names.push_back(name);
  for (const auto& [name, value] : in.arrays) in_names.push_back(name);
  EXPECT_EQ(out_names, in_names);
  EXPECT_TRUE(out.arrays == in.arrays);
}
INSTANTIATE_TEST_SUITE_P(Models, ZooWeights,
                         ::testing::Values("mlp", "lstm", "resnet", "resnet_bottleneck", "convnext", "vit", "gpt", "llama", "llama_tied", "bert", "moe"),
                         [](const auto& info) { return info.param; });

std::string error_of(const NamedArrays& arrays, const ModelChoice& choice) {
  const Files files;
  write_safetensors(files / "w.safetensors", {arrays, {}});
  Loaded loaded(choice);
  const NamedArrays before = loaded.trainer->state();
  try {
    load_weights(files / "w.safetensors", *loaded.trainer, loaded.model);
  } catch (const UserError& error) {
    EXPECT_TRUE(before == loaded.trainer->state());
    const std::string text = error.what();
    return text.substr(text.find("w.safetensors"));
  }
  return "no error";
}

Literal& array(NamedArrays& arrays, const std::string& name) {
  return std::find_if(arrays.begin(), arrays.end(), [&](const auto& entry) { return entry.first == name; })->second;
}

TEST(ZooWeightFiles, AllThatDoesNotFitIsOneError) {
  const Record record = read_record("mlp");
  NamedArrays arrays = record.state_dict;
  std::erase_if(arrays, [](const auto& entry) { return entry.first == "layers.0.bias" || entry.first == "layers.2.weight"; });
  arrays.emplace_back("layers.3.bias", Literal(DType::F32, {2}));
  array(arrays, "layers.1.weight") = Literal(DType::F32, {7, 5});
  array(arrays, "layers.1.bias") = Literal(DType::I64, {5});
  EXPECT_EQ(error_of(arrays, record.model),
            "w.safetensors does not fit the model; missing layers.0.bias, layers.2.weight; unexpected layers.3.bias; layers.1.bias is i64[5], wanted f32[5], "
            "layers.1.weight is f32[7, 5], wanted f32[5, 7]");
  NamedArrays many = record.state_dict;
  for (int i = 0; i < 100; ++i) many.emplace_back("x" + std::to_string(i), Literal(DType::F32, {1}));
  EXPECT_NE(error_of(many, record.model).find("and 70 more"), std::string::npos);
}

TEST(ZooWeightFiles, ATiedTensorNeedsOneOfItsNames) {
  const Record record = read_record("gpt");
  NamedArrays arrays = record.state_dict;
  EXPECT_EQ(error_of(arrays, record.model), "no error");
  array(arrays, "lm_head.weight").set(3, 7);
  EXPECT_NE(error_of(arrays, record.model).find("differs from"), std::string::npos);
  std::erase_if(arrays, [](const auto& entry) { return entry.first == "transformer.wte.weight"; });
  EXPECT_EQ(error_of(arrays, record.model), "no error");
  std::erase_if(arrays, [](const auto& entry) { return entry.first == "lm_head.weight"; });
  EXPECT_EQ(error_of(arrays, record.model), "w.safetensors does not fit the model; missing transformer.wte.weight");
}

TEST(ZooWeightFiles, OldBuffersAndNarrowFloatsAreTaken) {
  const Record record = read_record("gpt");
  NamedArrays arrays = record.state_dict;
  arrays.emplace_back("transformer.h.0.attn.bias", Literal(DType::U8, {1, 1, 9, 9}));
  for (auto& [name, value] : arrays)
    if (value.dtype() == DType::F32) value = value.converted(DType::BF16);
  const Files files;
  write_safetensors(files / "w.safetensors", {arrays, {}});
  Loaded loaded(record.model);
  load_weights(files / "w.safetensors", *loaded.trainer, loaded.model);
  const NamedArrays weights = loaded.trainer->weights();
  EXPECT_EQ(find_array(weights, "transformer.wpe.weight")->dtype(), DType::F32);
  EXPECT_EQ(find_array(weights, "transformer.wpe.weight")->at(5), array(arrays, "transformer.wpe.weight").at(5));
}

}  // namespace zoo_weights_test
}  // namespace stepgraph
