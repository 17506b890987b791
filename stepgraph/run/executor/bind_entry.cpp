// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "stepgraph/base/error.h"
#include "stepgraph/run/executor/bound_entry.h"
#include "stepgraph/run/executor/poison.h"
#include "stepgraph/run/executor/mapping.h"

namespace stepgraph {
namespace {

bool is_call(const Instruction& instruction) {
  return std::holds_alternative<EvaluateCall>(instruction.op) || std::holds_alternative<CollectiveCall>(instruction.op);
}
bool holds_call(const std::vector<Instruction>& body) {
  return std::any_of(body.begin(), body.end(), [](const Instruction& instruction) {
    const auto* repeat = std::get_if<Repeat>(&instruction.op);
    return repeat ? holds_call(repeat->body) : is_call(instruction);
  });
}

int64_t share(int64_t total, int part, int parts) { return total / parts * part + std::min<int64_t>(part, total % parts); }

using PlacePrivate = std::function<void(int buffer, size_t offset)>;
/// Where the private buffers of a parallel Repeat, and of those in it, lie in a thread's own memory. Returns its end.
size_t place_private(const PlanEntry& entry, const Repeat& repeat, size_t at, const PlacePrivate& place) {
  for (size_t i = 0; repeat.parallel && i < repeat.private_buffers.size(); ++i) {
    const int buffer = repeat.private_buffers[i];
    place(buffer, at);
    at += padded(static_cast<size_t>(entry.buffers[static_cast<size_t>(buffer)].bytes));
  }
  for (const Instruction& instruction : repeat.body)
    if (const auto* inner = std::get_if<Repeat>(&instruction.op)) at = place_private(entry, *inner, at, place);
  return at;
}

class Binder {
 public:
  Binder(const BindPlaces& places, const PlanEntry& entry, const SymbolValues& given)
      : places_(places), plan_(places.plan), entry_(entry), values_(given), threads_(plan_.target.threads) {
    bound_.given = given;
    const Coordinates& coordinates = places.binding.coordinates(places.rank);
    for (size_t axis = 0; axis < plan_.mesh.axes.size(); ++axis) values_["coord." + plan_.mesh.axes[axis].name] = coordinates[axis];
    has_derived_ = std::any_of(plan_.symbols.all().begin(), plan_.symbols.all().end(), [](const Symbol& symbol) { return symbol.kind == SymbolKind::Derived; });
    add_derived();
  }

  BoundEntry bind() {
    check_symbols();
    for (const Buffer& buffer : entry_.buffers)
      if (all_known(buffer.elements)) check_room(buffer);
    for (const PlanValue& value : entry_.inputs) bound_.inputs.push_back(value_of(value.dtype, value.view));
    const auto commit_begin = static_cast<size_t>(entry_.commit_begin);
    emit_all(0, commit_begin, bound_.run);
    emit_all(commit_begin, entry_.instructions.size(), bound_.commit);
    bound_.first_output = bound_.pointers.size();
    for (const PlanValue& value : entry_.outputs) {
      bound_.outputs.push_back(value_of(value.dtype, value.view));
      add_pointer(value.view, value.dtype);
    }
    return std::move(bound_);
  }

