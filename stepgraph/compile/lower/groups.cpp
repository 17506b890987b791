// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace stepgraph {
namespace {

constexpr size_t members_max = 96, accesses_max = 28;

std::vector<int64_t> reduced_dims(const Op& op) {
  if (const auto* reduce = std::get_if<Reduce>(&op)) return reduce->dims;
  if (const auto* reduce = std::get_if<Moments>(&op)) return reduce->dims;
  if (const auto* reduce = std::get_if<ArgReduce>(&op)) return {reduce->dim};
  return {};
}

bool is_reduction(const Node& node) { return op_info(node.op).element_kind == ElementKind::Reduce; }
const Shape& domain_shape(const Graph& graph, const Node& node) { return graph.type(is_reduction(node) ? node.inputs[0] : node.results[0]).shape; }

bool uses(const Affine& a, int factor) {
  return std::any_of(a.terms.begin(), a.terms.end(), [&](const AffineTerm& term) { return term.factor == factor; });
}

/// A factor becomes two: `inner` of them are the new one, right inside of it.
bool split_factor(Group& group, const FactorSplit& split) {
  const auto count = exact_quotient(group.factors[static_cast<size_t>(split.factor)].size, split.inner);
  if (!count) return false;
  group.factors[static_cast<size_t>(split.factor)].size = *count;
  const int inner = static_cast<int>(group.factors.size());
  group.factors.push_back({split.inner, -1, 0});
  group.reduced.push_back(group.reduced[static_cast<size_t>(split.factor)]);
  group.order.insert(std::find(group.order.begin(), group.order.end(), split.factor) + 1, inner);
  const auto apply = [&](Affine& a) {
    for (size_t i = 0; i < a.terms.size(); ++i) {
      if (a.terms[i].factor != split.factor) continue;
      const Dim coefficient = a.terms[i].coefficient;
      a.terms[i].coefficient = coefficient * split.inner;
      a.terms.push_back({inner, coefficient});
      break;
    }
  };
  for (GroupMember& member : group.members) std::for_each(member.domain.begin(), member.domain.end(), apply);
  for (GroupAccess& access : group.accesses) std::for_each(access.at.begin(), access.at.end(), apply);
  return true;
}

/// The places of B's factors in A's, found from a value that both have an index of.
class Alignment {
 public:
  Alignment(Group& a, Group& b) : a_(a), b_(b), place_(b.factors.size()) {}

  /// Both describe the same element. May split factors of A.
  bool match(std::span<const Affine> in_a, std::span<const Affine> in_b) {
    if (in_a.size() != in_b.size()) return false;
    for (size_t d = 0; d < in_a.size(); ++d)
      if (!match(in_a[d], in_b[d])) return false;
    return true;
  }

  /// Factors of B that no index had: those of A that are left, in order, where sizes agree; else new ones, if B may have them.
  bool place_the_rest() {
    std::vector<char> taken(a_.factors.size(), 0);
    for (const auto& place : place_)
      if (place)
        for (const AffineTerm& term : place->terms) taken[static_cast<size_t>(term.factor)] = 1;
    for (const int factor : b_.order) {
      if (place_[static_cast<size_t>(factor)]) continue;
      const auto free = std::find_if(a_.order.begin(), a_.order.end(), [&](int candidate) {
        return !taken[static_cast<size_t>(candidate)] && a_.factors[static_cast<size_t>(candidate)].size == b_.factors[static_cast<size_t>(factor)].size;
      });
      if (free == a_.order.end()) return false;
      taken[static_cast<size_t>(*free)] = 1;
      place_[static_cast<size_t>(factor)] = affine(*free);
    }
    return true;
  }

  std::vector<Affine> places() const {
    std::vector<Affine> places;
    for (const auto& place : place_) places.push_back(place.value_or(Affine{}));
    return places;
  }
  bool covers_all_of_a() const {
    std::set<int> covered;
    for (const auto& place : place_)
      if (place)
        for (const AffineTerm& term : place->terms) covered.insert(term.factor);
    return covered.size() == a_.factors.size();
  }

