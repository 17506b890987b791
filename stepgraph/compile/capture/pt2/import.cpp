// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/import.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "stepgraph/compile/capture/pt2/archive.h"
#include "stepgraph/compile/capture/pt2/equal_sizes.h"
#include "stepgraph/compile/capture/pt2/loss_terms.h"
#include "stepgraph/compile/capture/pt2/program_json.h"
#include "stepgraph/compile/capture/pt2/program_reader.h"
#include "stepgraph/compile/capture/pt2/walk.h"
#include "stepgraph/compile/capture/pt2/zip_directory.h"
#include "stepgraph/compile/ops/composite/losses.h"

namespace stepgraph {
namespace pt2 {
namespace {

/// What both passes (training and evaluation) share.
struct Import {
  const Pt2Archive& archive;
  const ExportedProgram& program;
  const ImportOptions& options;
  Imported& imported;
  std::map<std::string, std::string> first_name;  // of each parameter and buffer: the first of its tied group
};

const Payload& payload_of(const Import& import, const ExportedInput& input) {
  const bool is_constant = input.kind == ExportedInput::Kind::TensorConstant || (input.kind == ExportedInput::Kind::Buffer && !input.persistent);
  const auto& table = is_constant ? import.program.constants : import.program.weights;
  const auto found = table.find(input.target);
  if (found == table.end()) throw UserError(import.archive.path() + ": there is no payload for " + input.target);
  return found->second;
}

/// A constant of the module does not hold the file, with all weights, in memory.
Literal owned(const Pt2Archive& archive, const Literal& view) {
  archive.charge_copy(static_cast<int64_t>(view.byte_count()), "constants");
  Literal copy = Literal::uninitialised(view.dtype(), view.sizes());
  if (view.byte_count() > 0) std::memcpy(copy.mutable_data(), view.data(), view.byte_count());
  return copy;
}

/// Operators name the model's source line, and do not know the file.
template <class Function>
void in_file(const Pt2Archive& archive, const Function& function) {
  try {
    function();
  } catch (const UserError& error) {
    throw error.retold(archive.path() + ": " + error.what());
  }
}

TensorType type_of(const Import& import, const ExportedInput& input) {
  const TensorMeta& meta = import.program.graph.tensors.at(input.argument);
  if (!meta.dtype)
    throw UserError(import.archive.path() + ": " + input.argument + " is of type " + type_of_number(meta.dtype_number) +
                    ", which is not supported, wanted f64 f32 bf16 f16 i64 i32 i8 u8 or bool");
  return {*meta.dtype, meta.sizes, {}};
}

/// Parameters over one view of one payload are one tensor; so are buffers.
void unite_tied(Import& import) {
  std::vector<std::pair<const ExportedInput*, const Payload*>> seen;
  for (const ExportedInput& input : import.program.inputs) {
    if (input.kind != ExportedInput::Kind::Parameter && input.kind != ExportedInput::Kind::Buffer) continue;
    const Payload& payload = payload_of(import, input);
    const auto same = std::find_if(seen.begin(), seen.end(), [&](const auto& other) {
      return other.first->kind == input.kind && element_count(payload.meta.sizes) != Dim(0) && same_payload(*other.second, payload);
    });
    if (same == seen.end()) {
      seen.emplace_back(&input, &payload);
      import.first_name[input.target] = input.target;
      if (input.kind == ExportedInput::Kind::Buffer && !input.persistent) import.imported.unsaved.insert(input.target);
      import.imported.weights.emplace_back(input.target, payload_literal(import.archive, payload, input.target));
    } else {
      import.first_name[input.target] = same->first->target;
      import.imported.tied[same->first->target].push_back(input.target);
    }
  }
}

std::set<std::string> user_inputs(const ExportedProgram& program) {
  std::set<std::string> names;
  for (const ExportedInput& input : program.inputs)
    if (input.kind == ExportedInput::Kind::UserInput && !input.argument.empty()) names.insert(input.argument);
  return names;
}

std::vector<SizeFact> facts_of(const Import& import) {
  const auto& tensors = import.program.graph.tensors;
  return import.imported.guards.facts([&](std::string_view input, int64_t dim) -> std::optional<Dim> {
    const auto found = tensors.find(std::string(input));
    if (found == tensors.end() || dim < 0 || static_cast<size_t>(dim) >= found->second.sizes.size()) return std::nullopt;
    return found->second.sizes[static_cast<size_t>(dim)];
  });
}

void declare_symbols(const Import& import, Module& module) {
  std::set<std::string> names;
  const std::vector<SizeFact> facts = facts_of(import);
  for (const ExportedInput& input : import.program.inputs) {
    if (input.kind != ExportedInput::Kind::UserInput || input.argument.empty()) continue;
    for (const Dim& dim : type_of(import, input).shape)
      for (const std::string& symbol : dim.symbols()) names.insert(symbol);
  }
  for (const std::string& symbol : names) {
    Symbol declared{symbol, SymbolKind::Size, 1, INT64_MAX, 1, {}};
    for (const RangeConstraint& range : import.program.ranges) {
      if (!(range.expression == Dim::symbol(symbol))) continue;
      // Sizes 0 and 1 are specialised at export, so that a minimum of 2 is PyTorch's own and not the user's; one row is computed like many here.
      if (range.minimum && *range.minimum > 2) declared.minimum = std::max(declared.minimum, *range.minimum);
      if (range.maximum) declared.maximum = std::min(declared.maximum, *range.maximum);
    }
    for (const SizeFact& fact : facts) {
      if (fact.symbol != symbol) continue;
      declared.multiple_of = std::lcm(declared.multiple_of, fact.multiple_of);
      if (fact.only) declared.minimum = declared.maximum = *fact.only;
    }
    for (const Symbol& given : import.options.symbols)
      if (given.name == symbol) declared = given;
    in_file(import.archive, [&] { module.symbols.declare(declared); });
  }
}

/// Symbols of any size that a node computes with or makes.
std::set<std::string> used_symbols(const Module& module) {
  std::set<std::string> names;
  const auto add = [&](const Dim& dim) {
    for (const std::string& symbol : dim.symbols()) names.insert(symbol);
  };
  for (const Graph& graph : module.graphs)
    for (const Node& node : graph.nodes) {
      for_each_dim(node.op, add);
      for (ValueId result : node.results)
        for (const Dim& dim : graph.type(result).shape) add(dim);
    }
  return names;
}

/// A name for each user input: its argument's.
std::string batch_name(const ExportedInput& input) { return input.argument; }

/// A tensor that the model returns.
struct UserOutput {
  std::string name;   ///< by position: "output0"
  std::string label;  ///< by the model's keys; "" for what it returns alone
  Value value;
  std::string shown() const { return label.empty() ? name : label; }
};

class Pass {
 public:
  Pass(Import& import, Module& module, bool training)
      : import_(import), module_(module), training_(training), graph_(module.add_graph(training ? "forward" : "eval")), builder_(module, graph_) {}

