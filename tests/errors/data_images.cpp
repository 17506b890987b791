// SPDX-License-Identifier: Apache-2.0
// Damaged and hostile images: one UserError that names the file, or the image; never a crash, nor memory beyond what the file can hold.
#include <gtest/gtest.h>
#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/train/data/image.h"
#include "tests/support/places.h"
#include "tests/support/zip_bytes.h"

namespace stepgraph {
namespace data_images_test {

using namespace testing;

std::string sample(const std::string& name) { return read_file(std::string(testing::source_root()) + "/tests/images/set/" + name); }

std::string error_of(const std::string& bytes) {
  try {
    decode_image(to_bytes(bytes), "test.img");
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("test.img: ")) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_FALSE(text.ends_with('.')) << text;
    return text;
  }
  return "no error";
}
void expect_error(const std::string& bytes, const std::string& part) {
  const std::string text = error_of(bytes);
  EXPECT_NE(text.find(part), std::string::npos) << text << ", wanted " << part;
}

std::string big(uint64_t value, int count) {
  std::string out;
  for (int i = count - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}
std::string chunk(const std::string& kind, const std::string& data) { return big(data.size(), 4) + kind + data + big(crc32_of(kind + data), 4); }
const std::string png_magic = "\x89PNG\r\n\x1a\n";
std::string png_header(uint64_t width, uint64_t height, int depth, int color) {
  return png_magic + chunk("IHDR", big(width, 4) + big(height, 4) + static_cast<char>(depth) + static_cast<char>(color) + std::string(3, '\0'));
}

TEST(Images, WhatIsNone) {
  expect_error("", "found an empty file, wanted a JPEG or PNG image");
  expect_error("GIF89a", "found a GIF");
  expect_error("BM\1\2", "found a BMP");
  expect_error("RIFF....WEBP", "found a WebP");
  expect_error("II*", "found a TIFF");
  expect_error("\x89PNG", "found a file that begins with bytes 89 50 4e 47, wanted a JPEG or PNG image");
  expect_error(png_magic, "the file ends too early");
  expect_error("\xff\xd8\xff", "not a sound JPEG image");
}

TEST(Images, SizesThatTheFileCannotHold) {
  const std::string end = chunk("IDAT", "") + chunk("IEND", "");
  expect_error(png_header(13'000, 13'000, 8, 2) + end, "says that it has 13000 x 13000 pixels, and is too short");
  expect_error(png_header(100'000, 100'000, 1, 0) + end, "wanted at most 178956970 in all");
  expect_error(png_header(0x7fffffff, 0x7fffffff, 16, 6) + end, "wanted at most");
  expect_error(png_header(0, 5, 8, 2) + end, "not a sound PNG image");
  expect_error(png_header(5, 5, 3, 2) + end, "not a sound PNG image");
  std::string jpeg = sample("jpeg/baseline.jpg");
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  expect_error(jpeg, "wanted at most 178956970");
  jpeg.replace(frame + 5, 4, "\x2f\xff\x2f\xff");
  expect_error(jpeg, "and is too short to hold more than");
}

TEST(Images, KindsThatAreNotRead) {
  std::string jpeg = sample("jpeg/baseline.jpg");
  const size_t frame = jpeg.find("\xff\xc0");
  std::string deep = jpeg;
  deep[frame + 4] = 12;
  expect_error(deep, "not a sound JPEG image");
  std::string arithmetic = jpeg;
  arithmetic[frame + 1] = '\xc9';
  expect_error(arithmetic, "arithmetic coding, wanted Huffman coding");
  std::string lossless = jpeg;
  lossless[frame + 1] = '\xc3';
  expect_error(lossless, "not a sound JPEG image");
}

TEST(Images, AnyTruncation) {
  for (const char* name : {"png/gray4.png", "png/rgb_interlaced.png", "png/deeper/palette.png", "jpeg/baseline.jpg", "jpeg/gray.jpg", "jpeg/inks.jpg"}) {
    const std::string whole = sample(name);
    const Image image = decode_image(to_bytes(whole), "whole");
    for (size_t size = 0; size < whole.size(); ++size) {
      if (error_of(whole.substr(0, size)) != "no error") continue;
      // A PNG without its last chunk has all its pixels.
      EXPECT_GE(size + 20, whole.size()) << name << " of " << size << " bytes";
      EXPECT_EQ(decode_image(to_bytes(whole.substr(0, size)), "part"), image);
    }
  }
}

TEST(Images, AnyFlippedBit) {
  for (const char* name : {"png/gray1.png", "png/deeper/palette.png", "png/gray16.png", "jpeg/gray.jpg", "jpeg/progressive.JPEG", "jpeg/inks.jpg"}) {
    const std::string whole = sample(name);
    int refused = 0;
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      refused += error_of(damaged) != "no error";
    }
    // A PNG has checksums, a JPEG has not.
    if (std::string(name).ends_with(".png"))
      EXPECT_GT(refused, static_cast<int>(whole.size()) * 8 / 10) << name;
    else
      EXPECT_GT(refused, 20) << name;
  }
}

/// Text of any length is of no use here.
TEST(Images, TextIsNotKept) {
  const std::string sound = sample("png/rgb16.png");
  const size_t first = sound.find("IDAT") - 4;
  const std::string bombed = sound.substr(0, first) + chunk("zTXt", "key" + std::string(2, '\0') + std::string(1 << 16, '\x55')) + sound.substr(first);
  EXPECT_EQ(decode_image(to_bytes(bombed), "bombed"), decode_image(to_bytes(sound), "sound"));
  // Nor do ten thousand chunks of text become memory.
  std::string many = sound.substr(0, first);
  for (int i = 0; i < 10'000; ++i) many += chunk("tEXt", "key" + std::string(1, '\0') + "value");
  EXPECT_EQ(decode_image(to_bytes(many + sound.substr(first)), "many"), decode_image(to_bytes(sound), "sound"));
}

TEST(Images, ManyScansOfOneJpeg) {
  const std::string progressive = sample("jpeg/progressive.JPEG");
  const size_t scan = progressive.find("\xff\xda");
  const size_t next = progressive.find("\xff\xc4", scan);  // tables of the second scan
  ASSERT_NE(next, std::string::npos);
  std::string many = progressive.substr(0, next);
  const std::string once = progressive.substr(scan, next - scan);
  for (int i = 0; i < 600; ++i) many += once;
  expect_error(many + progressive.substr(next), "not a sound JPEG image");
}

}  // namespace data_images_test
}  // namespace stepgraph
