// SPDX-License-Identifier: Apache-2.0
// The loops of a schedule and the memory of a form; single expressions are emit_scalars.h.
#include "stepgraph/compile/codegen/emit_form.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_map>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/codegen/emit_lanes.h"
#include "stepgraph/compile/codegen/emit_object.h"
#include "stepgraph/compile/codegen/emit_scalars.h"
#include "stepgraph/compile/codegen/emit_sizes.h"
#include "stepgraph/compile/codegen/schedule.h"
#include "stepgraph/program/form_text.h"

namespace stepgraph {
namespace {

using llvm::Value;
/// One value, or one vector for each vector of the piece that is at work.
using Parts = llvm::SmallVector<Value*, 4>;
using Action = std::function<void()>;

/// Which lanes take part. Null: all.
struct Mask {
  Value* all = nullptr;    ///< one bit
  Value* lanes = nullptr;  ///< one a lane
};

/// What a reduction has so far, in memory that becomes registers. One for each vector.
struct Accumulator {
  int expr = 0;
  Parts sums;    ///< in the dtype (halves: f32); of an ArgReduce the best element
  Parts totals;  ///< of what is joined in f64; of an ArgReduce the number of the best element
};

class FormEmitter {
 public:
  FormEmitter(const Form& form, const FormSchedule& schedule, llvm::Module& module, const std::string& symbol);
  void emit();

 private:
  // sizes and places
  Value* number(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }
  Value* size(const Dim& dim) { return sizes_.size(dim); }
  Value* extent(int factor);
  bool is_multiple_of_lanes(int factor) const;
  Value* place(const Affine& affine, int part);
  Value* lane_numbers(int bits);
  Value* splat(Value* value) { return value->getType()->isVectorTy() ? value : b_.CreateVectorSplat(vector_lanes, value); }
  llvm::Type* vector_of(llvm::Type* type) { return llvm::FixedVectorType::get(type, vector_lanes); }
  Value* slot(llvm::Type* type);

  // control
  void loop(Value* from, Value* to, int64_t step, const std::function<void(Value*)>& body);
  void only_if(Value* condition, const Action& action);
  void in_scope(const Action& action);

  // values
  bool is_known(int expr) const;
  bool is_vector(int expr) const { return schedule_.vector >= 0 && (varies(expr) & factor_bit(schedule_.vector)) != 0; }
  FactorSet varies(int expr) const { return schedule_.varies[static_cast<size_t>(expr)]; }
  const Expr& expr(int index) const { return form_.exprs[static_cast<size_t>(index)]; }
  const Parts& value(int expr);
  Value* part_of(int expr, int part, bool as_vector);
  Parts emit_expr(int index);
  Value* emit_plain(int index, int part);
  Value* emit_place(const IndexExpr& place, int index, int part);
  Value* emit_division(BinaryKind kind, int index, int part);
  const KeptRow* kept_row(int expr) const;
  Value* kept_address(const KeptRow& row, int part);
  Value* keep(const KeptRow& row, Value* value, int part);
  void hoist(const std::vector<int>& roots, FactorSet loops);

  // memory
  Value* lanes_of(const Mask& mask);
  Value* active_lanes(int part);
  Mask guards_of(const LoadExpr& load, int part);
  void also(Mask& mask, Value* condition);
  Value* emit_load(const LoadExpr& load, int index, int part);
  Value* load_scalar(const LoadExpr& load, DType dtype, Value* address, const Mask& mask);
  Value* load_vector(const LoadExpr& load, DType dtype, Value* address, Value* computed, const Mask& guards, int part);
  void report(Value* bad, Value* index, Value* size);
  void emit_store(const Store& store);
  void store_vector(const Store& store, Value* value, Value* address, int part);
  void watch(Value* value, int part);
  void report_watched();
  template <class Access>
  Access* of_operand(Access* access, int operand);
  Value* element_address(int operand, Value* index) {
    return b_.CreateGEP(memory_type(b_, form_.operands[static_cast<size_t>(operand)].dtype), pointers_[static_cast<size_t>(operand)], index);
  }

  // loops
  void emit_part(Value* number);
  void emit_rows();
  void emit_columns(Value* low, Value* high);
  void vector_loop(Value* low, Value* high, const Action& leaf);
  void reduced_loops(size_t depth, const std::vector<int>& roots, const Action& leaf, const Action& begin_block, const Action& end_block);
  void emit_phases();
  void emit_reductions(int phase);
  void emit_stores(bool in_reduced_loops);
  Accumulator start(int expr);
  void begin_block(Accumulator& accumulator);
  void accumulate(Accumulator& accumulator);
  void accumulate_best(Accumulator& accumulator, const ArgReduceExpr& op, int part);
  void end_block(Accumulator& accumulator);
  void finish(Accumulator& accumulator);
  FactorSet reduced_set() const {
    FactorSet set = 0;
    for (const int factor : schedule_.reduced) set |= factor_bit(factor);
    return set;
  }

