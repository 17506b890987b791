// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/lower/unit_order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

/// Units after those that they read, in no order that means anything else.
std::vector<size_t> reading_order(std::span<const OrderUnit> units) {
  std::vector<size_t> missing(units.size()), order;
  std::vector<std::vector<size_t>> readers(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    missing[u] = units[u].reads.size();
    for (const size_t read : units[u].reads) readers[read].push_back(u);
    if (missing[u] == 0) order.push_back(u);
  }
  for (size_t i = 0; i < order.size(); ++i)
    for (const size_t next : readers[order[i]])
      if (--missing[next] == 0) order.push_back(next);
  SG_CHECK(order.size() == units.size(), "units of a graph read one another");
  return order;
}

/// By unit, whether it is a call of backward or hangs on one.
std::vector<char> late_units(std::span<const OrderUnit> units) {
  std::vector<char> is_late(units.size(), 0);
  for (const size_t u : reading_order(units))
    is_late[u] = units[u].is_backward_call || std::any_of(units[u].reads.begin(), units[u].reads.end(), [&](size_t read) { return is_late[read] != 0; });
  return is_late;
}

/// All but what is required, what an update reads that does not hang on backward (rates and their kind), and what those hang on.
std::vector<char> behind_early_commit(std::span<const OrderUnit> units) {
  const std::vector<char> is_late = late_units(units);
  std::vector<char> in_commit(units.size(), 1);
  std::vector<size_t> todo;
  const auto require = [&](size_t u) {
    if (in_commit[u]) todo.push_back(u), in_commit[u] = 0;
  };
  for (size_t u = 0; u < units.size(); ++u) {
    if (units[u].is_required) require(u);
    for (const size_t read : units[u].reads)
      if (units[u].is_update && !is_late[read]) require(read);
  }
  while (!todo.empty()) {
    const size_t u = todo.back();
    todo.pop_back();
    for (const size_t read : units[u].reads) require(read);
  }
  return in_commit;
}

/// Where in the program a unit is wanted: at its last node, or where it is first read, if that is before: a group may hold nodes of backward that forward waits
/// for.
std::vector<int> wanted_places(std::span<const OrderUnit> units) {
  std::vector<int> place(units.size(), 0);
  for (size_t u = 0; u < units.size(); ++u) place[u] = units[u].position;
  const std::vector<size_t> order = reading_order(units);
  for (size_t i = order.size(); i-- > 0;)
    for (const size_t read : units[order[i]].reads) place[read] = std::min(place[read], place[order[i]]);
  return place;
}

}  // namespace

bool can_commit_early(std::span<const OrderUnit> units) {
  const std::vector<char> is_late = late_units(units);
  for (size_t u = 0; u < units.size(); ++u)
    if (units[u].is_required && is_late[u]) return false;
  return true;
}

UnitOrder order_units(std::span<const OrderUnit> units, bool commit_early) {
  UnitOrder result;
  result.in_commit.assign(units.size(), 0);
  if (commit_early)
    result.in_commit = behind_early_commit(units);
  else
    for (size_t u = 0; u < units.size(); ++u) result.in_commit[u] = units[u].is_update;
  const std::vector<int> place = wanted_places(units);
  std::vector<std::vector<size_t>> after(units.size());
  std::vector<size_t> missing(units.size(), 0);
  for (size_t u = 0; u < units.size(); ++u) {
    for (const std::vector<size_t>* before : {&units[u].reads, &units[u].follows})
      for (const size_t b : *before) after[b].push_back(u), ++missing[u];
  }
  using Ready = std::tuple<bool, int, size_t>;  // what is in the commit is last; there an update comes at once; else the order of the program
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  const auto add = [&](size_t u) { ready.emplace(result.in_commit[u] != 0, commit_early && units[u].is_update ? -1 : place[u], u); };
  for (size_t u = 0; u < units.size(); ++u)
    if (missing[u] == 0) add(u);
  while (!ready.empty()) {
    const size_t u = std::get<2>(ready.top());
    ready.pop();
    result.order.push_back(u);
    for (const size_t next : after[u])
      if (--missing[next] == 0) add(next);
  }
  SG_CHECK(result.order.size() == units.size(), "units of a graph wait for one another");
  return result;
}

}  // namespace stepgraph
