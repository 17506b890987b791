// SPDX-License-Identifier: Apache-2.0
// Views and movement. What is a view in PyTorch is a view here: a write through it reaches its base.
#include <algorithm>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

void view_as(OperatorCall& call, std::function<Value(const Value&)> read, std::function<Value(const Value& base, const Value& view)> write) {
  call.alias(call.handle("self").view({std::move(read), std::move(write)}));
}

/// Sizes with one -1 replaced by what is left.
Shape without_wildcard(OperatorCall& call, const Value& x, Shape shape) {
  std::optional<size_t> wildcard;
  Dim known = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d].is_constant() && shape[d].constant() == -1) {
      if (wildcard) call.fail("two sizes are -1");
      wildcard = d;
    } else {
      known = known * shape[d];
    }
  }
  if (!wildcard) return shape;
  // By what is known of the symbols: 2 * (rows // 2) is rows where rows are even.
  const SymbolTable& symbols = call.builder().module().symbols;
  const Dim total = symbols.simplify(element_count(x.shape()));
  known = symbols.simplify(known);
  if (total.is_constant() && known.is_constant()) {
    if (known.constant() == 0 || total.constant() % known.constant() != 0) call.fail("cannot view " + text(x.shape()) + " as " + text(shape));
    shape[*wildcard] = total.constant() / known.constant();
  } else if (const auto quotient = exact_quotient(total, known)) {
    shape[*wildcard] = *quotient;
  } else {
    shape[*wildcard] = floordiv(total, known);
  }
  return shape;
}

void view_dtype_row(OperatorCall& call) { call.fail("reading the bytes of " + text(call.tensor("self").type()) + " as another dtype is not supported; to(dtype) converts the numbers"); }
void reshape_view(OperatorCall& call, const Shape& wanted) {
  const Shape from = call.tensor("self").shape();
  view_as(call, [wanted](const Value& x) { return reshape(x, wanted); }, [from](const Value&, const Value& v) { return reshape(v, from); });
}
void view_row(OperatorCall& call) { reshape_view(call, without_wildcard(call, call.tensor("self"), call.sizes(call.has("size") ? "size" : "shape"))); }
void view_as_row(OperatorCall& call) { reshape_view(call, call.tensor("other").shape()); }
void reshape_row(OperatorCall& call) { call.reshaped(without_wildcard(call, call.tensor("self"), call.sizes(call.has("size") ? "size" : "shape"))); }
void reshape_as_row(OperatorCall& call) { call.reshaped(call.tensor("other").shape()); }
void flatten_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (x.rank() == 0) return call.reshaped({Dim(1)});
  const int64_t first = call.wrap(call.integer("start_dim", 0), x.rank()), last = call.wrap(call.integer("end_dim", -1), x.rank());
  if (first > last) call.fail("start_dim is behind end_dim");
  Shape shape(x.shape().begin(), x.shape().begin() + first);
  Dim merged = 1;
  for (int64_t d = first; d <= last; ++d) merged = merged * x.dim(d);
  shape.push_back(merged);
  shape.insert(shape.end(), x.shape().begin() + last + 1, x.shape().end());
  call.reshaped(shape);
}
void unflatten_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  Shape sizes = call.sizes("sizes");
  Dim known = 1;
  size_t wildcard = sizes.size();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d].is_constant() && sizes[d].constant() == -1)
      wildcard = d;
    else
      known = known * sizes[d];
  }
  known = call.builder().module().symbols.simplify(known);
  if (wildcard < sizes.size()) sizes[wildcard] = exact_quotient(x.dim(dim), known).value_or(floordiv(x.dim(dim), known));
  Shape shape(x.shape().begin(), x.shape().begin() + dim);
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  shape.insert(shape.end(), x.shape().begin() + dim + 1, x.shape().end());
  reshape_view(call, shape);
}
void squeeze_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  std::vector<bool> drop(static_cast<size_t>(x.rank()), !call.has("dim"));
  if (call.has("dim") && x.rank() > 0)
    for (int64_t d : call.integers("dim")) drop[static_cast<size_t>(call.wrap(d, x.rank()))] = true;
  Shape shape;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (!(drop[static_cast<size_t>(d)] && x.dim(d) == Dim(1))) shape.push_back(x.dim(d));
  reshape_view(call, shape);
}
void unsqueeze_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  Shape shape = x.shape();
  shape.insert(shape.begin() + call.wrap(call.integer("dim"), x.rank() + 1), Dim(1));
  reshape_view(call, shape);
}

