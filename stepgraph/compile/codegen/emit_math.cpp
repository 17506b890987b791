// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/codegen/emit_math.h"

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

namespace stepgraph {
namespace {

using llvm::IRBuilderBase;
using llvm::Value;

Value* fused(IRBuilderBase& b, Value* x, Value* y, Value* z) { return b.CreateIntrinsic(x->getType(), llvm::Intrinsic::fma, {x, y, z}); }
/// Coefficients from the constant upwards.
Value* polynomial(IRBuilderBase& b, Value* x, std::initializer_list<float> coefficients) {
  auto c = std::rbegin(coefficients);
  Value* sum = real_like(x, *c);
  while (++c != std::rend(coefficients)) sum = fused(b, sum, x, real_like(x, *c));
  return sum;
}
Value* magnitude_of(IRBuilderBase& b, Value* x) { return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
Value* with_sign_of(IRBuilderBase& b, Value* x, Value* sign) { return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, sign); }
Value* bits_of(IRBuilderBase& b, Value* x) { return b.CreateBitCast(x, type_like(x, b.getInt32Ty())); }
Value* float_of(IRBuilderBase& b, Value* bits) { return b.CreateBitCast(bits, type_like(bits, b.getFloatTy())); }

/// x rounded to a whole number, by an addition: as a float and as an integer. |x| < 2^22; of NaN the integer is any.
struct Whole {
  Value *value, *number;
};
Whole nearest_whole(IRBuilderBase& b, Value* x, double factor) {
  const float shift = 12582912.0F;  // 1.5 * 2^23: its last place is 1
  Value* sum = fused(b, x, real_like(x, factor), real_like(x, shift));
  int32_t shift_bits = 0;
  std::memcpy(&shift_bits, &shift, sizeof shift_bits);
  return {b.CreateFSub(sum, real_like(x, shift)), b.CreateSub(bits_of(b, sum), integer_like(x, 32, shift_bits))};
}

/// 2^n for n in [-126, 127].
Value* power_of_two(IRBuilderBase& b, Value* n) { return float_of(b, b.CreateShl(b.CreateAdd(n, integer_like(n, 32, 127)), integer_like(n, 32, 23))); }

/// The exponential as mantissa times 2^power.
struct Exponential {
  Value *mantissa, *power;
};
Exponential exponential(IRBuilderBase& b, Value* x) {
  const Whole n = nearest_whole(b, x, 1.44269504088896341);
  Value* r = fused(b, n.value, real_like(x, -0.693145751953125), x);  // the logarithm of 2 in two floats, the first of few bits
  r = fused(b, n.value, real_like(x, -1.42860682030941723e-6), r);
  Value* tail = polynomial(b, r, {0.5F, 0.166665182F, 0.041666206F, 0.00836891774F, 0.00139505381F});
  return {b.CreateFAdd(fused(b, b.CreateFMul(r, r), tail, r), real_like(x, 1)), n.number};
}
/// Of what lies in [-80, 80] or is NaN.
Value* bounded_exp(IRBuilderBase& b, Value* x) {
  const Exponential e = exponential(b, x);
  return b.CreateFMul(e.mantissa, power_of_two(b, e.power));
}
/// min(x, limit), NaN where x is.
Value* at_most(IRBuilderBase& b, Value* x, double limit) { return b.CreateSelect(b.CreateFCmpOGT(x, real_like(x, limit)), real_like(x, limit), x); }

/// sin or cos of |x| <= 2^20. pi/2 in three floats: the first product is exact with the subtraction, the others lose less than the result's last place.
struct Turn {
  Value *rest, *quarter;
};
Turn quarter_turns(IRBuilderBase& b, Value* x) {
  const Whole n = nearest_whole(b, x, 0.636619772367581343);
  Value* rest = x;
  for (const double part : {1.57079637050628662109375, -4.37113900018624283e-8, -1.71512449803038849e-15}) {
    rest = fused(b, n.value, real_like(x, -part), rest);
  }
  return {rest, n.number};
}

Value* sine_or_cosine(IRBuilderBase& b, Value* x, int quarters) {
  const Turn turn = quarter_turns(b, x);
  Value *r = turn.rest, *z = b.CreateFMul(r, r);
  Value* sine = fused(b, b.CreateFMul(r, z), polynomial(b, z, {-0.166666552F, 0.00833216868F, -0.000195160115F}), r);
  Value* half = fused(b, z, real_like(z, -0.5), real_like(z, 1));
  // 1 - z/2 is rounded; what it lost is added with the rest.
  Value* lost = fused(b, z, real_like(z, -0.5), b.CreateFSub(real_like(z, 1), half));
  Value* cosine = b.CreateFAdd(half, fused(b, b.CreateFMul(z, z), polynomial(b, z, {0.0416666456F, -0.00138873549F, 2.44370058e-05F}), lost));
  Value* quarter = b.CreateAdd(turn.quarter, integer_like(x, 32, quarters));
  Value* is_odd = b.CreateTrunc(quarter, type_like(x, b.getInt1Ty()));
  Value* sign = b.CreateShl(b.CreateAnd(quarter, integer_like(x, 32, 2)), integer_like(x, 32, 30));
  return float_of(b, b.CreateXor(bits_of(b, b.CreateSelect(is_odd, cosine, sine)), sign));
}

/// Beyond 2^20 by the C library, lane by lane, if there is such a lane.
Value* with_library_beyond(IRBuilderBase& b, Value* x, Value* near, std::string_view function) {
  Value* is_far = b.CreateFCmpOGT(magnitude_of(b, x), real_like(x, 0x1p20));
  Value* any = x->getType()->isVectorTy() ? b.CreateOrReduce(is_far) : is_far;
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Function* parent = before->getParent();
  llvm::BasicBlock* far = llvm::BasicBlock::Create(b.getContext(), "", parent);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b.getContext(), "", parent);
  b.CreateCondBr(any, far, after);
  b.SetInsertPoint(far);
  Value* wide = emit_library_call(b, function, b.CreateFPExt(x, type_like(x, b.getDoubleTy())));
  Value* chosen = b.CreateSelect(is_far, b.CreateFPTrunc(wide, x->getType()), near);
  llvm::BasicBlock* far_end = b.GetInsertBlock();
  b.CreateBr(after);
  b.SetInsertPoint(after);
  llvm::PHINode* result = b.CreatePHI(x->getType(), 2);
  result->addIncoming(near, before);
  result->addIncoming(chosen, far_end);
  return result;
}

}  // namespace

