// SPDX-License-Identifier: Apache-2.0
// Operators as plain values: a closed variant of small structs in families. Equality compares all attributes. Meaning (types, values, gradients,
// sharding) is in the op table (compile/ops/op_table.h), never here. Attributes that are sizes are Dims, so that an op can be symbolic.
//
// Adding an op: a struct here with its `names` and `fields`, a row in the op table, and a sample in tests/ops; a kind of Unary, Binary or Compare is a line of
// elementwise_kinds.h. The compiler points at the row, a test at the sample.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>
#include "stepgraph/program/scalar_kinds.h"
#include "stepgraph/compile/ir/ids.h"
#include "stepgraph/tensor/dim.h"
#include "stepgraph/tensor/literal.h"
#include "stepgraph/tensor/sharding.h"

namespace stepgraph {

/// An attribute whose type is an enumeration of one byte: with a function enum_names(kind) beside it, the names in order, any is printed, read and hashed.
struct EnumRef {
  std::span<const std::string_view> names;
  uint8_t* value;
  std::string_view text() const { return names[*value]; }
};
/// An attribute of an op. What must treat all types visits it, so that a new type does not compile until it is treated (EachField); what looks for
/// attributes of some types asks for those (for_each_field, for_each_dim). A struct is no type of its own: its members are attributes (DrawPlace).
using FieldRef = std::variant<bool*, int64_t*, double*, std::vector<int64_t>*, std::string*, DType*, std::optional<DType>*, Dim*, Shape*, Literal*, GraphId*, EnumRef,
                              std::vector<AxisRef>*, Sharding*>;

/// Visits an op's attributes by name, in a fixed order: printing, parsing, hashing, binding of symbols and renumbering of graphs are visitors.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  virtual void visit(std::string_view name, FieldRef field) = 0;
  /// What ops call. Of the types of FieldRef alone (op.cpp).
  template <class T>
  void field(std::string_view name, T& value);
};

/// A visitor with a function `field(name, T&)` for each type of attribute, and `field(name, EnumRef)`.
template <class Visitor>
class EachField : public FieldVisitor {
 public:
  void visit(std::string_view name, FieldRef field) final {
    const auto visit_one = [&](auto value) {
      if constexpr (std::is_pointer_v<decltype(value)>) static_cast<Visitor*>(this)->field(name, *value);
      else static_cast<Visitor*>(this)->field(name, value);
    };
    std::visit(visit_one, field);
  }
};

/// The names in text form, beside the struct: one, or one for each of its kinds in their order.
template <class... Texts>
constexpr std::array<std::string_view, sizeof...(Texts)> op_names(Texts... texts) {
  return {std::string_view(texts)...};
}

// ---- sources -------------------------------------------------------------------------------------------------------------------------
/// A dense value. Result: literal's dtype and sizes.
struct Constant {
  static constexpr auto names = op_names("constant");
  Literal value;
  bool operator==(const Constant&) const = default;
  void fields(FieldVisitor& v) { v.field("value", value); }
};
/// start, start+1, ... along `dim`, equal along the others. dtype integer or floating.
struct Iota {
  static constexpr auto names = op_names("iota");
  DType dtype = DType::I64;
  Shape shape;
  int64_t dim = 0;
  Dim start = 0;
  bool operator==(const Iota&) const = default;
  void fields(FieldVisitor& v) { v.field("dtype", dtype), v.field("shape", shape), v.field("dim", dim), v.field("start", start); }
};
/// A symbolic size (or mesh coordinate, or iteration number) as a scalar value.
struct SizeValue {
  static constexpr auto names = op_names("size_value");
  DType dtype = DType::I64;
  Dim dim;
  bool operator==(const SizeValue&) const = default;
  void fields(FieldVisitor& v) { v.field("dtype", dtype), v.field("dim", dim); }
};
/// Where a draw lies in that of the whole batch: its origin is at `starts` of a tensor of `global_shape`. Every op that draws has one, named `place`
/// (draw_place below finds it), and a key among its operands: element e is a function of the key and of the linear index of e in global_shape, by
/// tensor/philox.h, and of nothing else. So recompute, fusion, micro-batches and sharding cannot change it.
struct DrawPlace {
  Shape global_shape, starts;
  /// Of a draw that is whole itself.
  static DrawPlace whole(const Shape& shape) { return {shape, Shape(shape.size(), Dim(0))}; }
  bool operator==(const DrawPlace&) const = default;
  void fields(FieldVisitor& v) { v.field("global_shape", global_shape), v.field("starts", starts); }
};
/// Input: key i64[], 64 bits.
struct Random {
  static constexpr auto names = random_names;
  RandomKind kind = RandomKind::Uniform;
  DType dtype = DType::F32;
  Shape shape;
  DrawPlace place;
  bool operator==(const Random&) const = default;
  void fields(FieldVisitor& v) { v.field("dtype", dtype), v.field("shape", shape), place.fields(v); }
};
/// Inputs: key i64[], operand i64[]. Another key, i64[], that is a function of both: of the step, of the place in the model, of the iteration.
struct FoldIn {
  static constexpr auto names = op_names("fold_in");
  bool operator==(const FoldIn&) const = default;
  void fields(FieldVisitor&) {}
};

