// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/program_reader.h"
#include <fmt/core.h>
#include <algorithm>
#include <array>
#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/json_tree.h"
#include "stepgraph/compile/capture/pt2/program_check.h"
#include "stepgraph/compile/capture/pt2/program_json.h"
#include "stepgraph/compile/capture/pt2/zip_directory.h"

namespace stepgraph::pt2 {
namespace {

constexpr int64_t schema_major = 8;
constexpr const char* export_again = "export the model again with PyTorch 2.9 or newer (torch.export.save)";

// The bulk of the metadata, which nothing here reads.
constexpr std::array<std::string_view, 3> unread_keys = {"from_node", "custom", "torch_fn"};

[[noreturn]] void refuse(const std::string& where, const std::string& what) { throw UserError(where + ": " + what); }

// ---- payloads

struct PayloadFolder {
  const char *folder, *config_end, *pickled_end;
};
constexpr PayloadFolder weights_folder = {"data/weights/", "_weights_config.json", ".pt"};
constexpr PayloadFolder constants_folder = {"data/constants/", "_constants_config.json", ".pt"};

Payload read_payload(const JsonAt& at, const std::string& name, const char* folder, const Pt2Archive& archive, SizeReader& sizes) {
  const JsonAt path = at.at("path_name");
  const auto pickled = at.find("use_pickle");
  if ((pickled && pickled->boolean()) || path.string().starts_with("custom_obj_"))
    at.fail(fmt::format("'{}' is a pickled object (a script object or a tensor subclass), which is not read: export the model with plain tensors instead",
                        shown(name)));
  Payload payload;
  payload.member = folder + path.string();
  const JsonAt meta = at.at("tensor_meta");
  payload.meta = sizes.tensor(meta);
  if (const auto parameter = at.find("is_param")) payload.is_parameter = parameter->boolean();
  if (!archive.has(payload.member)) path.fail(fmt::format("has no member '{}'", shown(payload.member)));
  return payload;
}

std::map<std::string, Payload> read_payloads(const Pt2Archive& archive, const std::string& model, const PayloadFolder& folder, SizeReader& sizes) {
  const std::string config = folder.folder + model + folder.config_end;
  std::map<std::string, Payload> result;
  if (!archive.has(config)) {
    if (const std::string pickled = folder.folder + model + folder.pickled_end; archive.has(pickled))
      refuse(archive.path(), fmt::format("{} holds pickled tensors, which are not read: {}", shown(pickled), export_again));
    return result;
  }
  const std::string where = archive.path() + ": " + shown(config);
  const JsonValue tree = parse_json(archive.member(config), where);
  const JsonAt root(tree, where);
  const JsonAt entries = root.at("config");
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto [name, value] = entries.entry(i);
    result.emplace(name, read_payload(value, std::string(name), folder.folder, archive, sizes));
  }
  return result;
}

// ---- signature

std::string argument_name(const JsonAt& spec) {
  const JsonAt argument = spec.at("arg");
  const JsonAt name = argument.at("name");
  if (name.string().empty()) name.fail("is empty, wanted the name of a value");
  return name.string();
}
std::string text_of(const JsonAt& spec, std::string_view key) {
  const JsonAt text = spec.at(key);
  return text.string();
}

ExportedInput read_input_spec(const JsonAt& at, SizeReader& sizes) {
  const auto [kind, spec] = at.variant();
  using Kind = ExportedInput::Kind;
  if (kind == "parameter") return {Kind::Parameter, argument_name(spec), text_of(spec, "parameter_name")};
  if (kind == "buffer") {
    const auto persistent = spec.find("persistent");
    return {Kind::Buffer, argument_name(spec), text_of(spec, "buffer_name"), !persistent || persistent->boolean()};
  }
  if (kind == "tensor_constant") return {Kind::TensorConstant, argument_name(spec), text_of(spec, "tensor_constant_name")};
  if (kind == "constant_input") {
    const JsonAt value = spec.at("value");
    return {Kind::ConstantInput, "", text_of(spec, "name"), true, read_argument(value, sizes)};
  }
  if (kind == "user_input") {
    const JsonAt argument = spec.at("arg");
    Argument value = read_argument(argument, sizes);
    if (const auto* tensor = std::get_if<TensorRef>(&value)) {
      if (tensor->name.empty()) argument.fail("has an empty name, wanted the name of a value");
      return {Kind::UserInput, tensor->name, ""};
    }
    return {Kind::UserInput, "", "", true, std::move(value)};
  }
  at.fail(fmt::format("an input of kind '{}' is not supported: script objects and tokens cannot be read, export the model without them", shown(kind)));
}

ExportedOutput read_output_spec(const JsonAt& at, SizeReader& sizes) {
  const auto [kind, spec] = at.variant();
  using Kind = ExportedOutput::Kind;
  struct Row {
    std::string_view kind;
    Kind value;
    std::string_view target;
  };
  constexpr Row rows[] = {{"loss_output", Kind::Loss, ""},
                          {"buffer_mutation", Kind::BufferMutation, "buffer_name"},
                          {"parameter_mutation", Kind::ParameterMutation, "parameter_name"},
                          {"user_input_mutation", Kind::UserInputMutation, "user_input_name"},
                          {"gradient_to_parameter", Kind::GradientToParameter, "parameter_name"},
                          {"gradient_to_user_input", Kind::GradientToUserInput, "user_input_name"}};
  if (kind == "user_output") {
    const JsonAt argument = spec.at("arg");
    return {Kind::UserOutput, read_argument(argument, sizes), ""};
  }
  for (const Row& row : rows)
    if (row.kind == kind) return {row.value, TensorRef{argument_name(spec)}, row.target.empty() ? std::string() : text_of(spec, row.target)};
  at.fail(fmt::format("an output of kind '{}' is not supported", shown(kind)));
}

const JsonValue* member_of(const JsonValue& object, std::string_view key) {
  if (const auto* members = std::get_if<JsonValue::Object>(&object.value))
    for (const auto& [name, value] : *members)
      if (name == key) return &value;
  return nullptr;
}

/// Leaves of a tree of PyTorch's pytree, in order. The context of a dict, or of a class that is one, is a JSON list of its keys.
void name_leaves(const JsonValue& tree, const std::string& path, const std::string& where, std::vector<std::string>& names) {
  const JsonValue *type = member_of(tree, "type"), *context = member_of(tree, "context"), *children = member_of(tree, "children_spec");
  const auto* list = children ? std::get_if<JsonValue::List>(&children->value) : nullptr;
  if (!type || std::holds_alternative<std::monostate>(type->value) || !list) {
    names.push_back(path);
    return;
  }
  std::vector<std::string> keys;
  if (const auto* text = context ? std::get_if<std::string>(&context->value) : nullptr; text && text->starts_with('[')) {
    const JsonValue parsed = parse_json(std::as_bytes(std::span(*text)), where);
    for (const JsonValue& key : std::get<JsonValue::List>(parsed.value))
      if (const auto* word = std::get_if<std::string>(&key.value)) keys.push_back(*word);
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string key = keys.size() == list->size() ? keys[i] : std::to_string(i);
    name_leaves((*list)[i], path.empty() ? key : path + "." + key, where, names);
  }
}

/// "[1, {tree}]" as text. It serves names alone, so that a file without it, or of another version, has none.
void name_outputs(const JsonAt& returned, std::vector<std::string>& names) {
  const std::string where = returned.path();
  const std::string& text = returned.string();
  if (!text.starts_with('[')) return;
  const JsonValue spec = parse_json(std::as_bytes(std::span(text)), where);
  const auto& parts = std::get<JsonValue::List>(spec.value);
  if (parts.size() == 2) name_leaves(parts[1], "", where, names);
}

void read_signature(const JsonAt& module, ExportedProgram& program, SizeReader& sizes) {
  const JsonAt signature = module.at("signature");
  const JsonAt inputs = signature.at("input_specs"), outputs = signature.at("output_specs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const JsonAt item = inputs[i];
    program.inputs.push_back(read_input_spec(item, sizes));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const JsonAt item = outputs[i];
    program.outputs.push_back(read_output_spec(item, sizes));
  }
  const auto calls = module.find("module_call_graph");
  for (size_t i = 0; calls && i < calls->size(); ++i) {
    const JsonAt call = (*calls)[i];
    const auto call_signature = call.find("signature");
    if (!call_signature || text_of(call, "fqn") != "") continue;
    const auto names = call_signature->find("forward_arg_names");
    for (size_t k = 0; names && k < names->size(); ++k) {
      const JsonAt name = (*names)[k];
      program.forward_argument_names.push_back(name.string());
    }
    if (const auto returned = call_signature->find("out_spec")) name_outputs(*returned, program.output_names);
  }
}

// ---- the rest

std::optional<int64_t> read_limit(const JsonAt& range, std::string_view key) {
  const auto limit = range.find(key);
  if (!limit || limit->is_string()) return {};  // "Infinity"
  return limit->integer();
}

void read_ranges(const JsonAt& root, ExportedProgram& program, SizeReader& sizes) {
  const auto ranges = root.find("range_constraints");
  for (size_t i = 0; ranges && i < ranges->size(); ++i) {
    const auto [text, range] = ranges->entry(i);
    RangeConstraint constraint{0, read_limit(range, "min_val"), read_limit(range, "max_val")};
    if (constraint.minimum && constraint.maximum && *constraint.minimum > *constraint.maximum)
      range.fail(fmt::format("the range from {} to {} is empty", *constraint.minimum, *constraint.maximum));
    // Where a Dim cannot express the term, the ranges of its symbols still hold.
    if (auto expression = sizes.expression(std::string(text), range)) {
      constraint.expression = std::move(*expression);
      program.ranges.push_back(std::move(constraint));
    }
  }
}

std::vector<std::string> read_texts(const JsonAt& root, std::string_view key) {
  std::vector<std::string> result;
  const auto list = root.find(key);
  for (size_t i = 0; list && i < list->size(); ++i) {
    const JsonAt item = (*list)[i];
    result.push_back(item.string());
  }
  return result;
}

void read_versions(const JsonAt& root, ExportedProgram& program) {
  const JsonAt version = root.at("schema_version");
  const JsonAt major = version.at("major"), minor = version.at("minor");
  if (const auto torch = root.find("torch_version")) program.torch_version = torch->string();
  if (major.integer() != schema_major)
    major.fail(fmt::format("schema version {} (written by PyTorch {}) is not supported, wanted {}: {}", major.integer(), shown(program.torch_version),
                           schema_major, export_again));
  program.schema_major = static_cast<int>(schema_major);
  program.schema_minor = static_cast<int>(std::clamp<int64_t>(minor.integer(), 0, 1'000'000));
}

/// "model", or the archive's only one.
std::string model_name(const Pt2Archive& archive) {
  constexpr std::string_view folder = "models/", end = ".json";
  std::vector<std::string> found;
  for (const std::string& name : archive.names())
    if (name.starts_with(folder) && name.ends_with(end) && name.size() > folder.size() + end.size())
      found.push_back(name.substr(folder.size(), name.size() - folder.size() - end.size()));
  if (std::find(found.begin(), found.end(), "model") != found.end()) return "model";
  if (found.size() == 1) return found[0];
  if (found.empty()) refuse(archive.path(), "has no program: no member models/*.json; was the export not finished?");
  std::string list;
  for (const std::string& name : found) list += (list.empty() ? "" : ", ") + name;
  refuse(archive.path(), fmt::format("holds {} programs ({}), wanted one, or one named model", found.size(), shown(list)));
}

const Payload& payload_of(const ExportedProgram& program, const ExportedInput& spec, const std::string& where) {
  for (const auto* payloads : {&program.weights, &program.constants})
    if (const auto at = payloads->find(spec.target); at != payloads->end()) return at->second;
  refuse(where, fmt::format("'{}' has no payload", shown(spec.target)));
}

void check_signature(const ExportedProgram& program, const std::string& where) {
  if (program.inputs.size() != program.graph.inputs.size())
    refuse(where, fmt::format("the signature has {} inputs, the graph {}", program.inputs.size(), program.graph.inputs.size()));
  if (program.outputs.size() != program.graph.outputs.size())
    refuse(where, fmt::format("the signature has {} outputs, the graph {}", program.outputs.size(), program.graph.outputs.size()));
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const ExportedInput& spec = program.inputs[i];
    const std::string place = fmt::format("{}: input_specs[{}]", where, i);
    const auto* tensor = std::get_if<TensorRef>(&program.graph.inputs[i]);
    if (spec.argument.empty() && tensor != nullptr) refuse(place, fmt::format("is no tensor, the graph's input {} is '{}'", i, shown(tensor->name)));
    if (spec.argument.empty()) continue;
    if (tensor == nullptr || tensor->name != spec.argument) refuse(place, fmt::format("'{}' is not the graph's input {}", shown(spec.argument), i));
    if (spec.kind == ExportedInput::Kind::UserInput || spec.kind == ExportedInput::Kind::ConstantInput) continue;
    const Payload& payload = payload_of(program, spec, place);
    const TensorMeta& meta = program.graph.tensors.at(tensor->name);  // there: check_names saw it
    if (payload.meta.sizes != meta.sizes || payload.meta.dtype_number != meta.dtype_number)
      refuse(place, fmt::format("'{}' is type {} {} in the graph, but type {} {} in its payload", shown(spec.target), meta.dtype_number, shown(text(meta.sizes)),
                              payload.meta.dtype_number, shown(text(payload.meta.sizes))));
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const auto *given = std::get_if<TensorRef>(&program.outputs[i].value), *wanted = std::get_if<TensorRef>(&program.graph.outputs[i]);
    if ((given == nullptr) != (wanted == nullptr) || (given != nullptr && given->name != wanted->name))
      refuse(where, fmt::format("output_specs[{}] is not the graph's output {}", i, i));
  }
}

