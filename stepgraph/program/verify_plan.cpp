// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/verify_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "stepgraph/base/error.h"
#include "stepgraph/program/form_text.h"
#include "stepgraph/program/held_indices.h"
#include "stepgraph/program/library_support.h"
#include "stepgraph/program/plan_accesses.h"

namespace stepgraph {
namespace {

constexpr int64_t alignment_bytes = 64;
constexpr int64_t iterations_run = 16;  ///< of a repeat, all of them
constexpr int64_t steps_max = 1 << 20;  ///< instructions and iterations that are gone through, of an entry
constexpr int64_t iteration_depth_max = 40;

/// What instructions did since the last meeting.
class SinceMeeting {
 public:
  void clear() {
    pending_.clear();
    for (Accesses* accesses : {&shared_, &first_thread_}) accesses->read.clear(), accesses->written.clear();
  }
  void add(const ByteRegion& region, bool is_write, bool one_thread) { pending_.push_back({region, is_write, one_thread}); }
  /// Whether another instruction's access may come at the same time and matter.
  bool conflicts(const ByteRegion& region, bool is_write, bool one_thread) {
    for (const Pending& one : pending_) {
      Accesses& accesses = one.one_thread ? first_thread_ : shared_;
      (one.is_write ? accesses.written : accesses.read).add(one.region, true);
    }
    pending_.clear();
    const auto meets = [&](const Accesses& accesses) { return accesses.written.touches(region) || (is_write && accesses.read.touches(region)); };
    return meets(shared_) || (!one_thread && meets(first_thread_));
  }

 private:
  struct Pending {
    ByteRegion region;
    bool is_write, one_thread;
  };
  struct Accesses {
    IntervalSet read, written;
  };
  std::vector<Pending> pending_;  ///< not in the sets yet: most instructions follow a meeting and never ask
  Accesses shared_, first_thread_;
};

/// Which buffer wrote a byte of the arena last.
class LastWriters {
 public:
  /// Calls `lost(buffer, begin, end)` for what others had there.
  template <class Lost>
  void claim(int64_t begin, int64_t end, int buffer, const Lost& lost) {
    if (begin >= end) return;
    auto next = owners_.upper_bound(begin);
    if (next != owners_.begin() && std::prev(next)->second.end > begin) --next;
    while (next != owners_.end() && next->first < end) {
      const int64_t from = next->first;
      const Owner owner = next->second;
      next = owners_.erase(next);
      if (from < begin) owners_.emplace_hint(next, from, Owner{begin, owner.buffer});
      if (owner.end > end) next = owners_.emplace_hint(next, end, owner);
      if (owner.buffer != buffer) lost(owner.buffer, std::max(from, begin), std::min(owner.end, end));
    }
    owners_.emplace_hint(next, begin, Owner{end, buffer});
  }
  std::optional<int> at(int64_t byte) const {
    const auto next = owners_.upper_bound(byte);
    if (next == owners_.begin() || std::prev(next)->second.end <= byte) return std::nullopt;
    return std::prev(next)->second.buffer;
  }

 private:
  struct Owner {
    int64_t end;
    int buffer;
  };
  std::map<int64_t, Owner> owners_;
};

class EntryVerifier {
 public:
  EntryVerifier(const StepPlan& plan, const PlanEntry& entry, const SymbolValues& values)
      : plan_(plan), entry_(entry), values_(values), collector_(plan, entry, addresses_), held_indices_(plan) {}

  void run() {
    guarded([&] {
      place_buffers();
      place_private(entry_.instructions);
      check_values();
    });
    const auto commit_begin = static_cast<size_t>(entry_.commit_begin);
    for (size_t i = 0; i < entry_.instructions.size(); ++i) {
      if (i == commit_begin) begin_commit();
      run_one(entry_.instructions[i], i, false);
    }
    if (commit_begin == entry_.instructions.size()) begin_commit();
    guarded([&] { check_new_states(); });
  }

