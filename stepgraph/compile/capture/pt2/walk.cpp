// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/walk.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace stepgraph::pt2 {
namespace {

constexpr std::string_view aten_prefix = "torch.ops.aten.";
constexpr std::string_view region_prefix = "torch.ops.higher_order.";

/// "add_" of "torch.ops.aten.add_.Tensor".
std::string base_name(const std::string& target) {
  const std::string full = target.substr(aten_prefix.size());
  return full.substr(0, full.find('.'));
}
bool is_in_place(const std::string& base) { return base.size() > 1 && base.ends_with("_") && !base.ends_with("__"); }
std::string without_underscore(const std::string& target) {
  const std::string full = target.substr(aten_prefix.size());
  const size_t dot = full.find('.');
  std::string base = full.substr(0, dot);
  base.pop_back();
  return std::string(aten_prefix) + base + (dot == std::string::npos ? "" : full.substr(dot));
}
/// Checks that hold of the engine's own accord, or are PyTorch's own bookkeeping.
bool is_ignored(const std::string& base) {
  static const std::set<std::string> ignored{"_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range", "sym_constrain_range_for_size", "_functional_assert_async", "_check"};
  return ignored.count(base) > 0;
}
bool is_recurrence(const std::string& base) { return base == "lstm" || base == "gru" || base == "rnn_tanh" || base == "rnn_relu"; }
bool is_size_query(const std::string& base) { return base == "sym_size" || base == "sym_numel" || base == "sym_stride"; }
bool is_size_operator(const std::string& target) { return target.starts_with("_operator.") || target.starts_with("torch.sym_") || target.starts_with("math."); }
bool is_region(const std::string& target) {
  return target == std::string(region_prefix) + "wrap_with_set_grad_enabled" || target == std::string(region_prefix) + "wrap_with_autocast";
}

/// Overloads that write their result into an argument "out". Those with several such arguments (max.dim_max, sort.values) have no row.
bool writes_to_argument(const std::string& target) {
  const std::string overload = target.substr(target.rfind('.') + 1);
  static const std::set<std::string> others{"values", "values_stable", "dim_max", "dim_min", "output", "grad_input", "OutTensor", "OutScalar_Self", "OutScalar_Other"};
  return overload == "out" || overload.ends_with("_out") || others.count(overload) > 0;
}
Row row_that_writes(const std::string& target) {
  const std::string base = base_name(target), overload = target.substr(target.rfind('.') + 1);
  if (overload == "out") return base == "max" || base == "min" ? find_row(std::string(aten_prefix) + base + ".other") : find_row(target);
  return overload.ends_with("_out") ? find_row(target.substr(0, target.size() - 4)) : nullptr;
}
/// In place on the tensor's own geometry: what is seen through other views stays.
bool is_geometry(const std::string& base) {
  static const std::set<std::string> names{"unsqueeze_", "squeeze_", "transpose_", "t_", "swapaxes_", "swapdims_"};
  return names.count(base) > 0;
}

Row row_of(const std::string& target) {
  if (!target.starts_with(aten_prefix)) return nullptr;
  if (writes_to_argument(target)) return row_that_writes(target);
  if (Row row = find_row(target)) return row;
  return is_in_place(base_name(target)) ? find_row(without_underscore(target)) : nullptr;
}

bool is_known(const ExportedNode& node) {
  if (is_region(node.target) || is_size_operator(node.target)) return true;
  if (!node.target.starts_with(aten_prefix)) return false;
  const std::string base = base_name(node.target);
  return is_ignored(base) || is_size_query(base) || row_of(node.target) != nullptr;
}

struct Unknown {
  int64_t count = 0;
  std::string places;
};
void collect_unknown(const ExportedGraph& graph, std::map<std::string, Unknown>& unknown) {
  for (const ExportedNode& node : graph.nodes) {
    if (!is_known(node)) {
      Unknown& entry = unknown[node.target];
      if (++entry.count <= 3) entry.places += (entry.places.empty() ? "" : ", ") + (node.place_line > 0 ? SourcePlace{node.place_file, node.place_line}.text() : "node " + node.name);
    }
    for (const NamedArgument& input : node.inputs)
      if (const ExportedRegion* inner = std::get_if<ExportedRegion>(&input.value); inner && inner->graph && is_known(node)) collect_unknown(*inner->graph, unknown);
  }
}

Item detached_item(Item item) {
  if (Tensor* tensor = std::get_if<Tensor>(&item)) return detached(*tensor);
  if (auto* list = std::get_if<std::vector<Tensor>>(&item))
    for (Tensor& tensor : *list) tensor = detached(tensor);
  return item;
}

[[noreturn]] void fail(const ExportedNode& node, const std::string& message) {
  throw UserError(node.target + " (" + node.name + "): " + message, SourcePlace{node.place_file, node.place_line});
}

const Item& item_of(const std::map<std::string, Item>& names, const std::string& name) {
  const auto found = names.find(name);
  if (found == names.end()) throw UserError("value '" + name + "' is read before it is defined");
  return found->second;
}
const Tensor& tensor_of(const std::map<std::string, Item>& names, const std::string& name) {
  const auto* tensor = std::get_if<Tensor>(&item_of(names, name));
  if (tensor == nullptr) throw UserError("value '" + name + "' is no tensor");
  return *tensor;
}

}  // namespace

