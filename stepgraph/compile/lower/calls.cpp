// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/calls.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/builder.h"
#include "stepgraph/compile/ops/known_values.h"
#include "stepgraph/program/library_support.h"
#include "stepgraph/program/plan_text.h"

namespace stepgraph {
namespace {

/// Dims that are walked together: size, and a stride in each of several views.
struct JointDim {
  Dim size;
  std::vector<Dim> strides;
};

/// Neighbours that every view walks as one become one; dims of one element go.
std::vector<JointDim> joined(std::vector<JointDim> dims) {
  std::erase_if(dims, [](const JointDim& dim) { return dim.size == Dim(1); });
  std::vector<JointDim> result;
  for (JointDim& dim : dims) {
    if (!result.empty()) {
      JointDim& outer = result.back();
      bool joins = true;
      for (size_t v = 0; v < dim.strides.size(); ++v) joins = joins && outer.strides[v] == dim.strides[v] * dim.size;
      if (joins) {
        outer.size = outer.size * dim.size;
        outer.strides = dim.strides;
        continue;
      }
    }
    result.push_back(std::move(dim));
  }
  return result;
}

/// The op with the graphs that it runs, and those that they run, put into `into`.
Op copy_called(const Op& op, const Module& from, Module& into, std::vector<GraphId>& number) {
  for (const GraphId called : called_graphs(op)) {
    if (number[at(called)].index >= 0) continue;
    Graph graph = from.graph(called);
    for (Node& node : graph.nodes) node.op = copy_called(node.op, from, into, number);
    graph.gradient.reset();
    number[at(called)] = {static_cast<int32_t>(into.graphs.size())};
    into.graphs.push_back(std::move(graph));
  }
  return renumber_graphs(op, number);
}

class Lowering {
 public:
  explicit Lowering(const CallRequest& request) : request_(request), graph_(request.graph), node_(request.node) {}

  LoweredCall run() {
    LoweredCall call;
    call.op = lower();
    call.wants_stored = std::move(wants_stored_);
    call.reads = std::move(reads_);
    return call;
  }

 private:
  InstructionOp lower() {
    std::optional<InstructionOp> op;
    if (const auto* matmul = std::get_if<MatMul>(&node_.op)) op = lower_matmul(*matmul);
    else if (const auto* gradient = std::get_if<AttentionGradient>(&node_.op)) op = lower_attention(*gradient, true);
    else if (const auto* attention = std::get_if<Attention>(&node_.op)) op = lower_attention(*attention, false);
    else if (const auto* convolution = std::get_if<Convolution>(&node_.op)) op = lower_convolution(*convolution);
    else if (const auto* pool = std::get_if<Pool>(&node_.op)) op = lower_pool(*pool);
    else if (const auto* scan = std::get_if<Cumulative>(&node_.op)) op = lower_scan(*scan);
    else if (const auto* add = std::get_if<IndexAdd>(&node_.op)) op = lower_scatter(ScatterKind::Add, add->dim);
    else if (const auto* add_each = std::get_if<ScatterAdd>(&node_.op)) op = lower_scatter(ScatterKind::Add, add_each->dim);
    else if (const auto* reduce = std::get_if<ScatterReduce>(&node_.op)) op = lower_scatter(scatter_kind(reduce->kind), reduce->dim);
    else if (is_collective(node_.op)) op = lower_collective();
    if (op) return *op;
    wants_stored_.clear();
    reads_.clear();
    return evaluate();
  }

  const TensorType& type(ValueId value) const { return graph_.type(value); }
  std::optional<StridedLeaf> window(ValueId value) {
    auto found = request_.window(value);
    if (found) reads_.push_back(found->leaf);
    else wants_stored_.push_back(value);
    return found;
  }
  View dense(ValueId value) {
    const auto found = request_.window(value);
    if (!found || !is_dense(*found, type(value).shape)) {
      wants_stored_.push_back(value);
      return {};
    }
    reads_.push_back(found->leaf);
    const ValuePlace place = request_.place(found->leaf);
    View view = dense_view(place.buffer, type(value).shape);
    view.offset = place.offset + found->offset;
    return view;
  }
  View result(size_t i) {
    const ValuePlace place = request_.place(node_.results[i]);
    return {place.buffer, place.offset, type(node_.results[i]).shape, place.strides};
  }
  bool is_f32(std::span<const ValueId> values) const {
    return std::all_of(values.begin(), values.end(), [&](ValueId value) { return type(value).dtype == DType::F32; });
  }