 private:
  // ---- sizes
  int64_t number(const Dim& dim) const { return dim.is_constant() ? dim.constant() : evaluate(dim, values_); }
  Sizes numbers(const std::vector<Dim>& dims) const {
    Sizes result;
    for (const Dim& dim : dims) result.push_back(number(dim));
    return result;
  }
  bool all_known(const Dim& dim) const {
    const std::vector<std::string> symbols = dim.symbols();
    return std::all_of(symbols.begin(), symbols.end(), [&](const std::string& symbol) { return values_.count(symbol) > 0; });
  }
  void add_derived() {
    if (has_derived_) plan_.symbols.add_derived(values_);
  }
  std::string text_of_values(const Dim& dim) const {
    std::string text;
    for (const std::string& symbol : plan_.symbols.expand(dim).symbols())
      if (const auto found = values_.find(symbol); found != values_.end()) text += fmt::format("{}{} is {}", text.empty() ? "" : ", ", symbol, found->second);
    return text;
  }
  void check_symbols() const {
    for (const Symbol& symbol : plan_.symbols.all()) {
      const auto found = values_.find(symbol.name);
      if (symbol.kind != SymbolKind::Size || found == values_.end()) continue;
      const int64_t value = found->second;
      if (value < symbol.minimum || value > symbol.maximum || value % symbol.multiple_of != 0)
        throw UserError(
            fmt::format("entry {}: {} is {}, the program was made for {}", entry_.name, symbol.name, value, plan_.symbols.describe(Dim::symbol(symbol.name))));
    }
  }
  void check_room(const Buffer& buffer) const {
    if (buffer.space != Space::Arena) return;
    const int64_t needed = number(buffer.elements) * static_cast<int64_t>(size_bytes(buffer.dtype));
    if (needed > buffer.bytes)
      throw UserError(fmt::format("entry {}: {} takes {} bytes where {}, the program was made for at most {} bytes and {}", entry_.name, buffer.label, needed,
                                  text_of_values(buffer.elements), buffer.bytes, plan_.symbols.describe(buffer.elements)));
    SG_CHECK(buffer.offset >= 0 && buffer.offset % 64 == 0 && buffer.offset + buffer.bytes <= entry_.arena_bytes,
             "buffer " + buffer.label + " lies outside of the arena");
  }
  BoundValue value_of(DType dtype, const View& view) const { return {dtype, numbers(view.sizes)}; }

  // ---- memory
  std::byte* base(int index, const Buffer& buffer) const {
    switch (buffer.space) {
      case Space::State: return places_.states[static_cast<size_t>(buffer.index)];
      case Space::Constant: return places_.constants[static_cast<size_t>(buffer.index)];
      case Space::Input: return nullptr;
      case Space::Arena: break;
    }
    const auto own = private_places_.find(index);
    return own != private_places_.end() ? own->second : places_.arena + buffer.offset;
  }
  size_t add_pointer(const View& view, DType dtype) {
    const Buffer& buffer = entry_.buffers[static_cast<size_t>(view.buffer)];
    if (in_repeat_) check_room(buffer);
    const int64_t bytes = number(view.offset) * static_cast<int64_t>(size_bytes(dtype));
    SG_CHECK(bytes >= 0, "a view begins before its buffer " + buffer.label);
    if (buffer.space == Space::Input) bound_.input_pointers.push_back({bound_.pointers.size(), buffer.index, bytes});
    std::byte* const start = base(view.buffer, buffer);
    bound_.pointers.push_back(start == nullptr ? nullptr : start + bytes);
    return bound_.pointers.size() - 1;
  }

  // ---- who does what
  void emit_all(size_t begin, size_t end, CommandLists& lists) {
    lists.assign(static_cast<size_t>(threads_), {});
    lists_ = &lists;
    is_first_ = true, is_alone_ = meet_next_ = false;
    for (size_t i = begin; i < end; ++i) {
      emit(entry_.instructions[i]);
      if (places_.poison) emit_poison(i);
    }
  }
  std::vector<Command>& list(int thread) { return (*lists_)[static_cast<size_t>(thread)]; }

  void meet() {
    if (threads_ == 1 || is_first_) return;
    // All meet or none: a thread without a piece since the last meeting waits for those that have one.
    const bool is_met =
        std::all_of(lists_->begin(), lists_->end(), [](const auto& commands) { return !commands.empty() && commands.back().kind == CommandKind::Meet; });
    for (size_t thread = 0; !is_met && thread < lists_->size(); ++thread) (*lists_)[thread].push_back({CommandKind::Meet});
  }
  void begin_instruction(bool alone, bool wants_meeting) {
    // What one thread does alone it does in order.
    if (alone != is_alone_ || (!alone && (wants_meeting || meet_next_))) meet();
    is_alone_ = alone, is_first_ = meet_next_ = false;
  }
  void emit(const Instruction& instruction) {
    if (const auto* repeat = std::get_if<Repeat>(&instruction.op)) return emit_repeat(instruction, *repeat);
    const bool alone = instruction.one_thread || is_call(instruction);
    if (only_thread_ < 0) begin_instruction(alone, instruction.meet);
    bound_.instructions.push_back(&instruction);
    const int before = only_thread_;
    if (alone && only_thread_ < 0) only_thread_ = 0;
    std::visit([&](const auto& op) { emit_op(op); }, instruction.op);
    only_thread_ = before;
  }
  /// Pieces [0, total) to the threads; `first`: pieces of the same instruction before these, `all`: of it in all.
  void deal(Command command, int64_t first, int64_t total, int64_t all) {
    command.instruction = static_cast<int>(bound_.instructions.size()) - 1;
    for (int thread = 0; thread < threads_; ++thread) {
      const bool only = only_thread_ >= 0;
      if (only && thread != only_thread_) continue;
      command.begin = only ? 0 : std::max<int64_t>(share(all, thread, threads_) - first, 0);
      command.end = only ? total : std::min(share(all, thread + 1, threads_) - first, total);
      if (command.begin < command.end) list(thread).push_back(command);
    }
  }

