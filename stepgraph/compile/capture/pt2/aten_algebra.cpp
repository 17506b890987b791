// SPDX-License-Identifier: Apache-2.0
// Products and norms beyond the everyday ones, distances between rows, sums by the trapezoid rule.
#include <cmath>
#include <limits>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

int64_t constant_size(OperatorCall& call, const Value& x, int64_t dim) {
  if (!x.dim(dim).is_constant()) call.fail("dim " + std::to_string(dim) + " of " + text(x.type()) + " is symbolic, wanted a constant size");
  return x.dim(dim).constant();
}
Value indices(OperatorCall& call, const std::vector<int64_t>& values) {
  return constant(call.builder(), Literal::from_integers(DType::I64, {static_cast<int64_t>(values.size())}, values));
}

void addbmm_row(OperatorCall& call) { scaled_sum(call, sum(unrounded_matmul(call.tensor("batch1"), call.tensor("batch2")), {0})); }
void addr_row(OperatorCall& call) { scaled_sum(call, widened(unsqueeze(call.tensor("vec1"), 1)) * widened(unsqueeze(call.tensor("vec2"), 0))); }
void inner_row(OperatorCall& call) {
  const Value a = call.tensor("self"), b = call.tensor("other");
  if (a.rank() == 0 || b.rank() == 0) return call.result(a * b);
  MatMul product;
  product.lhs_contract = {a.rank() - 1};
  product.rhs_contract = {b.rank() - 1};
  call.result(dot_general(a, b, product));
}
void bilinear_row(OperatorCall& call) {
  const std::vector<Value> operands{call.tensor("input1"), call.tensor("weight"), call.tensor("input2")};
  const Value y = einsum("...i,oij,...j->...o", operands);
  call.result(call.has("bias") ? y + call.tensor("bias") : y);
}
/// A product of three, each given dims of size 1, summed over some dims.
void trilinear_row(OperatorCall& call) {
  const auto expanded = [&](const char* tensor, const char* dims) {
    Value x = call.tensor(tensor);
    for (int64_t dim : call.integers(dims)) x = unsqueeze(x, dim);
    return x;
  };
  const Value product = expanded("i1", "expand1") * expanded("i2", "expand2") * expanded("i3", "expand3");
  const std::vector<int64_t> dims = call.integers("sumdim");
  call.result(dims.empty() ? product : sum(product, dims));
}
void kron_row(OperatorCall& call) {
  const Value a = call.tensor("self"), b = call.tensor("other");
  const size_t rank = std::max(a.shape().size(), b.shape().size());
  const auto padded = [rank](Shape shape) {
    shape.insert(shape.begin(), rank - shape.size(), Dim(1));
    return shape;
  };
  const Shape first = padded(a.shape()), second = padded(b.shape());
  Shape outer, inner, merged;
  for (size_t d = 0; d < rank; ++d) {
    outer.insert(outer.end(), {first[d], Dim(1)});
    inner.insert(inner.end(), {Dim(1), second[d]});
    merged.push_back(first[d] * second[d]);
  }
  call.result(reshape(reshape(a, outer) * reshape(b, inner), merged));
}
/// linalg.cross, and cross over its given dim or the first one of size 3.
template <bool is_linalg>
void cross_row(OperatorCall& call) {
  const Value a = call.tensor("self"), b = call.tensor("other");
  const Value x = broadcast_pair(a, b.shape()), y = broadcast_pair(b, a.shape());
  int64_t dim = -1;
  if (call.has("dim")) {
    dim = call.wrap(call.integer("dim"), x.rank());
  } else if (is_linalg) {
    dim = x.rank() - 1;
  } else {
    for (int64_t d = x.rank() - 1; d >= 0; --d)
      if (x.dim(d) == Dim(3)) dim = d;
  }
  if (dim < 0 || !(x.dim(dim) == Dim(3))) call.fail("found " + text(x.type()) + ", wanted a dim of size 3");
  call.result(roll(x, dim, -1) * roll(y, dim, -2) - roll(x, dim, -2) * roll(y, dim, -1));
}
void multi_dot_row(OperatorCall& call) {
  const std::vector<Value> factors = call.tensors(call.has("tensors") ? "tensors" : "matrices");
  if (factors.empty()) call.fail("found no tensors");
  Value product = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) product = matmul(product, factors[i]);
  call.result(product);
}
void matrix_power_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  int64_t n = call.integer("n");
  if (n < 0) call.fail("found the power " + std::to_string(n) + ": inverses are not supported");
  const int64_t rank = x.rank();
  const Value same = equal(iota(call.builder(), DType::I64, x.shape(), rank - 2), iota(call.builder(), DType::I64, x.shape(), rank - 1));
  if (n == 0) return call.result(convert(same, x.dtype()));
  std::optional<Value> product;
  for (Value square = x; n > 0; n /= 2) {
    if (n % 2 == 1) product = product ? matmul(*product, square) : square;
    if (n > 1) square = matmul(square, square);
  }
  call.result(*product);
}
void vander_row(OperatorCall& call) {
  const Value x = call.tensor("x");
  const int64_t count = call.has("N") ? call.integer("N") : constant_size(call, x, x.rank() - 1);
  std::vector<Value> powers;
  Value power = ones_like(x);
  for (int64_t i = 0; i < count; ++i, power = power * x) powers.push_back(unsqueeze(power, x.rank()));
  if (powers.empty()) call.fail("wanted at least one column");
  call.result(concatenate(powers, x.rank()));
}
void vecdot_row(OperatorCall& call) {
  const Value product = call.tensor("x") * call.tensor("y");
  call.result(sum(product, {call.wrap(call.integer("dim", -1), product.rank())}));
}

