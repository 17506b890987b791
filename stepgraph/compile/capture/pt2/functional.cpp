// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/functional.h"

namespace stepgraph::pt2 {

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

}  // namespace stepgraph::pt2
