// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/plan_accesses.h"

#include <algorithm>
#include <optional>

#include "stepgraph/base/error.h"
#include "stepgraph/program/form_accesses.h"
#include "stepgraph/program/library_support.h"
#include "stepgraph/program/plan_text.h"

namespace stepgraph {
namespace {

[[noreturn]] void unsound(const std::string& message) { throw InternalError(message); }

/// The accesses of one instruction, while they are collected.
class CallAccesses {
 public:
  CallAccesses(const StepPlan& plan, const PlanEntry& entry, const std::vector<int64_t>& addresses, const SymbolValues& values)
      : plan_(plan), entry_(entry), addresses_(addresses), values_(values) {}

  std::vector<PlanAccess> take() { return std::move(accesses_); }

  // ---- the calls
  void call(const FormCall& call) {
    if (call.form < 0 || static_cast<size_t>(call.form) >= plan_.forms.size()) unsound("form f" + std::to_string(call.form) + " does not exist");
    const Form& form = plan_.forms[static_cast<size_t>(call.form)];
    IntervalSet read, written;  // by the launches so far
    for (size_t i = 0; i < call.launches.size(); ++i) {
      const size_t first = accesses_.size();
      launch(form, plan_.code[static_cast<size_t>(call.form)], call.launches[i]);
      check_parts(first);
      if (call.launches.size() == 1) return;
      for (size_t j = first; j < accesses_.size(); ++j) {
        const PlanAccess& access = accesses_[j];
        const ByteRegion region = at_address(access);
        if (written.touches(region) || (access.is_write && read.touches(region)))
          unsound("launch " + std::to_string(i) + " " + said(access) + " what an earlier launch of the call " + (written.touches(region) ? "writes" : "reads"));
      }
      for (size_t j = first; j < accesses_.size(); ++j) (accesses_[j].is_write ? written : read).add(at_address(accesses_[j]), true);
    }
  }

  void call(const MatMulCall& call) {
    if (call.dtype != DType::F32 && call.dtype != DType::F64) unsound("matmul of " + std::string(name(call.dtype)) + ", wanted f32 or f64");
    const Sizes lhs = matrix(call.lhs), rhs = matrix(call.rhs), out = matrix(call.out);
    const size_t rank = out.size();
    const bool fits = lhs.size() == rank && rhs.size() == rank && lhs[rank - 2] == out[rank - 2] && rhs[rank - 1] == out[rank - 1] &&
                      lhs[rank - 1] == rhs[rank - 2] && std::equal(out.begin(), out.end() - 2, lhs.begin()) &&
                      std::equal(out.begin(), out.end() - 2, rhs.begin());
    if (!fits) unsound("matmul of " + sizes_text(lhs) + " and " + sizes_text(rhs) + " into " + sizes_text(out));
    view(call.lhs, call.dtype, false);
    view(call.rhs, call.dtype, false);
    if (call.accumulate) {
      view(call.out, call.dtype, false);
      accesses_.back().in_place = true;
    }
    view(call.out, call.dtype, true);
    check_parts(0);
  }

