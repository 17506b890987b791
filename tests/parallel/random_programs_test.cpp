// SPDX-License-Identifier: Apache-2.0
// Random programs with gradients under random layouts of their inputs on random meshes, against one rank. A failure prints its seed.
#include <gtest/gtest.h>

#include <algorithm>

#include "stepgraph/compile/autodiff/gradients.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/composite/activations.h"
#include "stepgraph/compile/ops/functions.h"
#include "tests/parallel/mesh_check.h"

namespace stepgraph {
namespace random_programs_test {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  /// In [0, count).
  int64_t roll(int64_t count) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(count));
  }
  bool chance(int64_t of) { return roll(of) == 0; }

 private:
  uint64_t state_;
};

class Generator {
 public:
  Generator(Builder& builder, Dice& dice) : b_(builder), dice_(dice) {
    const bool symbolic = dice_.chance(2);
    known_ = {{"n", dice_.roll(8)}};
    if (symbolic) b_.module().symbols.declare({.name = "n", .kind = SymbolKind::Size, .minimum = 0, .maximum = 64, .buckets = {}});
    const int64_t count = 1 + dice_.roll(3);
    for (int64_t i = 0; i < count; ++i) {
      Shape shape;
      for (int64_t d = 1 + dice_.roll(3); d > 0; --d) shape.push_back(symbolic && dice_.chance(3) ? Dim::symbol("n") : Dim(1 + dice_.roll(7)));
      inputs_.push_back(parameter_input(b_, "x" + std::to_string(i), DType::F64, shape));
    }
    values_ = inputs_;
    seed_ = b_.input({DType::I64, {}, {}}, {RoleKind::Seed, "seed"});
    step_ = b_.input({DType::I64, {}, {}}, {RoleKind::Step, "step"});
  }

