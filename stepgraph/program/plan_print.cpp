// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/error.h"
#include "stepgraph/base/text_scanner.h"
#include "stepgraph/program/form_text.h"
#include "stepgraph/program/plan_text.h"
#include "stepgraph/program/plan_words.h"
#include "stepgraph/tensor/declaration_text.h"
#include "stepgraph/tensor/literal_text.h"

namespace stepgraph {
namespace {

bool is_elided(const Literal& constant, const PlanTextOptions& options) { return !options.constants && constant.count() > listed_elements_max; }

std::string hash_text(std::string_view bytes) { return quoted_text(hash_bytes(std::as_bytes(std::span(bytes))).text()); }
std::string_view bytes_of(const Literal& constant) { return {reinterpret_cast<const char*>(constant.data()), constant.byte_count()}; }

template <class Items, class ItemText>
std::string joined(const Items& items, const ItemText& item_text) {
  std::string result;
  for (const auto& item : items) result += (result.empty() ? "" : ", ") + item_text(item);
  return result;
}
std::string integers_text(const std::vector<int64_t>& values) {
  return "[" + joined(values, [](int64_t value) { return std::to_string(value); }) + "]";
}
std::string dims_text(const std::vector<Dim>& dims) {
  return joined(dims, [](const Dim& dim) { return dim.text(); });
}
std::string view_text(const View& view) { return text(view); }

std::string typed_views_text(const std::vector<View>& views, const std::vector<DType>& dtypes) {
  SG_CHECK(views.size() == dtypes.size(), "an evaluation has a dtype for each operand");
  std::string result;
  for (size_t i = 0; i < views.size(); ++i) result += (i > 0 ? ", " : "") + text(views[i]) + " " + std::string(name(dtypes[i]));
  return "(" + result + ")";
}

std::string literal_or_hash(const Literal& constant, const PlanTextOptions& options) {
  if (!is_elided(constant, options)) return literal_text(constant);
  return std::string(name(constant.dtype())) + integers_text(constant.sizes()) + " hash " + hash_text(bytes_of(constant));
}

std::string role_text(const Role& role) {
  const std::string dim = role.batch_dim == 0 ? "" : "[" + std::to_string(role.batch_dim) + "]";
  return std::string(name(role.kind)) + dim + (role.name.empty() ? "" : " " + quoted_text(role.name));
}

std::string buffer_text(const Buffer& buffer) {
  std::string result(word_of(space_names, buffer.space));
  const bool is_arena = buffer.space == Space::Arena;
  if (!is_arena || buffer.index != 0) result += " " + std::to_string(buffer.index);
  if (is_arena || buffer.offset != 0) result += " at " + std::to_string(buffer.offset);
  if (is_arena || buffer.bytes != 0) result += " bytes " + std::to_string(buffer.bytes);
  result += " " + std::string(name(buffer.dtype)) + "[" + buffer.elements.text() + "]";
  return buffer.label.empty() ? result : result + " " + quoted_text(buffer.label);
}

// ---- instructions

std::string call_text(const FormCall& call) {
  const std::string form = "form f" + std::to_string(call.form);
  if (call.launches.empty()) return form;
  return form + " " + joined(call.launches, [](const FormLaunch& launch) {
           const std::string operands = "(" + joined(launch.operands, view_text) + ")";
           return launch.sizes.empty() ? operands : operands + " (" + dims_text(launch.sizes) + ")";
         });
}
std::string call_text(const MatMulCall& call) {
  return "matmul " + text(call.lhs) + ", " + text(call.rhs) + " -> " + text(call.out) + " " + std::string(name(call.dtype)) + " " +
         std::string(word_of(gemm_library_names, call.library)) + (call.cut ? " " + cut_text(*call.cut) : "") + (call.accumulate ? " accumulate" : "");
}
std::string call_text(const ConvolutionCall& call) {
  return "convolution " + std::string(word_of(convolution_pass_names, call.pass)) + " " + text(call.a) + ", " + text(call.b) + " -> " + text(call.out) +
         " stride " + integers_text(call.strides) + " low " + integers_text(call.padding_low) + " high " + integers_text(call.padding_high) + " dilation " +
         integers_text(call.dilation) + " groups " + std::to_string(call.groups);
}
std::string call_text(const AttentionCall& call) {
  std::string result = "attention " + text(call.q) + ", " + text(call.k) + ", " + text(call.v) + " -> " + text(call.out) + ", " + text(call.lse);
  if (call.mask) result += " mask " + text(*call.mask) + " " + std::string(name(call.mask_dtype));
  result += " scale " + real_text(call.scale);
  if (call.causal) result += " causal";
  if (const auto& dropout = call.dropout)
    result += " dropout " + real_text(dropout->rate) + " steps [" + dims_text({dropout->origin, dropout->step_n, dropout->step_h, dropout->step_t}) + "] key " +
              text(dropout->key);
  if (!call.gradient) return result;
  const AttentionCall::Gradient& gradient = *call.gradient;
  return result + " gradient " + text(gradient.d_out) + ", " + text(gradient.d_lse) + " -> " + text(gradient.d_q) + ", " + text(gradient.d_k) + ", " +
         text(gradient.d_v);
}
std::string call_text(const ScatterCall& call) {
  return "scatter " + std::string(word_of(scatter_names, call.kind)) + " " + text(call.updates) + " index " + text(call.index) + " " +
         std::string(name(call.index_dtype)) + " -> " + text(call.out) + " " + std::string(name(call.dtype)) + (call.base ? " base " + text(*call.base) : "");
}
std::string call_text(const PoolCall& call) {
  std::string result = "pool " + std::string(word_of(pool_pass_names, call.pass)) + " " + text(call.a) + " -> " + text(call.out);
  if (call.places) result += " places " + text(*call.places) + " " + std::string(name(call.places_dtype));
  return result + " size " + integers_text(call.size) + " stride " + integers_text(call.strides) + " low " + integers_text(call.padding_low) + " high " +
         integers_text(call.padding_high) + " dilation " + integers_text(call.dilation) + (call.count_padding ? " count_padding" : "");
}
std::string call_text(const ScanCall& call) {
  return "scan " + std::string(word_of(scan_names, call.kind)) + " " + text(call.x) + " -> " + text(call.out) + " " + std::string(name(call.dtype)) +
         (call.reverse ? " reverse" : "");
}
std::string call_text(const EvaluateCall& call) {
  return "evaluate " + typed_views_text(call.inputs, call.input_dtypes) + " -> " + typed_views_text(call.outputs, call.output_dtypes) + " why " +
         quoted_text(call.why) + " program " + quoted_text(call.program);
}
std::string call_text(const CollectiveCall& call) {
  return std::string(word_of(collective_names, call.kind)) + " " + std::string(name(call.reduce)) + " " + std::string(name(call.dtype)) + " " +
         text(call.input) + " -> " + text(call.output) + " dim " + std::to_string(call.dim) + " start " + call.start.text() + " size " + call.size.text() +
         " axes [" + joined(call.axes, [](const AxisRef& axis) { return text(axis); }) + "]";
}
std::string call_text(const Repeat& repeat) {
  std::string result = "repeat " + repeat.symbol + " count " + repeat.count.text() + (repeat.reverse ? " reverse" : "") + (repeat.parallel ? " parallel" : "");
  if (!repeat.private_buffers.empty()) result += " private (" + joined(repeat.private_buffers, [](int buffer) { return "b" + std::to_string(buffer); }) + ")";
  return result;
}

class PlanPrinter {
 public:
  PlanPrinter(const StepPlan& plan, const PlanTextOptions& options) : plan_(plan), options_(options) {}

