// SPDX-License-Identifier: Apache-2.0
// C26 and its kind: ops that change or look across a dim that is split over ranks, evenly or not.
#include <gtest/gtest.h>

#include "stepgraph/compile/ops/functions.h"
#include "tests/parallel/mesh_check.h"

namespace stepgraph {
namespace resharding_test {

Literal arange(const Sizes& sizes) {
  Literal x(DType::F64, sizes);
  for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>(i));
  return x;
}

TEST(Resharding, ViewAcrossShardsIsTheViewOfTheWhole) {
  const Module module = module_of([](Builder& b) {
    const Value x = batch_input(b, "x", DType::F64, {6, 4});
    user_output(reshape(x, {8, 3}), "view");
    user_output(cumsum(x, 1), "cumsum");
    user_output(slice(x, 1, 1, 4), "slice");
  });
  const std::vector<Literal> out = on_mesh(module, "data=2", {arange({6, 4})}, laid("x", "{}, {data}"));
  EXPECT_EQ(out[0], arange({8, 3}));
  for (const char* layout : {"{}, {data}", "{data}, {}", "{}, {}"}) expect_ranks_agree(module, {arange({6, 4})}, 0, layout, laid("x", layout));
}

TEST(Resharding, ReshapesOfAllKinds) {
  for (int64_t rows = 0; rows <= 9; ++rows) {
    const Module module = module_of([&](Builder& b) {
      const Value x = batch_input(b, "x", DType::F64, {rows, 4, 3});
      const Value flat = reshape(x, {rows * 4, 3});
      user_output(flat * 2.0, "merged");
      user_output(reshape(flat * flat, {rows, 4, 3}), "merged and back");
      user_output(reshape(x, {rows * 12}), "flat");
      user_output(reshape(x, {rows, 12}) + 1.0, "inner merged");
      user_output(reshape(x, {rows, 2, 2, 3}), "unmerged");
      user_output(reshape(x, {1, rows, 4, 1, 3}), "ones");
      user_output(reshape(x, {rows * 2, 6}), "across");
      user_output(sum(flat, {0}), "sum of merged");
    });
    for (const char* layout : {"{data}, {}, {}", "{}, {data}, {}", "{}, {}, {data}"})
      expect_ranks_agree(module, {arange({rows, 4, 3})}, 1e-13, std::to_string(rows) + " rows, " + layout, laid("x", layout));
  }
}

TEST(Resharding, MergedBatchOfSymbolicSize) {
  Module module = module_of([](Builder& b) {
    const Dim batch = b.module().symbols.declare({.name = "batch", .minimum = 0, .buckets = {}});
    const Value x = batch_input(b, "x", DType::F64, {batch, 3, 2});
    const Value w = parameter_input(b, "w", DType::F64, {2, 5});
    const Value flat = matmul(reshape(x, {batch * 3, 2}), w);
    user_output(reshape(flat, {batch, 3, 5}), "y");
    user_output(sum(flat, {0}), "sum");
    user_output(iota(b, DType::I64, {batch, 2}, 0), "rows");
  });
  for (int64_t rows = 0; rows <= 9; ++rows)
    expect_ranks_agree(module, {numbers(DType::F64, {rows, 3, 2}), numbers(DType::F64, {2, 5}, 7)}, 1e-12, std::to_string(rows) + " rows", {},
                       {{"batch", rows}});
  CompileOptions options;
  options.mesh = parse_mesh("data=2");
  const Module local = compile(module, options);
  // The outputs are gathered, the sum reduced; nothing between moves.
  EXPECT_EQ(count_nodes<AllGather>(local, local.entry("main")), 1);
  EXPECT_EQ(count_nodes<AllReduce>(local, local.entry("main")), 1);
}

TEST(Resharding, OpsThatLookAcrossTheSplitDim) {
  for (int64_t rows = 1; rows <= 7; ++rows) {
    const Module module = module_of([&](Builder& b) {
      const Value x = batch_input(b, "x", DType::F64, {rows, 4});
      const Value index = batch_input(b, "index", DType::I64, {rows, 4});
      user_output(cumsum(x, 0), "cumsum");
      user_output(cumprod(x, 0, true), "cumprod");
      user_output(logcumsumexp(x, 0), "logcumsumexp");
      user_output(flip(x, {0}), "flip");
      user_output(flip(x, {1}), "flip of the other");
      user_output(pad(x, {1, 2}, {2, 0}, 3.0), "pad");
      user_output(slice(x, 0, rows / 2, rows), "half");
      user_output(slice(x, 0, 0, rows, 2), "every other");
      user_output(concatenate(std::vector<Value>{x, x * 2.0}, 0), "concatenate");
      user_output(concatenate(std::vector<Value>{x, x * 2.0}, 1), "concatenate inside");
      user_output(argmax(x, 0), "argmax");
      user_output(argmin(x, 1), "argmin of the other");
      user_output(gather(x, 0, remainder(index, full(b, DType::I64, {rows, 4}, static_cast<double>(rows)))), "gather");
      user_output(gather(x, 1, index), "gather of the other");
      user_output(permute(x, {1, 0}), "transpose");
      user_output(matmul(x, permute(x, {1, 0})), "gram");
      user_output(matmul(permute(x, {1, 0}), x), "contracted");
      user_output(index_select(x, 0, iota(b, DType::I64, {rows}, 0)), "index_select");
      user_output(index_add(x, 1, iota(b, DType::I64, {4}, 0), x), "index_add");
      user_output(scatter_add(x, 1, index, x), "scatter_add");
    });
    for (const char* layout : {"{data}, {}", "{}, {data}"}) {
      ShardingOptions options = laid("x", layout);
      expect_ranks_agree(module, {numbers(DType::F64, {rows, 4}), indices({rows, 4}, 4)}, 1e-12, std::to_string(rows) + " rows, x " + layout, options);
    }
  }
}

TEST(Resharding, TwoAxesAndTheirParts) {
  const Module module = module_of([](Builder& b) {
    const Value x = batch_input(b, "x", DType::F64, {7, 6});
    const Value w = parameter_input(b, "w", DType::F64, {6, 5});
    const Value y = matmul(x, w);
    user_output(y, "y");
    user_output(relu(y - 0.1), "relu");
    user_output(sum(y, {0}), "columns");
    user_output(sum(y, {1}), "rows");
    user_output(reshape(x, {42}), "flat");
  });
  const std::vector<Literal> inputs = {numbers(DType::F64, {7, 6}), numbers(DType::F64, {6, 5}, 9)};
  const std::vector<Literal> wanted = on_one_rank(module, inputs);
  for (const char* mesh : {"data=2,model=2", "model=3,data=2", "model=4"}) {
    for (const char* x : {"{data}, {}", "{data}, {model}", "{data, model}, {}", "{}, {model, data}", "{model:(2)2}, {}", "{model:(1)2}, {model:(2)2}"}) {
      for (const char* w : {"{}, {}", "{model}, {}", "{}, {model}", "{}, {data}"}) {
        ShardingOptions options = laid("x", x);
        options.inputs.push_back(laid("w", w).inputs[0]);
        const Mesh parsed = parse_mesh(mesh);
        try {
          check_sharding(options.inputs[0].sharding, 2, parsed);
          check_sharding(options.inputs[1].sharding, 2, parsed);
        } catch (const UserError&) {
          continue;  // an axis that this mesh has not
        }
        const std::string what = std::string(mesh) + " x " + x + " w " + w;
        expect_close(on_mesh(module, mesh, inputs, options), wanted, 1e-12, what);
      }
    }
  }
}

TEST(Resharding, LongChainsOfWhatNothingFeeds) {
  const Module module = module_of([](Builder& b) {
    Value y = full(b, DType::F64, {5}, 1);
    for (int i = 0; i < 20000; ++i) y = stop_gradient(y);
    user_output(batch_input(b, "x", DType::F64, {5}) * y, "y");
  });
  expect_ranks_agree(module, {arange({5})}, 0, "chain");
}

std::string message_of(const Module& module, const ShardingOptions& options) {
  try {
    on_mesh(module, "data=2", {arange({4})}, options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Resharding, ImpossibleWishesAreTheUsersError) {
  const Module module = module_of([](Builder& b) { user_output(batch_input(b, "x", DType::F64, {4}) * 2.0, "y"); });
  EXPECT_EQ(message_of(module, laid("x", "{model}")), "batch 'x': sharding: found axis 'model', the mesh has 'data=2'");
  EXPECT_EQ(message_of(module, laid("x", "{data}, {}")), "batch 'x': sharding: found 2 dims, the tensor has 1");
  ShardingOptions options;
  options.batch_axes = {"rows"};
  EXPECT_EQ(message_of(module, options), "batch axes: found axis 'rows', the mesh has 'data=2'");
}

}  // namespace resharding_test
}  // namespace stepgraph