llvm::Type* type_like(Value* like, llvm::Type* scalar) { return like->getType()->isVectorTy() ? llvm::FixedVectorType::get(scalar, vector_lanes) : scalar; }
Value* real_like(Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }
Value* integer_like(Value* like, int bits, int64_t value) {
  llvm::Type* scalar = llvm::IntegerType::get(like->getContext(), static_cast<unsigned>(bits));
  return llvm::ConstantInt::get(type_like(like, scalar), static_cast<uint64_t>(value), true);
}

Value* emit_exp(IRBuilderBase& b, Value* x) {
  // Within these the result is already 0 or infinite; NaN stays.
  Value* t = at_most(b, x, 89);
  t = b.CreateSelect(b.CreateFCmpOLT(t, real_like(x, -104.5)), real_like(x, -104.5), t);
  const Exponential e = exponential(b, t);
  // In two steps: the first is exact, the second rounds what becomes denormal or infinite.
  Value* half = b.CreateAShr(e.power, integer_like(x, 32, 1));
  return b.CreateFMul(b.CreateFMul(e.mantissa, power_of_two(b, half)), power_of_two(b, b.CreateSub(e.power, half)));
}

Value* emit_log(IRBuilderBase& b, Value* x) {
  Value* is_small = b.CreateFCmpOLT(x, real_like(x, 0x1p-126));
  Value* t = b.CreateSelect(is_small, b.CreateFMul(x, real_like(x, 0x1p23)), x);
  // The mantissa in [sqrt(1/2), sqrt(2)), so that near 1 nothing is lost.
  constexpr int64_t root_bits = 0x3f3504f3;
  Value* shifted = b.CreateSub(bits_of(b, t), integer_like(x, 32, root_bits));
  Value* exponent = b.CreateAShr(shifted, integer_like(x, 32, 23));
  exponent = b.CreateAdd(exponent, b.CreateSelect(is_small, integer_like(x, 32, -23), integer_like(x, 32, 0)));
  Value* mantissa = float_of(b, b.CreateAdd(b.CreateAnd(shifted, integer_like(x, 32, 0x7fffff)), integer_like(x, 32, root_bits)));
  Value* f = b.CreateFSub(mantissa, real_like(x, 1));
  Value* tail = polynomial(b, f, {0.333333313F, -0.250008225F, 0.200012267F, -0.166233569F, 0.142017618F, -0.131601945F, 0.127615497F, -0.0763442963F});
  Value* e = b.CreateSIToFP(exponent, x->getType());
  Value* square = b.CreateFMul(f, f);
  Value* low = fused(b, b.CreateFMul(square, f), tail, b.CreateFMul(e, real_like(x, 1.42860682030941723e-6)));
  low = fused(b, square, real_like(x, -0.5), low);
  Value* result = fused(b, e, real_like(x, 0.693145751953125), b.CreateFAdd(f, low));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  result = b.CreateSelect(b.CreateFCmpOLT(x, real_like(x, infinity)), result, x);  // infinity and NaN
  result = b.CreateSelect(b.CreateFCmpOLT(x, real_like(x, 0)), real_like(x, std::numeric_limits<double>::quiet_NaN()), result);
  return b.CreateSelect(b.CreateFCmpOEQ(x, real_like(x, 0)), real_like(x, -infinity), result);
}

