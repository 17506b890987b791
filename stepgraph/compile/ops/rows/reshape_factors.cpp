// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/ops/rows/reshape_factors.h"

#include <numeric>

#include "stepgraph/compile/ops/rows/rules.h"

namespace stepgraph {
namespace {

/// One side's dims, taken from the left. `rest` is what the factors so far leave of the current dim.
class Side {
 public:
  explicit Side(const Shape& shape) : shape_(shape), factors_(shape.size()) { skip_ones(); }
  bool done() const { return dim_ == shape_.size(); }
  const Dim& rest() const { return rest_; }
  void take(int factor, const Dim& left) {
    factors_[dim_].push_back(factor);
    rest_ = left;
    if (rest_ == Dim(1)) next();
  }
  void next() {
    ++dim_;
    skip_ones();
  }
  /// No more factors in this dim: what is left of it is never split.
  void close(ShardingRule& rule) {
    if (done() || factors_[dim_].empty() || rest_ == Dim(1)) return;
    factors_[dim_].push_back(add_factor(rule, FactorKind::Replicate, rest_));
    rest_ = 1;
  }
  DimFactors factors() && { return std::move(factors_); }

 private:
  void skip_ones() {
    while (dim_ < shape_.size() && shape_[dim_] == Dim(1)) ++dim_;
    if (dim_ < shape_.size()) rest_ = shape_[dim_];
  }
  const Shape& shape_;
  DimFactors factors_;
  size_t dim_ = 0;
  Dim rest_ = 1;
};

/// The largest factor in front of both rests that is sure, and what it leaves; nothing when there is none.
struct Common {
  Dim factor, left_of_from, left_of_to;
};
std::optional<Common> common_factor(const SymbolTable& symbols, const Dim& from, const Dim& to) {
  if (symbols.equal(from, to) == Truth::True) return Common{from, 1, 1};
  if (from == Dim(0) || to == Dim(0)) return std::nullopt;
  if (const auto left = exact_quotient(from, to)) return Common{to, *left, 1};
  if (const auto left = exact_quotient(to, from)) return Common{from, 1, *left};
  if (!from.is_constant() || !to.is_constant()) return std::nullopt;
  const int64_t common = std::gcd(from.constant(), to.constant());
  if (common == 1) return std::nullopt;
  return Common{common, from.constant() / common, to.constant() / common};
}

/// Both sides are at dims without a common factor: moves on to where their products meet again. False when that is nowhere.
bool skip_to_meeting(ShardingRule& rule, Side& from, Side& to) {
  Dim from_product = from.rest(), to_product = to.rest();
  from.close(rule), to.close(rule);
  while (from_product != to_product) {
    if (!from_product.is_constant() || !to_product.is_constant()) return false;
    const bool from_is_less = from_product.constant() < to_product.constant();
    Side& shorter = from_is_less ? from : to;
    shorter.next();
    if (shorter.done()) return false;
    Dim& product = from_is_less ? from_product : to_product;
    product = product * shorter.rest();
  }
  from.next(), to.next();
  return true;
}

}  // namespace

ShardingRule reshape_rule(const ShardingRequest& request) {
  ShardingRule rule;
  Side from(request.inputs[0].shape), to(request.results[0].shape);
  while (!from.done() && !to.done()) {
    if (const auto common = common_factor(request.module.symbols, from.rest(), to.rest())) {
      const int factor = add_factor(rule, FactorKind::Parallel, common->factor);
      from.take(factor, common->left_of_from), to.take(factor, common->left_of_to);
    } else if (!skip_to_meeting(rule, from, to)) {
      break;
    }
  }
  // What one side has left over, as a symbolic dim that is 1 whenever the program runs, is not split.
  from.close(rule), to.close(rule);
  rule.operands = {std::move(from).factors()};
  rule.results = {std::move(to).factors()};
  rule.linear_groups = {{0}};
  return rule;
}

}  // namespace stepgraph
