// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/executor/plan_executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <span>
#include <utility>

#include <fmt/core.h>

#include "stepgraph/base/error.h"
#include "stepgraph/base/float_mode.h"
#include "stepgraph/run/executor/bound_entry.h"
#include "stepgraph/run/executor/finite.h"
#include "stepgraph/run/executor/mapping.h"
#include "stepgraph/run/executor/poison.h"
#include "stepgraph/run/executor/results.h"
#include "stepgraph/run/executor/thread_team.h"

namespace stepgraph {
namespace {

constexpr int no_instruction = INT32_MAX;

std::string text_of(const Sizes& sizes) { return text(Shape(sizes.begin(), sizes.end())); }

void check_target(const Target& target) {
  if (target.threads < 1) throw UserError(fmt::format("the program was made for {} threads, wanted at least 1", target.threads));
#if defined(__x86_64__)
  const bool runs = target.isa == InstructionSet::Avx512
                        ? __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")
                        : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  const bool runs = false;
#endif
  if (!runs)
    throw UserError(
        fmt::format("the program was made for processors with {}, which this one has not", target.isa == InstructionSet::Avx512 ? "AVX-512" : "AVX2 and FMA"));
}

/// What a thread writes while others run.
struct alignas(line_bytes) ThreadState {
  Mapping scratch, own;
  int64_t status[4] = {0, 0, 0, 0};  // as forms write it
  int bad_instruction = no_instruction;  // the first with an index out of bounds, and that
  int64_t bad_index = 0, bad_size = 0;
  int failed_instruction = no_instruction;
  std::exception_ptr error;
  std::vector<TraceSlice> slices;

  void start() {
    bad_instruction = failed_instruction = no_instruction, error = nullptr, status[0] = status[3] = 0;
    slices.clear();
  }
};

/// A run of elements of one state, for the look at numbers that are none.
struct StatePart {
  size_t state = 0;
  int64_t begin = 0, end = 0;
};
struct LoadedState {
  DType dtype = DType::F32;
  Sizes sizes;
  std::byte* data = nullptr;
  bool has_value = false, is_finite = true;
};
struct LoadedEntry {
  const PlanEntry* entry = nullptr;
  std::vector<std::optional<size_t>> input_states;  // by input, which state it is
  std::vector<size_t> new_states;
  std::vector<StatePart> parts;      // of the floating ones
  std::vector<StatePart> unwatched;  // of those that something writes which does not say when a number is not finite
  std::list<BoundEntry> bindings;  // the latest first
};

class PlanExecutor : public Executor {
 public:
  PlanExecutor(std::shared_ptr<const StepPlan> plan, const MeshBinding& binding, PlanExecutorOptions options)
      : plan_(options.canaries ? std::make_shared<const StepPlan>(with_canaries(*plan)) : std::move(plan)),
        binding_(binding),
        options_(std::move(options)),
        team_((check_target(plan_->target), plan_->target.threads), use_no_library_threads) {
    SG_CHECK(plan_->code.size() == plan_->forms.size(), "a plan has code for each of its forms");
    if (!plan_->code.empty()) code_ = options_.load_code(plan_->code);
    size_t arena = 0, own = 0;
    for (const PlanEntry& entry : plan_->entries) {
      arena = std::max(arena, static_cast<size_t>(entry.arena_bytes));
      own = std::max(own, private_bytes(entry));
      prepare(entry.instructions);
    }
    arena_ = Mapping(arena);
    threads_ = std::vector<ThreadState>(static_cast<size_t>(team_.count()));
    for (size_t thread = 1; thread < threads_.size(); ++thread) threads_[thread].own = Mapping(own);
    copy_constants();
  }

  void connect(Communicator& group) override {
    SG_CHECK(group.size() == binding_.rank_count(), "communicator and mesh have different numbers of ranks");
    group_ = &group;
    pending_ = nullptr;
    if (states_.empty()) place_states();
    if (entries_.empty()) load_entries();
  }

