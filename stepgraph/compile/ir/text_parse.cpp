// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "stepgraph/base/text_scanner.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/tensor/declaration_text.h"

namespace stepgraph {
namespace {

/// Passes may take time that grows with the square of a shape's dims; no model has as many.
constexpr size_t most_dims = 256;

constexpr int64_t format_version = 1;
constexpr int line_max = 1'000'000'000;

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

/// The name nearest to `text`: "reduce_sum" for "sum" too, since a name that contains it is near.
std::string nearest(std::string_view text, const std::vector<std::string>& names) {
  const std::string_view start = text.substr(0, 64);
  const auto distance = [&](const std::string& name) {
    const bool contains = start.size() >= 3 && name.find(start) != std::string::npos;
    return contains ? size_t{0} : edit_distance(start, name);
  };
  const auto best = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  return best == names.end() ? std::string() : *best;
}

/// A scanner with a memory of where statements began, and errors at any of these places.
class Reader : public TextScanner {
 public:
  Reader(std::string_view text, const std::string& name) : TextScanner(text, name), text_(text) {}

  /// Line of an offset; asked in ascending order, so that all of them together read the text once.
  int line_at(size_t offset) {
    counted_line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_to_), text_.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
    counted_to_ = offset;
    return counted_line_;
  }
  /// Reads text[begin, end) by `read`, a parser of its own whose error "what:line:column: message" gets the place in this text.
  template <class Read>
  auto nested(size_t begin, size_t end, const Read& read) {
    const std::string_view part = text_.substr(begin, end - begin);
    try {
      return read(part);
    } catch (const UserError& error) {
      const auto [offset, message] = inner_place(part, error.what());
      // The end of the part is not the end of the text.
      constexpr std::string_view found_end = "found the end, wanted ";
      if (message.starts_with(found_end) && end == this->offset()) fail_wanted(message.substr(found_end.size()));
      fail_at(begin + offset, message);
    }
  }

  Dim dim() {
    const size_t begin = mark();
    const std::string_view part = balanced_until(",)");
    return nested(begin, begin + part.size(), [](std::string_view text) { return parse_dim(text); });
  }

  /// "<{data}, {}>"
  Sharding sharding() {
    expect("<");
    const size_t begin = mark();
    const std::string_view part = balanced_until(">");
    Sharding result = nested(begin, begin + part.size(), [](std::string_view text) { return parse_sharding(text); });
    expect(">");
    return result;
  }

  Shape shape() {
    Shape result;
    const size_t begin = mark();
    list("[", "]", [&] {
      if (result.size() == most_dims) fail_at(begin, "found a shape of more than " + std::to_string(most_dims) + " dims");
      result.push_back(dim());
    });
    return result;
  }

  /// "f32[batch, 64]<{data}, {}>"
  TensorType type() {
    TensorType result;
    result.dtype = read_dtype(*this);
    result.shape = shape();
    if (next_is("<")) result.sharding = sharding();
    return result;
  }

 private:
  static std::pair<size_t, std::string> inner_place(std::string_view part, std::string_view message) {
    const size_t name_end = message.find(':');
    int line = 0, column = 0;
    if (name_end == std::string_view::npos) return {0, std::string(message)};
    const char* end = message.data() + message.size();
    const auto [line_end, line_error] = std::from_chars(message.data() + name_end + 1, end, line);
    if (line_error != std::errc{} || line_end == end || *line_end != ':') return {0, std::string(message)};
    const auto [column_end, column_error] = std::from_chars(line_end + 1, end, column);
    if (column_error != std::errc{} || !std::string_view(column_end, end).starts_with(": ")) return {0, std::string(message)};
    size_t offset = 0;
    for (; line > 1; --line) offset = std::min(part.find('\n', offset), part.size() - 1) + 1;
    return {std::min(offset + static_cast<size_t>(column) - 1, part.size()), std::string(column_end + 2, end)};
  }