 private:
  // ---- messages
  [[noreturn]] void fail(const std::string& message) const {
    std::string place = "plan: entry " + entry_.name;
    for (size_t i = 0; i < path_.size(); ++i) place += (i == 0 ? ", instruction " : ".") + std::to_string(path_[i]);
    if (instruction_ != nullptr && !instruction_->label.empty()) place += " (" + instruction_->label + ")";
    throw InternalError(place + ": " + message);
  }
  /// Faults that are found below here get their place.
  template <class Action>
  void guarded(const Action& action) const {
    std::string message;
    try {
      return action();
    } catch (const InternalError& error) {
      message = error.what();
      if (message.starts_with("plan: ")) throw;
    } catch (const UserError& error) {
      message = error.what();
    }
    fail(message);
  }
  std::string named(int buffer) const { return buffer_name(entry_, buffer); }
  int64_t number(const Dim& dim) const { return value_of(dim, values_); }
  const Buffer& buffer(int index) const {
    if (index < 0 || static_cast<size_t>(index) >= entry_.buffers.size()) fail("buffer b" + std::to_string(index) + " does not exist");
    return entry_.buffers[static_cast<size_t>(index)];
  }

  // ---- before the first instruction
  bool has_value(const Dim& dim) const {
    const std::vector<std::string> symbols = dim.symbols();
    return std::all_of(symbols.begin(), symbols.end(), [&](const std::string& symbol) { return values_.count(symbol) > 0; });
  }

  void place_buffers() {
    if (entry_.arena_bytes < 0 || entry_.arena_bytes % plan_.target.granularity_bytes != 0)
      fail("arena of " + std::to_string(entry_.arena_bytes) + " bytes, wanted a multiple of " + std::to_string(plan_.target.granularity_bytes));
    if (entry_.commit_begin < 0 || static_cast<size_t>(entry_.commit_begin) > entry_.instructions.size())
      fail("the commit begins at " + std::to_string(entry_.commit_begin) + " of " + std::to_string(entry_.instructions.size()) + " instructions");
    std::set<std::pair<Space, int>> seen;
    next_address_ = entry_.arena_bytes;
    valid_.resize(entry_.buffers.size());
    repeats_of_.resize(entry_.buffers.size());
    for (size_t i = 0; i < entry_.buffers.size(); ++i) {
      const Buffer& one = entry_.buffers[i];
      const int index = static_cast<int>(i);
      if (one.space == Space::Arena) {
        check_in_arena(index, one);
        addresses_.push_back(one.offset);
        continue;
      }
      if (!seen.emplace(one.space, one.index).second) fail(named(index) + " is a second buffer of the same memory");
      const int64_t bytes = collector_.buffer_bytes(index, values_), wanted = outside_bytes(index, one);
      if (bytes != wanted) fail(named(index) + " has " + std::to_string(bytes) + " bytes, what it stands for has " + std::to_string(wanted));
      addresses_.push_back(next_address_);
      next_address_ = sum_of(next_address_, bytes);
      valid_[i].add(0, bytes);
    }
  }

  void check_in_arena(int index, const Buffer& one) const {
    if (one.offset < 0 || one.offset % alignment_bytes != 0) fail(named(index) + " lies at " + std::to_string(one.offset) + ", wanted a multiple of 64");
    if (one.bytes < 0 || one.bytes > entry_.arena_bytes || one.offset > entry_.arena_bytes - one.bytes)
      fail(named(index) + " of " + std::to_string(one.bytes) + " bytes at " + std::to_string(one.offset) + " lies outside of the arena of " +
           std::to_string(entry_.arena_bytes));
    if (has_value(one.elements)) check_room(index, one);
  }
  void check_room(int index, const Buffer& one) const {
    if (number(one.elements) < 0) fail(named(index) + " has " + std::to_string(number(one.elements)) + " elements");
    if (const int64_t bytes = collector_.buffer_bytes(index, values_); bytes > one.bytes)
      fail(named(index) + " takes " + std::to_string(bytes) + " bytes, reserved are " + std::to_string(one.bytes));
  }

