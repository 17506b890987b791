// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/row_runner.h"

#include "stepgraph/base/error.h"
#include "stepgraph/compile/autodiff/gradients.h"
#include "tests/reference/module_runner.h"

namespace stepgraph::testing {
namespace {

struct RowInputs {
  std::vector<Literal> values{Literal::integer(DType::I64, 3), Literal::integer(DType::I64, 0)};  // seed, step
  std::vector<std::string> names;
  explicit RowInputs(const RowTensors& tensors) {
    for (const auto& [name, value] : tensors) names.push_back(name), values.push_back(value);
  }
};

std::vector<Value> emit_row(Builder& builder, const std::string& target, const std::vector<std::string>& names, const std::vector<Value>& values,
                            const RowArguments& arguments, bool training, size_t outputs) {
  pt2::ExportedNode node;
  node.target = "torch.ops.aten." + target;
  node.name = target;
  std::map<std::string, pt2::Item> items;
  for (size_t i = 0; i < names.size(); ++i) {
    items[names[i]] = pt2::Tensor(values[2 + i]);
    node.inputs.push_back({names[i], pt2::TensorRef{names[i]}});
  }
  for (const auto& [name, value] : arguments) node.inputs.push_back({name, value});
  for (size_t i = 0; i < outputs; ++i) node.outputs.push_back(pt2::TensorRef{"out" + std::to_string(i)});
  int64_t draws = 0;
  pt2::Surroundings surroundings{builder, training, [&] { return fold_in(fold_in(values[0], values[1]), draws++); }};
  pt2::OperatorCall call(node, surroundings, items);
  const pt2::Row row = pt2::find_row(node.target);
  if (!row) throw UserError("no row for " + target);
  row(call);
  std::vector<Value> results;
  for (const pt2::Item& item : call.outputs()) results.push_back(std::get<pt2::Tensor>(item).value());
  return results;
}

}  // namespace

std::vector<Literal> run_row(const std::string& target, const RowTensors& tensors, const RowArguments& arguments, bool training, size_t outputs) {
  const RowInputs inputs(tensors);
  return evaluate(inputs.values, [&](Builder& builder, const std::vector<Value>& values) {
    return emit_row(builder, target, inputs.names, values, arguments, training, outputs);
  });
}

RowGradients differentiate_row(const std::string& target, const RowTensors& tensors, const RowArguments& arguments, const std::vector<double>& weights) {
  const RowInputs inputs(tensors);
  std::vector<std::string> found;
  const std::vector<Literal> results = evaluate(inputs.values, [&](Builder& builder, const std::vector<Value>& values) {
    const Value y = emit_row(builder, target, inputs.names, values, arguments, true, 1).at(0);
    std::optional<Value> seed = ones_like(y);
    if (!weights.empty()) seed = reshape(convert(constant(builder, f64({static_cast<int64_t>(weights.size())}, weights)), y.dtype()), y.shape());
    const std::vector<Value> xs(values.begin() + 2, values.end());
    const auto gradient = gradients(builder, std::span<const Value>(&y, 1), std::span<const std::optional<Value>>(&seed, 1), xs);
    std::vector<Value> outputs{y};
    for (size_t i = 0; i < xs.size(); ++i)
      if (gradient[i]) found.push_back(inputs.names[i]), outputs.push_back(*gradient[i]);
    return outputs;
  });
  RowGradients all{results[0], {}};
  for (size_t i = 0; i < found.size(); ++i) all.gradients[found[i]] = results[1 + i];
  return all;
}

}  // namespace stepgraph::testing