void check_operators(const ExportedProgram& program, const std::string& path) {
  std::map<std::string, Unknown> unknown;
  collect_unknown(program.graph, unknown);
  if (unknown.empty()) return;
  std::string list;
  // Of complex numbers and factorisations PyTorch has no decompositions.
  const bool may_decompose = std::any_of(unknown.begin(), unknown.end(), [](const auto& entry) {
    return entry.first.find(".fft_") == std::string::npos && entry.first.find(".linalg_") == std::string::npos;
  });
  for (const auto& [target, entry] : unknown) list += "\n  " + target + " x " + std::to_string(entry.count) + " (" + entry.places + ")";
  throw UserError(path + ": " + std::to_string(unknown.size()) + " operator" + (unknown.size() == 1 ? "" : "s") + " that this version does not know:" + list +
                  "\nReplace them in the model" + (may_decompose ? ", or export after run_decompositions() (which may lose stop-gradients)" : "") +
                  ", or add a row to stepgraph/compile/capture/pt2 (CONTRIBUTING.md); what is not built is listed in docs/pt2.md");
}

std::vector<Item> Walk::run(const ExportedGraph& graph, std::map<std::string, Item>& names) {
  const auto* outside = std::exchange(surroundings_.metas, &graph.tensors);
  const auto* outside_forms = std::exchange(closed_forms_, &graph.sym_ints);
  for (const ExportedNode& node : graph.nodes) visit(node, names);
  surroundings_.metas = outside;
  closed_forms_ = outside_forms;
  std::vector<Item> outputs;
  for (const Argument& output : graph.outputs) {
    if (const TensorRef* reference = std::get_if<TensorRef>(&output)) {
      outputs.push_back(item_of(names, reference->name));
    } else if (const auto* list = std::get_if<std::vector<TensorRef>>(&output)) {
      std::vector<Tensor> tensors;
      for (const TensorRef& reference : *list) tensors.push_back(tensor_of(names, reference.name));
      outputs.emplace_back(std::move(tensors));
    } else if (const SymInt* size = std::get_if<SymInt>(&output)) {
      if (const auto* value = std::get_if<int64_t>(&size->value))
        outputs.emplace_back(Dim(*value));
      else
        outputs.push_back(item_of(names, std::get<std::string>(size->value)));
    } else if (const int64_t* number = std::get_if<int64_t>(&output)) {
      outputs.emplace_back(Dim(*number));
    } else {
      outputs.emplace_back(std::monostate{});
    }
  }
  return outputs;
}

