// SPDX-License-Identifier: Apache-2.0
// Sharding rules factor by factor: they cover every dim; each factor that may be split is split over 2 and 3 places, the op then runs on just those
// layouts, and the joined results are those of one device. Then every change of layout to every other, with the collectives that it takes.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/op_table.h"
#include "stepgraph/compile/ops/verify.h"
#include "stepgraph/compile/passes/factor_splits.h"
#include "stepgraph/compile/passes/partition.h"
#include "stepgraph/compile/passes/propagate_shardings.h"
#include "stepgraph/reference/mesh_run.h"
#include "tests/ops/sample_program.h"

namespace stepgraph::testing {
namespace sharding_test {

std::vector<std::string> sharded_names() {
  std::set<std::string> names;
  for (const Sample& sample : samples()) names.insert(std::string(name(sample.op)));
  return {names.begin(), names.end()};
}

ShardingRule rule_of(const Sample& sample) {
  std::vector<TensorType> inputs;
  for (const Literal& input : sample.inputs) inputs.push_back(type_of(input));
  const Module module;
  const std::vector<TensorType> results = infer_types(sample.op, inputs, module);
  return op_info(sample.op).sharding_rule({sample.op, inputs, results, module});
}

Module sharded_sample(const Sample& sample, const Mesh& mesh, const std::vector<Sharding>& shardings) {
  Module module;
  const GraphId graph = module.add_graph("main");
  module.entries.push_back({"main", graph});
  Builder builder(module, graph);
  std::vector<Value> values;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    TensorType type = type_of(sample.inputs[i]);
    type.sharding = shardings[i];
    values.push_back(builder.input(type));
  }
  for (const Value& value : builder.emit(sample.op, values)) builder.output(value);
  return propagate_shardings(std::move(module), mesh);
}

/// Layouts of the node's operands.
std::vector<Sharding> operand_layouts(const Module& module, const Op& op) {
  std::vector<Sharding> layouts;
  const Graph& graph = module.graph(module.entry("main"));
  for (const Node& node : graph.nodes) {
    if (node.op != op) continue;
    for (ValueId input : node.inputs) layouts.push_back(*graph.type(input).sharding);
  }
  return layouts;
}

void expect_close(const Literal& got, const Literal& wanted) {
  ASSERT_EQ(text(type_of(got)), text(type_of(wanted)));
  for (int64_t i = 0; i < wanted.count(); ++i) {
    if (!is_floating(wanted.dtype())) {
      ASSERT_EQ(got.integer_at(i), wanted.integer_at(i)) << "element " << i;
    } else if (std::isnan(wanted.at(i))) {
      ASSERT_TRUE(std::isnan(got.at(i))) << "element " << i;
    } else if (got.at(i) != wanted.at(i)) {
      ASSERT_NEAR(got.at(i), wanted.at(i), 1e-12 * (1 + std::fabs(wanted.at(i)))) << "element " << i;
    }
  }
}

void expect_equal_to_one_device(const Sample& sample, const Mesh& mesh, const std::vector<Sharding>& shardings, bool keeps_layouts) {
  Module module = sharded_sample(sample, mesh, shardings);
  verify(module);
  if (keeps_layouts) { EXPECT_EQ(operand_layouts(module, sample.op), shardings) << "the op runs on other layouts than those given"; }
  const Module local = partition(std::move(module));
  verify(local);
  const MeshRun run = run_on_mesh(local, local.entry("main"), sample.inputs);
  const std::vector<Literal> wanted = run_sample(sample.op, sample.inputs);
  ASSERT_EQ(run.outputs.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) expect_close(run.outputs[i], wanted[i]);
}

class EachRule : public ::testing::TestWithParam<std::string> {
 protected:
  template <class F>
  void for_samples(F f) {
    for (const Sample& sample : samples()) {
      if (name(sample.op) != GetParam()) continue;
      SCOPED_TRACE(describe(sample));
      f(sample, rule_of(sample));
      if (HasFailure()) return;
    }
  }
};

TEST_P(EachRule, CoversEveryDim) {
  for_samples([](const Sample& sample, const ShardingRule& rule) {
    ASSERT_EQ(rule.operands.size(), sample.inputs.size());
    const auto check = [&](const std::vector<std::vector<int>>& dims, const Shape& shape) {
      ASSERT_EQ(dims.size(), shape.size());
      for (size_t d = 0; d < dims.size(); ++d) {
        if (dims[d].empty()) continue;
        Dim product = 1;
        for (int factor : dims[d]) product = product * rule.factors.at(static_cast<size_t>(factor)).size;
        EXPECT_EQ(product.text(), shape[d].text()) << "dim " << d;
      }
    };
    for (size_t i = 0; i < sample.inputs.size(); ++i) check(rule.operands[i], type_of(sample.inputs[i]).shape);
    const std::vector<TensorType> results = infer_sample(sample.op, sample.inputs);
    ASSERT_EQ(rule.results.size(), results.size());
    for (size_t i = 0; i < results.size(); ++i) check(rule.results[i], results[i].shape);
  });
}

TEST_P(EachRule, SplitFactorsGiveTheValuesOfOneDevice) {
  for (int64_t parts : {2, 3}) {
    const Mesh mesh{{{"a", parts}}};
    for_samples([&](const Sample& sample, const ShardingRule& rule) {
      const std::vector<bool> splittable = splittable_factors(rule);
      for (size_t f = 0; f < rule.factors.size(); ++f) {
        if (!splittable[f]) continue;
        SCOPED_TRACE("factor " + std::to_string(f) + " over " + std::to_string(parts));
        FactorSplits splits(rule.factors.size());
        splits[f].axes = {{"a"}};
        std::vector<Sharding> shardings;
        bool any = false;
        for (size_t i = 0; i < sample.inputs.size(); ++i) {
          shardings.push_back(layout_of(rule, splits, rule.operands[i], type_of(sample.inputs[i]).shape, mesh));
          any = any || !shardings.back().is_replicated();
        }
        // A broadcast lies as its user does: here the output, which is whole.
        expect_equal_to_one_device(sample, mesh, shardings, any && name(sample.op) != "broadcast");
      }
    });
  }
}

std::vector<Sharding> layouts() {
  std::vector<Sharding> result;
  for (const char* layout : {"{}, {}", "{a}, {}", "{}, {b}", "{b}, {a}", "{a, b}, {}", "{b, a}, {}", "{a grain 2}, {}", "{}, {} partial(sum: a)",
                             "{}, {} partial(sum: a, b)", "{}, {b} partial(sum: a)", "{b}, {} partial(sum: a)"}) {
    result.push_back(parse_sharding(layout));
  }
  return result;
}

std::set<std::string> op_names(const Module& module) {
  std::set<std::string> names;
  for (const Node& node : module.graph(module.entry("main")).nodes) names.insert(std::string(name(node.op)));
  return names;
}

TEST(Reshard, AnyLayoutToAnyOther) {
  const Mesh mesh = parse_mesh("a=2,b=3");
  Numbers numbers(11);
  const Literal x = numbers.uniform({7, 5}, -1, 1);
  std::set<std::string> used;
  for (const Sharding& from : layouts()) {
    for (const Sharding& to : layouts()) {
      SCOPED_TRACE(text(from) + " to " + text(to));
      Module module;
      module.stage = Stage::Sharded;
      module.mesh = mesh;
      declare_coordinates(module.symbols, mesh);
      const GraphId graph = module.add_graph("main");
      module.entries.push_back({"main", graph});
      Builder builder(module, graph);
      TensorType type = type_of(x), result = type;
      type.sharding = from, result.sharding = to;
      const Value input = builder.input(type);
      builder.output(from == to ? input : builder.append(Reshard{to}, std::vector<Value>{input}, {result}).at(0));
      const Module local = partition(std::move(module));
      verify(local);
      const MeshRun run = run_on_mesh(local, local.entry("main"), std::vector<Literal>{x});
      expect_close(run.outputs.at(0), x);
      used.merge(op_names(local));
    }
  }
  for (const char* collective : {"all_reduce", "all_gather", "reduce_scatter"}) EXPECT_TRUE(used.contains(collective)) << collective;
}

INSTANTIATE_TEST_SUITE_P(Ops, EachRule, ::testing::ValuesIn(sharded_names()), [](const auto& info) { return info.param; });

}  // namespace sharding_test
}  // namespace stepgraph::testing