  void emit_repeat(const Instruction& instruction, const Repeat& repeat) {
    const int64_t count = number(repeat.count);
    const bool parallel = repeat.parallel && only_thread_ < 0 && !holds_call(repeat.body);
    const auto before = values_.find(repeat.symbol) == values_.end() ? std::nullopt : std::optional(values_.at(repeat.symbol));
    const bool outer = std::exchange(in_repeat_, true);
    const auto piece = [&](int64_t i) {
      values_[repeat.symbol] = i;
      add_derived();
      for (const Instruction& inner : repeat.body) emit(inner);
    };
    if (parallel) {
      begin_instruction(false, instruction.meet);
      for (int thread = 0; thread < threads_; ++thread) {
        only_thread_ = thread;
        if (thread > 0)
          place_private(entry_, repeat, 0, [&](int buffer, size_t offset) { private_places_[buffer] = places_.own[static_cast<size_t>(thread)] + offset; });
        for (int64_t i = share(count, thread, threads_); i < share(count, thread + 1, threads_); ++i) piece(i);
      }
      only_thread_ = -1;
      private_places_.clear();
    } else {
      meet_next_ = meet_next_ || instruction.meet;
      for (int64_t i = 0; i < count; ++i) piece(repeat.reverse ? count - 1 - i : i);
    }
    in_repeat_ = outer;
    values_.erase(repeat.symbol);
    if (before) values_[repeat.symbol] = *before;
  }
  void emit_op(const Repeat&) {}

  void emit_op(const FormCall& call) {
    const FormCode& code = plan_.code[static_cast<size_t>(call.form)];
    std::vector<Command> commands;
    std::vector<int64_t> parts;
    for (const FormLaunch& launch : call.launches) {
      Command command{CommandKind::Form, 0, static_cast<size_t>(call.form), bound_.pointers.size(), bound_.sizes.size()};
      const Form& form = plan_.forms[static_cast<size_t>(call.form)];
      SG_CHECK(form.operands.size() == launch.operands.size() && static_cast<size_t>(form.size_count) == launch.sizes.size(), "a launch does not fit its form");
      for (size_t i = 0; i < launch.operands.size(); ++i) add_pointer(launch.operands[i], form.operands[i].dtype);
      SymbolValues sizes;
      for (size_t i = 0; i < launch.sizes.size(); ++i) {
        bound_.sizes.push_back(number(launch.sizes[i]));
        sizes[form_symbol(static_cast<int>(i))] = bound_.sizes.back();
      }
      parts.push_back(evaluate(code.parallel, sizes));
      bound_.scratch_bytes = std::max(bound_.scratch_bytes, static_cast<size_t>(evaluate(code.scratch_bytes, sizes)));
      commands.push_back(command);
    }
    int64_t all = 0, first = 0;
    for (const int64_t count : parts) all += count;
    for (size_t i = 0; i < commands.size(); first += parts[i++]) deal(commands[i], first, parts[i], all);
  }