void permute_by(OperatorCall& call, const Dims& permutation) {
  Dims inverse(permutation.size());
  for (size_t d = 0; d < permutation.size(); ++d) inverse[static_cast<size_t>(permutation[d])] = static_cast<int64_t>(d);
  view_as(call, [permutation](const Value& x) { return permute(x, permutation); }, [inverse](const Value&, const Value& v) { return permute(v, inverse); });
}
void permute_row(OperatorCall& call) {
  const int64_t rank = call.tensor("self").rank();
  Dims permutation;
  for (int64_t d : call.integers("dims")) permutation.push_back(call.wrap(d, rank));
  if (static_cast<int64_t>(permutation.size()) != rank) call.fail("found " + std::to_string(permutation.size()) + " dims, wanted " + std::to_string(rank));
  permute_by(call, permutation);
}
Dims identity(int64_t rank) {
  Dims dims;
  for (int64_t d = 0; d < rank; ++d) dims.push_back(d);
  return dims;
}
void transpose_row(OperatorCall& call) {
  const int64_t rank = call.tensor("self").rank();
  Dims permutation = identity(rank);
  if (rank > 0) std::swap(permutation[static_cast<size_t>(call.wrap(call.integer(call.has("axis0") ? "axis0" : "dim0"), rank))], permutation[static_cast<size_t>(call.wrap(call.integer(call.has("axis1") ? "axis1" : "dim1"), rank))]);
  permute_by(call, permutation);
}
void t_row(OperatorCall& call) {
  Dims permutation = identity(call.tensor("self").rank());
  std::reverse(permutation.begin(), permutation.end());
  permute_by(call, permutation);
}
void matrix_transpose_row(OperatorCall& call) {
  Dims permutation = identity(call.tensor("self").rank());
  if (permutation.size() < 2) call.fail("wanted at least two dims");
  std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
  permute_by(call, permutation);
}
void movedim_row(OperatorCall& call) {
  const int64_t rank = call.tensor("self").rank();
  const std::vector<int64_t> sources = call.integers("source"), destinations = call.integers("destination");
  Dims permutation(static_cast<size_t>(rank), -1);
  std::vector<bool> moved(static_cast<size_t>(rank));
  if (sources.size() != destinations.size()) call.fail("moves " + std::to_string(sources.size()) + " dims to " + std::to_string(destinations.size()) + " places");
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto from = static_cast<size_t>(call.wrap(sources[i], rank)), to = static_cast<size_t>(call.wrap(destinations[i], rank));
    if (moved[from] || permutation[to] != -1) call.fail("moves a dim twice, or two dims to one place");
    permutation[to] = static_cast<int64_t>(from);
    moved[from] = true;
  }
  int64_t next = 0;
  for (int64_t& d : permutation) {
    if (d >= 0) continue;
    while (moved[static_cast<size_t>(next)]) ++next;
    d = next++;
  }
  permute_by(call, permutation);
}

