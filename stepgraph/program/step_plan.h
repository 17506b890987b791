// SPDX-License-Identifier: Apache-2.0
// StepPlan: what the compiler gives and an executor runs, as plain data. Entries over one table of states and one of forms; every byte has a place, every
// instruction says what it reads and writes. Sizes are Dims in the symbols of the plan; an executor gives them values, works all of them out once, and then runs
// a list of pointers.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>
#include "stepgraph/program/form.h"
#include "stepgraph/program/phase.h"
#include "stepgraph/program/role.h"
#include "stepgraph/program/target.h"
#include "stepgraph/tensor/literal.h"
#include "stepgraph/tensor/mesh.h"

namespace stepgraph {

/// Where a buffer lies.
enum class Space : uint8_t {
  State,     ///< of the plan's state of that index; lives from step to step
  Constant,  ///< of the plan's constant of that index; never written
  Input,     ///< of the entry's input of that index; the caller's, never written
  Arena,     ///< at `offset` of the entry's arena
};
struct Buffer {
  Space space = Space::Arena;
  int index = 0;   ///< state, constant, input
  Dim elements;    ///< of dtype
  DType dtype = DType::F32;
  int64_t offset = 0;  ///< arena, in bytes, a multiple of 64
  int64_t bytes = 0;   ///< arena: what is reserved there, the most over the plan's sizes
  std::string label;   ///< for people: of the value that it holds
  bool operator==(const Buffer&) const = default;
};

/// A strided window on a buffer, in elements.
struct View {
  int buffer = 0;
  Dim offset = 0;
  Shape sizes;
  std::vector<Dim> strides;
  bool operator==(const View&) const = default;
};

// ---- instructions
/// Runs a form once for each launch: the optimizer has one a parameter.
struct FormLaunch {
  std::vector<View> operands;  ///< only buffer and offset count: the form has the rest
  std::vector<Dim> sizes;      ///< of the form's symbols
  bool operator==(const FormLaunch&) const = default;
};
struct FormCall {
  int form = 0;
  std::vector<FormLaunch> launches;
  bool operator==(const FormCall&) const = default;
};
/// Pieces that a product is cut into, one call of the library each: of the rows of the result as it lies in memory, or of its columns.
struct GemmCut {
  bool rows = true;
  int pieces = 1;
  bool operator==(const GemmCut&) const = default;
};
/// out = lhs * rhs, plus out with `accumulate`: views [batch..., M, K], [batch..., K, N], [batch..., M, N] of f32 or f64. Of each of the three one of the last two
/// strides is 1 (or its size is 1). A batch stride may be 0.
struct MatMulCall {
  View lhs, rhs, out;
  DType dtype = DType::F32;
  bool accumulate = false;
  GemmLibrary library = GemmLibrary::OpenBlas;  ///< of f32; f64 is always OpenBLAS's
  std::optional<GemmCut> cut = {};              ///< absent: by the shape alone, when that is known (run/device/gemm.h)
  bool operator==(const MatMulCall&) const = default;
};
enum class ConvolutionPass : uint8_t { Forward, InputGradient, WeightGradient };
/// Operands as those of the op (compile/ir/op.h), dense, f32: a is x or the result gradient of InputGradient; b is the weight or the result gradient of WeightGradient.
struct ConvolutionCall {
  ConvolutionPass pass{};
  View a, b, out;
  std::vector<int64_t> strides, padding_low, padding_high, dilation;
  int64_t groups = 1;
  bool operator==(const ConvolutionCall&) const = default;
};
/// Operands as those of the op, f32, of 4 dims [N, H, T, D], any strides with the last one 1. Gradient: out, lse and the gradients d_out, d_lse are read, d_q,
/// d_k and d_v written. `mask` absent, or broadcast by strides of 0 to [N, H, T, S]. With `dropout` weight [n, h, t, s] is element origin + n, h and t times
/// their steps + s of a draw.
struct AttentionCall {
  View q, k, v, out, lse;
  std::optional<View> mask;
  DType mask_dtype = DType::F32;
  double scale = 1;
  bool causal = false;
  struct Dropout {
    double rate = 0;
    View key;  ///< i64[]
    Dim origin = 0, step_n = 0, step_h = 0, step_t = 0;
    bool operator==(const Dropout&) const = default;
  };
  std::optional<Dropout> dropout;
  struct Gradient {
    View d_out, d_lse, d_q, d_k, d_v;
    bool operator==(const Gradient&) const = default;
  };
  std::optional<Gradient> gradient;
  bool operator==(const AttentionCall&) const = default;
};
enum class ScatterKind : uint8_t { Add, Product, Max, Min };
/// Updates [outer, count, inner] are put into base [outer, size, inner] in their order, element [o, i, j] at [o, index[o, i, j], j]; out is dense. Computed in
/// f64 (integers: 64 bits, which wrap) and rounded once. Without `base` it is zeros. A base that is out itself is changed where it gets something.
struct ScatterCall {
  ScatterKind kind{};
  std::optional<View> base;
  View index, updates, out;
  DType index_dtype = DType::I64, dtype = DType::F32;
  bool operator==(const ScatterCall&) const = default;
};
enum class PoolPass : uint8_t { Max, Average, AverageGradient };
/// Operands as those of the op, dense, f32: a is x, of AverageGradient the result gradient. Max writes `places` too.
struct PoolCall {
  PoolPass pass{};
  View a, out;
  std::optional<View> places;
  DType places_dtype = DType::U8;  ///< or i32
  std::vector<int64_t> size, strides, padding_low, padding_high, dilation;
  bool count_padding = false;
  bool operator==(const PoolCall&) const = default;
};
enum class ScanKind : uint8_t { Sum, Product, LogSumExp, Max, Min };
/// Cumulative along the middle dim of x [outer, length, inner], into out of the same sizes, dense. Computed in f64 (integers: 64 bits, which wrap), each result
/// rounded once.
struct ScanCall {
  ScanKind kind{};
  View x, out;
  DType dtype = DType::F32;
  bool reverse = false;
  bool operator==(const ScanCall&) const = default;
};
/// A row of the op table, or a graph, run by the reference interpreter inside the plan: `program` is a module in text form whose entry "main" takes the inputs and gives
/// the outputs, all dense. It may allocate. Counted and listed: none is in what has to be fast.
struct EvaluateCall {
  std::string program;
  std::vector<View> inputs, outputs;
  std::vector<DType> input_dtypes, output_dtypes;
  std::string why;  ///< for people: what has no form yet
  bool operator==(const EvaluateCall&) const = default;
};
enum class CollectiveKind : uint8_t { AllReduce, AllGather, ReduceScatter };
/// Dense operands. `dim`, `start`, `size`: as the op's.
struct CollectiveCall {
  CollectiveKind kind{};
  ReduceKind reduce{};
  DType dtype = DType::F32;
  View input, output;
  int64_t dim = 0;
  Dim start, size;
  std::vector<AxisRef> axes;
  bool operator==(const CollectiveCall&) const = default;
};
struct Instruction;
/// The instructions once for each value of `symbol` from 0 below `count`, in their Dims. Parallel: pieces that read nothing of one another, each on one thread; its buffers
/// of `private_buffers` then exist once a thread.
struct Repeat {
  std::string symbol;
  Dim count;
  bool reverse = false, parallel = false;
  std::vector<int> private_buffers;
  std::vector<Instruction> body;
  bool operator==(const Repeat&) const;
};
using InstructionOp = std::variant<FormCall, MatMulCall, ConvolutionCall, AttentionCall, ScatterCall, PoolCall, ScanCall, EvaluateCall, CollectiveCall, Repeat>;
struct Instruction {
  InstructionOp op;
  Phase phase = Phase::None;
  std::string label;  ///< for people: the ops in it
  std::string scope;  ///< the layer
  bool one_thread = false;  ///< too small to be shared: thread 0 runs it alone
  bool meet = true;         ///< threads wait for one another before it
  bool operator==(const Instruction&) const = default;
};
inline bool Repeat::operator==(const Repeat& other) const {
  return symbol == other.symbol && count == other.count && reverse == other.reverse && parallel == other.parallel && private_buffers == other.private_buffers && body == other.body;
}

/// All views of an instruction, those of a Repeat's body with it.
void for_each_view(const InstructionOp& op, const std::function<void(const View&)>& visit);

// ---- entries
struct PlanValue {
  Role role;
  DType dtype = DType::F32;
  View view;  ///< dense
  bool operator==(const PlanValue&) const = default;
};
struct PlanEntry {
  std::string name;
  std::vector<Buffer> buffers;
  std::vector<PlanValue> inputs;   ///< input i is the buffer of space Input and index i, or of space State
  std::vector<PlanValue> outputs;  ///< but new states, which are written in place
  std::vector<Instruction> instructions;
  /// Instructions from here on may write states, in place; they run only once the step was found good, and do not fail. Those before read states alone.
  int commit_begin = 0;
  std::vector<std::string> new_states;  ///< that the entry writes, by name
  int64_t arena_bytes = 0;              ///< a multiple of the Target's granularity
  bool operator==(const PlanEntry&) const = default;
};
struct PlanState {
  std::string name;
  RoleKind role = RoleKind::Parameter;
  DType dtype = DType::F32;
  Shape sizes;  ///< this place's part
  bool operator==(const PlanState&) const = default;
};
struct StepPlan {
  Target target;
  /// Of all that chose numbers: plans of one hash give the same bits, whatever the threads, the fusion and the memory budget. 32 hexadecimal digits; empty of a
  /// plan that was not compiled.
  std::string freeze_hash;
  SymbolTable symbols;
  Mesh mesh;
  std::vector<PlanState> states;
  std::vector<Literal> constants;
  std::vector<Form> forms;
  std::vector<FormCode> code;  ///< one a form
  std::vector<PlanEntry> entries;

  const PlanEntry* find_entry(std::string_view name) const;
};

}  // namespace stepgraph
