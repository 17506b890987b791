// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/functions/linear_algebra.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/core.h>

#include "stepgraph/compile/ops/functions/elementwise.h"
#include "stepgraph/compile/ops/functions/indexing.h"
#include "stepgraph/compile/ops/functions/place.h"
#include "stepgraph/compile/ops/functions/shape.h"
#include "stepgraph/compile/ops/functions/statistics.h"
#include "stepgraph/compile/ops/rows/checks.h"

namespace stepgraph {
namespace {

/// torch.matmul as one MatMul: batch dims that both have become batch; a batch dim of one side only becomes free, so that nothing is stretched in
/// memory; one Transpose puts the dims in order where that needs one.
struct MatMulForm {
  MatMul op;
  Dims lhs_ones, rhs_ones;  // size-1 dims against a real one: dropped before
  Dims order;               // result dims in wanted order
};

struct BatchDim {
  std::optional<int64_t> lhs, rhs;  // dims of the operands; absent: missing or 1 against a real one
  Dim size;
};

std::vector<BatchDim> batch_dims(const Value& a, const Value& b, Dims& lhs_ones, Dims& rhs_ones) {
  const int64_t lhs_count = std::max<int64_t>(a.rank() - 2, 0), rhs_count = std::max<int64_t>(b.rank() - 2, 0);
  const int64_t count = std::max(lhs_count, rhs_count);
  TensorType lhs_type{a.dtype(), Shape(a.shape().begin(), a.shape().begin() + lhs_count), {}};
  TensorType rhs_type{b.dtype(), Shape(b.shape().begin(), b.shape().begin() + rhs_count), {}};
  const Shape joined = broadcast_shape("matmul batch dims", *a.builder, lhs_type, rhs_type);
  std::vector<BatchDim> result;
  for (int64_t i = 0; i < count; ++i) {
    BatchDim dim{{}, {}, joined[static_cast<size_t>(i)]};
    if (i >= count - lhs_count) dim.lhs = i - (count - lhs_count);
    if (i >= count - rhs_count) dim.rhs = i - (count - rhs_count);
    if (dim.lhs && dim.rhs) {
      const bool lhs_one = a.dim(*dim.lhs) == Dim(1), rhs_one = b.dim(*dim.rhs) == Dim(1);
      if (lhs_one && !rhs_one) lhs_ones.push_back(*dim.lhs), dim.lhs.reset();
      if (rhs_one && !lhs_one) rhs_ones.push_back(*dim.rhs), dim.rhs.reset();
    }
    result.push_back(dim);
  }
  return result;
}

int64_t without(int64_t dim, const Dims& dropped) {
  return dim - std::count_if(dropped.begin(), dropped.end(), [&](int64_t other) { return other < dim; });
}

MatMulForm matmul_form(const Value& a, const Value& b) {
  MatMulForm form;
  const std::vector<BatchDim> batch = batch_dims(a, b, form.lhs_ones, form.rhs_ones);
  form.op.lhs_contract = {without(a.rank() - 1, form.lhs_ones)};
  form.op.rhs_contract = {without(b.rank() == 1 ? 0 : b.rank() - 2, form.rhs_ones)};
  // MatMul gives: shared batch dims, free dims of a, free dims of b. `position` is where each wanted dim lies in that.
  int64_t shared = 0, lhs_free = 0, rhs_free = 0;
  for (const BatchDim& dim : batch) {
    if (dim.lhs && dim.rhs) {
      form.op.lhs_batch.push_back(without(*dim.lhs, form.lhs_ones)), form.op.rhs_batch.push_back(without(*dim.rhs, form.rhs_ones));
      ++shared;
    } else {
      dim.lhs ? ++lhs_free : ++rhs_free;
    }
  }
  const int64_t rows = a.rank() > 1 ? 1 : 0;
  int64_t next_shared = 0, next_lhs = shared, next_rhs = shared + lhs_free + rows;
  for (const BatchDim& dim : batch) {
    int64_t& next = dim.lhs && dim.rhs ? next_shared : dim.lhs ? next_lhs : next_rhs;
    form.order.push_back(next++);
  }
  if (rows == 1) form.order.push_back(next_lhs);
  if (b.rank() > 1) form.order.push_back(next_rhs);
  return form;
}

/// The dtype of an unrounded product of 16-bit operands; others are not rounded in between.
std::optional<DType> unrounded(DType dtype) { return dtype == DType::BF16 || dtype == DType::F16 ? std::optional<DType>(DType::F32) : std::nullopt; }

Value any_matmul(At a, At b, bool rounds) {
  const PlaceScope place(a);
  check_same_graph("matmul", a.value, b.value);
  autocast("matmul", {&a.value, &b.value});
  Operands operands = same_dtype("matmul", a.value, b.value);
  Builder& builder = *a.value.builder;
  for (const Value& operand : {operands.a, operands.b}) {
    if (operand.rank() == 0) fail(builder, fmt::format("matmul: found a scalar, {}, wanted at least one dim", text(operand.type())));
  }
  const Dim& lhs_inner = operands.a.dim(-1);
  const Dim& rhs_inner = operands.b.dim(operands.b.rank() == 1 ? 0 : -2);
  if (builder.module().symbols.equal(lhs_inner, rhs_inner) != Truth::True) {
    fail(builder, fmt::format("matmul: inner dims differ, {} and {}{}", lhs_inner.text(), rhs_inner.text(),
                              ranges_of(builder.module(), {lhs_inner}, {rhs_inner})));
  }
  MatMulForm form = matmul_form(operands.a, operands.b);
  if (!rounds) form.op.result_dtype = unrounded(operands.a.dtype());
  if (!form.lhs_ones.empty()) operands.a = squeeze(operands.a, form.lhs_ones);
  if (!form.rhs_ones.empty()) operands.b = squeeze(operands.b, form.rhs_ones);
  return permute(builder.emit_one(std::move(form.op), {operands.a, operands.b}), form.order);
}

}  // namespace

Value matmul(At a, At b) { return any_matmul(a, b, true); }
Value unrounded_matmul(At a, At b) { return any_matmul(a, b, false); }

Value dot_general(At a, At b, MatMul spec) {
  const PlaceScope place(a);
  check_same_graph("matmul", a.value, b.value);
  return a.value.builder->emit_one(std::move(spec), {a.value, b.value});
}

Value unrounded_dot_general(At a, At b, MatMul spec) {
  const PlaceScope place(a);
  if (a->dtype() == b->dtype()) spec.result_dtype = unrounded(a->dtype());
  return dot_general(a.value, b.value, std::move(spec));
}

Value multiply_dim(const Value& x, int64_t dim, const Literal& matrix) {
  Dims to_last, back;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != dim) to_last.push_back(d);
  to_last.push_back(dim);
  back.resize(to_last.size());
  for (size_t d = 0; d < to_last.size(); ++d) back[static_cast<size_t>(to_last[d])] = static_cast<int64_t>(d);
  const Value weights = constant(*x.builder, matrix.converted(x.dtype()));
  MatMul product;
  product.lhs_contract = {x.rank() - 1};
  product.rhs_contract = {1};
  return permute(dot_general(permute(x, to_last), weights, product), back);
}