  EntryResults run(std::string_view name, const EntryInputs& inputs) override {
    SG_CHECK(group_ != nullptr, "an executor runs before it is connected");
    pending_ = nullptr;
    const NoLibraryThreads alone;
    LoadedEntry& entry = loaded(name);
    BoundEntry& bound = bound_for(entry, inputs.sizes);
    take_inputs(entry, bound, inputs);
    if (options_.poison && arena_.bytes() > 0) std::memset(arena_.data(), 0xff, arena_.bytes());
    if (options_.canaries) write_canaries(*entry.entry, arena_.data());
    execute(*entry.entry, bound, bound.run);
    if (options_.canaries) check_canaries(*entry.entry, arena_.data());
    EntryResults results;
    for (size_t i = 0; i < bound.outputs.size(); ++i) {
      Literal value = Literal::uninitialised(bound.outputs[i].dtype, bound.outputs[i].sizes);
      if (value.byte_count() > 0) std::memcpy(value.mutable_data(), bound.pointers[bound.first_output + i], value.byte_count());
      take_result(entry.entry->outputs[i].role, std::move(value), results);
    }
    pending_ = &bound, pending_entry_ = &entry;
    return results;
  }

  std::optional<std::string> commit() override {
    if (pending_ == nullptr) return std::nullopt;
    const NoLibraryThreads alone;
    BoundEntry& bound = *std::exchange(pending_, nullptr);
    execute(*pending_entry_->entry, bound, bound.commit);
    if (options_.canaries) check_canaries(*pending_entry_->entry, arena_.data());
    const bool is_noticed = std::any_of(threads_.begin(), threads_.end(), [](const ThreadState& thread) { return thread.status[3] != 0; });
    return find_spoilt(*pending_entry_, is_noticed ? pending_entry_->parts : pending_entry_->unwatched);
  }

  void find_non_finite(std::string_view entry, const EntryInputs& inputs) override {
    if (!options_.find_non_finite) throw UserError("which operation made it is not known of a compiled program");
    options_.find_non_finite(entry, inputs, [this](std::string_view state) { return read_state(state); });
  }

  Literal read_state(std::string_view name) const override {
    const LoadedState& state = states_[state_index(name)];
    SG_CHECK(state.has_value, "state " + std::string(name) + " has no value");
    Literal value = Literal::uninitialised(state.dtype, state.sizes);
    if (value.byte_count() > 0) std::memcpy(value.mutable_data(), state.data, value.byte_count());
    return value;
  }
  void write_state(std::string_view name, Literal part) override {
    LoadedState& state = states_[state_index(name)];
    SG_CHECK(part.dtype() == state.dtype && part.sizes() == state.sizes, "a value of another type for state " + std::string(name));
    if (part.byte_count() > 0) std::memcpy(state.data, part.data(), part.byte_count());
    state.has_value = true;
    state.is_finite = all_finite(part);
    pending_ = nullptr;  // was worked out from the value before
  }
  int64_t peak_bytes() const override {
    size_t bytes = arena_.bytes() + state_memory_.bytes() + constant_memory_.bytes();
    for (const ThreadState& thread : threads_) bytes += thread.scratch.bytes() + thread.own.bytes();
    return static_cast<int64_t>(bytes);
  }

