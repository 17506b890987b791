// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/capture/pt2/program_json.h"

#include <algorithm>

#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

int category(DType dtype) { return dtype == DType::Bool ? 0 : is_floating(dtype) ? 2 : 1; }

std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower || category(*higher) >= category(*lower)) return higher;
  return promote(*higher, *lower);
}

std::optional<DType> join(std::optional<DType> a, DType b) { return a ? promote(*a, b) : b; }

}  // namespace

OperatorCall::OperatorCall(const ExportedNode& node, Surroundings& surroundings, const std::map<std::string, Item>& names)
    : node_(node), surroundings_(surroundings), names_(names) {}

void OperatorCall::fail(const std::string& message) const {
  throw UserError(node_.target + " (" + node_.name + "): " + message, SourcePlace{node_.place_file, node_.place_line});
}

const Argument* OperatorCall::find(std::string_view argument) const {
  for (const NamedArgument& input : node_.inputs)
    if (input.name == argument) return &input.value;
  return nullptr;
}

const Item& OperatorCall::item(const std::string& name) const {
  const auto found = names_.find(name);
  if (found == names_.end()) fail("value '" + name + "' is read before it is defined");
  return found->second;
}

bool OperatorCall::has(std::string_view argument) const {
  const Argument* found = find(argument);
  return found && !std::holds_alternative<None>(*found);
}

Tensor OperatorCall::handle(std::string_view argument) const {
  const Argument* found = find(argument);
  if (found)
    if (const TensorRef* reference = std::get_if<TensorRef>(found))
      if (const Tensor* tensor = std::get_if<Tensor>(&item(reference->name))) {
        if (tensor->defined()) tensor->value();  // a view is read once, and known in all copies: a row that asks twice gets one value
        return *tensor;
      }
  fail("argument '" + std::string(argument) + "' is not a tensor");
}

Value OperatorCall::read(const Tensor& tensor) const {
  const Value value = tensor.value();
  const std::optional<DType> cast = surroundings_.cast;
  const Value given = cast && is_floating(value.dtype()) && value.dtype() != DType::F64 ? convert(value, *cast, false) : value;
  return half_ ? widened(given) : given;
}

/// The 16-bit dtype that the operands promote to, if there is one and no other is asked for.
std::optional<DType> OperatorCall::common_half() const {
  std::vector<pt2::Operand> operands;
  for (const NamedArgument& input : node_.inputs)
    if (const TensorRef* reference = std::get_if<TensorRef>(&input.value))
      if (const Tensor* tensor = std::get_if<Tensor>(&item(reference->name)); tensor && tensor->defined() && is_floating(tensor->value().dtype())) operands.emplace_back(read(*tensor));
  if (operands.empty()) return std::nullopt;
  const DType common = result_type(operands);
  const bool is_kept = !has("dtype") || dtype() == common;
  return (common == DType::BF16 || common == DType::F16) && is_kept ? std::optional<DType>(common) : std::nullopt;
}

void OperatorCall::run_in_f32(Row row) {
  const std::optional<DType> half = half_ ? std::nullopt : common_half();
  if (!half) return row(*this);
  const size_t first = outputs_.size();
  half_ = half;
  row(*this);
  half_.reset();
  for (size_t i = first; i < outputs_.size(); ++i)
    if (Tensor* tensor = std::get_if<Tensor>(&outputs_[i]); tensor && tensor->value().dtype() == DType::F32) *tensor = Tensor(convert(tensor->value(), *half));
}

Value OperatorCall::rounded(const Value& value) const { return half_ && value.dtype() == DType::F32 ? widened(convert(value, *half_)) : value; }

Value OperatorCall::tensor(std::string_view argument) const { return read(handle(argument)); }

std::optional<Value> OperatorCall::maybe_tensor(std::string_view argument) const {
  if (!has(argument)) return std::nullopt;
  return tensor(argument);
}