  std::string_view text_;
  size_t counted_to_ = 0;
  int counted_line_ = 1;
};

/// Graphs may be named before they are defined. Ids are given in order of first mention and renumbered to order of definition at the end.
class GraphNames {
 public:
  GraphId mention(const std::string& name, size_t offset) {
    const auto [found, added] = ids_.try_emplace(name, static_cast<int32_t>(known_.size()));
    if (added) known_.push_back({name, offset, {}});
    return {found->second};
  }
  /// False if the graph is defined already.
  bool define(GraphId id) {
    GraphId& defined = known_[static_cast<size_t>(id.index)].defined;
    if (defined.index >= 0) return false;
    defined.index = defined_++;
    return true;
  }
  /// Mentioned id to defined id.
  std::vector<GraphId> map(const Reader& reader) const {
    std::vector<GraphId> result;
    for (const Known& known : known_) {
      if (known.defined.index < 0) reader.fail_at(known.mentioned, "graph @" + known.name + " is not defined in this module");
      result.push_back(known.defined);
    }
    return result;
  }

 private:
  struct Known {
    std::string name;
    size_t mentioned;
    GraphId defined;
  };
  std::map<std::string, int32_t, std::less<>> ids_;
  std::vector<Known> known_;
  int32_t defined_ = 0;
};

GraphId read_graph_name(Reader& reader, GraphNames& names) {
  const size_t begin = reader.mark();
  reader.expect("@");
  return names.mention(reader.word_or_quoted("the name of a graph"), begin);
}

template <class Kind>
Kind read_kind(Reader& reader, const std::function<std::optional<Kind>(std::string_view)>& from_name, const std::string& wanted) {
  const size_t begin = reader.mark();
  const std::string word = reader.identifier(wanted);
  const std::optional<Kind> kind = from_name(word);
  if (!kind) reader.fail_at(begin, "found '" + word + "', wanted " + wanted);
  return *kind;
}

/// Reads the attribute called `wanted` of an op, whatever its type; notes the names of the others.
class FieldReader : public EachField<FieldReader> {
 public:
  FieldReader(Reader& reader, GraphNames& graphs, int64_t& splat_bytes, std::string wanted)
      : reader_(reader), graphs_(graphs), splat_bytes_(splat_bytes), wanted_(std::move(wanted)) {}
  bool found = false;
  std::vector<std::string> names;

  void field(std::string_view name, bool& value) {
    if (!is_wanted(name)) return;
    value = reader_.try_consume("true");
    if (!value && !reader_.try_consume("false")) reader_.fail_wanted("true or false");
  }
  void field(std::string_view name, int64_t& value) {
    if (is_wanted(name)) value = reader_.integer();
  }
  void field(std::string_view name, std::vector<int64_t>& value) {
    if (!is_wanted(name)) return;
    value.clear();
    reader_.list("[", "]", [&] { value.push_back(reader_.integer()); });
  }
  void field(std::string_view name, std::string& value) {
    if (is_wanted(name)) value = reader_.quoted_string();
  }
  void field(std::string_view name, double& value) {
    if (is_wanted(name)) value = reader_.real();
  }
  void field(std::string_view name, DType& value) {
    if (is_wanted(name)) value = read_dtype(reader_);
  }
  void field(std::string_view name, std::optional<DType>& value) {
    if (is_wanted(name)) value = read_dtype(reader_);
  }
  void field(std::string_view name, Dim& value) {
    if (is_wanted(name)) value = reader_.dim();
  }
  void field(std::string_view name, Shape& value) {
    if (is_wanted(name)) value = reader_.shape();
  }
  void field(std::string_view name, Literal& value) {
    if (is_wanted(name)) value = read_literal(reader_, splat_bytes_);
  }
  void field(std::string_view name, GraphId& value) {
    if (is_wanted(name)) value = read_graph_name(reader_, graphs_);
  }
  void field(std::string_view name, EnumRef value) {
    if (is_wanted(name)) *value.value = static_cast<uint8_t>(reader_.one_of(value.names));
  }
  void field(std::string_view name, std::vector<AxisRef>& value) {
    if (!is_wanted(name)) return;
    value.clear();
    reader_.list("[", "]", [&] { value.push_back(read_axis(reader_)); });
  }
  void field(std::string_view name, Sharding& value) {
    if (is_wanted(name)) value = reader_.sharding();
  }