  // ---- matmul

  /// Whatever the sizes are. A stride that is a multiple of the size reaches over it, or there is nothing.
  bool reaches(const Dim& stride, const Dim& size) const {
    const auto is_positive = [&](const Dim& dim) { return request_.module.symbols.bounds(dim).minimum >= 0 && dim != Dim(0); };
    if (stride == Dim(0)) return false;
    if (stride == size || request_.module.symbols.bounds(stride - size).minimum >= 0) return true;
    const auto times = exact_quotient(stride, size);
    return times && is_positive(*times);
  }
  Reaches reach() const {
    return [this](const Dim& stride, const Dim& size) { return reaches(stride, size); };
  }

  static std::vector<size_t> free_dims(size_t rank, std::span<const int64_t> batch, std::span<const int64_t> contract) {
    std::vector<size_t> dims;
    for (size_t d = 0; d < rank; ++d) {
      const auto is = [&](std::span<const int64_t> list) { return std::find(list.begin(), list.end(), static_cast<int64_t>(d)) != list.end(); };
      if (!is(batch) && !is(contract)) dims.push_back(d);
    }
    return dims;
  }

  std::optional<InstructionOp> lower_matmul(const MatMul& matmul) {
    const ValueId lhs = node_.inputs[0], rhs = node_.inputs[1], out = node_.results[0];
    const DType dtype = type(lhs).dtype;
    if ((dtype != DType::F32 && dtype != DType::F64) || type(out).dtype != dtype) return std::nullopt;
    const auto l = window(lhs), r = window(rhs);
    if (!l || !r) return MatMulCall{};
    const Shape &l_shape = type(lhs).shape, &r_shape = type(rhs).shape;
    const ValuePlace l_place = request_.place(l->leaf), r_place = request_.place(r->leaf), out_place = request_.place(out);
    const std::vector<Dim>& out_strides = out_place.strides;
    std::vector<JointDim> batch, m, n, k;
    size_t out_dim = 0;
    for (size_t i = 0; i < matmul.lhs_batch.size(); ++i) {
      const auto ld = static_cast<size_t>(matmul.lhs_batch[i]), rd = static_cast<size_t>(matmul.rhs_batch[i]);
      batch.push_back({l_shape[ld], {l->strides[ld], r->strides[rd], out_strides[out_dim++]}});
    }
    for (const size_t d : free_dims(l_shape.size(), matmul.lhs_batch, matmul.lhs_contract)) m.push_back({l_shape[d], {l->strides[d], 0, out_strides[out_dim++]}});
    for (const size_t d : free_dims(r_shape.size(), matmul.rhs_batch, matmul.rhs_contract)) n.push_back({r_shape[d], {0, r->strides[d], out_strides[out_dim++]}});
    for (size_t i = 0; i < matmul.lhs_contract.size(); ++i) {
      const auto ld = static_cast<size_t>(matmul.lhs_contract[i]), rd = static_cast<size_t>(matmul.rhs_contract[i]);
      k.push_back({l_shape[ld], {l->strides[ld], r->strides[rd], 0}});
    }
    batch = joined(std::move(batch)), m = joined(std::move(m)), n = joined(std::move(n)), k = joined(std::move(k));
    if (k.size() > 1) {
      // In the operand as it is shaped they lie side by side (contractions.h): stored, it is so in memory.
      bool any = false;
      for (const size_t side : {size_t{0}, size_t{1}}) {
        std::vector<JointDim> own;
        for (const JointDim& dim : k) own.push_back({dim.size, {dim.strides[side]}});
        if (joined(std::move(own)).size() > 1 && store_views({side == 0 ? lhs : rhs})) any = true;
      }
      return any ? std::optional<InstructionOp>(MatMulCall{}) : std::nullopt;
    }
    // What does not join into one M and one N is walked outside.
    const auto last = [&](std::vector<JointDim>& dims) {
      if (dims.empty()) return JointDim{1, {1, 1, 1}};
      JointDim dim = dims.back();
      dims.pop_back();
      batch.insert(batch.end(), dims.begin(), dims.end());
      return dim;
    };
    const JointDim rows = last(m), columns = last(n), inner = k.empty() ? JointDim{1, {1, 1, 1}} : k[0];
    MatMulCall call;
    call.dtype = dtype;
    call.lhs = matrix(l_place.buffer, l_place.offset + l->offset, batch, rows, inner, 0);
    call.rhs = matrix(r_place.buffer, r_place.offset + r->offset, batch, inner, columns, 1);
    call.out = matrix(out_place.buffer, out_place.offset, batch, rows, columns, 2);
    if (!is_matrix(call.lhs, reach()) && !store_views({lhs})) return std::nullopt;
    if (!is_matrix(call.rhs, reach()) && !store_views({rhs})) return std::nullopt;
    if (!is_matrix(call.out, reach())) return std::nullopt;
    return call;
  }