  std::string print() {
    SG_CHECK(plan_.code.size() == plan_.forms.size(), "a plan has code for each form");
    line(0, "stepgraph_plan " + std::to_string(plan_format_version));
    const Target& target = plan_.target;
    line(0, "target " + std::string(word_of(instruction_set_names, target.isa)) + " threads " + std::to_string(target.threads) + " l1 " +
                std::to_string(target.l1_bytes) + " l2 " + std::to_string(target.l2_bytes) + " granularity " + std::to_string(target.granularity_bytes) +
                (target.flush_denormals ? " flush_denormals" : ""));
    if (!plan_.freeze_hash.empty()) line(0, "freeze " + quoted_text(plan_.freeze_hash));
    if (!plan_.mesh.axes.empty()) line(0, "mesh " + plan_.mesh.text());
    for (const Symbol& symbol : plan_.symbols.all()) line(0, "symbol " + text(symbol));
    for (const PlanState& state : plan_.states)
      line(0, "state " + quoted_text(state.name) + " " + std::string(name(state.role)) + " " + std::string(name(state.dtype)) + text(state.sizes));
    for (const Literal& constant : plan_.constants) line(0, "constant " + literal_or_hash(constant, options_));
    for (size_t i = 0; i < plan_.forms.size(); ++i) {
      out_ += "f" + std::to_string(i) + " = " + text(plan_.forms[i]);
      const FormCode& code = plan_.code[i];
      line(0, "code " + quoted_text(code.symbol) + " parallel " + code.parallel.text() + " scratch " + code.scratch_bytes.text() + " object " +
                  std::to_string(code.object.size()) + " " + hash_text(code.object));
    }
    for (const PlanEntry& entry : plan_.entries) print_entry(entry);
    return std::move(out_);
  }

