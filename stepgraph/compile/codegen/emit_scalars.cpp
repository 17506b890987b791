// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/codegen/emit_scalars.h"

#include <array>
#include <limits>
#include <numbers>

#include <llvm/IR/IRBuilder.h>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

using llvm::IRBuilderBase;
using llvm::Value;

int bits_of_integer(DType dtype) { return dtype == DType::Bool ? 1 : static_cast<int>(size_bytes(dtype)) * 8; }
bool is_unsigned(DType dtype) { return dtype == DType::U8 || dtype == DType::Bool; }
Value* zero_like(Value* x) { return llvm::Constant::getNullValue(x->getType()); }
Value* bits32(IRBuilderBase& b, Value* x) { return b.CreateBitCast(x, type_like(x, b.getInt32Ty())); }

// ---- halves

Value* round_to_bf16(IRBuilderBase& b, Value* x) {
  Value* bits = bits32(b, x);
  Value* odd = b.CreateAnd(b.CreateLShr(bits, integer_like(x, 32, 16)), integer_like(x, 32, 1));
  Value* rounded = b.CreateAdd(bits, b.CreateAdd(odd, integer_like(x, 32, 0x7fff)));
  Value* quiet = b.CreateOr(bits, integer_like(x, 32, 0x400000));
  Value* chosen = b.CreateAnd(b.CreateSelect(b.CreateFCmpUNO(x, x), quiet, rounded), integer_like(x, 32, 0xffff0000LL));
  return b.CreateBitCast(chosen, x->getType());
}
/// A float rounded to the dtype.
Value* rounded(IRBuilderBase& b, DType dtype, Value* x) {
  if (dtype == DType::BF16) return round_to_bf16(b, x);
  if (dtype == DType::F16) return b.CreateFPExt(b.CreateFPTrunc(x, type_like(x, b.getHalfTy())), x->getType());
  return x;
}
/// A double as a float rounded to odd: rounding that to a half is then one rounding of the double.
Value* to_odd_float(IRBuilderBase& b, Value* x) {
  Value* nearest = b.CreateFPTrunc(x, type_like(x, b.getFloatTy()));
  Value* back = b.CreateFPExt(nearest, x->getType());
  Value* bits = bits32(b, nearest);
  Value* is_larger = b.CreateFCmpOGT(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back), b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x));
  Value* towards_zero = b.CreateSub(bits, b.CreateZExt(is_larger, bits->getType()));
  Value* odd = b.CreateOr(towards_zero, integer_like(x, 32, 1));
  return b.CreateBitCast(b.CreateSelect(b.CreateFCmpONE(back, x), odd, bits), nearest->getType());
}
/// An i64 of which a double holds all that decides a rounding to a half: low bits become one that is set.
Value* sticky_integer(IRBuilderBase& b, Value* x) {
  Value* is_big = b.CreateICmpUGT(b.CreateAdd(x, integer_like(x, 64, int64_t{1} << 53)), integer_like(x, 64, int64_t{1} << 54));
  Value* low = b.CreateICmpNE(b.CreateAnd(x, integer_like(x, 64, 0x7ff)), zero_like(x));
  Value* kept = b.CreateAnd(x, integer_like(x, 64, ~int64_t{0x7ff}));
  return b.CreateSelect(is_big, b.CreateOr(kept, b.CreateSelect(low, integer_like(x, 64, 0x400), zero_like(x))), x);
}
/// A double, rounded once to a floating dtype.
Value* double_to(IRBuilderBase& b, DType dtype, Value* x) {
  if (dtype == DType::F64) return x;
  if (dtype == DType::F32) return b.CreateFPTrunc(x, type_like(x, b.getFloatTy()));
  return rounded(b, dtype, to_odd_float(b, x));
}
Value* to_double(IRBuilderBase& b, Value* x) { return b.CreateFPExt(x, type_like(x, b.getDoubleTy())); }

Value* by_library(IRBuilderBase& b, DType dtype, std::string_view function, Value* x, Value* y = nullptr) {
  if (dtype == DType::F64) return emit_library_call(b, function, x, y);
  return double_to(b, dtype, emit_library_call(b, function, to_double(b, x), y == nullptr ? nullptr : to_double(b, y)));
}

