// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/loss_terms.h"

#include <algorithm>
#include <map>
#include <set>

#include "stepgraph/compile/autodiff/needed.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

/// How a value depends on the rows of the batch.
enum class Dependence : uint8_t {
  None,   ///< equal for all batches
  Rows,   ///< a dim of it counts rows
  Terms,  ///< a sum of terms
  Other,
};

/// max(sum, least) + constant
struct Divisor {
  Value sum;
  std::optional<Value> least, constant;
};

enum class TermKind : uint8_t { Free, Mean, Sum, Quotient };
struct Term {
  TermKind kind = TermKind::Free;
  Value numerator;
  std::optional<Divisor> divisor;  // of a Quotient
};

struct Form {
  Dependence dependence = Dependence::None;
  std::vector<Term> terms;
  std::optional<Divisor> over;  // None or Rows: it was divided by this. Terms: it is this, which is more than a sum
  Value undivided;              // None or Rows over something: what it would be otherwise, for rows of which the divisor is zero
  std::optional<Value> spread;  // Rows: one number of the whole batch, stretched
  bool is_statistic = false;    // Rows: numbers of the whole batch, stretched
  std::optional<Dim> extent;    // Other: a sum over so many elements, which is no multiple of the rows
  bool has_parameters = false;

  static Form of(Dependence dependence) {
    Form form;
    form.dependence = dependence;
    return form;
  }
  static Form of(std::vector<Term> terms) {
    Form form = of(Dependence::Terms);
    form.terms = std::move(terms);
    return form;
  }
  bool is_free() const { return dependence == Dependence::None && !over; }
};

class LossReader {
 public:
  explicit LossReader(Builder& builder) : builder_(builder) {
    for (const GraphInput& input : builder.graph().inputs) {
      const Shape& shape = builder.graph().type(input.value).shape;
      if (input.role.kind != RoleKind::Batch || shape.empty()) continue;
      for (const std::string& symbol : shape[0].symbols()) symbols_.insert(symbol);
      if (shape[0].is_constant()) fixed_rows_ = shape[0].constant();
    }
    if (!symbols_.empty()) fixed_rows_ = 0;
  }
  bool has_rows() const { return !symbols_.empty() || fixed_rows_ > 1; }
  bool is_fixed() const { return symbols_.empty(); }

  const Form& form(const Value& value) {
    // In the order of the nodes: a chain may be longer than the stack.
    for (; read_ <= value.id.index; ++read_) forms_[read_] = read(builder_.value({read_}));
    return forms_.at(value.id.index);
  }

  /// Terms of one kind, and of one divisor, become one.
  std::vector<LossTerm> joined(const Value& loss, const std::vector<Term>& terms) {
    const auto is_mean = [&](const Term& term) {
      return term.kind == TermKind::Free || term.kind == TermKind::Mean || (is_fixed() && term.kind == TermKind::Sum);
    };
    if (std::all_of(terms.begin(), terms.end(), is_mean)) return {{loss, {}, {}, {}}};
    if (std::all_of(terms.begin(), terms.end(), [](const Term& term) { return term.kind == TermKind::Sum; })) return {sum_term(loss)};
    std::vector<LossTerm> found;
    std::optional<Value> means, sums;
    const auto add = [](std::optional<Value>& total, const Value& value) { total = total ? *total + value : value; };
    for (const Term& term : terms) {
      if (is_mean(term))
        add(means, term.numerator);
      else if (term.kind == TermKind::Sum)
        add(sums, term.numerator);
      else if (const auto same = std::find_if(found.begin(), found.end(),
                                              [&](const LossTerm& other) { return equal_divisors({*other.sum, other.least, other.constant}, *term.divisor); });
               same != found.end())
        same->numerator = same->numerator + term.numerator;
      else
        found.push_back({term.numerator, term.divisor->sum, term.divisor->least, term.divisor->constant});
    }
    if (sums) found.push_back(sum_term(*sums));
    if (means) found.push_back({*means, {}, {}, {}});
    return found;
  }