  void run() {
    for (int64_t steps = 3 + dice_.roll(12); steps > 0; --steps) {
      const Value made = one();
      if (count_of(made) <= 600) values_.push_back(made);
    }
    Value loss = scalar(b_, DType::F64, 0);
    for (size_t i = values_.size() - std::min<size_t>(values_.size(), 4); i < values_.size(); ++i) {
      user_output(values_[i], "v" + std::to_string(i));
      loss = loss + sum(sin(values_[i]));
    }
    user_output(loss, "loss");
    const auto found = gradients(b_, loss, inputs_);
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i]) user_output(*found[i], "g" + std::to_string(i));
  }
  const std::vector<Value>& inputs() const { return inputs_; }
  const SymbolValues& known() const { return known_; }

 private:
  int64_t size_of(const Value& value, int64_t dim) const { return evaluate(value.dim(dim), known_); }
  int64_t count_of(const Value& value) const { return evaluate(element_count(value.shape()), known_); }
  Value any() { return values_[static_cast<size_t>(dice_.roll(static_cast<int64_t>(values_.size())))]; }
  int64_t dim_of(const Value& x) { return dice_.roll(x.rank()); }
  /// Of any value: the same elements, with at least one dim.
  Value with_dims() {
    const Value x = any();
    return x.rank() == 0 ? unsqueeze(x, 0) : x;
  }
  /// Something that broadcasts against x.
  Value partner(const Value& x) {
    for (int tries = 0; tries < 4; ++tries) {
      const Value y = any();
      if (y.shape() == x.shape() || y.rank() == 0) return y;
    }
    if (x.rank() > 0 && dice_.chance(2)) return mean(x, {dim_of(x)}, true);
    return x;
  }
  Value one() {
    switch (dice_.roll(7)) {
      case 0: return unary_or_binary();
      case 1: return reduction();
      case 2: return movement();
      case 3: return product();
      case 4: return across();
      case 5: return loop_or_call();
      default: return unary_or_binary();
    }
  }
  Value unary_or_binary() {
    const Value x = any();
    switch (dice_.roll(9)) {
      case 0: return tanh(x);
      case 1: return x + partner(x);
      case 2: return tanh(x * partner(x));
      case 3: return x - partner(x);
      case 4: return where(greater(x, 0.123), x, neg(x) * 0.5);
      case 5: return maximum(x, 0.2 * x + 0.1);
      case 6: return x / 3.0 + 7.0;
      case 7: return x * random_uniform(fold_in(seed_, step_), DType::F64, x.shape());
      default: return convert(convert(x, DType::F32), DType::F64) * 0.25;
    }
  }
  Value reduction() {
    const Value x = with_dims();
    const int64_t dim = dim_of(x);
    const bool keep = dice_.chance(2);
    switch (dice_.roll(6)) {
      case 0: return sum(x, {dim}, keep);
      case 1: return mean(x, {}, false);
      case 2: return stop_gradient(amax(x, {dim}, keep));  // which of nearly equal elements wins is a matter of rounding
      case 3: return tanh(sum(x));
      case 4: return moments(x, {dim}).variance;
      default: return stop_gradient(amin(x, {dim}, keep)) + 1.0;
    }
  }
  Value movement() {
    const Value x = with_dims();
    const int64_t dim = dim_of(x), size = size_of(x, dim);
    switch (dice_.roll(8)) {
      case 0: return x.rank() > 1 ? flatten(x, x.rank() - 2, x.rank() - 1) : unsqueeze(x, dice_.roll(2));
      case 1: return flatten(x, 0, x.rank() - 1);
      case 2:
        for (int64_t f : {2, 3})
          if (x.dim(dim).is_constant() && size % f == 0) return unflatten(x, dim, {size / f, f});
        return flip(x, {dim});
      case 3: {
        Dims order;
        for (int64_t d = 0; d < x.rank(); ++d) order.push_back(d);
        std::rotate(order.begin(), order.begin() + dice_.roll(x.rank()), order.end());
        return permute(x, order);
      }
      case 4: {
        const int64_t first = x.dim(dim).is_constant() ? dice_.roll(size + 1) : 0;
        return slice(x, dim, first, x.dim(dim), 1 + dice_.roll(2));
      }
      case 5: return concatenate(std::vector<Value>{x, tanh(x)}, dim);
      case 6: {
        Shape low(static_cast<size_t>(x.rank()), 0), high = low;
        low[static_cast<size_t>(dim)] = dice_.roll(3), high[static_cast<size_t>(dim)] = dice_.roll(2);
        return pad(x, low, high, 0.5);
      }
      default: return flip(x, {dim});
    }
  }
  Value product() {
    const Value x = with_dims();
    if (x.rank() < 2) return tanh(x * sum(x));
    const Value flat = x.rank() == 2 ? x : flatten(x, 0, x.rank() - 2);
    if (dice_.chance(2)) return tanh(matmul(flat, permute(flat, {1, 0})));
    return tanh(matmul(permute(flat, {1, 0}), flat));
  }
  Value across() {
    const Value x = with_dims();
    const int64_t dim = dim_of(x), size = size_of(x, dim);
    switch (dice_.roll(6)) {
      case 0: return cumsum(x, dim, dice_.chance(2));
      case 1: return size > 0 ? softmax(x, dim) : x;
      case 2: return index_select(x, dim, iota(b_, DType::I64, {x.dim(dim)}, 0));
      case 3: return index_add(x, dim, iota(b_, DType::I64, {x.dim(dim)}, 0), tanh(x));
      case 4: return size > 0 ? gather(x, dim, full(b_, DType::I64, x.shape(), static_cast<double>(dice_.roll(size)))) : x;
      default: return size > 0 ? scatter_add(x, dim, full(b_, DType::I64, x.shape(), static_cast<double>(dice_.roll(size))), sin(x)) : x;
    }
  }
  /// Slices of the first dim one after another, with something carried; or a graph called twice.
  Value loop_or_call() {
    const Value x = with_dims();
    const Shape rest(x.shape().begin() + 1, x.shape().end());
    const Value start = dice_.chance(2) ? full(b_, DType::F64, rest, 0) : sin(sum(x, {0}));
    const GraphId body = b_.module().add_graph("body" + std::to_string(b_.module().graphs.size()));
    const int64_t kind = dice_.roll(4);
    {
      Builder inner(b_.module(), body);
      const Value carried = inner.input({DType::F64, rest, {}}), slice = inner.input({DType::F64, rest, {}});
      const Value total = inner.input({DType::F64, {}, {}});
      Value next = carried + sin(slice);
      if (kind == 1) next = carried * 0.5 + slice * tanh(total);
      if (kind == 2) next = tanh(carried - slice);
      inner.output(next);
      if (kind != 3) inner.output(sin(carried) * slice);
    }
    if (kind == 3 && x.dim(0).is_constant() && size_of(x, 0) > 0) {
      const Value first[] = {start, select(x, 0, 0), sum(x)};
      const Value once = call(b_, body, first)[0];
      const Value second[] = {once, start, sum(x)};
      return call(b_, body, second)[0];
    }
    Loop loop;
    loop.body = body;
    loop.trip_count = x.dim(0);
    loop.symbol = "i" + std::to_string(body.index);
    b_.module().symbols.declare({.name = loop.symbol, .kind = SymbolKind::Iteration, .minimum = 0, .maximum = 600, .buckets = {}});
    loop.carried = 1;
    loop.scanned = 1;
    loop.reverse = dice_.chance(2);
    const std::vector<Value> results = b_.emit(loop, {start, x, tanh(sum(x))});
    return results[static_cast<size_t>(dice_.roll(static_cast<int64_t>(results.size())))];
  }

  Builder& b_;
  Dice& dice_;
  SymbolValues known_;
  std::vector<Value> inputs_, values_;
  Value seed_, step_;
};

