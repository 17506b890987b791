// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/reference/map_tensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

constexpr int64_t chunk_elements = 8192;  // some tens of values of this size fit the second cache

Literal slice_flat(const Literal& value, int64_t start, int64_t count) {
  Literal result = Literal::uninitialised(value.dtype(), {count});
  const size_t unit = size_bytes(value.dtype());
  std::memcpy(result.mutable_data(), value.data() + static_cast<size_t>(start) * unit, static_cast<size_t>(count) * unit);
  return result;
}
Literal repeat(const Literal& scalar, int64_t count) {
  Literal result = Literal::uninitialised(scalar.dtype(), {count});
  const size_t unit = size_bytes(scalar.dtype());
  std::byte* out = result.mutable_data();
  for (int64_t i = 0; i < count; ++i) std::memcpy(out + static_cast<size_t>(i) * unit, scalar.data(), unit);
  return result;
}

/// Reduces a vector to a scalar; floats in f64, so that nothing is rounded between the parts of one sum.
Literal reduced(ReduceKind kind, const Literal& values) {
  const Literal wide = is_floating(values.dtype()) ? values.converted(DType::F64) : values;
  const Op op = Reduce{kind, {0}};
  const TensorType result{wide.dtype(), {}, {}};
  return op_info(op).evaluate({op, std::span<const Literal>(&wide, 1), std::span<const TensorType>(&result, 1)}).at(0);
}

/// Scalars as one vector; of `dtype` when there are none.
Literal joined(const std::vector<Literal>& scalars, DType dtype) {
  Literal result = Literal::uninitialised(scalars.empty() ? dtype : scalars[0].dtype(), {static_cast<int64_t>(scalars.size())});
  for (size_t i = 0; i < scalars.size(); ++i)
    std::memcpy(result.mutable_data() + i * size_bytes(result.dtype()), scalars[i].data(), size_bytes(result.dtype()));
  return result;
}

class MappedBody {
 public:
  MappedBody(const Graph& body, const GraphPlan& steps, size_t tables);
  void set_shared(size_t index, const Literal& value) { value_of(body_.inputs[tables_ + index].value) = value; }
  void run_shared();
  /// Runs the nodes that depend on tables for elements [start, start + count), writes the first outputs there and returns the others.
  std::vector<Literal> run_chunk(std::span<const Literal* const> tables, int64_t start, int64_t count, std::span<Literal* const> outputs);

 private:
  std::optional<Literal>& value_of(ValueId id) { return values_[static_cast<size_t>(id.index)]; }
  bool varies(ValueId id) const { return varies_[static_cast<size_t>(id.index)]; }
  const Literal& operand(ValueId id, bool expand, int64_t count);
  void run_node(size_t n, bool expand, int64_t count);

  const Graph& body_;
  const GraphPlan& steps_;
  size_t tables_;
  std::vector<bool> varies_;  // differs from element to element
  std::vector<std::optional<Literal>> values_, expanded_;
};

MappedBody::MappedBody(const Graph& body, const GraphPlan& steps, size_t tables)
    : body_(body), steps_(steps), tables_(tables), varies_(body.values.size()), values_(body.values.size()), expanded_(body.values.size()) {
  for (size_t t = 0; t < tables; ++t) varies_[static_cast<size_t>(body.inputs[t].value.index)] = true;
  for (const Node& node : body.nodes) {
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) { return varies(input); });
    for (const ValueId result : node.results) varies_[static_cast<size_t>(result.index)] = any;
  }
}

const Literal& MappedBody::operand(ValueId id, bool expand, int64_t count) {
  const auto& value = value_of(id);
  SG_CHECK(value.has_value(), "map_tensors: a value is used before it is set");
  if (!expand || varies(id)) return *value;
  auto& wide = expanded_[static_cast<size_t>(id.index)];
  if (!wide || wide->count() != count) wide = repeat(*value, count);
  return *wide;
}