 private:
  bool is_wanted(std::string_view name) {
    names.emplace_back(name);
    if (name != wanted_) return false;
    found = true;
    return true;
  }
  Reader& reader_;
  GraphNames& graphs_;
  int64_t& splat_bytes_;
  std::string wanted_;
};

class ModuleParser {
 public:
  ModuleParser(std::string_view text, const std::string& file)
      : reader_(text, file.empty() ? "text" : file), file_(file) {}

  Module parse() {
    header();
    while (!reader_.at_end()) {
      if (reader_.try_consume("symbol")) symbol();
      else if (reader_.try_consume("state")) state();
      else if (reader_.try_consume("mesh")) mesh();
      else if (reader_.try_consume("graph")) graph();
      else if (reader_.try_consume("entry")) entry();
      else reader_.fail_wanted("symbol, state, mesh, graph, entry or the end");
    }
    place_wishes();
    renumber();
    return std::move(module_);
  }

 private:
  void header() {
    reader_.expect("stepgraph");
    const size_t begin = reader_.mark();
    const int64_t version = reader_.integer();
    if (version != format_version)
      reader_.fail_at(begin, "found format version " + std::to_string(version) + ", wanted " + std::to_string(format_version));
    reader_.expect("module");
    module_.name = reader_.word_or_quoted("the module's name");
    if (!reader_.try_consume("stage")) return;
    module_.stage = read_kind<Stage>(
        reader_,
        [](std::string_view text) -> std::optional<Stage> {
          for (const Stage stage : {Stage::Logical, Stage::Sharded, Stage::Local})
            if (name(stage) == text) return stage;
          return std::nullopt;
        },
        "logical, sharded or local");
  }

  void symbol() {
    const size_t begin = reader_.mark();
    Symbol symbol = read_symbol(reader_);
    if (module_.symbols.find(symbol.name) != nullptr) reader_.fail_at(begin, "symbol '" + symbol.name + "' is declared twice");
    try {
      module_.symbols.declare(std::move(symbol));
    } catch (const UserError& error) {
      reader_.fail_at(begin, error.what());
    }
  }

  /// state "w" <{data}, {}>
  void state() {
    const size_t begin = reader_.mark();
    std::string name = reader_.quoted_string();
    if (std::any_of(wishes_.begin(), wishes_.end(), [&](const Wish& wish) { return wish.state == name; }))
      reader_.fail_at(begin, "the layout of state '" + name + "' is stated twice");
    wishes_.push_back({std::move(name), reader_.sharding(), begin});
  }

  void place_wishes() {
    for (Wish& wish : wishes_) {
      StateInfo* state = module_.states.find(wish.state);
      if (!state) reader_.fail_at(wish.place, "no graph has an input that is the state '" + wish.state + "'");
      if (state->wish && *state->wish != wish.layout)
        reader_.fail_at(wish.place, "state '" + wish.state + "': found layout <" + text(wish.layout) + ">, its input has <" + text(*state->wish) + ">");
      state->wish = std::move(wish.layout);
    }
  }

  void mesh() {
    const size_t begin = reader_.mark();
    if (!module_.mesh.axes.empty()) reader_.fail("the mesh is stated twice");
    std::string text;
    do {
      if (!text.empty()) text += ',';
      text += reader_.identifier("the name of a mesh axis");
      reader_.expect("=");
      text.append("=").append(std::to_string(reader_.integer()));
    } while (reader_.try_consume(","));
    module_.mesh = reader_.nested(begin, reader_.offset(), [&](std::string_view) { return parse_mesh(text); });
  }

  void entry() {
    const size_t begin = reader_.mark();
    std::string name = reader_.word_or_quoted("the entry's name");
    if (module_.find_entry(name)) reader_.fail_at(begin, "entry '" + name + "' is defined twice");
    module_.entries.push_back({std::move(name), read_graph_name(reader_, graphs_)});
  }

