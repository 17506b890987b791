// SPDX-License-Identifier: Apache-2.0
// Modules made at random from a seed: views of every kind, elements, reductions, products, reads and writes by index, windows, scans, order, attention, loops
// and calls, and gradients of a scalar of all of it. The same seed gives the same module on every machine.
//
// What jumps (rounding, comparing, counting to an index) is done only to values that every way to run the module computes to the bit, so that a difference
// is a fault and not an accident near the jump.
#pragma once
#include <cstdint>
#include <vector>
#include "stepgraph/compile/ir/module.h"

namespace stepgraph::testing {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  /// In [0, count).
  int64_t roll(int64_t count) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(count));
  }
  bool chance(int64_t of) { return roll(of) == 0; }

 private:
  uint64_t state_;
};

struct RandomModuleOptions {
  std::vector<DType> floats = {DType::F32, DType::F64, DType::BF16, DType::F16};  ///< dtypes of inputs and converts
  bool symbols = true;                                                           ///< half of the modules have sizes "n"
  bool states = false;  ///< floating inputs are replaced: by what is computed, by another, by a view of themselves
  bool integers = true;                                                          ///< inputs of integers and bools too
  int64_t largest_size = 33;    ///< of a dim; above 7 there is now and then one of some thousands, longer than a block of a sum
  int64_t elements_max = 6000;  ///< of a value
};
/// One entry "main": inputs "x0", .. of role parameter, outputs of role user output. It may have the symbol "n" in its sizes.
struct RandomModule {
  Module module;
  std::vector<Literal> inputs;
  SymbolValues symbols;
  bool has_gradients = false;
};
RandomModule random_module(Dice& dice, const RandomModuleOptions& options = {});

}  // namespace stepgraph::testing
