// SPDX-License-Identifier: Apache-2.0
// Images decoded, resized and normalised against what torchvision made of the same files (tests/images, by scripts/record_images.py), and image folders.
#include <gtest/gtest.h>
#include <unistd.h>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include "stepgraph/base/error.h"
#include "stepgraph/train/data/loader.h"
#include "stepgraph/train/data/presets.h"
#include "tests/support/places.h"

namespace stepgraph {
namespace data_images_test {

namespace fs = std::filesystem;

const std::string source = std::string(testing::source_root()) + "/tests/images";

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

const Safetensors& expected() {
  static const Safetensors recorded = read_safetensors(source + "/expected.safetensors");
  return recorded;
}

ImageTransform transform_of(const std::string& name) {
  ImageTransform transform;
  if (name == "smaller") transform.resize = {20}, transform.crop = {12, 12};
  if (name == "larger") transform.resize = {61}, transform.crop = {16, 12};
  if (name == "padded") transform.resize = {15, 37}, transform.crop = {21, 10};
  if (name == "flat") transform.resize = {9, 20}, transform.crop = {9, 20};
  if (name == "as_it_is") transform.resize = {}, transform.crop = {6, 51};
  return transform;
}

class RecordedImages : public ::testing::TestWithParam<std::string> {};
TEST_P(RecordedImages, BytesAreTorchvisions) {
  const Literal& wanted = *find_array(expected().arrays, GetParam());
  const std::vector<std::string> files = lines(expected().metadata.at("files"));
  ASSERT_EQ(wanted.sizes()[0], static_cast<int64_t>(files.size()));
  const ImageTransform transform = transform_of(GetParam());
  const int64_t count = transform.crop[0] * transform.crop[1] * 3;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string path = source + "/set/" + files[i];
    const Image found = resized_crop(read_image(path, path), transform, path);
    ASSERT_EQ(static_cast<int64_t>(found.pixels.size()), count);
    int64_t worst = 0;
    for (int64_t p = 0; p < count; ++p)
      worst = std::max(worst, std::abs(found.pixels[static_cast<size_t>(p)] - wanted.integer_at(static_cast<int64_t>(i) * count + p)));
    EXPECT_EQ(worst, 0) << files[i];
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, RecordedImages, ::testing::Values("smaller", "larger", "padded", "flat", "as_it_is"),
                         [](const auto& info) { return info.param; });

ImageFolderOptions small_options() {
  ImageFolderOptions options;
  options.transform = transform_of("smaller");
  options.test_every = 1000;
  options.test_rest = 999;
  return options;
}

std::vector<int64_t> all_ids(const Dataset& dataset) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < dataset.size(); ++i) ids.push_back(i);
  return ids;
}

TEST(ImageFolder, OrderLabelsAndTensorsAreTorchvisions) {
  const DatasetPointer whole = image_folder(source + "/set", "", small_options()).train;
  const NamedArrays arrays = whole->gather(all_ids(*whole));
  EXPECT_EQ(arrays[0].first, "image");
  EXPECT_EQ(arrays[1].second, *find_array(expected().arrays, "labels"));
  const Literal& wanted = *find_array(expected().arrays, "normalised");
  ASSERT_EQ(arrays[0].second.sizes(), wanted.sizes());
  for (int64_t i = 0; i < wanted.count(); ++i) ASSERT_EQ(arrays[0].second.at(i), wanted.at(i)) << i;
}

/// A folder that goes with all that is in it.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "stepgraph-images-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("test: cannot make a folder");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  void image(const std::string& name, const std::string& from = "png/gray1.png") const {
    fs::create_directories((path / name).parent_path());
    fs::copy_file(source + "/set/" + from, path / name);
  }
  void text(const std::string& name, const std::string& content) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary) << content;
  }
  fs::path path;
};

