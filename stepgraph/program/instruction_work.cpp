// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/instruction_work.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "stepgraph/program/form_accesses.h"
#include "stepgraph/program/plan_accesses.h"

namespace stepgraph {
namespace {

using VisitAccess = std::function<void(const View&, DType, bool is_write)>;

/// Views of calls, by what is done with them.
class CallViews {
 public:
  CallViews(const StepPlan& plan, const VisitAccess& visit) : plan_(plan), visit_(visit) {}

  void operator()(const FormCall& call) const {
    const std::vector<FormOperand>& operands = plan_.forms[static_cast<size_t>(call.form)].operands;
    for (const FormLaunch& launch : call.launches)
      for (size_t i = 0; i < launch.operands.size(); ++i) {
        if (operands[i].is_read) read(launch.operands[i], operands[i].dtype);
        if (operands[i].is_written) write(launch.operands[i], operands[i].dtype);
      }
  }
  void operator()(const MatMulCall& call) const {
    read(call.lhs, call.dtype), read(call.rhs, call.dtype);
    if (call.accumulate) read(call.out, call.dtype);
    write(call.out, call.dtype);
  }
  void operator()(const ConvolutionCall& call) const { read(call.a), read(call.b), write(call.out); }
  void operator()(const AttentionCall& call) const {
    read(call.q), read(call.k), read(call.v);
    if (call.mask) read(*call.mask, call.mask_dtype);
    if (call.dropout) read(call.dropout->key, DType::I64);
    if (!call.gradient) return write(call.out), write(call.lse);
    read(call.out), read(call.lse), read(call.gradient->d_out), read(call.gradient->d_lse);
    write(call.gradient->d_q), write(call.gradient->d_k), write(call.gradient->d_v);
  }
  void operator()(const ScatterCall& call) const {
    if (call.base) read(*call.base, call.dtype);
    read(call.index, call.index_dtype), read(call.updates, call.dtype), write(call.out, call.dtype);
  }
  void operator()(const PoolCall& call) const {
    read(call.a), write(call.out);
    if (call.places) write(*call.places, call.places_dtype);
  }
  void operator()(const ScanCall& call) const { read(call.x, call.dtype), write(call.out, call.dtype); }
  void operator()(const EvaluateCall& call) const {
    for (size_t i = 0; i < call.inputs.size(); ++i) read(call.inputs[i], call.input_dtypes[i]);
    for (size_t i = 0; i < call.outputs.size(); ++i) write(call.outputs[i], call.output_dtypes[i]);
  }
  void operator()(const CollectiveCall& call) const { read(call.input, call.dtype), write(call.output, call.dtype); }
  void operator()(const Repeat&) const {}

 private:
  void read(const View& view, DType dtype = DType::F32) const { visit_(view, dtype, false); }
  void write(const View& view, DType dtype = DType::F32) const { visit_(view, dtype, true); }
  const StepPlan& plan_;
  const VisitAccess& visit_;
};

double bytes_in(const ByteRegion& region) {
  double bytes = static_cast<double>(region.run);
  for (const RegionStep& step : region.steps) bytes *= static_cast<double>(step.count);
  return bytes;
}

bool computes(const ExprOp& op) {
  return !std::holds_alternative<LoadExpr>(op) && !std::holds_alternative<ConstantExpr>(op) && !std::holds_alternative<IndexExpr>(op) &&
         !std::holds_alternative<ConvertExpr>(op);
}

/// Each expression once for each value of the factors that it varies over; a reduction once for each of its operand.
double form_flops(const Form& form, const SymbolValues& sizes) {
  std::vector<std::set<int>> factors(form.exprs.size());
  double flops = 0;
  for (size_t i = 0; i < form.exprs.size(); ++i) {
    const Expr& expr = form.exprs[i];
    std::set<int>& own = factors[i];
    for (const int input : expr.inputs) own.insert(factors[static_cast<size_t>(input)].begin(), factors[static_cast<size_t>(input)].end());
    if (const auto* load = std::get_if<LoadExpr>(&expr.op))
      for (const AffineTerm& term : load->at.terms) own.insert(term.factor);
    if (const auto* index = std::get_if<IndexExpr>(&expr.op))
      for (const AffineTerm& term : index->value.terms) own.insert(term.factor);
    double elements = 1;
    for (const int factor : own) {
      const Factor& found = form.factors[static_cast<size_t>(factor)];
      elements *= static_cast<double>(value_of(found.size, sizes));
    }
    if (computes(expr.op)) flops += elements;
    if (const auto* reduce = std::get_if<ReduceExpr>(&expr.op))
      for (const int factor : reduce->factors) own.erase(factor);
    if (const auto* reduce = std::get_if<ArgReduceExpr>(&expr.op)) own.erase(reduce->factor);
  }
  return flops;
}

class WorkOf {
 public:
  WorkOf(const StepPlan& plan, const PlanEntry& entry, const SymbolValues& values) : plan_(plan), entry_(entry), values_(values) {}

