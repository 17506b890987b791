// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/program_json.h"
#include <fmt/core.h>
#include <algorithm>
#include <charconv>
#include <functional>
#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/expression.h"
#include "stepgraph/compile/capture/pt2/zip_directory.h"

namespace stepgraph::pt2 {
namespace {

constexpr size_t json_rank_max = 64;
constexpr int64_t strided_layout = 7;

int small_number(const JsonAt& at) {
  const int64_t value = at.integer();
  if (value < 0 || value > 1000) at.fail(fmt::format("found {}, wanted a number of a kind", value));
  return static_cast<int>(value);
}

template <class Read>
auto read_list(const JsonAt& at, Read read) {
  std::vector<std::decay_t<decltype(read(at))>> result;
  result.reserve(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    const JsonAt item = at[i];
    result.push_back(read(item));
  }
  return result;
}

int64_t read_int(const JsonAt& at) { return at.integer(); }
double read_float(const JsonAt& at) { return at.number(); }
bool read_bool(const JsonAt& at) { return at.boolean(); }
std::string read_string(const JsonAt& at) { return at.string(); }
TensorRef read_tensor_name(const JsonAt& at) {
  const JsonAt name = at.at("name");
  return {name.string()};
}
std::optional<TensorRef> read_optional_tensor(const JsonAt& at) {
  const auto [kind, value] = at.variant();
  if (kind == "as_none") return {};
  if (kind != "as_tensor") at.fail(fmt::format("found '{}', wanted as_tensor or as_none", shown(kind)));
  return read_tensor_name(value);
}
/// {as_name: value name} or {as_int / as_float / as_bool: constant}.
template <class Sym>
Sym read_sym(const JsonAt& at, std::string_view constant_kind, auto read) {
  const auto [kind, value] = at.variant();
  if (kind == "as_name") return {value.string()};
  if (kind != constant_kind) at.fail(fmt::format("found '{}', wanted as_name or {}", shown(kind), constant_kind));
  return {read(value)};
}
SymInt read_sym_int(const JsonAt& at) { return read_sym<SymInt>(at, "as_int", read_int); }
SymFloat read_sym_float(const JsonAt& at) { return read_sym<SymFloat>(at, "as_float", read_float); }
SymBool read_sym_bool(const JsonAt& at) { return read_sym<SymBool>(at, "as_bool", read_bool); }
ScalarType read_scalar_type(const JsonAt& at) {
  const int number = small_number(at);
  return {number, dtype_of_number(number)};
}
Device read_device(const JsonAt& at) {
  const JsonAt type = at.at("type");
  return {type.string()};
}
ExportedRegion read_subgraph(const JsonAt& at, SizeReader& sizes) {
  const JsonAt name = at.at("name"), graph = at.at("graph");
  return {name.string(), std::make_shared<const ExportedGraph>(read_graph(graph, sizes))};
}

struct ArgumentRow {
  std::string_view kind;
  Argument (*read)(const JsonAt&, SizeReader&);
};
constexpr ArgumentRow argument_rows[] = {
    {"as_none", [](const JsonAt&, SizeReader&) -> Argument { return None{}; }},
    {"as_tensor", [](const JsonAt& at, SizeReader&) -> Argument { return read_tensor_name(at); }},
    {"as_tensors", [](const JsonAt& at, SizeReader&) -> Argument { return read_list(at, read_tensor_name); }},
    {"as_nested_tensors",
     [](const JsonAt& at, SizeReader&) -> Argument { return read_list(at, [](const JsonAt& item) { return read_list(item, read_tensor_name); }); }},
    {"as_optional_tensors", [](const JsonAt& at, SizeReader&) -> Argument { return read_list(at, read_optional_tensor); }},
    {"as_optional_tensor",
     [](const JsonAt& at, SizeReader&) -> Argument {
       if (auto tensor = read_optional_tensor(at)) return std::move(*tensor);
       return None{};
     }},
    {"as_int", [](const JsonAt& at, SizeReader&) -> Argument { return read_int(at); }},
    {"as_float", [](const JsonAt& at, SizeReader&) -> Argument { return read_float(at); }},
    {"as_bool", [](const JsonAt& at, SizeReader&) -> Argument { return read_bool(at); }},
    {"as_string", [](const JsonAt& at, SizeReader&) -> Argument { return read_string(at); }},
    {"as_ints", [](const JsonAt& at, SizeReader&) -> Argument { return read_list(at, read_int); }},
    {"as_int_lists", [](const JsonAt& at, SizeReader&) -> Argument { return read_list(at, [](const JsonAt& item) { return read_list(item, read_int); }); }},
    {"as_floats", [](const JsonAt& at, SizeReader&) -> Argument { return read_list(at, read_float); }},
    {"as_bools", [](const JsonAt& at, SizeReader&) -> Argument { return read_list(at, read_bool); }},
    {"as_strings", [](const JsonAt& at, SizeReader&) -> Argument { return read_list(at, read_string); }},
    {"as_sym_int", [](const JsonAt& at, SizeReader&) -> Argument { return read_sym_int(at); }},
    {"as_sym_float", [](const JsonAt& at, SizeReader&) -> Argument { return read_sym_float(at); }},
    {"as_sym_bool", [](const JsonAt& at, SizeReader&) -> Argument { return read_sym_bool(at); }},
    {"as_sym_ints", [](const JsonAt& at, SizeReader&) -> Argument { return read_list(at, read_sym_int); }},
    {"as_sym_floats", [](const JsonAt& at, SizeReader&) -> Argument { return read_list(at, read_sym_float); }},
    {"as_sym_bools", [](const JsonAt& at, SizeReader&) -> Argument { return read_list(at, read_sym_bool); }},
    {"as_scalar_type", [](const JsonAt& at, SizeReader&) -> Argument { return read_scalar_type(at); }},
    {"as_memory_format", [](const JsonAt& at, SizeReader&) -> Argument { return MemoryFormat{small_number(at)}; }},
    {"as_layout", [](const JsonAt& at, SizeReader&) -> Argument { return TensorLayout{small_number(at)}; }},
    {"as_device", [](const JsonAt& at, SizeReader&) -> Argument { return read_device(at); }},
    {"as_graph", [](const JsonAt& at, SizeReader& sizes) -> Argument { return read_subgraph(at, sizes); }},
};

// ---- metadata, for messages only: whatever does not look as expected is left out

struct Frame {
  std::string_view file;
  int line = 0;
};
std::string_view base_name(std::string_view path) { return path.substr(path.find_last_of("/\\") + 1); }

/// Frames of a Python stack trace, outermost first: lines 'File "PATH", line N, in NAME'.
std::vector<Frame> frames_of(std::string_view trace) {
  constexpr std::string_view before = "File \"", between = "\", line ";
  std::vector<Frame> frames;
  for (size_t at = trace.find(before); at != std::string_view::npos; at = trace.find(before, at)) {
    at += before.size();
    const size_t end = trace.find(between, at);
    if (end == std::string_view::npos) break;
    Frame frame{trace.substr(at, end - at), 0};
    at = end + between.size();
    std::from_chars(trace.data() + at, trace.data() + trace.size(), frame.line);
    if (frame.file.find('\n') == std::string_view::npos) frames.push_back(frame);
  }
  return frames;
}

/// `key,path,class;key,path,class`, innermost last.
struct ModuleFrame {
  std::string_view path, kind;
};
std::vector<ModuleFrame> modules_of(std::string_view stack) {
  std::vector<ModuleFrame> modules;
  while (!stack.empty()) {
    const std::string_view entry = stack.substr(0, stack.find(';'));
    stack.remove_prefix(std::min(stack.size(), entry.size() + 1));
    const size_t first = entry.find(','), last = entry.rfind(',');
    if (first != std::string_view::npos && first != last) modules.push_back({entry.substr(first + 1, last - first - 1), entry.substr(last + 1)});
  }
  return modules;
}

/// Whether a file is no user's: generated, under torch/, or that of a class of torch.nn around, where folders were cut off.
bool is_pytorchs(std::string_view file, const std::vector<ModuleFrame>& modules) {
  if (file.starts_with('<') || file.find("/torch/") != std::string_view::npos) return true;
  for (const ModuleFrame& module : modules) {
    if (!module.kind.starts_with("torch.nn.")) continue;
    const std::string_view python_module = module.kind.substr(0, module.kind.rfind('.'));
    if (base_name(file) == std::string(python_module.substr(python_module.rfind('.') + 1)) + ".py") return true;
  }
  return false;
}

void read_metadata(const JsonAt& at, ExportedNode& node) {
  const auto text = [&](std::string_view key) -> std::string_view {
    const auto found = at.find(key);
    return found && found->is_string() ? std::string_view(found->string()) : std::string_view{};
  };
  const std::vector<ModuleFrame> modules = modules_of(text("nn_module_stack"));
  std::string_view path = modules.empty() ? std::string_view{} : modules.back().path;
  constexpr std::string_view self = "L['self']";
  if (path.starts_with(self)) path.remove_prefix(self.size());
  if (path.starts_with('.')) path.remove_prefix(1);
  if (path.starts_with("_empty_nn_module_stack")) path = {};
  node.scope = shown(path);

  std::vector<Frame> frames = frames_of(text("stack_trace"));
  while (!frames.empty() && is_pytorchs(frames.back().file, modules)) frames.pop_back();
  if (frames.empty()) return;
  node.place_file = shown(base_name(frames.back().file));
  node.place_line = frames.back().line;
}

ExportedNode read_node(const JsonAt& at, SizeReader& sizes) {
  ExportedNode node;
  const JsonAt target = at.at("target"), inputs = at.at("inputs"), outputs = at.at("outputs");
  node.target = target.string();
  node.inputs = read_list(inputs, [&](const JsonAt& item) {
    const JsonAt argument = item.at("arg");
    const auto name = item.find("name");
    return NamedArgument{name ? name->string() : std::string(), read_argument(argument, sizes)};
  });
  node.outputs = read_list(outputs, [&](const JsonAt& item) { return read_argument(item, sizes); });
  if (const auto name = at.find("name")) node.name = name->string();
  if (const auto metadata = at.find("metadata")) read_metadata(*metadata, node);
  return node;
}

/// Calls read(name, value place) for the entries of an object that may be missing.
template <class Read>
void read_entries(const JsonAt& at, std::string_view key, Read read) {
  const auto entries = at.find(key);
  if (!entries) return;
  for (size_t i = 0; i < entries->size(); ++i) {
    const auto [name, value] = entries->entry(i);
    read(std::string(name), value);
  }
}

}  // namespace

std::string type_of_number(int64_t number) {
  switch (number) {
    case 3: return "int16";
    case 9: return "complex32";
    case 10: return "complex64";
    case 11: return "complex128";
    case 28: return "uint16";
    case 29: return "float8_e4m3fn";
    case 30: return "float8_e5m2";
    case 31: return "float8_e4m3fnuz";
    case 32: return "float8_e5m2fnuz";
    default: break;
  }
  const auto known = dtype_of_number(number);
  return known ? std::string(name(*known)) : "number " + std::to_string(number) + " of PyTorch's export";
}

std::optional<DType> dtype_of_number(int64_t number) {
  switch (number) {
    case 1: return DType::U8;
    case 2: return DType::I8;
    case 4: return DType::I32;
    case 5: return DType::I64;
    case 6: return DType::F16;
    case 7: return DType::F32;
    case 8: return DType::F64;
    case 12: return DType::Bool;
    case 13: return DType::BF16;
    default: return {};
  }
}

std::optional<Dim> SizeReader::expression(const std::string& text, const JsonAt& at) {
  if (const auto known = known_.find(text); known != known_.end()) return known->second;
  try {
    return known_.emplace(text, parse_expression(text)).first->second;
  } catch (const UserError& error) {
    at.fail(error.what());
  }
}

std::optional<Dim> SizeReader::size(const JsonAt& at) {
  const auto [kind, value] = at.variant();
  if (kind == "as_int") return Dim(value.integer());
  if (kind != "as_expr") at.fail(fmt::format("found '{}', wanted as_int or as_expr", shown(kind)));
  const JsonAt text = value.at("expr_str");
  return expression(text.string(), text);
}

TensorMeta SizeReader::tensor(const JsonAt& at) {
  const auto known = [&](const JsonAt& place) { return size(place).value_or(Dim::symbol(unknown_size)); };
  const JsonAt dtype = at.at("dtype"), sizes = at.at("sizes"), strides = at.at("strides");
  TensorMeta meta;
  meta.dtype_number = small_number(dtype);
  meta.dtype = dtype_of_number(meta.dtype_number);
  if (sizes.size() > json_rank_max) sizes.fail(fmt::format("{} dims, wanted at most {}", sizes.size(), json_rank_max));
  if (sizes.size() != strides.size()) at.fail(fmt::format("{} sizes but {} strides", sizes.size(), strides.size()));
  meta.sizes = read_list(sizes, [&](const JsonAt& item) {
    Dim dim = known(item);
    if (dim.is_constant() && dim.constant() < 0) item.fail(fmt::format("size {} is negative", dim.constant()));
    return dim;
  });
  meta.strides = read_list(strides, known);
  if (const auto offset = at.find("storage_offset")) meta.storage_offset = known(*offset);
  if (const auto requires_grad = at.find("requires_grad")) meta.requires_grad = requires_grad->boolean();
  if (const auto layout = at.find("layout"); layout && layout->integer() != strided_layout)
    layout->fail(fmt::format("layout {} is not supported, wanted {} (strided): sparse tensors are not", layout->integer(), strided_layout));
  return meta;
}

Argument read_argument(const JsonAt& at, SizeReader& sizes) {
  const auto [kind, value] = at.variant();
  for (const ArgumentRow& row : argument_rows)
    if (row.kind == kind) return row.read(value, sizes);
  return Unsupported{shown(kind)};
}

ExportedGraph read_graph(const JsonAt& at, SizeReader& sizes) {
  const auto argument = [&](const JsonAt& item) { return read_argument(item, sizes); };
  const JsonAt inputs = at.at("inputs"), outputs = at.at("outputs"), nodes = at.at("nodes");
  ExportedGraph graph;
  graph.inputs = read_list(inputs, argument);
  graph.outputs = read_list(outputs, argument);
  graph.nodes = read_list(nodes, [&](const JsonAt& item) { return read_node(item, sizes); });
  read_entries(at, "tensor_values", [&](std::string name, const JsonAt& value) { graph.tensors.emplace(std::move(name), sizes.tensor(value)); });
  read_entries(at, "sym_int_values", [&](std::string name, const JsonAt& value) {
    if (auto dim = sizes.size(value)) graph.sym_ints.emplace(std::move(name), std::move(*dim));
  });
  if (const auto single = at.find("is_single_tensor_return")) graph.is_single_tensor_return = single->boolean();
  return graph;
}

}  // namespace stepgraph::pt2