 private:
  static LossTerm sum_term(const Value& numerator) {
    return {numerator, scalar(*numerator.builder, numerator.dtype(), 0), {}, scalar(*numerator.builder, numerator.dtype(), 1)};
  }

  // ---- sizes
  bool counts_rows(const Dim& dim) const {
    if (dim.is_constant()) return fixed_rows_ > 0 && dim.constant() > 0 && dim.constant() % fixed_rows_ == 0;
    const std::vector<std::string> symbols = dim.symbols();
    return std::any_of(symbols.begin(), symbols.end(), [&](const std::string& symbol) { return symbols_.contains(symbol); });
  }
  bool has_rows(const Shape& shape) const {
    return std::any_of(shape.begin(), shape.end(), [&](const Dim& dim) { return counts_rows(dim); });
  }
  /// So many elements for each row.
  bool is_multiple_of_rows(const Dim& dim) const {
    if (dim.is_constant()) return counts_rows(dim);
    return std::any_of(symbols_.begin(), symbols_.end(), [&](const std::string& symbol) {
      const auto quotient = exact_quotient(dim, Dim::symbol(symbol));
      return quotient && !counts_rows(*quotient);
    });
  }
  Value row_count(DType dtype) { return is_fixed() ? scalar(builder_, dtype, 1) : size_value(builder_, dtype, Dim::symbol(*symbols_.begin())); }

  // ---- parts of the graph
  const Node* producer(const Value& value) const {
    const int32_t node = builder_.graph().values[static_cast<size_t>(value.id.index)].node;
    return node < 0 ? nullptr : &builder_.graph().nodes[static_cast<size_t>(node)];
  }
  bool equal_values(const Value& a, const Value& b, int& budget) const {
    if (a.id == b.id) return true;
    const Node *x = producer(a), *y = producer(b);
    if (--budget < 0 || !x || !y || !(x->op == y->op) || std::holds_alternative<Random>(x->op) || is_control(x->op) || x->inputs.size() != y->inputs.size())
      return false;
    for (size_t i = 0; i < x->inputs.size(); ++i)
      if (!equal_values(builder_.value(x->inputs[i]), builder_.value(y->inputs[i]), budget)) return false;
    return true;
  }
  bool equal_parts(const std::optional<Value>& a, const std::optional<Value>& b) const {
    int budget = 1000;
    return a.has_value() == b.has_value() && (!a || equal_values(*a, *b, budget));
  }
  bool equal_divisors(const Divisor& a, const Divisor& b) const {
    return equal_parts(a.sum, b.sum) && equal_parts(a.least, b.least) && equal_parts(a.constant, b.constant);
  }

  static Form other() { return Form::of(Dependence::Other); }