  InstructionWork run(const Instruction& instruction) {
    // What a form touches is known by its factors, what a Repeat does by its body.
    if (!std::holds_alternative<FormCall>(instruction.op))
      for_each_access(plan_, instruction.op, [this](const View& view, DType dtype, bool is_write) { touch(view, dtype, is_write); });
    std::visit([&](const auto& call) { add(call); }, instruction.op);
    InstructionWork work{0, 0, flops_};
    for (const auto& [buffer, bytes] : written_) work.written += std::min(bytes, whole(buffer));
    for (const auto& [buffer, bytes] : read_) work.read += std::min(bytes, whole(buffer));
    for (const auto& [buffer, bytes] : gathered_) work.read += std::min(std::min(bytes, work.written), whole(buffer));
    for (const InstructionWork& other : inside_) work.read += other.read, work.written += other.written;
    return work;
  }

 private:
  double number(const Dim& dim) const { return static_cast<double>(value_of(dim, values_)); }
  double count(const Shape& sizes) const {
    double product = 1;
    for (const Dim& dim : sizes) product *= number(dim);
    return product;
  }
  double whole(int buffer) const {
    const Buffer& found = entry_.buffers[static_cast<size_t>(buffer)];
    return number(found.elements) * static_cast<double>(size_bytes(found.dtype));
  }
  void touch(const View& view, DType dtype, bool is_write) {
    double elements = 1;
    for (size_t i = 0; i < view.sizes.size(); ++i)
      if (i >= view.strides.size() || number(view.strides[i]) != 0) elements *= number(view.sizes[i]);
    (is_write ? written_ : read_)[view.buffer] += elements * static_cast<double>(size_bytes(dtype));
  }

  void add(const FormCall& call) {
    const Form& form = plan_.forms[static_cast<size_t>(call.form)];
    for (const FormLaunch& launch : call.launches) {
      std::vector<int64_t> sizes;
      SymbolValues named;
      for (size_t i = 0; i < launch.sizes.size(); ++i) {
        sizes.push_back(value_of(launch.sizes[i], values_));
        named[form_symbol(static_cast<int>(i))] = sizes.back();
      }
      // Of several loads of one operand the widest counts.
      std::map<std::pair<int, bool>, double> operands, gathered;
      for (const FormAccess& access : form_accesses(form, sizes)) {
        auto& bytes = (access.is_exact ? operands : gathered)[{access.operand, access.is_write}];
        bytes = std::max(bytes, bytes_in(access.region));
      }
      const auto buffer = [&](int operand) { return launch.operands[static_cast<size_t>(operand)].buffer; };
      for (const auto& [key, bytes] : operands) (key.second ? written_ : read_)[buffer(key.first)] += bytes;
      for (const auto& [key, bytes] : gathered) (key.second ? written_ : gathered_)[buffer(key.first)] += bytes;
      flops_ += form_flops(form, named);
    }
  }
  void add(const MatMulCall& call) {
    flops_ += 2 * count(call.out.sizes) * number(call.lhs.sizes.back());
  }
  void add(const ConvolutionCall& call) {
    const View& weight = call.pass == ConvolutionPass::WeightGradient ? call.out : call.b;
    const View& result = call.pass == ConvolutionPass::Forward ? call.out : call.pass == ConvolutionPass::InputGradient ? call.a : call.b;
    const double outputs = number(weight.sizes[0]);
    if (outputs > 0) flops_ += 2 * count(result.sizes) * count(weight.sizes) / outputs;
  }
  void add(const AttentionCall& call) {
    const double scores = number(call.q.sizes[0]) * number(call.q.sizes[1]) * number(call.q.sizes[2]) * number(call.k.sizes[2]) * (call.causal ? 0.5 : 1);
    const double product = 2 * scores * number(call.q.sizes[3]);
    flops_ += (call.gradient ? 5 : 2) * product;  // for a gradient the scores are made again
  }
  void add(const ScatterCall& call) { flops_ += count(call.updates.sizes); }
  void add(const PoolCall& call) {
    double window = 1;
    for (const int64_t size : call.size) window *= static_cast<double>(size);
    flops_ += window * count(call.pass == PoolPass::AverageGradient ? call.a.sizes : call.out.sizes);
  }
  void add(const ScanCall& call) { flops_ += count(call.x.sizes); }
  void add(const EvaluateCall&) {}
  void add(const CollectiveCall&) {}
  void add(const Repeat& repeat) {
    SymbolValues values = values_;
    values[repeat.symbol] = 0;
    plan_.symbols.add_derived(values);
    const double runs = number(repeat.count);
    for (const Instruction& instruction : repeat.body) {
      InstructionWork work = instruction_work(plan_, entry_, instruction, values);
      flops_ += runs * work.flops;
      inside_.push_back({runs * work.read, runs * work.written, 0});
    }
  }

  const StepPlan& plan_;
  const PlanEntry& entry_;
  const SymbolValues& values_;
  std::map<int, double> read_, written_, gathered_;  // by buffer
  std::vector<InstructionWork> inside_;
  double flops_ = 0;
};

}  // namespace

void for_each_access(const StepPlan& plan, const InstructionOp& op, const VisitAccess& visit) { std::visit(CallViews(plan, visit), op); }

InstructionWork instruction_work(const StepPlan& plan, const PlanEntry& entry, const Instruction& instruction, const SymbolValues& values) {
  return WorkOf(plan, entry, values).run(instruction);
}

}  // namespace stepgraph
