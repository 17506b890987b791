// SPDX-License-Identifier: Apache-2.0
// Random images: one UserError, or an image of the size that it says, which can be resized.
#include "stepgraph/base/error.h"
#include "stepgraph/train/data/image.h"

using namespace stepgraph;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Image image = decode_image(std::as_bytes(std::span(data, size)), "fuzz.img");
    SG_CHECK(image.pixels.size() == static_cast<size_t>(image.height * image.width * 3));
    ImageTransform transform;
    transform.resize = {9};
    transform.crop = {8, 7};
    SG_CHECK(resized_crop(image, transform, "fuzz.img").pixels.size() == 8 * 7 * 3);
  } catch (const UserError& error) {
    SG_CHECK(std::string(error.what()).starts_with("fuzz.img: "), error.what());
  }
  return 0;
}