  const Form& form_;
  const FormSchedule& schedule_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_, entry_;  ///< entry_: what holds for the whole call
  llvm::Function* function_ = nullptr;
  SizeEmitter sizes_;
  std::vector<Value*> pointers_;
  std::vector<llvm::MDNode*> scopes_of_operands_, others_of_operands_;
  std::vector<Value*> at_;      ///< by factor: its value, of the vector factor that of the first lane; null outside of its loop
  std::vector<Value*> active_;  ///< by part: how many lanes take part, null if all
  int parts_ = 1, phase_ = 0;
  std::vector<std::unordered_map<int, Parts>> known_;  ///< values by expression, one table for each loop around
  Value* dummy_ = nullptr;                             ///< an element that may always be read
  std::vector<std::pair<llvm::Type*, Value*>> watched_;  ///< by type of bits: a slot that is 0 while all that was stored to watched operands is finite
};

// ---- sizes and places

FormEmitter::FormEmitter(const Form& form, const FormSchedule& schedule, llvm::Module& module, const std::string& symbol)
    : form_(form), schedule_(schedule), module_(module), b_(module.getContext()), entry_(module.getContext()), sizes_(entry_, form.size_count) {
  llvm::Type *pointer = b_.getPtrTy(), *whole = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, whole, whole, pointer, pointer}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module_);
  function_->setDoesNotThrow();
  function_->addFnAttr("prefer-vector-width", "512");
  function_->addFnAttr("min-legal-vector-width", "512");
  entry_.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", function_));
  sizes_.read_from(function_->getArg(1));
  at_.resize(form.factors.size(), nullptr);
  active_.resize(1, nullptr);
  llvm::MDBuilder metadata(module.getContext());
  llvm::MDNode* domain = metadata.createAnonymousAliasScopeDomain();
  std::vector<llvm::Metadata*> scopes;
  for (size_t k = 0; k < form.operands.size(); ++k) {
    pointers_.push_back(entry_.CreateLoad(pointer, entry_.CreateConstGEP1_64(pointer, function_->getArg(0), k)));
    scopes.push_back(metadata.createAnonymousAliasScope(domain));
  }
  for (size_t k = 0; k < scopes.size(); ++k) {
    std::vector<llvm::Metadata*> others = scopes;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(k));
    scopes_of_operands_.push_back(llvm::MDNode::get(module.getContext(), {scopes[k]}));
    others_of_operands_.push_back(llvm::MDNode::get(module.getContext(), others));
  }
}

template <class Access>
Access* FormEmitter::of_operand(Access* access, int operand) {
  access->setMetadata(llvm::LLVMContext::MD_alias_scope, scopes_of_operands_[static_cast<size_t>(operand)]);
  access->setMetadata(llvm::LLVMContext::MD_noalias, others_of_operands_[static_cast<size_t>(operand)]);
  return access;
}

Value* FormEmitter::slot(llvm::Type* type) {
  llvm::IRBuilder<> first(&function_->getEntryBlock(), function_->getEntryBlock().begin());
  return first.CreateAlloca(type);
}

Value* FormEmitter::extent(int factor) {
  const Factor& f = form_.factors[static_cast<size_t>(factor)];
  if (f.block_of < 0) return size(f.size);
  Value* rest = b_.CreateSub(size(f.total), b_.CreateMul(at_[static_cast<size_t>(f.block_of)], size(f.size)));
  rest = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, size(f.size), rest);
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, number(0), rest);
}

bool FormEmitter::is_multiple_of_lanes(int factor) const {
  const Factor& f = form_.factors[static_cast<size_t>(factor)];
  const bool whole = f.size.is_constant() && f.size.constant() % vector_lanes == 0;
  return whole && (f.block_of < 0 || (f.total.is_constant() && f.total.constant() % vector_lanes == 0));
}

Value* FormEmitter::place(const Affine& affine, int part) {
  Value* sum = size(affine.constant);
  for (const AffineTerm& term : affine.terms) {
    Value* at = at_[static_cast<size_t>(term.factor)];
    SG_CHECK(at != nullptr, "an address within the loops of its factors");
    if (term.factor == schedule_.vector && part > 0) at = b_.CreateNSWAdd(at, number(int64_t{part} * vector_lanes));
    sum = b_.CreateNSWAdd(sum, b_.CreateNSWMul(at, size(term.coefficient)));
  }
  return sum;
}

Value* FormEmitter::lane_numbers(int bits) {
  std::vector<llvm::Constant*> lanes;
  for (int lane = 0; lane < vector_lanes; ++lane)
    lanes.push_back(llvm::ConstantInt::get(b_.getIntNTy(static_cast<unsigned>(bits)), static_cast<uint64_t>(lane)));
  return llvm::ConstantVector::get(lanes);
}

// ---- control

void FormEmitter::in_scope(const Action& action) {
  known_.emplace_back();
  action();
  known_.pop_back();
}

void FormEmitter::loop(Value* from, Value* to, int64_t step, const std::function<void(Value*)>& body) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* block = llvm::BasicBlock::Create(b_.getContext(), "", function_);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b_.getContext(), "", function_);
  b_.CreateCondBr(b_.CreateICmpSLT(from, to), block, after);
  b_.SetInsertPoint(block);
  llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
  i->addIncoming(from, before);
  in_scope([&] { body(i); });
  Value* next = b_.CreateNSWAdd(i, number(step));
  i->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, to), block, after);
  b_.SetInsertPoint(after);
}

void FormEmitter::only_if(Value* condition, const Action& action) {
  if (condition == nullptr) return in_scope(action);
  llvm::BasicBlock* block = llvm::BasicBlock::Create(b_.getContext(), "", function_);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b_.getContext(), "", function_);
  b_.CreateCondBr(condition, block, after);
  b_.SetInsertPoint(block);
  in_scope(action);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

// ---- values

bool FormEmitter::is_known(int expr) const {
  return std::any_of(known_.begin(), known_.end(), [&](const auto& table) { return table.contains(expr); });
}

const Parts& FormEmitter::value(int index) {
  for (auto table = known_.rbegin(); table != known_.rend(); ++table) {
    if (const auto found = table->find(index); found != table->end()) return found->second;
  }
  Parts parts = emit_expr(index);
  return known_.back()[index] = std::move(parts);
}

Value* FormEmitter::part_of(int index, int part, bool as_vector) {
  const Parts& parts = value(index);
  Value* one = parts[parts.size() == 1 ? 0 : static_cast<size_t>(part)];
  return as_vector ? splat(one) : one;
}

