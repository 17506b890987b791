// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/version.h"

#include <cstdio>

int main() {
  std::printf("stepgraph %s\n", stepgraph::version_string);
  return 0;
}
