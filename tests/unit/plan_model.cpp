// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan_model.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "stepgraph/base/error.h"
#include "stepgraph/base/hash.h"

namespace stepgraph::testing {
namespace {

constexpr int model_threads = 2;

struct Fault {
  std::string what;
};

struct Byte {
  int buffer;
  int64_t at;
};
/// One element: what it reads, what it writes.
struct Item {
  uint64_t id = 0;
  std::vector<Byte> reads, writes;
};
/// Items in their order, on one thread. The private buffers are without content at its start.
struct Strand {
  std::vector<Item> items;
  std::vector<int> fresh;
};
/// Strands in any order, on any threads.
struct ModelStep {
  bool meet = false, one_thread = false, commit = false;
  std::vector<Strand> strands;
};

/// An entry as steps over elements.
class Unrolled {
 public:
  Unrolled(const StepPlan& plan, const PlanEntry& entry, const SymbolValues& sizes) : plan_(plan), entry_(entry), values_(sizes) {
    plan.symbols.add_derived(values_);
    for (const Buffer& buffer : entry.buffers) bytes_.push_back(number(buffer.elements) * static_cast<int64_t>(size_bytes(buffer.dtype)));
    const auto commit = static_cast<size_t>(entry.commit_begin);
    for (size_t i = 0; i < entry.instructions.size(); ++i) {
      if (i == commit) begin_commit();
      add(entry.instructions[i], false, steps_);
    }
    if (commit == entry.instructions.size()) begin_commit();
    check_states();
  }
  const std::vector<ModelStep>& steps() const { return steps_; }
  int64_t bytes(size_t buffer) const { return bytes_[buffer]; }
  const std::set<int>& private_buffers() const { return private_; }
  int64_t number(const Dim& dim) const { return evaluate(dim, values_); }

 private:
  void begin_commit() {
    in_commit_ = true;
    steps_.push_back({.meet = true, .one_thread = false, .commit = true, .strands = {}});
  }
  void check_states() const {
    std::set<std::string> listed(entry_.new_states.begin(), entry_.new_states.end());
    std::set<std::string> written;
    for (const int state : written_) written.insert(plan_.states[static_cast<size_t>(state)].name);
    if (listed != written) throw Fault{"new states are not those that are written"};
  }

  void add(const Instruction& instruction, bool one_thread, std::vector<ModelStep>& steps) {
    one_thread = one_thread || instruction.one_thread;
    if (const auto* repeat = std::get_if<Repeat>(&instruction.op)) return add_repeat(*repeat, instruction.meet, one_thread, steps);
    ModelStep step{.meet = instruction.meet, .one_thread = one_thread, .commit = false, .strands = {}};
    if (const auto* call = std::get_if<FormCall>(&instruction.op))
      for (const FormLaunch& launch : call->launches) add_launch(plan_.forms.at(static_cast<size_t>(call->form)), launch, step);
    else
      add_matmul(std::get<MatMulCall>(instruction.op), step);
    steps.push_back(std::move(step));
  }

  void add_repeat(const Repeat& repeat, bool meet, bool one_thread, std::vector<ModelStep>& steps) {
    ModelStep pieces{.meet = meet, .one_thread = one_thread, .commit = false, .strands = {}};
    for (const int buffer : repeat.private_buffers)
      if (repeat.parallel) private_.insert(buffer);
    if (!repeat.parallel) steps.push_back(pieces);
    const int64_t count = number(repeat.count);
    const SymbolValues outer = values_;
    for (int64_t i = 0; i < count; ++i) {
      values_[repeat.symbol] = repeat.reverse ? count - 1 - i : i;
      std::vector<ModelStep> body;
      for (const Instruction& inner : repeat.body) add(inner, one_thread, body);
      if (!repeat.parallel) {
        steps.insert(steps.end(), body.begin(), body.end());
        continue;
      }
      Strand strand{.items = {}, .fresh = repeat.private_buffers};
      for (ModelStep& step : body)
        for (Strand& inner : step.strands) strand.items.insert(strand.items.end(), inner.items.begin(), inner.items.end());
      pieces.strands.push_back(std::move(strand));
    }
    values_ = outer;
    if (repeat.parallel) steps.push_back(std::move(pieces));
  }