const KeptRow* FormEmitter::kept_row(int index) const {
  for (const KeptRow& row : schedule_.kept) {
    if (row.expr == index) return &row;
  }
  return nullptr;
}

Value* FormEmitter::kept_address(const KeptRow& row, int part) {
  Value* index = number(0);
  for (const int factor : schedule_.reduced) {
    index = b_.CreateAdd(b_.CreateMul(index, size(form_.factors[static_cast<size_t>(factor)].size)), at_[static_cast<size_t>(factor)]);
  }
  index = b_.CreateAdd(index, number(int64_t{part} * vector_lanes));
  Value* start = b_.CreateGEP(b_.getInt8Ty(), function_->getArg(4), size(row.offset));
  const DType dtype = expr(row.expr).dtype;
  return b_.CreateGEP(dtype == DType::Bool ? b_.getInt8Ty() : register_type(b_, dtype), start, index);
}

Value* FormEmitter::keep(const KeptRow& row, Value* value, int part) {
  if (expr(row.expr).dtype == DType::Bool) value = to_memory(b_, DType::Bool, value);
  return b_.CreateAlignedStore(value, kept_address(row, part), llvm::Align(size_bytes(expr(row.expr).dtype)));
}

Parts FormEmitter::emit_expr(int index) {
  const bool vector = is_vector(index);
  const KeptRow* row = kept_row(index);
  Parts parts;
  for (int part = 0; part < (vector ? parts_ : 1); ++part) {
    if (row != nullptr && row->phase < phase_) {
      const DType dtype = expr(index).dtype;
      llvm::Type* type = dtype == DType::Bool ? b_.getInt8Ty() : register_type(b_, dtype);
      Value* loaded = b_.CreateAlignedLoad(vector ? vector_of(type) : type, kept_address(*row, part), llvm::Align(size_bytes(dtype)));
      parts.push_back(dtype == DType::Bool ? from_memory(b_, dtype, loaded) : loaded);
      continue;
    }
    parts.push_back(emit_plain(index, part));
    if (row != nullptr) keep(*row, parts.back(), part);
  }
  return parts;
}

Value* FormEmitter::emit_place(const IndexExpr& op, int index, int part) {
  Value* first = place(op.value, part);
  if (!is_vector(index)) return first;
  Value* step = size(coefficient_of(op.value, schedule_.vector));
  return b_.CreateAdd(splat(first), b_.CreateMul(splat(step), lane_numbers(64)));
}

/// By zero there is no result: it is told as an index, 0, outside of a size of 0.
Value* FormEmitter::emit_division(BinaryKind kind, int index, int part) {
  const DType dtype = expr(index).dtype;
  const bool vector = is_vector(index);
  Value *x = part_of(expr(index).inputs[0], part, vector), *y = part_of(expr(index).inputs[1], part, vector);
  Value* zero = llvm::Constant::getNullValue(y->getType());
  Value* is_zero = b_.CreateICmpEQ(y, zero);
  if (!llvm::isa<llvm::Constant>(is_zero) || !llvm::cast<llvm::Constant>(is_zero)->isNullValue()) {
    Value* active = vector ? active_lanes(part) : nullptr;
    report(active == nullptr ? is_zero : b_.CreateAnd(is_zero, active), number(0), number(0));
    y = b_.CreateSelect(is_zero, llvm::ConstantInt::get(y->getType(), 1), y);
  }
  return emit_binary(b_, kind, dtype, x, y);
}

Value* FormEmitter::emit_plain(int index, int part) {
  const Expr& e = expr(index);
  const bool vector = is_vector(index);
  const auto input = [&](size_t k) { return part_of(e.inputs[k], part, vector); };
  const auto dtype_of = [&](size_t k) { return expr(e.inputs[k]).dtype; };
  if (const auto* load = std::get_if<LoadExpr>(&e.op)) return emit_load(*load, index, part);
  if (const auto* constant = std::get_if<ConstantExpr>(&e.op)) return emit_constant(b_, e.dtype, constant->bits);
  if (const auto* op = std::get_if<IndexExpr>(&e.op)) return emit_place(*op, index, part);
  if (const auto* unary = std::get_if<UnaryExpr>(&e.op)) return emit_unary(b_, unary->kind, dtype_of(0), input(0));
  if (const auto* binary = std::get_if<BinaryExpr>(&e.op)) {
    const bool divides = binary->kind == BinaryKind::FloorDivide || binary->kind == BinaryKind::Remainder;
    if (divides && !is_floating(e.dtype)) return emit_division(binary->kind, index, part);
    Value *x = input(0), *y = input(1);
    return emit_binary(b_, binary->kind, e.dtype, x, y);
  }
  if (const auto* compare = std::get_if<CompareExpr>(&e.op)) {
    Value *x = input(0), *y = input(1);
    return emit_compare(b_, compare->kind, dtype_of(0), x, y);
  }
  if (std::holds_alternative<SelectExpr>(e.op)) {
    Value *condition = part_of(e.inputs[0], part, vector), *on_true = input(1), *on_false = input(2);
    return b_.CreateSelect(condition, on_true, on_false);
  }
  if (std::holds_alternative<ConvertExpr>(e.op)) return emit_convert(b_, dtype_of(0), e.dtype, input(0));
  if (const auto* draw = std::get_if<DrawExpr>(&e.op)) {
    Value *key = part_of(e.inputs[0], part, false), *element = part_of(e.inputs[1], part, false);
    return draw->kind == RandomKind::Uniform ? emit_uniform(b_, key, element, e.dtype) : emit_normal(b_, key, element, e.dtype);
  }
  if (std::holds_alternative<FoldExpr>(e.op)) {
    Value *key = part_of(e.inputs[0], part, false), *operand = part_of(e.inputs[1], part, false);
    return emit_fold(b_, key, operand);
  }
  check_failed("a reduction is known before it is read", "expression " + std::to_string(index), std::source_location::current());
}

