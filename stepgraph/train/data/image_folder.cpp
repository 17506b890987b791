// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/stat.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include "stepgraph/base/disk.h"
#include "stepgraph/base/error.h"
#include "stepgraph/base/printable.h"
#include "stepgraph/tensor/philox.h"
#include "stepgraph/train/data/presets.h"

namespace stepgraph {
namespace {

struct stat status_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) throw UserError(fmt::format("cannot read {}: {}", printable(path), std::strerror(errno)));
  return status;
}
bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return lower.ends_with(ending); });
}
bool is_image(std::string_view name) { return ends_with_any(name, {".jpg", ".jpeg", ".png"}); }
/// Formats that torchvision would take: leaving them out would make another dataset of it.
bool is_other_image(std::string_view name) { return ends_with_any(name, {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}); }

/// The images below one class, folder by folder in the order of their whole paths, in each by name.
class ClassFiles {
 public:
  explicit ClassFiles(const Disk& disk) : disk_(disk) {}

  std::vector<std::string> below(const std::string& folder) {
    walk(folder);
    std::sort(folders_.begin(), folders_.end());
    std::vector<std::string> files;
    for (const auto& [path, names] : folders_)
      for (const std::string& name : names) files.push_back(path + "/" + name);
    return files;
  }

 private:
  struct Identity {
    dev_t device;
    ino_t node;
  };

  void walk(const std::string& folder) {
    const struct stat status = status_of(folder);
    for (const Identity& above : above_)
      if (above.device == status.st_dev && above.node == status.st_ino) throw UserError(fmt::format("{}: leads back to a folder above it", printable(folder)));
    above_.push_back({status.st_dev, status.st_ino});
    std::vector<std::string> names;
    for (const std::string& name : disk_.list(folder)) {
      const std::string path = folder + "/" + name;
      if (is_folder(path)) {
        walk(path);
      } else if (is_other_image(name)) {
        throw UserError(fmt::format("{}: only JPEG and PNG images are read; convert it or take it out", printable(path)));
      } else if (is_image(name)) {
        names.push_back(name);
      }
    }
    folders_.emplace_back(folder, std::move(names));
    above_.pop_back();
  }

  const Disk& disk_;
  std::vector<Identity> above_;
  std::vector<std::pair<std::string, std::vector<std::string>>> folders_;
};

struct Listing {
  std::vector<std::string> files;
  std::vector<int64_t> labels;
};

std::vector<std::string> folders_in(const Disk& disk, const std::string& path) {
  std::vector<std::string> names;
  for (const std::string& name : disk.list(path))
    if (is_folder(path + "/" + name)) names.push_back(name);
  return names;
}

std::vector<std::string> classes_in(const Disk& disk, const std::string& path) {
  std::vector<std::string> classes = folders_in(disk, path);
  if (classes.empty()) throw UserError(fmt::format("{}: has no folders, wanted one for each class", printable(path)));
  return classes;
}

Listing list_images(const Disk& disk, const std::string& path, const std::vector<std::string>& classes) {
  Listing listing;
  for (const std::string& name : classes_in(disk, path)) {
    const auto place = std::find(classes.begin(), classes.end(), name);
    if (place == classes.end()) throw UserError(fmt::format("{}: class {} is not one of the training set's", printable(path), quoted_name(name)));
    const std::vector<std::string> files = ClassFiles(disk).below(path + "/" + name);
    if (files.empty()) throw UserError(fmt::format("{}: has no .jpg, .jpeg or .png file", printable(path + "/" + name)));
    listing.files.insert(listing.files.end(), files.begin(), files.end());
    listing.labels.resize(listing.files.size(), place - classes.begin());
  }
  return listing;
}

class ImageDataset final : public Dataset {
 public:
  ImageDataset(Listing listing, const ImageFolderOptions& options) : listing_(std::move(listing)), transform_(options.transform), flip_(options.flip) {
    fields_ = {{options.input_name, DType::F32, {3, transform_.crop[0], transform_.crop[1]}}, {options.label_name, DType::I64, {}}};
  }
  int64_t size() const override { return static_cast<int64_t>(listing_.files.size()); }
  const std::vector<Field>& fields() const override { return fields_; }
  NamedArrays gather(std::span<const int64_t> ids) const override {
    return read(ids, [](int64_t) { return false; });
  }
  NamedArrays gather_drawn(std::span<const int64_t> ids, const Draw& draw) const override {
    return read(ids, [&](int64_t id) { return flip_ && is_mirrored(id, draw); });
  }
  std::optional<ValueRange> range(size_t field) const override {
    if (fields_[field].dtype != DType::I64 || listing_.labels.empty()) return std::nullopt;
    return ValueRange{0, *std::max_element(listing_.labels.begin(), listing_.labels.end())};
  }