  void graph() {
    const size_t begin = reader_.mark();
    reader_.expect("@");
    Graph& graph = module_.graphs.emplace_back();
    graph.name = reader_.word_or_quoted("the graph's name");
    if (!graphs_.define(graphs_.mention(graph.name, begin))) reader_.fail_at(begin, "graph @" + graph.name + " is defined twice");
    if (reader_.try_consume("composite")) graph.composite = reader_.quoted_string();
    if (reader_.try_consume("gradient")) graph.gradient = read_graph_name(reader_, graphs_);
    reader_.expect("{");
    values_.clear();
    while (reader_.try_consume("input")) input(graph);
    while (!reader_.next_is("output") && !reader_.next_is("}")) node(graph);
    while (reader_.try_consume("output")) output(graph);
    if (!reader_.try_consume("}")) reader_.fail_wanted("output or '}' (inputs come first, then nodes, then outputs)");
  }

  void input(Graph& graph) {
    const size_t begin = reader_.mark();
    const std::string name = value_name();
    reader_.expect(":");
    TensorType type = reader_.type();
    const ValueId value = define(graph, name, begin, std::move(type), -1);
    graph.inputs.push_back({value, role()});
    const Role& role = graph.inputs.back().role;
    if (!is_state(role.kind)) return;
    TensorType& stated = graph.values[static_cast<size_t>(value.index)].type;
    try {
      stated = module_.declare_state(role, std::move(stated));
    } catch (const UserError& error) {
      reader_.fail_at(begin, error.what());
    }
  }

  void output(Graph& graph) {
    const ValueId value = use();
    graph.outputs.push_back({value, role()});
  }

  Role role() {
    Role role;
    static const std::set<std::string_view> statements = {"input", "output"};
    // A role is optional: the next word may begin the next statement instead, an op's name among them.
    TextScanner ahead = reader_;
    const auto word = ahead.try_identifier();
    if (!word || statements.contains(*word) || ahead.next_is("(")) return role;
    const size_t begin = reader_.mark();
    reader_.identifier();
    const auto kind = role_from_name(*word);
    if (!kind) reader_.fail_at(begin, "unknown role '" + *word + "', the nearest is '" + nearest(*word, role_names()) + "'");
    role.kind = *kind;
    if (role.kind == RoleKind::Batch && reader_.try_consume("[")) {
      role.batch_dim = reader_.integer();
      reader_.expect("]");
    }
    if (reader_.peek() == '"') role.name = reader_.quoted_string();
    return role;
  }

  static std::vector<std::string> role_names() {
    std::vector<std::string> names;
    for (int kind = 0; kind <= static_cast<int>(RoleKind::NewState); ++kind) names.emplace_back(name(static_cast<RoleKind>(kind)));
    return names;
  }

  void node(Graph& graph) {
    const size_t begin = reader_.mark();
    Node node;
    std::vector<std::pair<std::string, size_t>> results;
    if (reader_.peek() == '%') {
      do {
        const size_t at = reader_.mark();
        results.emplace_back(value_name(), at);
      } while (reader_.try_consume(","));
      reader_.expect("=");
    }
    node.op = op();
    arguments(node);
    const auto index = static_cast<int32_t>(graph.nodes.size());
    for (size_t i = 0; i < results.size(); ++i) {
      reader_.expect(i == 0 ? ":" : ",");
      node.results.push_back(define(graph, results[i].first, results[i].second, reader_.type(), index));
    }
    if (reader_.try_consume("at")) node.place = place();
    else if (!file_.empty()) node.place = {file_, reader_.line_at(begin)};
    if (reader_.try_consume("scope")) node.scope = reader_.quoted_string();
    if (reader_.try_consume("phase")) node.phase = read_kind<Phase>(reader_, phase_from_name, "forward, backward, recompute, sync, update or evaluation");
    graph.nodes.push_back(std::move(node));
  }

  Op op() {
    const size_t begin = reader_.mark();
    const std::string word = reader_.identifier("the name of an operator");
    if (auto op = op_from_name(word)) return *std::move(op);
    std::vector<std::string> names;
    for (const Op& known : all_ops()) names.emplace_back(name(known));
    reader_.fail_at(begin, "unknown operator '" + word + "', the nearest is '" + nearest(word, names) + "'");
  }