  // ---- the rules
  Form read(const Value& value) {
    const Node* node = producer(value);
    const bool has_parameters = node ? reads_parameters(*node, value) : is_parameter(value);
    Form form = node ? read_node(Node(*node), value) : read_input(value);  // a copy: rules add nodes
    form.has_parameters = has_parameters;
    return form;
  }
  bool is_parameter(const Value& value) const {
    const auto& inputs = builder_.graph().inputs;
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const GraphInput& input) { return input.value == value.id && input.role.kind == RoleKind::Parameter; });
  }
  bool reads_parameters(const Node& node, const Value& value) {
    std::vector<bool> needed(node.inputs.size(), true);
    if (const Call* call = std::get_if<Call>(&node.op)) {
      std::vector<bool> results;
      for (ValueId result : node.results) results.push_back(result == value.id);
      needed = needed_inputs(builder_.module(), builder_.module().graph(call->graph), results);
    }
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (needed[i] && forms_.at(node.inputs[i].index).has_parameters) return true;
    return false;
  }
  Form read_input(const Value& value) const {
    for (const GraphInput& input : builder_.graph().inputs) {
      if (input.value != value.id || input.role.kind != RoleKind::Batch) continue;
      return has_rows(value.shape()) ? Form::of(Dependence::Rows) : other();
    }
    return Form{};
  }

  Form read_node(const Node& node, const Value& value) {
    std::vector<Form> operands;
    for (ValueId input : node.inputs) operands.push_back(forms_.at(input.index));
    const bool is_free = std::all_of(operands.begin(), operands.end(), [](const Form& form) { return form.is_free(); });
    // Where rows are a number, other dims may be a multiple of it by chance: what does not depend on the batch has none.
    if (is_free && is_fixed()) return Form{};
    if (has_rows(value.shape())) return read_rows(node, operands);
    if (const auto* size = std::get_if<SizeValue>(&node.op)) return read_size(*size, value);
    if (is_free) return Form{};
    if (const auto* unary = std::get_if<Unary>(&node.op); unary && unary->kind == UnaryKind::Reciprocal)
      return inverse_of(builder_.value(node.inputs[0]), ones_like(value));
    if (const auto* binary = std::get_if<Binary>(&node.op)) return read_binary(binary->kind, node, operands, value);
    if (const auto* reduce = std::get_if<Reduce>(&node.op); reduce && operands[0].dependence == Dependence::Rows)
      return read_reduction(*reduce, node, operands[0], value);
    if (const auto* product = std::get_if<MatMul>(&node.op)) return read_product(*product, node, operands, value);
    if (std::holds_alternative<Select>(node.op)) return read_clamp(node, operands);
    if (std::holds_alternative<Concatenate>(node.op)) return read_concatenation(node, operands);
    if (is_linear(node.op) && operands[0].dependence == Dependence::Terms) return mapped(node, operands[0], 0);
    if (is_linear(node.op) && operands[0].dependence == Dependence::None)
      return divided(Dependence::None, operands[0].over, with_operand(node, 0, operands[0].undivided));
    return other();
  }

  static bool is_linear(const Op& op) {
    if (const auto* reduce = std::get_if<Reduce>(&op)) return reduce->kind == ReduceKind::Sum;
    if (const auto* convert = std::get_if<Convert>(&op)) return is_floating(convert->dtype);
    if (const auto* unary = std::get_if<Unary>(&op)) return unary->kind == UnaryKind::Negate;
    return std::holds_alternative<Reshape>(op) || std::holds_alternative<Transpose>(op) || std::holds_alternative<Broadcast>(op) ||
           std::holds_alternative<Slice>(op) || std::holds_alternative<StopGradient>(op);
  }
  /// The node with another operand.
  Value with_operand(const Node& node, size_t operand, const Value& value) {
    std::vector<Value> inputs;
    for (ValueId input : node.inputs) inputs.push_back(builder_.value(input));
    inputs[operand] = value;
    return builder_.emit(node.op, inputs).at(0);
  }
  static Form divided(Dependence dependence, const std::optional<Divisor>& over, const Value& undivided) {
    Form form = Form::of(dependence);
    form.over = over;
    form.undivided = undivided;
    return form;
  }
  /// The node for each numerator in the place of one operand.
  Form mapped(const Node& node, Form form, size_t operand) {
    const auto apply = [&](const Value& part) { return with_operand(node, operand, part); };
    for (Term& term : form.terms) term.numerator = apply(term.numerator);
    if (!form.over) return form;
    // A divisor stays one under what only changes its type.
    if (!std::holds_alternative<Convert>(node.op)) return other();
    form.over = Divisor{apply(form.over->sum), form.over->least ? std::optional(apply(*form.over->least)) : std::nullopt,
                        form.over->constant ? std::optional(apply(*form.over->constant)) : std::nullopt};
    return form;
  }

  /// A term of one operand, beside zeros for the others.
  Form read_concatenation(const Node& node, const std::vector<Form>& operands) {
    std::vector<Term> terms;
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool is_free = operands[i].is_free();
      if (!is_free && (operands[i].dependence != Dependence::Terms || operands[i].over)) return other();
      const std::vector<Term> own = is_free ? std::vector<Term>{{TermKind::Free, builder_.value(node.inputs[i]), {}}} : operands[i].terms;
      for (const Term& term : own) {
        std::vector<Value> parts;
        for (ValueId input : node.inputs) parts.push_back(zeros_like(builder_.value(input)));
        parts[i] = term.numerator;
        terms.push_back({term.kind, builder_.emit(node.op, parts).at(0), term.divisor});
      }
    }
    return Form::of(merged(std::move(terms)));
  }

  Form read_size(const SizeValue& size, const Value& value) const {
    if (!counts_rows(size.dim) || size.dim.is_constant()) return Form{};
    return is_multiple_of_rows(size.dim) ? Form::of(std::vector<Term>{{TermKind::Sum, value, {}}}) : other();
  }

  /// Whether the graph stretches one number of the whole batch over rows again, as a softmax over the rows does.
  bool spreads_a_number(const Graph& graph, const std::vector<bool>& of_batch_inputs) const {
    std::vector<bool> of_batch(graph.values.size()), is_number(graph.values.size());
    for (size_t i = 0; i < graph.inputs.size(); ++i) of_batch[at(graph.inputs[i].value)] = of_batch_inputs[i];
    for (const Node& node : graph.nodes) {
      std::vector<bool> inputs;
      bool reads_batch = false, reads_number = false;
      for (ValueId input : node.inputs) {
        inputs.push_back(of_batch[at(input)]);
        reads_batch = reads_batch || of_batch[at(input)];
        reads_number = reads_number || is_number[at(input)];
      }
      const Call* call = std::get_if<Call>(&node.op);
      if (call && reads_batch && spreads_a_number(builder_.module().graph(call->graph), inputs)) return true;
      for (ValueId result : node.results) {
        const Shape& shape = graph.type(result).shape;
        if (reads_number && has_rows(shape)) return true;
        of_batch[at(result)] = reads_batch;
        is_number[at(result)] = reads_batch && element_count(shape) == Dim(1);
      }
    }
    return false;
  }

  /// What has a dim of rows is made row by row, unless one number of the whole batch takes part in it. A sum that only the data decide may divide it. Numbers
  /// for each channel are those of a batch norm, which knows the rows at hand.
  Form read_rows(const Node& node, const std::vector<Form>& operands) {
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i].dependence == Dependence::Other && has_rows(builder_.value(node.inputs[i]).shape())) return other();
    if (const Call* call = std::get_if<Call>(&node.op)) {
      std::vector<bool> of_batch;
      for (const Form& form : operands) of_batch.push_back(!form.is_free());
      if (spreads_a_number(builder_.module().graph(call->graph), of_batch)) return other();
    }
    Form rows = Form::of(Dependence::Rows);
    if (is_linear(node.op)) {
      const Form& operand = operands[0];
      const bool of_batch = operand.dependence == Dependence::Terms || operand.dependence == Dependence::Other;
      if (!of_batch && operand.over) rows = divided(Dependence::Rows, operand.over, with_operand(node, 0, operand.undivided));
      rows.is_statistic = of_batch || operand.is_statistic;
      rows.spread = operand.spread;
      if (const Value source = builder_.value(node.inputs[0]); of_batch && element_count(source.shape()) == Dim(1)) rows.spread = source;
      return rows;
    }
    const bool is_divided = std::any_of(operands.begin(), operands.end(), [](const Form& form) { return form.over && form.dependence != Dependence::Terms; });
    const auto* binary = std::get_if<Binary>(&node.op);
    if (binary && binary->kind == BinaryKind::Divide && operands[1].is_statistic && !operands[1].has_parameters) {
      const auto divisor = operands[1].spread && !is_divided ? divisor_of(*operands[1].spread) : std::nullopt;
      return divisor ? divided(Dependence::Rows, divisor, builder_.value(node.inputs[0])) : other();
    }
    if (std::any_of(operands.begin(), operands.end(), [](const Form& form) { return form.spread.has_value(); })) return other();
    if (!is_divided) return rows;
    if (!binary) return other();
    const auto &a = operands[0].over, &b = operands[1].over;
    const bool is_sum = binary->kind == BinaryKind::Add || binary->kind == BinaryKind::Subtract;
    if (is_sum ? !(a && b && equal_divisors(*a, *b)) : binary->kind != BinaryKind::Multiply || (a && b)) return other();
    if (is_sum) return divided(Dependence::Rows, a, builder_.emit_one(node.op, {operands[0].undivided, operands[1].undivided}));
    return divided(Dependence::Rows, a ? a : b, with_operand(node, a ? 0 : 1, operands[a ? 0 : 1].undivided));
  }

  /// `above`, which does not depend on the batch, divided by a number that does.
  Form inverse_of(const Value& value, const Value& above) {
    const auto divisor = divisor_of(value);
    return divisor ? divided(Dependence::None, divisor, above) : other();
  }
  /// By the node, which sums over rows: `extent` elements of its operand.
  Form summed(const Node& node, size_t operand, const Form& rows, const Dim& extent, const Value& value) {
    if (rows.spread) return other();
    if (!is_multiple_of_rows(extent)) {
      Form form = other();
      if (!rows.over) form.extent = extent;
      return form;
    }
    if (!rows.over) return Form::of(std::vector<Term>{{TermKind::Sum, value, {}}});
    return Form::of(std::vector<Term>{{TermKind::Quotient, with_operand(node, operand, rows.undivided), rows.over}});
  }
  Form read_reduction(const Reduce& reduce, const Node& node, const Form& rows, const Value& value) {
    if (reduce.kind != ReduceKind::Sum) return other();
    Dim extent = 1;
    for (int64_t d : reduce.dims)
      if (const Dim size = builder_.value(node.inputs[0]).dim(d); counts_rows(size)) extent = extent * size;
    return summed(node, 0, rows, extent, value);
  }
  Form read_product(const MatMul& product, const Node& node, const std::vector<Form>& operands, const Value& value) {
    for (size_t i = 0; i < 2; ++i)
      if (operands[i].dependence == Dependence::Terms && operands[1 - i].is_free() && !operands[i].over) return mapped(node, operands[i], i);
    const auto is_rows = [](const Form& form) { return form.dependence == Dependence::Rows || form.is_free(); };
    if (!is_rows(operands[0]) || !is_rows(operands[1]) || (operands[0].over && operands[1].over)) return other();
    Dim extent = 1;
    for (int64_t d : product.lhs_contract)
      if (const Dim size = builder_.value(node.inputs[0]).dim(d); counts_rows(size)) extent = extent * size;
    const size_t operand = operands[0].over ? 0 : 1;
    return summed(node, operand, operands[operand], extent, value);
  }
  /// where(sum < least, least, sum), or, as clamps are written, where(sum >= least, sum, where(sum < least, least, ...)).
  Form read_clamp(const Node& node, const std::vector<Form>& operands) {
    const Value chosen = builder_.value(node.inputs[1]), otherwise = builder_.value(node.inputs[2]);
    if (compares(node.inputs[0], CompareKind::Less, otherwise, chosen)) return at_least(operands[2], operands[1], otherwise, chosen);
    const Node* inner = producer(otherwise);
    if (!inner || !std::holds_alternative<Select>(inner->op)) return other();
    const Value least = builder_.value(inner->inputs[1]);
    if (!compares(node.inputs[0], CompareKind::GreaterEqual, chosen, least) || !compares(inner->inputs[0], CompareKind::Less, chosen, least)) return other();
    return at_least(operands[1], forms_.at(least.id.index), chosen, least);
  }
  /// With or without gradients.
  bool compares(ValueId condition, CompareKind kind, const Value& a, const Value& b) const {
    const Node* node = producer(builder_.value(condition));
    const auto* compare = node ? std::get_if<Compare>(&node->op) : nullptr;
    if (!compare || compare->kind != kind) return false;
    int budget = 1000;
    const Node* stopped = producer(builder_.value(node->inputs[0]));
    const bool is_a = node->inputs[0] == a.id || (stopped && std::holds_alternative<StopGradient>(stopped->op) && stopped->inputs[0] == a.id);
    return is_a && equal_values(builder_.value(node->inputs[1]), b, budget);
  }
  Form at_least(const Form& sum, const Form& least, const Value& sum_value, const Value& least_value) {
    const bool is_sum = sum.dependence == Dependence::Terms && !sum.over && sum.terms.size() == 1 && sum.terms[0].kind == TermKind::Sum;
    if (!is_sum || !least.is_free() || !(element_count(sum_value.shape()) == Dim(1))) return other();
    Form form = Form::of(Dependence::Terms);
    form.over = Divisor{as_scalar(sum_value), as_scalar(least_value), {}};
    return form;
  }

  static Value as_scalar(const Value& value) { return value.rank() == 0 ? value : reshape(value, {}); }
  /// What is stretched, reshaped or converted to give `value`, if that is how it is made.
  std::optional<Value> spread_of(const Value& value) const {
    const Node* node = producer(value);
    if (!node || !(std::holds_alternative<Broadcast>(node->op) || std::holds_alternative<Reshape>(node->op) || std::holds_alternative<Convert>(node->op)))
      return std::nullopt;
    return builder_.value(node->inputs[0]);
  }
  /// The one number that is stretched.
  Value unspread(Value value) const {
    while (const auto from = spread_of(value)) value = *from;
    return value;
  }
  bool is_count(const Value& value) const {
    const Node* node = producer(unspread(value));
    return node && std::holds_alternative<SizeValue>(node->op);
  }
  /// A number that depends on the batch but on no parameter, by which something is divided.
  std::optional<Divisor> divisor_of(Value value) {
    while (!(element_count(value.shape()) == Dim(1))) {
      const auto from = spread_of(value);
      if (!from) return std::nullopt;
      value = *from;
    }
    const Form& form = this->form(value);
    if (form.dependence != Dependence::Terms || form.has_parameters) return std::nullopt;
    if (form.over) return form.over;
    std::optional<Value> sum, constant;
    for (const Term& term : form.terms) {
      std::optional<Value>& slot = term.kind == TermKind::Sum ? sum : constant;
      if (slot || (term.kind != TermKind::Sum && term.kind != TermKind::Free)) return std::nullopt;
      slot = as_scalar(term.numerator);
    }
    if (!sum) return std::nullopt;
    return Divisor{*sum, {}, constant};
  }

  Form read_binary(BinaryKind kind, const Node& node, const std::vector<Form>& operands, const Value& value) {
    const Value a = builder_.value(node.inputs[0]), b = builder_.value(node.inputs[1]);
    const auto is_free = [&](size_t i) { return operands[i].is_free(); };
    const auto is_terms = [&](size_t i) { return operands[i].dependence == Dependence::Terms; };
    switch (kind) {
      case BinaryKind::Add:
      case BinaryKind::Subtract: return read_addition(kind, operands, a, b);
      case BinaryKind::Maximum:
        if (is_free(1)) return at_least(operands[0], operands[1], a, b);
        return is_free(0) ? at_least(operands[1], operands[0], b, a) : other();
      case BinaryKind::Multiply:
        for (size_t i = 0; i < 2; ++i) {
          if (operands[i].dependence == Dependence::None && is_free(1 - i))
            return divided(Dependence::None, operands[i].over, with_operand(node, i, operands[i].undivided));
          if (is_terms(i) && is_free(1 - i) && !operands[i].over) return mapped(node, operands[i], i);
          if (is_count(i == 0 ? b : a) && all_are(operands[i], TermKind::Mean)) return Form::of(std::vector<Term>{{TermKind::Sum, value, {}}});
          const Form &sum = operands[i], &inverse = operands[1 - i];
          if (is_terms(i) && inverse.dependence == Dependence::None && inverse.over && !sum.over && all_are(sum, TermKind::Sum))
            return Form::of(std::vector<Term>{{TermKind::Quotient, with_operand(node, 1 - i, inverse.undivided), inverse.over}});
        }
        return other();
      case BinaryKind::Divide:
        if (is_terms(0) && is_free(1) && !operands[0].over) return mapped(node, operands[0], 0);
        if (operands[0].dependence == Dependence::None && is_free(1))
          return divided(Dependence::None, operands[0].over, with_operand(node, 0, operands[0].undivided));
        return read_quotient(operands, a, b, value);
      default: return other();
    }
  }
  static bool all_are(const Form& form, TermKind kind) {
    return !form.terms.empty() && std::all_of(form.terms.begin(), form.terms.end(), [&](const Term& term) { return term.kind == kind; });
  }
  Form read_addition(BinaryKind kind, const std::vector<Form>& operands, const Value& a, const Value& b) {
    std::vector<Term> terms;
    std::optional<Divisor> divisor;
    for (size_t i = 0; i < 2; ++i) {
      const Form& form = operands[i];
      const Value operand = i == 0 ? a : b;
      const auto signed_value = [&](const Value& part) { return i == 1 && kind == BinaryKind::Subtract ? neg(part) : part; };
      if (form.is_free()) {
        terms.push_back({TermKind::Free, signed_value(operand), {}});
      } else if (form.dependence == Dependence::Terms && !form.over) {
        for (const Term& term : form.terms) terms.push_back({term.kind, signed_value(term.numerator), term.divisor});
      } else if (form.dependence == Dependence::Terms && !form.over->constant && !divisor && (i == 0 || kind == BinaryKind::Add)) {
        divisor = form.over;
      } else {
        return other();
      }
    }
    if (!divisor) return Form::of(merged(std::move(terms)));
    if (terms.size() != 1 || terms[0].kind != TermKind::Free) return other();
    Form form = Form::of(Dependence::Terms);
    form.over = Divisor{divisor->sum, divisor->least, as_scalar(terms[0].numerator)};
    return form;
  }
  /// Of sums one, and of what does not depend on the batch.
  static std::vector<Term> merged(std::vector<Term> terms) {
    std::vector<Term> found;
    for (const Term& term : terms) {
      const auto same = std::find_if(found.begin(), found.end(), [&](const Term& other) { return other.kind == term.kind && term.kind != TermKind::Quotient; });
      if (same == found.end())
        found.push_back(term);
      else
        same->numerator = same->numerator + term.numerator;
    }
    return found;
  }
  Form read_quotient(const std::vector<Form>& operands, const Value& a, const Value& b, const Value& value) {
    const Form &above = operands[0], &below = operands[1];
    if (is_count(b) && above.extent) {  // a mean over pairs of rows, or over the steps between them
      const auto rest = exact_quotient(std::get<SizeValue>(producer(unspread(b))->op).dim, *above.extent);
      return rest && !counts_rows(*rest) ? Form::of(std::vector<Term>{{TermKind::Mean, value, {}}}) : other();
    }
    if (is_count(b) && below.dependence == Dependence::Terms && !above.over && all_are(above, TermKind::Sum))
      return Form::of(std::vector<Term>{{TermKind::Mean, value, {}}});
    const bool means = all_are(above, TermKind::Mean) && all_are(below, TermKind::Mean) && !below.has_parameters && !above.over && !below.over;
    if (means && element_count(b.shape()) == Dim(1))
      return Form::of(std::vector<Term>{{TermKind::Quotient, a * row_count(a.dtype()), Divisor{as_scalar(b) * row_count(b.dtype()), {}, {}}}});
    if (above.is_free()) return inverse_of(b, a);
    const auto divisor = divisor_of(b);
    if (!divisor) return other();
    if (above.dependence != Dependence::Terms || above.over || !all_are(above, TermKind::Sum)) return other();
    return Form::of(std::vector<Term>{{TermKind::Quotient, a, divisor}});
  }

  Builder& builder_;
  std::set<std::string> symbols_;
  int64_t fixed_rows_ = 0;
  std::map<int32_t, Form> forms_;
  int32_t read_ = 0;
};

}  // namespace

std::optional<std::vector<LossTerm>> loss_terms(const Value& loss) {
  LossReader reader(*loss.builder);
  if (!reader.has_rows()) return std::vector<LossTerm>{{loss, {}, {}, {}}};
  const Form form = reader.form(loss);
  if (form.is_free()) return std::vector<LossTerm>{{loss, {}, {}, {}}};
  if (form.dependence != Dependence::Terms || form.over || form.terms.empty()) return std::nullopt;
  return reader.joined(loss, form.terms);
}

}  // namespace stepgraph::pt2
