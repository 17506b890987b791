// SPDX-License-Identifier: Apache-2.0
// Pooling and resampling as PyTorch defines them, and einsum.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "stepgraph/compile/ops/functions_windows.h"
#include "stepgraph/compile/ops/functions_place.h"
#include "stepgraph/compile/ops/functions_resize.h"

namespace stepgraph {
namespace {

std::vector<int64_t> for_all_dims(const std::vector<int64_t>& values, int64_t spatial, int64_t otherwise, const Builder& builder) {
  if (values.empty()) return std::vector<int64_t>(static_cast<size_t>(spatial), otherwise);
  if (values.size() == 1) return std::vector<int64_t>(static_cast<size_t>(spatial), values[0]);
  if (static_cast<int64_t>(values.size()) != spatial) fail(builder, "pool: found " + std::to_string(values.size()) + " numbers for " + std::to_string(spatial) + " spatial dims");
  return values;
}

struct PoolGeometry {
  std::vector<int64_t> size;
  Window window;
  bool has_extra = false;  ///< ceil_mode reaches behind the padding
};

PoolGeometry geometry(const Value& x, const PoolOptions& options, bool ceil_mode) {
  const Builder& builder = *x.builder;
  const int64_t spatial = x.rank() - 2;
  PoolGeometry made;
  made.size = for_all_dims(options.size, spatial, 1, builder);
  made.window.strides = options.strides.empty() ? made.size : for_all_dims(options.strides, spatial, 1, builder);
  made.window.padding_low = made.window.padding_high = for_all_dims(options.padding, spatial, 0, builder);
  made.window.dilation = for_all_dims(options.dilation, spatial, 1, builder);
  if (!ceil_mode) return made;
  for (int64_t d = 0; d < spatial; ++d) {
    const size_t i = static_cast<size_t>(d);
    if (!x.dim(2 + d).is_constant()) fail(builder, "pool: ceil_mode wants constant sizes, found " + text(x.type()));
    const int64_t n = x.dim(2 + d).constant(), pad = made.window.padding_low[i], stride = made.window.strides[i];
    const int64_t reach = made.window.dilation[i] * (made.size[i] - 1) + 1, span = n + 2 * pad - reach;
    if (span < 0) continue;  // inference says what is wrong
    int64_t count = (span + stride - 1) / stride + 1;
    if ((count - 1) * stride >= n + pad) --count;  // the last window starts inside the tensor or its left padding
    const int64_t extra = (count - 1) * stride + reach - (n + 2 * pad);
    if (extra > 0) made.window.padding_high[i] += extra, made.has_extra = true;
  }
  return made;
}

/// x with `dim` multiplied by a constant matrix [to, from].
Value along_dim(const Value& x, int64_t dim, const Literal& matrix) {
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

/// Average windows of adaptive pooling: output i covers floor(i n / m) to ceil((i + 1) n / m).
Literal adaptive_matrix(int64_t from, int64_t to) {
  Literal matrix(DType::F64, {to, from});
  for (int64_t i = 0; i < to; ++i) {
    const int64_t start = i * from / to, end = ((i + 1) * from + to - 1) / to;
    for (int64_t j = start; j < end; ++j) matrix.set(i * from + j, 1.0 / static_cast<double>(end - start));
  }
  return matrix;
}

/// How far apart source positions of neighbours are (PyTorch's area_pixel_compute_scale).
double pixel_scale(int64_t from, int64_t to, bool align_corners, double given) {
  if (align_corners) return to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1) : 0;
  return given > 0 ? 1 / given : static_cast<double>(from) / static_cast<double>(to);
}

double cubic_near(double x) { return ((-0.75 + 2) * x - (-0.75 + 3)) * x * x + 1; }
double cubic_far(double x) { return ((-0.75 * x - 5 * -0.75) * x + 8 * -0.75) * x - 4 * -0.75; }

Literal resize_matrix(ResizeKind kind, int64_t from, int64_t to, bool align_corners, double given_scale) {
  Literal matrix(DType::F64, {to, from});
  const double scale = pixel_scale(from, to, align_corners, given_scale);
  auto add = [&](int64_t i, int64_t j, double weight) {
    const int64_t place = i * from + std::clamp<int64_t>(j, 0, from - 1);
    matrix.set(place, matrix.at(place) + weight);
  };
  for (int64_t i = 0; i < to; ++i) {
    double source = align_corners ? scale * static_cast<double>(i) : scale * (static_cast<double>(i) + 0.5) - 0.5;
    if (kind == ResizeKind::Linear) source = std::max(source, 0.0);
    const double floor = std::floor(source), part = source - floor;
    const int64_t at = static_cast<int64_t>(floor);
    if (kind == ResizeKind::Linear) {
      add(i, at, 1 - part);
      add(i, at + 1, part);
    } else {
      add(i, at - 1, cubic_far(part + 1));
      add(i, at, cubic_near(part));
      add(i, at + 1, cubic_near(1 - part));
      add(i, at + 2, cubic_far(2 - part));
    }
  }
  return matrix;
}

Value nearest(const Value& x, int64_t dim, const Dim& to, bool exact, double given_scale) {
  const Dim from = x.dim(dim);
  if (from == to) return x;
  const auto factor = exact_quotient(to, from);
  if (factor && factor->is_constant()) {  // each element repeated
    Shape apart = x.shape(), wide, merged = x.shape();
    apart.insert(apart.begin() + dim + 1, Dim(1));
    wide = apart;
    wide[static_cast<size_t>(dim) + 1] = *factor;
    merged[static_cast<size_t>(dim)] = to;
    return reshape(broadcast_to(reshape(x, apart), wide), merged);
  }
  if (!from.is_constant() || !to.is_constant()) return resize_symbolic(x, dim, to, exact ? ResizeKind::NearestExact : ResizeKind::Nearest, false, given_scale);
  // PyTorch computes these positions in f32.
  const float scale = given_scale > 0 ? static_cast<float>(1.0 / given_scale) : static_cast<float>(from.constant()) / static_cast<float>(to.constant());
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < to.constant(); ++i) {
    const float source = exact ? (static_cast<float>(i) + 0.5f) * scale : static_cast<float>(i) * scale;
    positions.push_back(std::min<int64_t>(static_cast<int64_t>(std::floor(source)), from.constant() - 1));
  }
  return index_select(x, dim, constant(*x.builder, Literal::from_integers(DType::I64, {to.constant()}, positions)));
}

}  // namespace