/// Makes what the roots need and what does not vary over the loops that come next, before them.
void FormEmitter::hoist(const std::vector<int>& roots, FactorSet loops) {
  std::vector<bool> seen(form_.exprs.size(), false);
  const std::function<void(int)> visit = [&](int index) {
    if (seen[static_cast<size_t>(index)] || is_known(index)) return;
    seen[static_cast<size_t>(index)] = true;
    if (std::holds_alternative<ConstantExpr>(expr(index).op)) return;
    if ((varies(index) & loops) == 0) {
      value(index);
      return;
    }
    if (const KeptRow* row = kept_row(index); row != nullptr && row->phase < phase_) return;
    for (const int input : expr(index).inputs) visit(input);
  };
  for (const int root : roots) visit(root);
}

// ---- memory

Value* FormEmitter::active_lanes(int part) {
  Value* count = active_[static_cast<size_t>(part)];
  return count == nullptr ? nullptr : b_.CreateICmpULT(lane_numbers(32), splat(b_.CreateTrunc(count, b_.getInt32Ty())));
}

void FormEmitter::also(Mask& mask, Value* condition) {
  if (condition == nullptr) return;
  Value*& kind = condition->getType()->isVectorTy() ? mask.lanes : mask.all;
  kind = kind == nullptr ? condition : b_.CreateAnd(kind, condition);
}

Value* FormEmitter::lanes_of(const Mask& mask) {
  if (mask.all == nullptr) return mask.lanes;
  if (mask.lanes == nullptr) return splat(mask.all);
  // Not the one condition for all lanes, and constant lanes: of such a mask LLVM 19 drops an upper half that is zero, and loads and stores there without any.
  Value* count = b_.CreateSelect(mask.all, b_.getInt32(vector_lanes), b_.getInt32(0));
  return b_.CreateAnd(b_.CreateICmpULT(lane_numbers(32), splat(count)), mask.lanes);
}

Mask FormEmitter::guards_of(const LoadExpr& load, int part) {
  Mask mask;
  for (const Guard& guard : load.guards) {
    Value *first = place(guard.index, part), *limit = size(guard.size);
    const Dim step = schedule_.vector < 0 ? Dim(0) : coefficient_of(guard.index, schedule_.vector);
    if (step == Dim(0)) {
      also(mask, b_.CreateICmpULT(first, limit));
    } else if (step == Dim(1)) {
      // Lanes from one number below another, both within the vector.
      const auto clamped = [&](Value* lane) {
        lane = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, lane, number(0)), number(vector_lanes));
        return splat(b_.CreateTrunc(lane, b_.getInt32Ty()));
      };
      Value* lanes = lane_numbers(32);
      also(mask, b_.CreateICmpUGE(lanes, clamped(b_.CreateNeg(first))));
      also(mask, b_.CreateICmpULT(lanes, clamped(b_.CreateSub(limit, first))));
    } else {
      also(mask, b_.CreateICmpULT(b_.CreateAdd(splat(first), b_.CreateMul(splat(size(step)), lane_numbers(64))), splat(limit)));
    }
  }
  return mask;
}

Value* FormEmitter::emit_load(const LoadExpr& load, int index, int part) {
  const Expr& e = expr(index);
  const bool vector = is_vector(index);
  const Mask guards = guards_of(load, part);
  Value* address = place(load.at, part);
  Value* computed = nullptr;  // by lane, on top of the address
  Mask mask = guards;
  for (size_t k = 0; k < load.indices.size(); ++k) {
    Value* at = part_of(e.inputs[k], part, false);
    const Dim& limit = load.indices[k].size;
    const auto fit = [&](Value* one) { return at->getType()->isVectorTy() ? splat(one) : one; };
    Value* in_range = b_.CreateICmpULT(at, fit(size(limit)));
    Mask bad = guards;
    if (at->getType()->isVectorTy() || bad.lanes != nullptr) also(bad, active_lanes(part));
    also(bad, b_.CreateNot(in_range));
    report(bad.lanes == nullptr ? bad.all : lanes_of(bad), at, size(limit));
    // Where there is an element at all the nearest one is read, which needs no mask.
    if (limit.is_constant() && limit.constant() > 0)
      at = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, at, fit(number(limit.constant() - 1)));
    else
      also(mask, in_range);
    Value* offset = b_.CreateMul(at, fit(size(load.indices[k].stride)));
    if (!at->getType()->isVectorTy())
      address = b_.CreateAdd(address, offset);
    else
      computed = computed == nullptr ? offset : b_.CreateAdd(computed, offset);
  }
  Value* loaded = vector ? load_vector(load, e.dtype, address, computed, mask, part) : load_scalar(load, e.dtype, address, mask);
  if (load.guards.empty()) return loaded;
  Value* outside = part_of(e.inputs.back(), part, vector);
  return b_.CreateSelect(vector ? lanes_of(guards) : guards.all, loaded, outside);
}

Value* FormEmitter::load_scalar(const LoadExpr& load, DType dtype, Value* address, const Mask& mask) {
  Value* pointer = element_address(load.operand, address);
  if (mask.all != nullptr) {
    if (dummy_ == nullptr) {
      dummy_ = slot(b_.getInt64Ty());
      entry_.CreateStore(entry_.getInt64(0), dummy_);
    }
    pointer = b_.CreateSelect(mask.all, pointer, dummy_);
  }
  llvm::LoadInst* element = b_.CreateAlignedLoad(memory_type(b_, dtype), pointer, llvm::Align(size_bytes(dtype)));
  if (mask.all == nullptr) of_operand(element, load.operand);
  return from_memory(b_, dtype, element);
}