  GraphId run() {
    bind_inputs();
    // In front of all: it is no part of the first of blocks that repeat.
    const Value seed = special(RoleKind::Seed), step = special(RoleKind::Step);
    const Value key = fold_in(seed, step);
    int64_t draws = 0;
    in_file(import_.archive, [&] {
      Surroundings surroundings{builder_, training_, [&] { return fold_in(key, draws++); }, {}};
      Walk walk(std::move(surroundings), import_.options.autocast);
      const std::vector<Item> outputs = walk.run(import_.program.graph, names_);
      builder_.set_place({});
      builder_.set_scope("");
      check_parameters();
      place_outputs(outputs);
    });
    remove_dead_nodes(module_.graph(graph_));
    drop_unread_inputs();
    remove_dead_nodes(module_.graph(graph_));
    return graph_;
  }

 private:
  Value special(RoleKind kind) { return builder_.input({DType::I64, {}, {}}, {kind, std::string(name(kind))}); }

  /// Arguments that nothing reads are not asked for, unless they alone tell a size that something reads.
  void drop_unread_inputs() {
    Graph& graph = module_.graph(graph_);
    std::set<int32_t> read;
    for (const Node& node : graph.nodes)
      for (ValueId input : node.inputs) read.insert(input.index);
    for (const GraphOutput& output : graph.outputs) read.insert(output.value.index);
    const auto is_unread = [&](const GraphInput& input) { return input.role.kind == RoleKind::Batch && !read.contains(input.value.index); };
    const std::set<std::string> used = used_symbols(module_);
    std::set<std::string> told;
    bool reads_any = false;
    for (const GraphInput& input : graph.inputs) {
      if (input.role.kind != RoleKind::Batch || is_unread(input)) continue;
      reads_any = true;
      for (const Dim& size : graph.type(input.value).shape)
        if (const auto symbol = size.symbol_name()) told.insert(*symbol);
    }
    if (!reads_any) return;
    std::erase_if(graph.inputs, [&](const GraphInput& input) {
      if (!is_unread(input)) return false;
      for (const Dim& size : graph.type(input.value).shape)
        for (const std::string& symbol : size.symbols())
          if (used.contains(symbol) && !told.contains(symbol)) return false;
      return true;
    });
  }