 private:
  // ---- loading
  /// Reads programs, and loads libraries where they are called.
  void prepare(const std::vector<Instruction>& instructions) {
    for (const Instruction& instruction : instructions) {
      if (const auto* repeat = std::get_if<Repeat>(&instruction.op)) prepare(repeat->body);
      const bool is_library_call = std::holds_alternative<MatMulCall>(instruction.op) || std::holds_alternative<ConvolutionCall>(instruction.op) ||
                                   std::holds_alternative<AttentionCall>(instruction.op);
      if (is_library_call) load_libraries(plan_->target);
      const auto* call = std::get_if<EvaluateCall>(&instruction.op);
      if (!call || programs_.count(call->program)) continue;
      SG_CHECK(options_.read_program != nullptr, "a plan with programs to evaluate wants who reads them");
      programs_.emplace(call->program, options_.read_program(call->program));
    }
  }
  void copy_constants() {
    size_t bytes = 0;
    for (const Literal& constant : plan_->constants) bytes += padded(constant.byte_count());
    constant_memory_ = Mapping(bytes);
    std::byte* at = constant_memory_.data();
    for (const Literal& constant : plan_->constants) {
      if (constant.byte_count() > 0) std::memcpy(at, constant.data(), constant.byte_count());
      constants_.push_back(at);
      at += padded(constant.byte_count());
    }
  }
  void place_states() {
    SymbolValues values;
    const Coordinates& coordinates = binding_.coordinates(group_->rank());
    for (size_t axis = 0; axis < plan_->mesh.axes.size(); ++axis) values["coord." + plan_->mesh.axes[axis].name] = coordinates[axis];
    plan_->symbols.add_derived(values);
    size_t bytes = 0;
    for (const PlanState& state : plan_->states) {
      LoadedState loaded{state.dtype, {}};
      for (const Dim& size : state.sizes) loaded.sizes.push_back(evaluate(size, values));
      bytes += padded(static_cast<size_t>(element_count(loaded.sizes)) * size_bytes(state.dtype));
      states_.push_back(std::move(loaded));
    }
    state_memory_ = Mapping(bytes);
    std::byte* at = state_memory_.data();
    for (LoadedState& state : states_) {
      state.data = at;
      at += padded(static_cast<size_t>(element_count(state.sizes)) * size_bytes(state.dtype));
    }
  }
  void load_entries() {
    constexpr int64_t part_elements = 1 << 16;
    for (const PlanEntry& entry : plan_->entries) {
      LoadedEntry& loaded = entries_.emplace_back();
      loaded.entry = &entry;
      for (const PlanValue& input : entry.inputs)
        loaded.input_states.push_back(is_state(input.role.kind) ? std::optional(state_index(input.role.name)) : std::nullopt);
      const std::set<int> unwatched = unwatched_states(*plan_, entry);
      for (const std::string& name : entry.new_states) {
        const size_t index = state_index(name);
        loaded.new_states.push_back(index);
        const int64_t count = is_floating(states_[index].dtype) ? element_count(states_[index].sizes) : 0;
        for (int64_t begin = 0; begin < count; begin += part_elements) {
          loaded.parts.push_back({index, begin, std::min(count, begin + part_elements)});
          if (unwatched.contains(static_cast<int>(index))) loaded.unwatched.push_back(loaded.parts.back());
        }
      }
    }
  }
  size_t state_index(std::string_view name) const {
    const auto found = std::find_if(plan_->states.begin(), plan_->states.end(), [&](const PlanState& state) { return state.name == name; });
    SG_CHECK(found != plan_->states.end() && !states_.empty(), "the program has no state " + std::string(name));
    return static_cast<size_t>(found - plan_->states.begin());
  }

