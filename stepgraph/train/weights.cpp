// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/weights.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>

#include "stepgraph/base/file.h"
#include "stepgraph/base/pattern.h"

namespace stepgraph {
namespace {

/// A few dozen names are read, thousands are not.
constexpr size_t names_shown = 30;

std::string listed(const char* what, const std::vector<std::string>& entries) {
  if (entries.empty()) return "";
  std::string text = std::string("; ") + what;
  for (size_t i = 0; i < std::min(entries.size(), names_shown); ++i) text += (i ? ", " : "") + entries[i];
  if (entries.size() > names_shown) text += " and " + std::to_string(entries.size() - names_shown) + " more";
  return text;
}

/// A tensor of the model, and the file's value for it.
struct Wanted {
  DType dtype = DType::F32;
  Sizes sizes;
  std::optional<Literal> given;
};

/// Fits a file's tensors to those of a model.
class Fit {
 public:
  Fit(std::map<std::string, Wanted>& wanted, const BuiltModel& model) : wanted_(wanted), model_(model) {
    for (const auto& [first, others] : model.tied)
      for (const std::string& other : others) first_of_[other] = first;
  }

  void take(const std::string& name, const Literal& value) {
    const auto tied = first_of_.find(name);
    const std::string& target = tied == first_of_.end() ? name : tied->second;
    const auto found = wanted_.find(target);
    if (found == wanted_.end()) {
      const auto is_unused = [&](const std::string& pattern) { return matches(pattern, name); };
      if (std::none_of(model_.unused.begin(), model_.unused.end(), is_unused)) unexpected_.push_back(name);
      return;
    }
    Wanted& place = found->second;
    const bool convertible = is_floating(value.dtype()) && is_floating(place.dtype);
    if (value.sizes() != place.sizes || (value.dtype() != place.dtype && !convertible)) {
      if (value.rank() == 2 && value.sizes() == Sizes(place.sizes.rbegin(), place.sizes.rend())) ++transposed_;
      other_.push_back(name + " is " + type_text(value.dtype(), value.sizes()) + ", wanted " + type_text(place.dtype, place.sizes));
      taken_[target] = name;
      return;
    }
    Literal converted = value.dtype() == place.dtype ? value : converted_in_range(value, place.dtype, "weight " + name);
    const auto [before, is_first] = taken_.emplace(target, name);
    if (place.given && !(*place.given == converted)) other_.push_back(name + " differs from " + before->second + ", which is the same tensor in this model");
    place.given = std::move(converted);
  }

  void finish(const std::string& path) {
    std::vector<std::string> missing;
    for (const auto& [name, tensor] : wanted_)
      if (!taken_.count(name) && !model_.unsaved.count(name)) missing.push_back(name);
    std::string problems = listed("missing ", missing) + listed("unexpected ", unexpected_) + listed("", other_);
    if (transposed_ > 0 && transposed_ == other_.size())
      problems += "; all of these are the other way round: the model gpt takes both ways, -o conv1d=true (GPT-2 of transformers) and -o conv1d=false";
    problems += prefix_hint(missing);
    if (!problems.empty()) throw UserError(path + " does not fit the model" + problems);
  }

 private:
  /// Whether the names of the file and of the model are the same but for one prefix, as of a model inside another.
  std::string prefix_hint(const std::vector<std::string>& missing) const {
    if (missing.empty() || unexpected_.empty()) return "";
    const auto fits = [](const std::vector<std::string>& longer, const std::vector<std::string>& shorter) -> std::string {
      std::set<std::string> names(longer.begin(), longer.end());
      for (const std::string& candidate : longer) {
        if (!candidate.ends_with("." + shorter[0])) continue;
        const std::string prefix = candidate.substr(0, candidate.size() - shorter[0].size());
        if (std::all_of(shorter.begin(), shorter.end(), [&](const std::string& name) { return names.count(prefix + name) > 0; })) return prefix;
      }
      return "";
    };
    if (const std::string prefix = fits(unexpected_, missing); !prefix.empty())
      return "; the file's names are the model's with '" + prefix + "' before them: save the state_dict of that part alone, or without the prefix";
    if (const std::string prefix = fits(missing, unexpected_); !prefix.empty())
      return "; the model's names are the file's with '" + prefix + "' before them: save the state_dict of the whole model, or with the prefix";
    return "";
  }

  std::map<std::string, Wanted>& wanted_;  // values are given
  const BuiltModel& model_;
  std::map<std::string, std::string> first_of_;
  std::map<std::string, std::string> taken_;  // by which name of the file
  std::vector<std::string> unexpected_, other_;
  size_t transposed_ = 0;  // of other_
};

/// torch.save writes a zip archive or, long ago, a pickle. In safetensors a '{' follows the length of the header.
void check_is_safetensors(std::span<const std::byte> bytes, const std::string& path) {
  constexpr size_t head = 9;
  const std::string_view magic(reinterpret_cast<const char*>(bytes.data()), std::min(head, bytes.size()));
  if (magic.size() == head && magic.back() == '{') return;
  if (magic.starts_with("PK\x03\x04") || magic.starts_with("\x80\x02"))
    throw UserError(path + ": is not safetensors: looks like a file of torch.save; save the state_dict with safetensors.torch.save_file");
}

Safetensors read_weights(const std::string& path) {
  const std::vector<std::byte> bytes = read_file_bytes(path);
  check_is_safetensors(bytes, path);
  return parse_safetensors(bytes, path);
}

}  // namespace

void load_weights(const std::string& path, Trainer& trainer, BuiltModel& model) {
  Safetensors file = read_weights(path);
  std::map<std::string, Wanted> wanted;
  for (const auto& [name, value] : model.weights) wanted[name] = {value.dtype(), value.sizes(), {}};
  for (const StateInfo& state : trainer.local().states) {
    if (state.role == RoleKind::OptimizerState) continue;
    const TensorType& type = trainer.logical().states.find(state.name)->type;
    wanted[state.name] = {type.dtype, {}, {}};
    for (const Dim& size : type.shape) wanted[state.name].sizes.push_back(size.constant());
  }
  Fit fit(wanted, model);
  for (const auto& [name, value] : file.arrays) fit.take(name, value);
  fit.finish(path);
  file.arrays.clear();
  for (auto& [name, value] : model.weights)
    if (const auto& given = wanted.at(name).given) value = *given;
  NamedArrays states;
  for (auto& [name, tensor] : wanted)
    if (tensor.given && trainer.local().states.find(name)) states.emplace_back(name, std::move(*tensor.given));
  trainer.replace_state(std::move(states), trainer.steps_done());
}

}  // namespace stepgraph