  void bind_inputs() {
    for (const ExportedInput& input : import_.program.inputs) {
      switch (input.kind) {
        case ExportedInput::Kind::Parameter:
        case ExportedInput::Kind::Buffer: {
          const std::string& first = import_.first_name.at(input.target);
          if (!states_.count(first)) {
            const RoleKind kind = input.kind == ExportedInput::Kind::Parameter ? RoleKind::Parameter : RoleKind::Buffer;
            Value state = builder_.input(type_of(import_, input), {kind, first});
            // A frozen parameter has no gradient, so that no optimizer moves it.
            if (kind == RoleKind::Parameter && !import_.program.graph.tensors.at(input.argument).requires_grad) {
              state = stop_gradient(state);
              import_.imported.frozen.insert(first);
            }
            states_[first] = Tensor(state);
            initial_[first] = state;
            if (kind == RoleKind::Buffer) buffers_.push_back(first);
          }
          names_[input.argument] = states_[first];
          break;
        }
        case ExportedInput::Kind::TensorConstant:
          names_[input.argument] = Tensor(constant(builder_, owned(import_.archive, payload_literal(import_.archive, payload_of(import_, input), input.target))));
          break;
        case ExportedInput::Kind::UserInput:
          if (input.argument.empty()) break;
          if (const auto found = import_.program.graph.tensors.find(input.argument); found != import_.program.graph.tensors.end()) {
            user_inputs_.push_back(builder_.input(type_of(import_, input), {RoleKind::Batch, batch_name(input)}));
            names_[input.argument] = Tensor(user_inputs_.back());
          } else if (const auto size = import_.program.graph.sym_ints.find(input.argument); size != import_.program.graph.sym_ints.end()) {
            names_[input.argument] = size->second;
          } else {
            throw UserError(import_.archive.path() + ": user input " + input.argument + " is neither a tensor nor a size");
          }
          break;
        case ExportedInput::Kind::ConstantInput:
          break;  // a literal in the graph already
      }
    }
  }

  /// Of the parameter or buffer that an output belongs to.
  const std::string& state_name(const ExportedOutput& spec) const {
    const auto found = import_.first_name.find(spec.target);
    if (found == import_.first_name.end() || !states_.contains(found->second))
      throw UserError("an output is of '" + shown(spec.target) + "', which is no parameter or buffer among the inputs");
    return found->second;
  }
  [[noreturn]] void fail_parameter(const std::string& parameter) const {
    throw UserError("the model writes to parameter " + parameter + " in its forward pass; make it a buffer");
  }
  /// A write to a parameter would be lost, and its gradient with it.
  void check_parameters() const {
    for (const auto& [state, before] : initial_)
      if (states_.at(state).value().id != before.id && std::find(buffers_.begin(), buffers_.end(), state) == buffers_.end()) fail_parameter(state);
  }

