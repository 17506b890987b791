// SPDX-License-Identifier: Apache-2.0
// What a row says about sharding, against one rank: every sample with every dim of every input split over meshes that divide it and that do not, with an
// input that is a partial sum, and with two axes at once. Sources are made in the layout that a user of theirs wants.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/compile.h"
#include "stepgraph/compile/ops/op_table.h"
#include "stepgraph/reference/interpreter.h"
#include "stepgraph/reference/shards.h"
#include "tests/ops/sample_program.h"

namespace stepgraph::testing {
namespace op_sharding_test {

struct Program {
  Module module;
  GraphId graph;
  std::vector<Literal> inputs;
};
/// The op alone, each input with its layout.
Program program_of(const Sample& sample, const std::vector<Sharding>& layouts) {
  Program program{{}, {}, sample.inputs};
  program.graph = program.module.add_graph("main");
  program.module.entries.push_back({"main", program.graph});
  Builder builder(program.module, program.graph);
  std::vector<Value> values;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    TensorType type = type_of(sample.inputs[i]);
    type.sharding = layouts[i];
    values.push_back(builder.input(type, {RoleKind::Parameter, "x" + std::to_string(i)}));
  }
  for (const Value& value : builder.emit(sample.op, values)) builder.output(value);
  return program;
}

/// "" when they agree: other dtypes in every bit, floats to rounding.
std::string difference(const Literal& got, const Literal& wanted) {
  if (got.dtype() != wanted.dtype() || got.sizes() != wanted.sizes()) return got.text(0) + " wanted " + wanted.text(0);
  double largest = 1;
  for (int64_t i = 0; i < wanted.count(); ++i)
    if (std::isfinite(wanted.at(i))) largest = std::max(largest, std::fabs(wanted.at(i)));
  for (int64_t i = 0; i < wanted.count(); ++i) {
    const double a = got.at(i), b = wanted.at(i);
    const bool same = is_floating(got.dtype()) ? a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= 1e-12 * largest
                                               : got.integer_at(i) == wanted.integer_at(i);
    if (!same) return "element " + std::to_string(i) + " of " + got.text(30) + " wanted " + wanted.text(30);
  }
  return "";
}

std::string layouts_text(const std::string& mesh, const std::vector<Sharding>& layouts) {
  std::string result = mesh;
  for (const Sharding& layout : layouts) result += " <" + stepgraph::text(layout) + ">";
  return result;
}

void expect_same_on_mesh(const Program& program, const std::string& mesh, const std::string& what) {
  SCOPED_TRACE(what);
  const std::vector<Literal> wanted = evaluate_graph(program.module, program.graph, program.inputs);
  try {
    CompileOptions options;
    options.mesh = parse_mesh(mesh);
    const Module local = compile(program.module, options);
    const std::vector<Literal> got = run_on_mesh(local, local.entry("main"), program.inputs).outputs;
    for (size_t o = 0; o < wanted.size(); ++o) EXPECT_EQ(difference(got.at(o), wanted[o]), "");
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

std::vector<Sharding> whole(const Sample& sample) {
  std::vector<Sharding> layouts;
  for (const Literal& input : sample.inputs) layouts.push_back(Sharding::replicated(input.rank()));
  return layouts;
}

class EachOpOnAMesh : public ::testing::TestWithParam<std::string> {
 protected:
  template <class F>
  void for_samples(F f) {
    for (const Sample& sample : samples()) {
      if (name(sample.op) != GetParam()) continue;
      SCOPED_TRACE(describe(sample));
      f(sample);
      if (HasFailure()) return;
    }
  }
};

TEST_P(EachOpOnAMesh, SplitInputs) {
  for_samples([](const Sample& sample) {
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      if (sample.inputs[i].count() > 300) continue;
      for (size_t d = 0; d < sample.inputs[i].rank(); ++d) {
        std::vector<Sharding> layouts = whole(sample);
        layouts[i].dims[d].axes = {{"data"}};
        for (const char* mesh : {"data=2", "data=3"}) expect_same_on_mesh(program_of(sample, layouts), mesh, layouts_text(mesh, layouts));
      }
    }
  });
}

TEST_P(EachOpOnAMesh, PartialInputs) {
  for_samples([](const Sample& sample) {
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      const DType dtype = sample.inputs[i].dtype();
      if (sample.inputs[i].count() > 300 || dtype == DType::Bool) continue;
      std::vector<Sharding> layouts = whole(sample);
      layouts[i].partial = {{{"data"}, ReduceKind::Sum}};
      expect_same_on_mesh(program_of(sample, layouts), "data=2", layouts_text("data=2", layouts));
    }
  });
}

TEST_P(EachOpOnAMesh, TwoAxes) {
  for_samples([](const Sample& sample) {
    if (sample.inputs.empty()) return;
    const size_t last = sample.inputs.size() - 1;
    if (sample.inputs[0].count() > 300 || sample.inputs[last].count() > 300) return;
    for (size_t d = 0; d < sample.inputs[0].rank(); ++d) {
      for (size_t e = 0; e < sample.inputs[last].rank(); ++e) {
        std::vector<Sharding> layouts = whole(sample);
        layouts[0].dims[d].axes.push_back({"data"});
        layouts[last].dims[e].axes.push_back({"model"});
        expect_same_on_mesh(program_of(sample, layouts), "data=2,model=2", layouts_text("data=2,model=2", layouts));
      }
    }
  });
}

TEST_P(EachOpOnAMesh, ResultsInTheLayoutOfTheirUser) {
  for_samples([](const Sample& sample) {
    const std::vector<TensorType> types = infer_sample(sample.op, sample.inputs);
    for (size_t d = 0; d < types[0].rank(); ++d) {
      Program program = program_of(sample, whole(sample));
      Builder builder(program.module, program.graph);
      TensorType type = types[0];
      type.sharding = Sharding::replicated(type.rank());
      type.sharding->dims[d].axes = {{"data"}};
      const Value user = builder.input(type, {RoleKind::Parameter, "user"});
      const Value result = builder.value(builder.graph().outputs[0].value);
      builder.output(builder.emit_one(Binary{type.dtype == DType::Bool ? BinaryKind::Xor : BinaryKind::Add}, {result, user}));
      Literal value(type.dtype, {});
      Sizes sizes;
      for (const Dim& dim : type.shape) sizes.push_back(dim.constant());
      program.inputs.push_back(Literal::full(type.dtype, sizes, 1));
      if (program.inputs.back().count() > 300) continue;
      expect_same_on_mesh(program, "data=2", "user's dim " + std::to_string(d));
    }
  });
}

std::vector<std::string> names_with_samples() {
  std::vector<std::string> names;
  for (const Sample& sample : samples())
    if (std::find(names.begin(), names.end(), name(sample.op)) == names.end()) names.emplace_back(name(sample.op));
  return names;
}
INSTANTIATE_TEST_SUITE_P(Ops, EachOpOnAMesh, ::testing::ValuesIn(names_with_samples()), [](const auto& info) { return info.param; });

}  // namespace op_sharding_test
}  // namespace stepgraph::testing