std::string error_of(const Folder& folder, const std::string& test = "") {
  try {
    image_folder(folder.path.string(), test, small_options());
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

void expect_part(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; }

std::vector<int64_t> labels_of(const Dataset& dataset) {
  const NamedArrays arrays = dataset.gather(all_ids(dataset));
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < dataset.size(); ++i) labels.push_back(arrays[1].second.integer_at(i));
  return labels;
}

TEST(ImageFolder, TrainValAndTestFolders) {
  Folder folder;
  for (const char* name : {"train/b/1.png", "train/a/1.png", "train/a/deep/er/2.JPG", "train/c/1.jpeg", "test/a/1.png"}) folder.image(name);
  folder.text("train/a/notes.txt", "no image");
  folder.text("list.csv", "nothing");
  Splits splits = image_folder(folder.path.string(), "", small_options());
  EXPECT_EQ(labels_of(*splits.train), (std::vector<int64_t>{0, 0, 1, 2}));
  EXPECT_EQ(labels_of(*splits.test), (std::vector<int64_t>{0}));
  folder.image("val/c/1.png");  // a class keeps its label when others are not there
  splits = image_folder(folder.path.string(), "", small_options());
  EXPECT_EQ(labels_of(*splits.test), (std::vector<int64_t>{2}));
  splits = image_folder((folder.path / "train").string(), (folder.path / "test").string(), small_options());
  EXPECT_EQ(labels_of(*splits.test), (std::vector<int64_t>{0}));
  // Beside another class, "train" is one: trains.
  folder.image("bus/1.png");
  EXPECT_EQ(image_folder(folder.path.string(), "", small_options()).train->size(), 7);
}

TEST(ImageFolder, HeldOutByTheRule) {
  Folder folder;
  for (int i = 0; i < 10; ++i) folder.image((i < 5 ? "a/" : "b/") + std::to_string(i) + ".png");
  ImageFolderOptions options = small_options();
  options.test_every = 5;
  options.test_rest = 1;
  const Splits splits = image_folder(folder.path.string(), "", options);
  EXPECT_EQ(labels_of(*splits.test), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(splits.train->size(), 8);
}

TEST(ImageFolder, WhatIsNoImageFolderIsRefused) {
  Folder folder;
  expect_part(error_of(folder), "has no folders, wanted one for each class");
  folder.text("a/notes.txt", "no image");
  expect_part(error_of(folder), "/a: has no .jpg, .jpeg or .png file");
  folder.image("a/1.png");
  EXPECT_EQ(error_of(folder), "no error");  // one class
  folder.text("a/2.webp", "");
  expect_part(error_of(folder), "/a/2.webp: only JPEG and PNG images are read");
  fs::remove(folder.path / "a/2.webp");
  fs::create_directory_symlink("..", folder.path / "a" / "up");
  expect_part(error_of(folder), "/a/up");
  fs::remove(folder.path / "a/up");
  fs::create_directory_symlink(".", folder.path / "a" / "new\nline");
  expect_part(error_of(folder), "/a/new\\x0aline: leads back to a folder above it");
  fs::remove(folder.path / "a/new\nline");
  fs::create_directory_symlink("nowhere", folder.path / "a" / "gone");
  EXPECT_EQ(error_of(folder), "no error");
  Folder other;
  other.image("b/1.png");
  expect_part(error_of(folder, other.path.string()), "class 'b' is not one of the training set's");
  expect_part(error_of(folder, "/no/such"), "/no/such: is no folder");
}

TEST(ImageFolder, AFileThatIsDamagedIsNamedWhenItIsRead) {
  Folder folder;
  folder.image("a/1.png");
  folder.text("a/2.jpg", "GIF89a");
  const DatasetPointer whole = image_folder(folder.path.string(), "", small_options()).train;
  LoaderOptions options;
  options.batch = 2;
  Loader loader(whole, options);
  try {
    loader.next();
    ADD_FAILURE() << "was accepted";
  } catch (const UserError& error) {
    expect_part(error.what(), "/a/2.jpg: found a GIF, wanted a JPEG or PNG image");
  }
}

TEST(ImageFolder, MirrorsBySeedAndEpochInTrainingAlone) {
  ImageFolderOptions options = small_options();
  options.flip = true;
  const DatasetPointer whole = image_folder(source + "/set", "", options).train;
  const std::vector<int64_t> ids = all_ids(*whole);
  const Literal plain = whole->gather(ids)[0].second;
  const int64_t height = 12, width = 12, sample = 3 * height * width;
  std::set<std::vector<bool>> patterns;
  int64_t mirrored = 0, all = 0;
  for (const Draw draw : {Draw{0, 0}, Draw{0, 1}, Draw{1, 0}, Draw{1, 1}}) {
    const Literal drawn = whole->gather_drawn(ids, draw)[0].second;
    EXPECT_EQ(drawn, whole->gather_drawn(ids, draw)[0].second);
    std::vector<bool> pattern;
    for (const int64_t id : ids) {
      bool same = true, turned = true;
      for (int64_t e = 0; e < sample; ++e) {
        const int64_t at = id * sample + e, opposite = at - e % width + (width - 1 - e % width);
        same = same && drawn.at(at) == plain.at(at);
        turned = turned && drawn.at(at) == plain.at(opposite);
      }
      EXPECT_TRUE(same || turned) << id;
      pattern.push_back(turned && !same);
      mirrored += pattern.back();
      ++all;
    }
    patterns.insert(pattern);
  }
  EXPECT_EQ(patterns.size(), 4U);
  EXPECT_GT(mirrored, all / 4);
  EXPECT_LT(mirrored, all * 3 / 4);
  // Through a subset and a loader it is still the sample of the whole that decides.
  const DatasetPointer tail = subset(whole, {5, 6, 7});
  const Literal drawn = whole->gather_drawn(std::vector<int64_t>{6}, {3, 2})[0].second;
  EXPECT_EQ(tail->gather_drawn(std::vector<int64_t>{1}, {3, 2})[0].second, drawn);
}

TEST(ImageTransform, NumbersOutOfRangeAreRefused) {
  const auto error_for = [](const std::function<void(ImageTransform&)>& change) -> std::string {
    ImageTransform transform;
    change(transform);
    try {
      check(transform);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_for([](ImageTransform&) {}), "no error");
  expect_part(error_for([](ImageTransform& t) { t.resize = {1, 2, 3}; }), "resize has 3 numbers");
  expect_part(error_for([](ImageTransform& t) { t.crop = {5}; }), "crop has 1 numbers");
  expect_part(error_for([](ImageTransform& t) { t.crop = {0, 5}; }), "crop 0, wanted a size from 1");
  expect_part(error_for([](ImageTransform& t) { t.crop = {1 << 20, 1 << 20}; }), "the crop is too large");
  expect_part(error_for([](ImageTransform& t) { t.mean = {1}; }), "mean has 1 and std 3 numbers");
  expect_part(error_for([](ImageTransform& t) { t.deviation[1] = 0; }), "std 0, wanted numbers above 0");
  // One pixel in height, a million wide: neither resized to a shorter side of many nor held in between.
  const Image thin{1, 1'000'000, std::vector<uint8_t>(3'000'000)};
  ImageTransform transform;
  transform.resize = {1 << 20};
  EXPECT_THROW(resized_crop(thin, transform, "thin.png"), UserError);
  transform.resize = {8, 8};
  transform.crop = {8, 8};
  EXPECT_EQ(resized_crop(thin, transform, "thin.png").pixels, std::vector<uint8_t>(8 * 8 * 3));
}

}  // namespace data_images_test
}  // namespace stepgraph
