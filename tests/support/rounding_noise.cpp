// SPDX-License-Identifier: Apache-2.0
#include "tests/support/rounding_noise.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/reference/interpreter.h"

namespace stepgraph::testing {
namespace {

constexpr int noisy_runs = 4;
constexpr double allowance = 12;

/// Half a unit in the last place of halves; of others what the approximations may be off.
double rounding_unit(DType dtype) {
  switch (dtype) {
    case DType::F64: return 1e-15;
    case DType::BF16: return 0x1p-9;
    case DType::F16: return 0x1p-12;
    default: return 0x1p-23;
  }
}

bool adds_up(const Op& op) {
  return std::holds_alternative<Reduce>(op) || std::holds_alternative<Cumulative>(op) || std::holds_alternative<Moments>(op) || std::holds_alternative<MatMul>(op) ||
         std::holds_alternative<Attention>(op) || std::holds_alternative<AttentionGradient>(op) || std::holds_alternative<Convolution>(op) ||
         std::holds_alternative<IndexAdd>(op) || std::holds_alternative<ScatterAdd>(op) || std::holds_alternative<Pool>(op) || is_control(op);
}
/// Whether the result may be another number than the formula's.
bool rounds(const Op& op) {
  if (const auto* reduce = std::get_if<Reduce>(&op)) return reduce->kind == ReduceKind::Sum || reduce->kind == ReduceKind::Product;
  if (const auto* pool = std::get_if<Pool>(&op)) return pool->kind != PoolKind::Max;
  if (const auto* binary = std::get_if<Binary>(&op))
    return binary->kind != BinaryKind::Maximum && binary->kind != BinaryKind::Minimum && binary->kind != BinaryKind::FloorDivide;
  if (const auto* unary = std::get_if<Unary>(&op)) {
    const std::initializer_list<UnaryKind> exact = {UnaryKind::Negate, UnaryKind::Abs, UnaryKind::Sign, UnaryKind::Floor, UnaryKind::Ceil, UnaryKind::Round, UnaryKind::Relu};
    return std::find(exact.begin(), exact.end(), unary->kind) == exact.end();
  }
  return std::holds_alternative<Polygamma>(op) || std::holds_alternative<Convert>(op) || std::holds_alternative<Random>(op) || adds_up(op);
}
/// Max and min pick an element; with noise on their operands alone they would not equal what they were picked from.
bool picks(const Op& op) {
  if (const auto* reduce = std::get_if<Reduce>(&op)) return reduce->kind != ReduceKind::Sum && reduce->kind != ReduceKind::Product;
  if (const auto* pool = std::get_if<Pool>(&op)) return pool->kind == PoolKind::Max;
  if (const auto* scan = std::get_if<Cumulative>(&op)) return scan->kind == CumulativeKind::Max || scan->kind == CumulativeKind::Min;
  return false;
}

class NoisyCopy {
 public:
  NoisyCopy(const Module& module, GraphId from, int64_t seed) : narrow_(module.graph(from)), wide_(with_floating_dtype(module, DType::F64)), graph_(wide_.add_graph("noisy")), seed_(seed) {
    Builder b(wide_, graph_);
    std::vector<Value> values(narrow_.values.size());
    const Graph& source = wide_.graph(from);
    for (const GraphInput& input : source.inputs) values[at(input.value)] = b.input(source.type(input.value));
    for (const Node& node : source.nodes) {
      std::vector<Value> operands;
      std::vector<TensorType> types;
      for (const ValueId input : node.inputs) operands.push_back(adds_up(node.op) && !picks(node.op) ? disturbed(values[at(input)], input) : values[at(input)]);
      for (const ValueId result : node.results) types.push_back(source.type(result));
      const std::vector<Value> results = b.append(node.op, operands, types);
      for (size_t i = 0; i < results.size(); ++i) values[at(node.results[i])] = rounds(node.op) ? disturbed(results[i], node.results[i]) : results[i];
    }
    for (const GraphOutput& output : source.outputs) b.output(values[at(output.value)]);
  }
  std::vector<Literal> run(std::span<const Literal> inputs, const SymbolValues& symbols) const {
    std::vector<Literal> wide;
    for (const Literal& input : inputs) wide.push_back(is_floating(input.dtype()) ? input.converted(DType::F64) : input);
    return evaluate_graph(wide_, graph_, wide, symbols);
  }

 private:
  static size_t at(ValueId value) { return static_cast<size_t>(value.index); }
  Value disturbed(const Value& x, ValueId original) {
    const DType dtype = narrow_.type(original).dtype;
    if (!is_floating(dtype)) return x;
    const Value key = constant(*x.builder, Literal::integer(DType::I64, seed_ * 100003 + draws_++));
    return x + x * (random_normal(key, DType::F64, x.shape()) * rounding_unit(dtype));
  }

  const Graph& narrow_;
  Module wide_;
  GraphId graph_;
  int64_t seed_, draws_ = 0;
};

}  // namespace

std::vector<double> allowed_differences(const Module& module, GraphId graph, std::span<const Literal> inputs, const SymbolValues& symbols) {
  const std::vector<Literal> exact = evaluate_graph(module, graph, inputs, symbols);
  std::vector<double> allowed(exact.size(), 0);
  for (int run = 0; run < noisy_runs; ++run) {
    const std::vector<Literal> noisy = NoisyCopy(module, graph, run + 1).run(inputs, symbols);
    for (size_t o = 0; o < exact.size(); ++o) {
      if (!is_floating(exact[o].dtype())) continue;
      for (int64_t i = 0; i < exact[o].count(); ++i) {
        const double difference = std::fabs(noisy[o].at(i) - exact[o].at(i));
        if (std::isfinite(difference)) allowed[o] = std::max(allowed[o], allowance * difference);
        if (run == 0 && std::isfinite(exact[o].at(i))) allowed[o] = std::max(allowed[o], 4 * rounding_unit(exact[o].dtype()) * std::fabs(exact[o].at(i)));
      }
    }
  }
  return allowed;
}

std::string compare_within(const Literal& found, const Literal& wanted, double allowed) {
  if (found.dtype() != wanted.dtype() || found.sizes() != wanted.sizes()) return "found " + found.text(4) + ", wanted " + wanted.text(4);
  if (!is_floating(wanted.dtype())) return found == wanted ? "" : "found " + found.text(40) + ", wanted " + wanted.text(40);
  double worst = allowed;
  int64_t place = -1;
  for (int64_t i = 0; i < wanted.count(); ++i) {
    const double f = found.at(i), w = wanted.at(i);
    const bool same = std::isnan(w) ? std::isnan(f) : std::isinf(w) ? f == w : std::isfinite(f);
    const double error = !same ? INFINITY : std::isfinite(w) ? std::fabs(f - w) : 0;
    if (error > worst) worst = error, place = i;
  }
  if (place < 0) return "";
  return fmt::format("element {} of {}: found {}, wanted {} (off by {:.3g}, allowed {:.3g})", place, wanted.count(), found.at(place), wanted.at(place), worst, allowed);
}

}  // namespace stepgraph::testing