void expand_to(OperatorCall& call, Shape shape) {
  const Value x = call.tensor("self");
  const size_t added = shape.size() - static_cast<size_t>(x.rank());
  for (size_t d = added; d < shape.size(); ++d)
    if (shape[d].is_constant() && shape[d].constant() == -1) shape[d] = x.shape()[d - added];
  view_as(call, [shape](const Value& v) { return broadcast_to(v, shape); },
          [&call, shape](const Value& base, const Value& v) -> Value {
            if (base.shape() == shape) return v;
            throw UserError("a write into an expanded tensor: its elements share memory; clone it first", SourcePlace{call.node().place_file, call.node().place_line});
          });
}
void expand_row(OperatorCall& call) {
  const Shape shape = call.sizes("size");
  if (shape.size() < static_cast<size_t>(call.tensor("self").rank())) call.fail("fewer sizes than dims");
  expand_to(call, shape);
}
void expand_as_row(OperatorCall& call) { expand_to(call, call.tensor("other").shape()); }

/// An element position as PyTorch clamps it: negative counts from the end, then into [0, size].
Dim clamped(OperatorCall& call, const std::optional<Dim>& position, const Dim& size, const Dim& otherwise) {
  if (!position) return otherwise;
  if (position->is_constant()) {
    const int64_t at = position->constant();
    if (at == INT64_MAX) return size;
    if (at < 0) return size.is_constant() ? Dim(std::max<int64_t>(0, size.constant() + at)) : call.builder().module().symbols.simplify(max(Dim(0), size + at));
    if (at == 0) return 0;
  }
  if (*position == size) return size;
  const SymbolTable& symbols = call.builder().module().symbols;
  if (symbols.less_or_equal(*position, Dim(-1)) == Truth::True) {  // as long as a size, from the end
    const Dim from_start = size + *position;
    return symbols.less_or_equal(Dim(0), from_start) == Truth::True ? from_start : symbols.simplify(max(Dim(0), from_start));
  }
  return symbols.simplify(min(*position, size));
}
struct Range {
  int64_t dim;
  Dim start, limit;
  int64_t step;
};
Range slice_range(OperatorCall& call, const Value& x) {
  const int64_t dim = call.wrap(call.integer("dim", 0), x.rank());
  const Dim size = x.dim(dim);
  auto position = [&](const char* name) { return call.has(name) ? std::optional<Dim>(call.size(name)) : std::nullopt; };
  const Dim start = clamped(call, position("start"), size, 0);
  Dim limit = clamped(call, position("end"), size, size);
  const SymbolTable& symbols = call.builder().module().symbols;
  if (symbols.less_or_equal(start, limit) != Truth::True) limit = symbols.simplify(max(start, limit));
  return {dim, start, limit, call.integer("step", 1)};
}
Value slice_of(const Value& x, const Range& range) { return slice(x, range.dim, range.start, range.limit, range.step); }
/// base with base[start:limit:step] = v.
Value slice_scatter(const Value& base, const Value& v, const Range& range) {
  const Dim size = base.dim(range.dim);
  if (range.step == 1) {
    std::vector<Value> parts;
    if (!(range.start == Dim(0))) parts.push_back(slice(base, range.dim, 0, range.start));
    parts.push_back(v);
    if (!(range.limit == size)) parts.push_back(slice(base, range.dim, range.limit, size));
    return parts.size() == 1 ? v : concatenate(parts, range.dim);
  }
  const Value positions = iota(*base.builder, DType::I64, {v.dim(range.dim)}, 0) * static_cast<double>(range.step) + size_value(*base.builder, DType::I64, range.start);
  Shape index_shape(static_cast<size_t>(base.rank()), Dim(1));
  index_shape[static_cast<size_t>(range.dim)] = v.dim(range.dim);
  return scatter(base, range.dim, broadcast_to(reshape(positions, index_shape), v.shape()), v);
}
void slice_row(OperatorCall& call) {
  const Range range = slice_range(call, call.tensor("self"));
  view_as(call, [range](const Value& x) { return slice_of(x, range); }, [range](const Value& base, const Value& v) { return slice_scatter(base, v, range); });
}
void slice_scatter_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  call.result(slice_scatter(x, convert(call.tensor("src"), x.dtype()), slice_range(call, x)));
}
void narrow_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  const Dim given = call.size("start"), start = given.is_constant() && given.constant() < 0 ? x.dim(dim) + given : given;
  const Range range{dim, start, start + call.size("length"), 1};
  view_as(call, [range](const Value& v) { return slice_of(v, range); }, [range](const Value& base, const Value& v) { return slice_scatter(base, v, range); });
}
Dim wrapped_index(OperatorCall& call, const Dim& size) {
  const Dim index = call.size("index");
  if (index.is_constant() && index.constant() < 0) return size + index.constant();
  return index;
}
Shape without_dim(const Shape& shape, int64_t dim) {
  Shape rest = shape;
  rest.erase(rest.begin() + dim);
  return rest;
}
Tensor select_view(const Tensor& self, int64_t dim, const Dim& index) {
  const Range range{dim, index, index + 1, 1};
  return self.view({[range, dim](const Value& x) { return reshape(slice_of(x, range), without_dim(x.shape(), dim)); },
                    [range, dim](const Value& base, const Value& v) { return slice_scatter(base, unsqueeze(v, dim), range); }});
}
void select_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  call.alias(select_view(call.handle("self"), dim, wrapped_index(call, x.dim(dim))));
}
void select_scatter_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t dim = call.wrap(call.integer("dim"), x.rank());
  const Dim index = wrapped_index(call, x.dim(dim));
  call.result(slice_scatter(x, unsqueeze(convert(call.tensor("src"), x.dtype()), dim), {dim, index, index + 1, 1}));
}