  void place_outputs(const std::vector<Item>& outputs) {
    std::vector<UserOutput> user;
    std::optional<Value> loss;
    size_t leaf = 0;
    for (size_t i = 0; i < import_.program.outputs.size(); ++i) {
      const ExportedOutput& spec = import_.program.outputs[i];
      const Tensor* tensor = i < outputs.size() ? std::get_if<Tensor>(&outputs[i]) : nullptr;
      const size_t place = spec.kind == ExportedOutput::Kind::UserOutput ? leaf++ : 0;
      if (!tensor || !tensor->defined()) continue;
      switch (spec.kind) {
        case ExportedOutput::Kind::BufferMutation: states_.at(state_name(spec)).write(tensor->value()); break;
        case ExportedOutput::Kind::ParameterMutation: fail_parameter(spec.target);
        case ExportedOutput::Kind::Loss: loss = tensor->value(); break;
        case ExportedOutput::Kind::UserOutput: user.push_back({"output" + std::to_string(user.size()), label(place), tensor->value()}); break;
        case ExportedOutput::Kind::GradientToParameter: add_gradient(state_name(spec), tensor->value()); break;
        case ExportedOutput::Kind::UserInputMutation:
        case ExportedOutput::Kind::GradientToUserInput: break;
      }
    }
    if (!import_.options.loss.empty())
      loss = our_loss(user);
    else if (!loss)
      loss = own_loss(user);
    output_loss(loss->rank() == 0 ? *loss : reshape(*loss, {}));
    if (training_) {
      for (const std::string& buffer : buffers_)
        if (const Value now = states_.at(buffer).value(); now.id != initial_.at(buffer).id) builder_.output(now, {RoleKind::NewState, buffer});
      for (const auto& [parameter, gradient] : gradients_) builder_.output(gradient, {RoleKind::Gradient, parameter});
      return;
    }
    for (const UserOutput& output : user) builder_.output(output.value, {RoleKind::UserOutput, output.name});
  }

  /// What the model calls the leaf of what it returns: "loss" of {"loss": ...}, "1.accuracy" of (x, {"accuracy": ...}).
  std::string label(size_t leaf) const { return leaf < import_.program.output_names.size() ? import_.program.output_names[leaf] : ""; }
  void output_loss(const Value& loss) {
    std::optional<std::vector<LossTerm>> terms;
    if (denominator_)
      terms = {{loss, *denominator_, {}, {}}};
    else if (training_ && !gradients_.empty())  // which are of the loss as it is
      terms = {{loss, {}, {}, {}}};
    else
      terms = loss_terms(loss);
    const bool is_whole = !terms;
    if (is_whole) terms = {{loss, {}, {}, {}}};
    for (size_t i = 0; i < terms->size(); ++i) {
      const LossTerm& term = (*terms)[i];
      const std::string term_name = i == 0 ? "loss" : "loss." + std::to_string(i);
      // A sum, and its gradient times a loss scale, does not fit 16 bits.
      const Value numerator = is_half(term.numerator.dtype()) ? convert(term.numerator, DType::F32) : term.numerator;
      builder_.output(numerator, {RoleKind::LossNumerator, term_name});
      const auto output = [&](const Value& part, RoleKind kind) { builder_.output(convert(part, numerator.dtype()), {kind, term_name}); };
      output(term.sum ? *term.sum : scalar(builder_, numerator.dtype(), 1), is_whole ? RoleKind::LossDenominatorWhole : RoleKind::LossDenominator);
      if (term.least) output(*term.least, RoleKind::LossDenominatorLeast);
      if (term.constant) output(*term.constant, RoleKind::LossDenominatorConstant);
    }
  }

  /// Of a tied parameter the program may have one for each name.
  void add_gradient(const std::string& parameter, const Value& gradient) {
    const auto [known, is_new] = gradients_.emplace(parameter, gradient);
    if (!is_new) known->second = known->second + gradient;
  }

  /// One floating number, [1] too.
  static bool is_scalar(const UserOutput& output) { return element_count(output.value.shape()) == Dim(1) && is_floating(output.value.dtype()); }
  static std::string listed(const std::vector<UserOutput>& outputs) {
    std::string all;
    for (const UserOutput& output : outputs) all += (all.empty() ? "" : ", ") + output.shown() + " " + text(output.value.type());
    return all.empty() ? "nothing" : all;
  }

