// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/element_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "stepgraph/program/plan_text.h"

namespace stepgraph {

/// The operands of one node.
class OperandReader : public ElementSource {
 public:
  OperandReader(ElementReader& reader, const Node& node) : reader_(reader), node_(node) {}

  int element(size_t operand, std::vector<Affine> at) override {
    if (node_.inputs.size() == 1) return reader_.read(node_.inputs[operand], std::move(at));
    // Of what is computed of several, no operand is the value outside.
    const std::optional<int> outside = std::exchange(reader_.outside_, std::nullopt);
    const int expr = reader_.read(node_.inputs[operand], std::move(at));
    reader_.outside_ = outside;
    return expr;
  }

  std::optional<int> element_number(size_t operand, Affine number) override {
    const ValueId value = node_.inputs[operand];
    std::optional<FactorSplit> split;
    if (auto at = index_of_number(number, reader_.graph_.type(value).shape, reader_.form_.factors, split)) return reader_.read(value, std::move(*at));
    if (reader_.is_leaf(value)) {
      LeafElement element{value, {}, std::move(number), {}, {}, {}, 0};
      return reader_.read_leaf(std::move(element));
    }
    if (split) reader_.failure_.split = split;
    else reader_.failure_.wants_stored = value;
    return reader_.fail_any(reader_.graph_.type(value).dtype);
  }

  int element_at(size_t operand, std::vector<Affine> at, size_t dim, int index) override {
    const ValueId value = node_.inputs[operand];
    if (!reader_.is_leaf(value)) {
      reader_.failure_.wants_stored = value;
      return reader_.fail_any(reader_.graph_.type(value).dtype);
    }
    LeafElement element{value, std::move(at), {}, {}, {}, dim, index};
    return reader_.read_leaf(std::move(element));
  }

  int element_within(size_t operand, std::vector<Affine> at, const std::vector<bool>& guarded, int outside) override {
    const ValueId value = node_.inputs[operand];
    const Shape& shape = reader_.graph_.type(value).shape;
    const std::vector<Guard> before = reader_.guards_;
    const std::optional<int> outside_before = reader_.outside_;
    for (size_t d = 0; d < shape.size(); ++d)
      if (guarded[d]) reader_.guards_.push_back({at[d], shape[d]});
    const std::vector<Guard> guards = reader_.guards_;
    reader_.outside_ = outside;
    reader_.leaf_took_outside_ = false;
    const int inside = reader_.read(value, std::move(at));
    const bool done = reader_.leaf_took_outside_;
    reader_.guards_ = before;
    reader_.outside_ = outside_before;
    reader_.leaf_took_outside_ = false;
    return done ? inside : reader_.form_.select(holds(guards), inside, outside);
  }

 private:
  int holds(const std::vector<Guard>& guards) {
    FormBuilder& form = reader_.form_;
    int all = -1;
    for (const Guard& guard : guards) {
      const int index = form.index(guard.index);
      const int low = form.compare(CompareKind::GreaterEqual, index, form.integer(DType::I64, 0));
      const int high = form.compare(CompareKind::Less, index, form.index(affine_constant(guard.size)));
      const int both = form.binary(BinaryKind::And, low, high);
      all = all < 0 ? both : form.binary(BinaryKind::And, all, both);
    }
    return all < 0 ? form.integer(DType::Bool, 1) : all;
  }

