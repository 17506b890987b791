// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "stepgraph/base/error.h"
#include "stepgraph/base/text_scanner.h"
#include "stepgraph/program/form_text.h"
#include "stepgraph/program/plan_text.h"
#include "stepgraph/program/plan_words.h"
#include "stepgraph/tensor/declaration_text.h"
#include "stepgraph/tensor/literal_text.h"

namespace stepgraph {
namespace {

constexpr int repeat_depth_max = 32;
constexpr size_t view_dims_max = 256;
constexpr int number_max = 1 << 30;

template <class Kind, class Names>
Kind read_word(TextScanner& scanner, const Names& names) {
  return static_cast<Kind>(scanner.one_of(names));
}

int read_count(TextScanner& scanner) {
  const size_t begin = scanner.mark();
  const int64_t value = scanner.integer();
  if (value < 0 || value > number_max) scanner.fail_at(begin, "found " + std::to_string(value) + ", wanted a number from 0");
  return static_cast<int>(value);
}

/// "b12" of the sign "b".
int read_numbered(TextScanner& scanner, char sign, std::string_view wanted) {
  const size_t begin = scanner.mark();
  const std::string word = scanner.identifier(wanted);
  const bool is_number = word.size() > 1 && word.size() < 10 && word[0] == sign && (word[1] != '0' || word.size() == 2) &&
                         std::all_of(word.begin() + 1, word.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) scanner.fail_at(begin, "found '" + word + "', wanted " + std::string(wanted));
  return std::stoi(word.substr(1));
}

std::vector<Dim> read_dims(TextScanner& scanner, std::string_view open, std::string_view close) {
  std::vector<Dim> result;
  const size_t begin = scanner.mark();
  scanner.list(open, close, [&] {
    if (result.size() == view_dims_max) scanner.fail_at(begin, "found more than " + std::to_string(view_dims_max) + " sizes");
    result.push_back(read_dim(scanner));
  });
  return result;
}

std::vector<int64_t> read_integers(TextScanner& scanner) {
  std::vector<int64_t> result;
  scanner.list("[", "]", [&] { result.push_back(scanner.integer()); });
  return result;
}

View read_view(TextScanner& scanner) {
  const size_t begin = scanner.mark();
  View view;
  view.buffer = read_numbered(scanner, 'b', "a buffer as b0");
  if (scanner.try_consume("at")) view.offset = read_dim(scanner);
  if (scanner.next_is("[")) view.sizes = read_dims(scanner, "[", "]");
  if (scanner.try_consume("strides")) {
    view.strides = read_dims(scanner, "[", "]");
    return view;
  }
  try {
    view.strides = dense_strides(view.sizes);
  } catch (const UserError& error) {
    scanner.fail_at(begin, error.what());
  }
  return view;
}

/// Hands out what the text names by size and hash.
class NamedBytes {
 public:
  NamedBytes(std::string_view bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  /// The next bytes, which have the hash that stands next in the text.
  std::string_view next(TextScanner& scanner, size_t begin, uint64_t count) {
    if (count > bytes_.size())
      scanner.fail_at(begin, "wanted " + std::to_string(count) + " bytes of " + what_ + " from outside of the text, found " + std::to_string(bytes_.size()));
    const std::string_view result = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    const size_t hash_begin = scanner.mark();
    if (scanner.quoted_string() != hash_bytes(std::as_bytes(std::span(result))).text())
      scanner.fail_at(hash_begin, what_ + " from outside of the text: found bytes of another hash");
    return result;
  }
  void expect_end() const {
    if (!bytes_.empty()) throw UserError("found " + std::to_string(bytes_.size()) + " bytes of " + what_ + " that the text does not name");
  }

 private:
  std::string_view bytes_;
  std::string what_;
};

// ---- instructions

FormCall read_form_call(TextScanner& scanner) {
  FormCall call;
  call.form = read_numbered(scanner, 'f', "a form as f0");
  if (!scanner.next_is("(")) return call;
  do {
    FormLaunch launch;
    scanner.list("(", ")", [&] { launch.operands.push_back(read_view(scanner)); });
    if (scanner.next_is("(")) launch.sizes = read_dims(scanner, "(", ")");
    call.launches.push_back(std::move(launch));
  } while (scanner.try_consume(","));
  return call;
}

MatMulCall read_matmul(TextScanner& scanner) {
  MatMulCall call;
  call.lhs = read_view(scanner);
  scanner.expect(",");
  call.rhs = read_view(scanner);
  scanner.expect("->");
  call.out = read_view(scanner);
  call.dtype = read_dtype(scanner);
  call.library = read_word<GemmLibrary>(scanner, gemm_library_names);
  if (scanner.next_is("rows") || scanner.next_is("columns")) call.cut = read_cut(scanner);
  call.accumulate = scanner.try_consume("accumulate");
  return call;
}

ConvolutionCall read_convolution(TextScanner& scanner) {
  ConvolutionCall call;
  call.pass = read_word<ConvolutionPass>(scanner, convolution_pass_names);
  call.a = read_view(scanner);
  scanner.expect(",");
  call.b = read_view(scanner);
  scanner.expect("->");
  call.out = read_view(scanner);
  scanner.expect("stride");  // "strides" would be those of the view before it
  call.strides = read_integers(scanner);
  scanner.expect("low");
  call.padding_low = read_integers(scanner);
  scanner.expect("high");
  call.padding_high = read_integers(scanner);
  scanner.expect("dilation");
  call.dilation = read_integers(scanner);
  scanner.expect("groups");
  call.groups = scanner.integer();
  return call;
}

AttentionCall read_attention(TextScanner& scanner) {
  AttentionCall call;
  const auto views = [&](std::initializer_list<View*> into) {
    for (View* const view : into) {
      if (view != *into.begin()) scanner.expect(",");
      *view = read_view(scanner);
    }
  };
  views({&call.q, &call.k, &call.v});
  scanner.expect("->");
  views({&call.out, &call.lse});
  if (scanner.try_consume("mask")) {
    call.mask = read_view(scanner);
    call.mask_dtype = read_dtype(scanner);
  }
  scanner.expect("scale");
  call.scale = scanner.real();
  call.causal = scanner.try_consume("causal");
  if (scanner.try_consume("dropout")) {
    call.dropout = AttentionCall::Dropout{};
    AttentionCall::Dropout& dropout = *call.dropout;
    dropout.rate = scanner.real();
    scanner.expect("steps");
    const size_t begin = scanner.mark();
    const std::vector<Dim> steps = read_dims(scanner, "[", "]");
    if (steps.size() != 4) scanner.fail_at(begin, "found " + std::to_string(steps.size()) + " numbers, wanted an origin and 3 steps");
    dropout.origin = steps[0], dropout.step_n = steps[1], dropout.step_h = steps[2], dropout.step_t = steps[3];
    scanner.expect("key");
    dropout.key = read_view(scanner);
  }
  if (!scanner.try_consume("gradient")) return call;
  AttentionCall::Gradient& gradient = call.gradient.emplace();
  views({&gradient.d_out, &gradient.d_lse});
  scanner.expect("->");
  views({&gradient.d_q, &gradient.d_k, &gradient.d_v});
  return call;
}

ScatterCall read_scatter(TextScanner& scanner) {
  ScatterCall call;
  call.kind = read_word<ScatterKind>(scanner, scatter_names);
  call.updates = read_view(scanner);
  scanner.expect("index");
  call.index = read_view(scanner);
  call.index_dtype = read_dtype(scanner);
  scanner.expect("->");
  call.out = read_view(scanner);
  call.dtype = read_dtype(scanner);
  if (scanner.try_consume("base")) call.base = read_view(scanner);
  return call;
}

PoolCall read_pool(TextScanner& scanner) {
  PoolCall call;
  call.pass = read_word<PoolPass>(scanner, pool_pass_names);
  call.a = read_view(scanner);
  scanner.expect("->");
  call.out = read_view(scanner);
  if (scanner.try_consume("places")) {
    call.places = read_view(scanner);
    call.places_dtype = read_dtype(scanner);
  }
  const std::pair<std::string_view, std::vector<int64_t>*> lists[] = {
      {"size", &call.size}, {"stride", &call.strides}, {"low", &call.padding_low}, {"high", &call.padding_high}, {"dilation", &call.dilation}};
  for (const auto& [word, values] : lists) {
    scanner.expect(word);
    *values = read_integers(scanner);
  }
  call.count_padding = scanner.try_consume("count_padding");
  return call;
}

ScanCall read_scan(TextScanner& scanner) {
  ScanCall call;
  call.kind = read_word<ScanKind>(scanner, scan_names);
  call.x = read_view(scanner);
  scanner.expect("->");
  call.out = read_view(scanner);
  call.dtype = read_dtype(scanner);
  call.reverse = scanner.try_consume("reverse");
  return call;
}

EvaluateCall read_evaluate(TextScanner& scanner) {
  EvaluateCall call;
  scanner.list("(", ")", [&] {
    call.inputs.push_back(read_view(scanner));
    call.input_dtypes.push_back(read_dtype(scanner));
  });
  scanner.expect("->");
  scanner.list("(", ")", [&] {
    call.outputs.push_back(read_view(scanner));
    call.output_dtypes.push_back(read_dtype(scanner));
  });
  scanner.expect("why");
  call.why = scanner.quoted_string();
  scanner.expect("program");
  call.program = scanner.quoted_string();
  return call;
}

CollectiveCall read_collective(TextScanner& scanner, CollectiveKind kind) {
  CollectiveCall call;
  call.kind = kind;
  call.reduce = read_word<ReduceKind>(scanner, reduce_kind_names);
  call.dtype = read_dtype(scanner);
  call.input = read_view(scanner);
  scanner.expect("->");
  call.output = read_view(scanner);
  scanner.expect("dim");
  call.dim = scanner.integer();
  scanner.expect("start");
  call.start = read_dim(scanner);
  scanner.expect("size");
  call.size = read_dim(scanner);
  scanner.expect("axes");
  scanner.list("[", "]", [&] { call.axes.push_back(read_axis(scanner)); });
  return call;
}

class PlanReader {
 public:
  PlanReader(std::string_view text, const std::string& name, const PlanBytes& bytes)
      : scanner_(text, name), constants_(bytes.constants, "constants"), objects_(bytes.objects, "code"), has_objects_(bytes.has_objects) {}