/// The C library's name of a kind that has one, or nothing.
std::string_view library_name(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::Exp:
    case UnaryKind::Expm1:
    case UnaryKind::Log:
    case UnaryKind::Log1p:
    case UnaryKind::Sin:
    case UnaryKind::Cos:
    case UnaryKind::Tanh:
    case UnaryKind::Erf:
    case UnaryKind::Exp2:
    case UnaryKind::Log2:
    case UnaryKind::Log10:
    case UnaryKind::Tan:
    case UnaryKind::Asin:
    case UnaryKind::Acos:
    case UnaryKind::Atan:
    case UnaryKind::Sinh:
    case UnaryKind::Cosh:
    case UnaryKind::Asinh:
    case UnaryKind::Acosh:
    case UnaryKind::Atanh:
    case UnaryKind::Erfc: return name(kind);
    default: return {};
  }
}

// ---- unary

Value* sigmoid_of_double(IRBuilderBase& b, Value* x) {
  Value* e = emit_library_call(b, "exp", b.CreateFNeg(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x)));
  Value* one = real_like(x, 1);
  return b.CreateFDiv(b.CreateSelect(b.CreateFCmpOGE(x, zero_like(x)), one, e), b.CreateFAdd(one, e));
}

/// Of floats and doubles, before the rounding to a half. Null: by the C library.
Value* real_unary(IRBuilderBase& b, UnaryKind kind, bool is_double, Value* x) {
  switch (kind) {
    case UnaryKind::Negate: return b.CreateFNeg(x);
    case UnaryKind::Abs: return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
    case UnaryKind::Sign:
      return b.CreateSelect(b.CreateFCmpOGT(x, zero_like(x)), real_like(x, 1), b.CreateSelect(b.CreateFCmpOLT(x, zero_like(x)), real_like(x, -1), x));
    case UnaryKind::Sqrt: return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
    case UnaryKind::Rsqrt: return b.CreateFDiv(real_like(x, 1), b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
    case UnaryKind::Reciprocal: return b.CreateFDiv(real_like(x, 1), x);
    case UnaryKind::Floor: return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
    case UnaryKind::Ceil: return b.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
    case UnaryKind::Round: return b.CreateUnaryIntrinsic(llvm::Intrinsic::nearbyint, x);
    case UnaryKind::Relu: return b.CreateSelect(b.CreateFCmpOLE(x, zero_like(x)), zero_like(x), x);
    case UnaryKind::Sigmoid: return is_double ? sigmoid_of_double(b, x) : emit_sigmoid(b, x);
    case UnaryKind::Exp: return is_double ? nullptr : emit_exp(b, x);
    case UnaryKind::Log: return is_double ? nullptr : emit_log(b, x);
    case UnaryKind::Tanh: return is_double ? nullptr : emit_tanh(b, x);
    case UnaryKind::Erf: return is_double ? nullptr : emit_erf(b, x);
    case UnaryKind::Sin: return is_double ? nullptr : emit_sin(b, x);
    case UnaryKind::Cos: return is_double ? nullptr : emit_cos(b, x);
    default: return nullptr;
  }
}

/// Of a half these are halves.
bool keeps_precision(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::Negate:
    case UnaryKind::Abs:
    case UnaryKind::Sign:
    case UnaryKind::Floor:
    case UnaryKind::Ceil:
    case UnaryKind::Round:
    case UnaryKind::Relu: return true;
    default: return false;
  }
}

Value* integer_unary(IRBuilderBase& b, UnaryKind kind, DType dtype, Value* x) {
  const auto negative = [&] { return is_unsigned(dtype) ? llvm::Constant::getNullValue(type_like(x, b.getInt1Ty())) : b.CreateICmpSLT(x, zero_like(x)); };
  switch (kind) {
    case UnaryKind::Negate: return b.CreateNeg(x);
    case UnaryKind::Abs: return b.CreateSelect(negative(), b.CreateNeg(x), x);
    case UnaryKind::Sign: {
      const int bits = bits_of_integer(dtype);
      Value* positive = b.CreateSelect(b.CreateICmpNE(x, zero_like(x)), integer_like(x, bits, 1), zero_like(x));
      return b.CreateSelect(negative(), integer_like(x, bits, -1), positive);
    }
    case UnaryKind::Floor:
    case UnaryKind::Ceil:
    case UnaryKind::Round: return x;
    case UnaryKind::Relu: return b.CreateSelect(negative(), zero_like(x), x);
    case UnaryKind::Not: return b.CreateNot(x);
    default: check_failed("can_emit", std::string(name(kind)), std::source_location::current());
  }
}

// ---- binary