  void call(const ConvolutionCall& call) {
    const bool forward = call.pass == ConvolutionPass::Forward;
    const Sizes a = numbers(call.a.sizes), b = numbers(call.b.sizes), out = numbers(call.out.sizes);
    // x, the weight and the result, of which the pass makes one of the others.
    const Sizes& x = call.pass == ConvolutionPass::InputGradient ? out : a;
    const Sizes& weight = call.pass == ConvolutionPass::WeightGradient ? out : b;
    const Sizes& result = forward ? out : call.pass == ConvolutionPass::InputGradient ? a : b;
    const size_t spatial = call.strides.size();
    bool fits = x.size() == spatial + 2 && weight.size() == x.size() && result.size() == x.size() && call.padding_low.size() == spatial &&
                call.padding_high.size() == spatial && call.dilation.size() == spatial && call.groups >= 1;
    fits = fits && x[0] == result[0] && weight[0] == result[1] && product_of(weight[1], call.groups) == x[1] && weight[0] % call.groups == 0;
    for (size_t i = 0; fits && i < spatial; ++i) {
      fits = call.strides[i] >= 1 && call.dilation[i] >= 1 && weight[i + 2] >= 1;
      if (!fits) break;
      const int64_t padded = sum_of(x[i + 2], sum_of(call.padding_low[i], call.padding_high[i]));
      const int64_t window = sum_of(product_of(call.dilation[i], weight[i + 2] - 1), 1);
      fits = result[i + 2] == (padded < window ? 0 : (padded - window) / call.strides[i] + 1);
    }
    if (!fits) unsound("convolution of " + sizes_text(a) + " and " + sizes_text(b) + " into " + sizes_text(out));
    dense(call.a, DType::F32, false);
    dense(call.b, DType::F32, false);
    dense(call.out, DType::F32, true);
    check_parts(0);
  }

  void call(const AttentionCall& call) {
    const Sizes q = numbers(call.q.sizes), k = numbers(call.k.sizes), v = numbers(call.v.sizes), out = numbers(call.out.sizes), lse = numbers(call.lse.sizes);
    const bool fits = q.size() == 4 && k.size() == 4 && v.size() == 4 && out.size() == 4 && q[0] == k[0] && q[3] == k[3] && k[0] == v[0] && k[1] == v[1] &&
                      k[2] == v[2] && k[1] > 0 && q[1] % k[1] == 0 && out == Sizes{q[0], q[1], q[2], v[3]} &&
                      element_count(lse) == element_count(Sizes{q[0], q[1], q[2]});
    if (!fits) unsound("attention of " + sizes_text(q) + ", " + sizes_text(k) + ", " + sizes_text(v) + " into " + sizes_text(out) + ", " + sizes_text(lse));
    const bool is_gradient = call.gradient.has_value();
    for (const View* const operand : {&call.q, &call.k, &call.v}) view(*operand, DType::F32, false);
    for (const View* const operand : {&call.out, &call.lse}) view(*operand, DType::F32, !is_gradient);
    if (call.mask) {
      if (numbers(call.mask->sizes) != Sizes{q[0], q[1], q[2], k[2]}) unsound("attention with a mask of " + sizes_text(numbers(call.mask->sizes)));
      view(*call.mask, call.mask_dtype, false);
    }
    if (call.dropout) {
      if (!call.dropout->key.sizes.empty()) unsound("attention with a key of " + sizes_text(numbers(call.dropout->key.sizes)));
      view(call.dropout->key, DType::I64, false);
    }
    if (is_gradient) {
      const AttentionCall::Gradient& gradient = *call.gradient;
      const std::pair<const View*, const Sizes*> pairs[] = {
          {&gradient.d_out, &out}, {&gradient.d_lse, &lse}, {&gradient.d_q, &q}, {&gradient.d_k, &k}, {&gradient.d_v, &v}};
      for (const auto& [operand, sizes] : pairs)
        if (numbers(operand->sizes) != *sizes) unsound("gradient of attention: found " + sizes_text(numbers(operand->sizes)) + " for " + sizes_text(*sizes));
      for (const View* const operand : {&gradient.d_out, &gradient.d_lse}) view(*operand, DType::F32, false);
      for (const View* const operand : {&gradient.d_q, &gradient.d_k, &gradient.d_v}) view(*operand, DType::F32, true);
    }
    check_parts(0);
  }