void parts_of(OperatorCall& call, int64_t dim, const Shape& sizes) {
  std::vector<Tensor> parts;
  Dim start = 0;
  for (const Dim& size : sizes) {
    const Range range{dim, start, start + size, 1};
    parts.push_back(call.handle("self").view(
        {[range](const Value& x) { return slice_of(x, range); }, [range](const Value& base, const Value& v) { return slice_scatter(base, v, range); }}));
    start = start + size;
  }
  call.alias_list(std::move(parts));
}
Shape equal_parts(OperatorCall& call, const Dim& size, const Dim& part) {
  if (!size.is_constant() || !part.is_constant()) {
    const auto count = exact_quotient(size, part);
    if (count && count->is_constant()) return Shape(static_cast<size_t>(count->constant()), part);
    // So many as were exported, of which the last has what is left; guards of the program see to that.
    const std::optional<size_t> listed = listed_results(call);
    if (!listed || *listed == 0) call.fail("the number of parts of " + size.text() + " by " + part.text() + " is not known");
    Shape sizes(*listed, part);
    sizes.back() = call.builder().module().symbols.simplify(size - part * (static_cast<int64_t>(*listed) - 1));
    return sizes;
  }
  Shape sizes;
  for (int64_t left = size.constant(); left > 0; left -= part.constant()) sizes.emplace_back(std::min(left, part.constant()));
  if (sizes.empty()) sizes.emplace_back(0);
  return sizes;
}
void split_with_sizes_row(OperatorCall& call) {
  const int64_t dim = call.wrap(call.integer("dim", 0), call.tensor("self").rank());
  parts_of(call, dim, call.sizes(call.has("split_sizes") ? "split_sizes" : "split_size"));
}
void split_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t dim = call.wrap(call.integer("dim", 0), x.rank());
  const Dim part = call.size("split_size");
  if (part.is_constant() && part.constant() <= 0) call.fail("a part of " + part.text() + " elements");
  parts_of(call, dim, equal_parts(call, x.dim(dim), part));
}
void chunk_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t dim = call.wrap(call.integer("dim", 0), x.rank()), chunks = call.integer("chunks");
  if (chunks <= 0) call.fail("wanted at least one chunk");
  const Dim size = x.dim(dim);
  const Dim part = size.is_constant() ? Dim(std::max<int64_t>(1, (size.constant() + chunks - 1) / chunks)) : exact_quotient(size, Dim(chunks)).value_or(ceildiv(size, Dim(chunks)));
  parts_of(call, dim, equal_parts(call, size, part));
}
void unbind_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const int64_t dim = call.wrap(call.integer("dim", 0), x.rank());
  if (!x.dim(dim).is_constant()) call.fail("the number of results, " + x.dim(dim).text() + ", is not known");
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < x.dim(dim).constant(); ++i) parts.push_back(select_view(call.handle("self"), dim, i));
  call.alias_list(std::move(parts));
}