 private:
  bool match(Affine in_a, const Affine& in_b) {
    if (in_a.constant != in_b.constant) return false;
    if (in_b.terms.empty()) return in_a.terms.empty();
    if (in_b.terms.size() == 1) {
      const auto& [factor, coefficient] = in_b.terms[0];
      if (coefficient != Dim(1) || in_b.constant != Dim(0)) return in_a == placed(in_b);
      auto& place = place_[static_cast<size_t>(factor)];
      if (place) return *place == in_a;
      if (counted(in_a, a_.factors) != b_.factors[static_cast<size_t>(factor)].size) return false;
      place = in_a;
      return true;
    }
    // B counts through the dim by several factors: A's one factor is split alike.
    std::vector<AffineTerm> terms = in_b.terms;
    if (in_a.terms.size() == 1 && in_a.terms[0].coefficient == Dim(1) && in_a.constant == Dim(0) && counted(in_b, b_.factors) == a_.factors[static_cast<size_t>(in_a.terms[0].factor)].size) {
      // From the innermost outwards.
      Dim inner = 1;
      int outer_factor = in_a.terms[0].factor;
      std::vector<std::pair<int, int>> pairs;  // B's factor, A's factor
      while (!terms.empty()) {
        const auto next = std::find_if(terms.begin(), terms.end(), [&](const AffineTerm& term) { return term.coefficient == inner; });
        const int factor = next->factor;
        const Dim size = b_.factors[static_cast<size_t>(factor)].size;
        terms.erase(next);
        if (terms.empty()) {
          pairs.emplace_back(factor, outer_factor);
          break;
        }
        if (a_.reduced[static_cast<size_t>(outer_factor)]) return false;  // the order of its sum would change
        if (!split_factor(a_, {outer_factor, size})) return false;
        for (auto& place : place_)
          if (place && uses(*place, outer_factor)) return false;
        pairs.emplace_back(factor, static_cast<int>(a_.factors.size()) - 1);
        inner = inner * size;
      }
      for (const auto& [b_factor, a_factor] : pairs) {
        auto& place = place_[static_cast<size_t>(b_factor)];
        if (place && *place != affine(a_factor)) return false;
        place = affine(a_factor);
      }
      return true;
    }
    if (in_a.terms.size() != in_b.terms.size()) return false;
    for (const AffineTerm& term : in_b.terms) {
      const auto same = std::find_if(in_a.terms.begin(), in_a.terms.end(), [&](const AffineTerm& other) {
        return other.coefficient == term.coefficient && a_.factors[static_cast<size_t>(other.factor)].size == b_.factors[static_cast<size_t>(term.factor)].size;
      });
      if (same == in_a.terms.end()) return false;
      auto& place = place_[static_cast<size_t>(term.factor)];
      if (place && *place != affine(same->factor)) return false;
      place = affine(same->factor);
    }
    return true;
  }

  Affine placed(const Affine& in_b) const {
    Affine result = affine_constant(in_b.constant);
    for (const AffineTerm& term : in_b.terms) {
      const auto& place = place_[static_cast<size_t>(term.factor)];
      if (!place) return affine_constant(Dim(-1));
      result = result + *place * term.coefficient;
    }
    return result;
  }

  Group& a_;
  Group& b_;
  std::vector<std::optional<Affine>> place_;
};

class Grouper {
 public:
  Grouper(const Graph& graph, const std::vector<ValueId>& stored_views, const GroupOptions& options) : graph_(graph), options_(options) {
    grouping_.group_of.assign(graph.nodes.size(), -1);
    grouping_.stored_view.assign(graph.values.size(), 0);
    for (const ValueId value : stored_views) store_view(value);
  }

  Grouping run() {
    make_single_groups();
    find_depths();
    link();
    if (options_.fuse) {
      merge_producers();
      merge_siblings();
    }
    return collect();
  }