// ---- element-wise: operands of equal shape (the builder broadcasts) -------------------------------------------------------------------
// Their kinds are the lines of program/elementwise_kinds.h.
struct Unary {
  static constexpr auto names = unary_names;
  UnaryKind kind{};
  bool operator==(const Unary&) const = default;
  void fields(FieldVisitor&) {}
};
/// The derivative of that order of digamma, which is itself order 0 and the derivative of Unary's lgamma.
struct Polygamma {
  static constexpr auto names = op_names("polygamma");
  int64_t order = 0;
  bool operator==(const Polygamma&) const = default;
  void fields(FieldVisitor& v) { v.field("order", order); }
};
struct Binary {
  static constexpr auto names = binary_names;
  BinaryKind kind{};
  bool operator==(const Binary&) const = default;
  void fields(FieldVisitor&) {}
};
struct Compare {
  static constexpr auto names = compare_names;
  CompareKind kind{};
  bool operator==(const Compare&) const = default;
  void fields(FieldVisitor&) {}
};
/// Inputs: condition bool, on_true, on_false.
struct Select {
  static constexpr auto names = op_names("select");
  bool operator==(const Select&) const = default;
  void fields(FieldVisitor&) {}
};
/// An implicit cast (from autocast) may be skipped by a default-class pass; an explicit one never.
struct Convert {
  static constexpr auto names = op_names("convert");
  DType dtype = DType::F32;
  bool is_explicit = true;
  bool operator==(const Convert&) const = default;
  void fields(FieldVisitor& v) { v.field("dtype", dtype), v.field("explicit", is_explicit); }
};
/// Identity with no gradient.
struct StopGradient {
  static constexpr auto names = op_names("stop_gradient");
  bool operator==(const StopGradient&) const = default;
  void fields(FieldVisitor&) {}
};

// ---- reductions: the reduced dims are dropped ------------------------------------------------------------------------------------------
/// Sum and Product keep the dtype (bool is refused: convert first). Any, All: bool.
struct Reduce {
  static constexpr auto names = op_names("reduce_sum", "reduce_product", "reduce_max", "reduce_min", "reduce_any", "reduce_all");
  ReduceKind kind{};
  std::vector<int64_t> dims;  ///< ascending
  bool operator==(const Reduce&) const = default;
  void fields(FieldVisitor& v) { v.field("dims", dims); }
};
/// Index (i64) of the first largest or smallest element; NaN counts as largest / smallest, as in PyTorch.
enum class ArgReduceKind : uint8_t { ArgMax, ArgMin };
struct ArgReduce {
  static constexpr auto names = op_names("argmax", "argmin");
  ArgReduceKind kind{};
  int64_t dim = 0;
  bool operator==(const ArgReduce&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim); }
};
/// Max and Min: NaN wins; the gradient goes to the last element that equals the result.
enum class CumulativeKind : uint8_t { Sum, Product, LogSumExp, Max, Min };
struct Cumulative {
  static constexpr auto names = op_names("cumulative_sum", "cumulative_product", "cumulative_logsumexp", "cumulative_max", "cumulative_min");
  CumulativeKind kind{};
  int64_t dim = 0;
  bool reverse = false;
  bool operator==(const Cumulative&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim), v.field("reverse", reverse); }
};
/// Results: mean and (biased) variance over dims, in one numerically stable op: never E[x²]-E[x]². Reduced dims are dropped.
struct Moments {
  static constexpr auto names = op_names("moments");
  std::vector<int64_t> dims;
  bool operator==(const Moments&) const = default;
  void fields(FieldVisitor& v) { v.field("dims", dims); }
};