MaxPooled max_pool_with_indices(At x, PoolOptions options, bool ceil_mode) {
  const PlaceScope place(x);
  const Value v = x.value;
  const PoolGeometry made = geometry(v, options, ceil_mode);
  Pool pool;
  pool.kind = PoolKind::Max;
  pool.size = made.size;
  pool.window = made.window;
  const std::vector<Value> found = v.builder->emit(pool, {v});
  return {found.at(0), found.at(1)};
}

Value average_pool_mode(At x, PoolOptions options, bool ceil_mode, int64_t divisor) {
  const PlaceScope place(x);
  const Value v = x->rank() == 5 ? autocast("avg_pool3d", x.value) : x.value;
  const AutocastScope off(*v.builder, {});
  const PoolGeometry made = geometry(v, options, ceil_mode);
  Pool pool;
  pool.kind = PoolKind::Average;
  pool.size = made.size;
  pool.window = made.window;
  pool.count_include_pad = options.count_include_pad || divisor != 0;
  if (divisor == 0 && !(made.has_extra && options.count_include_pad)) return v.builder->emit_one(pool, {v});
  int64_t elements = 1;
  for (int64_t size : made.size) elements *= size;
  const Value average = v.builder->emit_one(pool, {v});
  if (divisor != 0) return average * (static_cast<double>(elements) / static_cast<double>(divisor));
  // Windows are cut at the padded tensor's end: each is divided by what is left of it.
  Value result = average;
  for (int64_t d = 0; d < v.rank() - 2; ++d) {
    const size_t i = static_cast<size_t>(d);
    const int64_t n = v.dim(2 + d).constant(), end = n + options.padding[options.padding.size() == 1 ? 0 : i], count = average.dim(2 + d).constant();
    Literal factors(DType::F64, {count});
    for (int64_t k = 0; k < count; ++k) {
      const int64_t start = k * made.window.strides[i] - made.window.padding_low[i];
      factors.set(k, static_cast<double>(made.size[i]) / static_cast<double>(std::min(start + made.size[i], end) - start));
    }
    Shape shape(static_cast<size_t>(v.rank()), Dim(1));
    shape[static_cast<size_t>(2 + d)] = count;
    result = result * reshape(constant(*v.builder, factors.converted(v.dtype())), shape);
  }
  return result;
}

Value adaptive_average_pool(At x, const std::vector<int64_t>& sizes) {
  const PlaceScope place(x);
  Value v = x.value;
  const int64_t first = v.rank() - static_cast<int64_t>(sizes.size());
  if (std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size == 1; })) {
    Dims dims;
    for (int64_t d = first; d < v.rank(); ++d) dims.push_back(d);
    return mean(v, dims, true);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t dim = first + static_cast<int64_t>(i);
    if (v.dim(dim) == Dim(sizes[i])) continue;
    if (sizes[i] == 1) {
      v = mean(v, {dim}, true);
      continue;
    }
    if (!v.dim(dim).is_constant()) {
      v = adaptive_average_symbolic(v, dim, sizes[i]);
      continue;
    }
    v = along_dim(v, dim, adaptive_matrix(v.dim(dim).constant(), sizes[i]));
  }
  return v;
}

MaxPooled adaptive_max_pool(At x, const std::vector<int64_t>& sizes) {
  const PlaceScope place(x);
  const Value v = x.value;
  PoolOptions options;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (!v.dim(2 + static_cast<int64_t>(i)).is_constant() && std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size > 0 && size <= 16; }))
      return adaptive_max_symbolic(v, sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Dim& size = v.dim(2 + static_cast<int64_t>(i));
    if (!size.is_constant() || sizes[i] <= 0 || size.constant() % sizes[i] != 0) return adaptive_max_pool_uneven(v, sizes);
    options.size.push_back(size.constant() / sizes[i]);
  }
  options.strides = options.size;
  return max_pool_with_indices(v, options, false);
}

Value resize(At x, ResizeKind kind, const Shape& sizes, bool align_corners, const std::vector<double>& scales) {
  const PlaceScope place(x);
  Value v = autocast("upsample_nearest1d", x.value);  // all kinds are on the same lists
  const AutocastScope off(*v.builder, {});
  if (static_cast<int64_t>(sizes.size()) != v.rank() - 2) fail(*v.builder, "resize: found " + std::to_string(sizes.size()) + " sizes for " + text(v.type()));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t dim = 2 + static_cast<int64_t>(i);
    const double scale = scales.empty() ? 0 : scales[i];
    if (kind == ResizeKind::Nearest || kind == ResizeKind::NearestExact) {
      v = nearest(v, dim, sizes[i], kind == ResizeKind::NearestExact, scale);
      continue;
    }
    if (v.dim(dim) == sizes[i]) continue;
    if (!v.dim(dim).is_constant() || !sizes[i].is_constant()) {
      v = resize_symbolic(v, dim, sizes[i], kind, align_corners, scale);
      continue;
    }
    v = along_dim(v, dim, resize_matrix(kind, v.dim(dim).constant(), sizes[i].constant(), align_corners, scale));
  }
  return v;
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
