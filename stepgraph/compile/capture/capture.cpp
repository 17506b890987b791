// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/capture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "stepgraph/compile/ops/composite/composite.h"

namespace stepgraph {

namespace initialize {
Initializer zeros() { return {}; }
Initializer ones() { return {Initializer::Kind::Constant, 1, 0}; }
Initializer constant(double value) { return {Initializer::Kind::Constant, value, 0}; }
Initializer uniform(double low, double high) { return {Initializer::Kind::Uniform, low, high}; }
Initializer normal(double mean, double deviation) { return {Initializer::Kind::Normal, mean, deviation}; }
Initializer kaiming_uniform(int64_t fan_in) {
  const double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  return uniform(-bound, bound);
}
Initializer kaiming_normal(int64_t fan_out) { return normal(0, fan_out > 0 ? std::sqrt(2 / static_cast<double>(fan_out)) : 0); }
}  // namespace initialize

namespace {

struct StateSpec {
  std::string name;
  TensorType type;
  Initializer initializer;
  RoleKind kind = RoleKind::Parameter;
};

}  // namespace

/// One graph being traced. The root frame makes state inputs of the entry; a frame of a repeated layer collects what its calls must pass.
struct Frame {
  Frame(Module& module, GraphId graph, bool is_training, bool is_root) : builder(module, graph), training(is_training), root(is_root) {}

  Value state(const StateSpec& spec, const SourcePlace& place);
  Value special(RoleKind kind, std::optional<Value>& slot);
  Value fresh_key();
  Scope scope(std::string path = {}) {
    Scope made;
    made.frame_ = this;
    made.path_ = std::move(path);
    return made;
  }