// ---- einsum

namespace {

struct Labelled {
  Value value;
  std::string letters;  ///< one for each dim, none twice
};

/// Sums out the letters that `keep` does not have.
Labelled summed(Labelled operand, const std::set<char>& keep) {
  Dims dims;
  std::string left;
  for (size_t d = 0; d < operand.letters.size(); ++d) {
    if (keep.count(operand.letters[d]))
      left += operand.letters[d];
    else
      dims.push_back(static_cast<int64_t>(d));
  }
  if (!dims.empty()) operand.value = sum(operand.value, dims);
  return {operand.value, left};
}

/// Dims with one letter twice become their diagonal.
Labelled diagonal(Labelled operand) {
  for (size_t a = 0; a < operand.letters.size(); ++a) {
    const size_t b = operand.letters.find(operand.letters[a], a + 1);
    if (b == std::string::npos) continue;
    const Shape shape = operand.value.shape();
    Builder& builder = *operand.value.builder;
    const Value same = equal(iota(builder, DType::I64, shape, static_cast<int64_t>(a)), iota(builder, DType::I64, shape, static_cast<int64_t>(b)));
    operand.value = sum(where(same, operand.value, zeros_like(operand.value)), {static_cast<int64_t>(b)});
    operand.letters.erase(b, 1);
    return diagonal(operand);
  }
  return operand;
}

Labelled contract(Labelled a, Labelled b, const std::set<char>& needed) {
  auto in = [](const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; };
  std::set<char> keep_a = needed, keep_b = needed;
  for (char letter : b.letters) keep_a.insert(letter);
  for (char letter : a.letters) keep_b.insert(letter);
  a = summed(a, keep_a);
  b = summed(b, keep_b);
  // A size of 1 against another broadcasts: it is dropped.
  for (Labelled* operand : {&a, &b}) {
    const Labelled& other = operand == &a ? b : a;
    for (size_t d = operand->letters.size(); d-- > 0;) {
      const size_t e = other.letters.find(operand->letters[d]);
      if (e == std::string::npos || !(operand->value.shape()[d] == Dim(1)) || other.value.shape()[e] == Dim(1)) continue;
      operand->value = squeeze(operand->value, {static_cast<int64_t>(d)});
      operand->letters.erase(d, 1);
    }
  }
  MatMul product;
  std::string batch, free_a, free_b;
  for (size_t d = 0; d < a.letters.size(); ++d) {
    const char letter = a.letters[d];
    const size_t e = b.letters.find(letter);
    if (e == std::string::npos) {
      free_a += letter;
    } else if (needed.count(letter)) {
      batch += letter;
      product.lhs_batch.push_back(static_cast<int64_t>(d));
      product.rhs_batch.push_back(static_cast<int64_t>(e));
    } else {
      product.lhs_contract.push_back(static_cast<int64_t>(d));
      product.rhs_contract.push_back(static_cast<int64_t>(e));
    }
  }
  for (char letter : b.letters)
    if (!in(a.letters, letter)) free_b += letter;
  return {dot_general(a.value, b.value, product), batch + free_a + free_b};
}

struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

/// Ellipses become letters of their own: '\1' the last of them, '\2' the one before.
Equation parse_equation(const std::string& equation, std::span<const Value> operands) {
  const Builder& builder = *operands[0].builder;
  std::string plain;
  for (char c : equation)
    if (c != ' ') plain += c;
  const size_t arrow = plain.find("->");
  const std::string left = plain.substr(0, arrow);
  Equation parsed;
  size_t ellipsis = 0, start = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const size_t end = left.find(',', start);
    if ((end == std::string::npos) != (i + 1 == operands.size())) fail(builder, "einsum: '" + equation + "' does not have " + std::to_string(operands.size()) + " operands");
    std::string letters = left.substr(start, end - start);
    start = end + 1;
    const size_t dots = letters.find("...");
    const size_t given = letters.size() - (dots == std::string::npos ? 0 : 3), rank = operands[i].shape().size();
    if (given > rank || (dots == std::string::npos && given != rank)) fail(builder, "einsum: '" + letters + "' for " + text(operands[i].type()));
    if (dots != std::string::npos) {
      std::string expanded;
      for (size_t d = rank - given; d > 0; --d) expanded += static_cast<char>(d);
      letters.replace(dots, 3, expanded);
      ellipsis = std::max(ellipsis, rank - given);
    }
    parsed.inputs.push_back(letters);
  }
  std::string all_dots;
  for (size_t d = ellipsis; d > 0; --d) all_dots += static_cast<char>(d);
  if (arrow != std::string::npos) {
    parsed.output = plain.substr(arrow + 2);
    if (const size_t dots = parsed.output.find("..."); dots != std::string::npos) parsed.output.replace(dots, 3, all_dots);
  } else {  // letters that appear once, in alphabetical order
    std::map<char, int> uses;
    for (const std::string& letters : parsed.inputs)
      for (char letter : letters) ++uses[letter];
    parsed.output = all_dots;
    for (const auto& [letter, count] : uses)
      if (letter >= 'A' && count == 1) parsed.output += letter;
  }
  return parsed;
}

}  // namespace