  StridedOperand operand(const View& view) const { return {numbers(view.sizes), numbers(view.strides)}; }
  void emit_op(const MatMulCall& call) {
    Command command{CommandKind::MatMul, 0, bound_.matmuls.size(), bound_.pointers.size()};
    for (const View* view : {&call.lhs, &call.rhs, &call.out}) add_pointer(*view, call.dtype);
    bound_.matmuls.emplace_back(call.library, call.dtype, call.accumulate, operand(call.lhs), operand(call.rhs), operand(call.out), call.cut);
    const int64_t pieces = bound_.matmuls.back().pieces();
    deal(command, 0, pieces, pieces);
  }
  void emit_op(const ConvolutionCall& call) {
    Command command{CommandKind::Convolution, 0, bound_.convolutions.size(), bound_.pointers.size()};
    for (const View* view : {&call.a, &call.b, &call.out}) add_pointer(*view, DType::F32);
    bound_.convolutions.push_back(convolution_work({call.pass, numbers(call.a.sizes), numbers(call.b.sizes), numbers(call.out.sizes), call.strides,
                                                    call.padding_low, call.padding_high, call.dilation, call.groups}));
    bound_.scratch_bytes = std::max(bound_.scratch_bytes, bound_.convolutions.back()->scratch_bytes());
    const int64_t pieces = bound_.convolutions.back()->pieces();
    deal(command, 0, pieces, pieces);
  }
  void emit_op(const AttentionCall& call) {
    AttentionOperands operands{
        operand(call.q), operand(call.k), operand(call.v), operand(call.out), operand(call.lse), {}, call.mask_dtype, call.scale, call.causal, {}, {}};
    if (const auto& d = call.dropout) operands.dropout = {d->rate, number(d->origin), number(d->step_n), number(d->step_h), number(d->step_t)};
    if (call.mask) operands.mask = operand(*call.mask);
    // In the order of AttentionPointer; what there is not is not read.
    std::vector<std::pair<const View*, DType>> views = {
        {&call.q, DType::F32}, {&call.k, DType::F32}, {&call.v, DType::F32}, {&call.out, DType::F32}, {&call.lse, DType::F32}};
    views.emplace_back(call.mask ? &*call.mask : &call.q, call.mask ? call.mask_dtype : DType::F32);
    views.emplace_back(call.dropout ? &call.dropout->key : &call.q, call.dropout ? DType::I64 : DType::F32);
    if (const auto& g = call.gradient) {
      operands.gradient = {operand(g->d_out), operand(g->d_lse), operand(g->d_q), operand(g->d_k), operand(g->d_v)};
      for (const View* view : {&g->d_out, &g->d_lse, &g->d_q, &g->d_k, &g->d_v}) views.emplace_back(view, DType::F32);
    }
    Command command{CommandKind::Attention, 0, bound_.attentions.size(), bound_.pointers.size()};
    for (const auto& [view, dtype] : views) add_pointer(*view, dtype);
    // Its products are small, and oneDNN the faster one there: 89 against 73 GFLOP/s for 64 x 64 x 256 on a Zen core.
    bound_.attentions.emplace_back(GemmLibrary::OneDnn, std::move(operands));
    bound_.scratch_bytes = std::max(bound_.scratch_bytes, bound_.attentions.back().scratch_bytes());
    const int64_t pieces = bound_.attentions.back().pieces();
    deal(command, 0, pieces, pieces);
  }

  void emit_op(const ScatterCall& call) {
    ScatterOperands operands{call.kind, call.dtype, call.index_dtype, numbers(call.out.sizes), {}, operand(call.index), operand(call.updates)};
    if (call.base) operands.base = operand(*call.base), operands.in_place = *call.base == call.out;
    Command command{CommandKind::Scatter, 0, bound_.scatters.size(), bound_.pointers.size()};
    add_pointer(call.base ? *call.base : call.out, call.dtype);
    add_pointer(call.index, call.index_dtype);
    add_pointer(call.updates, call.dtype);
    add_pointer(call.out, call.dtype);
    bound_.scatters.emplace_back(std::move(operands));
    bound_.scratch_bytes = std::max(bound_.scratch_bytes, bound_.scatters.back().scratch_bytes());
    const int64_t pieces = bound_.scatters.back().pieces();
    deal(command, 0, pieces, pieces);
  }
  void emit_op(const PoolCall& call) {
    Command command{CommandKind::Pool, 0, bound_.pools.size(), bound_.pointers.size()};
    add_pointer(call.a, DType::F32);
    add_pointer(call.out, DType::F32);
    add_pointer(call.places ? *call.places : call.out, call.places ? call.places_dtype : DType::F32);
    bound_.pools.emplace_back(PoolOperands{call.pass, numbers(call.a.sizes), numbers(call.out.sizes), call.places_dtype, call.size, call.strides,
                                           call.padding_low, call.padding_high, call.dilation, call.count_padding});
    bound_.scratch_bytes = std::max(bound_.scratch_bytes, bound_.pools.back().scratch_bytes());
    const int64_t pieces = bound_.pools.back().pieces();
    deal(command, 0, pieces, pieces);
  }
  void emit_op(const ScanCall& call) {
    Command command{CommandKind::Scan, 0, bound_.scans.size(), bound_.pointers.size()};
    add_pointer(call.x, call.dtype);
    add_pointer(call.out, call.dtype);
    bound_.scans.emplace_back(ScanOperands{call.kind, call.dtype, call.reverse, operand(call.x)});
    const int64_t pieces = bound_.scans.back().pieces();
    deal(command, 0, pieces, pieces);
  }

