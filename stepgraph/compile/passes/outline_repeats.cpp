// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/passes/outline_repeats.h"

#include <algorithm>
#include <set>

#include "stepgraph/compile/ops/composite/composite.h"
#include "stepgraph/compile/passes/op_hash.h"
#include "stepgraph/compile/passes/repeated_block.h"
#include "stepgraph/compile/passes/repeated_runs.h"

namespace stepgraph {
namespace {

constexpr size_t least_gain = 8;
constexpr size_t phases_tried = 4;
constexpr int most_rounds = 8;

/// Nodes that calls in place of the blocks save.
size_t gain(size_t period, size_t count) {
  const size_t flat = period * count, outlined = period + count;
  return flat > outlined ? flat - outlined : 0;
}

/// Finds the groups of one graph, the most rewarding first; they do not overlap.
class GroupSearch {
 public:
  GroupSearch(const Graph& graph, const BlockSequence& sequence, GraphClasses& classes)
      : graph_(graph), sequence_(sequence), classes_(classes), taken_(sequence.nodes.size()), work_left_(64 * sequence.nodes.size() + 4096) {}

  std::vector<BlockGroup> run() {
    std::vector<uint64_t> tokens;
    for (size_t n : sequence_.nodes) tokens.push_back(token(graph_.nodes[n]));
    std::vector<RepeatedRun> runs = repeated_runs(tokens);
    std::stable_sort(runs.begin(), runs.end(), [](const RepeatedRun& a, const RepeatedRun& b) {
      const size_t gain_a = gain(a.period, a.count()), gain_b = gain(b.period, b.count());
      return gain_a != gain_b ? gain_a > gain_b : a.period != b.period ? a.period < b.period : a.start < b.start;
    });
    score_boundaries();
    for (const RepeatedRun& run : runs) {
      if (gain(run.period, run.count()) < least_gain || !spend(run.length)) break;
      // What is left of it between the groups that were taken.
      for (size_t begin = run.start, end = run.start + run.length; begin < end;) {
        size_t stop = begin;
        while (stop < end && !taken_[stop]) ++stop;
        if (gain(run.period, (stop - begin) / run.period) >= least_gain) search(begin, stop, run.period);
        begin = stop;
        while (begin < end && taken_[begin]) ++begin;
      }
    }
    std::sort(groups_.begin(), groups_.end(), [](const BlockGroup& a, const BlockGroup& b) { return a.start < b.start; });
    return std::move(groups_);
  }

 private:
  const Node& node(size_t position) const { return graph_.nodes[sequence_.nodes[position]]; }
  bool spend(size_t work) {
    const bool can = work_left_ >= work;
    work_left_ -= can ? work : work_left_;
    return can;
  }

  uint64_t token(const Node& node) {
    uint64_t hash = classes_.hash(node.op);
    for (ValueId input : node.inputs) hash = mix_hash(hash, type_hash(graph_.type(input)));
    return mix_hash(hash, node.inputs.size());
  }

  /// How bad a cut before each node is: inside a scope of the model, and by how many values cross it.
  void score_boundaries() {
    const size_t count = sequence_.nodes.size();
    scope_depth_.resize(count + 1);
    crossing_.resize(count + 1);
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) scope_depth_[i] = common_scope(node(i - 1).scope, node(i).scope);
      for (ValueId result : node(i).results) {
        const size_t last = sequence_.last_user[static_cast<size_t>(result.index)];
        if (last <= i) continue;
        ++crossing_[i + 1];
        if (last < count) --crossing_[last + 1];
      }
    }
    for (size_t i = 1; i <= count; ++i) crossing_[i] += crossing_[i - 1];
  }

  /// Cuts [begin, end) into blocks where the cuts are best, and takes those that are the same.
  void search(size_t begin, size_t end, size_t period) {
    struct Phase {
      size_t start, depth;
      int64_t crossing;
    };
    std::vector<Phase> phases;
    const size_t count = (end - begin) / period;
    for (size_t start = begin; start + count * period <= end; ++start) {
      Phase phase{start, 0, 0};
      for (size_t i = 0; i <= count; ++i) phase.depth += scope_depth_[start + i * period], phase.crossing += crossing_[start + i * period];
      phases.push_back(phase);
    }
    std::stable_sort(phases.begin(), phases.end(),
                     [](const Phase& a, const Phase& b) { return a.depth != b.depth ? a.depth < b.depth : a.crossing < b.crossing; });
    for (size_t i = 0; i < std::min(phases.size(), phases_tried) && spend(end - begin); ++i)
      if (take(phases[i].start, period, count)) return;
  }

  bool take(size_t start, size_t period, size_t count) {
    bool any = false;
    for (size_t first = 0; first < count;) {
      size_t equal = 1;
      while (first + equal < count && same_block(start + first * period, start + (first + equal) * period, period)) ++equal;
      if (gain(period, equal) >= least_gain) {
        any = true;
        groups_.push_back({start + first * period, period, equal});
        std::fill_n(taken_.begin() + static_cast<ptrdiff_t>(groups_.back().start), period * equal, true);
      }
      first += equal;
    }
    return any;
  }