Value einsum(const std::string& equation, std::span<const Value> given) {
  if (given.empty()) throw UserError("einsum: found no operands");
  const Equation parsed = parse_equation(equation, given);
  // Cast here as the products inside would be; sums of it are not sums of the user's.
  std::vector<Value> operands(given.begin(), given.end());
  if (operands.size() > 1)
    for (Value& operand : operands) operand = autocast("einsum", operand);
  const AutocastScope off(*operands[0].builder, {});
  Labelled result = diagonal({operands[0], parsed.inputs[0]});
  const std::set<char> wanted(parsed.output.begin(), parsed.output.end());
  for (size_t i = 1; i < operands.size(); ++i) {
    std::set<char> needed = wanted;
    for (size_t later = i + 1; later < operands.size(); ++later) needed.insert(parsed.inputs[later].begin(), parsed.inputs[later].end());
    result = contract(result, diagonal({operands[i], parsed.inputs[i]}), needed);
  }
  result = summed(result, wanted);
  Dims permutation;
  for (char letter : parsed.output) {
    const size_t found = result.letters.find(letter);
    if (found == std::string::npos) fail(*operands[0].builder, "einsum: '" + equation + "' has a result letter that no operand has");
    permutation.push_back(static_cast<int64_t>(found));
  }
  return permutation.empty() ? result.value : permute(result.value, permutation);
}

}  // namespace stepgraph
