// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/hoist_from_loops.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/ops/known_values.h"
#include "stepgraph/compile/passes/canonical_rewrites.h"
#include "stepgraph/compile/passes/loop_facts.h"
#include "stepgraph/compile/passes/loop_weights.h"

namespace stepgraph {
namespace {

/// Made again where it is used for next to nothing.
bool is_made_anywhere(const Op& op) {
  return std::holds_alternative<Constant>(op) || std::holds_alternative<Iota>(op) || std::holds_alternative<SizeValue>(op) ||
         std::holds_alternative<Broadcast>(op) || std::holds_alternative<Reshape>(op);
}

/// A carried sum of which no iteration reads what the ones before it gave.
struct CarriedSum {
  size_t carry;
  const Node* node;  ///< makes the summand of stacked values; null: the summand is stacked itself
  std::vector<ValueId> stacked;
};

class LoopHoist {
 public:
  explicit LoopHoist(const NodeRewrite& node)
      : node_(node),
        loop_(std::get<Loop>(node.op)),
        builder_(node.builder),
        module_(node.builder.module()),
        body_(module_.graph(loop_.body)),
        carried_(static_cast<size_t>(loop_.carried)),
        scanned_(static_cast<size_t>(loop_.scanned)),
        facts_(module_, loop_, spread_scans()) {}

  Rewritten run() {
    for_micro_batches_ = scans_micro_batches();
    first_stack_.assign(body_.values.size(), -1);
    for (size_t o = carried_; o < body_.outputs.size(); ++o) {
      int64_t& first = first_stack_[at(body_.outputs[o].value)];
      if (first < 0) first = static_cast<int64_t>(o);
    }
    find_sums();
    choose_outputs();
    mark_inside();
    mark_outside();
    if (!changes_anything()) return std::nullopt;
    emit_before();
    emit_loop();
    return results();
  }

 private:
  // ---- what there is

  size_t input_index(ValueId value) const {  // body inputs are the first values
    for (size_t i = 0; i < body_.inputs.size(); ++i)
      if (body_.inputs[i].value == value) return i;
    throw InternalError("hoist_from_loops: no such input");
  }
  bool is_input(ValueId value) const { return body_.values[at(value)].node < 0; }
  const Node& maker(ValueId value) const { return body_.nodes[static_cast<size_t>(body_.values[at(value)].node)]; }
  LoopValue kind(ValueId value) const { return facts_.values[at(value)]; }

  std::vector<bool> spread_scans() const {
    std::vector<bool> result(scanned_);
    for (size_t s = 0; s < scanned_; ++s) {
      const auto* broadcast = node_.producer_op<Broadcast>(node_.inputs[carried_ + s]);
      result[s] = broadcast != nullptr && (broadcast->dims.empty() || broadcast->dims[0] != 0);
    }
    return result;
  }
  bool scans_micro_batches() const {
    for (const GraphInput& input : builder_.graph().inputs) {
      if (input.role.kind != RoleKind::Batch || input.role.batch_dim == 0) continue;
      for (size_t s = 0; s < scanned_; ++s)
        if (node_.inputs[carried_ + s].id == input.value) return true;
    }
    return false;
  }
  bool is_scanned_input(ValueId value) const {
    if (!is_input(value)) return false;
    const size_t i = input_index(value);
    return i >= carried_ && i < carried_ + scanned_;
  }
  /// Its values of all iterations are at hand after the loop.
  bool is_stacked(ValueId value) const { return is_scanned_input(value) || first_stack_[at(value)] >= 0; }

  void find_sums() {
    if (for_micro_batches_) return;
    for (size_t i = 0; i < carried_; ++i) {
      const ValueId before = body_.inputs[i].value, after = body_.outputs[i].value;
      if (node_.result_uses[i] == 0 || is_input(after) || facts_.uses[at(before)] != 1 || facts_.uses[at(after)] != 1) continue;
      const Node& add = maker(after);
      const auto* binary = std::get_if<Binary>(&add.op);
      if (binary == nullptr || binary->kind != BinaryKind::Add || (add.inputs[0] == before) == (add.inputs[1] == before)) continue;
      const ValueId summand = add.inputs[0] == before ? add.inputs[1] : add.inputs[0];
      if (is_stacked(summand)) {
        sums_.push_back({i, nullptr, {summand}});
        continue;
      }
      if (is_input(summand) || facts_.uses[at(summand)] != 1) continue;
      const Node& made = maker(summand);
      const auto* reduce = std::get_if<Reduce>(&made.op);
      if (!std::holds_alternative<MatMul>(made.op) && (reduce == nullptr || reduce->kind != ReduceKind::Sum)) continue;
      if (std::all_of(made.inputs.begin(), made.inputs.end(), [&](ValueId input) { return is_stacked(input); })) sums_.push_back({i, &made, made.inputs});
    }
  }

