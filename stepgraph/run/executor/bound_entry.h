// SPDX-License-Identifier: Apache-2.0
// An entry with all of its sizes known: what each thread does, as a flat list. For the .cpp files of this folder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "stepgraph/program/instruction_work.h"
#include "stepgraph/program/step_plan.h"
#include "stepgraph/run/comm/communicator.h"
#include "stepgraph/run/comm/mesh_binding.h"
#include "stepgraph/run/device/attention.h"
#include "stepgraph/run/device/convolution.h"
#include "stepgraph/run/device/gemm.h"
#include "stepgraph/run/device/pool.h"
#include "stepgraph/run/device/scan.h"
#include "stepgraph/run/device/scatter.h"
#include "stepgraph/run/executor/plan_executor.h"

namespace stepgraph {

enum class CommandKind : uint8_t { Meet, Form, MatMul, Convolution, Attention, Scatter, Pool, Scan, Evaluate, Collective, Poison };
/// A thread's part of an instruction: pieces [begin, end) of it.
struct Command {
  CommandKind kind{};
  int instruction = 0;  ///< into BoundEntry::instructions
  size_t item = 0;      ///< of its kind
  size_t pointers = 0;  ///< first of its own in BoundEntry::pointers
  size_t sizes = 0;     ///< in BoundEntry::sizes
  int64_t begin = 0, end = 0;
};
using CommandLists = std::vector<std::vector<Command>>;  // by thread

/// A pointer into an input, which changes from run to run.
struct InputPointer {
  size_t pointer = 0;
  int input = 0;
  int64_t bytes = 0;
};
struct BoundValue {
  DType dtype = DType::F32;
  Sizes sizes;
};
struct BoundEvaluate {
  const EvaluateProgram* program = nullptr;
  std::vector<BoundValue> inputs, outputs;
  SymbolValues symbols;
};
struct BoundCollective {
  const CollectiveCall* call = nullptr;
  BoundValue input, output;
  int64_t start = 0, size = 0;
  std::vector<int> group;
};
struct BoundEntry {
  SymbolValues given;  // what it was bound for
  CommandLists run, commit;
  std::vector<const Instruction*> instructions;  // in the order in which one thread would run them
  std::vector<void*> pointers;
  std::vector<int64_t> sizes;
  std::vector<InputPointer> input_pointers;
  std::vector<BoundValue> inputs, outputs;  // as the entry's
  size_t first_output = 0;                  // in pointers
  std::vector<MatMulWork> matmuls;
  std::vector<std::unique_ptr<ConvolutionWork>> convolutions;
  std::vector<AttentionWork> attentions;
  std::vector<ScatterWork> scatters;
  std::vector<PoolWork> pools;
  std::vector<ScanWork> scans;
  std::vector<BoundEvaluate> evaluates;
  std::vector<BoundCollective> collectives;
  size_t scratch_bytes = 0;  // that a thread needs
  // Where runs are traced, by instruction: what one piece of it is of its work.
  std::vector<InstructionWork> piece_work;
};

/// What an entry is bound to. All of it stays where it is.
struct BindPlaces {
  const StepPlan& plan;
  const MeshBinding& binding;
  int rank = 0;
  const std::map<std::string, EvaluateProgram, std::less<>>& programs;  // by their text
  std::vector<std::byte*> states, constants;
  std::byte* arena = nullptr;
  std::vector<std::byte*> own;  // memory of each thread for its private buffers; none of the first, whose are in the arena
  bool poison = false;
};

/// `given`: sizes of the batch; coordinates and derived symbols are added. UserError for sizes that the plan was not made for.
BoundEntry bind_entry(const BindPlaces& places, const PlanEntry& entry, const SymbolValues& given);
/// What each thread but the first needs for private buffers.
size_t private_bytes(const PlanEntry& entry);

}  // namespace stepgraph