  /// Of the state, constant or input that a buffer stands for.
  int64_t outside_bytes(int index, const Buffer& one) const {
    const auto at = static_cast<size_t>(one.index);
    const size_t count = one.space == Space::State ? plan_.states.size() : one.space == Space::Constant ? plan_.constants.size() : entry_.inputs.size();
    if (one.index < 0 || at >= count) fail(named(index) + " stands for number " + std::to_string(one.index) + " of " + std::to_string(count));
    DType dtype{};
    int64_t elements = 1;
    const auto multiply = [&](const Dim& size) {
      if (number(size) < 0) fail(named(index) + " has a size of " + std::to_string(number(size)));
      elements = product_of(elements, number(size));
    };
    if (one.space == Space::Constant) {
      dtype = plan_.constants[at].dtype();
      elements = plan_.constants[at].count();
    } else if (one.space == Space::State) {
      dtype = plan_.states[at].dtype;
      for (const Dim& size : plan_.states[at].sizes) multiply(size);
    } else {
      dtype = entry_.inputs[at].dtype;
      for (const Dim& size : entry_.inputs[at].view.sizes) multiply(size);
      if (entry_.inputs[at].view.buffer != index) fail(named(index) + " stands for input " + std::to_string(at) + ", which is another buffer");
    }
    if (dtype != one.dtype) fail(named(index) + " holds " + std::string(name(one.dtype)) + ", what it stands for " + std::string(name(dtype)));
    return product_of(elements, static_cast<int64_t>(size_bytes(dtype)));
  }

  void place_private(const std::vector<Instruction>& body) {
    for (const Instruction& instruction : body) {
      const auto* repeat = std::get_if<Repeat>(&instruction.op);
      if (repeat == nullptr) continue;
      for (const int index : repeat->private_buffers) {
        const Buffer& one = buffer(index);
        if (!repeat->parallel) fail(named(index) + " is private to the repeat '" + repeat->symbol + "', which is not parallel");
        if (one.space != Space::Arena) fail(named(index) + " is private and not of the arena");
        if (repeats_of_[static_cast<size_t>(index)].empty()) {
          addresses_[static_cast<size_t>(index)] = next_address_;
          next_address_ = sum_of(next_address_, one.bytes);
        }
        repeats_of_[static_cast<size_t>(index)].push_back(repeat);
      }
      place_private(repeat->body);
    }
  }

  void check_values() const {
    for (size_t i = 0; i < entry_.inputs.size(); ++i) {
      const PlanValue& value = entry_.inputs[i];
      const Buffer& one = buffer(value.view.buffer);
      const bool is_input = one.space == Space::Input && static_cast<size_t>(one.index) == i;
      if (!is_input && one.space != Space::State)
        fail("input " + std::to_string(i) + " is " + named(value.view.buffer) + ", which is neither its own buffer nor a state");
      collector_.dense(value.view, value.dtype, false, values_);
    }
  }

  void begin_commit() {
    path_.clear();
    instruction_ = nullptr;
    since_meeting_.clear();
    in_commit_ = true;
    guarded([&] {
      for (const PlanValue& output : entry_.outputs) check_written(collector_.dense(output.view, output.dtype, false, values_));
    });
  }

  void check_new_states() const {
    std::set<std::string> listed, written;
    for (const std::string& state : entry_.new_states)
      if (!listed.insert(state).second) fail("new state '" + state + "' is listed twice");
    for (const int state : written_states_) written.insert(plan_.states[static_cast<size_t>(state)].name);
    for (const std::string& state : listed)
      if (!written.contains(state)) fail("new state '" + state + "' is not written");
    for (const std::string& state : written)
      if (!listed.contains(state)) fail("state '" + state + "' is written and no new state");
  }

  // ---- instructions
  void run_body(const std::vector<Instruction>& body, bool one_thread) {
    for (size_t i = 0; i < body.size(); ++i) run_one(body[i], i, one_thread);
  }

  void count_step() {
    if (++steps_ > steps_max) fail("more than " + std::to_string(steps_max) + " instructions to go through, repeats counted");
  }