  StepPlan read() {
    scanner_.expect("stepgraph_plan");
    const size_t begin = scanner_.mark();
    const int64_t version = scanner_.integer();
    if (version != plan_format_version)
      scanner_.fail_at(begin, "found format version " + std::to_string(version) + ", wanted " + std::to_string(plan_format_version));
    read_target();
    if (scanner_.try_consume("freeze")) plan_.freeze_hash = scanner_.quoted_string();
    if (scanner_.try_consume("mesh")) read_mesh();
    while (scanner_.try_consume("symbol")) read_plan_symbol();
    while (scanner_.try_consume("state")) read_state();
    while (scanner_.try_consume("constant")) plan_.constants.push_back(read_constant());
    while (!scanner_.at_end() && !scanner_.next_is("entry")) read_plan_form();
    while (scanner_.try_consume("entry")) read_entry();
    if (!scanner_.at_end()) scanner_.fail_wanted("entry or the end");
    constants_.expect_end();
    objects_.expect_end();
    return std::move(plan_);
  }

 private:
  void read_target() {
    scanner_.expect("target");
    Target& target = plan_.target;
    target.isa = read_word<InstructionSet>(scanner_, instruction_set_names);
    scanner_.expect("threads");
    target.threads = read_count(scanner_);
    scanner_.expect("l1");
    target.l1_bytes = scanner_.integer();
    scanner_.expect("l2");
    target.l2_bytes = scanner_.integer();
    scanner_.expect("granularity");
    target.granularity_bytes = scanner_.integer();
    target.flush_denormals = scanner_.try_consume("flush_denormals");
  }

