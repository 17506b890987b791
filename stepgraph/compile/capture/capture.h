// SPDX-License-Identifier: Apache-2.0
// Capture: a model is plain functions over Values; a Scope carries the builder and the name path, so nothing is ambient and parameters get
// PyTorch's names ("h.0.attn.c_attn.weight").
//
//   Value block(Scope s, Value x, const GptOptions& o) {
//     x = x + attention(s / "attn", layer_norm(s / "ln_1", x), {.heads = o.heads, .causal = true});
//     return x + mlp(s / "mlp", layer_norm(s / "ln_2", x));
//   }
//   Module forward = capture({{"tokens", DType::I32, {batch, 64}}, {"targets", DType::I32, {batch, 64}}},
//                            [&](Scope s, Inputs in) -> Loss { return cross_entropy(gpt(s, in["tokens"], o), in["targets"]); });
#pragma once
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "stepgraph/compile/ops/builder.h"
#include "stepgraph/compile/ops/functions.h"

namespace stepgraph {

/// How a parameter or buffer starts; random ones are functions of the seed and the order of declaration.
struct Initializer {
  enum class Kind : uint8_t { Constant, Uniform, Normal } kind = Kind::Constant;
  double a = 0, b = 0;  ///< Constant: value. Uniform: low, high. Normal: mean, standard deviation
};
namespace initialize {
Initializer zeros();
Initializer ones();
Initializer constant(double value);
Initializer uniform(double low, double high);
Initializer normal(double mean, double deviation);
/// PyTorch's default of Linear and Conv: uniform in ±1/sqrt(fan_in) (Kaiming uniform with a = sqrt(5); He et al., 2015).
Initializer kaiming_uniform(int64_t fan_in);
/// Normal with deviation sqrt(2 / fan_out) (He et al., 2015), as ResNet's convolutions.
Initializer kaiming_normal(int64_t fan_out);
}  // namespace initialize

struct Frame;  // one graph being traced; in capture.cpp

/// While it lives, nodes are recorded under a scope's path.
class ScopeEntry {
 public:
  ScopeEntry(Builder& builder, const std::string& path) : builder_(builder), before_(builder.scope()) { builder.set_scope(path); }
  ~ScopeEntry() { builder_.set_scope(before_); }
  ScopeEntry(const ScopeEntry&) = delete;
  ScopeEntry& operator=(const ScopeEntry&) = delete;

 private:
  Builder& builder_;
  std::string before_;
};

/// A place in the model's tree of names. Cheap to copy.
class Scope {
 public:
  Scope operator/(std::string_view name) const;
  Scope operator/(int64_t index) const;
  const std::string& path() const { return path_; }
  /// A trained tensor named path.name. Asked for twice by one name it is the same tensor (a tied weight); UserError if the shapes differ. Sizes must be constant.
  Value parameter(std::string_view name, const Shape& shape, Initializer initializer, DType dtype = DType::F32,
                  std::source_location location = std::source_location::current()) const;
  /// State that is not trained (batch norm's running statistics).
  Value buffer(std::string_view name, const Shape& shape, Initializer initializer, DType dtype = DType::F32,
               std::source_location location = std::source_location::current()) const;
  /// The buffer's value after this step (training only; ignored in evaluation). The last one counts; later reads of buffer() see it.
  void set_buffer(std::string_view name, Value value, std::source_location location = std::source_location::current()) const;
  bool training() const;
  /// A key of its own at each call, for one draw: a function of seed, step and how many were given out before, and in a repeated layer of the repetition.
  Value key() const;
  Value seed() const;  ///< i64 scalar: of the run
  Value step() const;  ///< i64 scalar: number of this step, from 0
  Builder& builder() const;
  /// For the parameters of a layer over x: x's own, but f32 where autocast may have made x narrow.
  DType parameter_dtype(Value x) const;
  /// `auto entry = s.enter();` at the head of a layer: its nodes carry the layer's path.
  [[nodiscard]] ScopeEntry enter() const { return ScopeEntry(builder(), path_); }

 private:
  friend struct Frame;
  friend Value repeat(Scope scope, int64_t count, Value x, std::span<const Value> shared,
                      const std::function<Value(Scope, Value, std::span<const Value>)>& layer);
  Frame& add_layer(GraphId graph) const;
  Frame* frame_ = nullptr;
  std::string path_;
};

/// The batch inputs by name.
class Inputs {
 public:
  /// UserError naming the inputs that exist.
  Value operator[](std::string_view name) const;
  std::vector<std::pair<std::string, Value>> values;
};

/// What a model returns. The loss of the whole batch is the sum of numerators over the sum of denominators over all micro-batches and ranks; the
/// denominator must not depend on parameters. A scalar Value is a mean over the batch (denominator 1).
struct Loss {
  Value numerator, denominator;
  struct Metric {
    std::string name;
    Value numerator, denominator;  ///< scalars; reported as their quotient of sums
  };
  std::vector<Metric> metrics;
  std::vector<std::pair<std::string, Value>> outputs;  ///< kept by the eval entry under these names ("logits")
  Loss() = default;
  Loss(Value mean);  // NOLINT: a scalar is the common case
  Loss(Value numerator_, Value denominator_) : numerator(numerator_), denominator(denominator_) {}
  Loss& metric(std::string name, Value numerator_, Value denominator_);
  Loss& output(std::string name, Value value);
};

struct InputSpec {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;  ///< symbols are declared as sizes of at least 1 unless CaptureOptions declares them
};
using ModelFunction = std::function<Loss(Scope, Inputs)>;
struct CaptureOptions {
  std::string name = "model";
  std::vector<Symbol> symbols = {};
  /// Mixed precision: implicit casts of what operators take, by PyTorch's lists. Parameters, their initial values and gradients stay f32; casts in the model stay.
  Autocast autocast = {};
};
/// Traces the model twice, for training and for evaluation. Entries: init, forward, eval (module.h). UserErrors carry the user's own line.
Module capture(const std::vector<InputSpec>& inputs, const ModelFunction& model, const CaptureOptions& options = {});

/// A layer repeated `count` times over one value, traced once: parameters are path.0.name, path.1.name, ... and the module holds its graph once.
Value repeat(Scope scope, int64_t count, Value x, const std::function<Value(Scope, Value)>& layer);
/// The same with more values that every repetition reads (a mask): layer(scope, x, shared).
Value repeat(Scope scope, int64_t count, Value x, std::span<const Value> shared,
             const std::function<Value(Scope, Value, std::span<const Value>)>& layer);

}  // namespace stepgraph
