// SPDX-License-Identifier: Apache-2.0
// Files made into training and test sets in one call.
#pragma once
#include <cstdint>
#include <string>
#include "stepgraph/train/data/dataset.h"
#include "stepgraph/train/data/image.h"

namespace stepgraph {

struct CsvClassification {
  Sizes sample;            ///< of one input, e.g. {1, 8, 8}; empty: {columns - 1}
  double scale = 1.0;      ///< inputs are multiplied by it
  int64_t test_every = 5;  ///< row i is a test row when i % test_every == test_rest
  int64_t test_rest = 0;
  std::string input_name = "image", label_name = "label";
  CsvOptions csv;
};
/// Each row: the inputs, then an integer label in the last column. Fields: input f32 [sample...], label i64 [].
Splits csv_classification(const std::string& path, const CsvClassification& options);
/// Rows of 64 pixels of 0 to 16 and a digit: image f32 [1, 8, 8] in 0 to 1, label i64.
Splits digits(const std::string& path);

struct ImageFolderOptions {
  ImageTransform transform;
  bool flip = false;       ///< in training every other image, by chance, is mirrored
  int64_t test_every = 5;  ///< without a test folder: file i is a test file when i % test_every == test_rest
  int64_t test_rest = 0;
  std::string input_name = "image", label_name = "label";
};
/// Images in folders as torchvision's ImageFolder reads them: a folder a class, labels by sorted name, files at any depth below in its order. Of a folder that
/// holds `train`, and otherwise only `val` and `test`, these are the sets (`val` before `test`); or test_path names the test set. Files are read when they are
/// asked for. Fields: input f32 [3, height, width], label i64 []. UserError for no classes, a class without images, images of other formats, links that lead
/// back to a folder above them.
Splits image_folder(const std::string& path, const std::string& test_path, const ImageFolderOptions& options);

struct TextOptions {
  int64_t context = 64;
  int64_t stride = 0;        ///< of the training windows; 0: context
  int64_t held_out = 10;     ///< the last 1/held_out of the tokens is the test set
  int64_t vocabulary = 256;  ///< larger tokens are refused
  TokenFormat format = TokenFormat::Bytes;
};
/// Windows over a text or token file: tokens i32 [context], targets i32 [context].
Splits text_windows(const std::string& path, const TextOptions& options);

}  // namespace stepgraph
