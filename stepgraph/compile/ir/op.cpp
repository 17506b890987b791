// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ir/op.h"

#include <array>
#include <map>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

constexpr std::array<std::string_view, 37> unary_names = {
    "neg", "abs", "sign", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "sin",
    "cos", "tanh", "sigmoid", "erf", "floor", "ceil", "round", "relu", "not", "is_finite", "is_nan",
    "exp2", "log2", "log10", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erfc", "erfinv", "lgamma"};
constexpr std::array<std::string_view, 13> binary_names = {"add", "sub", "mul", "div", "floor_div", "remainder",
                                                           "pow", "maximum", "minimum", "and", "or", "xor", "atan2"};
constexpr std::array<std::string_view, 6> compare_names = {"eq", "ne", "lt", "le", "gt", "ge"};
constexpr std::array<std::string_view, 6> reduce_names = {"reduce_sum", "reduce_product", "reduce_max", "reduce_min", "reduce_any", "reduce_all"};
constexpr std::array<std::string_view, 2> arg_reduce_names = {"argmax", "argmin"};
constexpr std::array<std::string_view, 5> cumulative_names = {"cumulative_sum", "cumulative_product", "cumulative_logsumexp", "cumulative_max",
                                                               "cumulative_min"};
constexpr std::array<std::string_view, 3> scatter_reduce_names = {"scatter_product", "scatter_max", "scatter_min"};
constexpr std::array<std::string_view, 5> pick_names = {"largest", "smallest", "any_largest", "any_smallest", "ranked"};
constexpr std::array<std::string_view, 2> random_names = {"random_uniform", "random_normal"};
constexpr std::array<std::string_view, 3> convolution_names = {"convolution", "convolution_input_gradient", "convolution_weight_gradient"};
constexpr std::array<std::string_view, 3> pool_names = {"max_pool", "average_pool", "average_pool_gradient"};

template <size_t N, class Kind>
std::string_view kind_name(const std::array<std::string_view, N>& names, Kind kind) {
  return names[static_cast<size_t>(kind)];
}

struct NameOf {
  std::string_view operator()(const Constant&) const { return "constant"; }
  std::string_view operator()(const Iota&) const { return "iota"; }
  std::string_view operator()(const SizeValue&) const { return "size_value"; }
  std::string_view operator()(const Random& op) const { return kind_name(random_names, op.kind); }
  std::string_view operator()(const FoldIn&) const { return "fold_in"; }
  std::string_view operator()(const Unary& op) const { return kind_name(unary_names, op.kind); }
  std::string_view operator()(const Polygamma&) const { return "polygamma"; }
  std::string_view operator()(const Binary& op) const { return kind_name(binary_names, op.kind); }
  std::string_view operator()(const Compare& op) const { return kind_name(compare_names, op.kind); }
  std::string_view operator()(const Select&) const { return "select"; }
  std::string_view operator()(const Convert&) const { return "convert"; }
  std::string_view operator()(const StopGradient&) const { return "stop_gradient"; }
  std::string_view operator()(const Reduce& op) const { return kind_name(reduce_names, op.kind); }
  std::string_view operator()(const ArgReduce& op) const { return kind_name(arg_reduce_names, op.kind); }
  std::string_view operator()(const Cumulative& op) const { return kind_name(cumulative_names, op.kind); }
  std::string_view operator()(const Moments&) const { return "moments"; }
  std::string_view operator()(const Broadcast&) const { return "broadcast"; }
  std::string_view operator()(const Reshape&) const { return "reshape"; }
  std::string_view operator()(const Transpose&) const { return "transpose"; }
  std::string_view operator()(const Reverse&) const { return "reverse"; }
  std::string_view operator()(const Slice&) const { return "slice"; }
  std::string_view operator()(const Pad&) const { return "pad"; }
  std::string_view operator()(const Concatenate&) const { return "concatenate"; }
  std::string_view operator()(const IndexSelect&) const { return "index_select"; }
  std::string_view operator()(const IndexAdd&) const { return "index_add"; }
  std::string_view operator()(const Gather&) const { return "gather"; }
  std::string_view operator()(const ScatterAdd&) const { return "scatter_add"; }
  std::string_view operator()(const ScatterReduce& op) const { return kind_name(scatter_reduce_names, op.kind); }
  std::string_view operator()(const ArgSort&) const { return "argsort"; }
  std::string_view operator()(const Pick& op) const { return kind_name(pick_names, op.kind); }
  std::string_view operator()(const ScatterPosition&) const { return "scatter_position"; }
  std::string_view operator()(const MatMul&) const { return "matmul"; }
  std::string_view operator()(const Attention&) const { return "attention"; }
  std::string_view operator()(const AttentionGradient&) const { return "attention_gradient"; }
  std::string_view operator()(const Convolution& op) const { return kind_name(convolution_names, op.kind); }
  std::string_view operator()(const Pool& op) const { return kind_name(pool_names, op.kind); }
  std::string_view operator()(const Call&) const { return "call"; }
  std::string_view operator()(const Loop&) const { return "loop"; }
  std::string_view operator()(const MapTensors&) const { return "map_tensors"; }
  std::string_view operator()(const Reshard&) const { return "reshard"; }
  std::string_view operator()(const AllReduce&) const { return "all_reduce"; }
  std::string_view operator()(const AllGather&) const { return "all_gather"; }
  std::string_view operator()(const ReduceScatter&) const { return "reduce_scatter"; }
};

template <class Struct, size_t N>
void add_kinds(std::vector<Op>& ops, const std::array<std::string_view, N>&) {
  for (size_t i = 0; i < N; ++i) {
    Struct op;
    op.kind = static_cast<decltype(op.kind)>(i);
    ops.emplace_back(op);
  }
}

std::vector<Op> make_all_ops() {
  std::vector<Op> ops{Constant{}, Iota{}, SizeValue{}};
  add_kinds<Random>(ops, random_names);
  ops.emplace_back(FoldIn{});
  add_kinds<Unary>(ops, unary_names);
  ops.emplace_back(Polygamma{});
  add_kinds<Binary>(ops, binary_names);
  add_kinds<Compare>(ops, compare_names);
  for (const Op& op : {Op{Select{}}, Op{Convert{}}, Op{StopGradient{}}}) ops.push_back(op);
  add_kinds<Reduce>(ops, reduce_names);
  add_kinds<ArgReduce>(ops, arg_reduce_names);
  add_kinds<Cumulative>(ops, cumulative_names);
  for (const Op& op : {Op{Moments{}}, Op{Broadcast{}}, Op{Reshape{}}, Op{Transpose{}}, Op{Reverse{}}, Op{Slice{}}, Op{Pad{}}, Op{Concatenate{}},
                       Op{IndexSelect{}}, Op{IndexAdd{}}, Op{Gather{}}, Op{ScatterAdd{}}})
    ops.push_back(op);
  add_kinds<ScatterReduce>(ops, scatter_reduce_names);
  ops.emplace_back(ArgSort{});
  add_kinds<Pick>(ops, pick_names);
  for (const Op& op : {Op{ScatterPosition{}}, Op{MatMul{}}, Op{Attention{}}, Op{AttentionGradient{}}}) ops.push_back(op);
  add_kinds<Convolution>(ops, convolution_names);
  add_kinds<Pool>(ops, pool_names);
  for (const Op& op : {Op{Call{}}, Op{Loop{}}, Op{MapTensors{}}, Op{Reshard{}}, Op{AllReduce{}}, Op{AllGather{}}, Op{ReduceScatter{}}}) ops.push_back(op);
  return ops;
}

/// Replaces symbols in every size of an op.
class Binder : public FieldVisitor {
 public:
  explicit Binder(const SymbolValues& values) : values_(values) {}
  void field(std::string_view, bool&) override {}
  void field(std::string_view, int64_t&) override {}
  void field(std::string_view, std::vector<int64_t>&) override {}
  void field(std::string_view, std::string&) override {}
  void field(std::string_view, DType&) override {}
  void field(std::string_view, Dim& value) override { value = substitute(value, values_); }
  void field(std::string_view, Shape& value) override {
    for (Dim& dim : value) dim = substitute(dim, values_);
  }
  void field(std::string_view, Literal&) override {}
  void field(std::string_view, GraphId&) override {}
  void field(std::string_view, ReduceKind&) override {}
  void field(std::string_view, std::vector<AxisRef>&) override {}
  void field(std::string_view, Sharding&) override {}

 private:
  const SymbolValues& values_;
};

class GraphVisitor : public FieldVisitor {
 public:
  explicit GraphVisitor(std::span<const GraphId> map) : map_(map) {}
  void field(std::string_view, bool&) override {}
  void field(std::string_view, int64_t&) override {}
  void field(std::string_view, std::vector<int64_t>&) override {}
  void field(std::string_view, std::string&) override {}
  void field(std::string_view, DType&) override {}
  void field(std::string_view, Dim&) override {}
  void field(std::string_view, Shape&) override {}
  void field(std::string_view, Literal&) override {}
  void field(std::string_view, GraphId& value) override {
    found.push_back(value);
    if (!map_.empty()) value = map_[static_cast<size_t>(value.index)];
  }
  void field(std::string_view, ReduceKind&) override {}
  void field(std::string_view, std::vector<AxisRef>&) override {}
  void field(std::string_view, Sharding&) override {}
  std::vector<GraphId> found;

 private:
  std::span<const GraphId> map_;
};

}  // namespace

