// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/op_hash.h"

#include <algorithm>
#include <bit>

namespace stepgraph {
namespace {

class HashVisitor : public EachField<HashVisitor> {
 public:
  void field(std::string_view, bool& value) { number(value ? 1 : 0); }
  void field(std::string_view, int64_t& value) { number(value); }
  void field(std::string_view, std::vector<int64_t>& value) {
    for (int64_t item : value) number(item);
  }
  void field(std::string_view, std::string& value) { text(value); }
  void field(std::string_view, double& value) { number(std::bit_cast<int64_t>(value)); }
  void field(std::string_view, DType& value) { number(static_cast<int64_t>(value)); }
  void field(std::string_view, std::optional<DType>& value) { number(value ? static_cast<int64_t>(*value) : -1); }
  void field(std::string_view, Dim& value) { dim(value); }
  void field(std::string_view, Shape& value) {
    for (const Dim& item : value) dim(item);
  }
  void field(std::string_view, Literal& value) {
    number(static_cast<int64_t>(value.dtype()));
    for (int64_t size : value.sizes()) number(size);
    for (size_t i = 0; i < std::min<size_t>(value.byte_count(), 64); ++i) {
      number(static_cast<int64_t>(value.data()[i]));
      number(static_cast<int64_t>(value.data()[value.byte_count() - 1 - i]));
    }
  }
  void field(std::string_view, GraphId& value) { number(value.index); }
  void field(std::string_view, ReduceKind& value) { number(static_cast<int64_t>(value)); }
  void field(std::string_view, std::vector<AxisRef>& value) {
    for (const AxisRef& axis : value) text(axis.axis);
  }
  void field(std::string_view, Sharding& value) { number(static_cast<int64_t>(stepgraph::hash(value))); }

  void number(int64_t value) { hash = mix_hash(hash, static_cast<uint64_t>(value)); }
  void text(std::string_view value) {
    for (char c : value) number(static_cast<unsigned char>(c));
  }
  void dim(const Dim& value) { number(static_cast<int64_t>(value.hash())); }
  uint64_t hash = 0;
};

}  // namespace

uint64_t op_hash(const Op& op) {
  HashVisitor visitor;
  visitor.text(name(op));
  visit_fields(op, visitor);
  return visitor.hash;
}

uint64_t type_hash(const TensorType& type) {
  HashVisitor visitor;
  visitor.number(static_cast<int64_t>(type.dtype));
  for (const Dim& size : type.shape) visitor.dim(size);
  return visitor.hash;
}

}  // namespace stepgraph