Value* floor_divide_doubles(IRBuilderBase& b, Value* x, Value* y) {
  Value* zero = zero_like(x);
  Value* plain = b.CreateFDiv(x, y);
  Value* rest = emit_library_call(b, "fmod", x, y);
  Value* quotient = b.CreateFDiv(b.CreateFSub(x, rest), y);
  Value* differs = b.CreateXor(b.CreateFCmpOLT(y, zero), b.CreateFCmpOLT(rest, zero));
  Value* lower = b.CreateAnd(b.CreateFCmpUNE(rest, zero), differs);
  quotient = b.CreateSelect(lower, b.CreateFSub(quotient, real_like(x, 1)), quotient);
  Value* whole = b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, quotient);
  Value* up = b.CreateFCmpOGT(b.CreateFSub(quotient, whole), real_like(x, 0.5));
  Value* result = b.CreateSelect(up, b.CreateFAdd(whole, real_like(x, 1)), whole);
  result = b.CreateSelect(b.CreateFCmpOEQ(quotient, zero), b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, zero, plain), result);
  return b.CreateSelect(b.CreateFCmpOEQ(y, zero), plain, result);
}
Value* remainder_of_doubles(IRBuilderBase& b, Value* x, Value* y) {
  Value* zero = zero_like(x);
  Value* rest = emit_library_call(b, "fmod", x, y);
  Value* differs = b.CreateXor(b.CreateFCmpOLT(y, zero), b.CreateFCmpOLT(rest, zero));
  return b.CreateSelect(b.CreateAnd(b.CreateFCmpUNE(rest, zero), differs), b.CreateFAdd(rest, y), rest);
}

Value* real_binary(IRBuilderBase& b, BinaryKind kind, DType dtype, Value* x, Value* y) {
  const auto in_doubles = [&](Value* (*formula)(IRBuilderBase&, Value*, Value*)) {
    return dtype == DType::F64 ? formula(b, x, y) : double_to(b, dtype, formula(b, to_double(b, x), to_double(b, y)));
  };
  switch (kind) {
    case BinaryKind::Add: return rounded(b, dtype, b.CreateFAdd(x, y));
    case BinaryKind::Subtract: return rounded(b, dtype, b.CreateFSub(x, y));
    case BinaryKind::Multiply: return rounded(b, dtype, b.CreateFMul(x, y));
    case BinaryKind::Divide: return rounded(b, dtype, b.CreateFDiv(x, y));
    case BinaryKind::FloorDivide: return in_doubles(floor_divide_doubles);
    case BinaryKind::Remainder: return in_doubles(remainder_of_doubles);
    case BinaryKind::Power: return by_library(b, dtype, "pow", x, y);
    case BinaryKind::Atan2: return by_library(b, dtype, "atan2", x, y);
    case BinaryKind::Maximum: return b.CreateSelect(b.CreateOr(b.CreateFCmpOGT(x, y), b.CreateFCmpUNO(x, x)), x, y);
    case BinaryKind::Minimum: return b.CreateSelect(b.CreateOr(b.CreateFCmpOLT(x, y), b.CreateFCmpUNO(x, x)), x, y);
    default: check_failed("can_emit", std::string(name(kind)), std::source_location::current());
  }
}

/// By squaring, wrapping; in a loop until no exponent has a bit left.
Value* power_of_integers(IRBuilderBase& b, DType dtype, Value* base, Value* exponent) {
  const int bits = bits_of_integer(dtype);
  Value *zero = zero_like(base), *one = integer_like(base, bits, 1), *minus_one = integer_like(base, bits, -1);
  Value* is_odd = b.CreateTrunc(exponent, type_like(base, b.getInt1Ty()));
  Value* is_negative = is_unsigned(dtype) ? zero_like(is_odd) : b.CreateICmpSLT(exponent, zero);
  Value* fraction =
      b.CreateSelect(b.CreateICmpEQ(base, one), one, b.CreateSelect(b.CreateICmpEQ(base, minus_one), b.CreateSelect(is_odd, minus_one, one), zero));
  Value* start = b.CreateSelect(is_negative, zero, exponent);
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* body = llvm::BasicBlock::Create(b.getContext(), "", before->getParent());
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b.getContext(), "", before->getParent());
  b.CreateBr(body);
  b.SetInsertPoint(body);
  llvm::PHINode *result = b.CreatePHI(base->getType(), 2), *square = b.CreatePHI(base->getType(), 2), *rest = b.CreatePHI(base->getType(), 2);
  Value* next = b.CreateSelect(b.CreateTrunc(rest, is_odd->getType()), b.CreateMul(result, square), result);
  Value* next_square = b.CreateMul(square, square);
  Value* next_rest = b.CreateLShr(rest, one);
  result->addIncoming(one, before), result->addIncoming(next, body);
  square->addIncoming(base, before), square->addIncoming(next_square, body);
  rest->addIncoming(start, before), rest->addIncoming(next_rest, body);
  Value* more = b.CreateICmpNE(next_rest, zero);
  b.CreateCondBr(more->getType()->isVectorTy() ? b.CreateOrReduce(more) : more, body, after);
  b.SetInsertPoint(after);
  return b.CreateSelect(is_negative, fraction, next);
}