Sharding random_layout(const Mesh& mesh, int64_t rank, Dice& dice) {
  Sharding layout = Sharding::replicated(static_cast<size_t>(rank));
  for (const MeshAxis& axis : mesh.axes) {
    std::vector<AxisRef> parts = {{axis.name, 1, 0}};
    if (axis.size == 4 && dice.chance(2)) parts = {{axis.name, 1, 2}, {axis.name, 2, 2}};
    for (const AxisRef& part : parts)
      if (!dice.chance(3)) layout.dims[static_cast<size_t>(dice.roll(rank))].axes.push_back(part);
  }
  return layout;
}

/// How many loops and calls the programs hold and how many Reshards their layouts need.
struct Counts {
  int64_t control = 0, reshards = 0;
};
void check_seed(uint64_t seed, Counts& counts) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Dice dice(seed);
  std::vector<Sizes> sizes;
  SymbolValues symbols;
  const Module module = module_of([&](Builder& b) {
    Generator generator(b, dice);
    generator.run();
    if (b.module().symbols.find("n") != nullptr) symbols = generator.known();
    for (const Value& input : generator.inputs()) {
      sizes.emplace_back();
      for (const Dim& dim : input.shape()) sizes.back().push_back(evaluate(dim, generator.known()));
    }
  });
  SCOPED_TRACE(print_module(module, PrintOptions{.places = false, .scopes = false}));
  std::vector<Literal> inputs;
  for (const Sizes& shape : sizes) inputs.push_back(numbers(DType::F64, shape, static_cast<int64_t>(seed % 1000) + 100 * static_cast<int64_t>(inputs.size())));
  inputs.push_back(Literal::integer(DType::I64, 5));
  inputs.push_back(Literal::integer(DType::I64, 9));
  const std::vector<Literal> wanted = on_one_rank(module, inputs, symbols);
  const char* meshes[] = {"a=2", "a=3", "a=4", "a=2,b=2", "a=2,b=3"};
  const std::string mesh = meshes[dice.roll(5)];
  ShardingOptions options;
  std::string layouts;
  for (size_t i = 0; i < sizes.size(); ++i) {
    options.inputs.push_back({"x" + std::to_string(i), std::nullopt, random_layout(parse_mesh(mesh), static_cast<int64_t>(sizes[i].size()), dice)});
    layouts += " " + text(options.inputs.back().sharding);
  }
  try {
    CompileOptions sharded;
    sharded.mesh = parse_mesh(mesh);
    sharded.sharding = options;
    sharded.stop_at = "propagate";
    const Module resharded = compile(module, sharded);
    counts.reshards += count_nodes<Reshard>(resharded, resharded.entry("main"));
    counts.control += count_nodes<Loop>(resharded, resharded.entry("main")) + count_nodes<Call>(resharded, resharded.entry("main"));
    expect_close(on_mesh(module, mesh, inputs, options, symbols), wanted, 1e-9, mesh + layouts);
  } catch (const std::exception& error) {
    FAIL() << mesh << layouts << ": " << error.what();
  }
}

TEST(RandomPrograms, AnyLayoutMeansTheSame) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 400 && !HasFailure(); ++seed) check_seed(seed, counts);
  EXPECT_GT(counts.reshards, 2000);
  EXPECT_GT(counts.control, 200);
}
TEST(LongRandomPrograms, AnyLayoutMeansTheSame) {
  Counts counts;
  for (uint64_t seed = 1000; seed <= 21000 && !HasFailure(); ++seed) check_seed(seed, counts);
}

}  // namespace random_programs_test
}  // namespace stepgraph