  void run_one(const Instruction& instruction, size_t index, bool one_thread) {
    count_step();
    path_.push_back(index);
    const Instruction* const outer = std::exchange(instruction_, &instruction);
    one_thread = one_thread || instruction.one_thread;
    guarded([&] {
      if (const auto* repeat = std::get_if<Repeat>(&instruction.op)) return run_repeat(*repeat, instruction.meet, one_thread);
      if (const auto* collective = std::get_if<CollectiveCall>(&instruction.op)) check_sequence(*collective);
      const std::vector<PlanAccess> accesses = collector_.accesses(instruction, values_);
      check_matrices(instruction.op, [this](const Dim& stride, const Dim& size) { return number(stride) >= number(size); });
      check_indices(instruction.op);
      perform(accesses, instruction.meet, one_thread);
    });
    instruction_ = outer;
    path_.pop_back();
  }

  /// By what lies there before the instruction writes. Of a repeat's iterations only some are gone through: they hold nothing.
  void check_indices(const InstructionOp& op) {
    if (in_commit_ && held_indices_.may_fail(op) && (!repeats_.empty() || !held_indices_.are_held(op, values_))) fail("may fail when states have been written already");
    if (!in_commit_ && !in_piece_) held_indices_.add(op, values_);
  }

  /// The same collectives in the same order on every rank.
  void check_sequence(const CollectiveCall&) const {
    for (const Repeat* repeat : repeats_) {
      if (repeat->parallel) fail("a collective in the parallel repeat '" + repeat->symbol + "'");
      for (const std::string& symbol : plan_.symbols.expand(repeat->count).symbols()) {
        const Symbol* declared = plan_.symbols.find(symbol);
        if (symbol.starts_with("coord.") || (declared != nullptr && declared->kind == SymbolKind::Coordinate))
          fail("a collective in the repeat '" + repeat->symbol + "', whose count is another on each rank");
      }
    }
  }

  void perform(const std::vector<PlanAccess>& accesses, bool meet, bool one_thread) {
    for (const PlanAccess& access : accesses) check_allowed(access);
    check_meeting(accesses, meet, one_thread);
    for (const PlanAccess& access : accesses)
      if (!access.is_write) check_written(access), check_old(access);
    for (const PlanAccess& access : accesses)
      if (access.is_write) write(access);
    for (const PlanAccess& access : accesses)
      if (recorder_ != nullptr) recorder_->push_back(access);
  }

  bool is_private(int index) const { return !repeats_of_[static_cast<size_t>(index)].empty(); }
  ByteRegion at_address(const PlanAccess& access) const { return access.region.shifted(addresses_[static_cast<size_t>(access.buffer)]); }

  void check_allowed(const PlanAccess& access) {
    const Buffer& one = entry_.buffers[static_cast<size_t>(access.buffer)];
    const std::vector<const Repeat*>& repeats = repeats_of_[static_cast<size_t>(access.buffer)];
    const auto is_open = [&](const Repeat* repeat) { return std::find(repeats_.begin(), repeats_.end(), repeat) != repeats_.end(); };
    if (!repeats.empty() && std::none_of(repeats.begin(), repeats.end(), is_open)) fail(named(access.buffer) + " is private to another repeat");
    if (one.space == Space::Arena && !one.elements.is_constant()) check_room(access.buffer, one);
    if (!access.is_write) return;
    if (one.space == Space::Input || one.space == Space::Constant)
      fail("writes " + named(access.buffer) + ", which is " + (one.space == Space::Input ? "an input" : "a constant"));
    if (one.space != Space::State) return;
    if (!in_commit_) fail("writes the state " + named(access.buffer) + " before the commit");
    written_states_.insert(one.index);
  }

  void check_meeting(const std::vector<PlanAccess>& accesses, bool meet, bool one_thread) {
    if (plan_.target.threads < 2 || in_piece_) return;
    if (meet) since_meeting_.clear();
    for (const PlanAccess& access : accesses)
      if (!meet && since_meeting_.conflicts(at_address(access), access.is_write, one_thread))
        fail((access.is_write ? "writes bytes of " : "reads bytes of ") + named(access.buffer) + " without a meeting, which an instruction on another thread " +
             (access.is_write ? "may touch" : "may write"));
    for (const PlanAccess& access : accesses) since_meeting_.add(at_address(access), access.is_write, one_thread);
  }