 private:
  void line(size_t indent, const std::string& statement) { (out_ += broken_statement(std::string(indent, ' ') + statement, indent + 4)) += "\n"; }

  void print_entry(const PlanEntry& entry) {
    out_ += "\n";
    line(0,
         "entry " + word_or_quoted_text(entry.name) + " arena " + std::to_string(entry.arena_bytes) + " commit " + std::to_string(entry.commit_begin) + " {");
    for (const std::string& state : entry.new_states) line(2, "new_state " + quoted_text(state));
    for (size_t i = 0; i < entry.buffers.size(); ++i) line(2, "buffer b" + std::to_string(i) + " = " + buffer_text(entry.buffers[i]));
    for (const PlanValue& value : entry.inputs) print_value("input", value);
    for (const PlanValue& value : entry.outputs) print_value("output", value);
    print_body(entry.instructions, 2);
    out_ += "}\n";
  }

  void print_value(const std::string& word, const PlanValue& value) {
    line(2, word + " " + role_text(value.role) + " " + std::string(name(value.dtype)) + " " + text(value.view));
  }

  void print_body(const std::vector<Instruction>& body, size_t indent) {
    for (const Instruction& instruction : body) {
      const auto* repeat = std::get_if<Repeat>(&instruction.op);
      line(indent, text(instruction) + (repeat != nullptr ? " {" : ""));
      if (repeat == nullptr) continue;
      print_body(repeat->body, indent + 2);
      line(indent, "}");
    }
  }

  const StepPlan& plan_;
  const PlanTextOptions& options_;
  std::string out_;
};

}  // namespace

std::vector<Dim> dense_strides(const Shape& sizes) {
  std::vector<Dim> result(sizes.size(), Dim(1));
  for (size_t i = sizes.size(); i-- > 1;) result[i - 1] = result[i] * sizes[i];
  return result;
}

std::string text(const View& view) {
  std::string result = "b" + std::to_string(view.buffer);
  if (view.offset != Dim(0)) result += " at " + view.offset.text();
  bool is_dense = false;
  try {
    is_dense = view.strides == dense_strides(view.sizes);
  } catch (const UserError&) {  // a stride overflows
  }
  if (!view.sizes.empty() || !is_dense) result += text(view.sizes);
  return is_dense ? result : result + " strides [" + dims_text(view.strides) + "]";
}

std::string text(const Instruction& instruction) {
  std::string result = (instruction.meet ? "meet " : "") + std::string(instruction.one_thread ? "one_thread " : "");
  result += std::visit([](const auto& call) { return call_text(call); }, instruction.op);
  if (instruction.phase != Phase::None) result += " phase " + std::string(name(instruction.phase));
  if (!instruction.scope.empty()) result += " scope " + quoted_text(instruction.scope);
  if (!instruction.label.empty()) result += " label " + quoted_text(instruction.label);
  return result;
}

std::string text(const StepPlan& plan, const PlanTextOptions& options) { return PlanPrinter(plan, options).print(); }

std::string constant_bytes(const StepPlan& plan) {
  std::string result;
  for (const Literal& constant : plan.constants)
    if (is_elided(constant, {.constants = false})) result += bytes_of(constant);
  return result;
}

std::string object_bytes(const StepPlan& plan) {
  std::string result;
  for (const FormCode& code : plan.code) result += code.object;
  return result;
}

Hash128 plan_hash(const StepPlan& plan) {
  const std::string plan_text = text(plan, {.constants = false});
  return hash_bytes(std::as_bytes(std::span(plan_text)));
}

}  // namespace stepgraph