Value* divide_integers(IRBuilderBase& b, BinaryKind kind, DType dtype, Value* x, Value* y) {
  const bool quotient = kind == BinaryKind::FloorDivide;
  if (is_unsigned(dtype)) return quotient ? b.CreateUDiv(x, y) : b.CreateURem(x, y);
  const int bits = bits_of_integer(dtype);
  Value *zero = zero_like(x), *one = integer_like(x, bits, 1);
  // The one quotient that overflows is that by -1.
  Value* is_minus_one = b.CreateICmpEQ(y, integer_like(x, bits, -1));
  Value* divisor = b.CreateSelect(is_minus_one, one, y);
  Value* rest = b.CreateSRem(x, divisor);
  Value* lower = b.CreateAnd(b.CreateICmpNE(rest, zero), b.CreateXor(b.CreateICmpSLT(rest, zero), b.CreateICmpSLT(divisor, zero)));
  if (!quotient) return b.CreateSelect(is_minus_one, zero, b.CreateSelect(lower, b.CreateAdd(rest, divisor), rest));
  Value* floor = b.CreateSub(b.CreateSDiv(x, divisor), b.CreateZExt(lower, x->getType()));
  return b.CreateSelect(is_minus_one, b.CreateNeg(x), floor);
}

Value* integer_binary(IRBuilderBase& b, BinaryKind kind, DType dtype, Value* x, Value* y) {
  switch (kind) {
    case BinaryKind::Add: return b.CreateAdd(x, y);
    case BinaryKind::Subtract: return b.CreateSub(x, y);
    case BinaryKind::Multiply: return b.CreateMul(x, y);
    case BinaryKind::FloorDivide:
    case BinaryKind::Remainder: return divide_integers(b, kind, dtype, x, y);
    case BinaryKind::Power: return power_of_integers(b, dtype, x, y);
    case BinaryKind::Maximum: return b.CreateBinaryIntrinsic(is_unsigned(dtype) ? llvm::Intrinsic::umax : llvm::Intrinsic::smax, x, y);
    case BinaryKind::Minimum: return b.CreateBinaryIntrinsic(is_unsigned(dtype) ? llvm::Intrinsic::umin : llvm::Intrinsic::smin, x, y);
    case BinaryKind::And: return b.CreateAnd(x, y);
    case BinaryKind::Or: return b.CreateOr(x, y);
    case BinaryKind::Xor: return b.CreateXor(x, y);
    default: check_failed("can_emit", std::string(name(kind)), std::source_location::current());
  }
}

// ---- random numbers