  void read_mesh() {
    const size_t begin = scanner_.mark();
    std::string text;
    do {
      text += (text.empty() ? "" : ",") + scanner_.identifier("the name of a mesh axis") + "=";
      scanner_.expect("=");
      text += std::to_string(scanner_.integer());
    } while (scanner_.try_consume(","));
    try {
      plan_.mesh = parse_mesh(text);
    } catch (const UserError& error) {
      scanner_.fail_at(begin, error.what());
    }
  }

  void read_plan_symbol() {
    const size_t begin = scanner_.mark();
    Symbol symbol = read_symbol(scanner_);
    if (plan_.symbols.find(symbol.name) != nullptr) scanner_.fail_at(begin, "symbol '" + symbol.name + "' is declared twice");
    try {
      plan_.symbols.declare(std::move(symbol));
    } catch (const UserError& error) {
      scanner_.fail_at(begin, error.what());
    }
  }

  RoleKind role_kind() {
    const size_t begin = scanner_.mark();
    const std::string word = scanner_.identifier("a role");
    const auto kind = role_from_name(word);
    if (!kind) scanner_.fail_at(begin, "unknown role '" + word + "'");
    return *kind;
  }

  void read_state() {
    PlanState state;
    state.name = scanner_.quoted_string();
    state.role = role_kind();
    state.dtype = read_dtype(scanner_);
    state.sizes = read_dims(scanner_, "[", "]");
    plan_.states.push_back(std::move(state));
  }

