// SPDX-License-Identifier: Apache-2.0
// Every op sample under the compiled back ends, in each dtype that the op takes, against the oracle.
#include <gtest/gtest.h>

#include "stepgraph/backend/run_once.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/ops/composite/attention.h"
#include "stepgraph/compile/ops/functions.h"
#include "stepgraph/compile/ops/op_table.h"
#include "tests/ops/sample_program.h"
#include "tests/support/close.h"

namespace stepgraph::testing {
namespace backends_test {

using BuildOutputs = std::function<std::vector<Value>(Builder&, std::span<const Value>)>;
Module built(std::span<const Literal> inputs, const BuildOutputs& build) {
  Module module;
  const GraphId id = module.add_graph("main");
  module.entries = {{"main", id}};
  Builder builder(module, id);
  std::vector<Value> values;
  for (const Literal& input : inputs) values.push_back(builder.input(type_of(input)));
  for (const Value& output : build(builder, values)) builder.output(output);
  return module;
}
Module program_of(const Op& op, std::span<const Literal> inputs) {
  return built(inputs, [&](Builder& builder, std::span<const Value> values) { return builder.emit(op, {values.begin(), values.end()}); });
}

void compare_module(const Module& module, const std::vector<Literal>& inputs) {
  const std::vector<Literal> wanted = run_once(module, "main", inputs, {.backend = Backend::Reference});
  for (const Backend backend : {Backend::Eager, Backend::Full}) {
    const std::vector<Literal> found = run_once(module, "main", inputs, {.backend = backend, .threads = 2});
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(compare_values(found[i], wanted[i], tolerance_of(wanted[i].dtype())), "") << name(backend) << " result " << i;
  }
}

void compare_backends(const Op& op, const std::vector<Literal>& inputs) {
  compare_module(program_of(op, inputs), inputs);
}

TEST(Backends, SamplesAsTheOracle) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  for (const Sample& sample : samples()) {
    for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
      SCOPED_TRACE(describe(sample) + " in " + std::string(name(dtype)));
      std::vector<Literal> inputs;
      bool any = false;
      for (const Literal& input : sample.inputs) {
        any = any || is_floating(input.dtype());
        inputs.push_back(is_floating(input.dtype()) ? input.converted(dtype) : input);
      }
      if (!any && dtype != DType::F32) continue;
      try {
        program_of(sample.op, inputs);
      } catch (const UserError&) {
        continue;  // attributes that name another dtype
      }
      try {
        compare_backends(sample.op, inputs);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

/// Operands that lie backwards, stretched or turned in memory: what a library cannot walk along is stored first.
TEST(Backends, ProductsAndAttentionOfViews) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  const std::vector<std::function<Value(const Value&)>> views = {
      [](const Value& x) { return x; },
      [](const Value& x) { return flip(x, {x.rank() - 1}); },
      [](const Value& x) { return flip(x, {0}); },
      [](const Value& x) { return flip(x, {x.rank() - 2 < 0 ? 0 : x.rank() - 2}); },
      [](const Value& x) { return broadcast_to(select(x, 0, 0), x.shape()); },
      [](const Value& x) { return broadcast_to(slice(x, x.rank() - 1, 0, 1), x.shape()); },
      [](const Value& x) { return x.rank() < 2 ? slice(concatenate(std::vector<Value>{x, x}, 0), 0, 0, 2 * x.dim(0).constant(), 2) : transpose(reshape(x, Shape(x.shape().rbegin(), x.shape().rend())), 0, x.rank() - 1); },
  };
  const std::vector<std::pair<Sizes, Sizes>> shapes = {{{4}, {4}}, {{4}, {4, 3}}, {{3, 4}, {4}}, {{3, 4}, {4, 5}}, {{1, 4}, {4, 1}}, {{3, 1}, {1, 5}}, {{2, 3, 4}, {2, 4, 5}}, {{2, 4, 4, 8}, {2, 4, 4, 8}}};
  Numbers numbers(17);
  for (const auto& [left, right] : shapes) {
    const std::vector<Literal> inputs = {numbers.uniform(left, -1, 1).converted(DType::F32), numbers.uniform(right, -1, 1).converted(DType::F32)};
    for (size_t l = 0; l < views.size(); ++l) {
      for (size_t r = 0; r < views.size(); ++r) {
        if (l != 0 && r != 0 && l != r) continue;
        SCOPED_TRACE(text(type_of(inputs[0])) + " view " + std::to_string(l) + ", " + text(type_of(inputs[1])) + " view " + std::to_string(r));
        Module module;
        const GraphId id = module.add_graph("main");
        module.entries = {{"main", id}};
        Builder builder(module, id);
        const Value a = views[l](builder.input(type_of(inputs[0]))), b = views[r](builder.input(type_of(inputs[1])));
        builder.output(left.size() == 4 ? scaled_dot_product_attention(a, b, b, {.scale = 0.5}) : matmul(a, b));
        compare_module(module, inputs);
      }
    }
  }
}

void compare_built(const std::vector<Literal>& inputs, const BuildOutputs& build) { compare_module(built(inputs, build), inputs); }

/// A view that one reader wants in memory, since it reads by an index, is read there by all.
TEST(Backends, ViewsThatOneReaderWantsStored) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  Numbers numbers(23);
  for (const int64_t size : {1, 2, 5, 40}) {
    SCOPED_TRACE(size);
    compare_built({numbers.uniform({size}, -1, 1).converted(DType::F32), numbers.integers(DType::I64, {3}, 0, size - 1)}, [](Builder&, std::span<const Value> in) -> std::vector<Value> {
      const Value view = flip(in[0], {0});
      return {sqrt(view * view + 1.5), index_select(view, 0, in[1]), view * 0.5 + 1.0 - unary(UnaryKind::Sinh, view)};
    });
  }
}

/// Pieces of a concatenation in rows that fill a part of a vector: lanes beyond them are of no memory of theirs.
TEST(Backends, PiecesInRowsShorterThanAVector) {
  if (!has_code_generation()) GTEST_SKIP() << "a build without code generation";
  Numbers numbers(29);
  for (const int64_t width : {1, 3, 4, 7, 8, 9, 16, 17}) {
    SCOPED_TRACE(width);
    compare_built({numbers.uniform({1, width}, -1, 1).converted(DType::F32), numbers.uniform({2, width}, -1, 1).converted(DType::F32)},
                  [](Builder&, std::span<const Value> in) -> std::vector<Value> {
                    const Value joined = concatenate(std::vector<Value>{abs(in[0]), in[1], exp(in[0]), in[0]}, 0);
                    return {joined, sin(joined), sum(sin(joined)), pad(joined, {1, 0}, {0, 2}, 0.5)};
                  });
  }
}

}  // namespace backends_test
}  // namespace stepgraph::testing
