// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/data/presets.h"
#include <fmt/core.h>
#include "stepgraph/base/error.h"

namespace stepgraph {

Splits csv_classification(const std::string& path, const CsvClassification& options) {
  const CsvTable table = read_csv(path, options.csv);
  const int64_t rows = table.values.sizes()[0], columns = table.values.sizes()[1];
  if (columns < 2) throw UserError(fmt::format("{}: {} column, wanted inputs and a label", path, columns));
  const int64_t inputs = columns - 1;
  Sizes sizes{rows};
  if (options.sample.empty()) {
    sizes.push_back(inputs);
  } else {
    if (element_count(options.sample) != inputs)
      throw UserError(
          fmt::format("{}: {} input columns, wanted {} for samples of {}", path, inputs, element_count(options.sample), type_text(DType::F32, options.sample)));
    sizes.insert(sizes.end(), options.sample.begin(), options.sample.end());
  }
  Literal images = Literal::uninitialised(DType::F32, sizes);
  const auto from = table.values.as<double>();
  const auto to = images.as_mutable<float>();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < inputs; ++c)
      to[static_cast<size_t>(r * inputs + c)] = static_cast<float>(from[static_cast<size_t>(r * columns + c)] * options.scale);
  Literal labels = integer_column(table, inputs, path);
  for (int64_t r = 0; r < rows; ++r)
    if (labels.integer_at(r) < 0)
      throw UserError(fmt::format("{}: row {}: label {} is negative", path, r + 1 + (table.columns.empty() ? 0 : 1), labels.integer_at(r)));
  NamedArrays arrays;
  arrays.emplace_back(options.input_name, std::move(images));
  arrays.emplace_back(options.label_name, std::move(labels));
  return split_every(array_dataset(std::move(arrays), path), options.test_every, options.test_rest);
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
