// SPDX-License-Identifier: Apache-2.0
// Diagonals, products of tensors, elements taken by index.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

/// Elements with row - column = -offset, of the dims dim1 and dim2, as the last dim.
View diagonal_view(OperatorCall& call, const Value& x, int64_t dim1, int64_t dim2, int64_t offset) {
  const int64_t first = call.wrap(dim1, x.rank()), second = call.wrap(dim2, x.rank());
  if (first == second) call.fail("dim1 and dim2 are the same dim");
  std::vector<int64_t> order;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != first && d != second) order.push_back(d);
  order.push_back(first);
  order.push_back(second);
  const Dim rows = x.shape()[static_cast<size_t>(first)], columns = x.shape()[static_cast<size_t>(second)];
  const int64_t top = std::max<int64_t>(0, -offset), left = std::max<int64_t>(0, offset);
  const Dim count = call.builder().module().symbols.simplify(max(Dim(0), min(rows - top, columns - left)));
  Shape ordered, flat;
  for (int64_t d : order) ordered.push_back(x.dim(d));
  flat.assign(ordered.begin(), ordered.end() - 2);
  flat.push_back(rows * columns);
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  const int64_t last = static_cast<int64_t>(flat.size()) - 1;
  const auto places = [=](Builder& builder) {
    return (iota(builder, DType::I64, {count}, 0) + static_cast<double>(top)) * size_value(builder, DType::I64, columns + 1) + static_cast<double>(left - top);
  };
  View view;
  view.read = [=](const Value& base) { return index_select(reshape(permute(base, order), flat), last, places(*base.builder)); };
  view.write = [=](const Value& base, const Value& v) {
    const Value written = scatter(reshape(permute(base, order), flat), last, broadcast_pair(places(*base.builder), v.shape()), v);
    return permute(reshape(written, ordered), back);
  };
  return view;
}
View diagonal_view(OperatorCall& call) { return diagonal_view(call, call.tensor("self"), call.integer("dim1", 0), call.integer("dim2", 1), call.integer("offset", 0)); }
void diagonal_row(OperatorCall& call) { call.alias(call.handle("self").view(diagonal_view(call))); }
void linalg_diagonal_row(OperatorCall& call) {
  call.alias(call.handle("A").view(diagonal_view(call, call.tensor("A"), call.integer("dim1", -2), call.integer("dim2", -1), call.integer("offset", 0))));
}
void diagonal_scatter_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(diagonal_view(call).write(x, convert(call.tensor("src"), x.dtype())));
}
void trace_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const Dim rows = x.shape()[0], columns = x.shape()[1];
  const Value row = iota(call.builder(), DType::I64, {rows, columns}, 0), column = iota(call.builder(), DType::I64, {rows, columns}, 1);
  call.result(sum(where(equal(row, column), x, zeros_like(x))));
}
/// Zeros but for the last dim of x on a diagonal of the dims dim1 and dim2.
Value diagonal_matrix(OperatorCall& call, const Value& x, int64_t offset, int64_t dim1, int64_t dim2) {
  const int64_t rank = x.rank() + 1;
  Shape low(static_cast<size_t>(x.rank()), Dim(0)), high = low;
  (offset < 0 ? low : high).back() = std::abs(offset);
  const Value rows = pad(x, low, high);  // the element of each row
  Shape square = rows.shape();
  square.push_back(square.back());
  const Value row = iota(call.builder(), DType::I64, square, rank - 2), column = iota(call.builder(), DType::I64, square, rank - 1);
  const Value spread = broadcast_to(unsqueeze(rows, rank - 1), square);
  const Value matrix = where(equal(row + static_cast<double>(offset), column), spread, zeros_like(spread));
  const int64_t first = call.wrap(dim1, rank), second = call.wrap(dim2, rank);
  if (first == second) call.fail("dim1 and dim2 are the same dim");
  std::vector<int64_t> order;
  for (int64_t d = 0, next = 0; d < rank; ++d) order.push_back(d == first ? rank - 2 : d == second ? rank - 1 : next++);
  return permute(matrix, order);
}
void diag_embed_row(OperatorCall& call) {
  call.result(diagonal_matrix(call, call.tensor("self"), call.integer("offset", 0), call.integer("dim1", -2), call.integer("dim2", -1)));
}
void diag_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t offset = call.integer("diagonal", 0);
  if (x.rank() == 1) return call.result(diagonal_matrix(call, x, offset, -2, -1));
  call.result(diagonal_view(call, x, 0, 1, offset).read(x));
}
void diagflat_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(diagonal_matrix(call, reshape(x, {element_count(x.shape())}), call.integer("offset", 0), -2, -1));
}
void addmv_row(OperatorCall& call) { scaled_sum(call, unrounded_matmul(call.tensor("mat"), call.tensor("vec"))); }
void take_along_dim_row(OperatorCall& call) {
  Value x = call.tensor("self"), index = call.tensor("indices");
  if (!call.has("dim")) {
    x = reshape(x, {element_count(x.shape())});
    index = reshape(index, {element_count(index.shape())});
    return call.result(gather(x, 0, index));
  }
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  // All dims but one broadcast together.
  Shape like = index.shape(), wanted = x.shape();
  like[static_cast<size_t>(dim)] = x.dim(dim);
  wanted[static_cast<size_t>(dim)] = index.dim(dim);
  x = broadcast_pair(x, like);
  index = broadcast_pair(index, wanted);
  call.result(gather(x, dim, where(less(index, 0), index + size_value(call.builder(), index.dtype(), x.dim(dim)), index)));
}
void take_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const Value flat = reshape(x, {element_count(x.shape())});
  const Value index = call.tensor("index");
  const Value wrapped = where(less(index, 0), index + size_value(call.builder(), DType::I64, flat.shape()[0]), index);
  call.result(index_select(flat, 0, wrapped));
}
void meshgrid_row(OperatorCall& call) {
  if (const std::vector<Tensor> handles = call.handles("tensors"); handles.size() == 1 && handles[0].value().rank() == 1) return call.alias_list(handles);
  const std::vector<Value> axes = call.tensors("tensors");
  const bool columns_first = call.text("indexing", "ij") == "xy" && axes.size() >= 2;
  Shape shape;
  for (const Value& axis : axes) shape.push_back(axis.rank() == 0 ? Dim(1) : axis.shape()[0]);
  if (columns_first) std::swap(shape[0], shape[1]);
  std::vector<Value> grids;
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t place = columns_first && i < 2 ? 1 - i : i;
    Shape alone(shape.size(), Dim(1));
    alone[place] = shape[place];
    grids.push_back(broadcast_pair(reshape(axes[i], alone), shape));
  }
  call.result_list(grids);
}
void tensordot_row(OperatorCall& call) {
  const Value a = call.tensor("self"), b = call.tensor("other");
  std::string left, right, result;
  for (int64_t d = 0; d < a.rank(); ++d) left.push_back(static_cast<char>('a' + d));
  for (int64_t d = 0; d < b.rank(); ++d) right.push_back(static_cast<char>('A' + d));
  const std::vector<int64_t> mine = call.integers("dims_self"), other = call.integers("dims_other");
  if (mine.size() != other.size()) call.fail("dims_self and dims_other have different lengths");
  for (size_t i = 0; i < mine.size(); ++i) right[static_cast<size_t>(call.wrap(other[i], b.rank()))] = left[static_cast<size_t>(call.wrap(mine[i], a.rank()))];
  for (char letter : left)
    if (right.find(letter) == std::string::npos) result.push_back(letter);
  for (char letter : right)
    if (left.find(letter) == std::string::npos) result.push_back(letter);
  const std::vector<Value> operands{a, b};
  call.result(einsum(left + "," + right + "->" + result, operands));
}

}  // namespace

std::vector<NamedRow> matrix_rows() {
  return {
      {"diagonal", diagonal_row},
      {"diagonal_scatter", diagonal_scatter_row},
      {"trace", trace_row},
      {"diag_embed", diag_embed_row},
      {"diag", diag_row},
      {"diagflat", diagflat_row},
      {"linalg_diagonal", linalg_diagonal_row},
      {"addmv", addmv_row},
      {"take_along_dim", take_along_dim_row},
      {"take", take_row},
      {"meshgrid", meshgrid_row},
      {"tensordot", tensordot_row},
  };
}

}  // namespace stepgraph::pt2