  Literal read_constant() {
    const size_t begin = scanner_.mark();
    TextScanner whole = scanner_;
    const DType dtype = read_dtype(scanner_);
    const Sizes sizes = read_integers(scanner_);
    if (!scanner_.try_consume("hash")) {
      scanner_ = whole;
      return read_literal(scanner_, splat_bytes_);
    }
    int64_t bytes = 0;
    try {
      bytes = element_count(Sizes{element_count(sizes), static_cast<int64_t>(size_bytes(dtype))});
    } catch (const UserError& error) {
      scanner_.fail_at(begin, error.what());
    }
    const std::string_view elements = constants_.next(scanner_, begin, static_cast<uint64_t>(bytes));
    if (dtype == DType::Bool && std::any_of(elements.begin(), elements.end(), [](char c) { return static_cast<unsigned char>(c) > 1; }))
      scanner_.fail_at(begin, "found a bool that is neither 0 nor 1");
    Literal result = Literal::uninitialised(dtype, sizes);
    if (bytes > 0) std::memcpy(result.mutable_data(), elements.data(), elements.size());
    return result;
  }

  void read_plan_form() {
    const size_t begin = scanner_.mark();
    if (scanner_.peek() != 'f') scanner_.fail_wanted("a form as f0 or entry");
    const int number = read_numbered(scanner_, 'f', "a form as f0");
    if (static_cast<size_t>(number) != plan_.forms.size())
      scanner_.fail_at(begin, "found f" + std::to_string(number) + ", wanted f" + std::to_string(plan_.forms.size()));
    scanner_.expect("=");
    plan_.forms.push_back(read_form(scanner_));
    scanner_.expect("code");
    FormCode code;
    code.symbol = scanner_.quoted_string();
    scanner_.expect("parallel");
    code.parallel = read_dim(scanner_);
    scanner_.expect("scratch");
    code.scratch_bytes = read_dim(scanner_);
    scanner_.expect("object");
    const size_t object = scanner_.mark();
    const int64_t bytes = scanner_.integer();
    if (bytes < 0) scanner_.fail_at(object, "found an object of " + std::to_string(bytes) + " bytes");
    if (has_objects_)
      code.object = objects_.next(scanner_, object, static_cast<uint64_t>(bytes));
    else
      scanner_.quoted_string();
    plan_.code.push_back(std::move(code));
  }

  void read_entry() {
    const size_t begin = scanner_.mark();
    PlanEntry entry;
    entry.name = scanner_.word_or_quoted("the entry's name");
    if (plan_.find_entry(entry.name) != nullptr) scanner_.fail_at(begin, "entry '" + entry.name + "' is defined twice");
    scanner_.expect("arena");
    entry.arena_bytes = scanner_.integer();
    scanner_.expect("commit");
    entry.commit_begin = read_count(scanner_);
    scanner_.expect("{");
    while (scanner_.try_consume("new_state")) entry.new_states.push_back(scanner_.quoted_string());
    while (scanner_.try_consume("buffer")) read_buffer(entry);
    while (scanner_.try_consume("input")) entry.inputs.push_back(value());
    while (scanner_.try_consume("output")) entry.outputs.push_back(value());
    entry.instructions = read_body(0);
    plan_.entries.push_back(std::move(entry));
  }

