// SPDX-License-Identifier: Apache-2.0
// Sets of bytes, exact where views are strided: what the verifier of plans reckons with. UserError where a number leaves 64 bits.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace stepgraph {

struct RegionStep {
  int64_t count = 1, stride = 0;  ///< stride in bytes
  bool operator==(const RegionStep&) const = default;
};
/// The runs of `run` bytes at begin + the sum of i * stride, for each step 0 <= i < count.
struct ByteRegion {
  int64_t begin = 0, run = 0;     ///< run 0: no byte
  std::vector<RegionStep> steps;  ///< inner to outer, each stride above what is inside of it, as far as that can be
  bool is_distinct = true;        ///< known to meet each byte once
  bool empty() const { return run == 0; }
  int64_t end() const;  ///< after the last byte
  ByteRegion shifted(int64_t bytes) const;
  /// What a loop covers whose iterations are `stride` apart.
  ByteRegion repeated(int64_t count, int64_t stride) const;
  /// In both, at the same distances.
  bool same_shape(const ByteRegion& other) const { return run == other.run && steps == other.steps; }
};
/// Of elements; steps in any order, of any sign, and empty for a count below 1.
ByteRegion byte_region(int64_t begin, int64_t element_bytes, std::vector<RegionStep> steps);

int64_t sum_of(int64_t a, int64_t b);
int64_t product_of(int64_t a, int64_t b);

/// Disjoint intervals, those that touch joined.
class IntervalSet {
 public:
  void add(int64_t begin, int64_t end);
  void remove(int64_t begin, int64_t end);
  bool touches(int64_t begin, int64_t end) const;  ///< shares a byte with it
  /// The first byte of the interval that is not in the set, or `end`.
  int64_t first_missing(int64_t begin, int64_t end) const;
  bool empty() const { return intervals_.empty(); }
  void clear() { intervals_.clear(); }

  /// A region of more than `runs_max` runs is taken as the whole of what it spans, where that errs on the safe side: for `touches` and for `add` with `wide`;
  /// else it adds nothing.
  void add(const ByteRegion& region, bool wide);
  bool touches(const ByteRegion& region) const;
  int64_t first_missing(const ByteRegion& region) const;  ///< or region.end()

 private:
  std::map<int64_t, int64_t> intervals_;  ///< begin -> end
};

}  // namespace stepgraph
