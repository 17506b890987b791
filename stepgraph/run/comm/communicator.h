// SPDX-License-Identifier: Apache-2.0
// Collectives among ranks. All ranks of a group call the same sequence of operations on it; a call that does not match its peers' (operation, dtype,
// sizes) is a CommError on every rank of the group, never a hang. `group` lists ranks in the order of the reduction and of gathered pieces and holds
// the caller's own; every member passes the same list. A group of one returns at once.
#pragma once
#include <span>
#include <vector>
#include "stepgraph/tensor/literal.h"
#include "stepgraph/tensor/sharding.h"

namespace stepgraph {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Element-wise over the group's values of equal dtype and sizes. Sums and products of floats are taken in f64 in the group's order and rounded
  /// once, so that all ranks hold the same bits, run after run.
  virtual Literal all_reduce(const Literal& value, ReduceKind kind, std::span<const int> group) = 0;
  /// Pieces joined along `dim`; they may differ in size there.
  virtual Literal all_gather(const Literal& piece, int64_t dim, std::span<const int> group) = 0;
  /// all_reduce, of which this rank keeps [start, start + size) along `dim`.
  virtual Literal reduce_scatter(const Literal& value, ReduceKind kind, int64_t dim, int64_t start, int64_t size, std::span<const int> group) = 0;
  /// The value of rank `root` on every rank; the others' arguments are ignored.
  virtual Literal broadcast(const Literal& value, int root, std::span<const int> group) = 0;
  virtual void barrier(std::span<const int> group) = 0;
};

/// Any and All of bool, the others of numbers; NaN wins in Max and Min. UserError for a dtype that the kind does not take.
void check_reduce_dtype(ReduceKind kind, DType dtype);
/// Reduces equal-sized values in order into elements [first, last) of a result of their dtype; several threads may write parts of one result.
void reduce_elements(ReduceKind kind, std::span<const Literal* const> values, std::byte* result, int64_t first, int64_t last);
/// The value that changes nothing.
Literal reduce_identity(ReduceKind kind, DType dtype, Sizes sizes);
/// [start, start + size) along `dim`.
Literal slice_dim(const Literal& value, int64_t dim, int64_t start, int64_t size);
/// Joined along `dim`; the other sizes must be equal.
Literal join_dim(std::span<const Literal* const> pieces, int64_t dim);

}  // namespace stepgraph