  void call(const ScatterCall& call) {
    const Sizes index = numbers(call.index.sizes), updates = numbers(call.updates.sizes), out = numbers(call.out.sizes);
    const bool fits = updates.size() == 3 && out.size() == 3 && index == updates && updates[0] == out[0] && updates[2] == out[2] &&
                      (!call.base || numbers(call.base->sizes) == out);
    if (!fits) unsound("scatter of " + sizes_text(updates) + " by " + sizes_text(index) + " into " + sizes_text(out));
    if (!scatter_supported(call)) unsound("scatter of " + std::string(name(call.dtype)) + " by " + std::string(name(call.index_dtype)));
    if (call.base) {
      view(*call.base, call.dtype, false);
      if (!accesses_.empty()) accesses_.back().in_place = *call.base == call.out;
    }
    view(call.index, call.index_dtype, false);
    view(call.updates, call.dtype, false);
    dense(call.out, call.dtype, true);
    check_parts(0);
  }

  void call(const PoolCall& call) {
    const Sizes a = numbers(call.a.sizes), out = numbers(call.out.sizes);
    const bool is_gradient = call.pass == PoolPass::AverageGradient, is_max = call.pass == PoolPass::Max;
    const Sizes &x = is_gradient ? out : a, &result = is_gradient ? a : out;
    const size_t spatial = call.size.size();
    bool fits = spatial >= 1 && x.size() == spatial + 2 && result.size() == x.size() && x[0] == result[0] && x[1] == result[1] &&
                call.strides.size() == spatial && call.padding_low.size() == spatial && call.padding_high.size() == spatial &&
                call.dilation.size() == spatial && is_max == call.places.has_value() && (!is_max || numbers(call.places->sizes) == out);
    for (size_t i = 0; fits && i < spatial; ++i) {
      fits = call.size[i] >= 1 && call.strides[i] >= 1 && call.dilation[i] >= 1 && call.padding_low[i] >= 0 && call.padding_high[i] >= 0;
      if (!fits) break;
      const int64_t padded = sum_of(x[i + 2], sum_of(call.padding_low[i], call.padding_high[i]));
      const int64_t window = sum_of(product_of(call.dilation[i], call.size[i] - 1), 1);
      fits = padded >= window && result[i + 2] == (padded - window) / call.strides[i] + 1;
    }
    if (!fits) unsound("pool of " + sizes_text(a) + " into " + sizes_text(out));
    const bool has_room = element_count(call.size) <= (call.places_dtype == DType::U8 ? int64_t{256} : INT32_MAX);
    if (is_max && (!has_room || (call.places_dtype != DType::U8 && call.places_dtype != DType::I32)))
      unsound("places in a window of " + sizes_text(call.size) + " as " + std::string(name(call.places_dtype)));
    dense(call.a, DType::F32, false);
    dense(call.out, DType::F32, true);
    if (is_max) dense(*call.places, call.places_dtype, true);
    check_parts(0);
  }

  void call(const ScanCall& call) {
    const Sizes x = numbers(call.x.sizes), out = numbers(call.out.sizes);
    if (x.size() != 3 || x != out) unsound("scan of " + sizes_text(x) + " into " + sizes_text(out));
    if (!scan_supported(call)) unsound("scan of " + std::string(name(call.dtype)));
    view(call.x, call.dtype, false);
    dense(call.out, call.dtype, true);
    check_parts(0);
  }

  void call(const EvaluateCall& call) {
    if (call.inputs.size() != call.input_dtypes.size() || call.outputs.size() != call.output_dtypes.size())
      unsound("evaluation of " + std::to_string(call.inputs.size()) + " inputs and " + std::to_string(call.outputs.size()) + " outputs with " +
              std::to_string(call.input_dtypes.size()) + " and " + std::to_string(call.output_dtypes.size()) + " dtypes");
    for (size_t i = 0; i < call.inputs.size(); ++i) dense(call.inputs[i], call.input_dtypes[i], false);
    for (size_t i = 0; i < call.outputs.size(); ++i) dense(call.outputs[i], call.output_dtypes[i], true);
    check_parts(0);
  }