void Walk::visit(const ExportedNode& node, std::map<std::string, Item>& names) {
  Builder& builder = surroundings_.builder;
  builder.set_place({node.place_file, node.place_line});
  builder.set_scope(node.scope);
  if (is_region(node.target)) return region(node, names);
  if (is_size_operator(node.target)) return size_operator(node, names);
  const std::string base = base_name(node.target);
  if (is_ignored(base)) return;
  if (is_size_query(base)) {
    OperatorCall call(node, surroundings_, names);
    const Value x = call.handle("self").value();
    if (base == "sym_stride") fail(node, "strides are not known here");
    return bind_outputs(node, {base == "sym_numel" ? element_count(x.shape()) : x.dim(call.integer("dim"))}, names);
  }
  aten(node, names);
}

void Walk::aten(const ExportedNode& node, std::map<std::string, Item>& names) {
  const std::string base = base_name(node.target);
  const Row row = row_of(node.target);
  if (!row) fail(node, "unknown operator");
  const bool in_place = is_in_place(base) && !find_row(node.target);
  surroundings_.cast = cast_of(autocast_, canonical_name(in_place ? base.substr(0, base.size() - 1) : base));
  OperatorCall call(node, surroundings_, names);
  {
    // A recurrence is one operator here, of which PyTorch casts the products inside.
    const AutocastScope inside(surroundings_.builder, is_recurrence(base) ? autocast_ : Autocast{});
    row(call);
  }
  surroundings_.cast = std::nullopt;
  if (writes_to_argument(node.target)) return write_result(node, call, "out", names);
  if (in_place && is_geometry(base)) {
    const Item& viewed = call.outputs().at(0);
    for (const NamedArgument& input : node.inputs)
      if (const TensorRef* reference = std::get_if<TensorRef>(&input.value); reference && input.name == "self") names[reference->name] = viewed;
    return bind_outputs(node, {viewed}, names);
  }
  if (in_place) return write_result(node, call, "self", names);
  std::vector<Item> outputs = std::move(call.outputs());
  if (!gradients_on_)
    for (Item& item : outputs) item = detached_item(std::move(item));
  bind_outputs(node, std::move(outputs), names);
}

/// The row's result becomes the value of the tensor `argument`, which is the node's result.
void Walk::write_result(const ExportedNode& node, OperatorCall& call, std::string_view argument, std::map<std::string, Item>& names) {
  if (call.outputs().size() != 1 || !call.has(argument)) fail(node, "writing several results into arguments is not supported");
  Tensor target = call.handle(argument);
  const Value old = target.value();
  Value value = convert(std::get<Tensor>(call.outputs()[0]).value(), old.dtype());
  if (!(value.shape() == old.shape())) fail(node, "writes " + text(value.type()) + " into " + text(old.type()) + "; a write that changes the shape is not supported");
  if (!gradients_on_) value = written_without_gradient(old, value);
  if (base_name(node.target) == "detach_") value = stop_gradient(old);
  target.write(value);
  bind_outputs(node, {target}, names);
}

