// SPDX-License-Identifier: Apache-2.0
// Random .npz bytes: one UserError or arrays that survive a round trip. An input that is no zip is also tried as the only member of one.
#include <algorithm>
#include "stepgraph/base/error.h"
#include "stepgraph/tensor/literal.h"
#include "stepgraph/train/data/arrays.h"
#include "stepgraph/train/data/npy.h"

using namespace stepgraph;

namespace {

void try_npz(std::span<const std::byte> bytes) {
  try {
    const NamedArrays arrays = parse_npz(bytes, "fuzz.npz");
    SG_CHECK(parse_npz(print_npz(arrays), "again.npz") == arrays);
  } catch (const UserError& error) {
    SG_CHECK(std::string(error.what()).find("npz") != std::string::npos, error.what());
  }
}

void try_npy(std::span<const std::byte> bytes) {
  try {
    size_t used = 0;
    read_npy(
        static_cast<int64_t>(bytes.size()),
        [&](std::span<std::byte> to) {
          SG_CHECK(to.size() <= bytes.size() - used);
          std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(used), to.size(), to.begin());
          used += to.size();
        },
        "fuzz.npy");
  } catch (const UserError& error) {
    SG_CHECK(std::string(error.what()).starts_with("fuzz.npy: "), error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (size > 1 && data[0] == 'P') {
    try_npz(bytes);
  } else {
    try_npy(bytes);
  }
  return 0;
}