// ---- norms and distances

Value floating_self(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (const auto dtype = call.dtype()) return convert(x, *dtype);
  return as_floating(x);
}
/// Of the matrices in two dims.
Value matrix_norm(OperatorCall& call, const Value& x, double order, const std::vector<int64_t>& dims, bool keep) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool by_columns = std::fabs(order) == 1;
  if (!by_columns && std::fabs(order) != infinity) call.fail("the matrix norm of order " + std::to_string(order) + " is not supported");
  const Value sums = sum(abs(x), {by_columns ? dims[0] : dims[1]}, true);
  const int64_t last = by_columns ? dims[1] : dims[0];
  const Value norm = order > 0 ? amax(sums, {last}, true) : amin(sums, {last}, true);
  return keep ? norm : squeeze(norm, dims);
}
template <bool is_matrix_norm>
void linalg_norm_row(OperatorCall& call) {
  const Value x = floating_self(call);
  const bool keep = call.boolean("keepdim", false);
  std::vector<int64_t> dims;
  if (call.has("dim"))
    for (int64_t d : call.integers("dim")) dims.push_back(call.wrap(d, x.rank()));
  if (is_matrix_norm && dims.empty()) dims = {x.rank() - 2, x.rank() - 1};
  const std::string named = call.text("ord", is_matrix_norm && !call.has("ord") ? "fro" : "");
  if (dims.empty())
    for (int64_t d = 0; d < x.rank(); ++d) dims.push_back(d);
  if (!named.empty() && named != "fro") call.fail("the norm '" + named + "' is not supported");
  if (!named.empty() || !call.has("ord")) return call.result(vector_norm(x, 2, dims, keep));
  if (dims.size() == 2) return call.result(matrix_norm(call, x, call.real("ord"), dims, keep));
  call.result(vector_norm(x, call.real("ord"), dims, keep));
}
void frobenius_row(OperatorCall& call) {
  const Value x = floating_self(call);
  call.result(vector_norm(x, 2, call.dims("dim", x.rank()), call.boolean("keepdim", false)));
}
void dist_row(OperatorCall& call) {
  const Value difference = call.tensor("self") - call.tensor("other");
  call.result(vector_norm(difference, call.real("p", 2), {}, false));
}
/// The norm over the last dim; of p = infinity each of the largest elements has the whole gradient.
Value distance_norm(OperatorCall& call, const Value& difference) {
  const double p = call.real("p", 2);
  const int64_t dim = difference.rank() - 1;
  if (p != std::numeric_limits<double>::infinity()) return vector_norm(difference, p, {dim}, false);
  const CompositeBody largest = [dim](Builder&, const std::vector<Value>& in) { return std::vector<Value>{amax(abs(in[0]), {dim})}; };
  const CompositeBody gradient = [dim](Builder&, const std::vector<Value>& in) {
    const Value wins = equal(abs(in[0]), unsqueeze(in[1], dim));
    return std::vector<Value>{where(wins, sign(in[0]) * unsqueeze(in[2], dim), zeros_like(in[0]))};
  };
  return composite(call.builder(), "largest_distance", std::vector<Value>{difference}, largest, gradient)[0];
}
/// Between each row of one matrix and each of the other.
void cdist_row(OperatorCall& call) {
  const Value a = call.tensor("x1"), b = call.tensor("x2");
  const Value difference = unsqueeze(a, a.rank() - 1) - unsqueeze(b, b.rank() - 2);
  call.result(distance_norm(call, difference));
}
/// (0, 1), (0, 2), ..., (1, 2), ... of n rows.
std::pair<Value, Value> pairs_of_rows(Builder& builder, const Dim& n) {
  const Value pair = iota(builder, DType::I64, {floordiv(n * n - n, Dim(2))}, 0), width = size_value(builder, DType::I64, n * 2 - 1);
  const auto start = [&](const Value& row) { return floor_divide(row * (width - row), full_like(row, 2)); };
  // Pairs of row i start at i (2n - 1 - i) / 2; the root may be off by one.
  const Value wide = size_value(builder, DType::F64, n * 2 - 1);
  Value row = convert(floor((wide - sqrt(maximum(wide * wide - convert(pair, DType::F64) * 8.0, zeros_like(convert(pair, DType::F64))))) * 0.5), DType::I64);
  row = where(greater(start(row), pair), row - 1.0, row);
  row = where(less_equal(start(row + 1.0), pair), row + 1.0, row);
  return {row, pair - start(row) + row + 1.0};
}
/// Between each two rows.
void pdist_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const auto [first, second] = pairs_of_rows(call.builder(), x.dim(0));
  const Value difference = index_select(x, 0, first) - index_select(x, 0, second);
  call.result(distance_norm(call, difference));
}
/// Parts along `dim` with a norm above the bound are scaled down to it.
void renorm_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  const double bound = call.real("maxnorm");
  Dims others;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != dim) others.push_back(d);
  const Value norms = vector_norm(x, call.real("p"), others, true);
  call.result(x * where(greater(norms, bound), bound / (norms + 1e-7), ones_like(norms)));
}