  // ---- what stays

  bool is_sum(size_t carry) const {
    return std::any_of(sums_.begin(), sums_.end(), [&](const CarriedSum& sum) { return sum.carry == carry; });
  }
  /// A stack that needs no loop.
  bool is_stack_outside(ValueId value) const {
    if (kind(value) == LoopValue::Invariant || is_scanned_input(value)) return true;
    return kind(value) == LoopValue::Sliced && facts_.can_stack[at(value)] && !for_micro_batches_;
  }

  void choose_outputs() {
    stays_.assign(body_.outputs.size(), false);
    wanted_stack_.assign(body_.outputs.size(), false);
    const auto want_stack = [&](size_t output) {
      wanted_stack_[output] = true;
      const ValueId value = body_.outputs[output].value;
      if (!is_stack_outside(value)) stays_[static_cast<size_t>(first_stack_[at(value)])] = true;
    };
    for (size_t o = carried_; o < body_.outputs.size(); ++o)
      if (node_.result_uses[o] > 0) want_stack(o);
    for (const CarriedSum& sum : sums_)
      for (const ValueId value : sum.stacked)
        if (!is_scanned_input(value)) want_stack(static_cast<size_t>(first_stack_[at(value)]));
    for (size_t i = 0; i < carried_; ++i) stays_[i] = node_.result_uses[i] > 0 && !facts_.is_fixed(i) && !is_sum(i);
    // A carried value that a needed one is made of is needed as well.
    for (bool grown = true; grown;) {
      grown = false;
      mark_inside();
      for (size_t i = 0; i < carried_; ++i) {
        if (stays_[i] || facts_.is_fixed(i) || is_sum(i) || !inside_[at(body_.inputs[i].value)]) continue;
        stays_[i] = grown = true;
      }
    }
  }

  bool is_hoisted(const Node& node) const {
    const ValueId result = node.results.at(0);
    if (kind(result) != LoopValue::Invariant || is_made_anywhere(node.op)) return false;
    return facts_.of_inputs[at(result)] || !is_per_element(node.op);
  }
  /// A product of slices by an invariant.
  bool is_lifted(const Node& node) const {
    const ValueId result = node.results.at(0);
    return !for_micro_batches_ && std::holds_alternative<MatMul>(node.op) && kind(result) == LoopValue::Sliced && facts_.can_stack[at(result)];
  }

  /// Values that the new body reads or gives; what comes in from outside is not followed.
  void mark_inside() {
    inside_.assign(body_.values.size(), false);
    for (size_t o = 0; o < body_.outputs.size(); ++o)
      if (stays_[o]) inside_[at(body_.outputs[o].value)] = true;
    for (size_t n = body_.nodes.size(); n-- > 0;) {
      const Node& node = body_.nodes[n];
      if (is_read_inside(node) && !is_hoisted(node) && !is_lifted(node))
        for (const ValueId input : node.inputs) inside_[at(input)] = true;
    }
  }
  bool is_read_inside(const Node& node) const {
    return std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) { return inside_[at(result)]; });
  }

  // ---- what moves