/// The four words of the block of a counter whose low two words are `number`.
std::array<Value*, 4> philox_block(IRBuilderBase& b, Value* key, Value* number, uint32_t use) {
  const auto low = [&](Value* x) { return b.CreateTrunc(x, type_like(x, b.getInt32Ty())); };
  const auto high = [&](Value* x) { return low(b.CreateLShr(x, integer_like(x, 64, 32))); };
  const auto word = [&](uint32_t value) { return integer_like(number, 32, static_cast<int32_t>(value)); };
  // Ten rounds in a loop: one after the other they would be long to compile.
  std::array<Value*, 6> state = {low(number), high(number), word(0), word(use), low(key), high(key)};  // the counter and the key
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* body = llvm::BasicBlock::Create(b.getContext(), "", before->getParent());
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b.getContext(), "", before->getParent());
  b.CreateBr(body);
  b.SetInsertPoint(body);
  llvm::PHINode* round = b.CreatePHI(b.getInt32Ty(), 2);
  std::array<llvm::PHINode*, 6> at;
  for (size_t k = 0; k < state.size(); ++k) {
    at[k] = b.CreatePHI(state[k]->getType(), 2);
    at[k]->addIncoming(state[k], before);
  }
  const auto product = [&](Value* x, int64_t factor) { return b.CreateMul(b.CreateZExt(x, type_like(x, b.getInt64Ty())), integer_like(x, 64, factor)); };
  Value *first = product(at[0], 0xD2511F53), *second = product(at[2], 0xCD9E8D57);
  state = {b.CreateXor(b.CreateXor(high(second), at[1]), at[4]),
           low(second),
           b.CreateXor(b.CreateXor(high(first), at[3]), at[5]),
           low(first),
           b.CreateAdd(at[4], word(0x9E3779B9)),
           b.CreateAdd(at[5], word(0xBB67AE85))};
  for (size_t k = 0; k < state.size(); ++k) at[k]->addIncoming(state[k], body);
  Value* next = b.CreateAdd(round, b.getInt32(1));
  round->addIncoming(b.getInt32(0), before);
  round->addIncoming(next, body);
  b.CreateCondBr(b.CreateICmpULT(next, b.getInt32(10)), body, after);
  b.SetInsertPoint(after);
  return {state[0], state[1], state[2], state[3]};
}
/// Vectors where one of the two is.
void widen_to_each_other(IRBuilderBase& b, Value*& x, Value*& y) {
  if (x->getType()->isVectorTy() == y->getType()->isVectorTy()) return;
  Value*& narrow = x->getType()->isVectorTy() ? y : x;
  narrow = b.CreateVectorSplat(vector_lanes, narrow);
}
struct DrawBlock {
  std::array<Value*, 4> words;
  Value *is_odd, *is_upper;  ///< of the element's number mod 4
};
DrawBlock draw_block(IRBuilderBase& b, Value* key, Value* element) {
  widen_to_each_other(b, key, element);
  Value* is_odd = b.CreateTrunc(element, type_like(element, b.getInt1Ty()));
  Value* is_upper = b.CreateICmpNE(b.CreateAnd(element, integer_like(element, 64, 2)), zero_like(element));
  return {philox_block(b, key, b.CreateLShr(element, integer_like(element, 64, 2)), 0), is_odd, is_upper};
}

}  // namespace

llvm::Type* register_type(IRBuilderBase& b, DType dtype) {
  switch (dtype) {
    case DType::F64: return b.getDoubleTy();
    case DType::F32:
    case DType::BF16:
    case DType::F16: return b.getFloatTy();
    case DType::I64:
    case DType::I32:
    case DType::I8:
    case DType::U8:
    case DType::Bool: break;
  }
  return b.getIntNTy(static_cast<unsigned>(bits_of_integer(dtype)));
}
llvm::Type* memory_type(IRBuilderBase& b, DType dtype) {
  if (is_half(dtype)) return b.getInt16Ty();
  return dtype == DType::Bool ? b.getInt8Ty() : register_type(b, dtype);
}
Value* from_memory(IRBuilderBase& b, DType dtype, Value* stored) {
  switch (dtype) {
    case DType::BF16:
      return b.CreateBitCast(b.CreateShl(b.CreateZExt(stored, type_like(stored, b.getInt32Ty())), integer_like(stored, 32, 16)),
                             type_like(stored, b.getFloatTy()));
    case DType::F16: return b.CreateFPExt(b.CreateBitCast(stored, type_like(stored, b.getHalfTy())), type_like(stored, b.getFloatTy()));
    case DType::Bool: return b.CreateICmpNE(stored, zero_like(stored));
    default: return stored;
  }
}
Value* to_memory(IRBuilderBase& b, DType dtype, Value* value) {
  switch (dtype) {
    case DType::BF16: return b.CreateTrunc(b.CreateLShr(bits32(b, value), integer_like(value, 32, 16)), type_like(value, b.getInt16Ty()));
    case DType::F16: return b.CreateBitCast(b.CreateFPTrunc(value, type_like(value, b.getHalfTy())), type_like(value, b.getInt16Ty()));
    case DType::Bool: return b.CreateZExt(value, type_like(value, b.getInt8Ty()));
    default: return value;
  }
}
Value* emit_constant(IRBuilderBase& b, DType dtype, uint64_t bits) {
  llvm::Type* type = memory_type(b, dtype);
  Value* stored = llvm::ConstantInt::get(b.getIntNTy(static_cast<unsigned>(size_bytes(dtype) * 8)),
                                         size_bytes(dtype) == 8 ? bits : bits & ((uint64_t{1} << (size_bytes(dtype) * 8)) - 1));
  return from_memory(b, dtype, b.CreateBitCast(stored, type));
}