  void emit_op(const EvaluateCall& call) {
    BoundEvaluate bound{&places_.programs.at(call.program), {}, {}, values_};
    Command command{CommandKind::Evaluate, 0, bound_.evaluates.size(), bound_.pointers.size()};
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      add_pointer(call.inputs[i], call.input_dtypes[i]);
      bound.inputs.push_back(value_of(call.input_dtypes[i], call.inputs[i]));
    }
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      add_pointer(call.outputs[i], call.output_dtypes[i]);
      bound.outputs.push_back(value_of(call.output_dtypes[i], call.outputs[i]));
    }
    bound_.evaluates.push_back(std::move(bound));
    deal(command, 0, 1, 1);
  }
  void emit_op(const CollectiveCall& call) {
    BoundCollective bound{&call, value_of(call.dtype, call.input), value_of(call.dtype, call.output), 0, 0, places_.binding.group(places_.rank, call.axes)};
    if (call.kind == CollectiveKind::ReduceScatter) {
      bound.size = number(call.size);
      bound.start = bound.size == 0 ? 0 : number(call.start);  // an empty piece may start past the end
    }
    Command command{CommandKind::Collective, 0, bound_.collectives.size(), bound_.pointers.size()};
    add_pointer(call.input, call.dtype);
    add_pointer(call.output, call.dtype);
    bound_.collectives.push_back(std::move(bound));
    deal(command, 0, 1, 1);
  }

  /// Fills what nothing reads after the entry's instruction `index`.
  void emit_poison(size_t index) {
    if (!uses_) uses_ = buffer_uses(entry_);
    for (const int buffer : buffers_that_end(entry_, *uses_, static_cast<int>(index))) {
      begin_instruction(true, true);
      const Buffer& found = entry_.buffers[static_cast<size_t>(buffer)];
      Command command{CommandKind::Poison, static_cast<int>(bound_.instructions.size()) - 1, 0, bound_.pointers.size()};
      bound_.pointers.push_back(places_.arena + found.offset);
      command.end = found.bytes;
      list(0).push_back(command);
    }
  }

  const BindPlaces& places_;
  const StepPlan& plan_;
  const PlanEntry& entry_;
  SymbolValues values_;
  int threads_;
  bool has_derived_ = false, in_repeat_ = false;
  BoundEntry bound_;
  CommandLists* lists_ = nullptr;
  bool is_first_ = true, is_alone_ = false, meet_next_ = false;  // of the list that is made
  int only_thread_ = -1;                                         // that all pieces go to
  std::map<int, std::byte*> private_places_;                     // by buffer
  std::optional<BufferUses> uses_;
};

}  // namespace

BoundEntry bind_entry(const BindPlaces& places, const PlanEntry& entry, const SymbolValues& given) { return Binder(places, entry, given).bind(); }

size_t private_bytes(const PlanEntry& entry) {
  size_t most = 0;
  for (const Instruction& instruction : entry.instructions)
    if (const auto* repeat = std::get_if<Repeat>(&instruction.op)) most = std::max(most, place_private(entry, *repeat, 0, [](int, size_t) {}));
  return most;
}

}  // namespace stepgraph
