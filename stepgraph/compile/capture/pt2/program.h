// SPDX-License-Identifier: Apache-2.0
// An exported PyTorch program as plain data: what the JSON of a .pt2 archive says (torch.export schema, major 8), without judgement of what it means.
// Unknown keys are ignored, absent ones take defaults.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>
#include "stepgraph/tensor/dim.h"
#include "stepgraph/tensor/dtype.h"

namespace stepgraph::pt2 {

/// Stands for a size of an intermediate tensor that a Dim cannot express.
inline constexpr const char* unknown_size = "unknown";

/// Element types by PyTorch's serialised numbers; those that the engine has not stay unset and are refused where a tensor of that type is read.
struct TensorMeta {
  int dtype_number = 0;
  std::optional<DType> dtype;
  Shape sizes;                   ///< symbols by their PyTorch names ("s48")
  Shape strides;                 ///< of a payload; of intermediates not to be trusted
  Dim storage_offset = 0;        ///< in elements
  bool requires_grad = false;
};

struct ExportedGraph;

/// A size or number: a constant, or the name of a sym value.
struct SymInt {
  std::variant<int64_t, std::string> value;
};
struct SymFloat {
  std::variant<double, std::string> value;
};
struct SymBool {
  std::variant<bool, std::string> value;
};
struct TensorRef {
  std::string name;
};
struct None {};
struct ScalarType {
  int number = 0;
  std::optional<DType> dtype;
};
struct MemoryFormat {
  int number = 0;
};
struct TensorLayout {
  int number = 0;
};
struct Device {
  std::string type;
};
struct ExportedRegion {
  std::string name;
  std::shared_ptr<const ExportedGraph> graph;
};
/// Of a kind that no operator here takes: complex numbers, script objects, operator names. `kind` is the variant's name.
struct Unsupported {
  std::string kind;
};

/// One alternative for each variant of the schema; lists of sizes hold constants and names alike.
using Argument = std::variant<None, TensorRef, std::vector<TensorRef>, std::vector<std::optional<TensorRef>>, std::vector<std::vector<TensorRef>>, int64_t, double, bool,
                              std::string, std::vector<int64_t>, std::vector<double>, std::vector<bool>, std::vector<std::string>, SymInt, SymFloat, SymBool,
                              std::vector<SymInt>, std::vector<SymFloat>, std::vector<SymBool>, std::vector<std::vector<int64_t>>, ScalarType, MemoryFormat, TensorLayout, Device, ExportedRegion, Unsupported>;

struct NamedArgument {
  std::string name;  ///< of the operator's schema; empty in regions and python operators
  Argument value;
};
struct ExportedNode {
  std::string target;  ///< "torch.ops.aten.add.Tensor", "_operator.mul", "torch.ops.higher_order.wrap_with_autocast"
  std::vector<NamedArgument> inputs;
  std::vector<Argument> outputs;
  std::string name;
  /// From metadata, for messages: the innermost user line ("model.py:41") and module path ("blocks.0.fc").
  std::string place_file;
  int place_line = 0;
  std::string scope;
};
struct ExportedGraph {
  std::vector<Argument> inputs, outputs;
  std::vector<ExportedNode> nodes;
  std::map<std::string, TensorMeta> tensors;
  std::map<std::string, Dim> sym_ints;  ///< closed form of a sym value, where the file gives one
  bool is_single_tensor_return = false;
};

struct ExportedInput {
  enum class Kind : uint8_t { Parameter, Buffer, TensorConstant, UserInput, ConstantInput } kind;
  std::string argument;              ///< name in the graph; of a UserInput that is no tensor: ""
  std::string target;                ///< FQN of a parameter, buffer or constant; name of a constant input
  bool persistent = true;            ///< buffers
  Argument constant = None{};        ///< ConstantInput, or a user input that is a number
};
struct ExportedOutput {
  enum class Kind : uint8_t { UserOutput, BufferMutation, ParameterMutation, UserInputMutation, Loss, GradientToParameter, GradientToUserInput } kind;
  Argument value = None{};
  std::string target;  ///< FQN or user input name
};
struct RangeConstraint {
  Dim expression;
  std::optional<int64_t> minimum, maximum;
};

/// A payload: a strided view of one stored member.
struct Payload {
  std::string member;  ///< name in the archive, after the first folder
  TensorMeta meta;
  bool is_parameter = false;
};

struct ExportedProgram {
  int schema_major = 0, schema_minor = 0;
  std::string torch_version;
  std::vector<std::string> verifiers;  ///< "TRAINING": the training IR; "ATEN": decomposed
  std::vector<RangeConstraint> ranges;
  std::vector<std::string> guards;     ///< python expressions, advisory
  ExportedGraph graph;
  std::vector<ExportedInput> inputs;
  std::vector<ExportedOutput> outputs;
  std::vector<std::string> forward_argument_names;
  std::vector<std::string> output_names;  ///< of the leaves of what the model returns, by keys and positions: "loss", "1.logits"; may be fewer than there are
  std::map<std::string, Payload> weights, constants;  ///< by FQN
};

}  // namespace stepgraph::pt2