  void call(const CollectiveCall& call) {
    check_axes(call.axes);
    const Sizes in = numbers(call.input.sizes), out = numbers(call.output.sizes);
    const std::string sizes = "collective of " + sizes_text(in) + " into " + sizes_text(out);
    if (call.kind == CollectiveKind::AllReduce) {
      if (in != out) unsound(sizes);
    } else {
      const auto dim = static_cast<size_t>(call.dim);
      if (in.size() != out.size() || call.dim < 0 || dim >= in.size()) unsound(sizes + " along dim " + std::to_string(call.dim));
      for (size_t i = 0; i < in.size(); ++i)
        if (i != dim && in[i] != out[i]) unsound(sizes + " along dim " + std::to_string(call.dim));
      const int64_t start = number(call.start), size = number(call.size);
      if (out[dim] != size) unsound(sizes + ", wanted " + std::to_string(size) + " in dim " + std::to_string(call.dim));
      if (call.kind == CollectiveKind::AllGather && in[dim] > out[dim]) unsound(sizes + ", which is less than a piece");
      if (call.kind == CollectiveKind::ReduceScatter && (start < 0 || sum_of(start, size) > in[dim]))
        unsound(sizes + ": a piece of " + std::to_string(size) + " from " + std::to_string(start));
    }
    dense(call.input, call.dtype, false);
    accesses_.back().in_place = call.kind == CollectiveKind::AllReduce && call.input == call.output;
    dense(call.output, call.dtype, true);
    check_parts(0);
  }

  void call(const Repeat&) { unsound("a repeat has no accesses of its own"); }

  // ---- views
  void dense(const View& view, DType dtype, bool is_write) {
    int64_t stride = 1;
    const Sizes sizes = numbers(view.sizes);
    const bool has_elements = std::find(sizes.begin(), sizes.end(), 0) == sizes.end();
    for (size_t i = sizes.size(); i-- > 0 && view.strides.size() == sizes.size();) {
      if (has_elements && sizes[i] > 1 && number(view.strides[i]) != stride) unsound("view " + text(view) + " is not dense");
      stride = product_of(stride, sizes[i]);
    }
    this->view(view, dtype, is_write);
  }

