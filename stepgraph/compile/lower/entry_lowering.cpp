// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/entry_lowering.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "stepgraph/base/hash.h"
#include "stepgraph/compile/lower/calls.h"
#include "stepgraph/compile/lower/element_reader.h"
#include "stepgraph/compile/lower/form_work.h"
#include "stepgraph/compile/lower/group_form.h"
#include "stepgraph/compile/lower/groups.h"
#include "stepgraph/compile/lower/joined_parts.h"
#include "stepgraph/compile/lower/map_form.h"
#include "stepgraph/compile/lower/plan_memory.h"
#include "stepgraph/compile/lower/ranged_indices.h"
#include "stepgraph/compile/lower/unit_reporter.h"
#include "stepgraph/compile/lower/units.h"
#include "stepgraph/program/plan_text.h"

namespace stepgraph {
namespace {

/// Work below this is not worth sharing: about 10 us of one core. (Half of it for products made a small MLP's step a tenth slower: operands change caches.)
constexpr double one_thread_operations = 200'000, one_thread_flops = 800'000;
/// A tensor of at least so many bytes is updated by an instruction of its own, as soon as its gradient is there: what is smaller stays in a core's cache until the
/// end, or costs less to keep than the meeting of the threads.
constexpr double own_update_bytes = 1 << 20;

/// What a graph is the body of, and where it is told what was done.
struct Surroundings {
  LoweredEntry* report = nullptr;  ///< null: nobody asks
  std::vector<int> before;         ///< of the place of an instruction: the loops around it
  double runs = 1;
  Phase phase = Phase::None;
};

class EntryLowering {
 public:
  EntryLowering(const Module& module, GraphId graph, const LowerOptions& options, StepPlan& plan, FormTable& forms, PlanEntry& entry, Surroundings around)
      : module_(module), graph_(module.graph(graph)), options_(options), plan_(plan), forms_(forms), entry_(entry), around_(std::move(around)) {}

  void lower_entry() {
    group_and_store();
    make_units();
    report_stored();
    choose_updates();
    order_entry();
    place_.resize(graph_.values.size());
    place_entry_inputs();
    place_values();
    place_outputs();
    for (const size_t unit : order_) {
      if (in_commit_part_[unit] && !in_commit_) begin_commit();
      emit(units_[unit]);
    }
    if (!in_commit_) begin_commit();
    copy_new_states();
    mark_meets();
    entry_.instructions = std::move(instructions_);
  }

  /// The body of a loop: inputs lie where they are told, outputs are wanted where they are told.
  std::vector<Instruction> lower_body(std::span<const ValuePlace> inputs, std::span<const ValuePlace> outputs) {
    group_and_store();
    make_units();
    report_stored();
    state_read_.assign(graph_.values.size(), -1);
    replaces_.assign(graph_.values.size(), -1);
    order_ = order_units(links({}), false).order;
    place_.resize(graph_.values.size());
    for (size_t i = 0; i < inputs.size(); ++i) place_[at(graph_.inputs[i].value)] = inputs[i];
    // What is computed for an output is computed there; the first of several gives the place.
    for (size_t o = 0; o < outputs.size(); ++o) {
      const ValueId value = graph_.outputs[o].value;
      if (unit_of_[at(value)] >= 0 && place_[at(value)].buffer < 0 && layout(value).empty()) place_[at(value)] = outputs[o];
    }
    place_values();
    for (const size_t unit : order_) emit(units_[unit]);
    for (size_t o = 0; o < outputs.size(); ++o) {
      const ValueId value = graph_.outputs[o].value;
      const StridedLeaf found = *window(value);
      const ValuePlace& from = place_[at(found.leaf)];
      const Dim offset = from.offset + found.offset;
      if (from.buffer != outputs[o].buffer || offset != outputs[o].offset) append_copy({from.buffer, offset, {}}, outputs[o], graph_.type(value), Phase::None, "carry");
    }
    mark_meets();
    return std::move(instructions_);
  }

 private:
  // ---- what lies in memory

  bool is_stored(ValueId value) const { return grouping_.stored_view[at(value)] != 0; }
  std::optional<StridedLeaf> window(ValueId value) const {
    return strided_leaf(graph_, value, [this](ValueId view) { return is_stored(view); }, [this](ValueId leaf) { return strides(leaf); });
  }
  /// Not row-major: heads of attention lie beside each other in a row, as the products around it want them. Empty: row-major.
  std::vector<Dim> layout(ValueId value) const {
    if (const auto part = joined_.find(value); part != joined_.end()) return part->second.strides;
    const int32_t producer = graph_.values[at(value)].node;
    if (producer < 0 || plain_[at(value)] || !holds_heads(producer, value)) return {};
    const Shape& shape = graph_.type(value).shape;
    const size_t heads = shape.size() - 3;
    std::vector<Dim> strides(shape.size(), 1);
    strides[heads] = shape[heads + 2];
    strides[heads + 1] = shape[heads] * shape[heads + 2];
    for (size_t d = heads; d-- > 0;) strides[d] = d + 1 == heads ? shape[heads] * shape[heads + 1] * shape[heads + 2] : strides[d + 1] * shape[d + 1];
    return strides;
  }
  std::vector<Dim> strides(ValueId value) const {
    std::vector<Dim> own = layout(value);
    return own.empty() ? dense_strides(graph_.type(value).shape) : own;
  }
  /// Whether a value is [..., H, T, D] of an attention: its first result, or any of its gradient's.
  bool holds_heads(int32_t producer, ValueId value) const {
    const Node& node = graph_.nodes[static_cast<size_t>(producer)];
    const bool is_heads = std::holds_alternative<AttentionGradient>(node.op) || (std::holds_alternative<Attention>(node.op) && value == node.results[0]);
    return is_heads && graph_.type(value).rank() >= 3 && graph_.type(value).dtype == DType::F32;
  }
  /// Nothing is to be done for it: its parts are written where it lies.
  bool is_joined(const Node& node) const {
    return std::holds_alternative<Concatenate>(node.op) &&
           std::any_of(joined_.begin(), joined_.end(), [&](const auto& part) { return part.second.whole == node.results[0]; });
  }
  /// Row-major after all, or at least by itself.
  void lay_plain(ValueId value) {
    const auto part = joined_.find(value);
    if (part == joined_.end()) {
      plain_[at(value)] = 1;
      return;
    }
    const ValueId whole = part->second.whole;
    std::erase_if(joined_, [&](const auto& one) { return one.second.whole == whole; });
  }
  bool is_free_view(const Node& node) const { return op_info(node.op).element_kind == ElementKind::View && !is_stored(node.results[0]); }
  bool is_call(size_t node) const { return grouping_.group_of[node] < 0 && !is_free_view(graph_.nodes[node]) && !graph_.nodes[node].inputs.empty(); }