std::vector<Tensor> OperatorCall::handles(std::string_view argument) const {
  const Argument* found = find(argument);
  std::vector<Tensor> tensors;
  if (!found) fail("argument '" + std::string(argument) + "' is missing");
  auto add = [&](const TensorRef& reference) {
    if (const Tensor* tensor = std::get_if<Tensor>(&item(reference.name)))
      tensors.push_back(*tensor);
    else
      fail("'" + reference.name + "' is not a tensor");
  };
  if (const auto* list = std::get_if<std::vector<TensorRef>>(found)) {
    for (const TensorRef& reference : *list) add(reference);
  } else if (const auto* optional = std::get_if<std::vector<std::optional<TensorRef>>>(found)) {
    for (const auto& reference : *optional) {
      if (!reference) fail("argument '" + std::string(argument) + "' has a gap");
      add(*reference);
    }
  } else if (const auto* reference = std::get_if<TensorRef>(found)) {
    const Item& value = item(reference->name);
    if (const auto* tensor_list = std::get_if<std::vector<Tensor>>(&value)) return *tensor_list;
    add(*reference);
  } else {
    fail("argument '" + std::string(argument) + "' is not a list of tensors");
  }
  return tensors;
}

std::vector<Value> OperatorCall::tensors(std::string_view argument) const {
  std::vector<Value> values;
  for (const Tensor& tensor : handles(argument)) values.push_back(read(tensor));
  return values;
}

std::vector<std::optional<Value>> OperatorCall::optional_tensors(std::string_view argument) const {
  std::vector<std::optional<Value>> values;
  if (const Argument* found = find(argument))
    if (const auto* list = std::get_if<std::vector<std::optional<TensorRef>>>(found)) {
      for (const auto& reference : *list) {
        const Tensor* tensor = reference ? std::get_if<Tensor>(&item(reference->name)) : nullptr;
        if (reference && !tensor) fail("'" + reference->name + "' is not a tensor");
        values.push_back(tensor ? std::optional<Value>(read(*tensor)) : std::nullopt);
      }
      return values;
    }
  for (const Value& value : tensors(argument)) values.emplace_back(value);
  return values;
}

Dim OperatorCall::dim_of(const std::variant<int64_t, std::string>& value) const {
  if (const int64_t* constant = std::get_if<int64_t>(&value)) return Dim(*constant);
  const Item& found = item(std::get<std::string>(value));
  if (const Dim* dim = std::get_if<Dim>(&found)) return *dim;
  if (std::holds_alternative<Tensor>(found)) fail("'" + std::get<std::string>(value) + "' depends on data, wanted a size that the inputs' sizes give");
  fail("'" + std::get<std::string>(value) + "' is not a size");
}

std::optional<Number> OperatorCall::maybe_number(std::string_view argument) const {
  const Argument* found = find(argument);
  if (!found || std::holds_alternative<None>(*found)) return std::nullopt;
  return std::visit(
      Overloaded{
          [](int64_t value) -> Number { return {Number::Kind::Int, static_cast<double>(value), Dim(value)}; },
          [](double value) -> Number { return {Number::Kind::Float, value, {}}; },
          [](bool value) -> Number { return {Number::Kind::Bool, value ? 1.0 : 0.0, {}}; },
          [&](const SymInt& value) -> Number {
            const Dim dim = dim_of(value.value);
            return {Number::Kind::Int, dim.is_constant() ? static_cast<double>(dim.constant()) : 0, dim};
          },
          [&](const SymFloat& value) -> Number {
            if (const double* constant = std::get_if<double>(&value.value)) return {Number::Kind::Float, *constant, {}};
            const Item& named = item(std::get<std::string>(value.value));
            if (const double* number = std::get_if<double>(&named)) return {Number::Kind::Float, *number, {}};
            fail("a symbolic float is not supported here");
          },
          [&](const SymBool& value) -> Number {
            if (const bool* constant = std::get_if<bool>(&value.value)) return {Number::Kind::Bool, *constant ? 1.0 : 0.0, {}};
            fail("a symbolic condition is not supported here");
          },
          [&](const auto&) -> Number { fail("argument '" + std::string(argument) + "' is not a number"); },
      },
      *found);
}

Number OperatorCall::number(std::string_view argument) const {
  const std::optional<Number> found = maybe_number(argument);
  if (!found) fail("argument '" + std::string(argument) + "' is missing");
  return *found;
}

