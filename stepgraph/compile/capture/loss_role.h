// SPDX-License-Identifier: Apache-2.0
// How a module says what its loss is: a sum of terms, each a quotient of sums over the rows of a batch. Term T ("loss", "loss.1", ...) is
//
//     loss_numerator T / (max(loss_denominator T, loss_denominator T.least) + loss_denominator T.constant)
//
// where numerator and denominator add up over micro-batches and evaluated batches, and `least` and `constant`, where they are, count once: a sum over the batch
// has a denominator of 0 and the constant 1. The denominator "whole" says instead that no parts of a batch can be put together.
#pragma once
#include <string_view>

namespace stepgraph {

enum class DenominatorPart { Sum, Least, Constant };

/// The term that a loss denominator belongs to, and which part of it it is.
struct DenominatorRole {
  std::string_view term;
  DenominatorPart part = DenominatorPart::Sum;
};
/// Of the loss of a whole batch, which is no sum of quotients of sums.
constexpr std::string_view whole_batch_denominator = "whole";

/// The term of a numerator of that name; the first one may go without.
inline std::string_view loss_term(std::string_view name) { return name.empty() ? "loss" : name; }
inline DenominatorRole denominator_role(std::string_view name) {
  if (name.empty() || name == whole_batch_denominator) return {"loss"};
  constexpr std::string_view least = ".least", constant = ".constant";
  if (name.ends_with(least)) return {name.substr(0, name.size() - least.size()), DenominatorPart::Least};
  if (name.ends_with(constant)) return {name.substr(0, name.size() - constant.size()), DenominatorPart::Constant};
  return {name, DenominatorPart::Sum};
}
}  // namespace stepgraph