void Walk::bind_outputs(const ExportedNode& node, std::vector<Item> outputs, std::map<std::string, Item>& names) {
  // A list result may be declared as one output, or as one for each tensor.
  if (outputs.size() == 1 && node.outputs.size() > 1)
    if (auto* list = std::get_if<std::vector<Tensor>>(&outputs[0])) outputs = std::vector<Item>(list->begin(), list->end());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const Argument& output = node.outputs[i];
    if (std::holds_alternative<None>(output)) continue;
    if (i >= outputs.size()) fail(node, "gives " + std::to_string(outputs.size()) + " results, the program reads " + std::to_string(node.outputs.size()));
    if (const TensorRef* reference = std::get_if<TensorRef>(&output)) {
      names[reference->name] = outputs[i];
    } else if (const auto* references = std::get_if<std::vector<TensorRef>>(&output)) {
      const auto* list = std::get_if<std::vector<Tensor>>(&outputs[i]);
      if (!list || list->size() != references->size()) fail(node, "gives another number of tensors than the program reads");
      for (size_t j = 0; j < list->size(); ++j) names[(*references)[j].name] = (*list)[j];
    } else if (const SymInt* size = std::get_if<SymInt>(&output)) {
      if (const std::string* size_name = std::get_if<std::string>(&size->value)) names[*size_name] = outputs[i];
    } else if (const SymFloat* number = std::get_if<SymFloat>(&output)) {
      if (const std::string* number_name = std::get_if<std::string>(&number->value)) names[*number_name] = outputs[i];
    } else if (const SymBool* truth = std::get_if<SymBool>(&output)) {
      if (const std::string* truth_name = std::get_if<std::string>(&truth->value)) names[*truth_name] = outputs[i];
    }
  }
}

namespace {

Autocast region_autocast(const ExportedNode& node, const Argument& device, const Argument& dtype) {
  const std::string* device_name = std::get_if<std::string>(&device);
  if (!device_name) fail(node, "its first argument is no device");
  Autocast autocast;
  autocast.list = *device_name == "cpu" ? Autocast::List::Cpu : Autocast::List::Cuda;
  const ScalarType* given = std::get_if<ScalarType>(&dtype);
  autocast.dtype = given && given->dtype ? *given->dtype : *device_name == "cpu" ? DType::BF16 : DType::F16;
  if (autocast.dtype == DType::F32) return {};
  if (autocast.dtype != DType::BF16 && autocast.dtype != DType::F16) fail(node, "autocast to " + std::string(name(*autocast.dtype)) + ", wanted bf16 or f16");
  return autocast;
}

}  // namespace

void Walk::region(const ExportedNode& node, std::map<std::string, Item>& names) {
  const ExportedGraph* inner = nullptr;
  std::vector<const Argument*> settings, operands;
  for (const NamedArgument& input : node.inputs) {
    if (const ExportedRegion* graph = std::get_if<ExportedRegion>(&input.value))
      inner = graph->graph.get();
    else
      (inner ? operands : settings).push_back(&input.value);
  }
  if (!inner || inner->inputs.size() != operands.size()) fail(node, "found " + std::to_string(operands.size()) + " operands, its graph has " + std::to_string(inner ? inner->inputs.size() : 0));
  std::map<std::string, Item> inside;
  for (size_t i = 0; i < operands.size(); ++i) {
    const TensorRef* formal = std::get_if<TensorRef>(&inner->inputs[i]);
    const SymInt* formal_size = std::get_if<SymInt>(&inner->inputs[i]);
    if (const TensorRef* actual = std::get_if<TensorRef>(operands[i]); actual && formal)
      inside[formal->name] = item_of(names, actual->name);
    else if (const SymInt* size = std::get_if<SymInt>(operands[i]); size && formal_size && std::holds_alternative<std::string>(formal_size->value))
      inside[std::get<std::string>(formal_size->value)] =
          std::holds_alternative<int64_t>(size->value) ? Item(Dim(std::get<int64_t>(size->value))) : item_of(names, std::get<std::string>(size->value));
    else
      fail(node, "operand " + std::to_string(i) + " is of a kind that regions do not take here");
  }
  const bool gradients_before = gradients_on_;
  const Autocast autocast_before = autocast_;
  if (node.target.ends_with("set_grad_enabled")) {
    const bool* enabled = settings.empty() ? nullptr : std::get_if<bool>(settings[0]);
    if (!enabled) fail(node, "its first argument is not a bool");
    gradients_on_ = *enabled;
  } else {
    // device type, dtype or none, enabled, cache flag
    const bool* enabled = settings.size() > 2 ? std::get_if<bool>(settings[2]) : nullptr;
    if (!enabled) fail(node, "its third argument is not a bool");
    autocast_ = {};
    if (*enabled) autocast_ = region_autocast(node, *settings[0], *settings[1]);
  }
  std::vector<Item> outputs = run(*inner, inside);
  gradients_on_ = gradients_before;
  autocast_ = autocast_before;
  bind_outputs(node, std::move(outputs), names);
}