  static View matrix(int buffer, const Dim& offset, const std::vector<JointDim>& batch, const JointDim& rows, const JointDim& columns, size_t which) {
    View view{buffer, offset, {}, {}};
    for (const JointDim& dim : batch) view.sizes.push_back(dim.size), view.strides.push_back(dim.strides[which]);
    view.sizes.push_back(rows.size), view.strides.push_back(rows.strides[which]);
    view.sizes.push_back(columns.size), view.strides.push_back(columns.strides[which]);
    return view;
  }

  /// Views among the operands that are not in memory yet are wanted there; false if all are.
  bool store_views(std::initializer_list<ValueId> values) {
    bool any = false;
    for (const ValueId value : values) {
      const auto found = request_.window(value);
      if (found && found->leaf == value) continue;
      if (std::find(wants_stored_.begin(), wants_stored_.end(), value) == wants_stored_.end()) wants_stored_.push_back(value);
      any = true;
    }
    return any;
  }

  // ---- attention

  /// [N, H, T, D] of [..., H, T, D] with rows that a library takes, or [N, H, T] of [..., H, T].
  std::optional<View> heads(ValueId value, size_t inner_dims) {
    auto found = window(value);
    if (!found) return View{};
    const Shape& shape = type(value).shape;
    std::vector<JointDim> outer;
    for (size_t d = 0; d + inner_dims < shape.size(); ++d) outer.push_back({shape[d], {found->strides[d]}});
    outer = joined(std::move(outer));
    const ValuePlace place = request_.place(found->leaf);
    View view{place.buffer, place.offset + found->offset, {outer.empty() ? Dim(1) : outer[0].size}, {outer.empty() ? Dim(0) : outer[0].strides[0]}};
    for (size_t d = shape.size() - inner_dims; d < shape.size(); ++d) view.sizes.push_back(shape[d]), view.strides.push_back(found->strides[d]);
    const bool is_taken = inner_dims == 3 ? has_rows(view, reach()) : view.strides.back() == Dim(1) || view.sizes.back() == Dim(1);
    if (outer.size() <= 1 && is_taken) return view;
    if (found->leaf == value) return std::nullopt;
    wants_stored_.push_back(value);
    return View{};
  }

