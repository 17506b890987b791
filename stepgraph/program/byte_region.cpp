// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/byte_region.h"

#include <algorithm>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

constexpr int64_t runs_max = int64_t{1} << 18;

int64_t run_count(const ByteRegion& region) {
  int64_t result = 1;
  for (const RegionStep& step : region.steps) result = step.count > runs_max / result ? runs_max + 1 : result * step.count;
  return result;
}

/// Calls `visit(begin, end)` for each run, until it says false.
template <class Visit>
bool for_each_run(const ByteRegion& region, const Visit& visit) {
  std::vector<int64_t> at(region.steps.size(), 0);
  int64_t begin = region.begin;
  for (;;) {
    if (!visit(begin, begin + region.run)) return false;
    size_t i = 0;
    for (; i < at.size(); ++i) {
      begin += region.steps[i].stride;
      if (++at[i] < region.steps[i].count) break;
      begin -= region.steps[i].stride * region.steps[i].count;
      at[i] = 0;
    }
    if (i == at.size()) return true;
  }
}

}  // namespace

int64_t sum_of(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) throw UserError("size overflows 64 bits");
  return result;
}
int64_t product_of(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) throw UserError("size overflows 64 bits");
  return result;
}

ByteRegion byte_region(int64_t begin, int64_t element_bytes, std::vector<RegionStep> steps) {
  ByteRegion result{.begin = begin, .run = element_bytes, .steps = {}};
  for (RegionStep& step : steps) {
    if (step.count < 1) return {};
    if (step.count > 1 && step.stride == 0) result.is_distinct = false;
    if (step.stride >= 0) continue;
    result.begin = sum_of(result.begin, product_of(step.count - 1, step.stride));
    step.stride = product_of(step.stride, -1);
  }
  std::erase_if(steps, [](const RegionStep& step) { return step.count == 1 || step.stride == 0; });
  std::sort(steps.begin(), steps.end(), [](const RegionStep& a, const RegionStep& b) { return a.stride < b.stride; });
  int64_t span = element_bytes;  // of all steps so far
  for (const RegionStep& step : steps) {
    if (step.stride < span) result.is_distinct = false;
    const int64_t reach = product_of(step.count - 1, step.stride);
    span = sum_of(span, reach);
    if (result.steps.empty() && step.stride <= result.run)
      result.run = sum_of(result.run, reach);
    else if (!result.steps.empty() && product_of(result.steps.back().count, result.steps.back().stride) == step.stride)
      result.steps.back().count = product_of(result.steps.back().count, step.count);
    else
      result.steps.push_back(step);
  }
  sum_of(result.begin, span);
  return result;
}

int64_t ByteRegion::end() const {
  int64_t result = begin + run;
  for (const RegionStep& step : steps) result += (step.count - 1) * step.stride;
  return result;
}

ByteRegion ByteRegion::shifted(int64_t bytes) const {
  ByteRegion result = *this;
  result.begin = sum_of(begin, bytes);
  sum_of(result.end() - result.begin, result.begin);
  return result;
}

ByteRegion ByteRegion::repeated(int64_t count, int64_t stride) const {
  if (empty() || stride == 0) return *this;
  std::vector<RegionStep> all = steps;
  all.push_back({count, stride});
  return byte_region(begin, run, std::move(all));
}

void IntervalSet::add(int64_t begin, int64_t end) {
  if (begin >= end) return;
  auto next = intervals_.upper_bound(begin);
  if (next != intervals_.begin() && std::prev(next)->second >= begin) --next;
  while (next != intervals_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = intervals_.erase(next);
  }
  intervals_.emplace_hint(next, begin, end);
}

void IntervalSet::remove(int64_t begin, int64_t end) {
  if (begin >= end) return;
  auto next = intervals_.upper_bound(begin);
  if (next != intervals_.begin() && std::prev(next)->second > begin) --next;
  while (next != intervals_.end() && next->first < end) {
    const auto [from, to] = *next;
    next = intervals_.erase(next);
    if (from < begin) intervals_.emplace_hint(next, from, begin);
    if (to > end) next = intervals_.emplace_hint(next, end, to);
  }
}

bool IntervalSet::touches(int64_t begin, int64_t end) const {
  if (begin >= end) return false;
  const auto next = intervals_.upper_bound(begin);
  if (next != intervals_.begin() && std::prev(next)->second > begin) return true;
  return next != intervals_.end() && next->first < end;
}

int64_t IntervalSet::first_missing(int64_t begin, int64_t end) const {
  if (begin >= end) return end;
  const auto next = intervals_.upper_bound(begin);
  if (next == intervals_.begin()) return begin;
  return std::max(begin, std::min(end, std::prev(next)->second));
}

void IntervalSet::add(const ByteRegion& region, bool wide) {
  if (region.empty()) return;
  if (run_count(region) > runs_max) {
    if (wide) add(region.begin, region.end());
    return;
  }
  if (!region.steps.empty() && first_missing(region.begin, region.end()) == region.end()) return;
  for_each_run(region, [&](int64_t begin, int64_t end) {
    add(begin, end);
    return true;
  });
}

bool IntervalSet::touches(const ByteRegion& region) const {
  if (region.empty() || !touches(region.begin, region.end())) return false;
  if (region.steps.empty() || run_count(region) > runs_max) return true;
  return !for_each_run(region, [&](int64_t begin, int64_t end) { return !touches(begin, end); });
}

int64_t IntervalSet::first_missing(const ByteRegion& region) const {
  if (region.empty()) return region.end();
  const int64_t missing = first_missing(region.begin, region.end());
  if (missing == region.end() || region.steps.empty() || run_count(region) > runs_max) return missing;
  int64_t result = region.end();
  for_each_run(region, [&](int64_t begin, int64_t end) {
    const int64_t in_run = first_missing(begin, end);
    if (in_run == end) return true;
    result = in_run;
    return false;
  });
  return result;
}

}  // namespace stepgraph