Value* emit_tanh(IRBuilderBase& b, Value* x) {
  Value* t = magnitude_of(b, x);
  Value* z = b.CreateFMul(x, x);
  Value* tail = polynomial(b, z, {-0.333332837F, 0.133314908F, -0.0537434965F, 0.0206505787F, -0.00571703631F});
  Value* near = fused(b, b.CreateFMul(t, z), tail, t);
  // 1 - 2 / (exp(2 t) + 1), which is 1 from 9.1 on.
  Value* bounded = at_most(b, t, 10);
  Value* e = bounded_exp(b, b.CreateFAdd(bounded, bounded));
  Value* far = b.CreateFSub(real_like(x, 1), b.CreateFDiv(real_like(x, 2), b.CreateFAdd(e, real_like(x, 1))));
  return with_sign_of(b, b.CreateSelect(b.CreateFCmpOLT(t, real_like(x, 0.625)), near, far), x);
}

Value* emit_erf(IRBuilderBase& b, Value* x) {
  Value* t = magnitude_of(b, x);
  Value* z = b.CreateFMul(x, x);
  Value* near = fused(b, t, polynomial(b, z, {0.128379151F, -0.376125067F, 0.112819552F, -0.0267712828F, 0.00499960128F, -0.000602180604F}), t);
  // 1 - exp(-t - t q(t)), which is 1 from 4 on.
  Value* s = at_most(b, t, 4);
  Value* q = polynomial(b, s, {0.12864849F, 0.635151327F, 0.10623689F, -0.0237620752F, 0.00364246476F, -0.000322805339F, 1.1231461e-05F});
  Value* far = b.CreateFSub(real_like(x, 1), bounded_exp(b, b.CreateFNeg(fused(b, s, q, s))));
  return with_sign_of(b, b.CreateSelect(b.CreateFCmpOLT(t, real_like(x, 0.92)), near, far), x);
}

Value* emit_sigmoid(IRBuilderBase& b, Value* x) {
  // The exponent is never positive, so that nothing overflows.
  Value* e = emit_exp(b, b.CreateFNeg(magnitude_of(b, x)));
  Value* one = real_like(x, 1);
  return b.CreateFDiv(b.CreateSelect(b.CreateFCmpOGE(x, real_like(x, 0)), one, e), b.CreateFAdd(e, one));
}

Value* emit_sin(IRBuilderBase& b, Value* x) {
  Value* near = sine_or_cosine(b, x, 0);
  near = b.CreateSelect(b.CreateFCmpOEQ(x, real_like(x, 0)), x, near);  // the sign of zero
  return with_library_beyond(b, x, near, "sin");
}
Value* emit_cos(IRBuilderBase& b, Value* x) { return with_library_beyond(b, x, sine_or_cosine(b, x, 1), "cos"); }

Value* emit_library_call(IRBuilderBase& b, std::string_view function, Value* x, Value* y) {
  llvm::Module* module = b.GetInsertBlock()->getModule();
  llvm::Type* real = b.getDoubleTy();
  llvm::FunctionType* type = y == nullptr ? llvm::FunctionType::get(real, {real}, false) : llvm::FunctionType::get(real, {real, real}, false);
  llvm::FunctionCallee callee = module->getOrInsertFunction(llvm::StringRef(function.data(), function.size()), type);
  auto* declared = llvm::cast<llvm::Function>(callee.getCallee());
  declared->setDoesNotThrow();
  declared->setWillReturn();
  declared->setDoesNotAccessMemory();  // errno is nobody's here
  if (!x->getType()->isVectorTy()) return y == nullptr ? b.CreateCall(callee, {x}) : b.CreateCall(callee, {x, y});
  // A loop over memory: sixteen calls in a row would be long to compile.
  llvm::Function* parent = b.GetInsertBlock()->getParent();
  llvm::IRBuilder<> entry(&parent->getEntryBlock(), parent->getEntryBlock().begin());
  llvm::Type* array = llvm::ArrayType::get(real, vector_lanes);
  Value* from = entry.CreateAlloca(array);
  Value* second = y == nullptr ? nullptr : entry.CreateAlloca(array);
  b.CreateAlignedStore(x, from, llvm::Align(8));
  if (y != nullptr) b.CreateAlignedStore(y, second, llvm::Align(8));
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* body = llvm::BasicBlock::Create(b.getContext(), "", parent);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b.getContext(), "", parent);
  b.CreateBr(body);
  b.SetInsertPoint(body);
  llvm::PHINode* lane = b.CreatePHI(b.getInt64Ty(), 2);
  lane->addIncoming(b.getInt64(0), before);
  Value* place = b.CreateGEP(real, from, lane);
  Value* one = b.CreateLoad(real, place);
  b.CreateStore(y == nullptr ? b.CreateCall(callee, {one}) : b.CreateCall(callee, {one, b.CreateLoad(real, b.CreateGEP(real, second, lane))}), place);
  Value* next = b.CreateAdd(lane, b.getInt64(1));
  lane->addIncoming(next, body);
  b.CreateCondBr(b.CreateICmpULT(next, b.getInt64(vector_lanes)), body, after);
  b.SetInsertPoint(after);
  return b.CreateAlignedLoad(x->getType(), from, llvm::Align(8));
}

}  // namespace stepgraph
