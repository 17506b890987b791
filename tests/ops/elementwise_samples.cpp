// SPDX-License-Identifier: Apache-2.0
// Sources and element-wise ops.
#include "tests/ops/samples.h"

namespace stepgraph::testing {
namespace {

struct Range {
  double low, high;
  bool both_signs = false;
};

Range range_of(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::Log: case UnaryKind::Sqrt: case UnaryKind::Rsqrt: case UnaryKind::Log2: case UnaryKind::Log10: case UnaryKind::Lgamma: return {0.3, 3};
    case UnaryKind::Acosh: return {1.3, 3};
    case UnaryKind::Asin: case UnaryKind::Acos: case UnaryKind::Atanh: case UnaryKind::Erfinv: return {-0.8, 0.8};
    case UnaryKind::Tan: return {-1.2, 1.2};
    case UnaryKind::Log1p: return {-0.7, 2};
    case UnaryKind::Reciprocal: return {0.5, 2, true};
    case UnaryKind::Abs: case UnaryKind::Sign: case UnaryKind::Relu: return {0.1, 2, true};
    case UnaryKind::Floor: case UnaryKind::Ceil: return {2.1, 2.9, true};
    case UnaryKind::Round: return {2.55, 3.45, true};
    case UnaryKind::Negate: case UnaryKind::Exp: case UnaryKind::Expm1: case UnaryKind::Sin: case UnaryKind::Cos: case UnaryKind::Tanh:
    case UnaryKind::Sigmoid: case UnaryKind::Erf: case UnaryKind::Exp2: case UnaryKind::Atan: case UnaryKind::Sinh: case UnaryKind::Cosh:
    case UnaryKind::Asinh: case UnaryKind::Erfc: case UnaryKind::Not: case UnaryKind::IsFinite: case UnaryKind::IsNan:
      return {-2, 2};
  }
  return {-1, 1};
}

Literal drawn(Numbers& numbers, const Sizes& sizes, const Range& range) {
  return range.both_signs ? numbers.signed_uniform(sizes, range.low, range.high) : numbers.uniform(sizes, range.low, range.high);
}

std::vector<Literal> operands_of(BinaryKind kind, Numbers& numbers, const Sizes& sizes) {
  switch (kind) {
    case BinaryKind::Add: case BinaryKind::Subtract: case BinaryKind::Multiply:
      return {numbers.uniform(sizes, -2, 2), numbers.uniform(sizes, -2, 2)};
    case BinaryKind::Divide: return {numbers.uniform(sizes, -2, 2), numbers.signed_uniform(sizes, 0.5, 2)};
    // A quotient between 2.1 and 2.9: away from the steps.
    case BinaryKind::FloorDivide: case BinaryKind::Remainder: {
      Literal b = numbers.signed_uniform(sizes, 0.5, 2), a = numbers.signed_uniform(sizes, 2.1, 2.9);
      for (int64_t i = 0; i < a.count(); ++i) a.set(i, a.at(i) * b.at(i));
      return {a, b};
    }
    case BinaryKind::Power: return {numbers.uniform(sizes, 0.4, 2), numbers.uniform(sizes, -2, 2)};
    case BinaryKind::Maximum: case BinaryKind::Minimum: {
      Literal a = numbers.uniform(sizes, -2, 2), b = a, gap = numbers.signed_uniform(sizes, 0.1, 1);
      for (int64_t i = 0; i < a.count(); ++i) b.set(i, a.at(i) + gap.at(i));
      return {a, b};
    }
    case BinaryKind::Atan2: return {numbers.signed_uniform(sizes, 0.4, 2), numbers.signed_uniform(sizes, 0.4, 2)};
    case BinaryKind::And: case BinaryKind::Or: case BinaryKind::Xor: return {numbers.bools(sizes), numbers.bools(sizes)};
  }
  return {};
}

}  // namespace

std::vector<Sample> source_samples() {
  Numbers numbers(1);
  std::vector<Sample> result;
  for (const Sizes& sizes : usual_sizes()) {
    const Shape shape(sizes.begin(), sizes.end());
    result.push_back({Constant{numbers.uniform(sizes, -1, 1)}, {}});
    result.push_back({Constant{Literal::full(DType::F32, sizes, 2.5)}, {}});
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      result.push_back({Iota{DType::I64, shape, static_cast<int64_t>(dim), 0}, {}});
      result.push_back({Iota{DType::F32, shape, static_cast<int64_t>(dim), -3}, {}});
    }
    for (RandomKind kind : {RandomKind::Uniform, RandomKind::Normal}) {
      for (DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
        result.push_back({Random{kind, dtype, shape, DrawPlace::whole(shape)}, {Literal::integer(DType::I64, 5)}});
      }
    }
  }
  result.push_back({FoldIn{}, {Literal::integer(DType::I64, 5), Literal::integer(DType::I64, -9)}});
  result.push_back({SizeValue{DType::I64, 12}, {}});
  result.push_back({SizeValue{DType::F32, 12}, {}});
  return result;
}

std::vector<Sample> elementwise_samples() {
  Numbers numbers(2);
  std::vector<Sample> result;
  for (const Sizes& sizes : usual_sizes()) {
    for (const Op& op : all_ops()) {
      if (const auto* unary = std::get_if<Unary>(&op)) {
        if (unary->kind == UnaryKind::Not) result.push_back({op, {numbers.bools(sizes)}});
        else result.push_back({op, {drawn(numbers, sizes, range_of(unary->kind))}});
      } else if (const auto* binary = std::get_if<Binary>(&op)) {
        result.push_back({op, operands_of(binary->kind, numbers, sizes)});
      } else if (std::holds_alternative<Compare>(op)) {
        result.push_back({op, {numbers.uniform(sizes, -1, 1), numbers.uniform(sizes, -1, 1)}});
      }
    }
    for (int64_t order : {0, 1, 2}) {
      result.push_back({Polygamma{order}, {numbers.uniform(sizes, 0.5, 3)}});
      result.push_back({Polygamma{order}, {numbers.uniform(sizes, -2.8, -2.2)}});
    }
    result.push_back({Select{}, {numbers.bools(sizes), numbers.uniform(sizes, -1, 1), numbers.uniform(sizes, -1, 1)}});
    result.push_back({StopGradient{}, {numbers.uniform(sizes, -1, 1)}, false});
    result.push_back({Convert{DType::F64, true}, {numbers.uniform(sizes, -1, 1)}});
    result.push_back({Convert{DType::I32, true}, {numbers.uniform(sizes, -9, 9)}});
  }
  return result;
}

}  // namespace stepgraph::testing
