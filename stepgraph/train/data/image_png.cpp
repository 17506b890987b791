// SPDX-License-Identifier: Apache-2.0
// PNG by libpng. Its errors leave by longjmp: functions that call it hold nothing that would have to be destroyed.
#include <fmt/core.h>
#include <png.h>
#include <array>
#include <csetjmp>
#include <cstring>
#include "stepgraph/base/error.h"
#include "stepgraph/train/data/image.h"

namespace stepgraph {
namespace {

/// What the callbacks see.
struct PngSource {
  const std::byte* at = nullptr;
  size_t left = 0;
  std::array<char, 160> message{};
};

void give_bytes(png_structp png, png_bytep to, size_t count) {
  auto& source = *static_cast<PngSource*>(png_get_io_ptr(png));
  if (count > source.left) png_error(png, "the file ends too early");
  std::memcpy(to, source.at, count);
  source.at += count;
  source.left -= count;
}
void keep_error(png_structp png, png_const_charp message) {
  auto& source = *static_cast<PngSource*>(png_get_error_ptr(png));
  std::strncpy(source.message.data(), message, source.message.size() - 1);
  png_longjmp(png, 1);
}
void ignore_warning(png_structp, png_const_charp) {}

class PngReader {
 public:
  PngReader(std::span<const std::byte> bytes, const std::string& file) : file_(file), file_bytes_(static_cast<int64_t>(bytes.size())) {
    source_.at = bytes.data();
    source_.left = bytes.size();
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source_, keep_error, ignore_warning);
    if (png_) info_ = png_create_info_struct(png_);
    if (!info_) throw SystemError("cannot start libpng: out of memory");
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  Image read() {
    if (!read_header()) fail();
    // Deflate writes at least a bit for each match of 258 bytes.
    const int64_t bits = static_cast<int64_t>(depth_) * samples();
    check_image_size(height_, width_, (file_bytes_ * 258 * 8 + 1024) * 8 / bits, file_);
    if (!prepare()) fail();
    const size_t pixel_bytes = channels_ * (depth_ == 16 ? 2 : 1);
    if (row_bytes_ != static_cast<size_t>(width_) * pixel_bytes) throw InternalError("libpng gives rows of an unexpected size");
    std::vector<png_byte> raw(static_cast<size_t>(height_) * row_bytes_);
    std::vector<png_bytep> rows;
    for (int64_t y = 0; y < height_; ++y) rows.push_back(raw.data() + static_cast<size_t>(y) * row_bytes_);
    if (!read_rows(rows.data())) fail();
    if (color_ == PNG_COLOR_TYPE_RGB || color_ == PNG_COLOR_TYPE_RGB_ALPHA) return {height_, width_, std::move(raw)};
    Image image{height_, width_, std::vector<uint8_t>(static_cast<size_t>(height_ * width_ * 3))};
    for (size_t i = 0; i < static_cast<size_t>(height_ * width_); ++i) write_pixel(&raw[i * pixel_bytes], &image.pixels[i * 3]);
    return image;
  }

 private:
  [[noreturn]] void fail() const { throw UserError(fmt::format("{}: not a sound PNG image: {}", file_, source_.message.data())); }
  int64_t samples() const { return color_ == PNG_COLOR_TYPE_RGB ? 3 : color_ == PNG_COLOR_TYPE_RGB_ALPHA ? 4 : color_ == PNG_COLOR_TYPE_GRAY_ALPHA ? 2 : 1; }

  bool read_header() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_read_fn(png_, &source_, give_bytes);
    // Text and profiles are of no use here: they must not become memory.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
    png_set_chunk_malloc_max(png_, 1 << 20);
    png_set_chunk_cache_max(png_, 64);
    png_set_user_limits(png_, 0x7fffffff, 0x7fffffff);
    png_read_info(png_, info_);
    width_ = png_get_image_width(png_, info_);
    height_ = png_get_image_height(png_, info_);
    depth_ = png_get_bit_depth(png_, info_);
    color_ = png_get_color_type(png_, info_);
    png_get_PLTE(png_, info_, &palette_, &colors_);
    return true;
  }
  /// To bytes: alpha and the lower half of 16 bits go, except for gray alone, which is clipped below.
  bool prepare() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_packing(png_);
    if (depth_ == 16 && color_ != PNG_COLOR_TYPE_GRAY) png_set_strip_16(png_);
    if ((color_ & PNG_COLOR_MASK_ALPHA) != 0) png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    row_bytes_ = png_get_rowbytes(png_, info_);
    channels_ = png_get_channels(png_, info_);
    gray_depth_ = depth_;
    depth_ = png_get_bit_depth(png_, info_);
    return true;
  }
  bool read_rows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_image(png_, rows);
    return true;
  }

  void write_pixel(const png_byte* from, uint8_t* to) const {
    if (color_ == PNG_COLOR_TYPE_PALETTE) {
      if (from[0] >= colors_) return;  // black, as it is
      to[0] = palette_[from[0]].red, to[1] = palette_[from[0]].green, to[2] = palette_[from[0]].blue;
      return;
    }
    int gray = from[0];
    if (depth_ == 16) gray = from[0] != 0 ? 255 : from[1];
    if (gray_depth_ < 8) gray = gray * 255 / ((1 << gray_depth_) - 1);
    to[0] = to[1] = to[2] = static_cast<uint8_t>(gray);
  }

  const std::string& file_;
  int64_t file_bytes_;
  PngSource source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int64_t width_ = 0, height_ = 0;
  int depth_ = 0, gray_depth_ = 0, color_ = 0, colors_ = 0;
  size_t channels_ = 0, row_bytes_ = 0;
  png_colorp palette_ = nullptr;
};

}  // namespace

Image decode_png(std::span<const std::byte> bytes, const std::string& file) { return PngReader(bytes, file).read(); }

}  // namespace stepgraph