Operand OperatorCall::operand(std::string_view argument) const {
  const Argument* found = find(argument);
  if (found && std::holds_alternative<TensorRef>(*found)) return tensor(argument);
  // A number that was taken from a tensor is that tensor.
  const SymInt* integer = found ? std::get_if<SymInt>(found) : nullptr;
  const SymFloat* real = found ? std::get_if<SymFloat>(found) : nullptr;
  const std::string* named = integer ? std::get_if<std::string>(&integer->value) : real ? std::get_if<std::string>(&real->value) : nullptr;
  if (named)
    if (const Tensor* taken = std::get_if<Tensor>(&item(*named))) {
      const Value value = read(*taken);
      // As a number of Python's it does not widen a tensor.
      return real && value.dtype() == DType::F64 ? convert(value, DType::F32) : value;
    }
  return number(argument);
}

int64_t OperatorCall::integer(std::string_view argument, std::optional<int64_t> otherwise) const {
  const std::optional<Number> found = maybe_number(argument);
  if (!found) {
    if (otherwise) return *otherwise;
    fail("argument '" + std::string(argument) + "' is missing");
  }
  if (found->symbol) {
    if (!found->symbol->is_constant()) fail("argument '" + std::string(argument) + "' is the size " + found->symbol->text() + ", wanted a constant");
    return found->symbol->constant();
  }
  return static_cast<int64_t>(found->value);
}

double OperatorCall::real(std::string_view argument, std::optional<double> otherwise) const {
  const std::optional<Number> found = maybe_number(argument);
  if (!found) {
    if (otherwise) return *otherwise;
    fail("argument '" + std::string(argument) + "' is missing");
  }
  if (found->symbol && !found->symbol->is_constant()) fail("argument '" + std::string(argument) + "' is a symbolic size, wanted a constant");
  return found->value;
}

bool OperatorCall::boolean(std::string_view argument, std::optional<bool> otherwise) const {
  const std::optional<Number> found = maybe_number(argument);
  if (!found) {
    if (otherwise) return *otherwise;
    fail("argument '" + std::string(argument) + "' is missing");
  }
  return found->value != 0;
}

std::string OperatorCall::text(std::string_view argument, std::string otherwise) const {
  const Argument* found = find(argument);
  if (found)
    if (const std::string* value = std::get_if<std::string>(found)) return *value;
  return otherwise;
}

std::vector<int64_t> OperatorCall::integers(std::string_view argument, std::vector<int64_t> otherwise) const {
  const Argument* found = find(argument);
  if (!found || std::holds_alternative<None>(*found)) return otherwise;
  if (const auto* list = std::get_if<std::vector<int64_t>>(found)) return *list;
  std::vector<int64_t> values;
  for (const Dim& dim : sizes(argument)) {
    if (!dim.is_constant()) fail("argument '" + std::string(argument) + "' holds the size " + dim.text() + ", wanted constants");
    values.push_back(dim.constant());
  }
  return values;
}

std::vector<double> OperatorCall::reals(std::string_view argument) const {
  const Argument* found = find(argument);
  if (!found || std::holds_alternative<None>(*found)) return {};
  if (const auto* list = std::get_if<std::vector<double>>(found)) return *list;
  std::vector<double> values;
  for (int64_t value : integers(argument)) values.push_back(static_cast<double>(value));
  return values;
}

Dim OperatorCall::size(std::string_view argument) const {
  const Number found = number(argument);
  if (found.symbol) return *found.symbol;
  return Dim(static_cast<int64_t>(found.value));
}

Shape OperatorCall::sizes(std::string_view argument) const {
  const Argument* found = find(argument);
  Shape shape;
  if (!found) fail("argument '" + std::string(argument) + "' is missing");
  if (const auto* list = std::get_if<std::vector<int64_t>>(found)) {
    for (int64_t value : *list) shape.emplace_back(value);
  } else if (const auto* symbols = std::get_if<std::vector<SymInt>>(found)) {
    for (const SymInt& value : *symbols) shape.push_back(dim_of(value.value));
  } else if (std::holds_alternative<int64_t>(*found) || std::holds_alternative<SymInt>(*found)) {
    shape.push_back(size(argument));
  } else if (const auto* empty = std::get_if<std::vector<TensorRef>>(found); !empty || !empty->empty()) {
    fail("argument '" + std::string(argument) + "' is not a list of sizes");
  }
  return shape;
}

