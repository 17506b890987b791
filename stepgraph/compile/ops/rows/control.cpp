// SPDX-License-Identifier: Apache-2.0
// Ops that run graphs. Their values come from the walker (reference/interpreter.h), their gradients from autodiff, their layouts from propagation; here are
// their types and costs.
#include <algorithm>

#include <fmt/core.h>

#include "stepgraph/compile/ops/rows/checks.h"
#include "stepgraph/compile/ops/rows/rules.h"
#include "stepgraph/compile/ops/rows/rows.h"

namespace stepgraph {
namespace {

const Graph& called_graph(std::string_view op, const Module& module, GraphId id) {
  if (id.index < 0 || static_cast<size_t>(id.index) >= module.graphs.size())
    throw UserError(fmt::format("{}: graph {} does not exist, the module has {}", op, id.index, module.graphs.size()));
  return module.graph(id);
}

void check_operand_count(std::string_view op, const Graph& graph, size_t found, size_t wanted) {
  if (found != wanted) throw UserError(fmt::format("{}: '{}' takes {} inputs, found {}", op, graph.name, wanted, found));
}

std::string input_name(const Graph& graph, size_t index) {
  const Role& role = graph.inputs[index].role;
  return role.name.empty() ? std::to_string(index) : fmt::format("{} ('{}')", index, role.name);
}

void check_operand(std::string_view op, const InferRequest& request, const Graph& graph, size_t input, const TensorType& found) {
  const TensorType& wanted = graph.type(graph.inputs[input].value);
  if (found.dtype == wanted.dtype && same_shape(request.module, found.shape, wanted.shape)) return;
  throw UserError(fmt::format("{}: input {} of '{}' is {}, found {}{}", op, input_name(graph, input), graph.name, text(wanted), text(found),
                              ranges_of(request.module, found.shape, wanted.shape)));
}

TensorType without_sharding(TensorType type) {
  type.sharding.reset();
  return type;
}

// ---- call ----

std::vector<TensorType> infer_call(const InferRequest& request) {
  const auto& op = std::get<Call>(request.op);
  const Graph& graph = called_graph("call", request.module, op.graph);
  check_operand_count("call", graph, request.inputs.size(), graph.inputs.size());
  for (size_t i = 0; i < request.inputs.size(); ++i) check_operand("call", request, graph, i, request.inputs[i]);
  std::vector<TensorType> results;
  for (const GraphOutput& output : graph.outputs) results.push_back(without_sharding(graph.type(output.value)));
  return results;
}

// ---- loop ----

TensorType slice_type(const InferRequest& request, const Loop& op, const TensorType& scanned, size_t input) {
  if (scanned.rank() == 0 || !same_size(request.module, scanned.shape[0], op.trip_count))
    throw UserError(fmt::format("loop: scanned input {} is {}, wanted {} slices along dim 0{}", input, text(scanned), op.trip_count.text(),
                                ranges_of(request.module, scanned.shape, {op.trip_count})));
  return {scanned.dtype, Shape(scanned.shape.begin() + 1, scanned.shape.end()), {}};
}

/// A size that changes from one iteration to the next has no meaning outside.
void check_fixed_shape(const Loop& op, const Graph& body, size_t output, const TensorType& type) {
  for (const Dim& dim : type.shape) {
    const auto symbols = dim.symbols();
    if (std::find(symbols.begin(), symbols.end(), op.symbol) != symbols.end())
      throw UserError(fmt::format("loop: output {} of '{}' is {}, whose size depends on the iteration '{}'", output, body.name, text(type), op.symbol));
  }
}

std::vector<TensorType> infer_loop(const InferRequest& request) {
  const auto& op = std::get<Loop>(request.op);
  const Graph& body = called_graph("loop", request.module, op.body);
  if (op.carried < 0 || op.scanned < 0 || static_cast<size_t>(op.carried) + static_cast<size_t>(op.scanned) > request.inputs.size())
    throw UserError(fmt::format("loop: {} carried and {} scanned inputs, found {} in all", op.carried, op.scanned, request.inputs.size()));
  if (request.module.symbols.less_or_equal(0, op.trip_count) == Truth::False) throw UserError(fmt::format("loop: a trip count of {}", op.trip_count.text()));
  const auto carried = static_cast<size_t>(op.carried), scanned = static_cast<size_t>(op.scanned);
  check_operand_count("loop", body, request.inputs.size(), body.inputs.size());
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const bool is_scanned = i >= carried && i < carried + scanned;
    check_operand("loop", request, body, i, is_scanned ? slice_type(request, op, request.inputs[i], i) : request.inputs[i]);
  }
  if (body.outputs.size() < carried)
    throw UserError(fmt::format("loop: '{}' has {} outputs, wanted at least the {} carried", body.name, body.outputs.size(), carried));
  std::vector<TensorType> results;
  for (size_t o = 0; o < body.outputs.size(); ++o) {
    TensorType type = without_sharding(body.type(body.outputs[o].value));
    check_fixed_shape(op, body, o, type);
    if (o < carried) {
      const TensorType& initial = request.inputs[o];
      if (type.dtype != initial.dtype || !same_shape(request.module, type.shape, initial.shape))
        throw UserError(fmt::format("loop: carried value {} starts as {}, '{}' gives {}{}", o, text(initial), body.name, text(type),
                                    ranges_of(request.module, initial.shape, type.shape)));
      type = without_sharding(initial);
    } else {
      type.shape.insert(type.shape.begin(), op.trip_count);
    }
    results.push_back(std::move(type));
  }
  return results;
}

// ---- map_tensors ----

void check_body(const Graph& body) {
  for (const GraphInput& input : body.inputs)
    if (body.type(input.value).rank() != 0) throw UserError(fmt::format("map_tensors: '{}' takes {}, wanted scalars", body.name, text(body.type(input.value))));
  for (const Node& node : body.nodes) {
    const OpInfo& info = op_info(node.op);
    const bool is_source = node.inputs.empty() && info.evaluate != nullptr && body.type(node.results.at(0)).rank() == 0;
    if (!info.elementwise && !is_source)
      throw UserError(fmt::format("map_tensors: '{}' holds {}, wanted element-wise ops and scalar constants", body.name, name(node.op)));
  }
}

std::vector<TensorType> map_results(const InferRequest& request, const MapTensors& op, const Graph& body) {
  if (op.reduced < 0 || static_cast<size_t>(op.reduced) > body.outputs.size())
    throw UserError(fmt::format("map_tensors: '{}' has {} outputs, found reduced={}", body.name, body.outputs.size(), op.reduced));
  const size_t mapped = body.outputs.size() - static_cast<size_t>(op.reduced);
  std::vector<TensorType> results;
  for (size_t o = 0; o < mapped; ++o)
    for (size_t j = 0; j < static_cast<size_t>(op.tensors); ++j) results.push_back({body.type(body.outputs[o].value).dtype, request.inputs[j].shape, {}});
  for (size_t o = mapped; o < body.outputs.size(); ++o) {
    const TensorType scalar = without_sharding(body.type(body.outputs[o].value));
    const Reduce reduce{op.reduce, {}};
    results.push_back(infer_types(reduce, std::span<const TensorType>(&scalar, 1), request.module).at(0));
  }
  return results;
}

std::vector<TensorType> infer_map_tensors(const InferRequest& request) {
  const auto& op = std::get<MapTensors>(request.op);
  const Graph& body = called_graph("map_tensors", request.module, op.body);
  int64_t columns = 0;
  if (op.tensors < 0 || op.tables < 1 || __builtin_mul_overflow(op.tensors, op.tables, &columns) || static_cast<size_t>(columns) > request.inputs.size())
    throw UserError(fmt::format("map_tensors: {} tables of {} tensors, found {} inputs", op.tables, op.tensors, request.inputs.size()));
  check_operand_count("map_tensors", body, request.inputs.size() - static_cast<size_t>(columns) + static_cast<size_t>(op.tables), body.inputs.size());
  check_body(body);
  const auto tensors = static_cast<size_t>(op.tensors), tables = static_cast<size_t>(op.tables);
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const bool is_shared = i >= tensors * tables;
    const TensorType& found = request.inputs[i];
    const size_t input = is_shared ? i - tensors * tables + tables : i / tensors;
    const TensorType& scalar = body.type(body.inputs[input].value);
    if (found.dtype != scalar.dtype || (is_shared && found.rank() != 0))
      throw UserError(fmt::format("map_tensors: input {} of '{}' is {}, found {}", input_name(body, input), body.name, text(scalar), text(found)));
    if (!is_shared && !same_shape(request.module, found.shape, request.inputs[i % tensors].shape))
      throw UserError(
          fmt::format("map_tensors: tensor {} is {} in table 0 and {} in table {}", i % tensors, text(request.inputs[i % tensors]), text(found), i / tensors));
  }
  return map_results(request, op, body);
}

OpInfo control_row(std::vector<TensorType> (*infer)(const InferRequest&)) {
  OpInfo info;
  info.operands = {0, any_number};
  info.infer = infer;
  info.cost = transfer_cost;  // what it hands over: the body's cost is the body's
  return info;
}

}  // namespace

OpInfo row_of(OpType<Call>) { return control_row(infer_call); }
OpInfo row_of(OpType<Loop>) { return control_row(infer_loop); }
OpInfo row_of(OpType<MapTensors>) { return control_row(infer_map_tensors); }

}  // namespace stepgraph