  LoweredCall call_of(const Node& node) const {
    return lower_call({module_, graph_, node, [this](ValueId value) { return window(value); },
                       [this](ValueId value) {
                         ValuePlace place = place_.empty() ? ValuePlace{0, 0, {}} : place_[at(value)];
                         if (place.strides.empty()) place.strides = strides(value);
                         return place;
                       }});
  }

  /// Groups, and the views that have to be stored for what reads them: calls and outputs want memory.
  void group_and_store() {
    std::vector<ValueId> stored;
    for (const Node& node : graph_.nodes)
      if (const auto* constant = std::get_if<Constant>(&node.op); constant != nullptr && !is_splat(constant->value)) stored.push_back(node.results[0]);
    if (options_.fuse) joined_ = joined_parts(graph_);
    const GroupOptions group_options{options_.fuse, [this](const Graph& graph, const Node& node) { return can_emit_node(graph, node) && !is_joined(node); }};
    plain_.assign(graph_.values.size(), 0);
    for (bool again = true; again;) {
      again = false;
      grouping_ = group_nodes(graph_, stored, group_options);
      std::vector<ValueId> wanted;
      for (size_t i = 0; i < graph_.nodes.size(); ++i) {
        if (!is_call(i) || is_joined(graph_.nodes[i])) continue;
        const Node& node = graph_.nodes[i];
        for (const ValueId value : as_map(node) || as_loop(node) ? dense_wants(node) : wants_of_call(node)) wanted.push_back(value);
      }
      for (const GraphOutput& output : graph_.outputs) {
        const auto found = window(output.value);
        if (!found || !is_dense(*found, graph_.type(output.value).shape)) wanted.push_back(output.value);
      }
      for (const Group& group : grouping_.groups)
        for (const GroupAccess& access : group.accesses)
          if (access.at.empty() && !layout(access.value).empty()) lay_plain(access.value), again = true;
      for (const ValueId value : wanted) {
        again = true;
        if (!layout(value).empty()) {
          lay_plain(value);
          continue;
        }
        SG_CHECK(!is_stored(value), "a view is stored, and yet is wanted stored");
        stored.push_back(value);
      }
    }
  }

  /// A call that does not take its results as they are laid out gets them plain.
  std::vector<ValueId> wants_of_call(const Node& node) {
    LoweredCall call = call_of(node);
    if (std::holds_alternative<EvaluateCall>(call.op))
      for (const ValueId result : node.results)
        if (!layout(result).empty()) call.wants_stored.push_back(result);
    return std::move(call.wants_stored);
  }

  std::vector<ValueId> dense_wants(const Node& node) const {
    std::vector<ValueId> wanted;
    for (const ValueId input : node.inputs) {
      const auto found = window(input);
      if (!found || !is_dense(*found, graph_.type(input).shape)) wanted.push_back(input);
    }
    return wanted;
  }

  /// A MapTensors that becomes a form.
  const MapTensors* as_map(const Node& node) const {
    const auto* map = std::get_if<MapTensors>(&node.op);
    if (map == nullptr) return nullptr;
    const Graph& body = module_.graph(map->body);
    return std::all_of(body.nodes.begin(), body.nodes.end(), [&](const Node& inner) { return can_emit_node(body, inner); }) ? map : nullptr;
  }

  const Loop* as_loop(const Node& node) const { return std::get_if<Loop>(&node.op); }

  // ---- units

  void make_units() {
    unit_of_.assign(graph_.values.size(), -1);
    for (size_t g = 0; g < grouping_.groups.size(); ++g) {
      Unit unit;
      unit.group = static_cast<int>(g);
      unit.position = grouping_.groups[g].members.back().node;
      std::set<ValueId> own, reads;
      for (const GroupMember& member : grouping_.groups[g].members)
        for (const ValueId result : graph_.nodes[static_cast<size_t>(member.node)].results) own.insert(result), unit_of_[at(result)] = static_cast<int>(units_.size());
      for (const GroupAccess& access : grouping_.groups[g].accesses)
        if (!own.contains(access.value)) reads.insert(access.value);
      unit.reads.assign(reads.begin(), reads.end());
      units_.push_back(std::move(unit));
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!is_call(i)) continue;
      Unit unit;
      unit.node = unit.position = static_cast<int>(i);
      std::set<ValueId> reads;
      if (const MapTensors* map = as_map(graph_.nodes[i]))
        for (size_t t = 0; t < static_cast<size_t>(map->tensors); ++t) unit.tensors.push_back(t);
      if (as_map(graph_.nodes[i]) != nullptr || as_loop(graph_.nodes[i]) != nullptr || is_joined(graph_.nodes[i]))
        for (const ValueId input : graph_.nodes[i].inputs) reads.insert(window(input)->leaf);
      else
        for (const ValueId leaf : call_of(graph_.nodes[i]).reads) reads.insert(leaf);
      unit.reads.assign(reads.begin(), reads.end());
      unit.writes = graph_.nodes[i].results;
      for (const ValueId result : unit.writes) unit_of_[at(result)] = static_cast<int>(units_.size());
      units_.push_back(std::move(unit));
    }
    readers_.assign(graph_.values.size(), 0);
    for (const Unit& unit : units_)
      for (const ValueId value : unit.reads) ++readers_[at(value)];
    std::vector<char> is_output(graph_.values.size(), 0);
    for (const GraphOutput& output : graph_.outputs) is_output[at(window(output.value)->leaf)] = 1;
    for (Unit& unit : units_) {
      if (unit.group < 0) continue;
      for (const GroupMember& member : grouping_.groups[static_cast<size_t>(unit.group)].members)
        for (const ValueId result : graph_.nodes[static_cast<size_t>(member.node)].results)
          if (readers_[at(result)] > 0 || is_output[at(result)]) unit.writes.push_back(result);
    }
  }