Value* FormEmitter::load_vector(const LoadExpr& load, DType dtype, Value* address, Value* computed, const Mask& guards, int part) {
  const llvm::Align align(size_bytes(dtype));
  llvm::Type* type = vector_of(memory_type(b_, dtype));
  const Dim step = coefficient_of(load.at, schedule_.vector);
  Mask mask = guards;
  also(mask, active_lanes(part));
  if (computed == nullptr && step == Dim(0)) {
    Mask any;
    also(any, mask.lanes == nullptr ? mask.all : b_.CreateOrReduce(lanes_of(mask)));
    return splat(load_scalar(load, dtype, address, any));
  }
  Value* lanes = lanes_of(mask);
  Value* zeros = llvm::Constant::getNullValue(type);
  Value* stored = nullptr;
  if (computed == nullptr && step == Dim(1)) {
    Value* pointer = element_address(load.operand, address);
    if (lanes == nullptr) {
      stored = of_operand(b_.CreateAlignedLoad(type, pointer, align), load.operand);
    } else if (size_bytes(dtype) < 4 && guards.all == nullptr && guards.lanes == nullptr) {
      // There are no masked loads of small elements: the rest of a row is copied.
      Value* copy = slot(type);
      b_.CreateStore(zeros, copy);
      b_.CreateMemCpy(copy, align, pointer, align, b_.CreateMul(active_[static_cast<size_t>(part)], number(static_cast<int64_t>(size_bytes(dtype)))));
      stored = b_.CreateLoad(type, copy);
    } else {
      stored = of_operand(b_.CreateMaskedLoad(type, pointer, align, lanes, zeros), load.operand);
    }
  } else if (computed == nullptr && step == Dim(-1) && lanes == nullptr) {
    Value* pointer = element_address(load.operand, b_.CreateSub(address, number(vector_lanes - 1)));
    stored = b_.CreateVectorReverse(of_operand(b_.CreateAlignedLoad(type, pointer, align), load.operand));
  } else {
    Value* index = b_.CreateAdd(splat(address), b_.CreateMul(splat(size(step)), lane_numbers(64)));
    if (computed != nullptr) index = b_.CreateAdd(index, computed);
    if (lanes == nullptr) lanes = llvm::Constant::getAllOnesValue(vector_of(b_.getInt1Ty()));
    stored = of_operand(b_.CreateMaskedGather(type, element_address(load.operand, index), align, lanes, zeros), load.operand);
  }
  return from_memory(b_, dtype, stored);
}

/// Says in the status that an index is bad, of the first lane where it is.
void FormEmitter::report(Value* bad, Value* index, Value* size) {
  const bool vector = bad->getType()->isVectorTy();
  only_if(vector ? b_.CreateOrReduce(bad) : bad, [&] {
    Value* status = function_->getArg(5);
    Value* found = index;
    if (vector && index->getType()->isVectorTy()) {
      Value* bits = b_.CreateBitCast(bad, b_.getInt16Ty());
      Value* lane = b_.CreateIntrinsic(llvm::Intrinsic::cttz, {b_.getInt16Ty()}, {bits, b_.getTrue()});
      found = b_.CreateExtractElement(index, b_.CreateZExt(lane, b_.getInt64Ty()));
    }
    Value* const words[] = {number(1), found, size};
    for (uint64_t k = 0; k < 3; ++k) b_.CreateStore(words[k], b_.CreateConstGEP1_64(b_.getInt64Ty(), status, k));
  });
}

void FormEmitter::emit_store(const Store& store) {
  const FactorSet in_address = factors_of(store.at);
  // Once, where the address leaves a factor out.
  Mask once;
  for (size_t f = 0; f < form_.factors.size(); ++f) {
    if (at_[f] != nullptr && (in_address & factor_bit(static_cast<int>(f))) == 0 && form_.factors[f].size != Dim(1)) {
      also(once, b_.CreateICmpEQ(at_[f], number(0)));
    }
  }
  const bool vector = schedule_.vector >= 0 && at_[static_cast<size_t>(schedule_.vector)] != nullptr && (in_address & factor_bit(schedule_.vector)) != 0;
  for (int part = 0; part < (vector ? parts_ : 1); ++part) {
    Value* value = part_of(store.value, part, vector);
    const auto write = [&] {
      Value* address = place(store.at, part);
      const DType dtype = form_.operands[static_cast<size_t>(store.operand)].dtype;
      if (form_.operands[static_cast<size_t>(store.operand)].is_watched) watch(value, vector ? part : -1);
      Value* stored = to_memory(b_, dtype, value);
      if (vector)
        store_vector(store, stored, address, part);
      else
        of_operand(b_.CreateAlignedStore(stored, element_address(store.operand, address), llvm::Align(size_bytes(dtype))), store.operand);
    };
    if (once.all == nullptr)
      write();
    else
      only_if(once.all, write);
  }
}

/// x - x is +0, and has no bit set, of a finite number alone. Part -1: a scalar.
void FormEmitter::watch(Value* value, int part) {
  llvm::Type* lane = value->getType()->getScalarType()->isDoubleTy() ? b_.getInt64Ty() : b_.getInt32Ty();
  llvm::Type* type = value->getType()->isVectorTy() ? vector_of(lane) : lane;
  auto known = std::find_if(watched_.begin(), watched_.end(), [&](const auto& one) { return one.first == type; });
  if (known == watched_.end()) {
    known = watched_.insert(watched_.end(), {type, slot(type)});
    entry_.CreateStore(llvm::Constant::getNullValue(type), known->second);
  }
  Value* bits = b_.CreateBitCast(b_.CreateFSub(value, value), type);
  if (Value* lanes = part >= 0 ? active_lanes(part) : nullptr) bits = b_.CreateSelect(lanes, bits, llvm::Constant::getNullValue(type));
  b_.CreateStore(b_.CreateOr(b_.CreateLoad(type, known->second), bits), known->second);
}

