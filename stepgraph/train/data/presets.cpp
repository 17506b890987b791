// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/data/presets.h"
#include <fmt/core.h>
#include <cmath>
#include "stepgraph/base/error.h"

namespace stepgraph {

namespace {

/// Rows of inputs and a label, as the arrays of a dataset.
class Samples final : public CsvRows {
 public:
  Samples(const std::string& path, const CsvClassification& options) : path_(path), options_(options) {}

  void begin(int64_t rows, int64_t columns) override {
    if (columns < 2) throw UserError(fmt::format("{}: {} column, wanted inputs and a label", path_, columns));
    const int64_t inputs = columns - 1;
    Sizes sizes{rows};
    if (options_.sample.empty()) {
      sizes.push_back(inputs);
    } else {
      if (element_count(options_.sample) != inputs)
        throw UserError(fmt::format("{}: {} input columns, wanted {} for samples of {}", path_, inputs, element_count(options_.sample),
                                    type_text(DType::F32, options_.sample)));
      sizes.insert(sizes.end(), options_.sample.begin(), options_.sample.end());
    }
    inputs_ = Literal::uninitialised(DType::F32, sizes);
    labels_ = Literal::uninitialised(DType::I64, {rows});
    input_ = inputs_.as_mutable<float>().data();
    label_ = labels_.as_mutable<int64_t>().data();
  }

  void row(std::span<const double> values, int64_t line) override {
    const auto fail = [&](size_t column, const std::string& what) { throw UserError(fmt::format("{}: row {}, column {}: {}", path_, line, column + 1, what)); };
    for (size_t c = 0; c + 1 < values.size(); ++c) {
      const auto value = static_cast<float>(values[c] * options_.scale);
      if (!std::isfinite(values[c])) fail(c, fmt::format("{} is not finite, wanted a number to train with", values[c]));
      if (!std::isfinite(value)) fail(c, fmt::format("{} does not fit f32", values[c] * options_.scale));
      *input_++ = value;
    }
    const double label = values.back();
    if (!(std::abs(label) < 0x1p53) || label != std::trunc(label)) fail(values.size() - 1, fmt::format("found {}, wanted an integer", label));
    if (label < 0) throw UserError(fmt::format("{}: row {}: label {} is negative", path_, line, label));
    *label_++ = static_cast<int64_t>(label);
  }

  NamedArrays arrays() {
    NamedArrays arrays;
    arrays.emplace_back(options_.input_name, std::move(inputs_));
    arrays.emplace_back(options_.label_name, std::move(labels_));
    return arrays;
  }

 private:
  const std::string& path_;
  const CsvClassification& options_;
  Literal inputs_, labels_;
  float* input_ = nullptr;
  int64_t* label_ = nullptr;
};

}  // namespace

Splits csv_classification(const std::string& path, const CsvClassification& options) {
  Samples samples(path, options);
  read_csv(path, samples, options.csv);
  return split_every(array_dataset(samples.arrays(), path), options.test_every, options.test_rest);
}

Splits digits(const std::string& path) {
  CsvClassification options;
  options.sample = {1, 8, 8};
  options.scale = 1.0 / 16;
  return csv_classification(path, options);
}

Splits text_windows(const std::string& path, const TextOptions& options) {
  const TokenStream tokens = read_tokens(path, options.format);
  check_vocabulary(tokens, options.vocabulary, path);
  const TokenSplit split = split_last(tokens, options.held_out);
  WindowOptions windows;
  windows.context = options.context;
  DatasetPointer test = window_dataset(split.held_out, windows, path + ": held-out part");
  windows.stride = options.stride;
  return {window_dataset(split.train, windows, path), std::move(test)};
}

}  // namespace stepgraph