  /// A mask stretched to [N, H, T, S].
  std::optional<View> mask_view(ValueId value, size_t rank) {
    auto found = window(value);
    if (!found) return View{};
    Shape shape = type(value).shape;
    while (shape.size() < rank) shape.insert(shape.begin(), Dim(1)), found->strides.insert(found->strides.begin(), Dim(0));
    std::vector<JointDim> outer;
    for (size_t d = 0; d < rank; ++d)
      if (shape[d] == Dim(1)) found->strides[d] = 0;
    size_t leading = 0;
    for (size_t d = 0; d + 3 < rank; ++d) leading += shape[d] != Dim(1);
    if (leading > 1 || (leading == 1 && rank > 4)) return std::nullopt;
    const ValuePlace place = request_.place(found->leaf);
    View view{place.buffer, place.offset + found->offset, {rank > 3 ? shape[rank - 4] : Dim(1)}, {rank > 3 ? found->strides[rank - 4] : Dim(0)}};
    for (size_t d = rank - 3; d < rank; ++d) view.sizes.push_back(shape[d]), view.strides.push_back(found->strides[d]);
    return view;
  }

  std::optional<InstructionOp> lower_attention(const Attention& attention, bool is_gradient) {
    const size_t rank = type(node_.inputs[0]).rank();
    if (rank < 3) return std::nullopt;
    if (is_gradient && std::get<AttentionGradient>(node_.op).mask_gradient) return std::nullopt;
    const size_t own = is_gradient ? 4 : 0;  // out, lse and their gradients
    const bool has_mask = node_.inputs.size() - own - (attention.dropout != 0 ? 1 : 0) == 4;
    const std::vector<ValueId> qkv(node_.inputs.begin(), node_.inputs.begin() + 3);
    if (!is_f32(qkv)) return std::nullopt;
    AttentionCall call;
    call.scale = attention.scale;
    call.causal = attention.causal;
    const auto put = [&](View& to, std::optional<View> view) {
      if (view) to = std::move(*view);
      return view.has_value();
    };
    if (!put(call.q, heads(qkv[0], 3)) || !put(call.k, heads(qkv[1], 3)) || !put(call.v, heads(qkv[2], 3))) return std::nullopt;
    if (has_mask) {
      const ValueId mask = node_.inputs[3];
      call.mask_dtype = type(mask).dtype;
      if (call.mask_dtype != DType::Bool && call.mask_dtype != DType::F32) return std::nullopt;
      View view;
      if (!put(view, mask_view(mask, rank))) return std::nullopt;
      if (wants_stored_.empty()) view.sizes = {call.q.sizes[0], call.q.sizes[1], call.q.sizes[2], call.k.sizes[2]};
      call.mask = std::move(view);
    }
    if (attention.dropout != 0) {
      call.dropout = dropout(attention, node_.inputs[node_.inputs.size() - own - 1]);
      if (!call.dropout) return std::nullopt;
    }
    // Results lie so that their leading dims are one.
    const auto own_view = [&](ValueId value, size_t inner) {
      const ValuePlace place = request_.place(value);
      const Shape& shape = type(value).shape;
      const size_t leading = shape.size() - inner;
      View view{place.buffer, place.offset, {1}, {0}};
      for (size_t d = 0; d < leading; ++d) view.sizes[0] = view.sizes[0] * shape[d];
      if (leading > 0) view.strides[0] = place.strides[leading - 1];
      for (size_t d = leading; d < shape.size(); ++d) view.sizes.push_back(shape[d]), view.strides.push_back(place.strides[d]);
      return view;
    };
    if (!is_gradient) {
      call.out = own_view(node_.results[0], 3);
      call.lse = own_view(node_.results[1], 2);
      return call;
    }
    const size_t first = node_.inputs.size() - 4;
    AttentionCall::Gradient gradient;
    if (!put(call.out, heads(node_.inputs[first], 3)) || !put(call.lse, heads(node_.inputs[first + 1], 2))) return std::nullopt;
    if (!put(gradient.d_out, heads(node_.inputs[first + 2], 3)) || !put(gradient.d_lse, heads(node_.inputs[first + 3], 2))) return std::nullopt;
    gradient.d_q = own_view(node_.results[0], 3);
    gradient.d_k = own_view(node_.results[1], 3);
    gradient.d_v = own_view(node_.results[2], 3);
    call.gradient = gradient;
    return call;
  }