  void view(const View& view, DType dtype, bool is_write) {
    if (view.sizes.size() != view.strides.size())
      unsound("view " + text(view) + " has " + std::to_string(view.sizes.size()) + " sizes and " + std::to_string(view.strides.size()) + " strides");
    const auto bytes = static_cast<int64_t>(size_bytes(dtype));
    const Sizes sizes = numbers(view.sizes);
    std::vector<RegionStep> steps;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] < 0) unsound("view " + text(view) + " has a size of " + std::to_string(sizes[i]));
      steps.push_back({sizes[i], product_of(number(view.strides[i]), bytes)});
    }
    const ByteRegion region = byte_region(start_of(view, dtype), bytes, std::move(steps));
    if (is_write && !region.is_distinct) unsound("view " + text(view) + " is written and may hold an element twice");
    add({.buffer = view.buffer, .is_write = is_write, .region = region});
  }

 private:
  int64_t number(const Dim& dim) const { return value_of(dim, values_); }
  Sizes numbers(const std::vector<Dim>& dims) const {
    Sizes result;
    for (const Dim& dim : dims) result.push_back(number(dim));
    return result;
  }
  static std::string sizes_text(const Sizes& sizes) {
    std::string result;
    for (const int64_t size : sizes) result += (result.empty() ? "" : ", ") + std::to_string(size);
    return "[" + result + "]";
  }
  static std::string said(const PlanAccess& access) { return access.is_write ? "writes" : "reads"; }

  /// Sizes of a matrix, or of a batch of them, of which one of the last strides is 1.
  Sizes matrix(const View& view) const {
    const Sizes sizes = numbers(view.sizes);
    const size_t rank = sizes.size();
    if (rank < 2 || view.strides.size() != rank) unsound("matmul: view " + text(view) + " is no matrix");
    const auto is_line = [&](size_t i) { return sizes[i] == 1 || number(view.strides[i]) == 1; };
    const bool is_empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
    if (!is_empty && !is_line(rank - 1) && !is_line(rank - 2)) unsound("matmul: neither of the last strides of " + text(view) + " is 1");
    return sizes;
  }

  void check_axes(const std::vector<AxisRef>& axes) const {
    for (size_t i = 0; i < axes.size(); ++i) {
      const MeshAxis* axis = plan_.mesh.find(axes[i].axis);
      if (axis == nullptr) unsound("mesh '" + plan_.mesh.text() + "' has no axis '" + axes[i].axis + "'");
      const AxisRef& part = axes[i];
      if (part.size != 0 && (part.pre < 1 || part.size < 1 || axis->size % part.pre != 0 || axis->size / part.pre % part.size != 0))
        unsound("a part of " + std::to_string(part.size) + " does not divide axis '" + part.axis + "' of size " + std::to_string(axis->size));
      for (size_t j = 0; j < i; ++j)
        if (overlap(axes[i], axes[j])) unsound("axis '" + part.axis + "' is used twice");
    }
  }

  int64_t start_of(const View& view, DType dtype) const {
    if (view.buffer < 0 || static_cast<size_t>(view.buffer) >= entry_.buffers.size()) unsound("buffer b" + std::to_string(view.buffer) + " does not exist");
    const Buffer& buffer = entry_.buffers[static_cast<size_t>(view.buffer)];
    if (buffer.dtype != dtype) unsound(buffer_name(entry_, view.buffer) + " holds " + std::string(name(buffer.dtype)) + ", wanted " + std::string(name(dtype)));
    return product_of(number(view.offset), static_cast<int64_t>(size_bytes(dtype)));
  }

  void add(PlanAccess access) {
    if (access.region.empty()) return;
    const Buffer& buffer = entry_.buffers[static_cast<size_t>(access.buffer)];
    const int64_t bytes = product_of(number(buffer.elements), static_cast<int64_t>(size_bytes(buffer.dtype)));
    if (access.region.begin < 0 || access.region.end() > bytes)
      unsound(said(access) + " bytes " + std::to_string(access.region.begin) + " to " + std::to_string(access.region.end()) + " of " +
              buffer_name(entry_, access.buffer) + ", which has " + std::to_string(bytes));
    accesses_.push_back(std::move(access));
  }

  void launch(const Form& form, const FormCode& code, const FormLaunch& launch) {
    if (launch.operands.size() != form.operands.size() || launch.sizes.size() != static_cast<size_t>(form.size_count))
      unsound("launch of " + std::to_string(launch.operands.size()) + " operands and " + std::to_string(launch.sizes.size()) + " sizes, the form has " +
              std::to_string(form.operands.size()) + " and " + std::to_string(form.size_count));
    std::vector<int64_t> starts;
    for (size_t i = 0; i < form.operands.size(); ++i) starts.push_back(start_of(launch.operands[i], form.operands[i].dtype));
    const Sizes sizes = numbers(launch.sizes);
    SymbolValues own;
    for (size_t i = 0; i < sizes.size(); ++i) own[form_symbol(static_cast<int>(i))] = sizes[i];
    if (value_of(code.parallel, own) < 0 || value_of(code.scratch_bytes, own) < 0) unsound("the form's code has a negative size");
    for (const FormAccess& access : form_accesses(form, sizes)) {
      const auto operand = static_cast<size_t>(access.operand);
      add({.buffer = launch.operands[operand].buffer,
           .is_write = access.is_write,
           .region = access.region.shifted(starts[operand]),
           .is_exact = access.is_exact,
           .in_place = !access.is_write && form.operands[operand].is_written});
      // By number, since two operands may be views of one buffer.
      if (operands_.size() < accesses_.size()) operands_.resize(accesses_.size(), -1);
      if (!accesses_.empty()) operands_.back() = access.operand;
    }
  }

  ByteRegion at_address(const PlanAccess& access) const { return access.region.shifted(addresses_[static_cast<size_t>(access.buffer)]); }

  /// What an access writes no other access of the same part touches, but the read that it replaces.
  void check_parts(size_t first) const {
    for (size_t i = first; i < accesses_.size(); ++i) {
      if (!accesses_[i].is_write) continue;
      IntervalSet written;
      for (size_t j = first; j < accesses_.size(); ++j) {
        const PlanAccess& other = accesses_[j];
        if (j == i || (other.is_write && j < i) || is_replaced(i, j)) continue;
        const ByteRegion a = at_address(accesses_[i]), b = at_address(other);
        if (a.begin >= b.end() || b.begin >= a.end()) continue;
        if (written.empty()) written.add(a, true);
        if (written.touches(b))
          unsound("writes bytes of " + buffer_name(entry_, accesses_[i].buffer) + " that it also " + (other.is_write ? "writes as " : "reads as ") +
                  buffer_name(entry_, other.buffer));
      }
    }
  }
  bool is_replaced(size_t write, size_t read) const {
    const PlanAccess& other = accesses_[read];
    if (!other.in_place || other.buffer != accesses_[write].buffer) return false;
    return operands_.empty() || operands_[write] == operands_[read];
  }

  const StepPlan& plan_;
  const PlanEntry& entry_;
  const std::vector<int64_t>& addresses_;
  const SymbolValues& values_;
  std::vector<PlanAccess> accesses_;
  std::vector<int> operands_;  ///< of a form's accesses
};

}  // namespace

