// SPDX-License-Identifier: Apache-2.0
// JPEG by libjpeg-turbo, with the settings that PIL leaves it: the slow exact transform and smooth upsampling. Its errors leave by longjmp: functions that
// call it hold nothing that would have to be destroyed.
#include <fmt/core.h>
#include <array>
#include <csetjmp>
#include <cstdio>

// In this order: each needs what is before it.
#include <jpeglib.h>

#include <jerror.h>

#include "stepgraph/base/error.h"
#include "stepgraph/train/data/image.h"

namespace stepgraph {
namespace {

constexpr int scans_limit = 100;                    // encoders write about ten; each costs a walk over the whole image
constexpr long memory_limit = 1536L * 1024 * 1024;  // a progressive image of the largest size is held as coefficients of two bytes

/// libjpeg gives the first member back to the callbacks.
struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> message;
};

[[noreturn]] void leave(j_common_ptr common) {
  auto* errors = reinterpret_cast<JpegErrors*>(common->err);
  common->err->format_message(common, errors->message.data());
  std::longjmp(errors->jump, 1);
}
/// Damage that libjpeg mends is accepted as PIL accepts it, but not a file that ends too early.
void judge_warning(j_common_ptr common, int level) {
  if (level < 0 && common->err->msg_code == JWRN_JPEG_EOF) leave(common);
}
void say_nothing(j_common_ptr) {}
void check_scans(j_common_ptr common) {
  if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number > scans_limit) {
    common->err->msg_code = JERR_BAD_PROGRESSION;
    leave(common);
  }
}

uint8_t product_255(int a, int b) {
  const int t = a * b + 128;
  return static_cast<uint8_t>(((t >> 8) + t) >> 8);
}
/// Inks as Adobe writes them, inverted, over black: PIL's formula.
void mix_inks(const uint8_t* from, uint8_t* to) {
  const int black = 255 - from[3], light = 255 - black;
  for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(light - product_255(255 - from[c], light) > 0 ? light - product_255(255 - from[c], light) : 0);
}

class JpegReader {
 public:
  JpegReader(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {
    state_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = leave;
    errors_.base.emit_message = judge_warning;
    errors_.base.output_message = say_nothing;
    progress_.progress_monitor = check_scans;
    if (!create()) fail();
  }
  ~JpegReader() { jpeg_destroy_decompress(&state_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  Image read() {
    if (!read_header()) fail();
    // A block of 64 pixels takes at least a bit, and of the component with the most blocks there is at least one for each 4 x 64 pixels.
    check_image_size(state_.image_height, state_.image_width, static_cast<int64_t>(bytes_.size()) * 8 * 256, file_);
    if (state_.arith_code) throw UserError(file_ + ": a JPEG image with arithmetic coding, wanted Huffman coding");
    const int components = state_.num_components;
    if (components != 1 && components != 3 && components != 4)
      throw UserError(fmt::format("{}: a JPEG image of {} components, wanted 1, 3 or 4", file_, components));
    if (!start(components)) fail();
    const int64_t height = state_.output_height, width = state_.output_width;
    Image image{height, width, std::vector<uint8_t>(static_cast<size_t>(height * width * 3))};
    std::vector<JSAMPLE> row(static_cast<size_t>(width * state_.output_components));
    for (int64_t y = 0; y < height; ++y) {
      if (!read_row(row.data())) fail();
      uint8_t* to = &image.pixels[static_cast<size_t>(y * width * 3)];
      for (int64_t x = 0; x < width; ++x, to += 3) {
        const JSAMPLE* from = &row[static_cast<size_t>(x * state_.output_components)];
        if (components == 4)
          mix_inks(from, to);
        else
          for (int c = 0; c < 3; ++c) to[c] = from[components == 1 ? 0 : c];
      }
    }
    if (!finish()) fail();
    return image;
  }

 private:
  [[noreturn]] void fail() const { throw UserError(fmt::format("{}: not a sound JPEG image: {}", file_, errors_.message.data())); }

  bool create() {
    if (setjmp(errors_.jump)) return false;
    jpeg_create_decompress(&state_);
    state_.progress = &progress_;
    state_.mem->max_memory_to_use = memory_limit;
    return true;
  }
  bool read_header() {
    if (setjmp(errors_.jump)) return false;
    jpeg_mem_src(&state_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
    jpeg_read_header(&state_, TRUE);
    return true;
  }
  bool start(int components) {
    if (setjmp(errors_.jump)) return false;
    state_.out_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_start_decompress(&state_);
    return true;
  }
  bool read_row(JSAMPLE* row) {
    if (setjmp(errors_.jump)) return false;
    return jpeg_read_scanlines(&state_, &row, 1) == 1;
  }
  bool finish() {
    if (setjmp(errors_.jump)) return false;
    return jpeg_finish_decompress(&state_) != FALSE;
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  JpegErrors errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct state_{};
};

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, const std::string& file) { return JpegReader(bytes, file).read(); }

}  // namespace stepgraph