// ---- shape and data movement -------------------------------------------------------------------------------------------------------------
/// Operand dim i becomes result dim dims[i]; an operand dim of size 1 is stretched.
struct Broadcast {
  static constexpr auto names = op_names("broadcast");
  Shape shape;
  std::vector<int64_t> dims;
  bool operator==(const Broadcast&) const = default;
  void fields(FieldVisitor& v) { v.field("shape", shape), v.field("dims", dims); }
};
struct Reshape {
  static constexpr auto names = op_names("reshape");
  Shape shape;
  bool operator==(const Reshape&) const = default;
  void fields(FieldVisitor& v) { v.field("shape", shape); }
};
/// Result dim i is operand dim permutation[i].
struct Transpose {
  static constexpr auto names = op_names("transpose");
  std::vector<int64_t> permutation;
  bool operator==(const Transpose&) const = default;
  void fields(FieldVisitor& v) { v.field("permutation", permutation); }
};
struct Reverse {
  static constexpr auto names = op_names("reverse");
  std::vector<int64_t> dims;
  bool operator==(const Reverse&) const = default;
  void fields(FieldVisitor& v) { v.field("dims", dims); }
};
/// Elements starts, starts + stride, ... below limits. 0 <= starts <= limits <= size, strides >= 1.
struct Slice {
  static constexpr auto names = op_names("slice");
  Shape starts, limits;
  std::vector<int64_t> strides;
  bool operator==(const Slice&) const = default;
  void fields(FieldVisitor& v) { v.field("starts", starts), v.field("limits", limits), v.field("strides", strides); }
};
/// Inputs: x, value scalar. low/high >= 0; `interior` elements of padding between neighbours.
struct Pad {
  static constexpr auto names = op_names("pad");
  Shape low, high;
  std::vector<int64_t> interior;
  bool operator==(const Pad&) const = default;
  void fields(FieldVisitor& v) { v.field("low", low), v.field("high", high), v.field("interior", interior); }
};
struct Concatenate {
  static constexpr auto names = op_names("concatenate");
  int64_t dim = 0;
  bool operator==(const Concatenate&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim); }
};
/// Inputs: x, indices (integer, any shape S). Result: x.shape with `dim` replaced by S. An index outside [0, size) is a UserError when run.
struct IndexSelect {
  static constexpr auto names = op_names("index_select");
  int64_t dim = 0;
  bool operator==(const IndexSelect&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim); }
};
/// Inputs: base, indices (shape S), updates (base.shape with `dim` replaced by S). Adds each update at its index; repeated indices add.
struct IndexAdd {
  static constexpr auto names = op_names("index_add");
  int64_t dim = 0;
  bool operator==(const IndexAdd&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim); }
};
/// Inputs: x, index (same rank; sizes equal but at `dim`). Result[i][j][k] = x[i][index[i][j][k]][k] for dim 1, as torch.gather.
struct Gather {
  static constexpr auto names = op_names("gather");
  int64_t dim = 0;
  bool operator==(const Gather&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim); }
};
/// Inputs: base, index, updates: the transpose of Gather; repeated indices add.
struct ScatterAdd {
  static constexpr auto names = op_names("scatter_add");
  int64_t dim = 0;
  bool operator==(const ScatterAdd&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim); }
};
/// Inputs: base, index, updates, as ScatterAdd: each place holds the product, greatest or smallest of its base and its updates. NaN wins; the gradient of an
/// extreme is shared by the elements that equal it.
enum class ScatterReduceKind : uint8_t { Product, Max, Min };
struct ScatterReduce {
  static constexpr auto names = op_names("scatter_product", "scatter_max", "scatter_min");
  ScatterReduceKind kind{};
  int64_t dim = 0;
  bool operator==(const ScatterReduce&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim); }
};
/// Order of the elements along `dim`, as i64 indices: a stable sort, NaN as the largest. The sorted values are a Gather by it.
struct ArgSort {
  static constexpr auto names = op_names("argsort");
  int64_t dim = 0;
  bool descending = false;
  bool operator==(const ArgSort&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim), v.field("descending", descending); }
};
/// Places along `dim`, as i64 indices, of the `count` largest or smallest elements (NaN is the largest), in order or in any; or, alone, of the element with
/// `count` - 1 smaller ones before it. Of equal elements those are taken, in the order, that PyTorch's kernels for CPUs take.
enum class PickKind : uint8_t { Largest, Smallest, AnyLargest, AnySmallest, Ranked };
struct Pick {
  static constexpr auto names = op_names("largest", "smallest", "any_largest", "any_smallest", "ranked");
  PickKind kind{};
  int64_t dim = 0, count = 1;
  bool operator==(const Pick&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim), v.field("count", count); }
};
/// Input: index (integer). Result i64, of index's shape with `dim` of size `size`: for each place along `dim` the position of the last element of index
/// that names it, or -1. A scatter that sets is a Select of a Gather by it.
struct ScatterPosition {
  static constexpr auto names = op_names("scatter_position");
  int64_t dim = 0;
  Dim size;
  bool operator==(const ScatterPosition&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim), v.field("size", size); }
};

