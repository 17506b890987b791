// SPDX-License-Identifier: Apache-2.0
// Operators that a few families of models bring along: parametrizations of weights, views of complex maths on real tensors, numbers taken from data.
#include <utility>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/composite/linear.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph::pt2 {
namespace {

/// g * v / |v|, the norm over all dims but `dim`; over all with -1.
void weight_norm_row(OperatorCall& call) {
  const Value v = call.tensor("v"), g = call.tensor("g");
  const int64_t dim = call.integer("dim", 0);
  Dims others;
  for (int64_t d = 0; d < v.rank(); ++d)
    if (d != dim) others.push_back(d);
  const Value norm = sqrt(sum(v * v, others, true));
  call.result(v * (g / (dim == -1 ? reshape(norm, g.shape()) : norm)));
  if (call.node().outputs.size() > 1) call.result(norm);
}
/// Of real tensors the conjugate is the tensor itself.
void conjugate_transpose_row(OperatorCall& call) {
  const int64_t rank = call.tensor("self").rank();
  if (rank == 0) return call.alias(call.handle("self"));
  if (rank == 1) call.fail("wanted a matrix or a batch of them");
  Dims order;
  for (int64_t d = 0; d < rank; ++d) order.push_back(d);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  const auto swapped = [order](const Value& x) { return permute(x, order); };
  call.alias(call.handle("self").view({swapped, [swapped](const Value&, const Value& v) { return swapped(v); }}));
}
void vdot_row(OperatorCall& call) {
  const Value a = call.tensor("self"), b = call.tensor("other");
  call.result(sum(a * b));
}
/// One step of a recurrence, of rows [B, F] or one row [F]; the gates are in PyTorch's order: i, f, g, o and r, z, n.
struct CellCall {
  Value from_input, from_hidden, hidden;
};
CellCall cell_call(OperatorCall& call, const Value& hidden) {
  return {linear(call.tensor("input"), call.tensor("w_ih"), call.maybe_tensor("b_ih")), linear(hidden, call.tensor("w_hh"), call.maybe_tensor("b_hh")), hidden};
}
void lstm_cell_row(OperatorCall& call) {
  const std::vector<Value> states = call.tensors("hx");
  if (states.size() != 2) call.fail("found " + std::to_string(states.size()) + " states, wanted 2");
  const CellCall made = cell_call(call, states[0]);
  const std::vector<Value> g = split(made.from_input + made.from_hidden, -1, 4);
  const Value c = sigmoid(g[1]) * states[1] + sigmoid(g[0]) * tanh(g[2]);
  call.results({sigmoid(g[3]) * tanh(c), c});
}
void gru_cell_row(OperatorCall& call) {
  const CellCall made = cell_call(call, call.tensor("hx"));
  const std::vector<Value> x = split(made.from_input, -1, 3), h = split(made.from_hidden, -1, 3);
  const Value r = sigmoid(x[0] + h[0]), z = sigmoid(x[1] + h[1]), n = tanh(x[2] + r * h[2]);
  call.result((1.0 - z) * n + z * made.hidden);
}
template <bool is_tanh>
void simple_cell_row(OperatorCall& call) {
  const CellCall made = cell_call(call, call.tensor("hx"));
  const Value sum = made.from_input + made.from_hidden;
  call.result(is_tanh ? tanh(sum) : relu(sum));
}
/// A python number taken from data: used as an operand it is a tensor without dims, elsewhere an error.
void item_row(OperatorCall& call) { call.result(stop_gradient(call.tensor("self"))); }
void fill_diagonal_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (x.rank() < 2 || call.boolean("wrap", false)) call.fail("wanted two dims or more, without wrap");
  Value on_diagonal = full(call.builder(), DType::Bool, x.shape(), 1);
  for (int64_t d = 1; d < x.rank(); ++d)
    on_diagonal = logical_and(on_diagonal, equal(iota(call.builder(), DType::I64, x.shape(), d - 1), iota(call.builder(), DType::I64, x.shape(), d)));
  call.result(where(on_diagonal, full_like(x, call.real("fill_value")), x));
}
void refuse_complex_row(OperatorCall& call) { call.fail("complex numbers are not supported"); }
void real_row(OperatorCall& call) { call.alias(call.handle("self")); }

}  // namespace

std::vector<NamedRow> model_rows() {
  return {
      {"_weight_norm", in_f32<weight_norm_row>},
      {"_weight_norm_interface", in_f32<weight_norm_row>},
      {"matrix_H", conjugate_transpose_row},
      {"adjoint", conjugate_transpose_row},
      {"mH", conjugate_transpose_row},
      {"vdot", vdot_row},
      {"real", real_row},
      {"conj", real_row},
      {"_conj", real_row},
      {"resolve_conj", real_row},
      {"resolve_neg", real_row},
      {"lstm_cell", lstm_cell_row},
      {"gru_cell", gru_cell_row},
      {"rnn_tanh_cell", simple_cell_row<true>},
      {"rnn_relu_cell", simple_cell_row<false>},
      {"fill_diagonal", fill_diagonal_row},
      {"view_as_real", refuse_complex_row},
      {"item", item_row},
      {"_local_scalar_dense", item_row},
  };
}

}  // namespace stepgraph::pt2