  // ---- updates: what writes states

  int state_index(std::string_view name) {
    if (state_indices_.empty())
      for (size_t s = 0; s < plan_.states.size(); ++s) state_indices_.emplace(plan_.states[s].name, static_cast<int>(s));
    const auto found = state_indices_.find(name);
    return found == state_indices_.end() ? -1 : found->second;
  }

  /// The states that a value replaces, when nothing else is done with it.
  void choose_updates() {
    state_read_.assign(graph_.values.size(), -1);
    for (const GraphInput& input : graph_.inputs)
      if (is_state(input.role.kind)) state_read_[at(input.value)] = state_index(input.role.name);
    replaces_.assign(graph_.values.size(), -1);
    std::vector<int> other_outputs(graph_.values.size(), 0);
    for (const GraphOutput& output : graph_.outputs) {
      const ValueId leaf = window(output.value)->leaf;
      if (output.role.kind != RoleKind::NewState) ++other_outputs[at(leaf)];
      else if (leaf == output.value && replaces_[at(leaf)] < 0) replaces_[at(leaf)] = state_index(output.role.name);
    }
    const auto only_replaces = [&](ValueId value) { return replaces_[at(value)] >= 0 && readers_[at(value)] == 0 && other_outputs[at(value)] == 0; };
    for (Unit& unit : units_) {
      const bool is_form = unit.group >= 0 || as_map(graph_.nodes[static_cast<size_t>(unit.node)]) != nullptr;
      unit.is_update = is_form && !has_computed_index(unit) && !unit.writes.empty() && std::all_of(unit.writes.begin(), unit.writes.end(), only_replaces) && reads_in_place(unit);
    }
    for (bool again = true; again;) {
      again = false;
      std::map<int, std::set<size_t>> readers;  // of states, among what is committed
      for (size_t u = 0; u < units_.size(); ++u)
        if (units_[u].is_update)
          for (const ValueId value : units_[u].reads)
            if (state_read_[at(value)] >= 0) readers[state_read_[at(value)]].insert(u);
      for (size_t u = 0; u < units_.size(); ++u) {
        if (!units_[u].is_update) continue;
        const bool alone = std::all_of(units_[u].writes.begin(), units_[u].writes.end(), [&](ValueId value) {
          const std::set<size_t>& who = readers[replaces_[at(value)]];
          return who.empty() || (who.size() == 1 && *who.begin() == u);
        });
        if (!alone) units_[u].is_update = false, again = true;
      }
    }
    for (const Unit& unit : units_)
      for (const ValueId value : unit.writes)
        if (!unit.is_update) replaces_[at(value)] = -1;
  }

  bool has_computed_index(const Unit& unit) const {
    if (unit.group < 0) return false;  // a MapTensors: its body has elements alone
    const std::vector<GroupAccess>& accesses = grouping_.groups[static_cast<size_t>(unit.group)].accesses;
    return std::any_of(accesses.begin(), accesses.end(), [](const GroupAccess& access) { return access.is_computed; });
  }

  /// Whether an old state that the unit replaces is read by it where it is written, and nowhere else.
  bool reads_in_place(const Unit& unit) const {
    if (unit.node >= 0) return map_places(unit).has_value();
    const Group& group = grouping_.groups[static_cast<size_t>(unit.group)];
    for (const GroupMember& member : group.members) {
      for (const ValueId result : graph_.nodes[static_cast<size_t>(member.node)].results) {
        if (replaces_[at(result)] < 0) continue;
        for (const GroupAccess& access : group.accesses) {
          if (state_read_[at(access.value)] != replaces_[at(result)]) continue;
          if (access.wants_memory || access.at != result_index(graph_, member)) return false;
        }
      }
    }
    return true;
  }

  std::optional<std::vector<int>> map_places(const Unit& unit) const {
    const Node& node = graph_.nodes[static_cast<size_t>(unit.node)];
    return tables_in_place(node, unit.tensors, [this](ValueId value) { return state_read_[at(value)]; }, [this](ValueId value) { return replaces_[at(value)]; });
  }

  // ---- order

  void order_entry() {
    std::vector<char> is_required = required_units();
    const bool commit_early = can_commit_early(links(is_required));
    if (commit_early) split_updates();
    is_required.resize(units_.size(), 0);
    UnitOrder order = order_units(links(is_required), commit_early);
    order_ = std::move(order.order);
    in_commit_part_ = std::move(order.in_commit);
  }

  std::vector<OrderUnit> links(const std::vector<char>& is_required) const { return linked_units(units_, graph_, {unit_of_, state_read_, replaces_}, is_required); }