// ---- block ops --------------------------------------------------------------------------------------------------------------------------
/// Result dims: batch dims, free dims of lhs in order, free dims of rhs in order. Both operands of one dtype; accumulates wider and rounds once, to
/// `result_dtype` where it is given (floating for floating operands), else to the operands' dtype.
struct MatMul {
  static constexpr auto names = op_names("matmul");
  std::vector<int64_t> lhs_batch, rhs_batch, lhs_contract, rhs_contract;
  std::optional<DType> result_dtype = {};
  bool operator==(const MatMul&) const = default;
  void fields(FieldVisitor& v) {
    v.field("lhs_batch", lhs_batch), v.field("rhs_batch", rhs_batch), v.field("lhs_contract", lhs_contract), v.field("rhs_contract", rhs_contract);
    v.field("result_dtype", result_dtype);
  }
};
/// Scaled dot-product attention. Inputs: q [..., H, T, D], k [..., Hk, S, D], v [..., Hk, S, E], of one dtype; then a mask, if any, that broadcasts to
/// [..., H, T, S]: bool (true takes part) or floating (added to the scores). Each head of k and v serves a run of H / Hk heads of q. With `causal`, query i
/// sees keys 0 .. i. Results: out [..., H, T, E] = softmax(scale q k^T + mask) v, rounded once, and the logarithm of the sum of exponentials of each row of
/// scores, [..., H, T], in f32 (f64 for f64). A row that sees no key gives zeros and -inf. With `dropout`, a key i64[] is the last input and element
/// [..., h, i, j] of the weights is dropped where its uniform draw of f32 is below the rate; what is left is divided by 1 - rate.
struct Attention {
  static constexpr auto names = op_names("attention");
  double scale = 1;
  bool causal = false;
  double dropout = 0;
  DrawPlace place = {};  ///< of the weights, [..., H, T, S]; empty without dropout
  bool operator==(const Attention&) const = default;
  void fields(FieldVisitor& v) { v.field("scale", scale), v.field("causal", causal), v.field("dropout", dropout), place.fields(v); }
};
/// Inputs: those of the attention; out and lse, its results; the gradients of out and of lse. Results: gradients of q, k and v, and with `mask_gradient` that
/// of the (floating) mask.
struct AttentionGradient : Attention {
  static constexpr auto names = op_names("attention_gradient");
  bool mask_gradient = false;
  bool operator==(const AttentionGradient&) const = default;
  void fields(FieldVisitor& v) { Attention::fields(v), v.field("mask_gradient", mask_gradient); }
};
/// Cross-correlation over any number of spatial dims. x [N, C, spatial...], weight [O, C/groups, window...], result [N, O, spatial...].
struct Window {
  std::vector<int64_t> strides, padding_low, padding_high, dilation;  ///< one for each spatial dim
  bool operator==(const Window&) const = default;
  void fields(FieldVisitor& v) {
    v.field("strides", strides), v.field("padding_low", padding_low), v.field("padding_high", padding_high), v.field("dilation", dilation);
  }
};
/// Forward inputs: x, weight. InputGradient inputs: result gradient, weight; `shape` is x's. WeightGradient inputs: x, result gradient; `shape` is weight's.
enum class ConvolutionKind : uint8_t { Forward, InputGradient, WeightGradient };
struct Convolution {
  static constexpr auto names = op_names("convolution", "convolution_input_gradient", "convolution_weight_gradient");
  ConvolutionKind kind{};
  Window window;
  int64_t groups = 1;
  Shape shape;  ///< of the result, for the two gradients; empty for Forward
  bool operator==(const Convolution&) const = default;
  void fields(FieldVisitor& v) { window.fields(v), v.field("groups", groups), v.field("shape", shape); }
};
/// x [N, C, spatial...]. Max: results values and, for each, its place in its window, row-major (first of equal; NaN wins): u8 where the window has at most
/// 256 elements, else i32. Average: one result; divides by the window's size, or without count_include_pad by the number of elements inside x.
/// AverageGradient: input result gradient; `shape` is x's.
enum class PoolKind : uint8_t { Max, Average, AverageGradient };
struct Pool {
  static constexpr auto names = op_names("max_pool", "average_pool", "average_pool_gradient");
  PoolKind kind{};
  std::vector<int64_t> size;  ///< of the window
  Window window;
  bool count_include_pad = true;
  Shape shape;
  bool operator==(const Pool&) const = default;
  void fields(FieldVisitor& v) {
    v.field("size", size), window.fields(v), v.field("count_include_pad", count_include_pad), v.field("shape", shape);
  }
};