  void element(std::vector<Byte>& to, int buffer, int64_t index, DType dtype) const {
    if (buffer < 0 || static_cast<size_t>(buffer) >= entry_.buffers.size()) throw Fault{"no such buffer"};
    if (entry_.buffers[static_cast<size_t>(buffer)].dtype != dtype) throw Fault{"another dtype"};
    const auto size = static_cast<int64_t>(size_bytes(dtype));
    if (index < 0 || (index + 1) * size > bytes_[static_cast<size_t>(buffer)]) throw Fault{"outside of b" + std::to_string(buffer)};
    for (int64_t i = 0; i < size; ++i) to.push_back({buffer, index * size + i});
  }
  void finish(Item item, ModelStep& step) {
    item.id = ++item_count_;
    for (const Byte& byte : item.writes) {
      const Buffer& buffer = entry_.buffers[static_cast<size_t>(byte.buffer)];
      if (buffer.space == Space::Input || buffer.space == Space::Constant) throw Fault{"writes what is never written"};
      if (buffer.space != Space::State) continue;
      if (!in_commit_) throw Fault{"writes a state before the commit"};
      written_.insert(buffer.index);
    }
    step.strands.push_back({.items = {std::move(item)}, .fresh = {}});
  }

  // ---- forms
  using Assignment = std::map<int, int64_t>;

  static int64_t address(const Affine& affine, const Assignment& at, const SymbolValues& sizes) {
    int64_t result = evaluate(affine.constant, sizes);
    for (const AffineTerm& term : affine.terms) result += evaluate(term.coefficient, sizes) * at.at(term.factor);
    return result;
  }
  /// All values of the factors, blocks before what is cut into them.
  static void for_all(const Form& form, const std::set<int>& factors, Assignment at, const SymbolValues& sizes,
                      const std::function<void(const Assignment&)>& visit) {
    const auto next = std::find_if(factors.begin(), factors.end(), [&](int factor) { return !at.contains(factor); });
    if (next == factors.end()) return visit(at);
    const Factor& factor = form.factors[static_cast<size_t>(*next)];
    int64_t size = evaluate(factor.size, sizes);
    if (factor.block_of >= 0) size = std::min(size, evaluate(factor.total, sizes) - at.at(factor.block_of) * size);
    for (int64_t i = 0; i < size; ++i) {
      at[*next] = i;
      for_all(form, factors, at, sizes, visit);
    }
  }
  static void add_factors(const Form& form, const Affine& affine, std::set<int>& to) {
    for (const AffineTerm& term : affine.terms) {
      to.insert(term.factor);
      if (const int block = form.factors[static_cast<size_t>(term.factor)].block_of; block >= 0) to.insert(block);
    }
  }
  static void add_loads(const Form& form, int expr, std::set<int>& loads) {
    const Expr& one = form.exprs[static_cast<size_t>(expr)];
    if (std::holds_alternative<LoadExpr>(one.op)) loads.insert(expr);
    for (const int input : one.inputs) add_loads(form, input, loads);
  }

  void read_load(const Form& form, const LoadExpr& load, const FormLaunch& launch, const Assignment& at, const SymbolValues& sizes, Item& item) const {
    std::set<int> factors;
    add_factors(form, load.at, factors);
    for (const Guard& guard : load.guards) add_factors(form, guard.index, factors);
    const View& view = launch.operands[static_cast<size_t>(load.operand)];
    for_all(form, factors, at, sizes, [&](const Assignment& all) {
      for (const Guard& guard : load.guards) {
        const int64_t index = address(guard.index, all, sizes);
        if (index < 0 || index >= evaluate(guard.size, sizes)) return;
      }
      std::vector<int64_t> starts{number(view.offset) + address(load.at, all, sizes)};
      for (const IndexTerm& term : load.indices) {
        std::vector<int64_t> moved;
        for (const int64_t start : starts)
          for (int64_t i = 0; i < evaluate(term.size, sizes); ++i) moved.push_back(start + i * evaluate(term.stride, sizes));
        starts = moved;
      }
      for (const int64_t start : starts) element(item.reads, view.buffer, start, form.operands[static_cast<size_t>(load.operand)].dtype);
    });
  }

  void add_launch(const Form& form, const FormLaunch& launch, ModelStep& step) {
    SymbolValues sizes;
    for (size_t i = 0; i < launch.sizes.size(); ++i) sizes[form_symbol(static_cast<int>(i))] = number(launch.sizes[i]);
    for (const Store& store : form.stores) {
      std::set<int> factors, loads;
      add_factors(form, store.at, factors);
      add_loads(form, store.value, loads);
      for_all(form, factors, {}, sizes, [&](const Assignment& at) {
        Item item;
        for (const int load : loads) read_load(form, std::get<LoadExpr>(form.exprs[static_cast<size_t>(load)].op), launch, at, sizes, item);
        const View& view = launch.operands[static_cast<size_t>(store.operand)];
        element(item.writes, view.buffer, number(view.offset) + address(store.at, at, sizes), form.operands[static_cast<size_t>(store.operand)].dtype);
        finish(std::move(item), step);
      });
    }
  }

