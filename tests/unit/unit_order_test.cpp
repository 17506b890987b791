// SPDX-License-Identifier: Apache-2.0
// The order of units and the beginning of the commit, by graphs that are written down.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/lower/unit_order.h"

namespace stepgraph {
namespace unit_order_test {

/// Units at places of the program as they are added, told by a letter each.
struct Units {
  std::vector<OrderUnit> units;
  std::string letters;
  OrderUnit& add(char letter, const std::string& reads, const std::string& follows = "") {
    OrderUnit unit;
    unit.position = static_cast<int>(units.size());
    for (const char read : reads) unit.reads.push_back(letters.find(read));
    for (const char other : follows) unit.follows.push_back(letters.find(other));
    letters += letter;
    units.push_back(std::move(unit));
    return units.back();
  }
  void update(char letter, const std::string& reads, const std::string& follows = "") { add(letter, reads, follows).is_update = true; }
  void required(char letter, const std::string& reads) { add(letter, reads).is_required = true; }
  void backward(char letter, const std::string& reads) { add(letter, reads).is_backward_call = true; }
  /// "fl|xwU": the commit begins at the bar.
  std::string order() const {
    const UnitOrder found = order_units(units, can_commit_early(units));
    std::string result;
    for (const size_t u : found.order) {
      if (found.in_commit[u] && result.find('|') == std::string::npos) result += '|';
      result += letters[u];
    }
    return result;
  }
};

/// Forward f and g, the loss l; backward: the gradients of what g reads (x) and of its weight (v), then w; last the rate r and the updates V and W.
Units two_layers() {
  Units step;
  step.add('f', "");
  step.add('g', "f");
  step.required('l', "g");
  step.backward('v', "gf");
  step.backward('x', "g");
  step.backward('w', "x");
  step.required('r', "");
  step.update('V', "vr", "gx");
  step.update('W', "wr", "f");
  return step;
}

TEST(UnitOrder, UpdatesComeAtOnceWhereNothingRequiredHangsOnBackward) {
  Units step = two_layers();
  EXPECT_EQ(step.order(), "fglr|vxVwW");  // V waits for x, which reads the weight
  step.units[4].reads.clear();            // x for nothing
  EXPECT_EQ(step.order(), "fglr|vxVwW");
  step.units[7].follows = {1};
  EXPECT_EQ(step.order(), "fglr|vVxwW");
}

TEST(UnitOrder, TheCommitIsTheEndWhereAnOutputHangsOnBackward) {
  Units step = two_layers();
  step.required('n', "vw");  // the norm of all gradients
  EXPECT_EQ(step.order(), "fglvxwrn|VW");
  Units failing = two_layers();
  failing.units[5].is_required = true;  // w may fail
  EXPECT_EQ(failing.order(), "fglvxwr|VW");
}

TEST(UnitOrder, WhatAnUpdateReadsBesidesGradientsIsEarly) {
  Units step = two_layers();
  step.units[6].is_required = false;  // the rate is no output
  EXPECT_EQ(step.order(), "fglr|vxVwW");
  step.add('c', "");  // what backward alone reads stays where it is wanted
  step.units[5].reads.push_back(9);
  EXPECT_EQ(step.order(), "fglr|vxVcwW");
}

TEST(UnitOrder, EntriesWithoutBackwardOrWithoutUpdates) {
  Units init;
  init.add('a', "");
  init.update('A', "a");
  init.update('B', "");
  EXPECT_EQ(init.order(), "a|AB");
  Units eval;
  eval.add('a', "");
  eval.required('b', "a");
  EXPECT_EQ(eval.order(), "ab");
}

TEST(UnitOrder, UnitsThatWaitForOneAnotherAreAFault) {
  Units circle;
  circle.add('a', "");
  circle.add('b', "a");
  circle.units[0].reads = {1};
  EXPECT_THROW(circle.order(), InternalError);
  Units states;
  states.update('A', "");
  states.update('B', "", "A");
  states.units[0].follows = {1};
  EXPECT_THROW(states.order(), InternalError);
}

}  // namespace unit_order_test
}  // namespace stepgraph
