// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/functional.h"

#include <set>

namespace stepgraph::pt2 {
namespace {

bool depends_on_parameter(const Graph& graph, ValueId value) {
  std::set<ValueId> parameters, seen;
  for (const GraphInput& input : graph.inputs)
    if (input.role.kind == RoleKind::Parameter) parameters.insert(input.value);
  std::vector<ValueId> open{value};
  while (!open.empty()) {
    const ValueId next = open.back();
    open.pop_back();
    if (!seen.insert(next).second) continue;
    if (parameters.count(next)) return true;
    const int32_t producer = graph.values[static_cast<size_t>(next.index)].node;
    if (producer < 0) continue;
    const Node& node = graph.nodes[static_cast<size_t>(producer)];
    if (std::holds_alternative<StopGradient>(node.op)) continue;
    open.insert(open.end(), node.inputs.begin(), node.inputs.end());
  }
  return false;
}

}  // namespace

Tensor::Tensor(Value value) : storage_(std::make_shared<Storage>()) { storage_->value = value; }

Value Tensor::value() const {
  SG_CHECK(storage_ != nullptr, "value of an undefined tensor");
  if (views_.empty()) return storage_->value;
  if (!cached_ || cached_version_ != storage_->version) {
    Value value = storage_->value;
    for (const View& view : views_) value = view.read(value);
    cached_ = value;
    cached_version_ = storage_->version;
  }
  return *cached_;
}

Tensor Tensor::view(View step) const {
  Tensor made;
  made.storage_ = storage_;
  made.views_ = views_;
  made.views_.push_back(std::move(step));
  return made;
}

Value Tensor::write_through(size_t depth, const Value& base, const Value& value) const {
  if (depth == views_.size()) return value;
  const Value inner = views_[depth].read(base);
  return views_[depth].write(base, write_through(depth + 1, inner, value));
}

void Tensor::write(const Value& value) {
  storage_->value = write_through(0, storage_->value, value);
  ++storage_->version;
}

Value written_without_gradient(const Value& before, const Value& value) {
  const Value stopped = stop_gradient(value);
  if (!is_floating(before.dtype()) || !depends_on_parameter(before.builder->graph(), before.id)) return stopped;
  // Zero with the gradient of `before`; of an infinite element the difference would be no number.
  return where(is_finite(before), stopped + (before - stop_gradient(before)), stopped);
}

Tensor detached(const Tensor& tensor) {
  if (!tensor.defined() || !is_floating(tensor.value().dtype())) return tensor;
  return tensor.view({[](const Value& x) { return stop_gradient(x); }, written_without_gradient});
}

}  // namespace stepgraph::pt2