 private:
  void store_view(ValueId value) { grouping_.stored_view[at(value)] = 1; }
  bool is_stored(ValueId value) const { return grouping_.stored_view[at(value)] != 0; }

  bool is_member(const Node& node) const {
    const ElementKind kind = op_info(node.op).element_kind;
    if (kind == ElementKind::None) return false;
    if (kind == ElementKind::View) return is_stored(node.results[0]);
    return options_.can_emit(graph_, node);
  }

  /// A node alone: nothing if it has no form.
  std::optional<Group> single(int index) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    Group group;
    GroupMember member{index, {}};
    const std::vector<int64_t> reduced = reduced_dims(node.op);
    const Shape& shape = domain_shape(graph_, node);
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == Dim(1)) {
        member.domain.emplace_back();
        continue;
      }
      const int factor = static_cast<int>(group.factors.size());
      group.factors.push_back({shape[d], -1, 0});
      group.order.push_back(factor);
      group.reduced.push_back(std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(d)) != reduced.end());
      member.domain.push_back(affine(factor));
    }
    group.members = {member};
    for (int tries = 0; tries < 32; ++tries) {
      group.accesses.clear();
      const ReadFailure failure = read(group, node);
      if (!failure.any()) return group;
      if (failure.impossible) return std::nullopt;
      if (failure.wants_stored) store_view(*failure.wants_stored);
      else if (group.reduced[static_cast<size_t>(failure.split->factor)]) return store_operands(node) ? single(index) : std::nullopt;
      else if (!split_factor(group, *failure.split)) return std::nullopt;
    }
    return std::nullopt;
  }

  /// A sum has the order of its operand's dims: where they are not what memory has, the operand is stored in that order first.
  bool store_operands(const Node& node) {
    bool changed = false;
    for (const ValueId input : node.inputs) {
      const int32_t producer = graph_.values[at(input)].node;
      if (producer < 0 || is_stored(input) || op_info(graph_.nodes[static_cast<size_t>(producer)].op).element_kind != ElementKind::View) continue;
      store_view(input);
      changed = true;
    }
    return changed;
  }

  ReadFailure read(Group& group, const Node& node) {
    FormBuilder form;
    form.factors = group.factors;
    const auto note = [&](const LeafElement& element) {
      group.accesses.push_back({0, element.value, element.at, element.wants_memory(), element.computed_dim.has_value()});
      // Each access is another expression: what is read twice is one access all the same.
      return form.add(LoadExpr{element.value.index, element.number ? *element.number : number_of_index(element.at, graph_.type(element.value).shape), {}, {}}, {},
                      graph_.type(element.value).dtype);
    };
    ElementReader reader(graph_, form, [&](ValueId value) { return is_stored(value) && value != node.results[0]; }, note);
    const GroupMember& member = group.members[0];
    std::vector<Affine> kept, reduced;
    split_domain(graph_, member, kept, reduced);
    for (size_t result = 0; result < node.results.size(); ++result) reader.compute(node, result, kept, reduced);
    return reader.failure();
  }

 public:
  static void split_domain(const Graph& graph, const GroupMember& member, std::vector<Affine>& kept, std::vector<Affine>& reduced) {
    const std::vector<int64_t> dims = reduced_dims(graph.nodes[static_cast<size_t>(member.node)].op);
    for (size_t d = 0; d < member.domain.size(); ++d)
      (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end() ? reduced : kept).push_back(member.domain[d]);
  }

 private:
  void make_single_groups() {
    // Making one may want a view stored. That is a group as well then, though it comes before, and who read through it reads it instead.
    std::vector<char> stored;
    do {
      stored = grouping_.stored_view;
      groups_.clear();
      grouping_.group_of.assign(graph_.nodes.size(), -1);
      for (size_t i = 0; i < graph_.nodes.size(); ++i) {
        if (!is_member(graph_.nodes[i])) continue;
        if (auto group = single(static_cast<int>(i))) {
          grouping_.group_of[i] = static_cast<int>(groups_.size());
          groups_.push_back(std::move(*group));
        }
      }
    } while (stored != grouping_.stored_view);
    parent_.resize(groups_.size());
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  int find(int group) {
    while (parent_[static_cast<size_t>(group)] != group) group = parent_[static_cast<size_t>(group)] = parent_[static_cast<size_t>(parent_[static_cast<size_t>(group)])];
    return group;
  }

  /// Calls before a node on the longest path: groups of equal depth cannot have a call between them.
  void find_depths() {
    depth_.assign(graph_.nodes.size(), 0);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId input : graph_.nodes[i].inputs) {
        const int32_t producer = graph_.values[at(input)].node;
        if (producer < 0) continue;
        depth_[i] = std::max(depth_[i], depth_[static_cast<size_t>(producer)] + (is_call(static_cast<size_t>(producer)) ? 1 : 0));
      }
    }
    sink_recomputed();
  }
  /// What is run again is as deep as its readers allow: it hangs on early values alone, and would be fused with what is early.
  void sink_recomputed() {
    std::vector<int> least(graph_.nodes.size(), -1);  // depth of readers
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      if (graph_.nodes[i].phase == Phase::Recompute && least[i] >= 0) depth_[i] = std::max(depth_[i], least[i] - (is_call(i) ? 1 : 0));
      for (const ValueId input : graph_.nodes[i].inputs) {
        const int32_t producer = graph_.values[at(input)].node;
        if (producer < 0) continue;
        int& of_producer = least[static_cast<size_t>(producer)];
        of_producer = of_producer < 0 ? depth_[i] : std::min(of_producer, depth_[i]);
      }
    }
  }
  bool is_call(size_t node) const { return grouping_.group_of[node] < 0 && !is_free_view(graph_.nodes[node]) && !graph_.nodes[node].inputs.empty(); }
  bool is_free_view(const Node& node) const { return op_info(node.op).element_kind == ElementKind::View && !is_stored(node.results[0]); }

  int depth_of(int group) const { return depth_[static_cast<size_t>(groups_[static_cast<size_t>(group)].members[0].node)]; }
  int group_of_value(ValueId value) {
    const int32_t producer = graph_.values[at(value)].node;
    if (producer < 0) return -1;
    const int group = grouping_.group_of[static_cast<size_t>(producer)];
    return group < 0 ? -1 : find(group);
  }

  /// What reads what, while each node is alone.
  void link() {
    readers_.resize(groups_.size());
    single_reads_.resize(groups_.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const GroupAccess& access : groups_[g].accesses) {
        std::vector<ValueId>& reads = single_reads_[g];
        if (std::find(reads.begin(), reads.end(), access.value) == reads.end()) reads.push_back(access.value);
        const int from = group_of_value(access.value);
        if (from >= 0 && from != static_cast<int>(g)) readers_[static_cast<size_t>(from)].insert(static_cast<int>(g));
      }
    }
  }

  /// Whether something other than an edge leads from one group to the other.
  bool has_detour(int from, int to) {
    const int depth = depth_of(to);
    std::vector<int> todo;
    std::set<int> seen;
    for (const int next : readers_[static_cast<size_t>(from)]) {
      const int group = find(next);
      if (group != to && group != from && seen.insert(group).second) todo.push_back(group);
    }
    while (!todo.empty()) {
      const int group = todo.back();
      todo.pop_back();
      if (depth_of(group) > depth) continue;
      for (const int next : readers_[static_cast<size_t>(group)]) {
        const int target = find(next);
        if (target == to) return true;
        if (target != from && seen.insert(target).second) todo.push_back(target);
      }
    }
    return false;
  }

  bool covers_kept(const Group& group) const {
    for (const GroupMember& member : group.members) {
      for (size_t factor = 0; factor < group.factors.size(); ++factor) {
        if (group.reduced[factor]) continue;
        if (std::none_of(member.domain.begin(), member.domain.end(), [&](const Affine& a) { return uses(a, static_cast<int>(factor)); })) return false;
      }
    }
    return true;
  }

  /// Each value that the group computes is read in it at its own place.
  bool reads_in_place(const Group& group) const {
    std::map<ValueId, const GroupMember*> computed;
    for (const GroupMember& member : group.members)
      for (const ValueId result : graph_.nodes[static_cast<size_t>(member.node)].results) computed[result] = &member;
    for (const GroupAccess& access : group.accesses) {
      const auto found = computed.find(access.value);
      if (found == computed.end()) continue;
      if (access.wants_memory || access.at != result_index(graph_, *found->second)) return false;
    }
    return true;
  }

  /// Reductions over the same factors; a reduction along one factor (of an index) is along one still.
  bool reductions_agree(const Group& group) const {
    std::vector<char> first;
    for (const GroupMember& member : group.members) {
      const Node& node = graph_.nodes[static_cast<size_t>(member.node)];
      if (!is_reduction(node)) continue;
      std::vector<Affine> kept, reduced;
      split_domain(graph_, member, kept, reduced);
      std::vector<char> over(group.factors.size(), 0);
      for (const Affine& a : reduced)
        for (const AffineTerm& term : a.terms) over[static_cast<size_t>(term.factor)] = 1;
      for (const Affine& a : kept)
        for (const AffineTerm& term : a.terms)
          if (over[static_cast<size_t>(term.factor)]) return false;
      if (first.empty()) first = over;
      if (first != over) return false;
    }
    if (first.empty()) first.assign(group.factors.size(), 0);
    for (size_t factor = 0; factor < group.factors.size(); ++factor)
      if ((group.reduced[factor] != 0) != (first[factor] != 0)) return false;
    return true;
  }

  static bool has_reductions(const Group& group) { return std::any_of(group.reduced.begin(), group.reduced.end(), [](char is) { return is != 0; }); }

  /// Remembers why.
  std::optional<Group> refuse(JoinRefusal why) {
    refusal_ = why;
    return std::nullopt;
  }

  /// B put into A by the value that both know; nothing if that is not legal.
  std::optional<Group> joined(const Group& first, const Group& second, std::span<const Affine> in_first, std::span<const Affine> in_second) {
    if (first.members.size() + second.members.size() > members_max) return refuse(JoinRefusal::TooManyNodes);
    Group a = first, b = second;
    Alignment alignment(a, b);
    if (!alignment.match(in_first, in_second) || !alignment.place_the_rest()) return refuse(JoinRefusal::OtherFactors);
    if (!alignment.covers_all_of_a() && !has_reductions(a)) return refuse(JoinRefusal::OtherFactors);
    const std::vector<Affine> places = alignment.places();
    if (has_reductions(b)) {
      for (size_t factor = 0; factor < b.factors.size(); ++factor) {
        if (!b.reduced[factor]) continue;
        if (places[factor].terms.size() != 1) return refuse(JoinRefusal::SumOrder);  // a sum keeps the order of its own factors
        a.reduced[static_cast<size_t>(places[factor].terms[0].factor)] = 1;
      }
    }
    const int offset = static_cast<int>(a.members.size());
    for (GroupMember member : b.members) {
      for (Affine& index : member.domain) index = substitute(index, places);
      a.members.push_back(std::move(member));
    }
    for (GroupAccess access : b.accesses) {
      access.member += offset;
      for (Affine& index : access.at) index = substitute(index, places);
      a.accesses.push_back(std::move(access));
    }
    if (!reductions_agree(a)) return refuse(JoinRefusal::OtherReductions);
    if (!reads_in_place(a)) return refuse(JoinRefusal::OtherElements);
    if (!covers_kept(a)) return refuse(JoinRefusal::OtherFactors);
    if (!order_is_kept(first, second, a)) return refuse(JoinRefusal::SumOrder);
    return distinct_accesses(a) <= accesses_max ? std::optional(std::move(a)) : refuse(JoinRefusal::TooManyOperands);
  }

  /// Whether the innermost factor, by which the order of sums goes, is reduced as it was.
  static bool order_is_kept(const Group& first, const Group& second, const Group& both) {
    const auto inner_is_reduced = [](const Group& group) { return !group.order.empty() && group.reduced[static_cast<size_t>(group.order.back())] != 0; };
    for (const Group* group : {&first, &second})
      if (has_reductions(*group) && inner_is_reduced(*group) != inner_is_reduced(both)) return false;
    return true;
  }

  size_t distinct_accesses(const Group& group) const {
    std::set<ValueId> values;
    for (const GroupAccess& access : group.accesses) values.insert(access.value);
    return values.size();
  }

  void merge(int into, int from, Group group) {
    parent_[static_cast<size_t>(from)] = into;
    groups_[static_cast<size_t>(into)] = std::move(group);
    readers_[static_cast<size_t>(into)].insert(readers_[static_cast<size_t>(from)].begin(), readers_[static_cast<size_t>(from)].end());
  }

  /// Joins the groups if it is legal, whichever of the two gives the factors; else refusal_ tells why not.
  bool try_join(int one, int other, std::span<const Affine> in_one, std::span<const Affine> in_other) {
    refusal_ = depth_of(one) != depth_of(other) ? JoinRefusal::CallBetween : JoinRefusal::PathOutside;
    if (depth_of(one) != depth_of(other) || has_detour(one, other) || has_detour(other, one)) return false;
    const Group &a = groups_[static_cast<size_t>(one)], &b = groups_[static_cast<size_t>(other)];
    // The group that reduces gives the order of factors.
    const bool swap = has_reductions(b) && !has_reductions(a);
    std::optional<Group> group;
    if (!swap) group = joined(a, b, in_one, in_other);
    if (!group) group = joined(b, a, in_other, in_one);
    if (!group && swap) group = joined(a, b, in_one, in_other);
    if (!group) return false;
    merge(one, other, std::move(*group));
    return true;
  }

  void merge_producers() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (grouping_.group_of[i] < 0) continue;
      const int own = grouping_.group_of[i];
      // The node's own accesses, as they were read when it was alone.
      for (const ValueId value : single_reads_[static_cast<size_t>(own)]) {
        const int to = find(own), from = group_of_value(value);
        if (from < 0 || from == to) continue;
        const Group& reader = groups_[static_cast<size_t>(to)];
        refusal_ = JoinRefusal::Memory;
        for (const GroupAccess& access : reader.accesses) {
          if (access.value != value || access.wants_memory) continue;
          const GroupMember* producer = member_of(groups_[static_cast<size_t>(from)], value);
          const std::vector<Affine> place = result_index(graph_, *producer);
          const std::vector<Affine> read_at = access.at;
          try_join(from, to, place, read_at);
          break;
        }
        if (group_of_value(value) != find(own)) grouping_.refused.push_back({value, static_cast<int>(i), refusal_});
      }
    }
  }

  const GroupMember* member_of(const Group& group, ValueId value) const {
    const int32_t producer = graph_.values[at(value)].node;
    for (const GroupMember& member : group.members)
      if (member.node == producer) return &member;
    return nullptr;
  }

  /// Groups that read the same memory in the same way, when one reduces as the other does: one pass instead of two.
  void merge_siblings() {
    std::map<ValueId, std::vector<int>> readers;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (find(static_cast<int>(g)) != static_cast<int>(g)) continue;
      for (const GroupAccess& access : groups_[g].accesses)
        if (!access.wants_memory && graph_.type(access.value).rank() > 0) readers[access.value].push_back(static_cast<int>(g));
    }
    for (const auto& [value, list] : readers) {
      for (size_t i = 0; i < list.size(); ++i) {
        for (size_t j = i + 1; j < list.size(); ++j) {
          const int one = find(list[i]), other = find(list[j]);
          if (one == other || one < 0) continue;
          const Group &a = groups_[static_cast<size_t>(one)], &b = groups_[static_cast<size_t>(other)];
          if (has_reductions(a) != has_reductions(b) || a.factors.size() != b.factors.size()) continue;
          const GroupAccess* in_a = access_of(a, value);
          const GroupAccess* in_b = access_of(b, value);
          if (in_a == nullptr || in_b == nullptr) continue;
          const std::vector<Affine> at_a = in_a->at, at_b = in_b->at;
          try_join(one, other, at_a, at_b);
        }
      }
    }
  }
  static const GroupAccess* access_of(const Group& group, ValueId value) {
    for (const GroupAccess& access : group.accesses)
      if (access.value == value && !access.wants_memory) return &access;
    return nullptr;
  }

  Grouping collect() {
    // What was refused at first may have come together by another way.
    std::erase_if(grouping_.refused, [this](const RefusedJoin& join) { return group_of_value(join.value) == find(grouping_.group_of[static_cast<size_t>(join.reader)]); });
    std::vector<int> number(groups_.size(), -1);
    for (size_t node = 0; node < graph_.nodes.size(); ++node) {
      int& group = grouping_.group_of[node];
      if (group < 0) continue;
      const int root = find(group);
      if (number[static_cast<size_t>(root)] < 0) {
        number[static_cast<size_t>(root)] = static_cast<int>(grouping_.groups.size());
        Group& done = groups_[static_cast<size_t>(root)];
        sort_members(done);
        grouping_.groups.push_back(std::move(done));
      }
      group = number[static_cast<size_t>(root)];
    }
    return std::move(grouping_);
  }

  static void sort_members(Group& group) {
    std::vector<int> order(group.members.size()), number(group.members.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return group.members[static_cast<size_t>(a)].node < group.members[static_cast<size_t>(b)].node; });
    std::vector<GroupMember> members;
    for (const int i : order) {
      number[static_cast<size_t>(i)] = static_cast<int>(members.size());
      members.push_back(group.members[static_cast<size_t>(i)]);
    }
    group.members = std::move(members);
    for (GroupAccess& access : group.accesses) access.member = number[static_cast<size_t>(access.member)];
  }

  const Graph& graph_;
  const GroupOptions& options_;
  Grouping grouping_;
  std::vector<Group> groups_;
  std::vector<int> parent_, depth_;
  std::vector<std::set<int>> readers_;  // of what a group computes
  std::vector<std::vector<ValueId>> single_reads_;  // by group at first
  JoinRefusal refusal_{};                           // of the last join that was tried
};

}  // namespace

