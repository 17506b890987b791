// SPDX-License-Identifier: Apache-2.0
// `test_command --update` rewrites docs/jobs.md and the outputs in docs/command.md; read the difference before it is committed.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <string>

#include "tests/command/update.h"

namespace stepgraph::testing {

bool& update_wanted() {
  static bool wanted = false;
  return wanted;
}

}  // namespace stepgraph::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  setenv("STEPGRAPH_CACHE", "off", 1);  // tests leave the user's cache alone; those of the cache name one
  stepgraph::testing::update_wanted() = std::any_of(argv, argv + argc, [](const char* argument) { return std::string(argument) == "--update"; });
  return RUN_ALL_TESTS();
}
