// SPDX-License-Identifier: Apache-2.0
// Random .safetensors bytes: one UserError that names the file, or content that survives a round trip.
#include "stepgraph/base/error.h"
#include "stepgraph/train/data/arrays.h"

using namespace stepgraph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Safetensors content = parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
    SG_CHECK(parse_safetensors(print_safetensors(content), "again.safetensors") == content);
  } catch (const UserError& error) {
    SG_CHECK(std::string(error.what()).starts_with("fuzz.safetensors: "), error.what());
  }
  return 0;
}
