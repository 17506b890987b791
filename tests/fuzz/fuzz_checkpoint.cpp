// SPDX-License-Identifier: Apache-2.0
// Random manifests: one UserError, or a manifest whose text is exactly the input. Then the same bytes as every file of a checkpoint directory: a
// good older checkpoint must be found behind any of them.
#include "stepgraph/base/disk.h"
#include "stepgraph/base/error.h"
#include "stepgraph/train/checkpoint/checkpoint.h"
#include "stepgraph/train/checkpoint/manifest.h"

using namespace stepgraph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    SG_CHECK(print_manifest(parse_manifest(text, "manifest.json")) == text);
  } catch (const UserError& error) {
    SG_CHECK(std::string(error.what()).starts_with("manifest.json: "), error.what());
  }

  FaultyDisk disk;
  CheckpointData good;
  good.step = 10;
  good.state.emplace_back("a", Literal::full(DType::F32, {2}, 1));
  save_checkpoint(disk, "c", good);
  disk.make_directories("c/step-00000020");
  for (const char* file : {"c/step-00000020/manifest.json", "c/step-00000020/state.safetensors", "c/latest"}) disk.create(file)->append(text);
  const LoadedCheckpoint loaded = load_latest(disk, "c");
  SG_CHECK(loaded.data.step == 10 || loaded.messages.empty());
  return 0;
}
