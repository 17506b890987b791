// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/tensor/local_sizes.h"

#include "stepgraph/base/error.h"
#include "stepgraph/base/hash.h"

namespace stepgraph {
namespace {

constexpr size_t origin_size_max = 40;

/// An expression as a word: "batch", "2_batch" for 2*batch, "batch_plus_1".
std::string origin_name(const Dim& size) {
  std::string word;
  for (const char c : size.text()) {
    if (c == '+')
      word += "plus";
    else if (c == '-')
      word += "minus";
    else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.')
      word += c;
    else if (c != ')' && !word.empty() && word.back() != '_')
      word += '_';
  }
  if (word.size() > origin_size_max) return "size";
  return word.front() >= '0' && word.front() <= '9' ? "n" + word : word;
}

std::string cut_name(const Dim& size, const DimSharding& sharding) {
  std::string name = origin_name(size);
  for (const AxisRef& axis : sharding.axes) {
    name += "." + axis.axis;
    if (axis.size != 0) name += "_" + std::to_string(axis.pre) + "_" + std::to_string(axis.size);
  }
  return name;
}

}  // namespace

LocalSizes::LocalSizes(SymbolTable& symbols, const Mesh& mesh) : symbols_(symbols), mesh_(mesh) { declare_coordinates(symbols, mesh); }

size_t LocalSizes::KeyHash::operator()(const Key& key) const { return mix_hash(key.size.hash(), hash(key.sharding)); }

/// The symbol of that definition, under a name that no other symbol has.
Dim LocalSizes::derived(const std::string& name, const Dim& definition) {
  const auto known = derived_.find(definition);
  if (known != derived_.end()) return known->second;
  std::string free = name;
  for (int number = 2; symbols_.find(free) != nullptr; ++number) free = name + "." + std::to_string(number);
  const Dim symbol = symbols_.declare({.name = free, .kind = SymbolKind::Derived, .definition = definition});
  derived_.emplace(definition, symbol);
  return symbol;
}

LocalSizes::Cut& LocalSizes::cut(const Dim& size, const DimSharding& sharding) {
  Key key{size, sharding};
  const auto known = cuts_.find(key);
  if (known != cuts_.end()) return known->second;
  Cut made;
  if (sharding.axes.empty()) {
    made = {whole_slice(size), true, {}};
  } else if (const std::optional<Dim> grains = count_of_grains(size, sharding)) {
    const Cut& counted = cut(*grains, {sharding.axes, 1});
    const LocalSlice& slice = counted.slice;
    made = {{slice.start * sharding.grain, slice.extent * sharding.grain, slice.block * sharding.grain}, counted.is_even, {}};
  } else {
    DimSharding outer = sharding;
    outer.axes.pop_back();
    made.slice = nested_slice(cut(size, outer).slice, sharding.axes.back(), sharding.grain, mesh_, symbols_);
    made.is_even = made.slice.extent == made.slice.block;
    if (!made.is_even && !made.slice.extent.symbol_name()) made.slice.extent = derived(cut_name(size, sharding), made.slice.extent);
  }
  return cuts_.emplace(std::move(key), std::move(made)).first->second;
}

Dim LocalSizes::extent(const Dim& size, const DimSharding& sharding) { return sharding.axes.empty() ? size : cut(size, sharding).slice.extent; }

Dim LocalSizes::start(const Dim& size, const DimSharding& sharding) {
  Cut& found = cut(size, sharding);
  if (found.is_even) return found.slice.start;
  if (!found.start) {
    const std::optional<Dim> grains = count_of_grains(size, sharding);
    found.start = grains ? start(*grains, {sharding.axes, 1}) * sharding.grain : derived("start." + cut_name(size, sharding), found.slice.start);
  }
  return *found.start;
}

Shape LocalSizes::shape(const Shape& shape, const Sharding& sharding) {
  SG_CHECK(shape.size() == sharding.dims.size(), "sharding and rank differ");
  Shape result;
  result.reserve(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) result.push_back(extent(shape[d], sharding.dims[d]));
  return result;
}

bool LocalSizes::same_cut(const Dim& size, const DimSharding& a, const DimSharding& b) {
  if (a == b) return true;
  if (a.axes != b.axes) return false;
  const LocalSlice &one = cut(size, a).slice, &other = cut(size, b).slice;
  return one.start == other.start && one.extent == other.extent;
}

}  // namespace stepgraph