// ---- control ------------------------------------------------------------------------------------------------------------------------------
/// Runs a graph of the module: a composite, or a repeated layer.
struct Call {
  static constexpr auto names = op_names("call");
  GraphId graph;
  bool operator==(const Call&) const = default;
  void fields(FieldVisitor& v) { v.field("graph", graph); }
};
/// Inputs: `carried` initial values, `scanned` tensors with dim 0 = trip_count, then invariants. Body inputs: carried, one slice of each scanned (dim 0
/// dropped), invariants. Body outputs: carried, then any number of values to stack. Results: final carried, stacked values (dim 0 = trip_count). `symbol` is
/// the iteration number inside the body. `reverse` runs from the last iteration to the first (slices and stacks keep their index). A body whose iterations
/// draw each their own numbers folds the iteration number into its key.
struct Loop {
  static constexpr auto names = op_names("loop");
  GraphId body;
  Dim trip_count;
  std::string symbol;
  int64_t carried = 0, scanned = 0;
  bool reverse = false;
  bool operator==(const Loop&) const = default;
  void fields(FieldVisitor& v) {
    v.field("body", body), v.field("trip_count", trip_count), v.field("symbol", symbol), v.field("carried", carried);
    v.field("scanned", scanned), v.field("reverse", reverse);
  }
};
/// One element-wise body over a table of tensors (the optimizer). Inputs: tables x tensors values in table-major order (all of table 0, all of table 1, ...;
/// tensor j has one shape in every table), then shared scalars. The body's inputs are scalars: one for each table, then the shared ones; its outputs are
/// scalars too. Results: body outputs x tensors, table-major; but each of the body's last `reduced` outputs is reduced by `reduce` over all elements of all
/// tensors, and gives one scalar at the end.
struct MapTensors {
  static constexpr auto names = op_names("map_tensors");
  GraphId body;
  int64_t tensors = 0, tables = 0, reduced = 0;
  ReduceKind reduce = ReduceKind::Sum;
  bool operator==(const MapTensors&) const = default;
  void fields(FieldVisitor& v) {
    v.field("body", body), v.field("tensors", tensors), v.field("tables", tables), v.field("reduced", reduced), v.field("reduce", reduce);
  }
};