  /// What makes outputs, and what may find fault with the data: it runs before anything is written. Of several that read by the same indices those behind the
  /// first do not fail any more.
  std::vector<char> required_units() const {
    std::vector<char> is_required(units_.size(), 0);
    for (const GraphOutput& output : graph_.outputs) {
      if (output.role.kind == RoleKind::NewState) continue;
      if (const int unit = unit_of_[at(window(output.value)->leaf)]; unit >= 0) is_required[static_cast<size_t>(unit)] = 1;
    }
    std::vector<size_t> by_position;
    for (size_t u = 0; u < units_.size(); ++u)
      if (may_fail(units_[u])) by_position.push_back(u);
    std::stable_sort(by_position.begin(), by_position.end(), [&](size_t a, size_t b) { return units_[a].position < units_[b].position; });
    std::vector<RangedIndex> held;
    for (const size_t u : by_position) {
      const auto uses = indices_of(units_[u]);
      if (uses && std::all_of(uses->begin(), uses->end(), [&](const RangedIndex& use) { return is_held(use, held, plan_.symbols); })) continue;
      is_required[u] = 1;
      if (uses) held.insert(held.end(), uses->begin(), uses->end());
    }
    return is_required;
  }

  bool may_fail(const Unit& unit) const {
    if (unit.group >= 0) return has_computed_index(unit);
    const Node& node = graph_.nodes[static_cast<size_t>(unit.node)];
    if (as_map(node) != nullptr || is_joined(node)) return false;
    if (as_loop(node) != nullptr) return true;  // what is in it may
    const InstructionOp op = call_of(node).op;
    return std::holds_alternative<ScatterCall>(op) || std::holds_alternative<EvaluateCall>(op) || std::holds_alternative<CollectiveCall>(op);
  }

  /// All that the unit, which may fail, can find fault with; nothing if that is not known.
  std::optional<std::vector<RangedIndex>> indices_of(const Unit& unit) const {
    if (unit.group < 0) {
      const Node& node = graph_.nodes[static_cast<size_t>(unit.node)];
      if (as_loop(node) != nullptr) return std::nullopt;
      const LoweredCall call = call_of(node);
      const auto* scatter = std::get_if<ScatterCall>(&call.op);
      if (scatter == nullptr) return std::nullopt;
      return std::vector<RangedIndex>{{window(node.inputs[1])->leaf, scatter->out.sizes[1], false}};
    }
    FormBuilder draft;
    std::vector<ValueId> known, operands;
    const auto operand = [&](ValueId value) {
      const auto found = std::find(known.begin(), known.end(), value);
      if (found != known.end()) return static_cast<int>(found - known.begin());
      known.push_back(value);
      draft.operands.push_back({graph_.type(value).dtype, false, false});
      return static_cast<int>(known.size()) - 1;
    };
    build_group(group_form(unit, operand), draft);
    std::vector<Dim> sizes;
    std::vector<int> operand_of;
    const Form form = draft.finish(grouping_.groups[static_cast<size_t>(unit.group)].order, sizes, operand_of);
    for (const int index : operand_of) operands.push_back(known[static_cast<size_t>(index)]);
    return ranged_indices(form, operands, sizes, graph_, plan_.symbols);
  }

  /// What is large is updated by itself.
  void split_updates() {
    for (size_t u = 0, count = units_.size(); u < count; ++u) {
      if (!units_[u].is_update || units_[u].node < 0) continue;
      const Node& node = graph_.nodes[static_cast<size_t>(units_[u].node)];
      const auto is_large = [&](size_t t) {
        const TensorType& type = graph_.type(node.results[t]);
        return most(element_count(type.shape)) * static_cast<double>(size_bytes(type.dtype)) >= own_update_bytes;
      };
      std::vector<Unit> parts = split_by_tensors(units_[u], node, is_large, [this](ValueId operand) { return window(operand)->leaf; });
      for (size_t part = 0; part < parts.size(); ++part) {
        const size_t index = part == 0 ? u : units_.size();
        for (const ValueId value : parts[part].writes) unit_of_[at(value)] = static_cast<int>(index);
        if (part == 0) units_[u] = std::move(parts[part]);
        else units_.push_back(std::move(parts[part]));
      }
    }
  }

  // ---- buffers

  int add_buffer(Buffer buffer) {
    entry_.buffers.push_back(std::move(buffer));
    return static_cast<int>(entry_.buffers.size()) - 1;
  }
  int state_buffer(int state) {
    const auto [place, is_new] = state_buffers_.try_emplace(state, -1);
    if (is_new) {
      const PlanState& info = plan_.states[static_cast<size_t>(state)];
      place->second = add_buffer({Space::State, state, element_count(info.sizes), info.dtype, 0, 0, info.name});
    }
    return place->second;
  }
  int arena_buffer(ValueId value, std::string label) {
    const TensorType& type = graph_.type(value);
    return add_buffer({Space::Arena, 0, element_count(type.shape), type.dtype, 0, 0, std::move(label)});
  }