Value* emit_unary(IRBuilderBase& b, UnaryKind kind, DType dtype, Value* x) {
  const bool floating = is_floating(dtype);
  if (kind == UnaryKind::IsFinite || kind == UnaryKind::IsNan) {
    if (!floating) return llvm::ConstantInt::get(type_like(x, b.getInt1Ty()), kind == UnaryKind::IsFinite ? 1 : 0);
    if (kind == UnaryKind::IsNan) return b.CreateFCmpUNO(x, x);
    return b.CreateFCmpOLT(b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), real_like(x, std::numeric_limits<double>::infinity()));
  }
  if (!floating) return integer_unary(b, kind, dtype, x);
  if (Value* result = real_unary(b, kind, dtype == DType::F64, x)) return keeps_precision(kind) ? result : rounded(b, dtype, result);
  SG_CHECK(!library_name(kind).empty(), std::string(name(kind)));
  return by_library(b, dtype, library_name(kind), x);
}

Value* emit_binary(IRBuilderBase& b, BinaryKind kind, DType dtype, Value* x, Value* y) {
  return is_floating(dtype) ? real_binary(b, kind, dtype, x, y) : integer_binary(b, kind, dtype, x, y);
}

Value* emit_compare(IRBuilderBase& b, CompareKind kind, DType dtype, Value* x, Value* y) {
  using P = llvm::CmpInst::Predicate;
  const bool floating = is_floating(dtype), whole = is_unsigned(dtype);
  const auto pick = [&](P real, P signed_one, P unsigned_one) { return floating ? real : whole ? unsigned_one : signed_one; };
  P predicate{};
  switch (kind) {
    case CompareKind::Equal: predicate = pick(P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ); break;
    case CompareKind::NotEqual: predicate = pick(P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE); break;
    case CompareKind::Less: predicate = pick(P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT); break;
    case CompareKind::LessEqual: predicate = pick(P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE); break;
    case CompareKind::Greater: predicate = pick(P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT); break;
    case CompareKind::GreaterEqual: predicate = pick(P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE); break;
  }
  return b.CreateCmp(predicate, x, y);
}

Value* emit_convert(IRBuilderBase& b, DType from, DType to, Value* x) {
  if (from == to) return x;
  llvm::Type* type = type_like(x, register_type(b, to));
  if (to == DType::Bool) return is_floating(from) ? b.CreateFCmpUNE(x, zero_like(x)) : b.CreateICmpNE(x, zero_like(x));
  if (is_floating(from) && is_floating(to)) {
    if (from == DType::F64) return double_to(b, to, x);
    return to == DType::F64 ? to_double(b, x) : rounded(b, to, x);
  }
  if (is_floating(from)) {
    return b.CreateIntrinsic(to == DType::U8 ? llvm::Intrinsic::fptoui_sat : llvm::Intrinsic::fptosi_sat, {type, x->getType()}, {x});
  }
  if (!is_floating(to)) return is_unsigned(from) ? b.CreateZExtOrTrunc(x, type) : b.CreateSExtOrTrunc(x, type);
  if (is_unsigned(from)) return rounded(b, to, b.CreateUIToFP(x, type));
  if (!is_half(to) || from == DType::I8) return rounded(b, to, b.CreateSIToFP(x, type));
  // To a half through a double that has lost nothing that counts.
  return double_to(b, to, b.CreateSIToFP(from == DType::I64 ? sticky_integer(b, x) : x, type_like(x, b.getDoubleTy())));
}

Value* emit_uniform(IRBuilderBase& b, Value* key, Value* element, DType dtype) {
  const DrawBlock block = draw_block(b, key, element);
  Value* lower = b.CreateSelect(block.is_odd, block.words[1], block.words[0]);
  Value* upper = b.CreateSelect(block.is_odd, block.words[3], block.words[2]);
  Value* word = b.CreateSelect(block.is_upper, upper, lower);
  // The mantissa bits of the dtype alone, so that the nearest value below 1 does not round to 1: exact in every floating dtype.
  const int dropped = dtype == DType::BF16 ? 24 : dtype == DType::F16 ? 21 : 8;
  Value* number = b.CreateLShr(word, integer_like(word, 32, dropped));
  llvm::Type* type = type_like(word, register_type(b, dtype));
  Value* real = b.CreateSIToFP(number, type);
  return b.CreateFMul(real, real_like(real, 1.0 / static_cast<double>(uint64_t{1} << (32 - dropped))));
}