std::string_view text(JoinRefusal refusal) {
  switch (refusal) {
    case JoinRefusal::CallBetween: return "a call stands between them";
    case JoinRefusal::PathOutside: return "a path leads through a third kernel";
    case JoinRefusal::TooManyNodes: return "too many operations for one kernel";
    case JoinRefusal::TooManyOperands: return "too many operands for one kernel";
    case JoinRefusal::OtherFactors: return "counts through other dims";
    case JoinRefusal::OtherElements: return "reads other elements than are made at a place";
    case JoinRefusal::OtherReductions: return "sums over other dims";
    case JoinRefusal::SumOrder: return "the order of a sum would change";
    case JoinRefusal::Memory: return "reads by a computed index or past an edge";
  }
  return "";
}

std::vector<Affine> result_index(const Graph& graph, const GroupMember& member) {
  std::vector<Affine> kept, reduced;
  Grouper::split_domain(graph, member, kept, reduced);
  return kept;
}

std::vector<Affine> reduced_index(const Graph& graph, const GroupMember& member) {
  std::vector<Affine> kept, reduced;
  Grouper::split_domain(graph, member, kept, reduced);
  return reduced;
}

Grouping group_nodes(const Graph& graph, const std::vector<ValueId>& stored_views, const GroupOptions& options) { return Grouper(graph, stored_views, options).run(); }

}  // namespace stepgraph