  // ---- matmul
  int64_t place(const View& view, int64_t row, int64_t column) const {
    return number(view.offset) + row * number(view.strides.at(0)) + column * number(view.strides.at(1));
  }
  void add_matmul(const MatMulCall& call, ModelStep& step) {
    const int64_t rows = number(call.out.sizes.at(0)), columns = number(call.out.sizes.at(1)), inner = number(call.lhs.sizes.at(1));
    if (number(call.lhs.sizes.at(0)) != rows || number(call.rhs.sizes.at(0)) != inner || number(call.rhs.sizes.at(1)) != columns) throw Fault{"sizes differ"};
    for (const View* view : {&call.lhs, &call.rhs, &call.out}) {
      const bool is_line = number(view->strides[0]) == 1 || number(view->strides[1]) == 1 || number(view->sizes[0]) == 1 || number(view->sizes[1]) == 1;
      if (!is_line) throw Fault{"no stride of 1"};
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        Item item;
        for (int64_t k = 0; k < inner; ++k) {
          element(item.reads, call.lhs.buffer, place(call.lhs, i, k), call.dtype);
          element(item.reads, call.rhs.buffer, place(call.rhs, k, j), call.dtype);
        }
        if (call.accumulate) element(item.reads, call.out.buffer, place(call.out, i, j), call.dtype);
        element(item.writes, call.out.buffer, place(call.out, i, j), call.dtype);
        finish(std::move(item), step);
      }
    }
  }

  const StepPlan& plan_;
  const PlanEntry& entry_;
  SymbolValues values_;
  std::vector<int64_t> bytes_;
  std::vector<ModelStep> steps_;
  std::set<int> private_, written_;
  bool in_commit_ = false;
  uint64_t item_count_ = 0;
};

/// Runs the steps in one order that two threads could take.
class ModelRun {
 public:
  ModelRun(const StepPlan& plan, const PlanEntry& entry, const Unrolled& program, uint64_t order)
      : entry_(entry), program_(program), order_(order), random_(order) {
    int64_t next = entry.arena_bytes;
    for (size_t i = 0; i < entry.buffers.size(); ++i) {
      const Buffer& buffer = entry.buffers[i];
      base_.push_back(buffer.space == Space::Arena ? buffer.offset : next);
      if (buffer.space == Space::Arena) continue;
      for (int64_t at = 0; at < program.bytes(i); ++at) memory_[next + at] = {mix_hash(i, static_cast<uint64_t>(at)), static_cast<int>(i)};
      next += program.bytes(i);
    }
    for (const int buffer : program.private_buffers()) {
      private_base_[buffer] = next;
      next += model_threads * program.bytes(static_cast<size_t>(buffer));
    }
    (void)plan;
  }

  /// A number that is that of another order unless threads got in each other's way.
  uint64_t run() {
    for (const ModelStep& step : program_.steps()) {
      if (step.meet) finish_epoch();
      if (step.commit) read_outputs();
      add(step);
    }
    finish_epoch();
    for (size_t i = 0; i < entry_.buffers.size(); ++i)
      for (int64_t at = 0; entry_.buffers[i].space == Space::State && at < program_.bytes(i); ++at) result_ = mix_hash(result_, memory_[base_[i] + at].tag);
    return result_;
  }

 private:
  struct Cell {
    uint64_t tag = 0;
    int buffer = -1;
    bool is_new_state = false;
  };

  void add(const ModelStep& step) {
    std::vector<const Strand*> strands;
    for (const Strand& strand : step.strands) strands.push_back(&strand);
    if (order_ % 2 == 1) std::reverse(strands.begin(), strands.end());
    if (order_ > 3) std::shuffle(strands.begin(), strands.end(), random_);
    for (size_t i = 0; i < strands.size(); ++i) {
      const size_t thread = step.one_thread ? 0 : i * model_threads / strands.size();
      waiting_[thread].push_back(strands[i]);
    }
  }

