// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/data/image.h"
#include <fmt/core.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"

namespace stepgraph {
namespace {

/// PIL's: twice what fills a quarter of a gigabyte at three bytes a pixel.
constexpr int64_t pixels_limit = 178'956'970;
constexpr int64_t file_limit = int64_t{256} << 20;
constexpr int64_t side_limit = 1 << 20;

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

/// For a message: what the file seems to be instead.
std::string kind_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) return "an empty file";
  if (starts_with(bytes, "GIF8")) return "a GIF";
  if (starts_with(bytes, "RIFF")) return "a WebP or another RIFF file";
  if (starts_with(bytes, "BM")) return "a BMP";
  if (starts_with(bytes, "II*") || starts_with(bytes, "MM")) return "a TIFF";
  std::string head;
  for (const std::byte byte : bytes.first(std::min<size_t>(bytes.size(), 8))) head += fmt::format("{}{:02x}", head.empty() ? "" : " ", std::to_integer<int>(byte));
  return fmt::format("a file that begins with bytes {}", head);
}

/// One row or column of the result: which run of the source, and the weights of its elements.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

// Weights are integers with 22 bits behind the point: 8 bits of value and 2 of overshoot fill a 32-bit sum.
constexpr int precision = 22;

/// The triangle filter, stretched by the scale when the image shrinks, for results [start, start + count) of `to` over `from` elements. The arithmetic,
/// roundings included, is that of Pillow's resampling, so that the same bytes come out.
std::vector<Taps> triangle_taps(int64_t from, int64_t to, int64_t start, int64_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), stretch = std::max(scale, 1.0), support = stretch;
  const double inverse = 1.0 / stretch;
  std::vector<Taps> taps(static_cast<size_t>(count));
  std::vector<double> weights;
  for (int64_t i = 0; i < count; ++i) {
    const double center = (static_cast<double>(start + i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const int64_t last = std::min(from, static_cast<int64_t>(center + support + 0.5));
    weights.clear();
    double total = 0;
    for (int64_t x = first; x < last; ++x) {
      const double distance = std::fabs((static_cast<double>(x) - center + 0.5) * inverse);
      weights.push_back(distance < 1 ? 1 - distance : 0);
      total += weights.back();
    }
    Taps& result = taps[static_cast<size_t>(i)];
    result.first = first;
    for (const double weight : weights) {
      const double share = total != 0 ? weight / total : weight;
      result.weights.push_back(static_cast<int32_t>(0.5 + share * (1 << precision)));
    }
  }
  return taps;
}

uint8_t rounded(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> precision, 0, 255)); }

/// `step` bytes lie between the neighbours that are mixed.
uint8_t mixed(const uint8_t* from, int64_t step, const Taps& taps) {
  int32_t sum = 1 << (precision - 1);
  for (size_t k = 0; k < taps.weights.size(); ++k) sum += from[static_cast<int64_t>(k) * step] * taps.weights[k];
  return rounded(sum);
}

struct Window {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

struct Run {
  int64_t first = 0, last = 0;
};
/// The source elements that are needed at all.
Run run_of(const std::vector<Taps>& taps) { return {taps.front().first, taps.back().first + static_cast<int64_t>(taps.back().weights.size())}; }

/// Rows `run` of the image with their columns mixed; taps count from column `from`.
Image mix_columns(const Image& image, const std::vector<Taps>& taps, int64_t from, Run run) {
  const auto width = static_cast<int64_t>(taps.size());
  Image result{run.last - run.first, width, std::vector<uint8_t>(static_cast<size_t>((run.last - run.first) * width * 3))};
  uint8_t* to = result.pixels.data();
  for (int64_t y = run.first; y < run.last; ++y)
    for (const Taps& tap : taps)
      for (int64_t c = 0; c < 3; ++c) *to++ = mixed(&image.pixels[static_cast<size_t>((y * image.width + tap.first - from) * 3 + c)], 3, tap);
  return result;
}
/// Columns `run` of the image with their rows mixed; taps count from row `from`.
Image mix_rows(const Image& image, const std::vector<Taps>& taps, int64_t from, Run run) {
  const auto height = static_cast<int64_t>(taps.size());
  Image result{height, run.last - run.first, std::vector<uint8_t>(static_cast<size_t>(height * (run.last - run.first) * 3))};
  uint8_t* to = result.pixels.data();
  for (const Taps& tap : taps)
    for (int64_t b = run.first * 3; b < run.last * 3; ++b)
      *to++ = mixed(&image.pixels[static_cast<size_t>((tap.first - from) * image.width * 3 + b)], image.width * 3, tap);
  return result;
}

/// The window of the image resized to height x width, each of the two passes rounded to bytes. Only what the window needs is computed. Columns go first, but
/// for an image that loses more than twice as much of its height as of its width: Pillow's order (before its version 13 columns went first always).
Image resized_window(const Image& image, int64_t height, int64_t width, const Window& window, const std::string& file) {
  const std::vector<Taps> columns = triangle_taps(image.width, width, window.left, window.width);
  const std::vector<Taps> rows = triangle_taps(image.height, height, window.top, window.height);
  const Run needed_columns = run_of(columns), needed_rows = run_of(rows);
  const bool rows_first = image.height > height && image.height - height > 2 * (image.width - width);
  const int64_t between = rows_first ? (needed_columns.last - needed_columns.first) * window.height : (needed_rows.last - needed_rows.first) * window.width;
  if (between > pixels_limit)
    throw UserError(fmt::format("{}: an image of {} x {} pixels is too long to be resized to {} x {}", file, image.height, image.width, height, width));
  if (rows_first) return mix_columns(mix_rows(image, rows, 0, needed_columns), columns, needed_columns.first, {0, window.height});
  return mix_rows(mix_columns(image, columns, 0, needed_rows), rows, needed_rows.first, {0, window.width});
}

/// Python's round() of half an integer: ties go to the even one.
int64_t half_to_even(int64_t twice) {
  const int64_t below = twice >> 1;
  return (twice & 1) != 0 && (below & 1) != 0 ? below + 1 : below;
}

/// Where a crop of `crop` lies in `size` elements behind `before` of padding.
struct Place {
  int64_t padding = 0, start = 0, count = 0;  // black elements in front; what is taken of the image
};
Place middle(int64_t size, int64_t crop) {
  if (crop <= size) return {0, half_to_even(size - crop), crop};
  return {(crop - size) / 2, 0, size};
}

}  // namespace