void FormEmitter::report_watched() {
  for (const auto& [type, place] : watched_) {
    Value* bits = b_.CreateLoad(type, place);
    if (type->isVectorTy()) bits = b_.CreateOrReduce(bits);
    only_if(b_.CreateICmpNE(bits, llvm::Constant::getNullValue(bits->getType())),
            [&] { b_.CreateStore(number(1), b_.CreateConstGEP1_64(b_.getInt64Ty(), function_->getArg(5), 3)); });
  }
}

void FormEmitter::store_vector(const Store& store, Value* value, Value* address, int part) {
  const DType dtype = form_.operands[static_cast<size_t>(store.operand)].dtype;
  const llvm::Align align(size_bytes(dtype));
  const Dim step = coefficient_of(store.at, schedule_.vector);
  Value* lanes = active_lanes(part);
  if (step == Dim(1)) {
    Value* pointer = element_address(store.operand, address);
    if (lanes == nullptr) {
      of_operand(b_.CreateAlignedStore(value, pointer, align), store.operand);
    } else if (size_bytes(dtype) < 4) {
      Value* copy = slot(value->getType());
      b_.CreateStore(value, copy);
      b_.CreateMemCpy(pointer, align, copy, align, b_.CreateMul(active_[static_cast<size_t>(part)], number(static_cast<int64_t>(size_bytes(dtype)))));
    } else {
      of_operand(b_.CreateMaskedStore(value, pointer, align, lanes), store.operand);
    }
  } else if (step == Dim(-1) && lanes == nullptr) {
    Value* pointer = element_address(store.operand, b_.CreateSub(address, number(vector_lanes - 1)));
    of_operand(b_.CreateAlignedStore(b_.CreateVectorReverse(value), pointer, align), store.operand);
  } else {
    Value* index = b_.CreateAdd(splat(address), b_.CreateMul(splat(size(step)), lane_numbers(64)));
    if (lanes == nullptr) lanes = llvm::Constant::getAllOnesValue(vector_of(b_.getInt1Ty()));
    of_operand(b_.CreateMaskedScatter(value, element_address(store.operand, index), align, lanes), store.operand);
  }
}

// ---- reductions

Accumulator FormEmitter::start(int index) {
  Accumulator result{index, {}, {}};
  const DType dtype = expr(expr(index).inputs[0]).dtype;
  const auto* arg = std::get_if<ArgReduceExpr>(&expr(index).op);
  const auto* reduce = std::get_if<ReduceExpr>(&expr(index).op);
  const bool lanes = schedule_.vector_is_reduced || is_vector(index);
  const auto filled = [&](Value* with) {
    Value* whole = lanes ? splat(with) : with;
    Value* place = slot(whole->getType());
    b_.CreateStore(whole, place);
    return place;
  };
  for (int part = 0; part < (schedule_.vector_is_reduced || !lanes ? 1 : parts_); ++part) {
    const ReduceKind kind = arg != nullptr ? (arg->is_largest ? ReduceKind::Max : ReduceKind::Min) : reduce->kind;
    result.sums.push_back(filled(emit_identity(b_, kind, dtype)));
    if (arg != nullptr)
      result.totals.push_back(filled(number(INT64_MAX)));  // no element yet
    else if (joins_in_double(kind, dtype))
      result.totals.push_back(filled(emit_identity(b_, kind, DType::F64)));
  }
  return result;
}

void FormEmitter::begin_block(Accumulator& accumulator) {
  const auto* reduce = std::get_if<ReduceExpr>(&expr(accumulator.expr).op);
  if (reduce == nullptr || accumulator.totals.empty()) return;
  Value* identity = emit_identity(b_, reduce->kind, expr(accumulator.expr).dtype);
  const bool lanes = schedule_.vector_is_reduced || is_vector(accumulator.expr);
  for (Value* sum : accumulator.sums) b_.CreateStore(lanes ? splat(identity) : identity, sum);
}

void FormEmitter::accumulate_best(Accumulator& accumulator, const ArgReduceExpr& op, int part) {
  const auto p = static_cast<size_t>(part);
  const bool lanes = schedule_.vector_is_reduced || is_vector(accumulator.expr);
  const DType dtype = expr(expr(accumulator.expr).inputs[0]).dtype;
  Value* x = part_of(expr(accumulator.expr).inputs[0], part, lanes);
  Value* at = at_[static_cast<size_t>(op.factor)];
  if (lanes) at = splat(at);
  if (op.factor == schedule_.vector) at = b_.CreateAdd(at, lane_numbers(64));
  Value* best = b_.CreateLoad(x->getType(), accumulator.sums[p]);
  Value* best_at = b_.CreateLoad(at->getType(), accumulator.totals[p]);
  Value* is_first = b_.CreateICmpEQ(best_at, llvm::ConstantInt::get(at->getType(), INT64_MAX));
  Value* better = b_.CreateOr(is_first, emit_is_better(b_, op.is_largest, dtype, x, best));
  if (schedule_.vector_is_reduced) {
    if (Value* active = active_lanes(part)) better = b_.CreateAnd(better, active);
  }
  b_.CreateStore(b_.CreateSelect(better, x, best), accumulator.sums[p]);
  b_.CreateStore(b_.CreateSelect(better, at, best_at), accumulator.totals[p]);
}