namespace {

/// Arithmetic on real numbers, as gradients of means have it (1 / (3 * s)): in f64, as Python's. Nothing for what is none.
std::optional<Item> real_arithmetic(Builder& builder, const std::string& op, const std::vector<Item>& arguments) {
  bool any_real = op == "truediv" || op == "sym_float", all_constant = true;
  std::vector<double> constants;
  std::vector<Value> values;
  for (const Item& argument : arguments) {
    const Dim* size = std::get_if<Dim>(&argument);
    const double* real = std::get_if<double>(&argument);
    const Tensor* tensor = std::get_if<Tensor>(&argument);
    if (!real && !(size && size->is_constant())) all_constant = false;
    if (tensor ? !is_floating(tensor->value().dtype()) || tensor->value().rank() != 0 : !size && !real) return std::nullopt;
    any_real |= size == nullptr;
    if (all_constant) constants.push_back(real ? *real : static_cast<double>(size->constant()));
    values.push_back(tensor ? convert(tensor->value(), DType::F64) : real ? scalar(builder, DType::F64, *real) : size_value(builder, DType::F64, *size));
  }
  if (!any_real || values.empty()) return std::nullopt;
  const bool two = values.size() == 2;
  auto chosen = [&](double constant, const auto& value) { return all_constant ? Item(constant) : Item(Tensor(value())); };
  const double a = all_constant ? constants[0] : 0, b = all_constant && two ? constants[1] : 1;
  if (two && op == "truediv") return chosen(a / b, [&] { return values[0] / values[1]; });
  if (two && op == "mul") return chosen(a * b, [&] { return values[0] * values[1]; });
  if (two && op == "add") return chosen(a + b, [&] { return values[0] + values[1]; });
  if (two && op == "sub") return chosen(a - b, [&] { return values[0] - values[1]; });
  if (two && op == "pow") return chosen(std::pow(a, b), [&] { return pow(values[0], values[1]); });
  if (!two && op == "neg") return chosen(-a, [&] { return -values[0]; });
  if (!two && op == "sym_float") return chosen(a, [&] { return values[0]; });
  return std::nullopt;
}

}  // namespace

/// What a size that was made by real numbers is in terms of the inputs' sizes: int(1.5 * rows).
std::optional<Dim> Walk::closed_form(const ExportedNode& node) const {
  const SymInt* output = node.outputs.size() == 1 ? std::get_if<SymInt>(&node.outputs[0]) : nullptr;
  const std::string* name = output ? std::get_if<std::string>(&output->value) : nullptr;
  const auto found = name && closed_forms_ ? closed_forms_->find(*name) : std::map<std::string, Dim>::const_iterator{};
  if (!name || !closed_forms_ || found == closed_forms_->end()) return std::nullopt;
  for (const std::string& symbol : found->second.symbols())
    if (!surroundings_.builder.module().symbols.find(symbol)) return std::nullopt;  // of data
  return found->second;
}

