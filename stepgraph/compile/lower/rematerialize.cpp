// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/rematerialize.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stepgraph/compile/lower/minimum_cut.h"
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {
namespace {

using Price = Rematerialization::Price;

// Of one core, in picoseconds: only their proportion matters.
constexpr int64_t byte_ps = 100, call_flop_ps = 16, element_flop_ps = 60;
constexpr int64_t any_price_ps = int64_t{1} << 20;  // a byte, where all that counts is bytes
constexpr int64_t most_bytes = int64_t{1} << 38;    // beyond that sizes do not differ

int64_t price_of_byte(Price price) {
  switch (price) {
    case Price::Bandwidth: return byte_ps;
    case Price::FourTimes: return 4 * byte_ps;
    case Price::SixteenTimes: return 16 * byte_ps;
    case Price::SixtyFourTimes: return 64 * byte_ps;
    case Price::AnyWithoutCalls:
    case Price::Any: return any_price_ps;
  }
  throw InternalError("unknown price");
}

/// "h.3" of "h.3.attn.c_proj"; the first word where no part is a number.
std::string layer_of(const std::string& scope) {
  for (size_t begin = 0; begin < scope.size();) {
    const size_t end = std::min(scope.find('.', begin), scope.size());
    if (std::all_of(scope.begin() + static_cast<std::ptrdiff_t>(begin), scope.begin() + static_cast<std::ptrdiff_t>(end), [](char c) { return c >= '0' && c <= '9'; }))
      return scope.substr(0, end);
    begin = end + 1;
  }
  return scope.substr(0, scope.find('.'));
}

bool runs_once(const Op& op) {
  return std::holds_alternative<ArgSort>(op) || std::holds_alternative<Call>(op) || std::holds_alternative<Loop>(op) || std::holds_alternative<MapTensors>(op) || std::holds_alternative<Reshard>(op) ||
         std::holds_alternative<AllReduce>(op) || std::holds_alternative<AllGather>(op) || std::holds_alternative<ReduceScatter>(op);
}

class Cut {
 public:
  Cut(Graph& graph, const SymbolTable& symbols, const Rematerialization& how, RematerializeResult& result)
      : graph_(graph), symbols_(symbols), how_(how), result_(result) {}

  void run() {
    find_early();
    find_segments();
    find_wanted();
    if (std::none_of(wanted_.begin(), wanted_.end(), [](char is) { return is != 0; })) return;
    result_.read_later_bytes += bytes_read_later();
    for (int segment = segments_; segment-- > 0;) solve(segment);
    result_.kept_bytes += bytes_read_later();
    rebuild();
  }

 private:
  const OpInfo& info(const Node& node) const { return op_info(node.op); }
  bool is_view(const Node& node) const { return info(node).element_kind == ElementKind::View; }
  bool is_call(const Node& node) const { return info(node).element_kind == ElementKind::None && !node.inputs.empty(); }
  int producer(ValueId value) const { return graph_.values[at(value)].node; }
  bool is_early(ValueId value) const { return producer(value) >= 0 && early_[static_cast<size_t>(producer(value))] != 0; }

  /// What forward computes, and what of backward hangs on nothing that a call of backward made: a factor of a gradient may be made when forward comes by, or later.
  void find_early() {
    early_.assign(graph_.nodes.size(), 0);
    place_.resize(graph_.nodes.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      bool early = node.phase == Phase::Forward || node.phase == Phase::None || (node.phase == Phase::Backward && !is_call(node));
      place_[n] = node.phase == Phase::Backward ? 0 : static_cast<int>(n);
      for (const ValueId input : node.inputs) {
        early = early && (producer(input) < 0 || is_early(input));
        if (producer(input) >= 0) place_[n] = std::max(place_[n], place_[static_cast<size_t>(producer(input))]);
      }
      early_[n] = early ? 1 : 0;
    }
  }

  void find_segments() {
    std::map<std::string, int> known;
    std::vector<char> is_layer;
    segment_.assign(graph_.nodes.size(), -1);
    int last = 0;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.scope.empty()) {
        const std::string layer = layer_of(node.scope);
        const auto found = early_[n] && node.phase == Phase::Forward ? known.emplace(layer, static_cast<int>(known.size()) + 1).first : known.find(layer);
        if (found != known.end()) last = found->second;
      }
      segment_[n] = last;
      if (!early_[n]) continue;
      segment_[n] = node.phase == Phase::Backward || node.scope.empty() ? 0 : last;
      for (const ValueId input : node.inputs)
        if (producer(input) >= 0) segment_[n] = std::max(segment_[n], segment_[static_cast<size_t>(producer(input))]);
    }
    segments_ = (static_cast<int>(known.size()) + how_.layers - 1) / how_.layers + 1;
    result_.layers = std::max(result_.layers, static_cast<int>(known.size()));
    for (int& segment : segment_) segment = (segment + how_.layers - 1) / how_.layers;
  }

  /// Values of the early part that the late part reads.
  void find_wanted() {
    wanted_.assign(graph_.values.size(), 0);
    is_edge_.assign(graph_.values.size(), 0);
    again_.assign(graph_.nodes.size(), 0);
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!early_[n])
        for (const ValueId input : graph_.nodes[n].inputs)
          if (is_early(input)) wanted_[at(input)] = 1;
  }

  double most(const Dim& dim) const {
    const int64_t maximum = symbols_.bounds(dim).maximum;
    return static_cast<double>(std::max<int64_t>(maximum == INT64_MAX ? 1024 : maximum, 0));
  }
  int64_t bytes(ValueId value) const {
    double count = static_cast<double>(size_bytes(graph_.type(value).dtype));
    for (const Dim& dim : graph_.type(value).shape) count *= most(dim);
    return static_cast<int64_t>(std::min(count, static_cast<double>(most_bytes)));
  }

  /// Without end for what is not run again.
  int64_t run_ps(const Node& node, Price price) const {
    if (is_view(node)) return 1;
    if (runs_once(node.op)) return unlimited_capacity;
    if (is_call(node) && price == Price::AnyWithoutCalls) return unlimited_capacity;
    std::vector<TensorType> inputs, results;
    for (const ValueId input : node.inputs) inputs.push_back(graph_.type(input));
    for (const ValueId result : node.results) results.push_back(graph_.type(result));
    const Cost cost = info(node).cost({node.op, inputs, results});
    double ps = most(cost.flops) * static_cast<double>(is_call(node) ? call_flop_ps : element_flop_ps);
    // A call goes through memory; what is fused does not.
    if (is_call(node) || info(node).element_kind == ElementKind::Reduce) ps += most(cost.bytes) * static_cast<double>(byte_ps) / 2;
    return static_cast<int64_t>(std::min(ps, 1e17)) + 1;
  }

  Price price_in(int segment) const {
    const bool is_dear = segment * 8 <= (segments_ - 1) * how_.eighths;
    return is_dear || how_.price == Price::Bandwidth ? how_.price : static_cast<Price>(static_cast<int>(how_.price) - 1);
  }

  void solve(int segment) {
    const Price price = price_in(segment);
    std::vector<int> nodes;
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (early_[n] && segment_[n] == segment) nodes.push_back(static_cast<int>(n));
    FlowNetwork network;
    std::map<int, int> vertex_of_node, vertex_of_value;
    const auto vertex = [&](std::map<int, int>& table, int index) { return table.try_emplace(index, network.vertices).second ? network.vertices++ : table.at(index); };
    for (const int n : nodes) {
      const Node& node = graph_.nodes[static_cast<size_t>(n)];
      const int own = vertex(vertex_of_node, n);
      network.edges.push_back({0, own, run_ps(node, price)});
      for (const ValueId input : node.inputs)
        if (is_early(input) && !is_edge_[at(input)] && segment_[static_cast<size_t>(producer(input))] == segment) network.edges.push_back({vertex(vertex_of_value, input.index), own, unlimited_capacity});
      for (const ValueId result : node.results) {
        if (is_edge_[at(result)]) continue;
        const int value = vertex(vertex_of_value, result.index);
        network.edges.push_back({own, value, is_view(node) ? unlimited_capacity : bytes(result) * price_of_byte(price) + 1});
        if (wanted_[at(result)]) network.edges.push_back({value, 1, unlimited_capacity});
      }
    }
    const auto known = solved_.try_emplace(network);
    if (known.second) known.first->second = minimum_cut(network);
    const std::vector<char>& kept_side = known.first->second;
    for (const int n : nodes) {
      if (kept_side[static_cast<size_t>(vertex_of_node.at(n))]) continue;
      again_[static_cast<size_t>(n)] = 1;
      for (const ValueId input : graph_.nodes[static_cast<size_t>(n)].inputs) {
        if (!is_early(input)) continue;
        wanted_[at(input)] = 1;
        if (segment_[static_cast<size_t>(producer(input))] != segment) keep_edge(input);
      }
    }
  }

  /// What a segment finds there when it is run again: kept, or all segments before it would run again as well. Views and sources are made again as they are.
  void keep_edge(ValueId value) {
    if (!is_early(value)) return;
    const Node& node = graph_.nodes[static_cast<size_t>(producer(value))];
    if (node.inputs.empty()) return;
    wanted_[at(value)] = 1;
    if (!is_view(node)) is_edge_[at(value)] = 1;
    else
      for (const ValueId input : node.inputs) keep_edge(input);
  }

  /// Of storages that are read late, through views.
  int64_t bytes_read_later() const {
    std::set<int> storages;
    for (size_t v = 0; v < wanted_.size(); ++v) {
      if (!wanted_[v]) continue;
      ValueId root{static_cast<int32_t>(v)};
      while (producer(root) >= 0 && is_view(graph_.nodes[static_cast<size_t>(producer(root))]) && !graph_.nodes[static_cast<size_t>(producer(root))].inputs.empty())
        root = graph_.nodes[static_cast<size_t>(producer(root))].inputs[0];
      if (is_early(root) && !again_[static_cast<size_t>(producer(root))]) storages.insert(root.index);
    }
    return std::accumulate(storages.begin(), storages.end(), int64_t{0}, [&](int64_t sum, int v) { return sum + bytes({v}); });
  }

  /// The value as the late part reads it.
  ValueId late(ValueId value, int segment) {
    if (!is_early(value) || !again_[static_cast<size_t>(producer(value))]) return value;
    const int n = producer(value);
    // What is cheap and of another layer than its readers is made for each of these anew, or it would live through all of backward.
    const Node& original = graph_.nodes[static_cast<size_t>(n)];
    const int key = is_call(original) || segment_[static_cast<size_t>(n)] == segment ? -1 : segment;
    if (const auto known = clones_.find({value.index, key}); known != clones_.end()) return known->second;
    Node copy = original;
    copy.phase = Phase::Recompute;
    for (ValueId& input : copy.inputs) input = late(input, segment);
    ValueId found = value;
    for (ValueId& result : copy.results) {
      graph_.values.push_back({graph_.type(result), -1});
      const ValueId own{static_cast<int32_t>(graph_.values.size()) - 1};
      clones_[{result.index, key}] = own;
      if (result == value) found = own;
      result = own;
    }
    if (!is_view(copy)) ++result_.clones, seconds_ps_ += static_cast<double>(run_ps(copy, Price::Any));
    nodes_.push_back(std::move(copy));
    return found;
  }

  void rebuild() {
    std::vector<size_t> order;
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (early_[n]) order.push_back(n);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place_[a] < place_[b]; });
    for (const size_t n : order) nodes_.push_back(graph_.nodes[n]);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (early_[n]) continue;
      Node node = graph_.nodes[n];
      for (ValueId& input : node.inputs) input = late(input, segment_[n]);
      nodes_.push_back(std::move(node));
    }
    graph_.nodes = std::move(nodes_);
    number_producers(graph_);
    remove_dead_nodes(graph_);
    result_.seconds += seconds_ps_ * 1e-12;
  }

  Graph& graph_;
  const SymbolTable& symbols_;
  const Rematerialization& how_;
  RematerializeResult& result_;
  std::vector<char> early_, again_;  // by node
  std::vector<char> wanted_, is_edge_;  // by value
  std::vector<int> segment_, place_;  // by node; place: where in the early part
  int segments_ = 0;
  double seconds_ps_ = 0;
  std::map<FlowNetwork, std::vector<char>> solved_;
  std::map<std::pair<int, int>, ValueId> clones_;
  std::vector<Node> nodes_;
};

bool has_both_directions(const Graph& graph) {
  const auto has = [&](Phase phase) { return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.phase == phase; }); };
  return has(Phase::Forward) && has(Phase::Backward);
}

}  // namespace

RematerializeResult rematerialize(Module flat, const SymbolTable& symbols, const Rematerialization& how, int threads) {
  RematerializeResult result;
  const auto cut = [&](GraphId graph) {
    if (has_both_directions(flat.graph(graph))) Cut(flat.graph(graph), symbols, how, result).run();
  };
  for (const Entry& entry : flat.entries) {
    for (const Node& node : flat.graph(entry.graph).nodes)
      if (const auto* loop = std::get_if<Loop>(&node.op)) cut(loop->body);
    cut(entry.graph);
  }
  result.seconds /= threads;
  result.module = std::move(flat);
  return result;
}

}  // namespace stepgraph