// ---- combinations of elements

void combinations_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t n = constant_size(call, x, 0), r = call.integer("r", 2);
  const bool again = call.boolean("with_replacement", false);
  if (r < 1 || r > 16) call.fail("found r = " + std::to_string(r) + ", wanted 1 to 16");
  std::vector<std::vector<int64_t>> columns(static_cast<size_t>(r));
  std::vector<int64_t> chosen(static_cast<size_t>(r));
  const auto choose = [&](const auto& self, size_t place, int64_t least) -> void {
    if (place == chosen.size()) {
      for (size_t c = 0; c < chosen.size(); ++c) columns[c].push_back(chosen[c]);
      if (columns[0].size() > 1'000'000) call.fail("more than a million combinations");
      return;
    }
    for (int64_t i = least; i < n; ++i) {
      chosen[place] = i;
      self(self, place + 1, again ? i : i + 1);
    }
  };
  choose(choose, 0, 0);
  std::vector<Value> picked;
  for (const auto& column : columns) picked.push_back(unsqueeze(index_select(x, 0, indices(call, column)), 1));
  call.result(concatenate(picked, 1));
}
void cartesian_prod_row(OperatorCall& call) {
  const std::vector<Value> axes = call.tensors("tensors");
  if (axes.size() == 1) return call.alias(call.handles("tensors")[0]);
  Shape grid;
  for (const Value& axis : axes) grid.push_back(axis.dim(0));
  std::vector<Value> columns;
  for (size_t i = 0; i < axes.size(); ++i) {
    Shape alone(grid.size(), Dim(1));
    alone[i] = grid[i];
    columns.push_back(reshape(broadcast_to(reshape(axes[i], alone), grid), {element_count(grid), Dim(1)}));
  }
  call.result(concatenate(columns, 1));
}
void block_diag_row(OperatorCall& call) {
  std::vector<Value> blocks = call.tensors("tensors");
  std::optional<DType> dtype;
  Dim width = 0;
  for (Value& block : blocks) {
    while (block.rank() < 2) block = unsqueeze(block, 0);
    width = width + block.dim(1);
    dtype = dtype ? promote(*dtype, block.dtype()) : block.dtype();
  }
  Dim left = 0;
  for (Value& block : blocks) {
    const Dim own = block.dim(1);
    block = pad(convert(block, *dtype), {Dim(0), left}, {Dim(0), width - left - own});
    left = left + own;
  }
  call.result(concatenate(blocks, 0));
}

