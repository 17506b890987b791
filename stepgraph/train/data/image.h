// SPDX-License-Identifier: Apache-2.0
// Images from files as torchvision's ImageFolder and transforms give them: JPEG and PNG decoded to RGB, resized, cropped, normalised. Files are not
// trusted: a damaged or hostile one gives one UserError "FILE: what was found", and sizes are checked against the file before anything is allocated.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stepgraph {

/// 8-bit RGB, row by row from the top.
struct Image {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels;  ///< height * width * 3
  bool operator==(const Image&) const = default;
};

/// JPEG or PNG, known by content. To RGB as PIL's convert("RGB"): gray is repeated, a palette is looked up (black outside it), alpha is dropped, 16 bits keep
/// their high byte (gray alone is clipped at 255, as in PIL), CMYK is inverted as Adobe writes it and mixed. The orientation of EXIF is not applied.
/// Refused: arithmetic coding, 12-bit JPEG, two components, more than 178,956,970 pixels (where PIL refuses too).
Image decode_image(std::span<const std::byte> bytes, const std::string& file);
/// A file of at most 256 MiB; `name` stands for it in errors.
Image read_image(const std::string& path, const std::string& name);

/// torchvision's Resize, CenterCrop, ToTensor and Normalize, in this order.
struct ImageTransform {
  std::vector<int64_t> resize = {256};     ///< one number: of the shorter side; two: height and width; empty: as they are
  std::vector<int64_t> crop = {224, 224};  ///< height and width of the middle that is kept; around a smaller image is black
  std::vector<float> mean = {0.485f, 0.456f, 0.406f}, deviation = {0.229f, 0.224f, 0.225f};  ///< of each channel; the defaults are ImageNet's
};
/// UserError for numbers that are out of range.
void check(const ImageTransform& transform);
/// The pixels of the crop, still 8-bit: bilinear with antialiasing, bit for bit as PIL's resize. UserError naming `file` if it would enlarge to absurd sizes.
Image resized_crop(const Image& image, const ImageTransform& transform, const std::string& file);
/// [3, height, width] f32: (x / 255 - mean) / deviation. Mirrored: left and right are swapped.
void normalise(const Image& image, const ImageTransform& transform, bool mirrored, std::span<float> to);

// ---- the two decoders, behind decode_image
Image decode_png(std::span<const std::byte> bytes, const std::string& file);
Image decode_jpeg(std::span<const std::byte> bytes, const std::string& file);
/// UserError unless height and width are positive and their product is at most `pixels_max` (what the file can hold) and PIL's limit.
void check_image_size(int64_t height, int64_t width, int64_t pixels_max, const std::string& file);

}  // namespace stepgraph