  void hash_content(Hasher& hasher, std::span<const int64_t> ids) const override {
    const auto numbers = [&](const auto& values) {
      for (const auto value : values) hasher.real(static_cast<double>(value));
    };
    numbers(transform_.crop), numbers(transform_.resize), numbers(transform_.mean), numbers(transform_.deviation);
    hasher.number(flip_);
    // Large folders are told apart by names and sizes: to read them all would take as long as an epoch.
    const std::unique_ptr<Disk> disk = posix_disk();
    int64_t all = 0;
    std::vector<int64_t> sizes;
    for (const int64_t id : ids) all += sizes.emplace_back(disk->file_size(listing_.files[static_cast<size_t>(id)]));
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string& file = listing_.files[static_cast<size_t>(ids[i])];
      hasher.text(file.substr(file.find_last_of('/') + 1)).number(sizes[i]).number(listing_.labels[static_cast<size_t>(ids[i])]);
      if (all <= read_whole_bytes_max) hasher.bytes(disk->read(file));
    }
  }

 private:
  static constexpr int64_t read_whole_bytes_max = int64_t{1} << 30;
  /// The counter is (sample, epoch), the key the seed; the constant keeps the bits apart from those of the order and of steps.
  static bool is_mirrored(int64_t id, const Draw& draw) {
    const auto place = static_cast<uint64_t>(id), age = static_cast<uint64_t>(draw.epoch);
    const auto words =
        philox4x32({static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), static_cast<uint32_t>(age), static_cast<uint32_t>(age >> 32)},
                   {static_cast<uint32_t>(draw.seed) ^ 0x666c6970u, static_cast<uint32_t>(draw.seed >> 32)});
    return words[0] >> 31 != 0;
  }
  template <class Mirrored>
  NamedArrays read(std::span<const int64_t> ids, const Mirrored& mirrored) const {
    const auto rows = static_cast<int64_t>(ids.size());
    Literal images = Literal::uninitialised(DType::F32, {rows, 3, transform_.crop[0], transform_.crop[1]});
    Literal labels(DType::I64, {rows});
    const auto to = images.as_mutable<float>();
    const size_t sample = ids.empty() ? 0 : to.size() / ids.size();
    for (size_t i = 0; i < ids.size(); ++i) {
      SG_CHECK(ids[i] >= 0 && ids[i] < size(), fmt::format("sample {} of {}", ids[i], size()));
      const std::string& file = listing_.files[static_cast<size_t>(ids[i])];
      const std::string name = printable(file);
      normalise(resized_crop(read_image(file, name), transform_, name), transform_, mirrored(ids[i]), to.subspan(i * sample, sample));
      labels.set_integer(static_cast<int64_t>(i), listing_.labels[static_cast<size_t>(ids[i])]);
    }
    NamedArrays arrays;
    arrays.emplace_back(fields_[0].name, std::move(images));
    arrays.emplace_back(fields_[1].name, std::move(labels));
    return arrays;
  }

  Listing listing_;
  ImageTransform transform_;
  bool flip_;
  std::vector<Field> fields_;
};

}  // namespace

Splits image_folder(const std::string& path, const std::string& test_path, const ImageFolderOptions& options) {
  check(options.transform);
  if (!is_folder(path)) throw UserError(fmt::format("{}: is no folder, wanted one with a folder for each class", printable(path)));
  const std::unique_ptr<Disk> disk = posix_disk();
  std::string training = path, test = test_path;
  const std::vector<std::string> folders = folders_in(*disk, path);
  const auto has = [&](const char* name) { return std::find(folders.begin(), folders.end(), name) != folders.end(); };
  const auto known = [](const std::string& name) { return name == "train" || name == "val" || name == "test"; };
  if (has("train") && std::all_of(folders.begin(), folders.end(), known)) {
    training = path + "/train";
    if (test.empty() && (has("val") || has("test"))) test = path + (has("val") ? "/val" : "/test");
  }
  const std::vector<std::string> classes = classes_in(*disk, training);
  const auto dataset = std::make_shared<ImageDataset>(list_images(*disk, training, classes), options);
  if (test.empty()) return split_every(dataset, options.test_every, options.test_rest);
  if (!is_folder(test)) throw UserError(fmt::format("{}: is no folder, wanted one with a folder for each class", printable(test)));
  return {dataset, std::make_shared<ImageDataset>(list_images(*disk, test, classes), options)};
}

}  // namespace stepgraph