  /// The draw of weights [N, H, T, S]; nothing if the dims before H do not join in it.
  std::optional<AttentionCall::Dropout> dropout(const Attention& attention, ValueId key) {
    AttentionCall::Dropout dropout;
    dropout.rate = attention.dropout;
    dropout.key = dense(key);
    const Shape& shape = type(node_.inputs[0]).shape;
    const std::vector<Dim> strides = dense_strides(attention.place.global_shape);
    for (size_t d = 0; d < strides.size(); ++d) dropout.origin = dropout.origin + attention.place.starts[d] * strides[d];
    std::vector<JointDim> outer;
    for (size_t d = 0; d + 3 < shape.size(); ++d) outer.push_back({shape[d], {strides[d]}});
    outer = joined(std::move(outer));
    if (outer.size() > 1) return std::nullopt;
    if (!outer.empty()) dropout.step_n = outer[0].strides[0];
    dropout.step_h = strides[strides.size() - 3];
    dropout.step_t = strides[strides.size() - 2];
    return dropout;
  }

  // ---- pooling, scans, scatters

  std::optional<InstructionOp> lower_pool(const Pool& pool) {
    const bool is_max = pool.kind == PoolKind::Max;
    if (type(node_.inputs[0]).dtype != DType::F32) return std::nullopt;
    PoolCall call;
    call.pass = static_cast<PoolPass>(pool.kind);
    call.a = dense(node_.inputs[0]);
    call.out = result(0);
    if (is_max) call.places = result(1), call.places_dtype = type(node_.results[1]).dtype;
    call.size = pool.size, call.strides = pool.window.strides, call.padding_low = pool.window.padding_low;
    call.padding_high = pool.window.padding_high, call.dilation = pool.window.dilation;
    call.count_padding = !is_max && pool.count_include_pad;
    const auto is_negative = [](int64_t padding) { return padding < 0; };
    if (std::any_of(call.padding_low.begin(), call.padding_low.end(), is_negative) || std::any_of(call.padding_high.begin(), call.padding_high.end(), is_negative))
      return std::nullopt;
    return call;
  }

  /// Dims of several views as one; nothing if they do not join.
  static std::optional<JointDim> as_one(std::vector<JointDim> dims, size_t views) {
    dims = joined(std::move(dims));
    if (dims.size() > 1) return std::nullopt;
    return dims.empty() ? JointDim{1, std::vector<Dim>(views, Dim(0))} : dims[0];
  }
  View of_dims(ValueId leaf, const Dim& offset, std::initializer_list<const JointDim*> dims, size_t which) const {
    const ValuePlace place = request_.place(leaf);
    View view{place.buffer, place.offset + offset, {}, {}};
    for (const JointDim* dim : dims) view.sizes.push_back(dim->size), view.strides.push_back(dim->strides[which]);
    return view;
  }

  /// A result, which is dense, in other sizes.
  View result_of(size_t i, const Shape& sizes) const {
    const ValuePlace place = request_.place(node_.results[i]);
    View view = dense_view(place.buffer, sizes);
    view.offset = place.offset;
    return view;
  }

  static ScanKind scan_kind(CumulativeKind kind) {
    switch (kind) {
      case CumulativeKind::Sum: return ScanKind::Sum;
      case CumulativeKind::Product: return ScanKind::Product;
      case CumulativeKind::LogSumExp: return ScanKind::LogSumExp;
      case CumulativeKind::Max: return ScanKind::Max;
      case CumulativeKind::Min: return ScanKind::Min;
    }
    return {};
  }
  std::optional<InstructionOp> lower_scan(const Cumulative& op) {
    ScanCall call;
    call.kind = scan_kind(op.kind), call.reverse = op.reverse, call.dtype = type(node_.inputs[0]).dtype;
    const auto x = window(node_.inputs[0]);
    if (!scan_supported(call)) return std::nullopt;
    if (!x) return call;
    const Shape& shape = type(node_.inputs[0]).shape;
    const std::vector<Dim> out_strides = dense_strides(shape);
    std::vector<JointDim> outer, inner;
    const auto dim = static_cast<size_t>(op.dim);
    for (size_t d = 0; d < shape.size(); ++d)
      if (d != dim) (d < dim ? outer : inner).push_back({shape[d], {x->strides[d], out_strides[d]}});
    const JointDim length{shape[dim], {x->strides[dim], out_strides[dim]}};
    const auto before = as_one(std::move(outer), 2), after = as_one(std::move(inner), 2);
    if (!before || !after) return store_views({node_.inputs[0]}) ? std::optional<InstructionOp>(call) : std::nullopt;
    call.x = of_dims(x->leaf, x->offset, {&*before, &length, &*after}, 0);
    call.out = result_of(0, {before->size, length.size, after->size});
    return call;
  }

