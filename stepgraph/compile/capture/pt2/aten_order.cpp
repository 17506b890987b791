// SPDX-License-Identifier: Apache-2.0
// Operators about order: running extremes, medians, quantiles, search in sorted sequences, membership.
#include <algorithm>
#include <cmath>
#include <limits>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/functions/scans.h"

namespace stepgraph::pt2 {
namespace {

Value index_zero(OperatorCall& call) { return constant(call.builder(), Literal::integer(DType::I64, 0)); }
/// The value at an index, one along `dim`, which alone gets the gradient; and the index.
void picked(OperatorCall& call, const Value& x, int64_t dim, const Value& index, bool keep) {
  const Value value = gather(x, dim, index);
  call.results({keep ? value : squeeze(value, {dim}), keep ? index : squeeze(index, {dim})});
}
Value flat(const Value& x) { return reshape(x, {element_count(x.shape())}); }

/// Running maximum or minimum with the place where it was last met.
template <CumulativeKind kind>
void running_extreme_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (x.rank() == 0) return call.results({x, index_zero(call)});
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  const Value number = x.dtype() == DType::Bool ? convert(x, DType::I64) : x;
  const Value index = running_position(number, call.builder().emit_one(Cumulative{kind, dim, false}, {number}), dim);
  call.results({gather(x, dim, index), index});
}

void kthvalue_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (x.rank() == 0) return call.results({x, index_zero(call)});
  const int64_t dim = call.wrap(call.integer("dim", -1), x.rank()), k = call.integer("k");
  if (k < 1 || (x.dim(dim).is_constant() && k > x.dim(dim).constant())) call.fail("found k = " + std::to_string(k) + " for " + x.dim(dim).text() + " elements");
  picked(call, x, dim, pick(x, PickKind::Ranked, k, dim).indices, call.boolean("keepdim", false));
}

/// The place of the lower median along dim, one element there: NaN wins, or (ignoring it) counts for nothing.
Value median_index(OperatorCall& call, const Value& x, int64_t dim, bool ignoring_nan) {
  const Value order = sort(x, dim).indices;
  Value last = size_value(call.builder(), DType::I64, x.dim(dim)) - 1.0;
  Shape one = x.shape();
  one[static_cast<size_t>(dim)] = 1;
  Value place = broadcast_to(floor_divide(last, full_like(last, 2)), one);
  if (is_floating(x.dtype())) {
    const Value real = sum(convert(logical_not(is_nan(x)), DType::I64), {dim}, true);  // NaN is sorted to the end
    const Value among_real = floor_divide(maximum(real - 1.0, zeros_like(real)), full_like(real, 2));
    const Value all = broadcast_to(size_value(call.builder(), DType::I64, x.dim(dim)), one);
    place = ignoring_nan ? among_real : where(equal(real, all), place, real);
  }
  return gather(order, dim, place);
}
template <bool ignoring_nan>
void median_dim_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (x.rank() == 0) return call.results({x, index_zero(call)});
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  picked(call, x, dim, median_index(call, x, dim, ignoring_nan), call.boolean("keepdim", false));
}
/// Of all elements: the gradient is shared by those that equal it.
template <bool ignoring_nan>
void median_row(OperatorCall& call) {
  const Value x = flat(call.tensor("self"));
  const Value median = stop_gradient(gather(x, 0, median_index(call, x, 0, ignoring_nan)));
  if (!is_floating(x.dtype())) return call.result(reshape(median, {}));
  const Value wide = broadcast_to(median, x.shape());
  const Value equals = logical_or(equal(x, wide), logical_and(is_nan(x), is_nan(wide)));
  call.result(amax(where(equals, x, full_like(x, -std::numeric_limits<double>::infinity()))));
}

/// x sorted along `dim` and read at rank q * (n - 1), between its neighbours as `interpolation` says.
struct Quantile {
  Value sorted, last;  ///< last: the greatest rank, 1 along `dim`
  int64_t dim;
  std::string interpolation;
};
Value quantile_at(OperatorCall& call, const Quantile& at, const Value& q) {
  const Value rank = at.last * q;
  const Value low = floor(rank), high = ceil(rank);
  const auto read = [&](const Value& place) { return gather(at.sorted, at.dim, convert(stop_gradient(place), DType::I64)); };
  if (at.interpolation == "lower") return read(low);
  if (at.interpolation == "higher") return read(high);
  if (at.interpolation == "nearest") return read(round(rank));
  const Value a = read(low), b = read(high);
  if (at.interpolation == "midpoint") return a + (b - a) * 0.5;
  if (at.interpolation != "linear") call.fail("interpolation '" + at.interpolation + "' is unknown");
  return a + (b - a) * (rank - low);
}
template <bool ignoring_nan>
void quantile_row(OperatorCall& call) {
  Value x = call.tensor("self");
  const bool keep = call.boolean("keepdim", false), has_dim = call.has("dim");
  const int64_t rank = x.rank();
  if (!has_dim || rank == 0) x = flat(x);
  const int64_t dim = has_dim && rank > 0 ? call.wrap(call.integer("dim"), rank) : 0;
  Value real = sum(convert(logical_not(is_nan(x)), x.dtype()), {dim}, true);
  Value last = maximum(real - 1.0, zeros_like(real));
  if (!ignoring_nan) {
    // One NaN makes all NaN.
    const Value all = broadcast_to(size_value(call.builder(), x.dtype(), x.dim(dim)), real.shape());
    x = where(broadcast_to(equal(real, all), x.shape()), x, full_like(x, std::nan("")));
  }
  const Quantile at{sort(x, dim).values, last, dim, call.text("interpolation", "linear")};
  const Operand q = call.operand("q");
  const Value wanted = as_value(call.builder(), q, x.dtype());
  const auto finished = [&](const Value& found) {
    if (!keep) return squeeze(found, {dim});
    return has_dim ? found : reshape(found, Shape(static_cast<size_t>(rank), Dim(1)));
  };
  if (wanted.rank() == 0) return call.result(finished(quantile_at(call, at, broadcast_to(wanted, last.shape()))));
  if (!wanted.dim(0).is_constant()) call.fail("a symbolic number of quantiles is not supported");
  std::vector<Value> found;
  for (int64_t i = 0; i < wanted.dim(0).constant(); ++i)
    found.push_back(unsqueeze(finished(quantile_at(call, at, broadcast_to(select(wanted, 0, i), last.shape()))), 0));
  call.result(concatenate(found, 0));
}

