// SPDX-License-Identifier: Apache-2.0
// The compiled program beside the oracle, on one device: whether results agree, and if not, which value of the program is the first that does not.
//
// A value agrees if no element is further off than a part of the largest one, by dtype, and than a multiple of what a change of the inputs by some units in the
// last place does to it: what is made of rounding errors alone (the gradient of a bias before a norm) says nothing.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/backend/backend.h"

namespace stepgraph {

struct OracleTolerance {
  double factor = 1;  ///< times what is allowed by dtype: 1e-9 (f64), 1e-4 (f32), 0.04 (bf16), 0.005 (f16) of the largest magnitude
  double noise = 32;  ///< times what the changed inputs do
};
/// One value of both.
struct ValueDifference {
  std::string name;  ///< of an output or a new state, or as of passes/tap.h
  double difference = 0, allowed = 0, largest = 0;  ///< of the element that is furthest beyond; the largest magnitude of the oracle's. Of integers: 1 or 0
  double rms = 0;                                   ///< of all differences
  int64_t element = 0, count = 0;
  double found = 0, wanted = 0;
  std::string problem;  ///< not to be compared, and why
  bool ok() const { return problem.empty() && difference <= allowed; }
};
ValueDifference compare_value(std::string name, const Literal& found, const Literal& wanted, const Literal& wanted_of_changed, const OracleTolerance& tolerance = {});

/// What an entry of a Local module of one device is run on. States are inputs too.
struct EntryArguments {
  std::vector<Literal> inputs;  ///< of the entry, in order
  SymbolValues symbols;
};
/// States as the entry `init` makes them; batches of `rows` rows, and states without an init, of random numbers; integers below `integers`.
EntryArguments random_arguments(const Module& local, std::string_view entry, int64_t rows, uint64_t seed, int64_t integers = 64);
/// Integers as large as the oracle takes them: an index out of bounds makes them smaller.
EntryArguments fitting_arguments(const Module& local, std::string_view entry, int64_t rows, uint64_t seed);

/// Each output and new state of the entry. The compiled step is run as in training: states are written in place, behind the commit.
std::vector<ValueDifference> compare_with_oracle(const Module& local, std::string_view entry, const EntryArguments& arguments, const BackendOptions& options,
                                                 const OracleTolerance& tolerance = {});

struct FirstDifference {
  ValueDifference value;
  std::string op, scope, type;
  Phase phase = Phase::None;
  SourcePlace place;
  bool is_alone = false;  ///< it is off as well when no other value is looked at
};
struct BisectOptions {
  BackendOptions backend;
  OracleTolerance tolerance;
  int64_t bytes_at_once = int64_t{256} << 20;  ///< of values that are looked at in one run
};
struct BisectReport {
  int64_t values = 0;    ///< that the program has
  int64_t compared = 0;  ///< up to the first that is off
  int64_t runs = 0;      ///< of the compiled program
  std::optional<FirstDifference> first;
};
/// In the order of the flat program: each value is tapped, as many at once as memory allows. What a loop computes is one value, its result.
BisectReport find_first_difference(const Module& local, std::string_view entry, const EntryArguments& arguments, const BisectOptions& options);
/// Lines for people.
std::string text(const BisectReport& report);

}  // namespace stepgraph
