// SPDX-License-Identifier: Apache-2.0
// What a trainer needs of one rank: a loaded program and this rank's part of the state. The reference back end is one (reference/reference_executor.h).
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "stepgraph/run/comm/communicator.h"
#include "stepgraph/tensor/dim.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

struct EntryInputs {
  std::map<std::string, Literal, std::less<>> batch;  ///< this rank's part of each batch input, by name
  int64_t seed = 0, step = 0;
  SymbolValues sizes;  ///< of the whole batch: local sizes do not always tell them
};
/// A term of the loss: numerator / (max(sum, least) + constant). Numerator and sum add up over batches, the others count once.
struct LossQuotient {
  double numerator = 0, sum = 0, least = -std::numeric_limits<double>::infinity(), constant = 0;
};
/// What an entry gives besides new state. All but gradients and outputs of a split layout are the same on every rank.
struct EntryResults {
  std::map<std::string, LossQuotient, std::less<>> loss;       ///< by the name of the term; one in a step of ours
  std::optional<double> learning_rate, gradient_norm, loss_scale;
  bool skipped = false;                                        ///< no update was made
  std::map<std::string, double> numbers;                       ///< metrics as they are
  std::map<std::string, std::pair<double, double>> quotients;  ///< metrics by numerator and denominator
  std::map<std::string, Literal> gradients, outputs;    ///< by parameter; user outputs by name
  std::map<std::string, Literal> taps;                  ///< values that were asked for besides, by name (BackendOptions::taps)
  std::optional<std::string> non_finite_state;          ///< the first new state that is not finite and was before, where that is known before `commit`
};

class Executor {
 public:
  Executor() = default;
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// The group that collectives go to, on the thread that will run. Again after a run that failed: then a group is of no more use, and the state is as it was.
  virtual void connect(Communicator& group) = 0;
  /// All ranks together. New state waits for `commit`; another run drops it. UserError for a fault of the program's inputs, CommError if a peer failed.
  virtual EntryResults run(std::string_view entry, const EntryInputs& inputs) = 0;
  /// The new state of the last run becomes the state; all ranks together, and on any thread where there is one rank. An executor that writes states in place
  /// knows only afterwards: it gives the first state that is not finite now and was before, else nothing.
  virtual std::optional<std::string> commit() = 0;
  /// All ranks together: runs the entry once more, changes nothing, and throws UserError naming the first operation with a result that is not finite while
  /// all that it read was.
  virtual void find_non_finite(std::string_view entry, const EntryInputs& inputs) = 0;

  /// This rank's part of a state; while nothing runs. InternalError for a name that the program has not, or that no run has given a value yet.
  virtual Literal read_state(std::string_view name) const = 0;
  virtual void write_state(std::string_view name, Literal part) = 0;
  /// The largest sum of bytes of live values in any run so far, or all that is held for them.
  virtual int64_t peak_bytes() const = 0;
};

}  // namespace stepgraph