/// The members of all payloads, each once.
std::vector<std::string> members_of(const ExportedProgram& program) {
  std::vector<std::string> members;
  for (const auto* payloads : {&program.weights, &program.constants})
    for (const auto& [name, payload] : *payloads) members.push_back(payload.member);
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  return members;
}

}  // namespace

ExportedProgram read_program(const Pt2Archive& archive) {
  const std::string model = model_name(archive);
  const std::string member = "models/" + model + ".json";
  const std::string where = archive.path() + ": " + shown(member);
  ExportedProgram program;
  SizeReader sizes;
  {
    const JsonValue tree = parse_json(archive.member(member), where, unread_keys);
    const JsonAt root(tree, where);
    read_versions(root, program);
    program.verifiers = read_texts(root, "verifiers");
    program.guards = read_texts(root, "guards_code");
    read_ranges(root, program, sizes);
    const JsonAt module = root.at("graph_module");
    const JsonAt graph = module.at("graph");
    program.graph = read_graph(graph, sizes);
    read_signature(module, program, sizes);
  }
  program.weights = read_payloads(archive, model, weights_folder, sizes);
  program.constants = read_payloads(archive, model, constants_folder, sizes);
  check_names(program.graph, where + ": graph_module.graph");
  check_signature(program, where);
  archive.verify(members_of(program));
  return program;
}

}  // namespace stepgraph::pt2
