// SPDX-License-Identifier: Apache-2.0
// Samples: an op with attributes and inputs. The tests of this folder are driven by them and by the op table; an op without a sample fails.
#pragma once
#include <string>
#include <vector>
#include "stepgraph/compile/ir/op.h"

namespace stepgraph::testing {

struct Sample {
  Op op;
  std::vector<Literal> inputs;  ///< floating ones in f64
  bool check_gradient = true;  ///< false: the inputs lie at a kink
};
std::string describe(const Sample& sample);

/// Numbers that look random: a function of the seed and nothing else.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  double uniform(double low, double high);
  int64_t integer(int64_t low, int64_t high);  ///< inclusive
  Literal uniform(const Sizes& sizes, double low, double high);
  /// Magnitudes in [low, high], either sign: away from a kink at 0.
  Literal signed_uniform(const Sizes& sizes, double low, double high);
  /// All differ by at least 0.1, in random order: no ties.
  Literal distinct(const Sizes& sizes);
  Literal integers(DType dtype, const Sizes& sizes, int64_t low, int64_t high);
  Literal bools(const Sizes& sizes);

 private:
  uint64_t next();
  uint64_t state_;
};

std::vector<Sample> source_samples();
std::vector<Sample> elementwise_samples();
std::vector<Sample> reduce_samples();
std::vector<Sample> movement_samples();
std::vector<Sample> index_samples();
std::vector<Sample> block_samples();
/// All of them.
const std::vector<Sample>& samples();
/// Names of ops that are tested elsewhere, with the test's file.
const std::vector<std::pair<std::string, std::string>>& covered_elsewhere();

/// Scalars, empty, one element, several ranks, and more elements than a block of the evaluation.
std::vector<Sizes> usual_sizes();

}  // namespace stepgraph::testing