  // ---- a run
  LoadedEntry& loaded(std::string_view name) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const LoadedEntry& entry) { return entry.entry->name == name; });
    SG_CHECK(found != entries_.end(), "the program has no entry " + std::string(name));
    return *found;
  }
  BoundEntry& bound_for(LoadedEntry& entry, const SymbolValues& sizes) {
    constexpr size_t most_bindings = 4;
    std::list<BoundEntry>& bindings = entry.bindings;
    const auto found = std::find_if(bindings.begin(), bindings.end(), [&](const BoundEntry& bound) { return bound.given == sizes; });
    if (found != bindings.end()) {
      bindings.splice(bindings.begin(), bindings, found);
      return bindings.front();
    }
    BindPlaces places{*plan_, binding_, group_->rank(), programs_, {}, constants_, arena_.data(), {}, options_.poison};
    for (const LoadedState& state : states_) places.states.push_back(state.data);
    for (const ThreadState& thread : threads_) places.own.push_back(thread.own.data());
    BoundEntry bound = bind_entry(places, *entry.entry, sizes);
    for (ThreadState& thread : threads_)
      if (thread.scratch.bytes() < bound.scratch_bytes) thread.scratch = Mapping(bound.scratch_bytes);
    bindings.push_front(std::move(bound));
    if (bindings.size() > most_bindings) bindings.pop_back();
    return bindings.front();
  }
  /// Batches are read where they are; they are held until the commit.
  void take_inputs(const LoadedEntry& loaded, BoundEntry& bound, const EntryInputs& inputs) {
    const PlanEntry& entry = *loaded.entry;
    held_inputs_.resize(std::max(held_inputs_.size(), entry.inputs.size()));
    for (size_t i = 0; i < entry.inputs.size(); ++i) {
      const Role& role = entry.inputs[i].role;
      if (loaded.input_states[i]) {
        SG_CHECK(states_[*loaded.input_states[i]].has_value, "state " + role.name + " has no value");
        continue;
      }
      if (role.kind == RoleKind::Batch)
        held_inputs_[i] = inputs.batch.at(role.name);
      else if (role.kind == RoleKind::Seed || role.kind == RoleKind::Step)
        held_inputs_[i] = Literal::integer(DType::I64, role.kind == RoleKind::Seed ? inputs.seed : inputs.step);
      else
        throw UserError("an input of role " + std::string(stepgraph::name(role.kind)) + " named '" + role.name + "' cannot be given in training");
      const BoundValue& wanted = bound.inputs[i];
      if (held_inputs_[i].dtype() != wanted.dtype || held_inputs_[i].sizes() != wanted.sizes)
        throw UserError(fmt::format("entry {}: input {} is {}{}, wanted {}{}", entry.name, role.name, stepgraph::name(held_inputs_[i].dtype()),
                                    text_of(held_inputs_[i].sizes()), stepgraph::name(wanted.dtype), text_of(wanted.sizes)));
    }
    for (const InputPointer& pointer : bound.input_pointers)
      bound.pointers[pointer.pointer] = const_cast<std::byte*>(held_inputs_[static_cast<size_t>(pointer.input)].data()) + pointer.bytes;
  }

  void execute(const PlanEntry& entry, BoundEntry& bound, const CommandLists& lists) {
    failed_.store(no_instruction, std::memory_order_relaxed);
    for (ThreadState& thread : threads_) thread.start();
    if (options_.trace && bound.piece_work.empty()) find_piece_work(entry, bound);
    auto work = [&](int thread) {
      const FloatMode mode(plan_->target.flush_denormals);
      if (options_.trace)
        trace_commands(bound, lists[static_cast<size_t>(thread)], thread);
      else
        run_commands(bound, lists[static_cast<size_t>(thread)], threads_[static_cast<size_t>(thread)]);
    };
    // To wake the others takes longer than what the first does alone in a small model.
    const bool is_alone = std::all_of(lists.begin() + 1, lists.end(), [](const auto& commands) { return commands.empty(); });
    if (is_alone)
      work(0);
    else
      team_.run(work);
    if (options_.trace) {
      std::vector<TraceSlice> slices;
      for (const ThreadState& thread : threads_) slices.insert(slices.end(), thread.slices.begin(), thread.slices.end());
      options_.trace(entry.name, &lists == &bound.commit, slices);
    }
    report(entry, bound);
  }
  /// The work of each instruction shared among its pieces.
  void find_piece_work(const PlanEntry& entry, BoundEntry& bound) const {
    SymbolValues values = bound.given;
    const Coordinates& coordinates = binding_.coordinates(group_->rank());
    for (size_t axis = 0; axis < plan_->mesh.axes.size(); ++axis) values["coord." + plan_->mesh.axes[axis].name] = coordinates[axis];
    const std::function<void(const std::vector<Instruction>&)> add_loops = [&](const std::vector<Instruction>& body) {
      for (const Instruction& instruction : body)
        if (const auto* repeat = std::get_if<Repeat>(&instruction.op)) values[repeat->symbol] = 0, add_loops(repeat->body);
    };
    add_loops(entry.instructions);
    plan_->symbols.add_derived(values);
    std::vector<double> pieces(bound.instructions.size(), 0);
    for (const CommandLists* lists : {&bound.run, &bound.commit})
      for (const auto& commands : *lists)
        for (const Command& command : commands)
          if (command.kind != CommandKind::Meet && command.kind != CommandKind::Poison) pieces[static_cast<size_t>(command.instruction)] += static_cast<double>(command.end - command.begin);
    std::map<const Instruction*, InstructionWork> known;
    for (size_t i = 0; i < bound.instructions.size(); ++i) {
      const auto [place, is_new] = known.try_emplace(bound.instructions[i]);
      if (is_new) place->second = instruction_work(*plan_, entry, *bound.instructions[i], values);
      const double part = pieces[i] > 0 ? 1 / pieces[i] : 0;
      bound.piece_work.push_back({place->second.read * part, place->second.written * part, place->second.flops * part});
    }
  }
  void trace_commands(BoundEntry& bound, const std::vector<Command>& commands, int number) {
    ThreadState& thread = threads_[static_cast<size_t>(number)];
    const auto now = [] { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
    for (size_t i = 0; i < commands.size(); ++i) {
      const Command& command = commands[i];
      TraceSlice slice;
      slice.thread = number;
      if (command.kind != CommandKind::Meet) {
        const InstructionWork& piece = bound.piece_work[static_cast<size_t>(command.instruction)];
        const auto pieces = static_cast<double>(command.kind == CommandKind::Poison ? 0 : command.end - command.begin);
        slice.instruction = bound.instructions[static_cast<size_t>(command.instruction)];
        slice.bytes = pieces * (piece.read + piece.written), slice.flops = pieces * piece.flops;
      }
      slice.start_ns = now();
      run_commands(bound, std::span(commands).subspan(i, 1), thread);
      slice.end_ns = now();
      thread.slices.push_back(slice);
    }
  }
  void run_commands(BoundEntry& bound, std::span<const Command> commands, ThreadState& thread) {
    for (const Command& command : commands) {
      if (command.kind == CommandKind::Meet) {
        team_.meet();
        continue;
      }
      // After an error only what comes before it is still of interest: it may hold an earlier one.
      if (command.instruction > failed_.load(std::memory_order_relaxed)) continue;
      try {
        run_command(bound, command, thread);
      } catch (...) {
        thread.failed_instruction = command.instruction;
        thread.error = std::current_exception();
        int first = failed_.load(std::memory_order_relaxed);
        while (command.instruction < first && !failed_.compare_exchange_weak(first, command.instruction, std::memory_order_relaxed)) {
        }
      }
    }
  }
  void run_command(BoundEntry& bound, const Command& command, ThreadState& thread) {
    void** const at = bound.pointers.data() + command.pointers;
    switch (command.kind) {
      case CommandKind::Form:
        code_->function(command.item)(at, bound.sizes.data() + command.sizes, command.begin, command.end, thread.scratch.data(), thread.status);
        if (thread.status[0] != 0) take_status(command, thread);
        break;
      case CommandKind::Scatter:
        bound.scatters[command.item].run({at[0], at[1], at[2], at[3]}, command.begin, command.end, thread.scratch.data(), thread.status);
        if (thread.status[0] != 0) take_status(command, thread);
        break;
      case CommandKind::Pool:
        bound.pools[command.item].run(static_cast<const float*>(at[0]), static_cast<float*>(at[1]), at[2], command.begin, command.end, thread.scratch.data());
        break;
      case CommandKind::Scan: bound.scans[command.item].run(at[0], at[1], command.begin, command.end); break;
      case CommandKind::MatMul: bound.matmuls[command.item].run(at[0], at[1], at[2], command.begin, command.end); break;
      case CommandKind::Convolution:
        bound.convolutions[command.item]->run(static_cast<const float*>(at[0]), static_cast<const float*>(at[1]), static_cast<float*>(at[2]), command.begin,
                                              command.end, thread.scratch.data());
        break;
      case CommandKind::Attention: bound.attentions[command.item].run(at, command.begin, command.end, thread.scratch.data()); break;
      case CommandKind::Evaluate: evaluate_program(bound.evaluates[command.item], at, *bound.instructions[static_cast<size_t>(command.instruction)]); break;
      case CommandKind::Collective: run_collective(bound.collectives[command.item], at); break;
      case CommandKind::Poison: std::memset(at[0], 0xff, static_cast<size_t>(command.end)); break;
      case CommandKind::Meet: break;
    }
  }
  static void take_status(const Command& command, ThreadState& thread) {
    thread.status[0] = 0;
    if (command.instruction >= thread.bad_instruction) return;
    thread.bad_instruction = command.instruction;
    thread.bad_index = thread.status[1], thread.bad_size = thread.status[2];
  }

  Literal view_of(const BoundValue& value, const void* data) const {
    return Literal::view(value.dtype, value.sizes, plan_, static_cast<const std::byte*>(data));
  }
  static void copy_out(const Literal& from, const BoundValue& wanted, void* to, const std::string& label) {
    SG_CHECK(from.dtype() == wanted.dtype && from.sizes() == wanted.sizes, label + " gave " + from.text(0) + ", which is not what the plan has room for");
    if (from.byte_count() > 0) std::memcpy(to, from.data(), from.byte_count());
  }
  void evaluate_program(const BoundEvaluate& call, void* const* pointers, const Instruction& instruction) const {
    std::vector<Literal> inputs;
    for (size_t i = 0; i < call.inputs.size(); ++i) inputs.push_back(view_of(call.inputs[i], pointers[i]));
    const std::vector<Literal> outputs = (*call.program)(std::move(inputs), call.symbols);
    SG_CHECK(outputs.size() == call.outputs.size(), instruction.label + " gave another number of results than the plan has");
    for (size_t i = 0; i < outputs.size(); ++i) copy_out(outputs[i], call.outputs[i], pointers[call.inputs.size() + i], instruction.label);
  }
  void run_collective(const BoundCollective& collective, void* const* pointers) const {
    const CollectiveCall& call = *collective.call;
    const Literal input = view_of(collective.input, pointers[0]);
    Literal result;
    switch (call.kind) {
      case CollectiveKind::AllReduce: result = group_->all_reduce(input, call.reduce, collective.group); break;
      case CollectiveKind::AllGather: result = group_->all_gather(input, call.dim, collective.group); break;
      case CollectiveKind::ReduceScatter:
        result = group_->reduce_scatter(input, call.reduce, call.dim, collective.start, collective.size, collective.group);
        break;
    }
    copy_out(result, collective.output, pointers[1], "a collective");
  }

  /// The first error of all threads, by instruction.
  void report(const PlanEntry& entry, const BoundEntry& bound) const {
    const ThreadState *failed = &threads_[0], *bad = &threads_[0];
    for (const ThreadState& thread : threads_) {
      if (thread.failed_instruction < failed->failed_instruction) failed = &thread;
      if (thread.bad_instruction < bad->bad_instruction) bad = &thread;
    }
    if (failed->error && failed->failed_instruction <= bad->bad_instruction) std::rethrow_exception(failed->error);
    if (bad->bad_instruction == no_instruction) return;
    const Instruction& instruction = *bound.instructions[static_cast<size_t>(bad->bad_instruction)];
    throw UserError(fmt::format("{}: index {} is outside of [0, {}) ({}{})", instruction.label, bad->bad_index, bad->bad_size, entry.name,
                                instruction.scope.empty() ? "" : ", " + instruction.scope),
                    BadIndex(instruction.label, bad->bad_index, bad->bad_size));
  }

  /// The new states have values now. Looks at some parts of them, all threads together; the others are finite.
  std::optional<std::string> find_spoilt(const LoadedEntry& entry, const std::vector<StatePart>& parts) {
    part_is_finite_.assign(parts.size(), 1);
    auto look = [&](int thread) {
      const size_t count = parts.size(), threads = static_cast<size_t>(team_.count()), own = static_cast<size_t>(thread);
      for (size_t i = count * own / threads; i < count * (own + 1) / threads; ++i) {
        const LoadedState& state = states_[parts[i].state];
        const auto offset = static_cast<size_t>(parts[i].begin) * size_bytes(state.dtype);
        part_is_finite_[i] = all_finite(state.dtype, state.data + offset, parts[i].end - parts[i].begin) ? 1 : 0;
      }
    };
    constexpr size_t few = 4;  // for which a meeting costs more than the look
    if (parts.size() <= few)
      for (int thread = 0; thread < team_.count(); ++thread) look(thread);
    else
      team_.run(look);
    std::optional<std::string> first;
    size_t part = 0;
    for (const size_t index : entry.new_states) {
      LoadedState& state = states_[index];
      bool is_finite = true;
      for (; part < parts.size() && parts[part].state == index; ++part) is_finite = is_finite && part_is_finite_[part] != 0;
      if (!is_finite && state.is_finite && state.has_value && !first) first = plan_->states[index].name;
      state.is_finite = is_finite, state.has_value = true;
    }
    return first;
  }

  const std::shared_ptr<const StepPlan> plan_;
  const MeshBinding& binding_;
  PlanExecutorOptions options_;
  ThreadTeam team_;
  Communicator* group_ = nullptr;
  std::unique_ptr<LoadedCode> code_;
  std::map<std::string, EvaluateProgram, std::less<>> programs_;
  Mapping arena_, state_memory_, constant_memory_;
  std::vector<std::byte*> constants_;
  std::vector<LoadedState> states_;  // as the plan's
  std::deque<LoadedEntry> entries_;
  std::vector<ThreadState> threads_;
  std::atomic<int> failed_ = no_instruction;
  std::vector<Literal> held_inputs_;
  std::vector<uint8_t> part_is_finite_;
  BoundEntry* pending_ = nullptr;  // of the last run, until it is committed
  const LoadedEntry* pending_entry_ = nullptr;
};

}  // namespace