  void read_buffer(PlanEntry& entry) {
    const size_t begin = scanner_.mark();
    const int number = read_numbered(scanner_, 'b', "a buffer as b0");
    if (static_cast<size_t>(number) != entry.buffers.size())
      scanner_.fail_at(begin, "found b" + std::to_string(number) + ", wanted b" + std::to_string(entry.buffers.size()));
    scanner_.expect("=");
    Buffer buffer;
    buffer.space = read_word<Space>(scanner_, space_names);
    if (buffer.space != Space::Arena || (scanner_.peek() >= '0' && scanner_.peek() <= '9')) buffer.index = read_count(scanner_);
    if (scanner_.try_consume("at")) buffer.offset = scanner_.integer();
    if (scanner_.try_consume("bytes")) buffer.bytes = scanner_.integer();
    buffer.dtype = read_dtype(scanner_);
    scanner_.expect("[");
    buffer.elements = read_dim(scanner_);
    scanner_.expect("]");
    if (scanner_.peek() == '"') buffer.label = scanner_.quoted_string();
    entry.buffers.push_back(std::move(buffer));
  }

  PlanValue value() {
    PlanValue value;
    value.role.kind = role_kind();
    if (scanner_.try_consume("[")) {
      value.role.batch_dim = scanner_.integer();
      scanner_.expect("]");
    }
    if (scanner_.peek() == '"') value.role.name = scanner_.quoted_string();
    value.dtype = read_dtype(scanner_);
    value.view = read_view(scanner_);
    return value;
  }

  std::vector<Instruction> read_body(int depth) {
    if (depth > repeat_depth_max) scanner_.fail("repeats are nested too deeply");
    std::vector<Instruction> body;
    while (!scanner_.try_consume("}")) body.push_back(instruction(depth));
    return body;
  }

  Instruction instruction(int depth) {
    Instruction result;
    result.meet = scanner_.try_consume("meet");
    result.one_thread = scanner_.try_consume("one_thread");
    const size_t begin = scanner_.mark();
    const std::string word = scanner_.identifier("an instruction or '}'");
    const auto collective = std::find(collective_names.begin(), collective_names.end(), word);
    bool has_body = false;
    if (word == "form")
      result.op = read_form_call(scanner_);
    else if (word == "matmul")
      result.op = read_matmul(scanner_);
    else if (word == "convolution")
      result.op = read_convolution(scanner_);
    else if (word == "attention")
      result.op = read_attention(scanner_);
    else if (word == "scatter")
      result.op = read_scatter(scanner_);
    else if (word == "pool")
      result.op = read_pool(scanner_);
    else if (word == "scan")
      result.op = read_scan(scanner_);
    else if (word == "evaluate")
      result.op = read_evaluate(scanner_);
    else if (collective != collective_names.end())
      result.op = read_collective(scanner_, static_cast<CollectiveKind>(collective - collective_names.begin()));
    else if (word == "repeat") {
      result.op = read_repeat();
      has_body = true;
    } else
      scanner_.fail_at(begin, "unknown instruction '" + word + "'");
    static constexpr std::array<std::string_view, 6> phases{"forward", "backward", "recompute", "sync", "update", "evaluation"};
    if (scanner_.try_consume("phase")) result.phase = static_cast<Phase>(scanner_.one_of(phases) + 1);
    if (scanner_.try_consume("scope")) result.scope = scanner_.quoted_string();
    if (scanner_.try_consume("label")) result.label = scanner_.quoted_string();
    if (!has_body) return result;
    scanner_.expect("{");
    std::get<Repeat>(result.op).body = read_body(depth + 1);
    return result;
  }

  Repeat read_repeat() {
    Repeat repeat;
    repeat.symbol = scanner_.identifier("the repeat's symbol");
    scanner_.expect("count");
    repeat.count = read_dim(scanner_);
    repeat.reverse = scanner_.try_consume("reverse");
    repeat.parallel = scanner_.try_consume("parallel");
    if (scanner_.try_consume("private")) scanner_.list("(", ")", [&] { repeat.private_buffers.push_back(read_numbered(scanner_, 'b', "a buffer as b0")); });
    return repeat;
  }

  TextScanner scanner_;
  NamedBytes constants_, objects_;
  bool has_objects_;
  int64_t splat_bytes_ = splat_bytes_max;
  StepPlan plan_;
};

}  // namespace

StepPlan parse_plan(std::string_view text, const std::string& name, const PlanBytes& bytes) { return PlanReader(text, name, bytes).read(); }

}  // namespace stepgraph
