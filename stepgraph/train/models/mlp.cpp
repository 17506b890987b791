// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/models/mlp.h"

namespace stepgraph {
namespace {

Value activated(Activation activation, const Value& x) {
  switch (activation) {
    case Activation::Relu: return relu(x);
    case Activation::Gelu: return gelu(x);
    case Activation::Tanh: return tanh(x);
    case Activation::Silu: return silu(x);
  }
  throw InternalError("mlp: unknown activation");
}

}  // namespace

Value mlp(Scope s, Value x, const MlpOptions& options) {
  if (x.rank() > 2) x = flatten(x, 1, -1);
  const Scope layers = s / "layers";
  int64_t index = 0;
  for (int64_t width : options.hidden) {
    x = activated(options.activation, linear(layers / index++, x, width));
    x = dropout(s, x, options.dropout);
  }
  return linear(layers / index, x, options.classes);
}

}  // namespace stepgraph
