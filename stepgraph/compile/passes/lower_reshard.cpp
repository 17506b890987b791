// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/lower_reshard.h"

#include <algorithm>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/passes/factor_splits.h"

namespace stepgraph {
namespace {

class Lowering {
 public:
  Lowering(Value local, const Shape& global, Sharding from, const Sharding& to, const Mesh& mesh, const SymbolTable& symbols)
      : value_(local), global_(global), have_(std::move(from)), want_(to), mesh_(mesh), symbols_(symbols) {}

  Value run() {
    scatter();
    reduce();
    for (size_t d = 0; d < global_.size(); ++d) gather(d);
    for (size_t d = 0; d < global_.size(); ++d) cut(d);
    make_partial();
    return value_;
  }

 private:
  bool stays_partial(const PartialAxis& partial) const { return std::find(want_.partial.begin(), want_.partial.end(), partial) != want_.partial.end(); }

  /// A dim that is whole now and is wanted split over exactly axes that are partial now.
  void scatter() {
    for (size_t d = 0; d < global_.size(); ++d) {
      const std::vector<AxisRef>& axes = want_.dims[d].axes;
      if (axes.empty() || !have_.dims[d].axes.empty()) continue;
      std::vector<ReduceKind> kinds;
      for (const AxisRef& axis : axes)
        for (const PartialAxis& partial : have_.partial)
          if (partial.axis == axis) kinds.push_back(partial.kind);
      if (kinds.size() != axes.size() || std::adjacent_find(kinds.begin(), kinds.end(), std::not_equal_to<>()) != kinds.end()) continue;
      value_ =
          value_.builder->emit_one(ReduceScatter{kinds.front(), static_cast<int64_t>(d), axes, start(d, want_.dims[d]), extent(d, want_.dims[d])}, {value_});
      std::erase_if(have_.partial, [&](const PartialAxis& partial) { return std::find(axes.begin(), axes.end(), partial.axis) != axes.end(); });
      have_.dims[d] = want_.dims[d];
    }
  }

  void reduce() {
    while (true) {
      const auto first = std::find_if(have_.partial.begin(), have_.partial.end(), [&](const PartialAxis& p) { return !stays_partial(p); });
      if (first == have_.partial.end()) return;
      AllReduce op{first->kind, {}};
      for (const PartialAxis& partial : have_.partial)
        if (partial.kind == op.kind && !stays_partial(partial)) op.axes.push_back(partial.axis);
      std::erase_if(have_.partial, [&](const PartialAxis& p) { return p.kind == op.kind && !stays_partial(p); });
      value_ = value_.builder->emit_one(std::move(op), {value_});
    }
  }

  /// The outer axes that both layouts split in the same way.
  DimSharding common(size_t d) const {
    const DimSharding &have = have_.dims[d], &want = want_.dims[d];
    if (have == want) return have;
    DimSharding result{{}, have.grain};
    if (have.grain == want.grain)
      for (size_t i = 0; i < std::min(have.axes.size(), want.axes.size()) && have.axes[i] == want.axes[i]; ++i) result.axes.push_back(have.axes[i]);
    return result.axes.empty() ? DimSharding{} : result;
  }

  /// Layouts that are written differently may cut alike.
  bool same_cut(size_t d) const {
    return have_.dims[d].axes == want_.dims[d].axes && start(d, have_.dims[d]) == start(d, want_.dims[d]) &&
           extent(d, have_.dims[d]) == extent(d, want_.dims[d]);
  }

  void gather(size_t d) {
    if (same_cut(d)) {
      have_.dims[d] = want_.dims[d];
      return;
    }
    DimSharding outer = common(d);
    const std::vector<AxisRef>& axes = have_.dims[d].axes;
    if (outer.axes.size() == axes.size()) return;
    std::vector<AxisRef> inner(axes.begin() + static_cast<std::ptrdiff_t>(outer.axes.size()), axes.end());
    value_ = value_.builder->emit_one(AllGather{static_cast<int64_t>(d), std::move(inner), extent(d, outer)}, {value_});
    have_.dims[d] = std::move(outer);
  }

  void cut(size_t d) {
    if (have_.dims[d] == want_.dims[d]) return;
    Dim first = start(d, want_.dims[d]);
    if (!have_.dims[d].axes.empty()) first = first - start(d, have_.dims[d]);
    value_ = slice(value_, static_cast<int64_t>(d), first, first + extent(d, want_.dims[d]));
    have_.dims[d] = want_.dims[d];
  }

  void make_partial() {
    std::optional<Value> at_origin;
    std::optional<ReduceKind> kind;
    for (const PartialAxis& partial : want_.partial) {
      if (std::find(have_.partial.begin(), have_.partial.end(), partial) != have_.partial.end()) continue;
      // Equal values on all coordinates are their own maximum, minimum, any and all.
      if (partial.kind != ReduceKind::Sum && partial.kind != ReduceKind::Product) continue;
      SG_CHECK(!kind || *kind == partial.kind, "a value partial in a sum and in a product");
      kind = partial.kind;
      const Value here = equal(size_value(*value_.builder, DType::I64, axis_coordinate(partial.axis, mesh_)), 0.0);
      at_origin = at_origin ? logical_and(*at_origin, here) : here;
    }
    if (at_origin && !is_zero(value_)) value_ = where(*at_origin, value_, full_like(value_, *kind == ReduceKind::Sum ? 0 : 1));
  }

  /// A zero is its own partial sum.
  static bool is_zero(Value value) {
    const Graph& graph = value.builder->graph();
    ValueId id = value.id;
    for (int steps = 0; steps < 4; ++steps) {
      const int32_t producer = graph.values[static_cast<size_t>(id.index)].node;
      if (producer < 0) return false;
      const Node& node = graph.nodes[static_cast<size_t>(producer)];
      if (const auto* constant = std::get_if<Constant>(&node.op)) return constant->value.count() == 1 && constant->value.at(0) == 0;
      if (!std::holds_alternative<Broadcast>(node.op)) return false;
      id = node.inputs.at(0);
    }
    return false;
  }

  Dim start(size_t d, const DimSharding& sharding) const { return local_start(global_[d], sharding, mesh_, symbols_); }
  Dim extent(size_t d, const DimSharding& sharding) const { return local_extent(global_[d], sharding, mesh_, symbols_); }

  Value value_;
  const Shape& global_;
  Sharding have_;
  const Sharding& want_;
  const Mesh& mesh_;
  const SymbolTable& symbols_;
};

}  // namespace

Value lower_reshard(Value local, const Shape& global, Sharding from, const Sharding& to, const Mesh& mesh, const SymbolTable& symbols) {
  return Lowering(local, global, std::move(from), to, mesh, symbols).run();
}

}  // namespace stepgraph
