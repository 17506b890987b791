// SPDX-License-Identifier: Apache-2.0
// Sizes and starts of local slices as symbols. Where a dim is not cut evenly, its local size is a long expression of the coordinates; each distinct one (a
// count of grains over axes) is declared once as a derived symbol with a name that tells where it comes from: "batch.data" for `batch` over the axis data.
// Types stay short, and equal sizes are equal by name. A dim of several grains is a multiple of the symbol: 64*batch.data. What is the same on every coordinate
// stays what it is.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include "stepgraph/tensor/sharding.h"

namespace stepgraph {

class LocalSizes {
 public:
  /// Declares the mesh's coordinates in `symbols`, and what is asked for as it is asked for. Both outlive this.
  LocalSizes(SymbolTable& symbols, const Mesh& mesh);
  const Mesh& mesh() const { return mesh_; }
  const SymbolTable& symbols() const { return symbols_; }

  Dim extent(const Dim& size, const DimSharding& sharding);
  Dim start(const Dim& size, const DimSharding& sharding);
  Shape shape(const Shape& shape, const Sharding& sharding);
  /// Layouts that are written differently may cut alike.
  bool same_cut(const Dim& size, const DimSharding& a, const DimSharding& b);

 private:
  struct Key {
    Dim size;
    DimSharding sharding;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Cut {
    LocalSlice slice;  ///< its extent a symbol where it is uneven, its start an expression
    bool is_even = false;
    std::optional<Dim> start;  ///< as a symbol, once it was asked for
  };
  Cut& cut(const Dim& size, const DimSharding& sharding);
  Dim derived(const std::string& name, const Dim& definition);

  SymbolTable& symbols_;
  const Mesh& mesh_;
  std::unordered_map<Key, Cut, KeyHash> cuts_;  ///< looked up only; a reference to a cut stays valid
  std::map<Dim, Dim> derived_;                  ///< by definition
};

}  // namespace stepgraph
