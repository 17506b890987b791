// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/lower_reshard.h"

#include <algorithm>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/known_values.h"
#include "stepgraph/compile/passes/factor_splits.h"

namespace stepgraph {
namespace {

class Lowering {
 public:
  Lowering(Value local, const TensorType& global, const Sharding& to, LocalSizes& sizes)
      : value_(local), dtype_(global.dtype), global_(global.shape), have_(*global.sharding), want_(to), sizes_(sizes) {}

  Value run() {
    scatter();
    reduce();
    if (value_.dtype() != dtype_of(have_)) value_ = convert(value_, dtype_of(have_));
    for (size_t d = 0; d < global_.size(); ++d) gather(d);
    for (size_t d = 0; d < global_.size(); ++d) cut(d);
    make_partial();
    return value_;
  }

 private:
  DType dtype_of(const Sharding& sharding) const { return local_dtype({dtype_, global_, sharding}); }
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


  void gather(size_t d) {
    if (sizes_.same_cut(global_[d], have_.dims[d], want_.dims[d])) {
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
    if (value_.dtype() != dtype_of(want_)) value_ = convert(value_, dtype_of(want_));
    std::optional<Value> at_origin;
    std::optional<ReduceKind> kind;
    for (const PartialAxis& partial : want_.partial) {
      if (std::find(have_.partial.begin(), have_.partial.end(), partial) != have_.partial.end()) continue;
      // Equal values on all coordinates are their own maximum, minimum, any and all.
      if (partial.kind != ReduceKind::Sum && partial.kind != ReduceKind::Product) continue;
      SG_CHECK(!kind || *kind == partial.kind, "a value partial in a sum and in a product");
      kind = partial.kind;
      const Value here = equal(size_value(*value_.builder, DType::I64, axis_coordinate(partial.axis, sizes_.mesh())), 0.0);
      at_origin = at_origin ? logical_and(*at_origin, here) : here;
    }
    if (at_origin && !is_zero(value_.builder->graph(), value_.id)) value_ = where(*at_origin, value_, full_like(value_, *kind == ReduceKind::Sum ? 0 : 1));
  }

  Dim start(size_t d, const DimSharding& sharding) { return sizes_.start(global_[d], sharding); }
  Dim extent(size_t d, const DimSharding& sharding) { return sizes_.extent(global_[d], sharding); }

  Value value_;
  DType dtype_;
  const Shape& global_;
  Sharding have_;
  const Sharding& want_;
  LocalSizes& sizes_;
};

}  // namespace

DType local_dtype(const TensorType& type) {
  const bool is_summand = type.sharding && std::any_of(type.sharding->partial.begin(), type.sharding->partial.end(), [](const PartialAxis& partial) {
                            return partial.kind == ReduceKind::Sum || partial.kind == ReduceKind::Product;
                          });
  return is_half(type.dtype) && is_summand ? DType::F32 : type.dtype;
}

Value lower_reshard(Value local, const TensorType& global, const Sharding& to, LocalSizes& sizes) {
  SG_CHECK(global.sharding.has_value(), "reshard: a value without a sharding");
  return Lowering(local, global, to, sizes).run();
}

}  // namespace stepgraph
