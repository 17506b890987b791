// SPDX-License-Identifier: Apache-2.0
// Eager PyTorch's tensors, made functional: a tensor is a storage that holds a value, and a chain of views that leads from it. A write through any view
// becomes a new value of the storage, which every other view of it then sees; no write is dropped.
#pragma once
#include <functional>
#include <memory>
#include <vector>
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {

/// One step from a value to a view of it, and back: `write(base, view)` is base with the viewed elements replaced.
struct View {
  std::function<Value(const Value& base)> read;
  std::function<Value(const Value& base, const Value& view)> write;
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Value value);
  bool defined() const { return storage_ != nullptr; }
  /// The value as it is now.
  Value value() const;
  /// A view of this tensor: it shares the storage.
  Tensor view(View step) const;
  /// Replaces all elements; `value` has this tensor's type.
  void write(const Value& value);
  bool shares_storage(const Tensor& other) const { return storage_ == other.storage_; }
  /// What the storage holds, without views.
  Value base() const { return storage_->value; }

 private:
  struct Storage {
    Value value;
    int64_t version = 0;
  };
  Value write_through(size_t depth, const Value& base, const Value& value) const;
  std::shared_ptr<Storage> storage_;
  std::vector<View> views_;
  mutable std::optional<Value> cached_;
  mutable int64_t cached_version_ = -1;
};

/// `value` in place of `before` where no gradient is recorded: what was computed before keeps the gradient that it had, as PyTorch's history does.
Value written_without_gradient(const Value& before, const Value& value);
/// A view of the same elements through which no gradient passes.
Tensor detached(const Tensor& tensor);

}  // namespace stepgraph::pt2