  /// Where in the block that starts there the value is made; `none` for one from outside.
  std::pair<size_t, size_t> place_inside(size_t start, ValueId value) const {
    const int32_t made_by = graph_.values[static_cast<size_t>(value.index)].node;
    const size_t position = made_by < 0 ? BlockSequence::none : sequence_.place[static_cast<size_t>(made_by)];
    if (position == BlockSequence::none || position < start) return {BlockSequence::none, 0};
    const std::vector<ValueId>& results = graph_.nodes[static_cast<size_t>(made_by)].results;
    return {position - start, static_cast<size_t>(std::find(results.begin(), results.end(), value) - results.begin())};
  }

  bool same_block(size_t a, size_t b, size_t period) {
    for (size_t j = 0; j < period; ++j) {
      const Node &one = node(a + j), &other = node(b + j);
      if (one.inputs.size() != other.inputs.size() || one.results.size() != other.results.size() || !classes_.same(one.op, other.op)) return false;
      for (size_t i = 0; i < one.inputs.size(); ++i)
        if (!(graph_.type(one.inputs[i]) == graph_.type(other.inputs[i])) || place_inside(a, one.inputs[i]) != place_inside(b, other.inputs[i])) return false;
      for (size_t i = 0; i < one.results.size(); ++i)
        if (!(graph_.type(one.results[i]) == graph_.type(other.results[i]))) return false;
    }
    return true;
  }

  const Graph& graph_;
  const BlockSequence& sequence_;
  GraphClasses& classes_;
  std::vector<bool> taken_;
  size_t work_left_;  // a bound for sequences made to be slow
  std::vector<size_t> scope_depth_;
  std::vector<int64_t> crossing_;
  std::vector<BlockGroup> groups_;
};

class Outliner {
 public:
  explicit Outliner(Module& module) : module_(module), classes_(module) {
    for (const Graph& graph : module.graphs) names_.insert(graph.name);
  }

  void run() {
    std::set<GraphId> left_alone;
    if (const auto init = module_.find_entry("init")) left_alone.insert(*init);
    for (const Graph& graph : module_.graphs) {
      if (graph.gradient) left_alone.insert(*graph.gradient);
      for (const Node& node : graph.nodes)
        if (const auto* map = std::get_if<MapTensors>(&node.op)) left_alone.insert(map->body);
    }
    const auto eval = module_.find_entry("eval");
    for (size_t i = 0; i < module_.graphs.size(); ++i) {
      const GraphId id{static_cast<int32_t>(i)};
      if (!module_.graph(id).composite.empty() || left_alone.count(id)) continue;
      for (int rounds = 0; rounds < most_rounds && round(id, eval && *eval == id ? ".eval" : ""); ++rounds) {
      }
    }
  }

 private:
  /// Each round that finds something leaves fewer nodes.
  bool round(GraphId id, const std::string& suffix) {
    Graph& graph = module_.graph(id);
    const BlockSequence sequence(graph);
    const std::vector<BlockGroup> groups = GroupSearch(graph, sequence, classes_).run();
    if (groups.empty()) return false;
    std::vector<Node> nodes;
    size_t next = 0;  // node of the flat graph
    auto keep_sources = [&](size_t end) {
      for (; next < end; ++next)
        if (sequence.place[next] == BlockSequence::none) nodes.push_back(graph.nodes[next]);
    };
    for (const BlockGroup& group : groups) {
      const size_t first = sequence.nodes[group.start];
      for (; next < first; ++next) nodes.push_back(graph.nodes[next]);
      OutlinedBlocks blocks = outline_blocks(graph, sequence, group, classes_);
      blocks.body.name += suffix;
      const GraphId body = add_body(std::move(blocks.body));
      for (size_t i = 0; i < group.count; ++i) {
        // Sources may lie between the block's nodes: the call stands where its last node was.
        const Node& start = graph.nodes[sequence.nodes[group.start + i * group.period]];
        keep_sources(sequence.nodes[group.start + (i + 1) * group.period - 1] + 1);
        BlockCall& call = blocks.calls[i];
        nodes.push_back({Call{body}, std::move(call.arguments), std::move(call.results), start.place, std::move(call.scope), start.phase});
      }
    }
    for (; next < graph.nodes.size(); ++next) nodes.push_back(std::move(graph.nodes[next]));
    graph.nodes = std::move(nodes);
    remove_dead_nodes(graph);
    return true;
  }

  /// An earlier body that is equal (of evaluation and training, of stages alike), or this one under a name of its own.
  GraphId add_body(Graph body) {
    for (GraphId known : bodies_)
      if (equal_graphs(module_.graph(known), body)) return known;
    std::string name = body.name;
    for (int64_t i = 2; !names_.insert(name).second; ++i) name = body.name + "." + std::to_string(i);
    bodies_.push_back(module_.add_graph(name));
    Graph& added = module_.graph(bodies_.back());
    body.name = name;
    added = std::move(body);
    return bodies_.back();
  }

  Module& module_;
  GraphClasses classes_;
  std::set<std::string> names_;
  std::vector<GraphId> bodies_;
};

}  // namespace

Module outline_repeats(Module module) {
  SG_CHECK(module.stage == Stage::Logical, "repeats are outlined in a logical module");
  Outliner(module).run();
  return prune_graphs(std::move(module));
}

}  // namespace stepgraph