/// Python arithmetic on sizes.
void Walk::size_operator(const ExportedNode& node, std::map<std::string, Item>& names) {
  std::vector<Item> arguments;
  for (const NamedArgument& input : node.inputs) {
    if (const int64_t* number = std::get_if<int64_t>(&input.value))
      arguments.emplace_back(Dim(*number));
    else if (const double* real = std::get_if<double>(&input.value))
      arguments.emplace_back(*real);
    else if (const bool* truth = std::get_if<bool>(&input.value))
      arguments.emplace_back(*truth);
    else if (const SymInt* size = std::get_if<SymInt>(&input.value))
      arguments.push_back(std::holds_alternative<int64_t>(size->value) ? Item(Dim(std::get<int64_t>(size->value))) : item_of(names, std::get<std::string>(size->value)));
    else if (const SymFloat* value = std::get_if<SymFloat>(&input.value))
      arguments.push_back(std::holds_alternative<double>(value->value) ? Item(std::get<double>(value->value)) : item_of(names, std::get<std::string>(value->value)));
    else if (const SymBool* value = std::get_if<SymBool>(&input.value))
      arguments.push_back(std::holds_alternative<bool>(value->value) ? Item(std::get<bool>(value->value)) : item_of(names, std::get<std::string>(value->value)));
    else
      fail(node, "an argument is no number");
  }
  const std::string op = node.target.substr(node.target.rfind('.') + 1);
  const bool of_data = std::any_of(arguments.begin(), arguments.end(), [](const Item& item) { return std::holds_alternative<Tensor>(item); });
  if (of_data && (op == "eq" || op == "ne" || op == "le" || op == "ge" || op == "lt" || op == "gt")) return bind_outputs(node, {true}, names);  // only guards read it
  if (of_data && op != "sym_float")
    if (const std::optional<Dim> size = closed_form(node)) return bind_outputs(node, {*size}, names);
  if (std::optional<Item> real = real_arithmetic(surroundings_.builder, op, arguments)) return bind_outputs(node, {std::move(*real)}, names);
  if (of_data) fail(node, "arithmetic with a number that is taken from data is not supported; compute with the tensor");
  const Dim* a = arguments.empty() ? nullptr : std::get_if<Dim>(&arguments[0]);
  const Dim* b = arguments.size() < 2 ? nullptr : std::get_if<Dim>(&arguments[1]);
  if (a && b) {
    const SymbolTable& symbols = surroundings_.builder.module().symbols;
    if (op == "add") return bind_outputs(node, {*a + *b}, names);
    if (op == "sub") return bind_outputs(node, {*a - *b}, names);
    if (op == "mul") return bind_outputs(node, {*a * *b}, names);
    if (op == "floordiv") return bind_outputs(node, {exact_quotient(*a, *b).value_or(floordiv(*a, *b))}, names);
    // By floordiv, so that a length padded to a multiple (s + (-s) % 4) is seen to be one.
    if (op == "mod") return bind_outputs(node, {*a - *b * floordiv(*a, *b)}, names);
    if (op == "sym_max") return bind_outputs(node, {max(*a, *b)}, names);
    if (op == "sym_min") return bind_outputs(node, {min(*a, *b)}, names);
    if (op == "pow" && b->is_constant() && b->constant() >= 0 && b->constant() < 16) {
      Dim power = 1;
      for (int64_t i = 0; i < b->constant(); ++i) power = power * *a;
      return bind_outputs(node, {power}, names);
    }
    auto decided = [&](Truth truth) {
      // Undecided comparisons only guard: they hold for the sizes that the program was exported for.
      return bind_outputs(node, {truth != Truth::False}, names);
    };
    if (op == "eq") return decided(symbols.equal(*a, *b));
    if (op == "le") return decided(symbols.less_or_equal(*a, *b));
    if (op == "ge") return decided(symbols.less_or_equal(*b, *a));
    if (op == "ne" || op == "lt" || op == "gt") return decided(Truth::Unknown);
  }
  if (a && arguments.size() == 1) {
    if (op == "neg") return bind_outputs(node, {Dim(0) - *a}, names);
    if (op == "trunc" || op == "sym_int" || op == "floor" || op == "ceil") return bind_outputs(node, {*a}, names);
  }
  if (op == "and_" || op == "or_" || op == "not_") return bind_outputs(node, {true}, names);
  fail(node, "this arithmetic on sizes is not supported");
}

}  // namespace stepgraph::pt2