/// How many boundaries lie below (or, `right`, not above) each value: boundaries [..., n] in order, values [..., m]. NaN lies above all.
Value insertion_points(const Value& boundaries, const Value& values, bool right) {
  const DType dtype = promote(boundaries.dtype(), values.dtype());
  const Value edges = unsqueeze(convert(boundaries, dtype), boundaries.rank() - 1), at = unsqueeze(convert(values, dtype), values.rank());
  const Value a = broadcast_pair(edges, at.shape()), b = broadcast_pair(at, edges.shape());
  Value below = right ? less_equal(a, b) : less(a, b);
  if (is_floating(dtype)) below = logical_or(below, is_nan(b));
  return sum(convert(below, DType::I64), {below.rank() - 1});
}
Value index_result(OperatorCall& call, const Value& points) { return call.boolean("out_int32", false) ? convert(points, DType::I32) : points; }
void bucketize_row(OperatorCall& call) {
  const Value boundaries = call.tensor("boundaries");
  const Operand operand = call.operand("self");
  const Value values = as_value(call.builder(), operand, std::holds_alternative<Value>(operand) ? std::get<Value>(operand).dtype() : boundaries.dtype());
  call.result(index_result(call, reshape(insertion_points(boundaries, flat(values), call.boolean("right", false)), values.shape())));
}
void searchsorted_row(OperatorCall& call) {
  Value sorted = call.tensor("sorted_sequence");
  if (const auto sorter = call.maybe_tensor("sorter")) sorted = gather(sorted, sorted.rank() - 1, *sorter);
  const Operand operand = call.operand("self");
  const Value values = as_value(call.builder(), operand, std::holds_alternative<Value>(operand) ? std::get<Value>(operand).dtype() : sorted.dtype());
  const bool right = call.boolean("right", false) || call.text("side") == "right";
  if (sorted.rank() == 1) return call.result(index_result(call, reshape(insertion_points(sorted, flat(values), right), values.shape())));
  call.result(index_result(call, insertion_points(sorted, values, right)));
}
void isin_row(OperatorCall& call) {
  const auto operand = [&](const char* tensor, const char* scalar) { return call.operand(call.has(tensor) ? tensor : scalar); };
  const Operand a = operand("elements", "element"), b = operand("test_elements", "test_element");
  const DType dtype = result_type({a, b});
  const Value x = as_value(call.builder(), a, dtype), among = flat(as_value(call.builder(), b, dtype));
  const Value apart = unsqueeze(x, x.rank());
  const Value same = equal(broadcast_pair(apart, among.shape()), broadcast_pair(among, apart.shape()));
  const Value found = any(same, {same.rank() - 1});
  call.result(call.boolean("invert", false) ? logical_not(found) : found);
}

void aminmax_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (x.rank() == 0) return call.results({x, x});
  const Dims dims = call.dims("dim", x.rank());
  const bool keep = call.boolean("keepdim", false);
  call.results({amin(x, dims, keep), amax(x, dims, keep)});
}
void msort_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(x.rank() == 0 ? x : sort(x, 0).values);
}
void nanmean_row(OperatorCall& call) {
  Value x = call.tensor("self");
  if (const auto dtype = call.dtype()) x = convert(x, *dtype);
  if (x.rank() == 0) return call.result(x);
  const Dims dims = call.dims("dim", x.rank());
  const bool keep = call.boolean("keepdim", false);
  const Value real = logical_not(is_nan(x));
  call.result(sum(where(real, x, zeros_like(x)), dims, keep) / sum(convert(real, x.dtype()), dims, keep));
}
void depends_on_data(OperatorCall& call) { call.fail("the size of the result depends on data"); }

}  // namespace

std::vector<NamedRow> order_rows() {
  return {
      {"cummax", running_extreme_row<CumulativeKind::Max>},
      {"cummin", running_extreme_row<CumulativeKind::Min>},
      {"kthvalue", kthvalue_row},
      {"median", median_row<false>},
      {"median.dim", median_dim_row<false>},
      {"nanmedian", median_row<true>},
      {"nanmedian.dim", median_dim_row<true>},
      {"quantile", quantile_row<false>},
      {"nanquantile", quantile_row<true>},
      {"bucketize", bucketize_row},
      {"searchsorted", searchsorted_row},
      {"isin", isin_row},
      {"aminmax", aminmax_row},
      {"msort", msort_row},
      {"nanmean", in_f32<nanmean_row>},
      {"argwhere", depends_on_data},
      {"bincount", depends_on_data},
      {"_unique2", depends_on_data},
      {"unique_consecutive", depends_on_data},
      {"unique_dim", depends_on_data},
  };
}

}  // namespace stepgraph::pt2
