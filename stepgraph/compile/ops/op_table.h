// SPDX-License-Identifier: Apache-2.0
// The op table: one row for each op struct, the only place where ops have meaning. `op_info(op)` is the only way in; passes know no op by name.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>
#include "stepgraph/compile/ops/builder.h"
#include "stepgraph/tensor/local_sizes.h"

namespace stepgraph {

/// Types of the results. Throws UserError without a place ("matmul: inner dims differ, 512 and 768"); the builder adds the place.
struct InferRequest {
  const Op& op;
  std::span<const TensorType> inputs;  // shardings, if any, are ignored
  const Module& module;                // for called graphs and symbols
};

/// Values of the results by plain loops: accumulate in f64 (integers in their own dtype, wrapping), round once. All Dims are constants.
struct EvaluateRequest {
  const Op& op;
  std::span<const Literal> inputs;
  std::span<const TensorType> results;
};

/// Gradients of the inputs, as new nodes. Absent = no gradient. `needed[i]` false: may be left absent.
struct GradientRequest {
  Builder& builder;
  const Op& op;
  std::vector<Value> inputs, results;
  std::vector<std::optional<Value>> result_gradients;  ///< at least one present
  std::vector<bool> needed;
};

/// How the dims of operands and results hang together, in the manner of einsum letters.
enum class FactorKind : uint8_t { Parallel, Reduction, Replicate };
struct ShardingFactor {
  FactorKind kind = FactorKind::Parallel;
  Dim size;
  ReduceKind reduce = ReduceKind::Sum;  ///< Reduction: how partial results combine
};
struct ShardingRule {
  std::vector<ShardingFactor> factors;
  /// operands[i][d]: the factors whose product is dim d of operand i, major to minor; empty for a dim that must not be split (or has size 1).
  std::vector<std::vector<std::vector<int>>> operands, results;
  /// Sets of operands that may be partial (Sum) together while the others are not; then every result is partial. Empty: reduce first.
  std::vector<std::vector<int>> linear_groups;
};
struct ShardingRequest {
  const Op& op;
  std::span<const TensorType> inputs, results;  // global shapes
  const Module& module;
};

/// The op on this coordinate's local values. Input shardings already fit the rule, with the same factors split on every operand.
struct PartitionRequest {
  Builder& builder;  ///< of the Local graph
  const Op& op;
  std::span<const TensorType> inputs, results;  ///< global shapes with shardings
  std::span<const Value> local_inputs;
  const Mesh& mesh;
  LocalSizes& sizes;
  /// Local shape of result i.
  Shape local_result_shape(size_t i) const;
};

struct Cost {
  Dim flops = 0, bytes = 0;
};
struct CostRequest {
  const Op& op;
  std::span<const TensorType> inputs, results;
};

/// How many operands an op takes.
struct Arity {
  size_t least = 1, most = 1;
};
inline constexpr size_t any_number = SIZE_MAX;

struct OpInfo {
  Arity operands;
  std::vector<TensorType> (*infer)(const InferRequest&) = nullptr;
  std::vector<Literal> (*evaluate)(const EvaluateRequest&) = nullptr;            ///< null: control and collectives, run by their walker
  std::vector<std::optional<Value>> (*gradient)(const GradientRequest&) = nullptr;  ///< null: that of the decomposition; control (the walk knows it); or none
  /// The same meaning by primitives, for a block op: what it is compared with, and what is differentiated where it has no gradient of its own.
  std::vector<Value> (*decompose)(const Op& op, std::span<const Value> inputs) = nullptr;
  ShardingRule (*sharding_rule)(const ShardingRequest&) = nullptr;               ///< null: control and collectives
  std::vector<Value> (*partition)(const PartitionRequest&) = nullptr;            ///< null: the same op on local values
  Cost (*cost)(const CostRequest&) = nullptr;
  bool elementwise = false;    ///< may be the body of MapTensors
  bool differentiable = true;  ///< false: integer, comparison, random: gradients stop here without a word
};
const OpInfo& op_info(const Op& op);

/// infer of the op's row, with arity checked.
std::vector<TensorType> infer_types(const Op& op, std::span<const TensorType> inputs, const Module& module);

}  // namespace stepgraph
