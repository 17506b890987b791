// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/imported_model.h"

#include <algorithm>
#include <iterator>

#include "stepgraph/base/nearest.h"
#include "stepgraph/train/job.h"

namespace stepgraph {
namespace {

/// Another dataset under other names. A field may serve several inputs; those that are not bound keep their names.
class BoundDataset : public Dataset {
 public:
  BoundDataset(DatasetPointer whole, const std::map<std::string, std::string>& bind) : whole_(std::move(whole)) {
    std::vector<std::string> names;
    for (const Field& field : whole_->fields()) names.push_back(field.name);
    std::set<std::string> used;
    for (const auto& [input, field] : bind) {
      const auto found = std::find(names.begin(), names.end(), field);
      if (found == names.end()) throw UserError("bind: the data has no '" + field + "'; nearest are " + nearest_names(field, names));
      take(input, static_cast<size_t>(found - names.begin()));
      used.insert(field);
    }
    for (size_t i = 0; i < names.size(); ++i)
      if (!used.count(names[i]) && !bind.count(names[i])) take(names[i], i);
  }
  int64_t size() const override { return whole_->size(); }
  const std::vector<Field>& fields() const override { return fields_; }
  NamedArrays gather(std::span<const int64_t> ids) const override { return bound(whole_->gather(ids)); }
  NamedArrays gather_drawn(std::span<const int64_t> ids, const Draw& draw) const override { return bound(whole_->gather_drawn(ids, draw)); }
  std::optional<ValueRange> range(size_t field) const override { return whole_->range(sources_[field]); }
  void hash_content(Hasher& hasher, std::span<const int64_t> ids) const override {
    for (const size_t source : sources_) hasher.number(static_cast<int64_t>(source));
    whole_->hash_content(hasher, ids);
  }

 private:
  NamedArrays bound(const NamedArrays& arrays) const {
    NamedArrays result;
    for (size_t i = 0; i < fields_.size(); ++i) result.emplace_back(fields_[i].name, arrays[sources_[i]].second);
    return result;
  }
  void take(const std::string& input, size_t source) {
    fields_.push_back(whole_->fields()[source]);
    fields_.back().name = input;
    sources_.push_back(source);
  }
  DatasetPointer whole_;
  std::vector<Field> fields_;
  std::vector<size_t> sources_;
};

}  // namespace

bool is_pt2(const std::string& model_name) { return model_name.ends_with(".pt2"); }

BuiltModel import_model(const ModelChoice& model, const Autocast& autocast) {
  ImportOptions options;
  options.autocast = autocast;
  for (const auto& [option, value] : model.options) {
    if (option != "loss") throw UserError("model option '" + option + "': " + model.name + " is a file and has only the option loss");
    options.loss = value;
  }
  Imported imported = import_pt2(model.name, options);
  BuiltModel built;
  built.module = std::move(imported.forward);
  built.weights = std::move(imported.weights);
  built.tied = std::move(imported.tied);
  built.unsaved = std::move(imported.unsaved);
  built.warnings = std::move(imported.warnings);
  built.frozen = std::move(imported.frozen);
  built.guards = std::move(imported.guards);
  return built;
}

void start_from(Trainer& trainer, NamedArrays& weights) {
  const auto is_kept = [&](const auto& weight) { return !trainer.local().states.find(weight.first); };
  const auto first_state = std::stable_partition(weights.begin(), weights.end(), is_kept);
  NamedArrays states(std::make_move_iterator(first_state), std::make_move_iterator(weights.end()));
  weights.erase(first_state, weights.end());
  trainer.replace_state(std::move(states), trainer.steps_done());
}

void save_state_dict(const std::string& path, const Trainer& trainer, const BuiltModel& model) {
  std::map<std::string, Literal> values(model.weights.begin(), model.weights.end());
  for (auto& [weight, value] : trainer.weights()) values[weight] = value;
  for (const auto& [first, others] : model.tied)
    for (const std::string& other : others) values[other] = values.at(first);
  Safetensors content;
  content.metadata["format"] = "pt";
  for (auto& [weight, value] : values)
    if (!model.unsaved.count(weight)) content.arrays.emplace_back(weight, std::move(value));
  write_safetensors(path, content);
}

DatasetPointer bind_fields(DatasetPointer dataset, const std::map<std::string, std::string>& bind) {
  return bind.empty() ? dataset : std::make_shared<BoundDataset>(std::move(dataset), bind);
}

}  // namespace stepgraph