/// Tensors of one result type; PyTorch lets 1-d empty tensors pass in cat.
std::vector<Value> of_one_type(OperatorCall& call, std::vector<Value> values) {
  std::vector<Operand> operands(values.begin(), values.end());
  if (values.empty()) call.fail("found no tensors");
  const DType dtype = result_type(operands);
  for (Value& value : values) value = convert(value, dtype);
  return values;
}
void cat_row(OperatorCall& call) {
  std::vector<Value> values = of_one_type(call, call.tensors("tensors"));
  int64_t rank = 0;
  for (const Value& value : values) rank = std::max(rank, value.rank());
  std::erase_if(values, [&](const Value& value) { return rank > 1 && value.rank() == 1 && value.dim(0) == Dim(0); });
  const int64_t dim = call.wrap(call.integer("dim", 0), rank);
  call.result(values.size() == 1 ? values[0] : concatenate(values, dim));
}
void stack_row(OperatorCall& call) {
  std::vector<Value> values = of_one_type(call, call.tensors("tensors"));
  const int64_t dim = call.wrap(call.integer("dim", 0), values[0].rank() + 1);
  for (Value& value : values) value = unsqueeze(value, dim);
  call.result(values.size() == 1 ? values[0] : concatenate(values, dim));
}
void repeat_row(OperatorCall& call) {
  Value x = call.tensor("self");
  const Shape repeats = call.sizes(call.has("repeats") ? "repeats" : "dims");
  const size_t rank = std::max(repeats.size(), static_cast<size_t>(x.rank()));
  Shape shape = x.shape();
  shape.insert(shape.begin(), rank - shape.size(), Dim(1));
  Shape counts(rank - repeats.size(), Dim(1));
  counts.insert(counts.end(), repeats.begin(), repeats.end());
  // [a, b] -> [1, a, 1, b] -> [r, a, s, b] -> [r*a, s*b]
  Shape apart, wide, merged;
  for (size_t d = 0; d < rank; ++d) {
    apart.insert(apart.end(), {Dim(1), shape[d]});
    wide.insert(wide.end(), {counts[d], shape[d]});
    merged.push_back(counts[d] * shape[d]);
  }
  call.result(reshape(broadcast_to(reshape(x, apart), wide), merged));
}
void repeat_interleave(OperatorCall& call) {
  Value x = call.tensor("self");
  if (!call.has("dim")) x = reshape(x, {element_count(x.shape())});
  const int64_t dim = call.wrap(call.integer("dim", 0), x.rank());
  const Dim count = call.size("repeats");
  Shape apart = x.shape(), merged = x.shape();
  apart.insert(apart.begin() + dim + 1, Dim(1));
  Shape wide = apart;
  wide[static_cast<size_t>(dim) + 1] = count;
  merged[static_cast<size_t>(dim)] = merged[static_cast<size_t>(dim)] * count;
  call.result(reshape(broadcast_to(reshape(x, apart), wide), merged));
}
void flip_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const Dims dims = call.dims("dims", x.rank(), false);
  call.result(dims.empty() ? x : flip(x, dims));
}
void roll_row(OperatorCall& call) {
  Value x = call.tensor("self");
  const Shape shifts = call.sizes("shifts");
  const std::vector<int64_t> dims = call.integers("dims");
  const Shape shape = x.shape();
  if (shifts.size() != (dims.empty() ? 1 : dims.size())) call.fail("has " + std::to_string(shifts.size()) + " shifts for " + std::to_string(dims.size()) + " dims");
  if (dims.empty()) x = reshape(x, {element_count(shape)});
  for (size_t i = 0; i < shifts.size(); ++i) x = roll(x, dims.empty() ? 0 : call.wrap(dims[i], x.rank()), shifts[i]);
  call.result(reshape(x, shape));
}
/// A copy that shares nothing.
/// Of `contiguous` too: the exporter leaves out those that give the tensor itself.
void clone_row(OperatorCall& call) { call.result(call.tensor("self")); }
/// Itself.
void alias_row(OperatorCall& call) { call.alias(call.handle("self")); }
void detach_row(OperatorCall& call) {
  call.alias(detached(call.handle("self")));
}
template <bool is_copy>
void to_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const std::optional<DType> dtype = call.has("dtype") ? call.dtype() : std::nullopt;
  const bool copies = is_copy || call.boolean("copy", false);
  if (!dtype || *dtype == x.dtype()) return copies ? call.result(x) : call.alias(call.handle("self"));
  call.result(convert(x, *dtype));
}
void type_as_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const DType dtype = call.tensor("other").dtype();
  if (dtype == x.dtype()) return call.alias(call.handle("self"));
  call.result(convert(x, dtype));
}
void copy_row(OperatorCall& call) {
  const Value self = call.tensor("self");
  call.result(broadcast_to(convert(call.tensor("src"), self.dtype()), self.shape()));
}
void broadcast_tensors_row(OperatorCall& call) {
  std::vector<Value> values = call.tensors("tensors");
  Shape shape;
  for (const Value& value : values) {
    Value probe = broadcast_pair(value, shape);
    shape = probe.shape();
  }
  for (Value& value : values) value = broadcast_to(value, shape);
  call.result_list(values);
}
void pad_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const Shape amounts = call.sizes("pad");
  const std::string mode = call.text("mode", "constant");
  Shape low(static_cast<size_t>(x.rank()), Dim(0)), high = low;
  for (size_t i = 0; i + 1 < amounts.size(); i += 2) {
    const size_t d = static_cast<size_t>(x.rank()) - 1 - i / 2;
    low[d] = amounts[i];
    high[d] = amounts[i + 1];
  }
  call.result(pad_mode(x, low, high, mode, call.real("value", 0)));
}
/// As a tensor of those strides over the base's elements: only dense row-major ones of the same number of elements are known here.
void as_strided_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const Shape sizes = call.sizes("size"), strides = call.sizes("stride");
  if (!are_dense(call, x, sizes, strides)) call.fail("strides " + text(strides) + " of sizes " + text(sizes) + " over " + text(x.shape()) + " are not supported; use reshape or contiguous in the model");
  reshape_view(call, sizes);
}
void unfold_row(OperatorCall& call) {
  // Windows along one dim, put last.
  const Value x = call.tensor("self");
  const int64_t dim = call.wrap(call.integer("dimension"), x.rank()), size = call.integer("size"), step = call.integer("step");
  const Dim windows = floordiv(x.dim(dim) - size, Dim(step)) + 1;
  const Value starts = reshape(iota(call.builder(), DType::I64, {windows}, 0) * static_cast<double>(step), {windows, Dim(1)});
  const Value offsets = reshape(iota(call.builder(), DType::I64, {Dim(size)}, 0), {Dim(1), Dim(size)});
  const Value places = starts + offsets;
  const int64_t rank = x.rank();
  Dims last, back;  // of ..., windows, size, ...: size to the end, and back
  for (int64_t d = 0; d <= rank; ++d)
    if (d != dim + 1) last.push_back(d);
  last.push_back(dim + 1);
  for (int64_t d = 0; d < rank; ++d) back.push_back(d);
  back.insert(back.begin() + dim + 1, rank);
  call.alias(call.handle("self").view({[=](const Value& base) { return permute(index_select(base, dim, places), last); },
                                       [=](const Value& base, const Value& view) {
                                         if (step < size) throw UserError("unfold: a write to windows that overlap has no meaning; clone them first");
                                         std::vector<std::optional<Value>> indices(static_cast<size_t>(rank));
                                         indices[static_cast<size_t>(dim)] = places;
                                         return index_put(base, indices, permute(view, back), false);
                                       }}));
}
void tril_row(OperatorCall& call) { call.result(triangle(call.tensor("self"), call.integer("diagonal", 0), true)); }
void triu_row(OperatorCall& call) { call.result(triangle(call.tensor("self"), call.integer("diagonal", 0), false)); }
void pixel_shuffle_row(OperatorCall& call) { call.result(pixel_shuffle(call.tensor("self"), call.integer("upscale_factor"))); }
void pixel_unshuffle_row(OperatorCall& call) { call.result(pixel_unshuffle(call.tensor("self"), call.integer("downscale_factor"))); }
void diff_row(OperatorCall& call) {
  Value x = call.tensor("self");
  const int64_t dim = call.wrap(call.integer("dim", -1), x.rank());
  std::vector<Value> parts;
  if (call.has("prepend")) parts.push_back(call.tensor("prepend"));
  parts.push_back(x);
  if (call.has("append")) parts.push_back(call.tensor("append"));
  if (parts.size() > 1) x = concatenate(parts, dim);
  for (int64_t i = 0; i < call.integer("n", 1); ++i) {
    const Value behind = slice(x, dim, 1, x.dim(dim)), before = slice(x, dim, 0, x.dim(dim) - 1);
    x = x.dtype() == DType::Bool ? not_equal(behind, before) : behind - before;
  }
  call.result(x);
}

}  // namespace