  Builder builder;
  bool training, root;
  std::vector<StateSpec> specs;
  std::map<std::string, size_t> index_of;     // state by name
  std::vector<Value> values, current;         // as read first; as it is now (after set_buffer)
  std::map<std::string, Value> new_buffers;   // in order of name
  std::optional<Value> seed, step;
  std::optional<Value> key;  // of the step, or of a call of this layer
  int64_t draws = 0;
  std::vector<std::unique_ptr<Frame>> layers;  // kept: a value that leaves its layer by mistake is an error, not a dangling pointer
};

Value Frame::state(const StateSpec& spec, const SourcePlace& place) {
  if (auto found = index_of.find(spec.name); found != index_of.end()) {
    const StateSpec& known = specs[found->second];
    if (!(known.type == spec.type) || known.kind != spec.kind)
      throw UserError(spec.name + " is asked for as " + text(spec.type) + ", but exists as " + text(known.type), place);
    return current[found->second];
  }
  index_of.emplace(spec.name, specs.size());
  specs.push_back(spec);
  values.push_back(builder.input(spec.type, root ? Role{spec.kind, spec.name} : Role{}));
  current.push_back(values.back());
  return values.back();
}

Value Frame::special(RoleKind kind, std::optional<Value>& slot) {
  if (!slot) slot = builder.input({DType::I64, {}, {}}, root ? Role{kind, std::string(name(kind))} : Role{});
  return *slot;
}

/// Each draw has a number of its own in its frame. A layer has its key from the call.
Value Frame::fresh_key() {
  if (!key) key = builder.input({DType::I64, {}, {}});
  return fold_in(*key, draws++);
}

Scope Scope::operator/(std::string_view child) const {
  Scope scope = *this;
  scope.path_ = path_.empty() ? std::string(child) : path_ + "." + std::string(child);
  return scope;
}
Scope Scope::operator/(int64_t index) const { return *this / std::to_string(index); }

namespace {

std::string state_name(const std::string& path, std::string_view child) { return path.empty() ? std::string(child) : path + "." + std::string(child); }

void check_constant(const std::string& state, const Shape& shape, const SourcePlace& place) {
  for (const Dim& dim : shape)
    if (!dim.is_constant() || dim.constant() < 0)
      throw UserError(state + ": found shape " + text(shape) + ", wanted constant sizes of at least 0", place);
}

}  // namespace

Value Scope::parameter(std::string_view child, const Shape& shape, Initializer initializer, DType dtype, std::source_location location) const {
  const std::string full_name = state_name(path_, child);
  check_constant(full_name, shape, place_of(location));
  if (!is_floating(dtype)) throw UserError(full_name + ": found dtype " + std::string(name(dtype)) + ", a parameter is floating", place_of(location));
  return frame_->state({full_name, {dtype, shape, {}}, initializer, RoleKind::Parameter}, place_of(location));
}

Value Scope::buffer(std::string_view child, const Shape& shape, Initializer initializer, DType dtype, std::source_location location) const {
  const std::string full_name = state_name(path_, child);
  check_constant(full_name, shape, place_of(location));
  return frame_->state({full_name, {dtype, shape, {}}, initializer, RoleKind::Buffer}, place_of(location));
}

void Scope::set_buffer(std::string_view child, Value value, std::source_location location) const {
  const std::string full_name = state_name(path_, child);
  const auto found = frame_->index_of.find(full_name);
  if (value.builder != &frame_->builder) throw UserError("set_buffer: the value of " + full_name + " is no value of this layer", place_of(location));
  if (found == frame_->index_of.end() || frame_->specs[found->second].kind != RoleKind::Buffer)
    throw UserError("set_buffer: there is no buffer named " + full_name, place_of(location));
  if (!same_dtype_and_shape(value.type(), frame_->specs[found->second].type))
    throw UserError("set_buffer: " + full_name + " is " + text(frame_->specs[found->second].type) + ", found " + text(value.type()), place_of(location));
  if (!frame_->training) return;
  frame_->current[found->second] = value;
  frame_->new_buffers[full_name] = value;
}

Frame& Scope::add_layer(GraphId graph) const {
  frame_->layers.push_back(std::make_unique<Frame>(frame_->builder.module(), graph, frame_->training, false));
  frame_->layers.back()->builder.set_autocast(frame_->builder.autocast());
  return *frame_->layers.back();
}

bool Scope::training() const { return frame_->training; }
DType Scope::parameter_dtype(Value x) const {
  const bool narrow = x.dtype() == DType::BF16 || x.dtype() == DType::F16;
  return narrow && builder().autocast().dtype ? DType::F32 : x.dtype();
}
Value Scope::seed() const { return frame_->special(RoleKind::Seed, frame_->seed); }
Value Scope::step() const { return frame_->special(RoleKind::Step, frame_->step); }
Value Scope::key() const { return frame_->fresh_key(); }
Builder& Scope::builder() const { return frame_->builder; }

Value Inputs::operator[](std::string_view wanted) const {
  std::string known;
  for (const auto& [input_name, value] : values) {
    if (input_name == wanted) return value;
    known += (known.empty() ? "" : ", ") + input_name;
  }
  throw UserError("there is no input '" + std::string(wanted) + "'; the inputs are " + known);
}

Loss::Loss(Value mean) : numerator(mean), denominator(mean.builder ? scalar(*mean.builder, DType::F32, 1) : Value{}) {}
Loss& Loss::metric(std::string metric_name, Value numerator_, Value denominator_) {
  metrics.push_back({std::move(metric_name), numerator_, denominator_});
  return *this;
}
Loss& Loss::output(std::string output_name, Value value) {
  outputs.emplace_back(std::move(output_name), value);
  return *this;
}

namespace {

void check_scalar(const Builder& builder, const Value& value, const std::string& what) {
  if (!value.builder) throw UserError("the model returned no " + what);
  if (value.builder != &builder) throw UserError("the model's " + what + " belongs to another graph; a layer returns it to the model");
  if (value.rank() != 0 || !is_floating(value.dtype()))
    throw UserError("the model's " + what + " is " + text(value.type()) + ", wanted a floating scalar", value.builder->place());
}

/// Sums are f32 at least: a count or a sum over micro-batches in a narrow type would stop growing.
Value wide(Value value) { return convert(value, wide_dtype(value.dtype())); }

/// An output of the model by its name, once.
void check_new_name(std::set<std::string>& names, const std::string& what, const std::string& found, const SourcePlace& place) {
  if (!names.insert(found).second) throw UserError("there are two " + what + " named '" + found + "'", place);
}

/// State of both traces in order of first use; one name is one tensor.
void merge_specs(std::vector<StateSpec>& specs, const std::vector<StateSpec>& more) {
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < specs.size(); ++i) known[specs[i].name] = i;
  for (const StateSpec& spec : more) {
    const auto [place, is_new] = known.emplace(spec.name, specs.size());
    if (is_new) specs.push_back(spec);
    const StateSpec& first = specs[place->second];
    if (!(first.type == spec.type) || first.kind != spec.kind)
      throw UserError(spec.name + " is " + text(first.type) + " in training and " + text(spec.type) + " in evaluation");
  }
}

GraphId trace(Module& module, const std::string& graph_name, const std::vector<InputSpec>& inputs, const ModelFunction& model, const Autocast& autocast,
              bool training, std::vector<StateSpec>& specs) {
  const GraphId id = module.add_graph(graph_name);
  Frame frame(module, id, training, true);
  frame.builder.set_autocast(autocast);
  Inputs values;
  for (const InputSpec& input : inputs)
    values.values.emplace_back(input.name, frame.builder.input({input.dtype, input.shape, {}}, {RoleKind::Batch, input.name}));
  // In front of all: it is no part of the first of blocks that repeat.
  const Value seed = frame.special(RoleKind::Seed, frame.seed), step = frame.special(RoleKind::Step, frame.step);
  frame.key = fold_in(seed, step);
  Loss loss = model(frame.scope(), values);
  Builder& builder = frame.builder;
  if (loss.denominator.builder && !is_floating(loss.denominator.dtype())) loss.denominator = wide(loss.denominator);
  check_scalar(builder, loss.numerator, "loss");
  check_scalar(builder, loss.denominator, "loss denominator");
  builder.output(wide(loss.numerator), {RoleKind::LossNumerator, "loss"});
  builder.output(wide(loss.denominator), {RoleKind::LossDenominator, "loss"});
  std::set<std::string> names;
  for (const Loss::Metric& metric : loss.metrics) {
    check_new_name(names, "metrics", metric.name, builder.place());
    check_metric_name(metric.name, builder.place());
    for (const Value& part : {metric.numerator, metric.denominator})
      if (part.builder != &builder || part.rank() != 0)
        throw UserError("metric '" + metric.name + "' is " + (part.builder ? text(part.type()) : "nothing") + ", wanted two scalars of this model",
                        builder.place());
    builder.output(convert(metric.numerator, DType::F32), {RoleKind::MetricNumerator, metric.name});
    builder.output(convert(metric.denominator, DType::F32), {RoleKind::MetricDenominator, metric.name});
  }
  names.clear();
  for (const auto& [output_name, value] : loss.outputs) {
    check_new_name(names, "outputs", output_name, builder.place());
    if (value.builder != &builder) throw UserError("output '" + output_name + "' is no value of this model", builder.place());
  }
  if (training) {
    for (const auto& [buffer_name, value] : frame.new_buffers) builder.output(value, {RoleKind::NewState, buffer_name});
  } else {
    for (const auto& [output_name, value] : loss.outputs) builder.output(value, {RoleKind::UserOutput, output_name});
  }
  merge_specs(specs, frame.specs);
  order_inputs(module.graph(id));
  remove_dead_nodes(module.graph(id));
  return id;
}

GraphId build_init(Module& module, const std::vector<StateSpec>& specs) {
  const GraphId id = module.add_graph("init");
  Builder builder(module, id);
  const Value seed = builder.input({DType::I64, {}, {}}, {RoleKind::Seed, "seed"});
  const Value key = fold_in(seed, -1);  // before step 0: no draw of a step is one of these
  int64_t draws = 0;
  for (const StateSpec& spec : specs) {
    builder.set_scope(spec.name);
    const DType dtype = spec.type.dtype;
    Value start;
    switch (spec.initializer.kind) {
      case Initializer::Kind::Constant: start = full(builder, dtype, spec.type.shape, spec.initializer.a); break;
      case Initializer::Kind::Uniform:
        start = random_uniform(fold_in(key, draws++), dtype, spec.type.shape) * (spec.initializer.b - spec.initializer.a) + spec.initializer.a;
        break;
      case Initializer::Kind::Normal:
        start = random_normal(fold_in(key, draws++), dtype, spec.type.shape) * spec.initializer.b + spec.initializer.a;
        break;
    }
    builder.output(start, {RoleKind::NewState, spec.name});
  }
  return id;
}

}  // namespace