// ---- distribution -------------------------------------------------------------------------------------------------------------------------
/// Sharded stage only: the same global value in another layout.
struct Reshard {
  static constexpr auto names = op_names("reshard");
  Sharding target;
  bool operator==(const Reshard&) const = default;
  void fields(FieldVisitor& v) { v.field("target", target); }
};
/// Local stage only. Groups: the ranks that differ only in their coordinates on `axes`.
struct AllReduce {
  static constexpr auto names = op_names("all_reduce");
  ReduceKind kind{};
  std::vector<AxisRef> axes;
  bool operator==(const AllReduce&) const = default;
  void fields(FieldVisitor& v) { v.field("kind", kind), v.field("axes", axes); }
};
/// Joins the group's pieces along `dim` in order of the linear coordinate over `axes` (major to minor); pieces may differ in size. `size` is the result's.
struct AllGather {
  static constexpr auto names = op_names("all_gather");
  int64_t dim = 0;
  std::vector<AxisRef> axes;
  Dim size;
  bool operator==(const AllGather&) const = default;
  void fields(FieldVisitor& v) { v.field("dim", dim), v.field("axes", axes), v.field("size", size); }
};
/// Reduces, then keeps this coordinate's block of `dim`: `start` and `size` are of the piece.
struct ReduceScatter {
  static constexpr auto names = op_names("reduce_scatter");
  ReduceKind kind{};
  int64_t dim = 0;
  std::vector<AxisRef> axes;
  Dim start, size;
  bool operator==(const ReduceScatter&) const = default;
  void fields(FieldVisitor& v) { v.field("kind", kind), v.field("dim", dim), v.field("axes", axes), v.field("start", start), v.field("size", size); }
};

using Op = std::variant<Constant, Iota, SizeValue, Random, FoldIn, Unary, Polygamma, Binary, Compare, Select, Convert, StopGradient, Reduce, ArgReduce,
                        Cumulative, Moments, Broadcast, Reshape, Transpose, Reverse, Slice, Pad, Concatenate, IndexSelect, IndexAdd, Gather, ScatterAdd,
                        ScatterReduce, ArgSort, Pick, ScatterPosition, MatMul, Attention, AttentionGradient, Convolution, Pool, Call, Loop, MapTensors, Reshard,
                        AllReduce, AllGather, ReduceScatter>;

/// The name in text form: "add", "reduce_sum", "matmul", "random_uniform". One for each struct, or for each kind of a family.
std::string_view name(const Op& op);
/// An op of that name with default attributes; nothing for an unknown name.
std::optional<Op> op_from_name(std::string_view name);
/// One op of default attributes for each name, in table order.
const std::vector<Op>& all_ops();
void visit_fields(Op& op, FieldVisitor& visitor);
/// For reading only: the visitor must not write.
void visit_fields(const Op& op, FieldVisitor& visitor);
/// function(attribute) for each attribute of that type.
template <class T, class Function>
void for_each_field(Op& op, const Function& function) {
  class Finder final : public FieldVisitor {
   public:
    explicit Finder(const Function& function) : function_(function) {}
    void visit(std::string_view, FieldRef field) override {
      if (T* const* value = std::get_if<T*>(&field)) function_(**value);
    }

   private:
    const Function& function_;
  };
  Finder finder(function);
  visit_fields(op, finder);
}
template <class T, class Function>
void for_each_field(const Op& op, const Function& function) {
  for_each_field<T>(const_cast<Op&>(op), [&](const T& value) { function(value); });
}
/// function(size) for each size, those of shapes among them; not the grains of shardings.
void for_each_dim(Op& op, const std::function<void(Dim&)>& function);
void for_each_dim(const Op& op, const std::function<void(const Dim&)>& function);
/// The op with symbols in its attributes replaced by values where given.
Op bind(const Op& op, const SymbolValues& values);
/// The op with every GraphId replaced by map[index].
Op renumber_graphs(const Op& op, std::span<const GraphId> map);
/// Graphs that the op runs.
std::vector<GraphId> called_graphs(const Op& op);
/// Where the op's draw lies in that of the whole batch; null for an op that draws nothing.
DrawPlace* draw_place(Op& op);
const DrawPlace* draw_place(const Op& op);
bool is_collective(const Op& op);
bool is_control(const Op& op);  ///< Call, Loop, MapTensors

}  // namespace stepgraph
