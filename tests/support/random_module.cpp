// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_module.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/composite/attention.h"
#include "stepgraph/compile/ops/composite/linear.h"
#include "stepgraph/compile/ops/composite/losses.h"
#include "stepgraph/compile/ops/composite/normalization.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::testing {
namespace {

/// A value with what is known of its numbers.
struct Item {
  Value value;
  double bound = 1;      ///< of their magnitude
  bool is_exact = true;  ///< every way to run the module gives the same bits
};

class Generator {
 public:
  Generator(Builder& builder, Dice& dice, const RandomModuleOptions& options, RandomModule& made) : b_(builder), dice_(dice), options_(options), made_(made) {}

  void run() {
    made_.has_gradients = !dice_.chance(3);
    make_inputs();
    for (int64_t steps = 3 + dice_.roll(12); steps > 0; --steps) {
      Item item = one();
      if (count_of(item.value) > options_.elements_max) continue;  // nothing reads it
      if (item.bound > 30) item = tamed(item);
      items_.push_back(item);
    }
    finish();
  }

 private:
  // ---- inputs and outputs
  void make_inputs() {
    const bool symbolic = dice_.chance(2) && options_.symbols;
    const int64_t n = dice_.chance(10) ? 0 : 1 + dice_.roll(9);
    if (symbolic) {
      made_.symbols = {{"n", n}};
      b_.module().symbols.declare({.name = "n", .kind = SymbolKind::Size, .minimum = 0, .maximum = 64, .buckets = {}});
    }
    const int64_t count = 1 + dice_.roll(4);
    for (int64_t i = 0; i < count; ++i) {
      Shape shape;
      int64_t elements = 1;
      for (int64_t d = dice_.chance(9) ? 0 : 1 + dice_.roll(dice_.chance(3) ? 4 : 3); d > 0; --d) {
        const bool is_symbol = symbolic && dice_.chance(3);
        const int64_t size = is_symbol ? n : a_size();
        if (elements * size > options_.elements_max) continue;
        elements *= size;
        shape.push_back(is_symbol ? Dim::symbol("n") : Dim(size));
      }
      const DType dtype = options_.integers && i > 0 && dice_.chance(4) ? an_integer() : a_float();
      const Value value = b_.input({dtype, shape, {}}, {RoleKind::Parameter, "x" + std::to_string(i)});
      made_.inputs.push_back(numbers(dtype, sizes_of(value)));
      items_.push_back({value, is_floating(dtype) ? 1.0 : dtype == DType::Bool ? 1.0 : 9.0, true});
    }
    seed_ = b_.input({DType::I64, {}, {}}, {RoleKind::Seed, "seed"});
    step_ = b_.input({DType::I64, {}, {}}, {RoleKind::Step, "step"});
    made_.inputs.push_back(Literal::integer(DType::I64, 5));
    made_.inputs.push_back(Literal::integer(DType::I64, 9));
    inputs_ = items_;
  }
  int64_t a_size() {
    static constexpr int64_t usual[] = {1, 2, 3, 4, 5, 6, 7, 8, 3, 4, 16, 17, 20, 33};
    if (options_.largest_size > 7 && dice_.chance(25)) return dice_.chance(2) ? 4100 + dice_.roll(300) : 250 + dice_.roll(20);
    return std::min(options_.largest_size, usual[dice_.roll(options_.largest_size > 7 ? 14 : 8)]);
  }
  DType a_float() {
    // The first is the usual one.
    return dice_.chance(2) ? options_.floats[0] : options_.floats[static_cast<size_t>(dice_.roll(static_cast<int64_t>(options_.floats.size())))];
  }
  DType an_integer() {
    static constexpr DType all[] = {DType::I64, DType::I32, DType::U8, DType::Bool, DType::I8};
    return all[dice_.roll(5)];
  }
  Literal numbers(DType dtype, const Sizes& sizes) {
    Literal result(dtype, sizes);
    for (int64_t i = 0; i < result.count(); ++i) {
      if (is_floating(dtype)) result.set(i, static_cast<double>(dice_.roll(1 << 24)) * 0x1p-23 - 1);
      else result.set_integer(i, dtype == DType::Bool ? dice_.roll(2) : dtype == DType::U8 ? dice_.roll(10) : dice_.roll(19) - 9);
    }
    return result;
  }
  void output(const Value& value, const std::string& name) { b_.output(value, {RoleKind::UserOutput, name}); }
  void finish() {
    // The last value, and others at random: what is no output may stay in a register.
    for (size_t i = inputs_.size(); i < items_.size(); ++i)
      if (i + 1 == items_.size() || dice_.chance(4)) output(items_[i].value, "v" + std::to_string(i));
    if (b_.graph().outputs.empty()) output(items_.back().value, "v");
    for (size_t i = 0; options_.states && i < inputs_.size(); ++i) b_.output(next_state(inputs_[i].value), {RoleKind::NewState, "x" + std::to_string(i)});
    if (!made_.has_gradients) return;
    const DType dtype = wide_dtype(options_.floats[0]);
    Value loss = scalar(b_, dtype, 0);
    for (size_t i = items_.size() - std::min<size_t>(items_.size(), 4); i < items_.size(); ++i)
      if (is_floating(items_[i].value.dtype())) loss = loss + sum(convert(sin(items_[i].value), dtype));
    output(loss, "loss");
    std::vector<Value> parameters;
    for (const Item& input : inputs_)
      if (is_floating(input.value.dtype())) parameters.push_back(input.value);
    const auto found = gradients(b_, loss, parameters);
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i]) output(*found[i], "g" + std::to_string(i));
  }

  Value next_state(const Value& state) {
    if (!is_floating(state.dtype())) return state;
    std::vector<Value> fitting;
    for (const Item& item : items_)
      if (item.value.type() == state.type() && item.bound <= 30) fitting.push_back(item.value);
    if (dice_.chance(4)) return state * 0.5 + tanh(state);
    if (dice_.chance(3) && state.rank() > 0) return flip(state, {dim_of(state)}) * 0.75;
    if (dice_.chance(3) && state.rank() > 1 && state.dim(-1) == state.dim(-2)) return transpose(state, -1, -2);
    return fitting[static_cast<size_t>(dice_.roll(static_cast<int64_t>(fitting.size())))];
  }

  // ---- what is there
  int64_t size_of(const Value& value, int64_t dim) const { return evaluate(value.dim(dim), made_.symbols); }
  Sizes sizes_of(const Value& value) const {
    Sizes sizes;
    for (const Dim& dim : value.shape()) sizes.push_back(evaluate(dim, made_.symbols));
    return sizes;
  }
  int64_t count_of(const Value& value) const { return evaluate(element_count(value.shape()), made_.symbols); }
  Item any_item() { return items_[static_cast<size_t>(dice_.roll(static_cast<int64_t>(items_.size())))]; }
  Item any_float() {
    for (int tries = 0; tries < 6; ++tries)
      if (const Item item = any_item(); is_floating(item.value.dtype())) return item;
    return inputs_[0];
  }
  Item exact_float() {
    for (int tries = 0; tries < 6; ++tries)
      if (const Item item = any_float(); item.is_exact) return item;
    return inputs_[0];
  }
  /// What has a kink has a gradient that jumps.
  Item kinked_float() { return made_.has_gradients ? exact_float() : any_float(); }
  /// With at least `rank` dims, of the same elements.
  static Item with_dims(Item item, int64_t rank = 1) {
    while (item.value.rank() < rank) item.value = unsqueeze(item.value, 0);
    return item;
  }
  int64_t dim_of(const Value& x) { return dice_.roll(x.rank()); }
  Dims some_dims(const Value& x) {
    Dims dims;
    for (int64_t d = 0; d < x.rank(); ++d)
      if (dice_.chance(2)) dims.push_back(d);
    if (dims.empty()) dims.push_back(dim_of(x));
    return dims;
  }
  bool has_elements(const Value& x) const { return count_of(x) > 0; }
  /// In [-1, 1].
  static Value unit(const Item& x) { return x.bound <= 1 ? x.value : tanh(x.value); }
  Item tamed(const Item& x) {
    if (is_floating(x.value.dtype())) return {tanh(x.value), 1, false};
    if (x.value.dtype() == DType::Bool) return x;
    return {remainder(x.value, full(b_, x.value.dtype(), {}, 13)), 13, x.is_exact};
  }
  /// Something of x's dtype that broadcasts against x.
  Item partner(const Item& x) {
    for (int tries = 0; tries < 5; ++tries) {
      Item y = any_item();
      if (y.value.shape() != x.value.shape() && y.value.rank() != 0) {
        if (y.value.rank() == 0 || y.value.rank() > x.value.rank() || !dice_.chance(2)) continue;
        bool fits = true;
        for (int64_t d = 1; d <= y.value.rank(); ++d) fits = fits && (y.value.dim(-d) == x.value.dim(-d) || y.value.dim(-d) == Dim(1));
        if (!fits) continue;
      }
      if (is_floating(y.value.dtype()) && !is_floating(x.value.dtype())) continue;
      if (x.value.dtype() == DType::Bool && y.value.dtype() != DType::Bool) y.value = greater(y.value, 1), y.bound = 1;
      y.value = convert(y.value, x.value.dtype());
      // Bounds of integers hold if nothing wraps.
      if (x.value.dtype() == DType::U8) y.bound = 255;
      return y;
    }
    if (x.value.rank() > 0 && is_floating(x.value.dtype()) && has_elements(x.value)) return {mean(x.value, {dim_of(x.value)}, true), x.bound, false};
    return x;
  }
  Item condition_for(const Value& x) {
    const Item y = exact_float();
    if (y.value.shape() == x.shape()) return {greater(y.value, 0.123), 1, true};
    for (const Item& item : items_)
      if (item.value.dtype() == DType::Bool && item.value.shape() == x.shape()) return item;
    return {less(remainder(iota(b_, DType::I64, x.rank() == 0 ? Shape{1} : x.shape(), 0), full(b_, DType::I64, {}, 3)), 2), 1, true};
  }
  /// Integers in [0, size), of that shape.
  Value indices(const Shape& shape, const Dim& size) {
    const Value limit = size_value(b_, DType::I64, size);
    const Shape shaped = shape.empty() ? Shape{1} : shape;
    Value numbers = iota(b_, DType::I64, shaped, dice_.roll(static_cast<int64_t>(shaped.size()))) * (1.0 + static_cast<double>(dice_.roll(5))) + static_cast<double>(dice_.roll(3));
    for (const Item& item : items_)
      if (is_integer(item.value.dtype()) && item.value.shape() == shape && dice_.chance(2)) numbers = convert(item.value, DType::I64);
    const Value inside = remainder(numbers, limit);
    return dice_.chance(3) ? convert(inside, DType::I32) : inside;
  }
  Value key() { return fold_in(fold_in(seed_, step_), next_key_++); }

  // ---- one more value
  Item one() {
    switch (dice_.roll(16)) {
      case 0: case 1: case 2: return smooth();
      case 3: return kinked();
      case 4: case 5: return two();
      case 6: case 7: return reduction();
      case 8: case 9: case 10: return movement();
      case 11: return product();
      case 12: return by_index();
      case 13: return dice_.chance(2) ? along() : windows();
      case 14: return dice_.chance(2) ? composite() : loop_or_call();
      default: return options_.integers ? of_integers() : two();
    }
  }
  Item smooth() {
    const Item x = any_float();
    const Value u = unit(x);
    switch (dice_.roll(18)) {
      case 0: return {tanh(x.value), 1, false};
      case 1: return {exp(u), 2.8, false};
      case 2: return {log(x.value * x.value + 0.5), 8, false};
      case 3: return {rsqrt(x.value * x.value + 0.25), 2, false};
      case 4: return {sqrt(x.value * x.value + 0.3), x.bound + 1, x.is_exact && !made_.has_gradients};
      case 5: return {sigmoid(x.value), 1, false};
      case 6: return {erf(x.value), 1, false};
      case 7: return {sin(x.value), 1, false};
      case 8: return {cos(x.value * 3.0), 1, false};
      case 9: return {reciprocal(x.value * x.value + 0.5), 2, x.is_exact};
      case 10: return {unary(dice_.chance(2) ? UnaryKind::Expm1 : UnaryKind::Exp2, u), 2, false};
      case 11: return {unary(dice_.chance(2) ? UnaryKind::Asin : UnaryKind::Atanh, u * 0.75), 2, false};
      case 12: return {unary(dice_.chance(2) ? UnaryKind::Atan : UnaryKind::Asinh, x.value), 5, false};
      case 13: return {unary(dice_.chance(2) ? UnaryKind::Log1p : UnaryKind::Acosh, x.value * x.value + 1.5), 8, false};
      case 14: return {unary(dice_.chance(2) ? UnaryKind::Log2 : UnaryKind::Log10, x.value * x.value + 0.5), 10, false};
      case 15: return {unary(dice_.chance(2) ? UnaryKind::Sinh : UnaryKind::Tan, u), 2, false};
      case 16: return {unary(dice_.chance(2) ? UnaryKind::Erfc : UnaryKind::Lgamma, u * 0.5 + 1.0), 3, false};
      default: return {neg(x.value) * 0.5, x.bound, x.is_exact};
    }
  }
  Item kinked() {
    const Item x = kinked_float();
    switch (dice_.roll(8)) {
      case 0: return {abs(x.value), x.bound, x.is_exact};
      case 1: return {relu(x.value), x.bound, x.is_exact};
      case 2: return {where(condition_for(x.value).value, x.value, neg(x.value) * 0.5), x.bound, x.is_exact};
      case 3: return {clamp(x.value, -0.4, 0.7), 1, x.is_exact};
      case 4: return {maximum(x.value, 0.25 * x.value + 0.1), x.bound + 1, x.is_exact};
      default: break;
    }
    const Item e = exact_float();
    switch (dice_.roll(6)) {
      case 0: return {sign(e.value), 1, true};
      case 1: return {floor(e.value * 4.0), 4 * e.bound + 1, true};
      case 2: return {ceil(e.value * 3.0) + round(e.value * 5.0), 8 * e.bound + 2, true};
      case 3: return {remainder(e.value, full(b_, e.value.dtype(), {}, 0.375)), 1, true};
      case 4: return {floor_divide(e.value, full(b_, e.value.dtype(), {}, 0.375)), 3 * e.bound + 1, true};
      default: return {trunc(e.value * 2.5), 3 * e.bound, true};
    }
  }
  Item two() {
    const Item x = any_float(), y = partner(x);
    const bool both = x.is_exact && y.is_exact;
    switch (dice_.roll(10)) {
      case 0: return {x.value + y.value, x.bound + y.bound, both};
      case 1: return {x.value - y.value, x.bound + y.bound, both};
      case 2: return {x.value * y.value, x.bound * y.bound, both};
      case 3: return {x.value / (y.value * y.value + 0.5), 2 * x.bound, both};
      case 4: return {binary(BinaryKind::Atan2, x.value, y.value * y.value + 0.5), 3.2, false};
      case 5: return {pow(x.value * x.value + 0.5, unit(y)), x.bound * x.bound + 3, false};
      case 6: return {x.value * random_uniform(key(), x.value.dtype(), x.value.shape()), x.bound, x.is_exact};
      case 7: return {x.value + random_normal(key(), x.value.dtype(), x.value.shape()), x.bound + 6, false};
      case 8: {
        const DType dtype = a_float();
        return {convert(x.value, dtype), x.bound, x.is_exact};
      }
      default:
        if (made_.has_gradients && !both) return {x.value * 0.25 + y.value, x.bound + y.bound, both};
        return {dice_.chance(2) ? maximum(x.value, y.value) : minimum(x.value, y.value), std::max(x.bound, y.bound), both};
    }
  }
  Item of_integers() {
    Item x = any_item();
    if (is_floating(x.value.dtype())) {
      const Item e = exact_float();
      switch (dice_.roll(4)) {
        case 0: return {convert(e.value * 6.0, dice_.chance(2) ? DType::I32 : DType::I64), 6 * e.bound + 1, true};
        case 1: return {compare(static_cast<CompareKind>(dice_.roll(6)), e.value, full(b_, e.value.dtype(), {}, 0.25)), 1, true};
        case 2: return {is_finite(e.value), 1, true};
        default: return has_elements(with_dims(e).value) ? Item{argmax(with_dims(e).value, dim_of(with_dims(e).value)), static_cast<double>(options_.elements_max), true} : e;
      }
    }
    if (!x.is_exact) return x;
    const Item y = partner(x);
    if (x.value.dtype() == DType::Bool) {
      switch (dice_.roll(5)) {
        case 0: return {logical_not(x.value), 1, true};
        case 1: return {dice_.chance(2) ? logical_and(x.value, y.value) : logical_xor(x.value, y.value), 1, true};
        case 2: return {dice_.chance(2) ? any(x.value, {}) : all(x.value, {}), 1, true};
        case 3: return {convert(x.value, an_integer()), 1, true};
        default: return {convert(x.value, a_float()), 1, true};
      }
    }
    const double wide = x.value.dtype() == DType::U8 ? 255 : x.value.dtype() == DType::I8 ? 128 : x.bound + y.bound;
    switch (dice_.roll(12)) {
      case 0: return {x.value + y.value, wide, true};
      case 1: return {x.value - y.value, wide, true};
      case 2: return {x.value * y.value, std::max(wide, x.bound * y.bound), true};
      case 3: return {dice_.chance(2) ? maximum(x.value, y.value) : minimum(x.value, y.value), wide, true};
      case 4: return {floor_divide(x.value, full(b_, x.value.dtype(), {}, 3)), x.bound, true};
      case 5: return {remainder(x.value, full(b_, x.value.dtype(), {}, 5)), 5, true};
      case 6: return {binary(dice_.chance(2) ? BinaryKind::And : BinaryKind::Xor, x.value, y.value), std::max(wide, 2 * x.bound), true};
      case 7: return {compare(static_cast<CompareKind>(dice_.roll(6)), x.value, y.value), 1, true};
      case 8: return {convert(x.value, an_integer()), std::max(x.bound, 255.0), true};
      case 9: return {convert(x.value, a_float()), std::max(x.bound, 1.0), true};
      case 10: return {dice_.chance(2) ? abs(x.value) : neg(x.value), wide, true};
      default: {
        const Item d = with_dims(x);
        const double sum_bound = x.bound * static_cast<double>(std::max<int64_t>(1, count_of(x.value)));
        if (dice_.chance(2)) return {cumsum(d.value, dim_of(d.value)), std::max(255.0, sum_bound), true};
        return {sum(d.value, some_dims(d.value), dice_.chance(2)), std::max(255.0, sum_bound), true};
      }
    }
  }
  Item reduction() {
    const Item x = with_dims(dice_.chance(4) ? kinked_float() : any_float());
    const Dims dims = dice_.chance(5) ? all_dims_of(x.value) : some_dims(x.value);
    const bool keep = dice_.chance(2);
    const auto count = static_cast<double>(std::max<int64_t>(1, count_of(x.value)));
    switch (dice_.roll(9)) {
      case 0: case 1: return {sum(x.value, dims, keep), x.bound * count, false};
      case 2: return {mean(x.value, dims, keep), x.bound, false};
      case 3: return {prod(1.0 + 0.1 * unit(x), {dim_of(x.value)}, keep), 30, false};
      case 4: return {moments(x.value, dims, keep).variance, x.bound * x.bound, false};
      case 5: return {moments(x.value, dims, keep).mean, x.bound, false};
      case 6: return {sqrt(sum(x.value * x.value, dims, keep) + 0.1), x.bound * count, false};
      default: break;
    }
    // Which of nearly equal elements wins is a matter of rounding.
    const Value from = made_.has_gradients && !x.is_exact ? stop_gradient(x.value) : x.value;
    return {dice_.chance(2) ? amax(from, dims, keep) : amin(from, dims, keep), x.bound, x.is_exact};
  }
  static Dims all_dims_of(const Value& x) {
    Dims dims(static_cast<size_t>(x.rank()));
    std::iota(dims.begin(), dims.end(), 0);
    return dims;
  }

  Item movement() {
    Item x = with_dims(any_item());
    x.value = moved(x);
    x.bound = std::max(x.bound, 1.0);
    return x;
  }
  Value moved(const Item& item) {
    const Value x = item.value;
    const int64_t dim = dim_of(x), size = size_of(x, dim);
    const bool is_constant = x.dim(dim).is_constant();
    switch (dice_.roll(15)) {
      case 0: return x.rank() > 1 ? flatten(x, x.rank() - 2, x.rank() - 1) : unsqueeze(x, dice_.roll(2));
      case 1: return flatten(x, 0, x.rank() - 1);
      case 2:
        for (int64_t f : {2, 3})
          if (is_constant && size % f == 0) return unflatten(x, dim, {size / f, f});
        return flip(x, {dim});
      case 3: case 4: {
        Dims order = all_dims_of(x);
        std::rotate(order.begin(), order.begin() + dice_.roll(x.rank()), order.end());
        if (x.rank() > 2 && dice_.chance(2)) std::swap(order[0], order[1]);
        return permute(x, order);
      }
      case 5: case 6: {
        const int64_t first = is_constant ? dice_.roll(size + 1) : 0;
        return slice(x, dim, first, x.dim(dim), 1 + dice_.roll(3));
      }
      case 7: {
        std::vector<Value> parts = {x, dice_.chance(2) ? flip(x, {dim}) : x};
        for (const Item& other : items_)
          if (other.value.dtype() == x.dtype() && other.value.rank() == x.rank() && same_but(other.value, x, dim) && dice_.chance(2)) parts.push_back(other.value);
        if (is_constant && size > 1) parts.push_back(slice(x, dim, 1, x.dim(dim)));
        return concatenate(parts, dim);
      }
      case 8: case 9: {
        Shape low(static_cast<size_t>(x.rank()), 0), high = low;
        low[static_cast<size_t>(dim)] = dice_.roll(3), high[static_cast<size_t>(dim)] = dice_.roll(3);
        if (dice_.chance(3)) low[0] = 1;
        return pad(x, low, high, x.dtype() == DType::Bool ? 1 : is_floating(x.dtype()) ? 0.5 : 3);
      }
      case 10: {
        Shape shape = x.shape();
        if (dice_.chance(2)) shape.insert(shape.begin(), Dim(1 + dice_.roll(3)));
        const auto offset = shape.size() - x.shape().size();
        for (size_t d = 0; d < x.shape().size(); ++d)
          if (x.shape()[d] == Dim(1)) shape[d + offset] = Dim(1 + dice_.roll(5));
        return broadcast_to(x, shape);
      }
      case 11: return is_constant && size > 0 ? select(x, dim, dice_.roll(size)) : flip(x, {dim});
      case 12: return is_constant && size > 0 ? roll(x, dim, Dim(dice_.roll(size))) : flip(x, {dim});
      case 13: return x.rank() > 1 && is_floating(x.dtype()) ? triangle(x, dice_.roll(3) - 1, dice_.chance(2)) : flip(x, some_dims(x));
      default: {
        if (!is_constant || size < 3) return flip(x, some_dims(x));
        Shape low(static_cast<size_t>(x.rank()), 0), high = low;
        low[static_cast<size_t>(dim)] = 1, high[static_cast<size_t>(dim)] = 2;
        static constexpr const char* modes[] = {"reflect", "replicate", "circular"};
        return pad_mode(x, low, high, modes[dice_.roll(3)]);
      }
    }
  }
  static bool same_but(const Value& a, const Value& b, int64_t dim) {
    for (int64_t d = 0; d < a.rank(); ++d)
      if (d != dim && a.dim(d) != b.dim(d)) return false;
    return true;
  }

  Item product() {
    const Item x = with_dims(any_float());
    const double bound = x.bound * x.bound * static_cast<double>(std::max<int64_t>(1, count_of(x.value)));
    if (x.value.rank() < 2) return {matmul(x.value, x.value), bound, false};
    if (dice_.chance(3)) {
      // Another one that fits by its last dims.
      for (const Item& y : items_)
        if (y.value.dtype() == x.value.dtype() && y.value.rank() == 2 && y.value.dim(0) == x.value.dim(-1))
          return {matmul(x.value, y.value), x.bound * y.bound * static_cast<double>(std::max<int64_t>(1, count_of(y.value))), false};
    }
    if (x.value.rank() >= 3 && dice_.chance(2)) return {einsum(dice_.chance(2) ? "...ij,...kj->...ki" : "...ij,...ik->...jk", std::vector<Value>{x.value, x.value}), bound, false};
    if (dice_.chance(2)) {
      const Value turned = transpose(x.value, -1, -2);
      return {dice_.chance(2) ? matmul(x.value, turned) : matmul(turned, x.value), bound, false};
    }
    const Value flat = x.value.rank() == 2 ? x.value : flatten(x.value, 0, x.value.rank() - 2);
    if (dice_.chance(3)) return {linear(x.value, slice(flat, 0, 0, 1 < size_of(flat, 0) && flat.dim(0).is_constant() ? Dim(2) : flat.dim(0)), {}), bound, false};
    if (dice_.chance(2)) return {matmul(flat, permute(flat, {1, 0})), bound, false};
    return {matmul(permute(flat, {1, 0}), sin(flat)), bound, false};
  }
  Item by_index() {
    const Item x = with_dims(any_float());
    const int64_t dim = dim_of(x.value), size = size_of(x.value, dim);
    if (size == 0 || !has_elements(x.value)) return x;
    const Dim length = x.value.dim(dim);
    switch (dice_.roll(10)) {
      case 8: return {index(x.value, {indices({Dim(3)}, x.value.dim(0))}), x.bound, x.is_exact};
      case 9: {
        const bool adds = dice_.chance(2);
        return {index_put(x.value, {indices({x.value.dim(0)}, x.value.dim(0))}, scalar(b_, x.value.dtype(), 0.5), adds), x.bound + static_cast<double>(size), x.is_exact && !adds};
      }
      case 0: return {index_select(x.value, dim, indices({Dim(1 + dice_.roll(6))}, length)), x.bound, x.is_exact};
      case 1: return {index_select(x.value, dim, indices({Dim(2), Dim(1 + dice_.roll(3))}, length)), x.bound, x.is_exact};
      case 2: return {index_add(x.value, dim, indices({length}, length), tanh(x.value)), x.bound + static_cast<double>(size), false};
      case 3: return {gather(x.value, dim, indices(x.value.shape(), length)), x.bound, x.is_exact};
      case 4: return {scatter_add(x.value, dim, indices(x.value.shape(), length), sin(x.value)), x.bound + static_cast<double>(size), false};
      case 5: return {scatter(x.value, dim, indices(x.value.shape(), length), neg(x.value)), x.bound, x.is_exact};
      case 6: {
        if (made_.has_gradients) return {gather(x.value, dim, indices(x.value.shape(), length)), x.bound, x.is_exact};
        const ScatterReduce op{dice_.chance(2) ? ScatterReduceKind::Max : ScatterReduceKind::Min, dim};
        return {b_.emit_one(op, {x.value, indices(x.value.shape(), length), neg(x.value)}), x.bound, x.is_exact};
      }
      default: {
        const Item table = with_dims(any_float(), 2);
        if (table.value.rank() != 2 || !has_elements(table.value)) return x;
        return {embedding(indices({Dim(1 + dice_.roll(4)), Dim(2)}, table.value.dim(0)), table.value), table.bound, table.is_exact};
      }
    }
  }
  /// Scans and orders.
  Item along() {
    const Item x = with_dims(any_float());
    const int64_t dim = dim_of(x.value), size = size_of(x.value, dim);
    const double bound = x.bound * static_cast<double>(std::max<int64_t>(1, size));
    switch (dice_.roll(7)) {
      case 6: return {b_.emit_one(Cumulative{dice_.chance(2) ? CumulativeKind::Max : CumulativeKind::Min, dim, dice_.chance(2)}, {x.is_exact ? x.value : stop_gradient(x.value)}), x.bound, x.is_exact};
      case 0: case 1: return {cumsum(x.value, dim, dice_.chance(2)), bound, false};
      case 2: return {cumprod(1.0 + 0.1 * unit(x), dim, dice_.chance(2)), 30, false};
      case 3: return has_elements(x.value) ? Item{logcumsumexp(unit(x), dim), 8, false} : x;
      case 4: {
        const Item e = with_dims(exact_float());
        if (!has_elements(e.value)) return e;
        return {sort(e.value, dim_of(e.value), dice_.chance(2)).values, e.bound, true};
      }
      default: {
        const Item e = with_dims(exact_float());
        const int64_t d = dim_of(e.value);
        if (!e.value.dim(d).is_constant() || size_of(e.value, d) < 2 || !has_elements(e.value)) return e;
        return {topk(e.value, 1 + dice_.roll(size_of(e.value, d) - 1), d, dice_.chance(2)).values, e.bound, true};
      }
    }
  }
  Item windows() {
    const Item x = with_dims(kinked_float(), 3);
    if (!has_elements(x.value) || !x.value.dim(-1).is_constant() || size_of(x.value, -1) < 3) return x;
    const Value image = x.value.rank() == 3 ? x.value : flatten(x.value, 0, x.value.rank() - 3);
    const int64_t stride = 1 + dice_.roll(2), padding = dice_.roll(2);
    switch (dice_.roll(4)) {
      case 0: return {average_pool(image, {.size = {2}, .strides = {stride}, .padding = {padding}, .count_include_pad = dice_.chance(2)}), x.bound, false};
      case 1: return {max_pool(image, {.size = {3}, .strides = {stride}, .padding = {padding}}), x.bound, x.is_exact};
      default: break;
    }
    if (!image.dim(1).is_constant()) return x;
    if (image.dim(0).is_constant() && dice_.chance(2)) return planes(image, x);
    const int64_t channels = size_of(image, 1), out = 1 + dice_.roll(4);
    const Value weight = random_uniform(key(), image.dtype(), {out, channels, 3});
    return {convolution(image, weight, {.strides = {stride}, .padding = {padding}, .dilation = {}}), 3 * static_cast<double>(channels) * x.bound, false};
  }
  /// Windows in two dims over an image [N, C, L], whose first dim becomes rows.
  Item planes(const Value& image, const Item& x) {
    const Value plane = unsqueeze(transpose(image, 0, 1), 0);  // [1, C, N, L]
    const int64_t channels = size_of(plane, 1), rows = size_of(plane, 2), padding = dice_.roll(2), stride = 1 + dice_.roll(2);
    const double area = 9 * static_cast<double>(channels) * x.bound;
    if (rows + 2 * padding < 3) return {average_pool(plane, {.size = {1, 2}, .strides = {1, stride}, .padding = {}}), x.bound, false};
    switch (dice_.roll(4)) {
      case 0: return {average_pool(plane, {.size = {2, 3}, .strides = {stride, 1}, .padding = {padding, 1}, .count_include_pad = dice_.chance(2)}), x.bound, false};
      case 1: return {max_pool(plane, {.size = {2, 3}, .strides = {1, stride}, .padding = {1, padding}}), x.bound, x.is_exact};
      case 2: {
        const Value weight = random_uniform(key(), plane.dtype(), {Dim(channels), Dim(1), Dim(3), Dim(3)});
        return {convolution(plane, weight, {.strides = {stride}, .padding = {padding}, .dilation = {}, .groups = channels}), area, false};
      }
      default: {
        const Value weight = random_uniform(key(), plane.dtype(), {Dim(channels), Dim(1 + dice_.roll(3)), Dim(2), Dim(3)});
        return {convolution_transpose(plane, weight, {.strides = {stride}, .padding = {}, .dilation = {}}), area, false};
      }
    }
  }
  /// One body over a table of tensors, as an optimizer's.
  Item mapped() {
    const Item x = any_float(), y = any_float();
    const DType dtype = x.value.dtype();
    const Value a = stop_gradient(x.value), b = stop_gradient(convert(y.value, dtype));
    const Value tensors[] = {a, b, sin(a), cos(b), tanh(scalar(b_, dtype, 0.3))};
    const GraphId body = b_.module().add_graph("map" + std::to_string(b_.module().graphs.size()));
    MapTensors map;
    map.body = body, map.tensors = 2, map.tables = 2;
    map.reduced = dice_.roll(2);
    {
      Builder inner(b_.module(), body);
      const Value p = inner.input({dtype, {}, {}}), g = inner.input({dtype, {}, {}}), rate = inner.input({dtype, {}, {}});
      inner.output(p * 0.5 - rate * g);
      if (dice_.chance(2)) inner.output(tanh(p * g));
      if (map.reduced > 0) inner.output(p * p);
    }
    const std::vector<Value> results = b_.emit(map, tensors);
    return {results[static_cast<size_t>(dice_.roll(static_cast<int64_t>(results.size())))], 4 * std::max(x.bound, y.bound) * (map.reduced > 0 ? 1000.0 : 1.0), false};
  }
  /// Two heads of queries over one of keys, with a mask; or a loss over classes.
  Item of_rows(const Item& x) {
    const Value rows = x.value.rank() == 2 ? x.value : flatten(with_dims(x, 2).value, 0, with_dims(x, 2).value.rank() - 2);
    if (dice_.chance(2)) {
      const Value shape_of = sum(rows, {1});
      const CrossEntropyOptions classes{.label_smoothing = dice_.chance(2) ? 0.1 : 0.0};
      return {cross_entropy_sum(rows, indices(shape_of.shape(), rows.dim(1)), classes).numerator, (2 * x.bound + 8) * static_cast<double>(count_of(rows)), false};
    }
    const Value head = unsqueeze(rows, 0), heads = concatenate(std::vector<Value>{head, sin(head)}, 0);
    AttentionOptions options;
    options.scale = 0.5;
    if (dice_.chance(2)) options.mask = less_equal(iota(b_, DType::I64, {rows.dim(0), rows.dim(0)}, 1), iota(b_, DType::I64, {rows.dim(0), rows.dim(0)}, 0));
    return {scaled_dot_product_attention(heads, tanh(head), head, options), 2 * x.bound, false};
  }
  Item composite() {
    const Item x = with_dims(any_float());
    const int64_t dim = dim_of(x.value);
    if (!has_elements(x.value)) return x;
    switch (dice_.roll(11)) {
      case 7: case 8: return options_.integers ? mapped() : Item{softmax(x.value, dim), 1, false};
      case 9: case 10: return of_rows(x);
      case 0: return {softmax(x.value, dim), 1, false};
      case 1: return {log_softmax(x.value, dim), 2 * x.bound + 8, false};
      case 2: return {layer_norm(x.value, 1, std::nullopt, std::nullopt, 0.1), 6, false};
      case 3: return {rms_norm(x.value, 1, std::nullopt, 0.1), 6, false};
      case 4: return {dice_.chance(2) ? gelu(x.value) : silu(x.value), x.bound, false};
      case 5: return {dropout(x.value, 0.3, key()), 2 * x.bound, x.is_exact};
      default: {
        const Item q = with_dims(x, 3);
        const Value k = tanh(q.value), v = dice_.chance(2) ? q.value : sin(q.value);
        AttentionOptions options;
        options.causal = dice_.chance(2);
        options.scale = 0.5;
        if (dice_.chance(3)) options.dropout = 0.25, options.key = key();
        return {scaled_dot_product_attention(q.value, k, v, options), 2 * x.bound, false};
      }
    }
  }
  /// Slices of the first dim one after another, with something carried; or a graph called twice.
  Item loop_or_call() {
    const Item x = with_dims(any_float());
    const DType dtype = x.value.dtype();
    const Shape rest(x.value.shape().begin() + 1, x.value.shape().end());
    const Value start = dice_.chance(2) ? full(b_, dtype, rest, 0) : sin(sum(x.value, {0}));
    const GraphId body = b_.module().add_graph("body" + std::to_string(b_.module().graphs.size()));
    const int64_t kind = dice_.roll(4);
    {
      Builder inner(b_.module(), body);
      const Value carried = inner.input({dtype, rest, {}}), slice = inner.input({dtype, rest, {}});
      const Value total = inner.input({dtype, {}, {}});
      Value next = carried * 0.5 + sin(slice);
      if (kind == 1) next = carried * 0.5 + tanh(slice * total);
      if (kind == 2) next = tanh(carried - slice);
      inner.output(next);
      if (kind != 3) inner.output(sin(carried) * slice);
      if (kind == 2) inner.output(next);
    }
    const Value total = tanh(sum(x.value));
    const double bound = 3 * x.bound + 3;
    if (kind == 3 && x.value.dim(0).is_constant() && size_of(x.value, 0) > 0) {
      const Value first[] = {start, select(x.value, 0, 0), total};
      const Value once = call(b_, body, first)[0];
      const Value second[] = {once, start, total};
      return {call(b_, body, second)[0], bound, false};
    }
    Loop loop;
    loop.body = body;
    loop.trip_count = x.value.dim(0);
    loop.symbol = "i" + std::to_string(body.index);
    b_.module().symbols.declare({.name = loop.symbol, .kind = SymbolKind::Iteration, .minimum = 0, .maximum = 4096, .buckets = {}});
    loop.carried = 1;
    loop.scanned = 1;
    loop.reverse = dice_.chance(2);
    const std::vector<Value> results = b_.emit(loop, {start, x.value, total});
    return {results[static_cast<size_t>(dice_.roll(static_cast<int64_t>(results.size())))], bound, false};
  }

  Builder& b_;
  Dice& dice_;
  const RandomModuleOptions& options_;
  RandomModule& made_;
  std::vector<Item> inputs_, items_;
  Value seed_, step_;
  int64_t next_key_ = 0;
};

}  // namespace

RandomModule random_module(Dice& dice, const RandomModuleOptions& options) {
  RandomModule made;
  const GraphId graph = made.module.add_graph("main");
  made.module.entries.push_back({"main", graph});
  Builder builder(made.module, graph);
  Generator(builder, dice, options, made).run();
  remove_dead_nodes(made.module.graph(graph));
  return made;
}

}  // namespace stepgraph::testing