void FormEmitter::accumulate(Accumulator& accumulator) {
  for (int part = 0; part < static_cast<int>(accumulator.sums.size()); ++part) {
    if (const auto* arg = std::get_if<ArgReduceExpr>(&expr(accumulator.expr).op)) {
      accumulate_best(accumulator, *arg, part);
      continue;
    }
    const bool lanes = schedule_.vector_is_reduced || is_vector(accumulator.expr);
    Value* x = part_of(expr(accumulator.expr).inputs[0], part, lanes);
    Value* place = accumulator.sums[static_cast<size_t>(part)];
    Value* sum = b_.CreateLoad(x->getType(), place);
    Value* next = emit_combine(b_, std::get<ReduceExpr>(expr(accumulator.expr).op).kind, expr(accumulator.expr).dtype, sum, x);
    if (schedule_.vector_is_reduced) {
      if (Value* active = active_lanes(part)) next = b_.CreateSelect(active, next, sum);
    }
    b_.CreateStore(next, place);
  }
}

void FormEmitter::end_block(Accumulator& accumulator) {
  const auto* reduce = std::get_if<ReduceExpr>(&expr(accumulator.expr).op);
  if (reduce == nullptr || accumulator.totals.empty()) return;
  const DType dtype = expr(accumulator.expr).dtype;
  const bool lanes = schedule_.vector_is_reduced || is_vector(accumulator.expr);
  llvm::Type* type = register_type(b_, dtype);
  llvm::Type* wide = lanes ? vector_of(b_.getDoubleTy()) : b_.getDoubleTy();
  for (size_t p = 0; p < accumulator.sums.size(); ++p) {
    Value* sum = b_.CreateFPExt(b_.CreateLoad(lanes ? vector_of(type) : type, accumulator.sums[p]), wide);
    Value* total = b_.CreateLoad(wide, accumulator.totals[p]);
    b_.CreateStore(emit_combine(b_, reduce->kind, DType::F64, total, sum), accumulator.totals[p]);
  }
}

void FormEmitter::finish(Accumulator& accumulator) {
  const Expr& e = expr(accumulator.expr);
  const DType dtype = expr(e.inputs[0]).dtype;
  const auto* reduce = std::get_if<ReduceExpr>(&e.op);
  const bool lanes = schedule_.vector_is_reduced || is_vector(accumulator.expr), joined = reduce != nullptr && !accumulator.totals.empty();
  const auto read = [&](Value* place, llvm::Type* type) { return b_.CreateLoad(lanes ? vector_of(type) : type, place); };
  Parts results;
  for (size_t p = 0; p < accumulator.sums.size(); ++p) {
    Value* result = nullptr;
    if (reduce == nullptr) {
      result = read(accumulator.totals[p], b_.getInt64Ty());
      if (schedule_.vector_is_reduced) result = fold_best(b_, std::get<ArgReduceExpr>(e.op).is_largest, dtype, read(accumulator.sums[p], register_type(b_, dtype)), result);
    } else {
      result = joined ? read(accumulator.totals[p], b_.getDoubleTy()) : read(accumulator.sums[p], register_type(b_, dtype));
      if (schedule_.vector_is_reduced) result = fold_lanes(b_, reduce->kind, joined ? DType::F64 : dtype, result);
      if (joined) result = emit_convert(b_, DType::F64, dtype, result);
    }
    results.push_back(result);
  }
  known_.back()[accumulator.expr] = std::move(results);
}

// ---- loops

/// Whole vectors, then the rest under a mask.
void FormEmitter::vector_loop(Value* low, Value* high, const Action& leaf) {
  Value*& at = at_[static_cast<size_t>(schedule_.vector)];
  Value* whole = b_.CreateAdd(low, b_.CreateAnd(b_.CreateSub(high, low), number(~int64_t{vector_lanes - 1})));
  loop(low, whole, vector_lanes, [&](Value* i) {
    at = i;
    leaf();
  });
  if (!is_multiple_of_lanes(schedule_.vector)) {
    only_if(b_.CreateICmpSLT(whole, high), [&] {
      at = whole;
      active_[0] = b_.CreateSub(high, whole);
      leaf();
      active_[0] = nullptr;
    });
  }
  at = nullptr;
}

void FormEmitter::reduced_loops(size_t depth, const std::vector<int>& roots, const Action& leaf, const Action& begin_block, const Action& end_block) {
  const int factor = schedule_.reduced[depth];
  Value* count = extent(factor);
  FactorSet inside = 0;
  for (size_t k = depth; k < schedule_.reduced.size(); ++k) inside |= factor_bit(schedule_.reduced[k]);
  hoist(roots, inside);
  const auto each = [&](Value* low, Value* high, const Action& body) {
    loop(low, high, 1, [&](Value* i) {
      at_[static_cast<size_t>(factor)] = i;
      body();
    });
    at_[static_cast<size_t>(factor)] = nullptr;
  };
  if (depth + 1 < schedule_.reduced.size()) return each(number(0), count, [&] { reduced_loops(depth + 1, roots, leaf, begin_block, end_block); });
  const auto run = [&](Value* low, Value* high) {
    begin_block();
    if (factor == schedule_.vector)
      vector_loop(low, high, leaf);
    else
      each(low, high, leaf);
    end_block();
  };
  const Dim& most = form_.factors[static_cast<size_t>(factor)].size;
  if (most.is_constant() && most.constant() <= reduction_block) return run(number(0), count);
  loop(number(0), count, reduction_block,
       [&](Value* low) { run(low, b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateAdd(low, number(reduction_block)), count)); });
}