  void check_written(const PlanAccess& access) const {
    const int64_t missing = valid_[static_cast<size_t>(access.buffer)].first_missing(access.region);
    if (access.region.empty() || missing == access.region.end()) return;
    const std::optional<int> owner = writers_.at(addresses_[static_cast<size_t>(access.buffer)] + missing);
    const std::string why = owner && *owner != access.buffer ? "which " + named(*owner) + " has overwritten" : "which nothing has written";
    fail("reads byte " + std::to_string(missing) + " of " + named(access.buffer) + ", " + why);
  }

  /// A state is read as the entry found it, but by what copies one state to another.
  void check_old(const PlanAccess& access) const {
    const auto written = new_bytes_.find(access.buffer);
    if (written == new_bytes_.end() || !written->second.touches(access.region) || is_copy(instruction_->op)) return;
    fail("reads bytes of " + named(access.buffer) + ", which hold the new state already");
  }
  bool is_copy(const InstructionOp& op) const {
    const auto* call = std::get_if<FormCall>(&op);
    if (call == nullptr) return false;
    const Form& form = plan_.forms[static_cast<size_t>(call->form)];
    const auto* load = form.exprs.size() == 1 && form.stores.size() == 1 ? std::get_if<LoadExpr>(&form.exprs[0].op) : nullptr;
    return load != nullptr && load->at == form.stores[0].at;
  }

  void write(const PlanAccess& access) {
    const ByteRegion region = at_address(access);
    if (entry_.buffers[static_cast<size_t>(access.buffer)].space == Space::State) new_bytes_[access.buffer].add(access.region, true);
    held_indices_.forget(access.buffer, access.region.begin, access.region.end());
    // The gaps of a strided region count as lost to others, too: memory is given to buffers as a whole.
    writers_.claim(region.begin, region.end(), access.buffer, [&](int other, int64_t begin, int64_t end) {
      const int64_t address = addresses_[static_cast<size_t>(other)];
      valid_[static_cast<size_t>(other)].remove(begin - address, end - address);
      held_indices_.forget(other, begin - address, end - address);
    });
    if (access.is_exact) valid_[static_cast<size_t>(access.buffer)].add(access.region, false);
  }

  // ---- repeats
  void run_repeat(const Repeat& repeat, bool meet, bool one_thread) {
    const int64_t count = number(repeat.count);
    if (count < 0) fail("a repeat of " + std::to_string(count) + " iterations");
    for (const Repeat* outer : repeats_)
      if (outer->symbol == repeat.symbol) fail("the symbol '" + repeat.symbol + "' is that of a repeat around it");
    if (repeats_.size() >= iteration_depth_max) fail("repeats are nested too deeply");
    if (meet && !in_piece_) since_meeting_.clear();
    repeats_.push_back(&repeat);
    const SymbolValues outer_values = values_;
    if (repeat.parallel)
      run_pieces(repeat, count, meet, one_thread);
    else
      run_iterations(repeat, count, one_thread);
    values_ = outer_values;
    repeats_.pop_back();
  }

  void run_iteration(const Repeat& repeat, int64_t count, int64_t iteration, bool one_thread) {
    count_step();
    values_[repeat.symbol] = repeat.reverse ? count - 1 - iteration : iteration;
    plan_.symbols.add_derived(values_);
    run_body(repeat.body, one_thread);
  }

  /// With what it touches.
  std::vector<PlanAccess> recorded_iteration(const Repeat& repeat, int64_t count, int64_t iteration, bool one_thread) {
    std::vector<PlanAccess> accesses;
    std::vector<PlanAccess>* const outer = std::exchange(recorder_, &accesses);
    run_iteration(repeat, count, iteration, one_thread);
    recorder_ = outer;
    return accesses;
  }
  void record(const std::vector<PlanAccess>& accesses) {
    if (recorder_ != nullptr) recorder_->insert(recorder_->end(), accesses.begin(), accesses.end());
  }