  void mark_outside() {
    before_.assign(body_.values.size(), false);
    stacked_.assign(body_.values.size(), false);
    for (const Node& node : body_.nodes) {
      if (!is_read_inside(node) || !(is_hoisted(node) || is_lifted(node))) continue;
      for (const ValueId result : node.results) (is_hoisted(node) ? before_ : stacked_)[at(result)] = true;
    }
    for (size_t o = carried_; o < body_.outputs.size(); ++o) {
      const ValueId value = body_.outputs[o].value;
      if (wanted_stack_[o] && is_stack_outside(value)) (kind(value) == LoopValue::Invariant ? before_ : stacked_)[at(value)] = true;
    }
    for (size_t n = body_.nodes.size(); n-- > 0;) {
      const Node& node = body_.nodes[n];
      const bool before = std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) { return before_[at(result)]; });
      const bool stacked = std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) { return stacked_[at(result)]; });
      for (const ValueId input : node.inputs) {
        if (before || (stacked && kind(input) == LoopValue::Invariant))
          before_[at(input)] = true;
        else if (stacked)
          stacked_[at(input)] = true;
      }
    }
  }

  bool changes_anything() const {
    for (size_t o = 0; o < body_.outputs.size(); ++o)
      if (!stays_[o]) return true;
    for (size_t i = 0; i < body_.inputs.size(); ++i) {
      const ValueId input = body_.inputs[i].value;
      if (i >= carried_ && !inside_[at(input)]) return true;
      if (i >= carried_ && i < carried_ + scanned_ && kind(input) == LoopValue::Invariant) return true;
    }
    return std::any_of(body_.nodes.begin(), body_.nodes.end(), [&](const Node& node) { return is_read_inside(node) && (is_hoisted(node) || is_lifted(node)); });
  }

  // ---- before the loop

  /// An invariant, of the type that it has in the body.
  Value outer(ValueId value) {
    Value& known = outer_[value];
    if (known.builder != nullptr) return known;
    SG_CHECK(is_input(value), "hoist_from_loops: an invariant is not there yet");
    const size_t i = input_index(value);
    if (i < carried_ || i >= carried_ + scanned_) return known = node_.inputs[i];
    Broadcast spread = *node_.producer_op<Broadcast>(node_.inputs[i]);
    spread.shape.erase(spread.shape.begin());
    for (int64_t& dim : spread.dims) --dim;
    return known = builder_.emit_one(std::move(spread), {node_.operand(node_.inputs[i])});
  }
  /// All iterations of an invariant.
  Value spread(ValueId value) {
    const Value one = outer(value);
    Broadcast broadcast{one.shape(), {}};
    broadcast.shape.insert(broadcast.shape.begin(), loop_.trip_count);
    for (int64_t d = 1; d <= one.rank(); ++d) broadcast.dims.push_back(d);
    return builder_.emit_one(std::move(broadcast), {one});
  }
  /// All iterations of a value that is stacked outside.
  Value stack(ValueId value) {
    return is_scanned_input(value) ? node_.inputs[input_index(value)] : kind(value) == LoopValue::Invariant ? spread(value) : outer_stack_.at(value);
  }

  void emit_before() {
    const Provenance around = builder_.provenance();
    for (const Node& node : body_.nodes) {
      builder_.set_provenance(Provenance::of(node, around));
      if (std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) { return before_[at(result)]; })) {
        std::vector<Value> inputs;
        for (const ValueId input : node.inputs) inputs.push_back(outer(input));
        std::vector<TensorType> types;
        for (const ValueId result : node.results) types.push_back(body_.type(result));
        const std::vector<Value> made = builder_.append(node.op, inputs, std::move(types));
        for (size_t i = 0; i < made.size(); ++i) outer_[node.results[i]] = made[i];
      }
      if (stacked_[at(node.results.at(0))]) {
        std::vector<Value> inputs;
        const bool is_product = std::holds_alternative<MatMul>(node.op);
        for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(is_product && i == 1 ? outer(node.inputs[i]) : stack(node.inputs[i]));
        outer_stack_[node.results[0]] = builder_.emit(*stacked_op(node, facts_, loop_.trip_count), inputs).at(0);
      }
    }
    builder_.set_provenance(around);
  }

  // ---- the loop

  struct NewInput {
    ValueId value;
    Value outside;
  };

  void emit_loop() {
    std::vector<NewInput> carries, scans, invariants;
    for (size_t i = 0; i < body_.inputs.size(); ++i) {
      const ValueId value = body_.inputs[i].value;
      if (i < carried_ && stays_[i])
        carries.push_back({value, node_.inputs[i]});
      else if (!inside_[at(value)])
        continue;
      else if (kind(value) == LoopValue::Sliced)
        scans.push_back({value, node_.inputs[i]});
      else
        invariants.push_back({value, outer(value)});
    }
    for (const Node& node : body_.nodes) {
      for (const ValueId result : node.results) {
        if (!inside_[at(result)]) continue;
        if (is_hoisted(node))
          invariants.push_back({result, outer(result)});
        else if (is_lifted(node))
          scans.push_back({result, outer_stack_.at(result)});
      }
    }
    if (std::none_of(stays_.begin(), stays_.end(), [](bool stays) { return stays; })) return;
    Loop loop = loop_;
    loop.body = new_body(carries, scans, invariants);
    loop.carried = static_cast<int64_t>(carries.size());
    loop.scanned = static_cast<int64_t>(scans.size());
    std::vector<Value> arguments;
    for (const auto* inputs : {&carries, &scans, &invariants})
      for (const NewInput& input : *inputs) arguments.push_back(input.outside);
    const std::vector<Value> made = builder_.emit(loop, arguments);
    loop_results_.assign(body_.outputs.size(), Value{});
    size_t next = 0;
    for (size_t o = 0; o < body_.outputs.size(); ++o)
      if (stays_[o]) loop_results_[o] = made[next++];
  }

  GraphId new_body(const std::vector<NewInput>& carries, const std::vector<NewInput>& scans, const std::vector<NewInput>& invariants) {
    const GraphId id = module_.add_graph(body_.name);
    Builder inner(module_, id);
    std::vector<Value> map(body_.values.size());
    for (const auto* inputs : {&carries, &scans, &invariants})
      for (const NewInput& input : *inputs) map[at(input.value)] = inner.input(body_.type(input.value));
    for (const Node& node : body_.nodes) {
      if (!is_read_inside(node) || is_hoisted(node) || is_lifted(node)) continue;
      std::vector<Value> operands;
      for (const ValueId input : node.inputs) operands.push_back(map[at(input)]);
      std::vector<TensorType> types;
      for (const ValueId result : node.results) types.push_back(body_.type(result));
      inner.set_provenance(Provenance::of(node));
      const std::vector<Value> made = inner.append(node.op, operands, std::move(types));
      for (size_t i = 0; i < made.size(); ++i) map[at(node.results[i])] = made[i];
    }
    for (size_t o = 0; o < body_.outputs.size(); ++o)
      if (stays_[o]) inner.output(map[at(body_.outputs[o].value)], body_.outputs[o].role);
    return unite_graph(module_, id);  // equal layers have equal loops
  }

  // ---- after it

  Value stack_after(ValueId value) { return is_stack_outside(value) ? stack(value) : loop_results_.at(static_cast<size_t>(first_stack_[at(value)])); }

  Value summed(const CarriedSum& sum) {
    const auto first_and = [](std::vector<int64_t> dims) {
      for (int64_t& dim : dims) ++dim;
      dims.insert(dims.begin(), 0);
      return dims;
    };
    std::vector<Value> stacks;
    for (const ValueId value : sum.stacked) stacks.push_back(stack_after(value));
    Op op = Reduce{ReduceKind::Sum, {0}};
    if (sum.node != nullptr) {
      op = sum.node->op;
      if (auto* reduce = std::get_if<Reduce>(&op)) reduce->dims = first_and(reduce->dims);
      if (auto* product = std::get_if<MatMul>(&op)) {
        for (auto* dims : {&product->lhs_batch, &product->rhs_batch})
          for (int64_t& dim : *dims) ++dim;
        product->lhs_contract = first_and(product->lhs_contract), product->rhs_contract = first_and(product->rhs_contract);
      }
    }
    const Provenance around = builder_.provenance();
    if (sum.node != nullptr) builder_.set_provenance(Provenance::of(*sum.node, around));
    const Value total = builder_.emit(std::move(op), stacks).at(0);
    const Value start = node_.inputs[sum.carry];
    const bool from_zero = uniform_number(builder_.graph(), start.id) == 0.0;
    const Value result = from_zero ? total : builder_.emit_one(Binary{BinaryKind::Add}, {start, total});
    builder_.set_provenance(around);
    return result;
  }

  std::vector<Value> results() {
    std::vector<Value> values(body_.outputs.size());
    for (size_t o = 0; o < values.size(); ++o) {
      if (stays_[o])
        values[o] = loop_results_[o];
      else if (o < carried_ && facts_.is_fixed(o))
        values[o] = node_.inputs[o];
      else if (o >= carried_ && node_.result_uses[o] > 0)
        values[o] = stack_after(body_.outputs[o].value);
    }
    for (const CarriedSum& sum : sums_) values[sum.carry] = summed(sum);
    return values;
  }

  const NodeRewrite& node_;
  Loop loop_;
  Builder& builder_;
  Module& module_;
  const Graph& body_;
  size_t carried_, scanned_;
  LoopFacts facts_;
  bool for_micro_batches_ = false;
  std::vector<int64_t> first_stack_;  // of each value, the first output that stacks it, or -1
  std::vector<CarriedSum> sums_;
  std::vector<bool> stays_, wanted_stack_;       // of each output
  std::vector<bool> inside_, before_, stacked_;  // of each value: in the new body; before the loop; before it for all iterations
  std::map<ValueId, Value> outer_, outer_stack_;
  std::vector<Value> loop_results_;
};

Rewritten hoist(const NodeRewrite& node) {
  const auto* loop = std::get_if<Loop>(&node.op);
  // Of a loop that may not run at all nothing must be computed: it could fail.
  if (loop == nullptr || node.symbols().less_or_equal(1, loop->trip_count) != Truth::True) return std::nullopt;
  return LoopHoist(node).run();
}

}  // namespace

Module hoist_from_loops(Module module) {
  static constexpr Rewrite rewrites[] = {hoist, turn_loop_weights};
  return prune_graphs(rewrite_nodes(std::move(module), rewrites, [](const Op& op) { return std::holds_alternative<Loop>(op); }));
}

}  // namespace stepgraph
