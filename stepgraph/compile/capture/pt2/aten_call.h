// SPDX-License-Identifier: Apache-2.0
// One call of an operator of the exported program: its arguments by the schema's names, with PyTorch's defaults given by the row, and its results.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>
#include "stepgraph/compile/capture/pt2/functional.h"
#include "stepgraph/compile/capture/pt2/program.h"

namespace stepgraph::pt2 {

/// What a name of the program stands for while it is walked.
using Item = std::variant<std::monostate, Tensor, std::vector<Tensor>, Dim, double, bool>;

/// A python number or sym value.
struct Number {
  enum class Kind : uint8_t { Bool, Int, Float } kind = Kind::Int;
  double value = 0;           ///< unless symbolic
  std::optional<Dim> symbol;  ///< a symbolic integer
};
/// An operand of an element-wise operator.
using Operand = std::variant<Value, Number>;

/// What the walk offers to rows.
struct Surroundings {
  Builder& builder;
  bool training;  ///< the pass for the forward entry; false: for eval, where dropout and batch norm are in evaluation mode
  std::function<Value()> key;  ///< another one at each call
  /// Inside an autocast region, for the operator at hand: floating operands are cast to this, implicitly.
  std::optional<DType> cast = {};
  /// Of the graph at hand: what the exporter recorded of its tensors.
  const std::map<std::string, TensorMeta>* metas = nullptr;
};

class OperatorCall {
 public:
  OperatorCall(const ExportedNode& node, Surroundings& surroundings, const std::map<std::string, Item>& names);

  const ExportedNode& node() const { return node_; }
  Builder& builder() const { return surroundings_.builder; }
  bool training() const { return surroundings_.training; }
  Value key() const { return surroundings_.key(); }
  [[noreturn]] void fail(const std::string& message) const;  ///< UserError with operator and place

  bool has(std::string_view argument) const;  ///< given, and not None
  Tensor handle(std::string_view argument) const;
  Value tensor(std::string_view argument) const;
  std::optional<Value> maybe_tensor(std::string_view argument) const;
  std::vector<Tensor> handles(std::string_view argument) const;
  std::vector<Value> tensors(std::string_view argument) const;
  std::vector<std::optional<Value>> optional_tensors(std::string_view argument) const;
  Number number(std::string_view argument) const;
  std::optional<Number> maybe_number(std::string_view argument) const;
  /// Tensor or number.
  Operand operand(std::string_view argument) const;
  int64_t integer(std::string_view argument, std::optional<int64_t> otherwise = {}) const;
  double real(std::string_view argument, std::optional<double> otherwise = {}) const;
  bool boolean(std::string_view argument, std::optional<bool> otherwise = {}) const;
  std::string text(std::string_view argument, std::string otherwise = "") const;
  std::vector<int64_t> integers(std::string_view argument, std::vector<int64_t> otherwise = {}) const;
  std::vector<double> reals(std::string_view argument) const;
  Dim size(std::string_view argument) const;
  Shape sizes(std::string_view argument) const;
  std::optional<DType> dtype(std::string_view argument = "dtype") const;

  /// dims of `rank`, wrapped and in ascending order; all when the list is absent or (with `empty_is_all`) empty.
  std::vector<int64_t> dims(std::string_view argument, int64_t rank, bool empty_is_all = true) const;
  int64_t wrap(int64_t dim, int64_t rank) const;

  /// "self" in another shape: a view if the recorded strides let PyTorch make one, else a copy.
  void reshaped(const Shape& shape);
  void result(Value value) { outputs_.emplace_back(Tensor(value)); }
  void results(const std::vector<Value>& values);
  void result_list(const std::vector<Value>& values);
  void alias(Tensor tensor) { outputs_.emplace_back(std::move(tensor)); }
  void alias_list(std::vector<Tensor> tensors) { outputs_.emplace_back(std::move(tensors)); }
  void none() { outputs_.emplace_back(std::monostate{}); }
  std::vector<Item>& outputs() { return outputs_; }

  /// What in_f32 does.
  void run_in_f32(void (*row)(OperatorCall&));
  /// Rounded as the result of a kernel before the one that gives the row's result.
  Value rounded(const Value& value) const;

 private:
  const Argument* find(std::string_view argument) const;
  Truth reshape_is_view(const Shape& shape) const;
  Value read(const Tensor& tensor) const;
  std::optional<DType> common_half() const;
  Dim dim_of(const std::variant<int64_t, std::string>& value) const;
  const Item& item(const std::string& name) const;

  const ExportedNode& node_;
  Surroundings& surroundings_;
  const std::map<std::string, Item>& names_;
  std::vector<Item> outputs_;
  std::optional<DType> half_;  ///< inside run_in_f32: the dtype that operands were widened from, and results are rounded to
};

/// Whether these strides of these sizes are over all of x's elements in row-major order.
bool are_dense(OperatorCall& call, const Value& x, const Shape& sizes, const Shape& strides);
/// The result beta * self + alpha * product, rounded once; with beta = 0 self is not read.
void scaled_sum(OperatorCall& call, const Value& unrounded_product);
/// The result of a loss by its argument "reduction": none, mean (the default) or sum.
void loss_result(OperatorCall& call, const Value& losses);

/// A row of the operator table.
using Row = void (*)(OperatorCall&);
/// The row on f32 where its operands are f16 or bf16, with results rounded once: how PyTorch's kernels compute. For rows of more than one step of arithmetic,
/// and those whose gradient has more.
template <Row row>
void in_f32(OperatorCall& call) {
  call.run_in_f32(row);
}
struct NamedRow {
  const char* name;  ///< "add" for all overloads, or "max.dim" for one
  Row row;
};
std::vector<NamedRow> backward_rows();
std::vector<NamedRow> elementwise_rows();
std::vector<NamedRow> reduction_rows();
std::vector<NamedRow> shape_rows();
std::vector<NamedRow> creation_rows();
std::vector<NamedRow> index_rows();
std::vector<NamedRow> layer_rows();
std::vector<NamedRow> loss_rows();
std::vector<NamedRow> recurrent_rows();
std::vector<NamedRow> matrix_rows();
std::vector<NamedRow> math_rows();
std::vector<NamedRow> order_rows();
std::vector<NamedRow> scatter_rows();
std::vector<NamedRow> spatial_rows();
std::vector<NamedRow> margin_rows();
std::vector<NamedRow> random_rows();
std::vector<NamedRow> algebra_rows();
std::vector<NamedRow> arrangement_rows();
std::vector<NamedRow> model_rows();
std::vector<NamedRow> special_rows();
/// The name by which rows and autocast know an operator of several names: "abs" for "absolute".
std::string_view canonical_name(std::string_view base);
/// How many tensors the program reads of the list that the operator gives; nothing where it does not say.
std::optional<size_t> listed_results(const OperatorCall& call);
/// By "torch.ops.aten.NAME.OVERLOAD": the row of "NAME.OVERLOAD", else of "NAME", else nullptr.
Row find_row(const std::string& target);

// promotion (aten_promotion.cpp)
/// PyTorch's result type: tensors with dims before 0-d tensors before numbers, within a category the wider.
DType result_type(const std::vector<Operand>& operands);
/// The operand as a value of that dtype (a number becomes a scalar constant).
Value as_value(Builder& builder, const Operand& operand, DType dtype);
/// Integers and bools become the default f32.
Value as_floating(const Value& x);

}  // namespace stepgraph::pt2