  void run_iterations(const Repeat& repeat, int64_t count, bool one_thread) {
    const bool is_short = count <= iterations_run;
    std::vector<PlanAccess> first, second;
    if (!is_short) {
      first = recorded_iteration(repeat, count, 0, one_thread);
      second = recorded_iteration(repeat, count, 1, one_thread);
      record(first);
      record(second);
      if (const auto middle = is_linear(repeat) ? between(first, second, count) : std::nullopt) {
        const bool has_meeting = std::any_of(repeat.body.begin(), repeat.body.end(), [](const Instruction& instruction) { return instruction.meet; });
        for (const PlanAccess& access : *middle)
          if (!access.is_write) check_old(access);
        for (const PlanAccess& access : *middle) {
          if (access.is_write) write(access);
          if (!has_meeting && !in_piece_) since_meeting_.add(at_address(access), access.is_write, one_thread);
        }
        // Which of these iterations writes a byte is not known: none reads it but in place.
        for (const PlanAccess& access : *middle)
          if (!access.is_write && !access.in_place) check_old(access);
        record(*middle);
        return run_iteration(repeat, count, count - 1, one_thread);
      }
    }
    for (int64_t i = is_short ? 0 : 2; i < count; ++i) run_iteration(repeat, count, i, one_thread);
  }

  /// Pieces run on any threads at any time, each from start to end: none touches what another writes.
  void run_pieces(const Repeat& repeat, int64_t count, bool meet, bool one_thread) {
    std::vector<PlanAccess> all, first, second;
    IntervalSet read, written;
    const bool was_in_piece = std::exchange(in_piece_, true);
    const auto run_piece = [&](int64_t i) {
      for (const int index : repeat.private_buffers) valid_[static_cast<size_t>(index)].clear();
      std::vector<PlanAccess> piece = recorded_iteration(repeat, count, i, one_thread);
      std::erase_if(piece, [&](const PlanAccess& access) { return is_private(access.buffer); });
      for (const PlanAccess& access : piece) check_piece(repeat, access, read, written);
      for (const PlanAccess& access : piece) (access.is_write ? written : read).add(at_address(access), true);
      all.insert(all.end(), piece.begin(), piece.end());
      return piece;
    };
    const bool is_short = count <= iterations_run;
    int64_t next = 0;
    if (!is_short) {
      first = run_piece(next++);
      second = run_piece(next++);
      if (const auto middle = is_linear(repeat) ? between(first, second, count) : std::nullopt) {
        for (const PlanAccess& access : *middle) {
          check_piece(repeat, access, read, written);
          if (!access.is_write) check_old(access);
        }
        for (const PlanAccess& access : *middle) {
          if (access.is_write) write(access);
          (access.is_write ? written : read).add(at_address(access), true);
          all.push_back(access);
        }
        next = count - 1;
      }
    }
    for (; next < count; ++next) run_piece(next);
    in_piece_ = was_in_piece;
    for (const int index : repeat.private_buffers) valid_[static_cast<size_t>(index)].clear();
    check_meeting(all, meet, one_thread);
    record(all);
  }

  void check_piece(const Repeat& repeat, const PlanAccess& access, const IntervalSet& read, const IntervalSet& written) const {
    const ByteRegion region = at_address(access);
    if (written.touches(region) || (access.is_write && read.touches(region)))
      fail("a piece of the repeat '" + repeat.symbol + "' " + (access.is_write ? "writes" : "reads") + " bytes of " + named(access.buffer) +
           " that another piece " + (written.touches(region) ? "writes" : "reads"));
  }

  /// Every size in the body is a constant plus a multiple of the symbol.
  bool is_linear(const Repeat& repeat) const {
    const auto next = [&](const Dim& dim) {
      return dim.substitute(
          [&](const std::string& symbol) -> std::optional<Dim> { return symbol == repeat.symbol ? std::optional(Dim::symbol(symbol) + 1) : std::nullopt; });
    };
    bool result = true;
    const auto visit = [&](const Dim& stated) {
      if (stated.is_constant() || !result) return;
      const Dim dim = plan_.symbols.expand(stated);
      const std::vector<std::string> symbols = (next(dim) - dim).symbols();
      result = std::find(symbols.begin(), symbols.end(), repeat.symbol) == symbols.end();
    };
    for (const Instruction& instruction : repeat.body) for_each_size(instruction, visit);
    return result;
  }