void check_image_size(int64_t height, int64_t width, int64_t pixels_max, const std::string& file) {
  if (height < 1 || width < 1) throw UserError(fmt::format("{}: an image of {} x {} pixels, wanted at least one", file, height, width));
  if (height > pixels_limit / width)
    throw UserError(fmt::format("{}: an image of {} x {} pixels, wanted at most {} in all", file, height, width, pixels_limit));
  if (height * width > pixels_max)
    throw UserError(fmt::format("{}: says that it has {} x {} pixels, and is too short to hold more than {}", file, height, width, pixels_max));
}

Image decode_image(std::span<const std::byte> bytes, const std::string& file) {
  if (starts_with(bytes, "\x89PNG\r\n\x1a\n")) return decode_png(bytes, file);
  if (starts_with(bytes, "\xff\xd8\xff")) return decode_jpeg(bytes, file);
  throw UserError(fmt::format("{}: found {}, wanted a JPEG or PNG image", file, kind_of(bytes)));
}

Image read_image(const std::string& path, const std::string& name) { return decode_image(read_file_bytes(path, file_limit), name); }

void check(const ImageTransform& transform) {
  const auto sizes = [](const char* what, const std::vector<int64_t>& values) {
    for (const int64_t value : values)
      if (value < 1 || value > side_limit) throw UserError(fmt::format("images: {} {}, wanted a size from 1 to {}", what, value, side_limit));
  };
  if (transform.crop.size() != 2) throw UserError(fmt::format("images: crop has {} numbers, wanted a height and a width", transform.crop.size()));
  if (transform.resize.size() > 2)
    throw UserError(fmt::format("images: resize has {} numbers, wanted one for the shorter side or two", transform.resize.size()));
  sizes("crop", transform.crop);
  sizes("resize", transform.resize);
  if (transform.crop[0] > pixels_limit / transform.crop[1]) throw UserError("images: the crop is too large");
  if (transform.mean.size() != 3 || transform.deviation.size() != 3)
    throw UserError(
        fmt::format("images: mean has {} and std {} numbers, wanted one for each of 3 channels", transform.mean.size(), transform.deviation.size()));
  for (const float value : transform.deviation)
    if (!(value > 0)) throw UserError(fmt::format("images: std {}, wanted numbers above 0", value));
}

Image resized_crop(const Image& image, const ImageTransform& transform, const std::string& file) {
  int64_t height = image.height, width = image.width;
  if (transform.resize.size() == 2) {
    height = transform.resize[0], width = transform.resize[1];
  } else if (transform.resize.size() == 1) {
    // The longer side keeps the proportion, rounded down. At most 2^20 * 2^28.
    int64_t& shorter = width <= height ? width : height;
    int64_t& longer = width <= height ? height : width;
    longer = transform.resize[0] * longer / shorter;
    shorter = transform.resize[0];
    if (longer > INT32_MAX)
      throw UserError(
          fmt::format("{}: an image of {} x {} pixels cannot be resized to a shorter side of {}", file, image.height, image.width, transform.resize[0]));
  }
  const Place vertical = middle(height, transform.crop[0]), horizontal = middle(width, transform.crop[1]);
  const Image inner = resized_window(image, height, width, {vertical.start, horizontal.start, vertical.count, horizontal.count}, file);
  if (vertical.count == transform.crop[0] && horizontal.count == transform.crop[1]) return inner;
  Image framed{transform.crop[0], transform.crop[1], std::vector<uint8_t>(static_cast<size_t>(transform.crop[0] * transform.crop[1] * 3))};
  for (int64_t y = 0; y < inner.height; ++y)
    std::copy_n(inner.pixels.begin() + y * inner.width * 3, inner.width * 3,
                framed.pixels.begin() + ((y + vertical.padding) * framed.width + horizontal.padding) * 3);
  return framed;
}

void normalise(const Image& image, const ImageTransform& transform, bool mirrored, std::span<float> to) {
  SG_CHECK(to.size() == image.pixels.size());
  for (size_t c = 0; c < 3; ++c) {
    // A channel has 256 values: each is computed once.
    std::array<float, 256> table{};
    for (size_t v = 0; v < table.size(); ++v) table[v] = (static_cast<float>(v) / 255.0f - transform.mean[c]) / transform.deviation[c];
    for (int64_t y = 0; y < image.height; ++y)
      for (int64_t x = 0; x < image.width; ++x) {
        const int64_t source = mirrored ? image.width - 1 - x : x;
        to[c * static_cast<size_t>(image.height * image.width) + static_cast<size_t>(y * image.width + x)] =
            table[image.pixels[static_cast<size_t>((y * image.width + source) * 3) + c]];
      }
  }
}

}  // namespace stepgraph