  static ScatterKind scatter_kind(ScatterReduceKind kind) {
    switch (kind) {
      case ScatterReduceKind::Product: return ScatterKind::Product;
      case ScatterReduceKind::Max: return ScatterKind::Max;
      case ScatterReduceKind::Min: return ScatterKind::Min;
    }
    return {};
  }
  /// Inputs base, index, updates; the index of IndexAdd is one for all that is not `dim`.
  std::optional<InstructionOp> lower_scatter(ScatterKind kind, int64_t along) {
    const ValueId base = node_.inputs[0], index = node_.inputs[1], updates = node_.inputs[2];
    ScatterCall call;
    call.kind = kind, call.dtype = type(base).dtype, call.index_dtype = type(index).dtype;
    if (!scatter_supported(call)) return std::nullopt;
    const bool has_base = kind != ScatterKind::Add || !is_zero(graph_, base), one_index = std::holds_alternative<IndexAdd>(node_.op);
    const auto i = window(index), u = window(updates), b = has_base ? window(base) : std::nullopt;
    if (!i || !u || (has_base && !b)) return call;
    const Shape &shape = type(base).shape, &from = type(updates).shape;
    const auto dim = static_cast<size_t>(along);
    const size_t counted = one_index ? type(index).rank() : 1, behind = shape.size() - dim - 1;
    std::vector<JointDim> outer, counts, inner;  // strides of index, updates, base
    for (size_t d = 0; d < from.size(); ++d) {
      const bool is_count = d >= dim && d < dim + counted, is_outer = d < dim;
      const size_t of_base = is_outer ? d : d + 1 - counted;
      const Dim index_stride = one_index ? (is_count ? i->strides[d - dim] : Dim(0)) : i->strides[d];
      const Dim base_stride = is_count || !has_base ? Dim(0) : b->strides[of_base];
      (is_count ? counts : is_outer ? outer : inner).push_back({from[d], {index_stride, u->strides[d], base_stride}});
    }
    SG_CHECK(inner.size() == behind, "a scatter's updates have the dims of its base behind the indexed one");
    const auto before = as_one(std::move(outer), 3), count = as_one(std::move(counts), 3), after = as_one(std::move(inner), 3);
    if (!before || !count || !after)
      return store_views({index, updates, has_base ? base : updates}) ? std::optional<InstructionOp>(call) : std::nullopt;
    call.index = of_dims(i->leaf, i->offset, {&*before, &*count, &*after}, 0);
    call.updates = of_dims(u->leaf, u->offset, {&*before, &*count, &*after}, 1);
    const JointDim rows{shape[dim], {0, 0, has_base ? b->strides[dim] : Dim(0)}};
    if (has_base) call.base = of_dims(b->leaf, b->offset, {&*before, &rows, &*after}, 2);
    call.out = result_of(0, {before->size, rows.size, after->size});
    return call;
  }

  // ---- convolution, collectives

  std::optional<InstructionOp> lower_convolution(const Convolution& convolution) {
    if (!is_f32(node_.inputs) || !is_f32(node_.results)) return std::nullopt;
    ConvolutionCall call;
    call.pass = static_cast<ConvolutionPass>(convolution.kind);
    call.strides = convolution.window.strides, call.padding_low = convolution.window.padding_low;
    call.padding_high = convolution.window.padding_high, call.dilation = convolution.window.dilation;
    call.groups = convolution.groups;
    call.a.sizes = type(node_.inputs[0]).shape, call.b.sizes = type(node_.inputs[1]).shape, call.out = result(0);
    if (!convolution_supported(call)) return std::nullopt;
    call.a = dense(node_.inputs[0]);
    call.b = dense(node_.inputs[1]);
    return call;
  }