  /// What the iterations 2 to count - 2 touch, by the first two.
  static std::optional<std::vector<PlanAccess>> between(const std::vector<PlanAccess>& first, const std::vector<PlanAccess>& second, int64_t count) {
    if (first.size() != second.size()) return std::nullopt;
    std::vector<PlanAccess> result;
    for (size_t i = 0; i < first.size(); ++i) {
      const PlanAccess &a = first[i], &b = second[i];
      if (a.buffer != b.buffer || a.is_write != b.is_write || a.is_exact != b.is_exact || !a.region.same_shape(b.region)) return std::nullopt;
      result.push_back(b);
      const int64_t stride = b.region.begin - a.region.begin;
      result.back().region = b.region.shifted(stride).repeated(count - 3, stride);
    }
    return result;
  }

  const StepPlan& plan_;
  const PlanEntry& entry_;
  SymbolValues values_;
  std::vector<int64_t> addresses_;  ///< of buffers: of the arena their offsets, others behind it
  int64_t next_address_ = 0;
  PlanAccessCollector collector_;
  std::vector<IntervalSet> valid_;  ///< bytes of a buffer that hold what it wrote
  LastWriters writers_;
  std::map<int, IntervalSet> new_bytes_;  ///< of states, by buffer
  HeldIndices held_indices_;
  SinceMeeting since_meeting_;
  std::vector<std::vector<const Repeat*>> repeats_of_;  ///< to which a buffer is private
  std::vector<const Repeat*> repeats_;                  ///< that are running, outer first
  std::vector<PlanAccess>* recorder_ = nullptr;         ///< of the innermost iteration that is recorded
  bool in_piece_ = false, in_commit_ = false;
  std::set<int> written_states_;
  int64_t steps_ = 0;
  std::vector<size_t> path_;
  const Instruction* instruction_ = nullptr;
};

void check_tables(const StepPlan& plan) {
  const auto fail = [](const std::string& message) { throw InternalError("plan: " + message); };
  if (plan.target.granularity_bytes < 1) fail("a granularity of " + std::to_string(plan.target.granularity_bytes) + " bytes");
  if (plan.target.threads < 1) fail("made for " + std::to_string(plan.target.threads) + " threads");
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!plan.freeze_hash.empty() && (plan.freeze_hash.size() != 32 || !std::all_of(plan.freeze_hash.begin(), plan.freeze_hash.end(), is_digit)))
    fail("found '" + plan.freeze_hash + "' as hash of what it computes, wanted 32 hexadecimal digits");
  if (plan.code.size() != plan.forms.size()) fail("found " + std::to_string(plan.code.size()) + " codes of " + std::to_string(plan.forms.size()) + " forms");
  for (size_t i = 0; i < plan.forms.size(); ++i) {
    try {
      check(plan.forms[i]);
    } catch (const InternalError& error) {
      fail("f" + std::to_string(i) + ": " + error.what());
    }
  }
  std::set<std::string> names;
  for (const PlanState& state : plan.states)
    if (!names.insert(state.name).second) fail("two states are named '" + state.name + "'");
  for (const PlanEntry& entry : plan.entries)
    if (plan.find_entry(entry.name) != &entry) fail("two entries are named '" + entry.name + "'");
}

}  // namespace

void verify(const StepPlan& plan, const SymbolValues& sizes) {
  check_tables(plan);
  SymbolValues values = sizes;
  for (const MeshAxis& axis : plan.mesh.axes) values.emplace("coord." + axis.name, 0);
  try {
    plan.symbols.add_derived(values);
  } catch (const UserError& error) {
    throw InternalError("plan: " + std::string(error.what()));
  }
  for (const PlanEntry& entry : plan.entries) EntryVerifier(plan, entry, values).run();
}

SymbolValues largest_sizes(const StepPlan& plan) {
  SymbolValues largest;
  for (const Symbol& symbol : plan.symbols.all())
    if (symbol.kind == SymbolKind::Size) largest[symbol.name] = symbol.maximum - symbol.maximum % std::max<int64_t>(symbol.multiple_of, 1);
  return largest;
}

}  // namespace stepgraph
