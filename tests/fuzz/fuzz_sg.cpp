// SPDX-License-Identifier: Apache-2.0
// Any bytes as .sg text: a UserError, or a module that prints to text which reads back to the same; the verifier and the hash bear whatever was read.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/ir/graphviz.h"
#include "stepgraph/compile/ir/module_hash.h"
#include "stepgraph/compile/ir/text.h"
#include "stepgraph/compile/ops/verify.h"

using namespace stepgraph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Module module;
  try {
    module = parse_module({reinterpret_cast<const char*>(data), size}, "fuzz.sg");
  } catch (const UserError&) {
    return 0;
  }
  const std::string text = print_module(module);
  if (print_module(parse_module(text)) != text) abort();
  try {
    verify(module);
  } catch (const UserError&) {
    return 0;
  }
  if (module_hash(module) != module_hash(parse_module(text))) abort();
  for (size_t i = 0; i < module.graphs.size(); ++i) graphviz(module, {static_cast<int32_t>(i)});
  return 0;
}