std::optional<DType> OperatorCall::dtype(std::string_view argument) const {
  const Argument* found = find(argument);
  if (!found || std::holds_alternative<None>(*found)) return std::nullopt;
  const ScalarType* type = std::get_if<ScalarType>(found);
  if (!type) fail("argument '" + std::string(argument) + "' is not a dtype");
  if (!type->dtype) fail("the type " + type_of_number(type->number) + " is not supported");
  return half_ && type->dtype == half_ ? DType::F32 : type->dtype;
}

int64_t OperatorCall::wrap(int64_t dim, int64_t rank) const {
  const int64_t limit = std::max<int64_t>(rank, 1);
  if (dim < -limit || dim >= limit) fail("dim " + std::to_string(dim) + " is out of range for " + std::to_string(rank) + " dims");
  return dim < 0 ? dim + limit : dim;
}

std::vector<int64_t> OperatorCall::dims(std::string_view argument, int64_t rank, bool empty_is_all) const {
  std::vector<int64_t> found;
  if (has(argument))
    for (int64_t dim : integers(argument)) found.push_back(wrap(dim, rank));
  if (!has(argument) || (found.empty() && empty_is_all)) {
    found.clear();
    for (int64_t d = 0; d < rank; ++d) found.push_back(d);
  }
  if (rank == 0) found.clear();
  std::sort(found.begin(), found.end());
  if (std::adjacent_find(found.begin(), found.end()) != found.end()) fail("a dim appears twice in '" + std::string(argument) + "'");
  return found;
}

void OperatorCall::results(const std::vector<Value>& values) {
  for (const Value& value : values) result(value);
}

void OperatorCall::result_list(const std::vector<Value>& values) {
  std::vector<Tensor> tensors;
  for (const Value& value : values) tensors.emplace_back(value);
  outputs_.emplace_back(std::move(tensors));
}

namespace {

bool is_row_major(const TensorMeta& meta) {
  Dim expected = 1;
  for (size_t d = meta.sizes.size(); d-- > 0;) {
    if (!(meta.sizes[d] == Dim(1)) && !(meta.strides[d] == expected)) return false;
    expected = expected * meta.sizes[d];
  }
  return true;
}

/// Whether the wanted sizes can be laid over the strides: each run of dims that lies like one dim is cut up by wanted dims, none of which reaches into the next run.
bool lies_over(const TensorMeta& meta, const Shape& wanted) {
  size_t next = wanted.size();
  int64_t run = 1, covered = 1, base = meta.strides.empty() ? 1 : meta.strides.back().constant(), step = 0;
  for (size_t d = meta.sizes.size(); d-- > 0;) {
    run *= meta.sizes[d].constant();
    if (__builtin_mul_overflow(run, base, &step)) return false;
    if (d > 0 && (meta.sizes[d - 1] == Dim(1) || meta.strides[d - 1] == Dim(step))) continue;
    while (next > 0 && (covered < run || wanted[next - 1] == Dim(1))) covered *= wanted[--next].constant();
    if (covered != run) return false;
    run = covered = 1;
    if (d > 0) base = meta.strides[d - 1].constant();
  }
  return next == 0;
}

}  // namespace

Truth OperatorCall::reshape_is_view(const Shape& shape) const {
  const Argument* found = find("self");
  const TensorRef* reference = found ? std::get_if<TensorRef>(found) : nullptr;
  if (!reference || !surroundings_.metas) return Truth::Unknown;
  const auto meta = surroundings_.metas->find(reference->name);
  if (meta == surroundings_.metas->end() || meta->second.sizes.size() != meta->second.strides.size()) return Truth::Unknown;
  if (is_row_major(meta->second)) return Truth::True;
  const auto constant = [](const Shape& sizes) { return std::all_of(sizes.begin(), sizes.end(), [](const Dim& size) { return size.is_constant(); }); };
  if (!constant(meta->second.sizes) || !constant(meta->second.strides) || !constant(shape)) return Truth::Unknown;
  if (element_count(meta->second.sizes) == Dim(0)) return Truth::True;
  if (!(element_count(meta->second.sizes) == element_count(shape))) return Truth::Unknown;
  return lies_over(meta->second, shape) ? Truth::True : Truth::False;
}