  /// What the model says is its loss, by the key `loss`, or the only scalar that it could be.
  Value own_loss(const std::vector<UserOutput>& user) const {
    const std::string advice =
        "; export a module that returns its loss, alone or under the key loss, or name one of ours with -o loss=cross_entropy[:OUTPUT] or -o loss=mse[:OUTPUT]";
    std::vector<UserOutput> scalars;
    for (const UserOutput& output : user) {
      if (output.label == "loss" && !is_scalar(output))
        throw UserError("the model returns loss " + text(output.value.type()) + ", wanted a floating scalar" + advice);
      if (output.label == "loss") return output.value;
      if (is_scalar(output)) scalars.push_back(output);
    }
    // One with dims counts where there is no other.
    const auto has_dims = [](const UserOutput& output) { return output.value.rank() > 0; };
    if (!std::all_of(scalars.begin(), scalars.end(), has_dims)) std::erase_if(scalars, has_dims);
    if (scalars.empty()) throw UserError("the model returns no scalar loss, but " + listed(user) + advice);
    if (scalars.size() > 1)
      throw UserError("the model returns several scalars, " + listed(scalars) + ", and none under the key loss: say which is the loss with -o loss=output:" +
                      (scalars[0].label.empty() ? scalars[0].name : scalars[0].label) + ", or export a module that returns it under that key");
    return scalars[0].value;
  }

  Value our_loss(const std::vector<UserOutput>& user) {
    const std::string& wanted = import_.options.loss;
    const size_t colon = wanted.find(':');
    const std::string kind = wanted.substr(0, colon);
    const std::string output = colon == std::string::npos ? "output0" : wanted.substr(colon + 1);
    const auto found = std::find_if(user.begin(), user.end(),
                                    [&](const UserOutput& entry) { return entry.name == output || entry.label == output || entry.name == "output" + output; });
    if (found == user.end()) throw UserError("model option loss=" + wanted + ": the model has no output '" + output + "'; it has " + listed(user));
    if (kind == "output") {
      if (!is_scalar(*found)) throw UserError("model option loss=" + wanted + ": the output is " + text(found->value.type()) + ", wanted a floating scalar");
      return found->value;
    }
    const Value& x = found->value;
    const AutocastScope autocast(builder_, import_.options.autocast);
    LossSum sum;
    if (kind == "cross_entropy") {
      Shape shape = x.shape();
      if (shape.empty()) throw UserError("model option loss=cross_entropy: the output is a scalar, wanted logits");
      const int64_t class_dim = x.rank() == 2 ? 1 : x.rank() == 3 ? 2 : 1;
      shape.erase(shape.begin() + class_dim);
      const Value target = builder_.input({DType::I64, shape, {}}, {RoleKind::Batch, "target"});
      CrossEntropyOptions options;
      options.class_dim = class_dim;
      sum = cross_entropy_sum(x, target, options);
    } else if (kind == "mse") {
      // What autocast has narrowed is compared with targets as they are.
      const DType dtype = import_.options.autocast.dtype && size_bytes(x.dtype()) == 2 ? DType::F32 : x.dtype();
      sum = mse_sum(x, builder_.input({dtype, x.shape(), {}}, {RoleKind::Batch, "target"}));
    } else {
      throw UserError("model option loss=" + wanted + ": found '" + kind + "', wanted cross_entropy, mse or output");
    }
    denominator_ = sum.denominator;
    return sum.numerator;
  }