void MappedBody::run_node(size_t n, bool expand, int64_t count) {
  const Node& node = body_.nodes[n];
  const NodePlan& step = steps_.nodes[n];
  std::vector<Literal> inputs;
  for (const ValueId input : node.inputs) inputs.push_back(operand(input, expand, count));
  std::vector<TensorType> types = step.results;
  if (expand)
    for (TensorType& type : types) type.shape = {Dim(count)};
  std::vector<Literal> results = step.info->evaluate({step.op, inputs, types});
  for (size_t r = 0; r < results.size(); ++r) value_of(node.results[r]) = std::move(results[r]);
}

void MappedBody::run_shared() {
  for (size_t n = 0; n < body_.nodes.size(); ++n) {
    SG_CHECK(steps_.nodes[n].info->evaluate != nullptr, "map_tensors: " + std::string(name(body_.nodes[n].op)) + " in its body");
    if (!varies(body_.nodes[n].results.at(0))) run_node(n, false, 1);
  }
}

std::vector<Literal> MappedBody::run_chunk(std::span<const Literal* const> tables, int64_t start, int64_t count, std::span<Literal* const> outputs) {
  for (size_t t = 0; t < tables_; ++t) value_of(body_.inputs[t].value) = slice_flat(*tables[t], start, count);
  for (size_t n = 0; n < body_.nodes.size(); ++n) {
    if (!varies(body_.nodes[n].results.at(0))) continue;
    run_node(n, true, count);
    for (const ValueId dead : steps_.nodes[n].last_uses)
      if (varies(dead)) value_of(dead).reset();
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Literal& value = operand(body_.outputs[o].value, true, count);
    const size_t unit = size_bytes(value.dtype());
    std::memcpy(outputs[o]->mutable_data() + static_cast<size_t>(start) * unit, value.data(), static_cast<size_t>(count) * unit);
  }
  std::vector<Literal> others;
  for (size_t o = outputs.size(); o < body_.outputs.size(); ++o) others.push_back(operand(body_.outputs[o].value, true, count));
  return others;
}

}  // namespace

std::vector<Literal> map_tensors(const MapTensors& map, const Graph& body, const GraphPlan& steps, std::span<const Literal> inputs) {
  const auto tensors = static_cast<size_t>(map.tensors), tables = static_cast<size_t>(map.tables);
  SG_CHECK(inputs.size() >= tensors * tables && body.inputs.size() == inputs.size() - tensors * tables + tables, "map_tensors: number of inputs");
  MappedBody mapped(body, steps, tables);
  for (size_t s = tensors * tables; s < inputs.size(); ++s) mapped.set_shared(s - tensors * tables, inputs[s]);
  mapped.run_shared();
  const size_t mapped_outputs = body.outputs.size() - static_cast<size_t>(map.reduced);
  std::vector<Literal> results(mapped_outputs * tensors);
  std::vector<std::vector<Literal>> parts(static_cast<size_t>(map.reduced));
  for (size_t j = 0; j < tensors; ++j) {
    std::vector<const Literal*> columns;
    for (size_t t = 0; t < tables; ++t) columns.push_back(&inputs[t * tensors + j]);
    std::vector<Literal*> outputs;
    for (size_t o = 0; o < mapped_outputs; ++o) {
      results[o * tensors + j] = Literal::uninitialised(body.type(body.outputs[o].value).dtype, columns.at(0)->sizes());
      outputs.push_back(&results[o * tensors + j]);
    }
    const int64_t count = columns[0]->count();
    for (const Literal* column : columns) SG_CHECK(column->count() == count, "map_tensors: tensors of one column differ in size");
    for (int64_t start = 0; start < count; start += chunk_elements) {
      const std::vector<Literal> others = mapped.run_chunk(columns, start, std::min(chunk_elements, count - start), outputs);
      for (size_t o = 0; o < others.size(); ++o) parts[o].push_back(reduced(map.reduce, others[o]));
    }
  }
  for (size_t o = 0; o < parts.size(); ++o) {
    const DType dtype = body.type(body.outputs[mapped_outputs + o].value).dtype;
    results.push_back(reduced(map.reduce, joined(parts[o], dtype)).converted(dtype));
  }
  return results;
}

}  // namespace stepgraph