void OperatorCall::reshaped(const Shape& shape) {
  const Shape from = tensor("self").shape();
  const Truth is_view = reshape_is_view(shape);
  if (is_view == Truth::False) return result(reshape(tensor("self"), shape));
  const SourcePlace place{node_.place_file, node_.place_line};
  const bool is_known = is_view == Truth::True;
  alias(handle("self").view({[shape](const Value& x) { return reshape(x, shape); },
                             [from, is_known, place](const Value&, const Value& v) {
                               if (!is_known) throw UserError("a write into a reshaped tensor of which it is not known whether it is a copy; write before the reshape", place);
                               return reshape(v, from);
                             }}));
}

DType result_type(const std::vector<Operand>& operands) {
  std::optional<DType> with_dims, zero_dim, wrapped;
  for (const Operand& operand : operands) {
    if (const Value* value = std::get_if<Value>(&operand)) {
      auto& slot = value->rank() > 0 ? with_dims : zero_dim;
      slot = join(slot, value->dtype());
    } else {
      switch (std::get<Number>(operand).kind) {
        case Number::Kind::Bool: wrapped = join(wrapped, DType::Bool); break;
        case Number::Kind::Int: wrapped = join(wrapped, DType::I64); break;
        case Number::Kind::Float: wrapped = join(wrapped, DType::F32); break;
      }
    }
  }
  return combine(with_dims, combine(zero_dim, wrapped)).value();
}

Value as_value(Builder& builder, const Operand& operand, DType dtype) {
  if (const Value* value = std::get_if<Value>(&operand)) return convert(*value, dtype);
  const Number& number = std::get<Number>(operand);
  if (number.symbol && !number.symbol->is_constant()) return size_value(builder, dtype, *number.symbol);
  if (number.symbol && !is_floating(dtype)) return convert(constant(builder, Literal::integer(DType::I64, number.symbol->constant())), dtype);
  return scalar(builder, dtype, number.value);
}

Value as_floating(const Value& x) { return is_floating(x.dtype()) ? x : convert(x, DType::F32); }

Row find_row(const std::string& target) {
  static const std::map<std::string, Row> table = [] {
    std::map<std::string, Row> rows;
    for (const auto& part : {elementwise_rows(), reduction_rows(), shape_rows(),   creation_rows(),    index_rows(),   layer_rows(),   loss_rows(),
                             recurrent_rows(),   matrix_rows(),    model_rows(),   math_rows(),        order_rows(),   scatter_rows(), spatial_rows(),
                             margin_rows(),      random_rows(),    algebra_rows(), arrangement_rows(), special_rows(), backward_rows()})
      for (const NamedRow& row : part) SG_CHECK(rows.emplace(row.name, row.row).second, std::string("two rows for ") + row.name);
    return rows;
  }();
  constexpr std::string_view prefix = "torch.ops.aten.";
  if (!target.starts_with(prefix)) return nullptr;
  const std::string full = target.substr(prefix.size());
  if (const auto found = table.find(full); found != table.end()) return found->second;
  const std::string base = full.substr(0, full.find('.'));
  if (const auto found = table.find(base); found != table.end()) return found->second;
  const std::string_view canonical = canonical_name(base);
  return canonical == base ? nullptr : find_row(std::string(prefix) + std::string(canonical) + full.substr(base.size()));
}

std::optional<size_t> listed_results(const OperatorCall& call) {
  const std::vector<Argument>& outputs = call.node().outputs;
  if (outputs.size() > 1) return outputs.size();
  const auto* list = outputs.empty() ? nullptr : std::get_if<std::vector<TensorRef>>(&outputs[0]);
  return list ? std::optional(list->size()) : std::nullopt;
}

bool are_dense(OperatorCall& call, const Value& x, const Shape& sizes, const Shape& strides) {
  Dim expected = 1;
  bool dense = element_count(sizes) == element_count(x.shape()) && call.integer("storage_offset", 0) == 0;
  for (size_t d = sizes.size(); d-- > 0;) {
    dense = dense && (strides[d] == expected || sizes[d] == Dim(1));
    expected = expected * sizes[d];
  }
  return dense;
}

void loss_result(OperatorCall& call, const Value& unrounded) {
  const Value losses = call.rounded(unrounded);
  switch (call.integer("reduction", 1)) {
    case 0: return call.result(losses);
    case 1: return call.result(losses.rank() == 0 ? losses : mean(losses));
    default: return call.result(losses.rank() == 0 ? losses : sum(losses));
  }
}

}  // namespace stepgraph::pt2