std::vector<NamedRow> shape_rows() {
  return {
      {"view", view_row}, {"view.dtype", view_dtype_row}, {"reshape", reshape_row}, {"_unsafe_view", view_row}, {"_reshape_alias", view_row}, {"view_as", view_as_row}, {"reshape_as", reshape_as_row}, {"flatten", flatten_row},
      {"unflatten", unflatten_row}, {"squeeze", squeeze_row}, {"unsqueeze", unsqueeze_row}, {"permute", permute_row}, {"transpose", transpose_row}, {"swapaxes", transpose_row}, {"t", t_row}, {"mT", matrix_transpose_row},
      {"numpy_T", t_row}, {"movedim", movedim_row}, {"expand", expand_row}, {"expand_as", expand_as_row}, {"slice", slice_row}, {"slice_scatter", slice_scatter_row}, {"narrow", narrow_row},
      {"select", select_row}, {"select_scatter", select_scatter_row}, {"split", split_row}, {"split.sizes", split_with_sizes_row}, {"split_with_sizes", split_with_sizes_row}, {"chunk", chunk_row}, {"unbind", unbind_row},
      {"cat", cat_row}, {"concat", cat_row}, {"concatenate", cat_row}, {"stack", stack_row}, {"repeat", repeat_row}, {"tile", repeat_row}, {"repeat_interleave.self_int", repeat_interleave},
      {"flip", flip_row}, {"roll", roll_row}, {"clone", clone_row}, {"lift_fresh_copy", clone_row}, {"contiguous", clone_row}, {"alias", alias_row}, {"lift_fresh", alias_row},
      {"detach", detach_row}, {"detach_copy", detach_row}, {"to", to_row<false>}, {"_to_copy", to_row<true>}, {"type_as", type_as_row}, {"copy", copy_row}, {"broadcast_tensors", broadcast_tensors_row},
      {"pad", pad_row}, {"constant_pad_nd", pad_row}, {"as_strided", as_strided_row}, {"unfold", unfold_row}, {"tril", tril_row}, {"triu", triu_row}, {"pixel_shuffle", pixel_shuffle_row},
      {"pixel_unshuffle", pixel_unshuffle_row}, {"diff", diff_row}, {"broadcast_to", expand_row},
  };
}

}  // namespace stepgraph::pt2