  /// What threads have to do until they meet: one after the other, or mixed.
  void finish_epoch() {
    size_t done[model_threads] = {};
    const auto is_left = [&](size_t thread) { return done[thread] < waiting_[thread].size(); };
    while (is_left(0) || is_left(1)) {
      const bool second_first = order_ % 4 > 1;
      size_t thread = order_ < 4 ? (second_first ? 1 : 0) : random_() % 2;
      if (!is_left(thread)) thread = 1 - thread;
      run(*waiting_[thread][done[thread]++], thread);
    }
    for (auto& strands : waiting_) strands.clear();
  }

  int64_t address(const Byte& byte, size_t thread) const {
    const auto own = private_base_.find(byte.buffer);
    if (own == private_base_.end()) return base_[static_cast<size_t>(byte.buffer)] + byte.at;
    return own->second + static_cast<int64_t>(thread) * program_.bytes(static_cast<size_t>(byte.buffer)) + byte.at;
  }

  bool is_state(int buffer) const { return entry_.buffers[static_cast<size_t>(buffer)].space == Space::State; }
  uint64_t read(const Byte& byte, size_t thread) {
    const Cell cell = memory_[address(byte, thread)];
    if (cell.is_new_state) throw Fault{"reads b" + std::to_string(byte.buffer) + " where the new state is already"};
    if (cell.buffer != byte.buffer) throw Fault{"reads b" + std::to_string(byte.buffer) + " where b" + std::to_string(cell.buffer) + " was written"};
    return cell.tag;
  }

  void run(const Strand& strand, size_t thread) {
    for (const int buffer : strand.fresh)
      for (int64_t at = 0; at < program_.bytes(static_cast<size_t>(buffer)); ++at) memory_[address({buffer, at}, thread)] = {};
    for (const Item& item : strand.items) {
      uint64_t tag = item.id;
      for (const Byte& byte : item.reads) tag = mix_hash(tag, read(byte, thread));
      for (const Byte& byte : item.writes) memory_[address(byte, thread)] = {mix_hash(tag, static_cast<uint64_t>(byte.at)), byte.buffer, is_state(byte.buffer)};
    }
  }

  void read_outputs() {
    for (const PlanValue& output : entry_.outputs) {
      int64_t elements = 1;
      for (const Dim& size : output.view.sizes) elements *= program_.number(size);
      const int64_t size = static_cast<int64_t>(size_bytes(output.dtype)), begin = program_.number(output.view.offset) * size;
      if (begin < 0 || begin + elements * size > program_.bytes(static_cast<size_t>(output.view.buffer))) throw Fault{"output outside of its buffer"};
      if (private_base_.contains(output.view.buffer)) throw Fault{"output of a private buffer"};
      for (int64_t at = 0; at < elements * size; ++at) result_ = mix_hash(result_, read({output.view.buffer, begin + at}, 0));
    }
  }

  const PlanEntry& entry_;
  const Unrolled& program_;
  uint64_t order_;
  std::mt19937_64 random_;
  std::map<int64_t, Cell> memory_;
  std::vector<int64_t> base_;
  std::map<int, int64_t> private_base_;
  std::vector<const Strand*> waiting_[model_threads];
  uint64_t result_ = 0;
};

void check_memory(const StepPlan& plan, const PlanEntry& entry, const Unrolled& program) {
  if (entry.arena_bytes % plan.target.granularity_bytes != 0) throw Fault{"arena of half granules"};
  for (size_t i = 0; i < entry.buffers.size(); ++i) {
    const Buffer& buffer = entry.buffers[i];
    if (buffer.space != Space::Arena) continue;
    if (buffer.offset % 64 != 0 || buffer.offset < 0 || buffer.offset + buffer.bytes > entry.arena_bytes) throw Fault{"buffer outside of the arena"};
    if (program.bytes(i) > buffer.bytes) throw Fault{"buffer larger than its place"};
  }
}

}  // namespace

std::string unsound_in_model(const StepPlan& plan, const SymbolValues& sizes) {
  try {
    const PlanEntry& entry = plan.entries.at(0);
    const Unrolled program(plan, entry, sizes);
    check_memory(plan, entry, program);
    std::optional<uint64_t> first;
    for (uint64_t order = 0; order < 12; ++order) {
      const uint64_t result = ModelRun(plan, entry, program, order).run();
      if (!first) first = result;
      if (*first != result) return "another result in order " + std::to_string(order);
    }
  } catch (const Fault& fault) {
    return fault.what;
  } catch (const std::out_of_range&) {
    return "no matrix";
  }
  return "";
}

}  // namespace stepgraph::testing