std::string_view name(UnaryKind kind) { return kind_name(unary_names, kind); }
std::string_view name(BinaryKind kind) { return kind_name(binary_names, kind); }
std::string_view name(CompareKind kind) { return kind_name(compare_names, kind); }
std::string_view name(const Op& op) { return std::visit(NameOf{}, op); }

const std::vector<Op>& all_ops() {
  static const std::vector<Op> ops = make_all_ops();
  return ops;
}

std::optional<Op> op_from_name(std::string_view text) {
  static const std::map<std::string_view, const Op*> by_name = [] {
    std::map<std::string_view, const Op*> map;
    for (const Op& op : all_ops()) map.emplace(name(op), &op);
    return map;
  }();
  auto found = by_name.find(text);
  if (found == by_name.end()) return std::nullopt;
  return *found->second;
}

void visit_fields(Op& op, FieldVisitor& visitor) {
  std::visit([&](auto& alternative) { alternative.fields(visitor); }, op);
}

void visit_fields(const Op& op, FieldVisitor& visitor) { visit_fields(const_cast<Op&>(op), visitor); }

Op bind(const Op& op, const SymbolValues& values) {
  Op bound = op;
  Binder binder(values);
  visit_fields(bound, binder);
  return bound;
}

Op renumber_graphs(const Op& op, std::span<const GraphId> map) {
  if (!is_control(op)) return op;
  Op renumbered = op;
  GraphVisitor visitor(map);
  visit_fields(renumbered, visitor);
  return renumbered;
}

std::vector<GraphId> called_graphs(const Op& op) {
  if (!is_control(op)) return {};
  GraphVisitor visitor({});
  visit_fields(op, visitor);
  return visitor.found;
}

DrawPlace* draw_place(Op& op) {
  return std::visit(
      [](auto& alternative) -> DrawPlace* {
        if constexpr (requires { alternative.dropout; })
          if (alternative.dropout == 0) return nullptr;
        if constexpr (requires { alternative.place; }) return &alternative.place;
        return nullptr;
      },
      op);
}

const DrawPlace* draw_place(const Op& op) { return draw_place(const_cast<Op&>(op)); }

bool is_collective(const Op& op) {
  return std::holds_alternative<AllReduce>(op) || std::holds_alternative<AllGather>(op) || std::holds_alternative<ReduceScatter>(op);
}

bool is_control(const Op& op) {
  return std::holds_alternative<Call>(op) || std::holds_alternative<Loop>(op) || std::holds_alternative<MapTensors>(op);
}

}  // namespace stepgraph
