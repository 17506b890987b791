// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/mesh_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "stepgraph/reference/interpreter.h"
#include "stepgraph/reference/shards.h"

namespace stepgraph {

Module module_of(const std::function<void(Builder&)>& build) {
  Module module;
  const GraphId graph = module.add_graph("main");
  module.entries.push_back({"main", graph});
  Builder builder(module, graph);
  build(builder);
  return module;
}

Literal numbers(DType dtype, const Sizes& sizes, int64_t start) {
  Literal result(dtype, sizes);
  for (int64_t i = 0; i < result.count(); ++i) {
    // The finaliser of splitmix64: no pattern that would make sums cancel or elements tie.
    uint64_t z = static_cast<uint64_t>(i + start + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    result.set(i, static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1);
  }
  return result;
}

Literal indices(const Sizes& sizes, int64_t limit, int64_t start) {
  Literal result(DType::I64, sizes);
  for (int64_t i = 0; i < result.count(); ++i) result.set_integer(i, ((i + start) * 7 + 3) % limit);
  return result;
}

Value batch_input(Builder& builder, const std::string& name, DType dtype, const Shape& shape) {
  return builder.input({dtype, shape, std::nullopt}, {RoleKind::Batch, name});
}
Value parameter_input(Builder& builder, const std::string& name, DType dtype, const Shape& shape) {
  return builder.input({dtype, shape, std::nullopt}, {RoleKind::Parameter, name});
}
void user_output(Value value, const std::string& name) { value.builder->output(value, {RoleKind::UserOutput, name}); }

std::vector<Literal> on_one_rank(const Module& module, const std::vector<Literal>& inputs, const SymbolValues& symbols) {
  return evaluate_graph(module, module.entries.front().graph, inputs, symbols);
}

std::vector<Literal> on_mesh(const Module& module, const std::string& mesh, const std::vector<Literal>& inputs, const ShardingOptions& sharding,
                             const SymbolValues& symbols) {
  CompileOptions options;
  options.mesh = parse_mesh(mesh);
  options.sharding = sharding;
  const Module local = compile(module, options);
  return run_on_mesh(local, local.entries.front().graph, inputs, symbols).outputs;
}

void expect_close(const std::vector<Literal>& got, const std::vector<Literal>& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t o = 0; o < got.size(); ++o) {
    ASSERT_EQ(got[o].dtype(), wanted[o].dtype()) << what << " output " << o;
    ASSERT_EQ(got[o].sizes(), wanted[o].sizes()) << what << " output " << o;
    if (!is_floating(got[o].dtype())) {
      EXPECT_EQ(got[o], wanted[o]) << what << " output " << o << "\n got " << got[o].text(20) << "\n wanted " << wanted[o].text(20);
      continue;
    }
    double largest = 1;  // a gradient that is truly zero is a sum of rounding errors
    for (int64_t i = 0; i < wanted[o].count(); ++i)
      if (std::isfinite(wanted[o].at(i))) largest = std::max(largest, std::fabs(wanted[o].at(i)));
    for (int64_t i = 0; i < wanted[o].count(); ++i) {
      const double a = got[o].at(i), b = wanted[o].at(i);
      const bool same = a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= tolerance * largest;
      ASSERT_TRUE(same) << what << " output " << o << " element " << i << ": got " << a << ", wanted " << b << "\n got " << got[o].text(20) << "\n wanted "
                        << wanted[o].text(20);
    }
  }
}

void expect_ranks_agree(const Module& module, const std::vector<Literal>& inputs, double tolerance, const std::string& what, const ShardingOptions& sharding,
                        const SymbolValues& symbols) {
  const std::vector<Literal> wanted = on_one_rank(module, inputs, symbols);
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const std::string mesh = "data=" + std::to_string(ranks);
    expect_close(on_mesh(module, mesh, inputs, sharding, symbols), wanted, tolerance, what + " on " + mesh);
  }
}

ShardingOptions laid(const std::string& name, const std::string& sharding) {
  ShardingOptions options;
  options.inputs.push_back({name, std::nullopt, parse_sharding(sharding)});
  return options;
}

}  // namespace stepgraph