  ElementReader& reader_;
  const Node& node_;
};

bool ElementReader::is_leaf(ValueId value) const {
  const int32_t producer = graph_.values[at(value)].node;
  if (producer < 0) return true;
  return op_info(graph_.nodes[static_cast<size_t>(producer)].op).element_kind != ElementKind::View || is_stored_(value);
}

int ElementReader::fail_any(DType dtype) {
  if (!failure_.any()) failure_.impossible = true;
  return form_.add(ConstantExpr{0}, {}, dtype);
}

int ElementReader::read_leaf(LeafElement element) {
  element.guards = guards_;
  // The leaf is what is wanted itself, not an operand of something that is computed of it: it brings the value outside.
  if (outside_) {
    element.outside = outside_;
    leaf_took_outside_ = true;
  }
  return leaf_(element);
}

int ElementReader::read(ValueId value, std::vector<Affine> at) {
  if (is_leaf(value)) {
    LeafElement element{value, std::move(at), {}, {}, {}, {}, 0};
    return read_leaf(std::move(element));
  }
  const ValueInfo& info = graph_.values[stepgraph::at(value)];
  const Node& node = graph_.nodes[static_cast<size_t>(info.node)];
  const auto result = static_cast<size_t>(std::find(node.results.begin(), node.results.end(), value) - node.results.begin());
  return compute(node, result, at, {});
}

int ElementReader::compute(const Node& node, size_t result, std::span<const Affine> at, std::span<const Affine> reduced) {
  std::vector<TensorType> inputs, results;
  for (const ValueId input : node.inputs) inputs.push_back(graph_.type(input));
  for (const ValueId value : node.results) results.push_back(graph_.type(value));
  OperandReader operands(*this, node);
  const ElementRequest request{form_, node.op, inputs, results, result, at, reduced, operands};
  const OpInfo& info = op_info(node.op);
  if (info.element == nullptr) return fail_any(results[result].dtype);
  if (const auto expr = info.element(request)) return *expr;
  return fail_any(results[result].dtype);
}

std::optional<StridedLeaf> strided_leaf(const Graph& graph, ValueId value, const std::function<bool(ValueId)>& is_stored, const LeafStrides& strides_of) {
  const Shape& shape = graph.type(value).shape;
  FormBuilder form;
  std::vector<Affine> index;
  std::vector<std::vector<int>> parts;  // of each dim, outer to inner
  for (const Dim& size : shape) {
    parts.emplace_back();
    if (size == Dim(1)) {
      index.emplace_back();
    } else {
      parts.back().push_back(form.add_factor(size));
      index.push_back(affine(parts.back()[0]));
    }
  }
  std::optional<LeafElement> found;
  int leaf_expr = -1;
  for (int tries = 0; tries < 8; ++tries) {
    found.reset();
    ElementReader reader(graph, form, is_stored, [&](const LeafElement& element) {
      found = element;
      return leaf_expr = form.add(LoadExpr{}, {}, graph.type(element.value).dtype);
    });
    const int expr = reader.read(value, index);
    if (!reader.failure().any()) {
      if (!found || expr != leaf_expr || !found->guards.empty() || found->computed_dim) return std::nullopt;
      break;
    }
    if (!reader.failure().split) return std::nullopt;
    const FactorSplit split = *reader.failure().split;
    Factor& outer = form.factors[static_cast<size_t>(split.factor)];
    const auto count = exact_quotient(outer.size, split.inner);
    if (!count) return std::nullopt;
    outer.size = *count;
    const int inner = form.add_factor(split.inner);
    for (size_t d = 0; d < parts.size(); ++d) {
      const auto place = std::find(parts[d].begin(), parts[d].end(), split.factor);
      if (place == parts[d].end()) continue;
      parts[d].insert(place + 1, inner);
      Dim scale = 1;
      index[d] = {};
      for (size_t i = parts[d].size(); i-- > 0;) {
        index[d] = affine(parts[d][i]) * scale + index[d];
        scale = scale * form.factors[static_cast<size_t>(parts[d][i])].size;
      }
    }
    found.reset();
  }
  if (!found) return std::nullopt;
  const std::vector<Dim> leaf_strides = strides_of(found->value);
  if (found->number && leaf_strides != dense_strides(graph.type(found->value).shape)) return std::nullopt;
  const Affine address = found->number ? *found->number : address_of_index(found->at, leaf_strides);
  StridedLeaf window{found->value, address.constant, {}};
  if (std::find(shape.begin(), shape.end(), Dim(0)) != shape.end()) window.offset = 0;  // nothing is there, wherever that be
  for (size_t d = 0; d < shape.size(); ++d) {
    if (parts[d].empty()) {
      window.strides.push_back(1);
      continue;
    }
    // Parts of a dim must be walked as one.
    const Dim stride = coefficient_of(address, parts[d].back());
    Dim expected = stride;
    for (size_t i = parts[d].size(); i-- > 0;) {
      if (coefficient_of(address, parts[d][i]) != expected) return std::nullopt;
      expected = expected * form.factors[static_cast<size_t>(parts[d][i])].size;
    }
    window.strides.push_back(stride);
  }
  return window;
}

bool is_dense(const StridedLeaf& window, const Shape& shape) {
  if (std::find(shape.begin(), shape.end(), Dim(0)) != shape.end()) return true;
  const std::vector<Dim> dense = dense_strides(shape);
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != Dim(1) && window.strides[d] != dense[d]) return false;
  return true;
}

}  // namespace stepgraph
