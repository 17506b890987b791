// SPDX-License-Identifier: Apache-2.0
// Reads an element of a value of a flat graph: views (ElementKind::View) are followed to what they are made of, up to leaves: graph inputs, what is computed,
// and views that are stored for themselves.
#pragma once
#include <functional>
#include <optional>
#include <vector>
#include "stepgraph/compile/ir/module.h"
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

/// An element of a leaf.
struct LeafElement {
  ValueId value;
  std::vector<Affine> at;            ///< one a dim; empty with `number`
  std::optional<Affine> number;      ///< its row-major number, where an index cannot be told: the leaf lies in memory
  std::vector<Guard> guards;         ///< it is wanted where all hold: the leaf lies in memory
  std::optional<int> outside;        ///< the expression elsewhere
  std::optional<size_t> computed_dim;  ///< the index along it is `computed_index`: the leaf lies in memory
  int computed_index = 0;

  bool wants_memory() const { return number || !guards.empty() || computed_dim; }
};

/// Why an expression could not be made; at most one is set.
struct ReadFailure {
  std::optional<FactorSplit> split;     ///< after this split of a factor it can
  std::optional<ValueId> wants_stored;  ///< if this view is stored it can
  bool impossible = false;
  bool any() const { return split || wants_stored || impossible; }
};

class ElementReader {
 public:
  /// `leaf` gives the expression of a leaf's element. `is_stored` tells of a view that it is a leaf.
  using Leaf = std::function<int(const LeafElement&)>;
  ElementReader(const Graph& graph, FormBuilder& form, std::function<bool(ValueId)> is_stored, Leaf leaf)
      : graph_(graph), form_(form), is_stored_(std::move(is_stored)), leaf_(std::move(leaf)) {}

  int read(ValueId value, std::vector<Affine> at);
  /// Element `at` of result `result` of a node, its own formula, where operands are read as above.
  int compute(const Node& node, size_t result, std::span<const Affine> at, std::span<const Affine> reduced);
  const ReadFailure& failure() const { return failure_; }

 private:
  friend class OperandReader;
  int read_leaf(LeafElement element);
  int fail_any(DType dtype);
  bool is_leaf(ValueId value) const;

  const Graph& graph_;
  FormBuilder& form_;
  std::function<bool(ValueId)> is_stored_;
  Leaf leaf_;
  ReadFailure failure_;
  std::vector<Guard> guards_;  // of what is being read
  std::optional<int> outside_;
  bool leaf_took_outside_ = false;
};

/// A value as a strided window on a leaf, without a kernel: views that only move and stretch. Nothing if it is none.
struct StridedLeaf {
  ValueId leaf;
  Dim offset;                ///< from the leaf's own first element
  std::vector<Dim> strides;  ///< one a dim of the value, in elements of the leaf; 0 where it is stretched
};
/// The strides with which a leaf lies in memory, one a dim.
using LeafStrides = std::function<std::vector<Dim>(ValueId)>;
std::optional<StridedLeaf> strided_leaf(const Graph& graph, ValueId value, const std::function<bool(ValueId)>& is_stored, const LeafStrides& strides);
bool is_dense(const StridedLeaf& window, const Shape& shape);

}  // namespace stepgraph