Module capture(const std::vector<InputSpec>& inputs, const ModelFunction& model, const CaptureOptions& options) {
  check(options.autocast);
  Module module;
  module.name = options.name;
  for (const Symbol& symbol : options.symbols) module.symbols.declare(symbol);
  std::set<std::string> input_names;
  for (const InputSpec& input : inputs) check_new_name(input_names, "inputs", input.name, {});
  for (const InputSpec& input : inputs)
    for (const Dim& dim : input.shape)
      for (const std::string& symbol : dim.symbols())
        if (!module.symbols.find(symbol)) module.symbols.declare({symbol, SymbolKind::Size, 1, INT64_MAX, 1, {}});
  std::vector<StateSpec> specs;
  const GraphId forward = trace(module, "forward", inputs, model, options.autocast, true, specs);
  const GraphId eval = trace(module, "eval", inputs, model, options.autocast, false, specs);
  const GraphId init = build_init(module, specs);
  module.entries = {{"init", init}, {"forward", forward}, {"eval", eval}};
  return prune_graphs(std::move(module));
}

namespace {

using RepeatedLayer = std::function<Value(Scope, Value, std::span<const Value>)>;

/// A layer once traced, to be called.
struct TracedLayer {
  const Frame& frame;
  GraphId body;
  std::vector<GraphInput> inputs;  // with those that nothing reads
};

TracedLayer trace_layer(Frame& frame, const Builder& outer, const Value& x, std::span<const Value> shared, const RepeatedLayer& layer) {
  Module& module = frame.builder.module();
  const GraphId id = frame.builder.graph_id();
  frame.builder.set_place(outer.place());
  const Value inner_x = frame.builder.input(x.type());
  std::vector<Value> inner_shared;
  for (const Value& value : shared) inner_shared.push_back(frame.builder.input(value.type()));
  const Value result = layer(frame.scope(), inner_x, inner_shared);
  // Under autocast a repetition may narrow or widen what it is given; the next one then is given that.
  const auto may_change = [&](DType dtype) { return dtype == DType::F32 || dtype == outer.autocast().dtype; };
  const bool fits = result.builder == &frame.builder && result.shape() == x.shape() &&
                    (result.dtype() == x.dtype() || (outer.autocast().dtype && may_change(result.dtype()) && may_change(x.dtype())));
  if (!fits)
    throw UserError("repeat: the layer turns " + text(x.type()) + " into " + (result.builder ? text(result.type()) : "nothing") +
                        ", a repeated layer keeps its type",
                    outer.place());
  frame.builder.output(result);
  for (const auto& [buffer_name, value] : frame.new_buffers) frame.builder.output(value);
  TracedLayer traced{frame, id, module.graph(id).inputs};

  // An evaluation body that is the training body (no dropout, no statistics) is the same graph.
  remove_dead_nodes(module.graph(id));
  const std::string graph_name = module.graph(id).name;
  for (int32_t i = 0; i < id.index && static_cast<size_t>(id.index) + 1 == module.graphs.size(); ++i) {
    if (module.graphs[static_cast<size_t>(i)].name + ".eval" != graph_name || !equal_graphs(module.graphs[static_cast<size_t>(i)], module.graph(id))) continue;
    module.graphs.pop_back();
    traced.body = {i};
    break;
  }
  return traced;
}

/// The call that is repetition `here`: its result, and its buffers set.
Value call_layer(const TracedLayer& layer, const Scope& scope, const Scope& here, const Value& x, std::span<const Value> shared) {
  const Frame& frame = layer.frame;
  std::vector<Value> arguments{x};
  arguments.insert(arguments.end(), shared.begin(), shared.end());
  for (size_t input = arguments.size(); input < layer.inputs.size(); ++input) {
    const ValueId value = layer.inputs[input].value;
    if (frame.seed && frame.seed->id == value) {
      arguments.push_back(scope.seed());
    } else if (frame.step && frame.step->id == value) {
      arguments.push_back(scope.step());
    } else if (frame.key && frame.key->id == value) {
      arguments.push_back(scope.key());
    } else {
      const auto index = static_cast<size_t>(
          std::find_if(frame.values.begin(), frame.values.end(), [&](const Value& candidate) { return candidate.id == value; }) - frame.values.begin());
      const StateSpec& spec = frame.specs[index];
      arguments.push_back(spec.kind == RoleKind::Parameter ? here.parameter(spec.name, spec.type.shape, spec.initializer, spec.type.dtype)
                                                           : here.buffer(spec.name, spec.type.shape, spec.initializer, spec.type.dtype));
    }
  }
  const std::vector<Value> results = call(scope.builder(), layer.body, arguments);
  size_t result_index = 1;
  for (const auto& [buffer_name, value] : frame.new_buffers) here.set_buffer(buffer_name, results[result_index++]);
  return results[0];
}

}  // namespace

Value repeat(Scope scope, int64_t count, Value x, const std::function<Value(Scope, Value)>& layer) {
  return repeat(scope, count, x, {}, [&](Scope inner, Value value, std::span<const Value>) { return layer(inner, value); });
}

Value repeat(Scope scope, int64_t count, Value x, std::span<const Value> shared, const RepeatedLayer& layer) {
  Builder& outer = scope.builder();
  if (count < 0) throw UserError("repeat: found a count of " + std::to_string(count) + ", wanted at least 0", outer.place());
  std::map<DType, TracedLayer> traced;  // by what it is given
  for (int64_t i = 0; i < count; ++i) {
    auto known = traced.find(x.dtype());
    if (known == traced.end()) {
      const std::string name = (scope.path().empty() ? "layer" : scope.path()) + (traced.empty() ? "" : ".rest") + (scope.training() ? "" : ".eval");
      known = traced.emplace(x.dtype(), trace_layer(scope.add_layer(outer.module().add_graph(name)), outer, x, shared, layer)).first;
    }
    const Scope here = scope / i;
    ScopeEntry entry(outer, here.path());
    x = call_layer(known->second, scope, here, x, shared);
  }
  return x;
}

}  // namespace stepgraph