// ---- sums by the trapezoid rule

Value trapezoids(OperatorCall& call, const Value& y, int64_t dim) {
  const Dim n = y.dim(dim);
  const Value pairs = slice(y, dim, 1, n) + slice(y, dim, 0, n - 1);
  if (!call.has("x")) return pairs * (call.real("dx", 1) / 2);
  Value x = call.tensor("x");
  if (x.rank() == 1 && y.rank() > 1) {
    Shape alone(static_cast<size_t>(y.rank()), Dim(1));
    alone[static_cast<size_t>(dim)] = x.dim(0);
    x = reshape(x, alone);
  }
  const int64_t d = x.rank() == y.rank() ? dim : dim - (y.rank() - x.rank());
  return pairs * (slice(x, d, 1, x.dim(d)) - slice(x, d, 0, x.dim(d) - 1)) / 2.0;
}
template <bool cumulative>
void trapezoid_row(OperatorCall& call) {
  const Value y = call.tensor("y");
  const int64_t dim = call.wrap(call.integer("dim", -1), y.rank());
  const Value parts = trapezoids(call, y, dim);
  const int64_t d = dim + parts.rank() - y.rank();
  call.result(cumulative ? cumsum(parts, d) : sum(parts, {d}));
}

}  // namespace

void scaled_sum(OperatorCall& call, const Value& unrounded_product) {
  const Value given = call.tensor("self");
  const double alpha = call.real("alpha", 1), beta = call.real("beta", 1);
  const Value scaled = alpha == 1 ? unrounded_product : unrounded_product * alpha;
  if (beta == 0) return call.result(with_zero_gradient(convert(scaled, given.dtype()), given));
  const Value wide = widened(given);
  call.result(convert((beta == 1 ? wide : wide * beta) + scaled, given.dtype()));
}

std::vector<NamedRow> algebra_rows() {
  return {
      {"addbmm", addbmm_row},
      {"addr", addr_row},
      {"inner", inner_row},
      {"bilinear", in_f32<bilinear_row>},
      {"_trilinear", in_f32<trilinear_row>},
      {"kron", kron_row},
      {"cross", cross_row<false>},
      {"linalg_cross", cross_row<true>},
      {"linalg_multi_dot", multi_dot_row},
      {"chain_matmul", multi_dot_row},
      {"linalg_matrix_power", matrix_power_row},
      {"matrix_power", matrix_power_row},
      {"linalg_vander", vander_row},
      {"linalg_vecdot", vecdot_row},
      {"linalg_norm", in_f32<linalg_norm_row<false>>},
      {"linalg_matrix_norm", in_f32<linalg_norm_row<true>>},
      {"frobenius_norm", frobenius_row},
      {"dist", in_f32<dist_row>},
      {"cdist", in_f32<cdist_row>},
      {"_cdist_forward", in_f32<cdist_row>},
      {"_euclidean_dist", in_f32<cdist_row>},
      {"pdist", in_f32<pdist_row>},
      {"_pdist_forward", in_f32<pdist_row>},
      {"renorm", in_f32<renorm_row>},
      {"combinations", combinations_row},
      {"cartesian_prod", cartesian_prod_row},
      {"block_diag", block_diag_row},
      {"trapezoid", trapezoid_row<false>},
      {"trapz", trapezoid_row<false>},
      {"cumulative_trapezoid", trapezoid_row<true>},
  };
}

}  // namespace stepgraph::pt2