size_t thread_scratch_bytes(const StepPlan& plan, const PlanEntry& entry, const SymbolValues& sizes) {
  load_libraries(plan.target);
  std::map<std::string, EvaluateProgram, std::less<>> programs;
  const std::function<void(const std::vector<Instruction>&)> add_programs = [&](const std::vector<Instruction>& body) {
    for (const Instruction& instruction : body) {
      if (const auto* repeat = std::get_if<Repeat>(&instruction.op)) add_programs(repeat->body);
      if (const auto* call = std::get_if<EvaluateCall>(&instruction.op)) programs.emplace(call->program, EvaluateProgram());
    }
  };
  add_programs(entry.instructions);
  // Nothing is read or written: any address will do.
  auto* const somewhere = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
  const MeshBinding binding = bind_mesh(plan.mesh);
  const BindPlaces places{plan, binding, 0, programs, std::vector<std::byte*>(plan.states.size(), somewhere), std::vector<std::byte*>(plan.constants.size(), somewhere), somewhere,
                          std::vector<std::byte*>(static_cast<size_t>(plan.target.threads), somewhere), false};
  return bind_entry(places, entry, sizes).scratch_bytes;
}

std::unique_ptr<Executor> plan_executor(std::shared_ptr<const StepPlan> plan, const MeshBinding& binding, PlanExecutorOptions options) {
  return std::make_unique<PlanExecutor>(std::move(plan), binding, std::move(options));
}

}  // namespace stepgraph