  void arguments(Node& node) {
    std::set<std::string, std::less<>> stated;
    reader_.list("(", ")", [&] {
      const size_t begin = reader_.mark();
      if (reader_.peek() == '%') {
        if (!stated.empty()) reader_.fail("inputs come before attributes");
        node.inputs.push_back(use());
        return;
      }
      const std::string word = reader_.identifier("an input as %0 or an attribute");
      FieldReader field(reader_, graphs_, splat_bytes_, word);
      reader_.expect("=");
      visit_fields(node.op, field);
      if (!field.found) {
        std::string message = std::string(name(node.op)) + " has no attribute '" + word + "'";
        message += field.names.empty() ? ", it has none" : ", the nearest is '" + nearest(word, field.names) + "'";
        reader_.fail_at(begin, message);
      }
      if (!stated.insert(word).second) reader_.fail_at(begin, "attribute '" + word + "' is stated twice");
    });
  }

  SourcePlace place() {
    const size_t begin = reader_.mark();
    const std::string text = reader_.quoted_string();
    const size_t colon = text.rfind(':');
    SourcePlace place;
    if (colon != std::string::npos) {
      const char* end = text.data() + text.size();
      const auto [read_end, error] = std::from_chars(text.data() + colon + 1, end, place.line);
      if (error != std::errc{} || read_end != end || place.line > line_max) place.line = 0;
      place.file = text.substr(0, colon);
    }
    if (!place.known()) reader_.fail_at(begin, "found " + quoted_text(text) + ", wanted a place as \"gpt.cpp:41\"");
    return place;
  }

  /// "%name" without the sign: digits or a word.
  std::string value_name() {
    const size_t begin = reader_.mark();
    reader_.expect("%");
    const std::string_view text = reader_.text();
    size_t end = reader_.offset();
    const auto is_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.'; };
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string name(text.substr(reader_.offset(), end - reader_.offset()));
    if (name.empty()) reader_.fail_at(begin, "wanted the name of a value after '%'");
    reader_.expect(name);
    return name;
  }

  ValueId define(Graph& graph, const std::string& name, size_t begin, TensorType type, int32_t node) {
    const ValueId id{static_cast<int32_t>(graph.values.size())};
    if (!values_.emplace(name, id).second) reader_.fail_at(begin, "value %" + name + " is defined twice");
    graph.values.push_back({std::move(type), node});
    return id;
  }

  ValueId use() {
    const size_t begin = reader_.mark();
    if (reader_.peek() != '%') reader_.fail_wanted("a value as %0");
    const std::string name = value_name();
    const auto found = values_.find(name);
    if (found == values_.end()) reader_.fail_at(begin, "value %" + name + " is not defined before its use");
    return found->second;
  }

  /// An attribute that was left out holds no graph, so it stays as it is for the verifier.
  void renumber() {
    const std::vector<GraphId> map = graphs_.map(reader_);
    const auto renumbered = [&](GraphId id) { return id.index < 0 ? id : map[static_cast<size_t>(id.index)]; };
    for (Graph& graph : module_.graphs) {
      if (graph.gradient) graph.gradient = renumbered(*graph.gradient);
      for (Node& node : graph.nodes) {
        const std::vector<GraphId> called = called_graphs(node.op);
        const bool all_known = std::all_of(called.begin(), called.end(), [](GraphId id) { return id.index >= 0; });
        if (all_known && !called.empty()) node.op = renumber_graphs(node.op, map);
      }
    }
    for (Entry& entry : module_.entries) entry.graph = renumbered(entry.graph);
  }

  struct Wish {
    std::string state;
    Sharding layout;
    size_t place;
  };

  Reader reader_;
  std::string file_;
  Module module_;
  std::vector<Wish> wishes_;
  GraphNames graphs_;
  std::map<std::string, ValueId, std::less<>> values_;  ///< of the graph that is being read
  int64_t splat_bytes_ = splat_bytes_max;
};

}  // namespace

Module parse_module(std::string_view text, const std::string& file_name) { return ModuleParser(text, file_name).parse(); }

}  // namespace stepgraph