  std::optional<InstructionOp> lower_collective() {
    CollectiveCall call;
    call.dtype = type(node_.inputs[0]).dtype;
    call.input = dense(node_.inputs[0]);
    call.output = result(0);
    if (const auto* reduce = std::get_if<AllReduce>(&node_.op)) {
      call.kind = CollectiveKind::AllReduce, call.reduce = reduce->kind, call.axes = reduce->axes;
    } else if (const auto* gather = std::get_if<AllGather>(&node_.op)) {
      call.kind = CollectiveKind::AllGather, call.dim = gather->dim, call.axes = gather->axes, call.size = gather->size;
    } else {
      const auto& scatter = std::get<ReduceScatter>(node_.op);
      call.kind = CollectiveKind::ReduceScatter, call.reduce = scatter.kind, call.axes = scatter.axes;
      call.dim = scatter.dim, call.start = scatter.start, call.size = scatter.size;
    }
    return call;
  }

  // ---- everything else

  EvaluateCall evaluate() {
    EvaluateCall call;
    for (const ValueId input : node_.inputs) {
      call.inputs.push_back(dense(input));
      call.input_dtypes.push_back(type(input).dtype);
    }
    for (size_t i = 0; i < node_.results.size(); ++i) {
      call.outputs.push_back(result(i));
      call.output_dtypes.push_back(type(node_.results[i]).dtype);
    }
    call.why = why_evaluated();
    return call;
  }

  /// Of a node that came here.
  std::string why_evaluated() const {
    const Op& op = node_.op;
    if (op_info(op).element_kind != ElementKind::None) return "no index maps for these attributes or types";
    const bool is_matmul = std::holds_alternative<MatMul>(op), is_attention = std::holds_alternative<Attention>(op) || std::holds_alternative<AttentionGradient>(op);
    const bool is_scatter = std::holds_alternative<IndexAdd>(op) || std::holds_alternative<ScatterAdd>(op) || std::holds_alternative<ScatterReduce>(op);
    const bool is_window = std::holds_alternative<Convolution>(op) || std::holds_alternative<Pool>(op);
    if (!is_matmul && !is_attention && !is_scatter && !is_window && !std::holds_alternative<Cumulative>(op)) return "no kernel for this operation";
    const DType dtype = type(node_.inputs[0]).dtype;
    if (dtype != DType::F32 && !(is_matmul && dtype == DType::F64)) return "its kernel does not take " + std::string(name(dtype));
    if (const auto* gradient = std::get_if<AttentionGradient>(&op); gradient != nullptr && gradient->mask_gradient) return "the gradient of a mask has no kernel";
    return "its kernel does not take operands of these dims or types";
  }

  const CallRequest& request_;
  const Graph& graph_;
  const Node& node_;
  std::vector<ValueId> wants_stored_, reads_;
};

}  // namespace

View dense_view(int buffer, const Shape& shape) { return {buffer, 0, shape, dense_strides(shape)}; }

std::string node_program(const Module& from, const Graph& graph, const Node& node) {
  Module module;
  module.name = "evaluate";
  module.stage = from.stage;
  module.symbols = from.symbols;
  module.mesh = from.mesh;
  std::vector<GraphId> number(from.graphs.size());
  const Op op = copy_called(node.op, from, module, number);
  const GraphId id = module.add_graph("main");
  module.entries = {{"main", id}};
  Builder builder(module, id);
  std::vector<Value> inputs;
  for (const ValueId input : node.inputs) inputs.push_back(builder.input(graph.type(input)));
  std::vector<TensorType> results;
  for (const ValueId value : node.results) results.push_back(graph.type(value));
  for (const Value& value : builder.append(op, inputs, results)) builder.output(value);
  return print_module(module, {.places = false, .scopes = false});
}

LoweredCall lower_call(const CallRequest& request) { return Lowering(request).run(); }

}  // namespace stepgraph