Value* emit_normal(IRBuilderBase& b, Value* key, Value* element, DType dtype) {
  const DrawBlock block = draw_block(b, key, element);
  llvm::Type* real = type_like(block.words[0], b.getDoubleTy());
  const auto word = [&](size_t index) { return b.CreateUIToFP(b.CreateSelect(block.is_upper, block.words[index + 2], block.words[index]), real); };
  Value* first = word(0);
  Value* u = b.CreateFMul(b.CreateFAdd(first, real_like(first, 1)), real_like(first, 0x1p-32));
  Value* angle = b.CreateFMul(real_like(first, 2 * std::numbers::pi), b.CreateFMul(word(1), real_like(first, 0x1p-32)));
  Value* radius = b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, b.CreateFMul(real_like(first, -2), emit_library_call(b, "log", u)));
  Value* cosine = emit_library_call(b, "cos", angle);
  Value* sine = emit_library_call(b, "sin", angle);
  return double_to(b, dtype, b.CreateFMul(radius, b.CreateSelect(block.is_odd, sine, cosine)));
}

Value* emit_fold(IRBuilderBase& b, Value* key, Value* operand) {
  widen_to_each_other(b, key, operand);
  const std::array<Value*, 4> words = philox_block(b, key, operand, 1);
  llvm::Type* wide = type_like(operand, b.getInt64Ty());
  return b.CreateOr(b.CreateZExt(words[0], wide), b.CreateShl(b.CreateZExt(words[1], wide), integer_like(operand, 64, 32)));
}

// ---- reductions

Value* emit_identity(IRBuilderBase& b, ReduceKind kind, DType dtype) {
  llvm::Type* type = register_type(b, dtype);
  if (is_floating(dtype)) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return llvm::ConstantFP::get(type, kind == ReduceKind::Sum ? 0.0 : kind == ReduceKind::Product ? 1.0 : kind == ReduceKind::Max ? -infinity : infinity);
  }
  const auto bits = static_cast<unsigned>(bits_of_integer(dtype));
  switch (kind) {
    case ReduceKind::Sum:
    case ReduceKind::Any: return llvm::ConstantInt::get(type, 0);
    case ReduceKind::Product:
    case ReduceKind::All: return llvm::ConstantInt::get(type, 1);
    case ReduceKind::Max: return llvm::ConstantInt::get(type, is_unsigned(dtype) ? llvm::APInt::getMinValue(bits) : llvm::APInt::getSignedMinValue(bits));
    case ReduceKind::Min: break;
  }
  return llvm::ConstantInt::get(type, is_unsigned(dtype) ? llvm::APInt::getMaxValue(bits) : llvm::APInt::getSignedMaxValue(bits));
}

Value* emit_combine(IRBuilderBase& b, ReduceKind kind, DType dtype, Value* total, Value* x) {
  const DType plain = is_half(dtype) ? DType::F32 : dtype;  // without a rounding
  switch (kind) {
    case ReduceKind::Sum: return emit_binary(b, BinaryKind::Add, plain, total, x);
    case ReduceKind::Product: return emit_binary(b, BinaryKind::Multiply, plain, total, x);
    case ReduceKind::Max: return emit_binary(b, BinaryKind::Maximum, plain, total, x);
    case ReduceKind::Min: return emit_binary(b, BinaryKind::Minimum, plain, total, x);
    case ReduceKind::Any: return b.CreateOr(total, x);
    case ReduceKind::All: return b.CreateAnd(total, x);
  }
  return nullptr;
}

bool joins_in_double(ReduceKind kind, DType dtype) { return is_floating(dtype) && (kind == ReduceKind::Sum || kind == ReduceKind::Product); }

Value* emit_is_better(IRBuilderBase& b, bool largest, DType dtype, Value* value, Value* best) {
  Value* beats = emit_compare(b, largest ? CompareKind::Greater : CompareKind::Less, dtype, value, best);
  if (!is_floating(dtype)) return beats;
  return b.CreateAnd(b.CreateFCmpORD(best, best), b.CreateOr(b.CreateFCmpUNO(value, value), beats));
}

}  // namespace stepgraph
