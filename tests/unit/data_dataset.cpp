// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <cmath>
#include "stepgraph/base/error.h"
#include "stepgraph/train/data/dataset.h"
#include "stepgraph/train/data/presets.h"
#include "tests/support/places.h"
#include "tests/support/zip_bytes.h"

namespace stepgraph {
namespace data_dataset_test {

using namespace testing;

const std::string source_folder = testing::source_root();

TokenStream letters(const std::string& text) { return {to_bytes(text), TokenFormat::Bytes, "t.txt"}; }

std::string text_of(const Literal& row) {
  std::string out;
  for (int64_t i = 0; i < row.count(); ++i) out += static_cast<char>(row.integer_at(i));
  return out;
}

NamedArrays numbered(int64_t rows) {
  NamedArrays arrays;
  arrays.emplace_back("x", Literal(DType::F32, {rows, 2}));
  arrays.emplace_back("y", Literal(DType::I64, {rows}));
  for (int64_t i = 0; i < rows; ++i) {
    arrays[0].second.set(2 * i, static_cast<double>(i));
    arrays[0].second.set(2 * i + 1, static_cast<double>(-i));
    arrays[1].second.set_integer(i, 10 * i);
  }
  return arrays;
}

TEST(ArrayDataset, GathersRowsOfEveryField) {
  const auto data = array_dataset(numbered(4), "a.npz");
  EXPECT_EQ(data->size(), 4);
  EXPECT_EQ(data->fields(), (std::vector<Field>{{"x", DType::F32, {2}}, {"y", DType::I64, {}}}));
  const NamedArrays batch = data->gather(std::vector<int64_t>{3, 0, 3});
  EXPECT_EQ(batch[0].second.to_doubles(), (std::vector<double>{3, -3, 0, 0, 3, -3}));
  EXPECT_EQ(batch[1].second, Literal::from_integers(DType::I64, {3}, std::vector<int64_t>{30, 0, 30}));
  EXPECT_EQ(data->gather({})[0].second.sizes(), (Sizes{0, 2}));
  EXPECT_THROW(data->gather(std::vector<int64_t>{4}), InternalError);
}

TEST(WindowDataset, CoversTheStreamOnceAndTargetsAreOneLater) {
  const auto data = window_dataset(letters("abcdefghijk"), {.context = 3}, "t.txt");
  ASSERT_EQ(data->size(), 3);
  const NamedArrays all = data->gather(std::vector<int64_t>{0, 1, 2});
  EXPECT_EQ(all[0].first, "tokens");
  EXPECT_EQ(text_of(all[0].second), "abcdefghi");
  EXPECT_EQ(text_of(all[1].second), "bcdefghij");
  // One more token is needed for the last target.
  EXPECT_EQ(window_dataset(letters("abcdef"), {.context = 3}, "t.txt")->size(), 1);
  EXPECT_EQ(window_dataset(letters("abcdefg"), {.context = 3}, "t.txt")->size(), 2);
  EXPECT_EQ(window_dataset(letters("abcdefg"), {.context = 3, .stride = 1}, "t.txt")->size(), 4);
  EXPECT_THROW(window_dataset(letters("abc"), {.context = 3}, "t.txt"), UserError);
  EXPECT_THROW(window_dataset(letters("abc"), {.context = 0}, "t.txt"), UserError);
}

TEST(Tokens, WidthsAndLimits) {
  const TokenStream pairs(to_bytes(little(1, 2) + little(65535, 2)), TokenFormat::U16, "t.bin");
  EXPECT_EQ(pairs.size(), 2);
  EXPECT_EQ(pairs.at(1), 65535);
  EXPECT_EQ(pairs.largest(), 65535);
  EXPECT_EQ(pairs.part(1, 2).at(0), 65535);
  EXPECT_NO_THROW(check_vocabulary(pairs, 65536, "t.bin"));
  EXPECT_THROW(check_vocabulary(pairs, 65535, "t.bin"), UserError);
  EXPECT_EQ(TokenStream(to_bytes(little(0x7fffffff, 4)), TokenFormat::U32, "t.bin").at(0), INT32_MAX);
}

TEST(Splits, EveryRowIsInOneOfTheTwo) {
  const auto whole = array_dataset(numbered(11), "a");
  const Splits every = split_every(whole, 5, 0);
  EXPECT_EQ(every.test->size(), 3);
  EXPECT_EQ(every.train->size(), 8);
  EXPECT_EQ(every.test->gather(std::vector<int64_t>{2})[1].second.integer_at(0), 100);
  EXPECT_EQ(every.train->gather(std::vector<int64_t>{4})[1].second.integer_at(0), 60);
  const Splits last = split_last(whole, 4);
  EXPECT_EQ(last.test->size(), 2);
  EXPECT_EQ(last.test->gather(std::vector<int64_t>{0})[1].second.integer_at(0), 90);
  EXPECT_THROW(split_every(whole, 5, 5), UserError);
}

TEST(SliceRows, LocalRowsAndPadding) {
  const NamedArrays batch = array_dataset(numbered(5), "a")->gather(std::vector<int64_t>{0, 1, 2, 3, 4});
  const NamedArrays part = slice_rows(batch, 3, 2, 3);
  EXPECT_EQ(part[0].second.to_doubles(), (std::vector<double>{3, -3, 4, -4, 0, 0}));
  EXPECT_EQ(part[1].second, Literal::from_integers(DType::I64, {3}, std::vector<int64_t>{30, 40, 0}));
  EXPECT_EQ(slice_rows(batch, 5, 0)[1].second.sizes(), Sizes{0});
  EXPECT_THROW(slice_rows(batch, 4, 2), InternalError);
}

TEST(ContentHash, IsOfSamplesAndNames) {
  const auto of = [](const DatasetPointer& data) { return content_hash(*data); };
  const auto whole = array_dataset(numbered(6), "a.npz");
  EXPECT_EQ(of(whole), of(array_dataset(numbered(6), "b.npz")));
  EXPECT_EQ(of(whole), of(subset(array_dataset(numbered(6), "a.npz"), {0, 1, 2, 3, 4, 5})));
  EXPECT_NE(of(whole), of(array_dataset(numbered(5), "a.npz")));
  EXPECT_NE(of(whole), of(subset(whole, {0, 1, 2, 3, 5, 4}))) << "the order";
  NamedArrays changed = numbered(6), renamed = numbered(6);
  changed[0].second.set(11, -5.5);
  EXPECT_NE(of(whole), of(array_dataset(changed, "a.npz")));
  renamed[1].first = "z";
  EXPECT_NE(of(whole), of(array_dataset(renamed, "a.npz")));
  EXPECT_NE(of(split_every(whole, 3, 0).train), of(split_every(whole, 3, 1).train));
  const auto windows = [](const std::string& text, int64_t context, int64_t stride) {
    return window_dataset(letters(text), {context, stride, "tokens", "targets"}, "t.txt");
  };
  EXPECT_EQ(of(windows("abcdefghij", 3, 2)), of(windows("abcdefghij", 3, 2)));
  EXPECT_NE(of(windows("abcdefghij", 3, 2)), of(windows("abcdefgihj", 3, 2)));
  EXPECT_NE(of(windows("abcdefghij", 3, 3)), of(windows("abcdefghij", 3, 2)));
}

TEST(Presets, Digits) {
  const Splits data = digits(source_folder + "/data/digits.csv");
  EXPECT_EQ(data.train->size() + data.test->size(), 1797);
  EXPECT_EQ(data.test->size(), 360);
  EXPECT_EQ(data.train->fields(), (std::vector<Field>{{"image", DType::F32, {1, 8, 8}}, {"label", DType::I64, {}}}));
  const NamedArrays first = data.test->gather(std::vector<int64_t>{0});
  EXPECT_EQ(first[0].second.sizes(), (Sizes{1, 1, 8, 8}));
  EXPECT_EQ(first[0].second.at(2), 5.0 / 16);
  EXPECT_EQ(first[1].second.integer_at(0), 0);
  EXPECT_EQ(data.train->gather(std::vector<int64_t>{0})[1].second.integer_at(0), 1);
}

TEST(Presets, TextHoldsTheLastTenthOut) {
  const std::string path = source_folder + "/data/austen.txt";
  const Splits data = text_windows(path, {});
  const TokenStream whole = read_tokens(path, TokenFormat::Bytes);
  EXPECT_EQ(whole.size(), 1151624);
  EXPECT_LT(whole.largest(), 128);
  EXPECT_EQ(data.test->size(), (115162 - 1) / 64);
  EXPECT_EQ(data.train->size(), (1151624 - 115162 - 1) / 64);
  EXPECT_EQ(data.test->gather(std::vector<int64_t>{0})[0].second.integer_at(0), whole.at(1151624 - 115162));

  // The frequencies of the training bytes leave 3.076 nats a byte on the held-out ones: this is the text that others measured.
  const TokenSplit split = split_last(whole, 10);
  std::vector<double> counts(256, 0);
  for (int64_t i = 0; i < split.train.size(); ++i) ++counts[static_cast<size_t>(split.train.at(i))];
  double nats = 0;
  for (int64_t i = 0; i < split.held_out.size(); ++i)
    nats -= std::log(counts[static_cast<size_t>(split.held_out.at(i))] / static_cast<double>(split.train.size()));
  EXPECT_NEAR(nats / static_cast<double>(split.held_out.size()), 3.076, 0.002);
}

}  // namespace data_dataset_test
}  // namespace stepgraph