  Import& import_;
  Module& module_;
  bool training_;
  GraphId graph_;
  Builder builder_;
  std::map<std::string, Item> names_;
  std::map<std::string, Tensor> states_;
  std::map<std::string, Value> initial_, gradients_;  // by name of buffer; by name of parameter
  std::vector<std::string> buffers_;
  std::vector<Value> user_inputs_;
  std::optional<Value> denominator_;
};

GraphId build_init(const Import& import, Module& module) {
  const GraphId id = module.add_graph("init");
  Builder builder(module, id);
  builder.input({DType::I64, {}, {}}, {RoleKind::Seed, "seed"});
  for (const auto& [weight, value] : import.imported.weights)
    builder.output(full(builder, value.dtype(), Shape(value.sizes().begin(), value.sizes().end()), 0), {RoleKind::NewState, weight});
  return id;
}

bool is_joint(const ExportedProgram& program) {
  return std::any_of(program.outputs.begin(), program.outputs.end(), [](const ExportedOutput& output) { return output.kind == ExportedOutput::Kind::GradientToParameter; });
}

/// A program that holds its gradients can be used only as it is.
void check_joint(const Import& import) {
  if (!is_joint(import.program)) return;
  const std::string advice = " holds its loss and gradients (a joint program), ";
  const std::string use = "; use the program that torch.export.export returns";
  if (!import.options.loss.empty()) throw UserError(import.archive.path() + advice + "so that no other loss can be put on it" + use);
  if (import.options.autocast.dtype) throw UserError(import.archive.path() + advice + "so that its precision is fixed" + use);
}

/// How often dropout and batch norm, which training and evaluation compute differently, stand in the program in training mode and not in it.
struct Modes {
  int64_t training = 0, evaluation = 0;
};
void count_modes(const ExportedGraph& graph, Modes& modes) {
  for (const ExportedNode& node : graph.nodes) {
    const bool known = node.target.starts_with("torch.ops.aten.dropout.") || node.target.starts_with("torch.ops.aten.batch_norm.") ||
                       node.target.starts_with("torch.ops.aten.feature_dropout.") || node.target.starts_with("torch.ops.aten.alpha_dropout.");
    for (const NamedArgument& input : node.inputs) {
      if (const auto* nested = std::get_if<ExportedRegion>(&input.value)) count_modes(*nested->graph, modes);
      const bool* mode = known && (input.name == "train" || input.name == "training") ? std::get_if<bool>(&input.value) : nullptr;
      if (mode) ++(*mode ? modes.training : modes.evaluation);
    }
  }
}

void warn(Import& import) {
  const ExportedProgram& program = import.program;
  if (is_joint(program)) {
    import.imported.warnings.push_back(import.archive.path() + " is a joint program: its gradients are taken as they are, those of the mean over the whole batch (no micro-batches); "
                                       "they are right only if it was traced from the program that torch.export.export returns, without run_decompositions");
    return;
  }
  const bool decomposed = std::find(program.verifiers.begin(), program.verifiers.end(), "TRAINING") == program.verifiers.end();
  if (decomposed)
    import.imported.warnings.push_back(import.archive.path() + " is a decomposed (core) program: detach and no_grad are lost in it, so that gradients may be wrong where the model uses them; "
                                       "save the result of torch.export.export without run_decompositions");
  Modes modes;
  count_modes(program.graph, modes);
  if (modes.evaluation > 0 && modes.training == 0)
    import.imported.warnings.push_back(import.archive.path() + " was exported in evaluation mode: batch norm is frozen and dropout is off in training too; call model.train() before the export");
  for (const ExportedOutput& output : program.outputs)
    if (output.kind == ExportedOutput::Kind::UserInputMutation)
      import.imported.warnings.push_back("the model writes to its input " + output.target + ": the write is seen by later reads in the model, but not by the caller");
}

}  // namespace
}  // namespace pt2

Imported import_pt2(const std::string& path, const ImportOptions& options) {
  const pt2::Pt2Archive archive(path);
  pt2::ExportedProgram program = pt2::read_program(archive);
  pt2::unite_equal_sizes(program);
  pt2::check_operators(program, path);
  Imported imported;
  imported.guards = SizeGuards(program.guards, pt2::user_inputs(program));
  pt2::Import import{archive, program, options, imported, {}};
  pt2::check_joint(import);
  pt2::unite_tied(import);
  Module module;
  module.name = path.substr(path.find_last_of('/') + 1);
  module.name = module.name.substr(0, module.name.rfind('.'));
  pt2::declare_symbols(import, module);
  const GraphId forward = pt2::Pass(import, module, true).run();
  const GraphId eval = pt2::Pass(import, module, false).run();
  const GraphId init = pt2::build_init(import, module);
  module.entries = {{"init", init}, {"forward", forward}, {"eval", eval}};
  pt2::warn(import);
  imported.forward = prune_graphs(std::move(module));
  return imported;
}

}  // namespace stepgraph