void FormEmitter::emit_reductions(int phase) {
  phase_ = phase;
  std::vector<Accumulator> accumulators;
  std::vector<int> roots;
  for (size_t e = 0; e < form_.exprs.size(); ++e) {
    const ExprOp& op = form_.exprs[e].op;
    if (schedule_.phase_of[e] != phase || (!std::holds_alternative<ReduceExpr>(op) && !std::holds_alternative<ArgReduceExpr>(op))) continue;
    accumulators.push_back(start(static_cast<int>(e)));
    roots.push_back(form_.exprs[e].inputs[0]);
  }
  const auto for_each = [&](void (FormEmitter::*action)(Accumulator&)) {
    return [&accumulators, action, this] {
      for (Accumulator& accumulator : accumulators) (this->*action)(accumulator);
    };
  };
  reduced_loops(0, roots, for_each(&FormEmitter::accumulate), for_each(&FormEmitter::begin_block), for_each(&FormEmitter::end_block));
  for_each (&FormEmitter::finish)();
}

/// All values first: what a store overwrites may be read by another's value.
void FormEmitter::emit_stores(bool in_reduced_loops) {
  for (int pass = 0; pass < 2; ++pass) {
    for (const Store& store : form_.stores) {
      if (((factors_of(store.at) & reduced_set()) != 0) != in_reduced_loops) continue;
      if (pass == 0)
        value(store.value);
      else
        emit_store(store);
    }
  }
}

void FormEmitter::emit_phases() {
  for (int phase = 0; phase + 1 < schedule_.phases; ++phase) emit_reductions(phase);
  phase_ = schedule_.phases - 1;
  std::vector<int> roots;
  for (const Store& store : form_.stores) {
    if ((factors_of(store.at) & reduced_set()) != 0)
      roots.push_back(store.value);
    else
      value(store.value);
  }
  if (!roots.empty()) reduced_loops(0, roots, [&] { emit_stores(true); }, [] {}, [] {});
  emit_stores(false);
}

/// A piece of the vector factor: four vectors together where there are reductions and it is whole.
void FormEmitter::emit_columns(Value* low, Value* high) {
  Value*& at = at_[static_cast<size_t>(schedule_.vector)];
  const Factor& factor = form_.factors[static_cast<size_t>(schedule_.vector)];
  const auto whole = [&] {
    parts_ = static_cast<int>(column_piece / vector_lanes);
    active_.assign(static_cast<size_t>(parts_), nullptr);
    at = low;
    emit_phases();
    parts_ = 1;
    active_.assign(1, nullptr);
  };
  const auto by_vectors = [&] {
    loop(low, high, vector_lanes, [&](Value* i) {
      at = i;
      if (!is_multiple_of_lanes(schedule_.vector)) active_[0] = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateSub(high, i), number(vector_lanes));
      emit_phases();
      active_[0] = nullptr;
    });
  };
  const bool constant = factor.size.is_constant() && factor.block_of < 0;
  if (constant && factor.size.constant() % column_piece == 0) {
    in_scope(whole);
  } else if (constant && factor.size.constant() < column_piece) {
    by_vectors();
  } else {
    Value* is_whole = b_.CreateICmpEQ(b_.CreateSub(high, low), number(column_piece));
    only_if(is_whole, whole);
    only_if(b_.CreateNot(is_whole), by_vectors);
  }
  at = nullptr;
}

void FormEmitter::emit_part(Value* part) {
  Value* piece = number(0);
  if (schedule_.pieces != Dim(1)) {
    piece = b_.CreateURem(part, size(schedule_.pieces));
    part = b_.CreateUDiv(part, size(schedule_.pieces));
  }
  Mask inside;
  for (size_t k = schedule_.parallel.size(); k-- > 0;) {
    const auto factor = static_cast<size_t>(schedule_.parallel[k]);
    Value* count = size(form_.factors[factor].size);
    at_[factor] = k == 0 ? part : b_.CreateURem(part, count);
    if (k > 0) part = b_.CreateUDiv(part, count);
  }
  for (const int factor : schedule_.parallel) {
    if (form_.factors[static_cast<size_t>(factor)].block_of >= 0) also(inside, b_.CreateICmpSLT(at_[static_cast<size_t>(factor)], extent(factor)));
  }
  only_if(inside.all, [&] {
    if (schedule_.vector < 0 || schedule_.vector_is_reduced) return emit_phases();
    Value* low = b_.CreateMul(piece, number(schedule_.piece));
    Value* high = extent(schedule_.vector);
    if (schedule_.pieces != Dim(1)) {
      high = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, high, b_.CreateAdd(low, number(schedule_.piece)));
      high = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, high, low);
    }
    if (!schedule_.reduced.empty()) return emit_columns(low, high);
    std::vector<int> roots;
    for (const Store& store : form_.stores) roots.push_back(store.value);
    hoist(roots, factor_bit(schedule_.vector));
    vector_loop(low, high, [&] { emit_phases(); });
  });
}

void FormEmitter::emit() {
  llvm::BasicBlock* start = llvm::BasicBlock::Create(b_.getContext(), "", function_);
  b_.SetInsertPoint(start);
  in_scope([&] { loop(function_->getArg(2), function_->getArg(3), 1, [&](Value* part) { emit_part(part); }); });
  report_watched();
  b_.CreateRetVoid();
  entry_.CreateBr(start);
}

}  // namespace

bool has_code_generation() { return true; }

FormCode emit_form(const Form& form, const Target& target) {
  const FormSchedule schedule = schedule_form(form);
  FormCode code;
  code.symbol = "form_" + form_hash(form).text();
  code.parallel = schedule.parallel_count;
  code.scratch_bytes = schedule.scratch_bytes;
  const std::unique_ptr<llvm::TargetMachine> machine = make_target_machine(target.isa);
  llvm::LLVMContext context;
  context.setDiscardValueNames(true);
  llvm::Module module(code.symbol, context);
  module.setDataLayout(machine->createDataLayout());
  module.setTargetTriple(machine->getTargetTriple().str());
  FormEmitter(form, schedule, module, code.symbol).emit();
  code.object = compile_module(module, *machine);
  return code;
}

}  // namespace stepgraph