std::string buffer_name(const PlanEntry& entry, int buffer) {
  const std::string& label = entry.buffers[static_cast<size_t>(buffer)].label;
  return "b" + std::to_string(buffer) + (label.empty() ? "" : " '" + label + "'");
}

int64_t value_of(const Dim& dim, const SymbolValues& values) { return dim.is_constant() ? dim.constant() : evaluate(dim, values); }

std::vector<PlanAccess> PlanAccessCollector::accesses(const Instruction& instruction, const SymbolValues& values) const {
  CallAccesses collected(plan_, entry_, addresses_, values);
  std::visit([&](const auto& call) { collected.call(call); }, instruction.op);
  return collected.take();
}

PlanAccess PlanAccessCollector::dense(const View& view, DType dtype, bool is_write, const SymbolValues& values) const {
  CallAccesses collected(plan_, entry_, addresses_, values);
  collected.dense(view, dtype, is_write);
  std::vector<PlanAccess> all = collected.take();
  return all.empty() ? PlanAccess{.buffer = view.buffer, .is_write = is_write, .region = {}} : std::move(all[0]);
}

int64_t PlanAccessCollector::buffer_bytes(int buffer, const SymbolValues& values) const {
  const Buffer& one = entry_.buffers[static_cast<size_t>(buffer)];
  return product_of(value_of(one.elements, values), static_cast<int64_t>(size_bytes(one.dtype)));
}

void for_each_size(const Instruction& instruction, const std::function<void(const Dim&)>& visit) {
  if (const auto* repeat = std::get_if<Repeat>(&instruction.op)) {
    visit(repeat->count);
    for (const Instruction& inner : repeat->body) for_each_size(inner, visit);
    return;
  }
  for_each_view(instruction.op, [&](const View& view) {
    visit(view.offset);
    for (const Dim& dim : view.sizes) visit(dim);
    for (const Dim& dim : view.strides) visit(dim);
  });
  if (const auto* call = std::get_if<FormCall>(&instruction.op)) {
    for (const FormLaunch& launch : call->launches)
      for (const Dim& dim : launch.sizes) visit(dim);
  } else if (const auto* call = std::get_if<AttentionCall>(&instruction.op)) {
    if (!call->dropout) return;
    for (const Dim* dim : {&call->dropout->origin, &call->dropout->step_n, &call->dropout->step_h, &call->dropout->step_t}) visit(*dim);
  } else if (const auto* call = std::get_if<CollectiveCall>(&instruction.op)) {
    visit(call->start);
    visit(call->size);
  }
}

}  // namespace stepgraph