  void place_entry_inputs() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const GraphInput& input = graph_.inputs[i];
      const TensorType& type = graph_.type(input.value);
      const int buffer = is_state(input.role.kind) ? state_buffer(state_index(input.role.name))
                                                   : add_buffer({Space::Input, static_cast<int>(i), element_count(type.shape), type.dtype, 0, 0, input.role.name});
      place_[at(input.value)].buffer = buffer;
      entry_.inputs.push_back({input.role, type.dtype, dense_view(buffer, type.shape)});
    }
  }

  /// Constants and what units compute, unless it has its place.
  void place_values() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const auto* constant = std::get_if<Constant>(&node.op);
      if (constant == nullptr || grouping_.group_of[i] >= 0 || !is_stored(node.results[0])) continue;
      const int index = constant_index(constant->value);
      const auto known = std::find_if(entry_.buffers.begin(), entry_.buffers.end(), [&](const Buffer& b) { return b.space == Space::Constant && b.index == index; });
      place_[at(node.results[0])].buffer = known != entry_.buffers.end() ? static_cast<int>(known - entry_.buffers.begin())
          : add_buffer({Space::Constant, index, Dim(constant->value.count()), constant->value.dtype(), 0, 0, "constant"});
    }
    for (const size_t u : order_) {
      if (units_[u].node >= 0 && as_loop(graph_.nodes[static_cast<size_t>(units_[u].node)])) place_loop(graph_.nodes[static_cast<size_t>(units_[u].node)]);
      for (const ValueId value : units_[u].writes) {
        ValuePlace& place = place_[at(value)];
        if (place.buffer >= 0) continue;
        const Node& producer = graph_.nodes[static_cast<size_t>(graph_.values[at(value)].node)];
        if (const auto part = joined_.find(value); part != joined_.end()) {
          ValuePlace& whole = place_[at(part->second.whole)];
          if (whole.buffer < 0) whole.buffer = arena_buffer(part->second.whole, "concatenate");
          place = {whole.buffer, whole.offset + part->second.offset, part->second.strides};
          continue;
        }
        if (const std::optional<ValueId> base = changed_base(producer)) {
          place = place_[at(*base)];
          continue;
        }
        place.buffer = replaces_[at(value)] >= 0 ? state_buffer(replaces_[at(value)]) : arena_buffer(value, std::string(name(producer.op)));
        place.strides = layout(value);
      }
    }
  }

  /// What a scatter adds to, if nothing else reads it: it is changed where it lies, and only its rows that get something.
  std::optional<ValueId> changed_base(const Node& node) const {
    if (!std::holds_alternative<IndexAdd>(node.op) && !std::holds_alternative<ScatterAdd>(node.op) && !std::holds_alternative<ScatterReduce>(node.op)) return std::nullopt;
    const LoweredCall call = call_of(node);
    const auto* scatter = std::get_if<ScatterCall>(&call.op);
    if (scatter == nullptr || !scatter->base) return std::nullopt;
    const StridedLeaf found = *window(node.inputs[0]);
    const ValueId base = found.leaf;
    const TensorType& type = graph_.type(base);
    const int32_t maker = graph_.values[at(base)].node;
    if (maker >= 0 && is_joined(graph_.nodes[static_cast<size_t>(maker)])) return std::nullopt;  // others may read its parts
    if (unit_of_[at(base)] < 0 || type != graph_.type(node.results[0]) || !layout(base).empty() || !is_dense(found, type.shape)) return std::nullopt;
    const bool is_output = std::any_of(graph_.outputs.begin(), graph_.outputs.end(), [&](const GraphOutput& output) { return window(output.value)->leaf == base; });
    if (is_output || readers_[at(base)] != 1 || std::count(call.reads.begin(), call.reads.end(), base) != 1) return std::nullopt;
    // A buffer of its own, none that a loop carries.
    const ValuePlace& place = place_[at(base)];
    const bool is_whole = place.buffer >= 0 && place.offset == Dim(0) && entry_.buffers[static_cast<size_t>(place.buffer)].elements == element_count(type.shape);
    return is_whole ? std::optional(base) : std::nullopt;
  }

  void place_outputs() {
    for (const GraphOutput& output : graph_.outputs) {
      if (output.role.kind == RoleKind::NewState) continue;
      const StridedLeaf found = *window(output.value);
      View view = dense_view(place_[at(found.leaf)].buffer, graph_.type(output.value).shape);
      view.offset = place_[at(found.leaf)].offset + found.offset;
      entry_.outputs.push_back({output.role, graph_.type(output.value).dtype, std::move(view)});
    }
  }

  int constant_index(const Literal& value) {
    for (size_t c = 0; c < plan_.constants.size(); ++c)
      if (plan_.constants[c] == value) return static_cast<int>(c);
    plan_.constants.push_back(value);
    return static_cast<int>(plan_.constants.size()) - 1;
  }

  // ---- instructions

  void begin_commit() {
    in_commit_ = true;
    stage_inputs();
    entry_.commit_begin = static_cast<int>(instructions_.size());
  }

  double most(const Dim& dim) const {
    const int64_t maximum = plan_.symbols.bounds(dim).maximum;
    return maximum == INT64_MAX ? 1e18 : static_cast<double>(maximum);
  }

  /// What a body holds has no phase of its own: its loop has.
  Phase phase_of(const Node& node) const { return node.phase != Phase::None ? node.phase : around_.phase; }
  void append(InstructionOp op, const Node& node, std::string label, bool one_thread) {
    instructions_.push_back({std::move(op), phase_of(node), std::move(label), node.scope, one_thread, true});
  }

  // ---- what was done, for people

  UnitReporter reporter() const {
    return {module_, graph_, grouping_, around_.runs, around_.phase, [this](const Dim& dim) { return most(dim); }};
  }
  /// Of the unit that became the instructions from `first` on.
  void report_unit(const Unit& unit, size_t first) {
    if (around_.report == nullptr) return;
    const bool is_loop = unit.group < 0 && as_loop(graph_.nodes[static_cast<size_t>(unit.node)]) != nullptr;
    std::vector<int> place = around_.before;
    place.push_back(static_cast<int>(is_loop ? instructions_.size() - 1 : first));
    std::vector<int> nodes = {unit.node};
    if (unit.group >= 0) {
      nodes.clear();
      for (const GroupMember& member : grouping_.groups[static_cast<size_t>(unit.group)].members) nodes.push_back(member.node);
    }
    around_.report->units.push_back(reporter().unit(nodes, unit.writes, unit.tensors, std::move(place)));
  }
  void report_stored() {
    if (around_.report != nullptr) reporter().stored(*around_.report);
  }

  /// A group that stores no element, whatever the sizes are.
  bool is_empty(const Unit& unit) const {
    if (unit.group < 0 || unit.is_update) return false;
    const Group& group = grouping_.groups[static_cast<size_t>(unit.group)];
    for (size_t f = 0; f < group.factors.size(); ++f)
      if (!group.reduced[f] && group.factors[f].size == Dim(0)) return true;
    return false;
  }
  void emit(const Unit& unit) {
    if (is_empty(unit)) return;
    const size_t first = instructions_.size();
    emit_unit(unit);
    report_unit(unit, first);
  }
  void emit_unit(const Unit& unit) {
    if (unit.group >= 0) return emit_group(unit);
    const Node& node = graph_.nodes[static_cast<size_t>(unit.node)];
    if (is_joined(node)) return;
    if (as_map(node) != nullptr) return emit_map(unit, node);
    if (const Loop* loop = as_loop(node)) return emit_loop(node, *loop);
    LoweredCall call = call_of(node);
    SG_CHECK(call.wants_stored.empty(), std::string(name(node.op)) + " wants a view that was not stored");
    if (auto* evaluate = std::get_if<EvaluateCall>(&call.op)) evaluate->program = node_program(module_, graph_, node);
    if (auto* scatter = std::get_if<ScatterCall>(&call.op); scatter != nullptr && scatter->base)
      if (scatter->base->buffer == scatter->out.buffer && scatter->base->offset == scatter->out.offset) scatter->base = scatter->out;
    bool one_thread = is_small(call.op);
    if (const auto* matmul = std::get_if<MatMulCall>(&call.op)) {
      Dim flops = matmul->lhs.sizes.back() * Dim(2);
      for (const Dim& size : matmul->out.sizes) flops = flops * size;
      one_thread = most(flops) < one_thread_flops;
    }
    append(std::move(call.op), node, std::string(name(node.op)), one_thread);
  }

  /// Whether what passes over its elements is not worth sharing.
  bool is_small(const InstructionOp& op) const {
    const bool passes = std::holds_alternative<ScatterCall>(op) || std::holds_alternative<PoolCall>(op) || std::holds_alternative<ScanCall>(op);
    double elements = 0;
    if (passes) for_each_view(op, [&](const View& view) { elements += most(element_count(view.sizes)); });
    const auto* pool = std::get_if<PoolCall>(&op);
    return passes && elements * (pool != nullptr ? static_cast<double>(element_count(pool->size)) : 2) < one_thread_operations;
  }

  void emit_group(const Unit& unit) {
    const Group& group = grouping_.groups[static_cast<size_t>(unit.group)];
    FormBuilder form;
    std::vector<View> places;  // of the form's operands: what lies at one place is one, a state and what replaces it among them
    const auto operand = [&](ValueId value) {
      const ValuePlace& place = place_[at(value)];
      SG_CHECK(place.buffer >= 0, "a value that is read lies nowhere");
      const auto known = std::find_if(places.begin(), places.end(), [&](const View& view) { return view.buffer == place.buffer && view.offset == place.offset; });
      if (known != places.end()) return static_cast<int>(known - places.begin());
      places.push_back({place.buffer, place.offset, {}, {}});
      form.operands.push_back({graph_.type(value).dtype, false, false});
      return static_cast<int>(places.size()) - 1;
    };
    std::string label = build_group(group_form(unit, operand), form);
    append_form(form, group.order, places, graph_.nodes[static_cast<size_t>(group.members.back().node)], std::move(label));
  }

  /// What is written to states is looked at for numbers that are not finite while it is at hand.
  void watch_states(Form& form, const FormLaunch& launch) const {
    for (size_t i = 0; i < form.operands.size(); ++i) {
      FormOperand& operand = form.operands[i];
      const bool is_number = operand.dtype == DType::F32 || operand.dtype == DType::F64;
      operand.is_watched = operand.is_written && is_number && entry_.buffers[static_cast<size_t>(launch.operands[i].buffer)].space == Space::State;
    }
  }

  GroupFormRequest group_form(const Unit& unit, std::function<int(ValueId)> operand) const {
    return {graph_, grouping_.groups[static_cast<size_t>(unit.group)], unit.writes, [this](ValueId value) { return is_stored(value); }, [this](ValueId leaf) { return strides(leaf); }, std::move(operand)};
  }

  void append_form(FormBuilder& builder, std::span<const int> order, const std::vector<View>& places, const Node& node, std::string label) {
    FormLaunch launch;
    std::vector<int> operand_of;
    Form form = builder.finish(order, launch.sizes, operand_of);
    Dim elements = 1;
    for (const Factor& factor : builder.factors) elements = elements * factor.size;
    const bool one_thread = most(elements) * operations_of(form) < one_thread_operations;
    for (const int index : operand_of) launch.operands.push_back(places[static_cast<size_t>(index)]);
    watch_states(form, launch);
    append(FormCall{forms_.add(std::move(form)), {std::move(launch)}}, node, std::move(label), one_thread);
  }

  void emit_map(const Unit& unit, const Node& node) {
    const auto& map = std::get<MapTensors>(node.op);
    const Graph& body = module_.graph(map.body);
    const auto tensors = static_cast<size_t>(map.tensors), tables = static_cast<size_t>(map.tables);
    const size_t outputs = body.outputs.size(), elementwise = outputs - static_cast<size_t>(map.reduced);
    const std::vector<int> in_place = unit.is_update ? *map_places(unit) : std::vector<int>(outputs, -1);
    MapForm made = *map_form(module_, map, in_place);
    // Of reductions: a partial result a tensor, then one of all.
    std::vector<int> partials;
    for (size_t o = elementwise; o < outputs; ++o)
      partials.push_back(add_buffer({Space::Arena, 0, Dim(map.tensors), body.type(body.outputs[o].value).dtype, 0, 0, "partial results of map_tensors"}));
    FormCall call;
    double work = 0;
    const double operations = operations_of(made.form);
    for (const size_t t : unit.tensors) {
      const Dim count = element_count(graph_.type(node.inputs[t]).shape);
      work += most(count) * operations;
      FormLaunch launch;
      for (const Dim& size : made.sizes)
        launch.sizes.push_back(size.substitute([&](const std::string& symbol) { return symbol == map_elements_symbol ? std::optional(count) : std::nullopt; }));
      for (const int which : made.operand_of) {
        const auto index = static_cast<size_t>(which);
        if (index < body.inputs.size()) {
          const ValueId value = node.inputs[index < tables ? index * tensors + t : tables * tensors + index - tables];
          const StridedLeaf found = *window(value);
          const ValuePlace& place = place_[at(found.leaf)];
          launch.operands.push_back({place.buffer, place.offset + found.offset, {}, {}});
        } else if (const size_t o = index - body.inputs.size(); o < elementwise) {
          const ValuePlace& place = place_[at(node.results[o * tensors + t])];
          launch.operands.push_back({place.buffer, place.offset, {}, {}});
        } else {
          launch.operands.push_back({partials[o - elementwise], Dim(static_cast<int64_t>(t)), {}, {}});
        }
      }
      call.launches.push_back(std::move(launch));
    }
    watch_states(made.form, call.launches.front());
    call.form = forms_.add(std::move(made.form));
    append(std::move(call), node, "map_tensors", work < one_thread_operations);
    for (size_t r = 0; r < partials.size(); ++r) {
      const DType dtype = entry_.buffers[static_cast<size_t>(partials[r])].dtype;
      FormBuilder finish;
      const int factor = finish.add_factor(Dim(map.tensors));
      finish.operands = {{dtype, true, false}, {dtype, false, true}};
      const Affine place = map.tensors == 1 ? Affine{} : affine(factor);
      const int partial = finish.add(LoadExpr{0, place, {}, {}}, {}, dtype);
      finish.stores.push_back({1, {}, map.tensors == 1 ? partial : finish.reduce(map.reduce, partial, {factor})});
      const ValuePlace& whole = place_[at(node.results[elementwise * tensors + r])];
      append_form(finish, std::vector<int>{factor}, {View{partials[r], 0, {}, {}}, View{whole.buffer, whole.offset, {}, {}}}, node, "map_tensors: finish");
    }
  }

  // ---- loops

  /// A carried value that is stacked as well, after an iteration or before it, lives in its stack, which has one slot more: an iteration reads the slot that the
  /// one before wrote. Others have two slots.
  struct CarriedPlace {
    int buffer = -1;
    int after = -1, before = -1;  ///< the stacked outputs that it shares its slots with
    bool is_stack() const { return after >= 0 || before >= 0; }
  };

  static Dim slot_offset(const Loop& loop, bool is_stack, bool is_output, const Dim& elements) {
    const Dim i = Dim::symbol(loop.symbol);
    if (is_stack) return (loop.reverse ? (is_output ? i : i + Dim(1)) : (is_output ? i + Dim(1) : i)) * elements;
    const Dim before = loop.reverse ? loop.trip_count - Dim(1) - i : i;
    return mod(is_output ? before + Dim(1) : before, Dim(2)) * elements;
  }

  void place_loop(const Node& node) {
    const auto& loop = std::get<Loop>(node.op);
    const Graph& body = module_.graph(loop.body);
    const auto carried = static_cast<size_t>(loop.carried);
    std::vector<CarriedPlace>& places = loops_[&node];
    places.resize(carried);
    std::vector<char> is_shared(node.results.size(), 0);
    for (size_t c = 0; c < carried; ++c) {
      const TensorType& type = graph_.type(node.results[c]);
      const Dim elements = element_count(type.shape);
      for (size_t o = carried; o < node.results.size(); ++o) {
        if (is_shared[o]) continue;
        const bool is_after = body.outputs[o].value == body.outputs[c].value;
        int& stack = is_after ? places[c].after : places[c].before;
        if (stack < 0 && (is_after || body.outputs[o].value == body.inputs[c].value)) stack = static_cast<int>(o), is_shared[o] = 1;
      }
      const bool is_stack = places[c].is_stack();
      places[c].buffer = add_buffer({Space::Arena, 0, (is_stack ? loop.trip_count + Dim(1) : Dim(2)) * elements, type.dtype, 0, 0, is_stack ? "stack of a loop" : "carried by a loop"});
      const Dim last = is_stack ? (loop.reverse ? Dim(0) : loop.trip_count) : mod(loop.trip_count, Dim(2));
      place_[at(node.results[c])] = {places[c].buffer, last * elements, {}};
      if (places[c].after >= 0) place_[at(node.results[static_cast<size_t>(places[c].after)])] = {places[c].buffer, loop.reverse ? Dim(0) : elements, {}};
      if (places[c].before >= 0) place_[at(node.results[static_cast<size_t>(places[c].before)])] = {places[c].buffer, loop.reverse ? elements : Dim(0), {}};
    }
  }

  void emit_loop(const Node& node, const Loop& loop) {
    const Graph& body = module_.graph(loop.body);
    const auto carried = static_cast<size_t>(loop.carried), scanned = static_cast<size_t>(loop.scanned);
    const std::vector<CarriedPlace>& carry = loops_.at(&node);
    const Dim i = Dim::symbol(loop.symbol);
    std::vector<ValuePlace> inputs, outputs;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const StridedLeaf found = *window(node.inputs[k]);
      ValuePlace place{place_[at(found.leaf)].buffer, place_[at(found.leaf)].offset + found.offset, {}};
      const Dim elements = element_count(body.type(body.inputs[k].value).shape);
      if (k < carried) {
        const bool is_stack = carry[k].is_stack();
        const Dim first = is_stack && loop.reverse ? loop.trip_count * elements : Dim(0);
        append_copy(place, {carry[k].buffer, first, {}}, graph_.type(node.inputs[k]), node.phase, "carry");
        place = {carry[k].buffer, slot_offset(loop, is_stack, false, elements), {}};
      } else if (k < carried + scanned) {
        place.offset = place.offset + i * elements;
      }
      inputs.push_back(std::move(place));
    }
    for (size_t o = 0; o < node.results.size(); ++o) {
      const Dim elements = element_count(body.type(body.outputs[o].value).shape);
      const ValuePlace& whole = place_[at(node.results[o])];
      if (o < carried) outputs.push_back({carry[o].buffer, slot_offset(loop, carry[o].is_stack(), true, elements), {}});
      else outputs.push_back({whole.buffer, whole.offset + i * elements, {}});
    }
    Repeat repeat;
    repeat.symbol = loop.symbol;
    repeat.count = loop.trip_count;
    repeat.reverse = loop.reverse;
    Surroundings inside = around_;
    inside.before.push_back(static_cast<int>(instructions_.size()));
    inside.runs *= most(loop.trip_count);
    inside.phase = phase_of(node);
    repeat.body = EntryLowering(module_, loop.body, options_, plan_, forms_, entry_, std::move(inside)).lower_body(inputs, outputs);
    append(std::move(repeat), node, "loop", false);
  }

  // ---- states that are not written where they are computed

  void append_copy(const ValuePlace& from, const ValuePlace& to, const TensorType& type, Phase phase, const std::string& label) {
    FormBuilder form;
    const Dim count = element_count(type.shape);
    const int factor = form.add_factor(count);
    form.operands = {{type.dtype, true, false}, {type.dtype, false, true}};
    const Affine place = count == Dim(1) ? Affine{} : affine(factor);
    form.stores.push_back({1, place, form.add(LoadExpr{0, place, {}, {}}, {}, type.dtype)});
    Node node;
    node.phase = phase;
    append_form(form, std::vector<int>{factor}, {View{from.buffer, from.offset, {}, {}}, View{to.buffer, to.offset, {}, {}}}, node, label);
  }

  struct StateCopy {
    int from = -1, to = -1;
    Dim offset;
    TensorType type;
    std::string name;
  };

  /// What replaces a state unchanged is another state or an input, which may be gone when states are written.
  void stage_inputs() {
    for (const GraphOutput& output : graph_.outputs) {
      if (output.role.kind != RoleKind::NewState) continue;
      const StridedLeaf found = *window(output.value);
      const int state = state_index(output.role.name);
      const int to = state_buffer(state);
      int from = place_[at(found.leaf)].buffer;
      const bool is_input = graph_.values[at(found.leaf)].node < 0;
      if (from == to && is_input) continue;  // it stays as it is
      entry_.new_states.push_back(output.role.name);
      if (from == to) continue;
      const TensorType& type = graph_.type(output.value);
      Dim offset = place_[at(found.leaf)].offset + found.offset;
      if (is_input) {
        const int staged = arena_buffer(output.value, output.role.name);
        append_copy({from, offset, {}}, {staged, 0, {}}, type, Phase::Update, "stage " + output.role.name);
        from = staged, offset = 0;
      }
      copies_.push_back({from, to, offset, type, output.role.name});
    }
  }
  void copy_new_states() {
    for (const StateCopy& copy : copies_) append_copy({copy.from, copy.offset, {}}, {copy.to, 0, {}}, copy.type, Phase::Update, "new state " + copy.name);
  }

  /// Threads meet before what they share and after it; what one thread does alone it does in order.
  void mark_meets() {
    bool alone = false;
    for (size_t i = 0; i < instructions_.size(); ++i) {
      Instruction& instruction = instructions_[i];
      instruction.meet = i == 0 || (in_commit_ && static_cast<int>(i) == entry_.commit_begin) || !(alone && instruction.one_thread);
      alone = instruction.one_thread;
    }
  }

  const Module& module_;
  const Graph& graph_;
  const LowerOptions& options_;
  StepPlan& plan_;
  FormTable& forms_;
  PlanEntry& entry_;
  std::vector<Instruction> instructions_;
  Grouping grouping_;
  std::vector<Unit> units_;
  std::vector<size_t> order_;
  std::vector<char> in_commit_part_;             // by unit
  std::vector<int> unit_of_, readers_;           // by value
  std::vector<int> state_read_, replaces_;       // by value: a state's index, or -1
  std::vector<ValuePlace> place_;                // by value
  std::map<ValueId, JoinedPart> joined_;         // by part
  std::vector<char> plain_;                      // by value: it may not be laid out in another way
  std::map<std::string_view, int> state_indices_;
  std::map<int, int> state_buffers_;
  std::vector<StateCopy> copies_;
  std::map<const Node*, std::vector<CarriedPlace>> loops_;  // looked up only
  Surroundings around_;
  bool in_commit_ = false;
};

uint64_t quick_hash(const Form& form) {
  uint64_t hash = mix_hash(mix_hash(form.exprs.size(), form.stores.size()), form.operands.size());
  for (const Factor& factor : form.factors) hash = mix_hash(hash, factor.size.hash());
  for (const Expr& expr : form.exprs) hash = mix_hash(mix_hash(hash, expr.op.index()), expr.inputs.size());
  return hash;
}

}  // namespace

int FormTable::add(Form form) {
  const uint64_t hash = quick_hash(form);
  const auto [begin, end] = known_.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (forms_[static_cast<size_t>(at->second)] == form) return at->second;
  forms_.push_back(std::move(form));
  const int index = static_cast<int>(forms_.size()) - 1;
  known_.emplace(hash, index);
  return index;
}

PlanEntry lower_entry(const Module& module, const Entry& entry, const LowerOptions& options, StepPlan& plan, FormTable& forms, LoweredEntry* report) {
  PlanEntry result;
  result.name = entry.name;
  if (report != nullptr) report->name = entry.name;
  EntryLowering(module, entry.graph, options, plan, forms, result, {report, {}, 1, Phase::None}).lower_entry();
  return result;
}

}  // namespace stepgraph
