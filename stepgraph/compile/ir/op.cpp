// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ir/op.h"

#include <algorithm>
#include <map>
#include <utility>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

/// One for each kind, where the kinds have names of their own.
template <class Struct>
void add_ops(std::vector<Op>& ops) {
  for (size_t i = 0; i < Struct::names.size(); ++i) {
    Struct op;
    if constexpr (Struct::names.size() > 1) op.kind = static_cast<decltype(op.kind)>(i);
    ops.emplace_back(std::move(op));
  }
}

template <size_t... I>
std::vector<Op> make_all_ops(std::index_sequence<I...>) {
  std::vector<Op> ops;
  (add_ops<std::variant_alternative_t<I, Op>>(ops), ...);
  return ops;
}

template <class Struct>
std::string_view name_of(const Struct& op) {
  if constexpr (Struct::names.size() > 1) return Struct::names[static_cast<size_t>(op.kind)];
  else return Struct::names[0];
}

class DimFinder final : public FieldVisitor {
 public:
  explicit DimFinder(const std::function<void(Dim&)>& function) : function_(function) {}
  void visit(std::string_view, FieldRef field) override {
    if (Dim* const* dim = std::get_if<Dim*>(&field)) function_(**dim);
    if (Shape* const* shape = std::get_if<Shape*>(&field)) std::for_each((*shape)->begin(), (*shape)->end(), function_);
  }

 private:
  const std::function<void(Dim&)>& function_;
};

}  // namespace

std::string_view name(const Op& op) { return std::visit([](const auto& alternative) { return name_of(alternative); }, op); }

const std::vector<Op>& all_ops() {
  static const std::vector<Op> ops = make_all_ops(std::make_index_sequence<std::variant_size_v<Op>>{});
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

template <class T>
void FieldVisitor::field(std::string_view name, T& value) {
  if constexpr (std::is_enum_v<T> && !std::is_same_v<T, DType>) visit(name, EnumRef{enum_names(value), reinterpret_cast<uint8_t*>(&value)});
  else visit(name, &value);
}

void visit_fields(Op& op, FieldVisitor& visitor) {
  std::visit([&](auto& alternative) { alternative.fields(visitor); }, op);
}

void visit_fields(const Op& op, FieldVisitor& visitor) { visit_fields(const_cast<Op&>(op), visitor); }

void for_each_dim(Op& op, const std::function<void(Dim&)>& function) {
  DimFinder finder(function);
  visit_fields(op, finder);
}
void for_each_dim(const Op& op, const std::function<void(const Dim&)>& function) {
  for_each_dim(const_cast<Op&>(op), [&](Dim& dim) { function(dim); });
}

Op bind(const Op& op, const SymbolValues& values) {
  Op bound = op;
  for_each_dim(bound, [&](Dim& dim) { dim = substitute(dim, values); });
  return bound;
}

Op renumber_graphs(const Op& op, std::span<const GraphId> map) {
  if (!is_control(op)) return op;
  Op renumbered = op;
  for_each_field<GraphId>(renumbered, [&](GraphId& graph) { graph = map[static_cast<size_t>(graph.index)]; });
  return renumbered;
}

std::vector<GraphId> called_graphs(const Op& op) {
  if (!is_control(op)) return {};
  std::vector<GraphId> found;
  for_each_field<GraphId>(op, [&](GraphId graph) { found.push_back(graph); });
  return found;
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
