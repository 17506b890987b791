// SPDX-License-Identifier: Apache-2.0
// What inference says of operands and attributes that do not fit: one line each.
#include <gtest/gtest.h>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph::testing {
namespace inference_errors_test {

struct Case {
  Op op;
  std::vector<const char*> inputs;
  const char* message;
};

std::string message_of(const Case& c) {
  Module module;
  module.symbols.declare({"batch", SymbolKind::Size, 1, 8, 1, {}});
  module.symbols.declare({"length", SymbolKind::Size, 2, 9, 1, {}});
  std::vector<TensorType> types;
  for (const char* input : c.inputs) types.push_back(parse_tensor_type(input));
  try {
    infer_types(c.op, types, module);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(InferenceErrors, SayWhatWasFoundAndWanted) {
  const std::vector<Case> cases = {
      {Binary{BinaryKind::Add}, {"f32[4, 4]", "f32[10, 10]"}, "add: shapes differ, f32[4, 4] and f32[10, 10]"},
      {Binary{BinaryKind::Multiply}, {"f32[batch]", "f32[length]"}, "mul: shapes differ, f32[batch] and f32[length] with batch in [1, 8], length in [2, 9]"},
      {Binary{BinaryKind::Add}, {"f32[4]", "f64[4]"}, "add: dtypes differ, f32[4] and f64[4]"},
      {Binary{BinaryKind::Add}, {"bool[4]", "bool[4]"}, "add: found bool[4], wanted numbers"},
      {Binary{BinaryKind::Divide}, {"i32[4]", "i32[4]"}, "div: found i32[4], wanted a floating dtype"},
      {Binary{BinaryKind::And}, {"f32[4]", "f32[4]"}, "and: found f32[4], wanted bool or integers"},
      {Unary{UnaryKind::Exp}, {"i32[4]"}, "exp: found i32[4], wanted a floating dtype"},
      {Unary{UnaryKind::Negate}, {"bool[4]"}, "neg: found bool[4], wanted numbers"},
      {Unary{UnaryKind::Not}, {"f32[4]"}, "not: found f32[4], wanted bool or integers"},
      {Compare{CompareKind::Less}, {"f32[4]", "f32[5]"}, "lt: shapes differ, f32[4] and f32[5]"},
      {Select{}, {"f32[4]", "f32[4]", "f32[4]"}, "select: condition is f32[4], wanted bool"},
      {Select{}, {"bool[3]", "f32[4]", "f32[4]"}, "select: shapes differ, bool[3] and f32[4]"},
      {Pick{PickKind::Largest, 0, 5}, {"f32[4]"}, "largest: found count 5 for dim 0 of f32[4]"},
      {Pick{PickKind::Ranked, 0, 0}, {"f32[4]"}, "ranked: found count 0 for dim 0 of f32[4]"},
      {Reduce{ReduceKind::Sum, {2}}, {"f32[4, 5]"}, "reduce_sum: dim 2 is out of range for f32[4, 5]"},
      {Reduce{ReduceKind::Sum, {1, 0}}, {"f32[4, 5]"}, "reduce_sum: dims must ascend, found 1 before 0"},
      {Reduce{ReduceKind::Sum, {0}}, {"bool[4]"}, "reduce_sum: found bool[4], wanted numbers (convert first)"},
      {Reduce{ReduceKind::Any, {0}}, {"f32[4]"}, "reduce_any: found f32[4], wanted bool"},
      {ArgReduce{ArgReduceKind::ArgMax, 0}, {"f32[0]"}, "argmax: dim 0 of f32[0] is empty"},
      {Cumulative{CumulativeKind::LogSumExp, 0, false}, {"i32[4]"}, "cumulative_logsumexp: found i32[4], wanted a floating dtype"},
      {Broadcast{{5, 4}, {1}}, {"f32[3]"}, "broadcast: dim 0 of f32[3] does not stretch to [5, 4]"},
      {Broadcast{{4}, {0}}, {"f32[batch]"}, "broadcast: dim 0 of f32[batch] does not stretch to [4] with batch in [1, 8]"},
      {Broadcast{{4, 4}, {}}, {"f32[4]"}, "broadcast: 0 dims for f32[4], wanted one for each of its dims"},
      {Broadcast{{-1}, {}}, {"f32[]"}, "broadcast: negative size in [-1]"},
      {Reshape{{5, 2}}, {"f32[4, 3]"}, "reshape: element counts differ, f32[4, 3] has 12 and [5, 2] has 10"},
      {Reshape{{8}}, {"f32[batch]"}, "reshape: element counts differ, f32[batch] has batch and [8] has 8 with batch in [1, 8]"},
      {Transpose{{0, 0}}, {"f32[4, 3]"}, "transpose: [0, 0] is no permutation of the dims of f32[4, 3]"},
      {Reverse{{1}}, {"f32[4]"}, "reverse: dim 1 is out of range for f32[4]"},
      {Slice{{2}, {5}, {1}}, {"f32[4]"}, "slice: 2 to 5 is out of range for dim 0 of f32[4]"},
      {Slice{{0}, {4}, {0}}, {"f32[4]"}, "slice: stride 0 in dim 0, wanted at least 1"},
      {Pad{{-1}, {0}, {0}}, {"f32[4]", "f32[]"}, "pad: negative padding in dim 0 of f32[4]: low -1, high 0, interior 0"},
      {Pad{{1}, {0}, {0}}, {"f32[4]", "f64[]"}, "pad: value is f64[], wanted f32[]"},
      {Concatenate{0}, {"f32[4, 2]", "f32[4, 3]"}, "concatenate: shapes differ outside dim 0, f32[4, 2] and f32[4, 3]"},
      {Concatenate{0}, {"f32[4]", "f64[4]"}, "concatenate: dtypes differ, f32[4] and f64[4]"},
      {Concatenate{0}, {}, "concatenate: 0 operands, at least 1 wanted"},
      {Iota{DType::Bool, {4}, 0, 0}, {}, "iota: bool does not count, wanted an integer or floating dtype"},
      {Random{RandomKind::Uniform, DType::F32, {4}, {{4}, {0}}}, {"i32[]"}, "random_uniform: key is i32[], wanted i64[]"},
      {Random{RandomKind::Normal, DType::I32, {4}, {{4}, {0}}}, {"i64[]"}, "random_normal: found i32[4], wanted a floating dtype"},
      {Random{RandomKind::Normal, DType::F32, {4}, {{4}, {}}}, {"i64[]"}, "random_normal: shape [4], global shape [4] and starts [] differ in rank"},
      {FoldIn{}, {"i64[2]", "i64[]"}, "fold_in: key is i64[2], wanted i64[]"},
      {FoldIn{}, {"i64[]", "f32[]"}, "fold_in: operand is f32[], wanted i64[]"},
  };
  for (const Case& c : cases) EXPECT_EQ(message_of(c), c.message);
}

TEST(InferenceErrors, SizesThatOverflow) {
  const Case huge{Reshape{{int64_t{1} << 40, int64_t{1} << 40}}, {"f32[4]"}, ""};
  EXPECT_NE(message_of(huge).find("size overflows 64 bits"), std::string::npos) << message_of(huge);
}

}  // namespace inference_errors_test
}  // namespace stepgraph::testing
