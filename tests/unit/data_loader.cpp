// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include "stepgraph/base/error.h"
#include "stepgraph/train/data/loader.h"

namespace stepgraph {
namespace data_loader_test {

/// One field 'id' that is the sample's own number; can be told to fail on one sample.
class Ids final : public Dataset {
 public:
  explicit Ids(int64_t size, int64_t bad = -1) : size_(size), bad_(bad) {}
  int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }
  NamedArrays gather(std::span<const int64_t> ids) const override {
    if (std::find(ids.begin(), ids.end(), bad_) != ids.end()) throw UserError("sample is broken");
    NamedArrays arrays;
    arrays.emplace_back("id", Literal::from_integers(DType::I64, {static_cast<int64_t>(ids.size())}, ids));
    return arrays;
  }

 private:
  int64_t size_, bad_;
  std::vector<Field> fields_{{"id", DType::I64, {}}};
};

DatasetPointer ids(int64_t size) { return std::make_shared<Ids>(size); }

std::vector<int64_t> take(Loader& loader, int64_t batches) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < batches; ++i) {
    const auto batch = loader.next();
    if (!batch) break;
    for (int64_t r = 0; r < batch->valid_rows; ++r) out.push_back(batch->arrays[0].second.integer_at(r));
  }
  return out;
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> out(static_cast<size_t>(end - begin));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

TEST(Shuffled, IsAPermutationThatDependsOnSeedAndEpochAlone) {
  EXPECT_EQ(sorted(shuffled(1000, 7, 3)), range(0, 1000));
  EXPECT_EQ(shuffled(1000, 7, 3), shuffled(1000, 7, 3));
  EXPECT_NE(shuffled(1000, 7, 3), shuffled(1000, 7, 4));
  EXPECT_NE(shuffled(1000, 7, 3), shuffled(1000, 8, 3));
  EXPECT_NE(shuffled(1000, 7, 3), shuffled(1000, 8, 2));
  EXPECT_TRUE(shuffled(0, 1, 1).empty());
  EXPECT_EQ(shuffled(1, 1, 1), range(0, 1));
  // Written down: a change would make old checkpoints go on with another order.
  EXPECT_EQ(shuffled(8, 0, 0), (std::vector<int64_t>{3, 2, 1, 4, 7, 5, 6, 0}));
}

TEST(Shuffled, IsEven) {
  // Every one of the 24 orders of 4, about equally often: 24000 draws, deviation of a count about 31.
  std::map<std::vector<int64_t>, int> counts;
  for (int64_t epoch = 0; epoch < 24000; ++epoch) ++counts[shuffled(4, 11, epoch)];
  ASSERT_EQ(counts.size(), 24u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 160);
}

TEST(Loader, EachSampleOnceInEachEpoch) {
  for (const LastBatch last : {LastBatch::Short, LastBatch::Pad}) {
    Loader loader(ids(10), {.batch = 4, .seed = 5, .last = last});
    EXPECT_EQ(loader.batches_per_epoch(), 3);
    std::set<std::vector<int64_t>> orders;
    for (int epoch = 0; epoch < 3; ++epoch) {
      const auto seen = take(loader, 3);
      EXPECT_EQ(sorted(seen), range(0, 10));
      orders.insert(seen);
    }
    EXPECT_EQ(orders.size(), 3u);
  }
}

TEST(Loader, TheLastBatchIsDroppedShortOrPadded) {
  Loader drop(ids(10), {.batch = 4, .shuffle = false, .last = LastBatch::Drop, .epochs = 1});
  EXPECT_EQ(drop.batches_per_epoch(), 2);
  EXPECT_EQ(take(drop, 9), range(0, 8));
  EXPECT_FALSE(drop.next());

  Loader shorter(ids(10), {.batch = 4, .shuffle = false, .last = LastBatch::Short});
  take(shorter, 2);
  EXPECT_EQ(shorter.next()->arrays[0].second, Literal::from_integers(DType::I64, {2}, range(8, 10)));

  Loader pad(ids(10), {.batch = 4, .shuffle = false, .last = LastBatch::Pad});
  EXPECT_EQ(pad.next()->arrays[1].second.to_doubles(), (std::vector<double>{1, 1, 1, 1}));
  pad.next();
  const auto last = pad.next();
  EXPECT_EQ(last->ids, (std::vector<int64_t>{8, 9, 0, 1}));
  EXPECT_EQ(last->arrays[1].first, "valid");
  EXPECT_EQ(last->arrays[1].second.to_doubles(), (std::vector<double>{1, 1, 0, 0}));
  EXPECT_EQ(last->valid_rows, 2);

  // Smaller than half a batch: padding goes round.
  Loader tiny(ids(3), {.batch = 8, .shuffle = false, .last = LastBatch::Pad});
  EXPECT_EQ(tiny.next()->ids, (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1}));
}

TEST(Loader, PrefetchDoesNotChangeWhatIsGiven) {
  for (const int64_t prefetch : {1, 2, 5}) {
    Loader plain(ids(50), {.batch = 7, .seed = 3, .last = LastBatch::Short, .prefetch = 0});
    Loader ahead(ids(50), {.batch = 7, .seed = 3, .last = LastBatch::Short, .prefetch = prefetch});
    for (int i = 0; i < 30; ++i) {
      const auto a = plain.next(), b = ahead.next();
      EXPECT_EQ(a->ids, b->ids);
      EXPECT_EQ(a->after, b->after);
      EXPECT_EQ(plain.cursor(), ahead.cursor());
    }
  }
}

// Resumed run == run that never stopped: stop after every possible batch of three epochs.
TEST(Loader, ResumesExactly) {
  for (const int64_t prefetch : {0, 3})
    for (const LastBatch last : {LastBatch::Drop, LastBatch::Short, LastBatch::Pad})
      for (const int64_t size : {12, 13}) {
        const LoaderOptions options{.batch = 2, .seed = 9, .last = last, .prefetch = prefetch};
        Loader whole(ids(size), options);
        const int64_t batches = 3 * whole.batches_per_epoch();
        const auto wanted = take(whole, batches);
        for (int64_t stop = 0; stop <= batches; ++stop) {
          std::string saved;
          std::vector<int64_t> seen;
          {
            Loader first(ids(size), options);
            seen = take(first, stop);
            saved = first.save();
          }
          std::mt19937 unrelated;  // numbers drawn elsewhere change nothing
          std::srand(unrelated());
          std::rand();
          Loader second(ids(size), options);
          take(second, stop % 3);  // what it did before the restore changes nothing either
          second.restore(saved);
          const auto rest = take(second, batches - stop);
          seen.insert(seen.end(), rest.begin(), rest.end());
          EXPECT_EQ(seen, wanted) << "stopped after batch " << stop;
        }
      }
}

// 0..23 in order, one worker of batch 3 takes two batches; then two workers, so a global batch of 6, go on.
TEST(Loader, AChangedBatchSizeLosesNothing) {
  Loader one(ids(24), {.batch = 3, .shuffle = false});
  EXPECT_EQ(take(one, 2), range(0, 6));
  Loader two(ids(24), {.batch = 6, .shuffle = false, .epochs = 1});
  two.restore(one.save());
  EXPECT_EQ(take(two, 100), range(6, 24));
  EXPECT_EQ(two.cursor().samples, 24);
}

TEST(Loader, CursorCountsWhatWasGiven) {
  Loader loader(ids(5), {.batch = 2, .last = LastBatch::Pad});
  EXPECT_EQ(loader.cursor(), Cursor{});
  loader.next();
  EXPECT_EQ(loader.cursor(), (Cursor{0, 2, 1, 2}));
  loader.next();
  loader.next();
  EXPECT_EQ(loader.cursor(), (Cursor{1, 0, 0, 5}));
}

TEST(Loader, ACursorOfAnotherRunIsRefused) {
  Loader loader(ids(12), {.batch = 2, .seed = UINT64_MAX});
  const std::string saved = loader.save();
  EXPECT_NO_THROW(loader.restore(saved));
  Loader other_seed(ids(12), {.batch = 2, .seed = 4});
  Loader other_size(ids(13), {.batch = 2, .seed = UINT64_MAX});
  Loader other_order(ids(12), {.batch = 2, .seed = UINT64_MAX, .shuffle = false});
  for (Loader* other : {&other_seed, &other_size, &other_order}) EXPECT_THROW(other->restore(saved), UserError);
  for (const char* text : {"", "{}", "[]", "{\"epoch\": 0", "{\"epoch\": -1}", "{\"epoch\": 0, \"epoch\": 0}"}) EXPECT_THROW(loader.restore(text), UserError);
  EXPECT_THROW(loader.seek({0, 13, 0, 0}), UserError);
  EXPECT_THROW(loader.seek({-1, 0, 0, 0}), UserError);
  EXPECT_THROW(loader.seek({INT64_MAX, 0, 0, 0}), UserError);
}

TEST(Loader, AnErrorInTheThreadReachesTheCallerEveryTime) {
  for (const int64_t prefetch : {0, 2}) {
    Loader loader(std::make_shared<Ids>(10, 5), {.batch = 2, .shuffle = false, .prefetch = prefetch});
    EXPECT_EQ(take(loader, 2), range(0, 4));
    for (int i = 0; i < 3; ++i) EXPECT_THROW(loader.next(), UserError);
    EXPECT_EQ(loader.cursor().samples, 4);
    loader.seek({0, 6, 3, 6});
    EXPECT_EQ(take(loader, 2), range(6, 10));
  }
}

TEST(Loader, StopsCleanlyWhileTheThreadIsAhead) {
  for (int i = 0; i < 50; ++i) {
    Loader loader(ids(1000), {.batch = 1, .prefetch = 1 + i % 4});
    for (int j = 0; j < i % 5; ++j) loader.next();
  }
}

TEST(Loader, EndStaysTheEnd) {
  for (const int64_t prefetch : {0, 2}) {
    Loader loader(ids(4), {.batch = 2, .epochs = 2, .prefetch = prefetch});
    EXPECT_EQ(take(loader, 100).size(), 8u);
    EXPECT_FALSE(loader.next());
    EXPECT_FALSE(loader.next());
    EXPECT_EQ(loader.cursor().epoch, 2);
  }
}

TEST(Loader, OptionsThatCannotWorkAreRefused) {
  EXPECT_THROW(Loader(ids(0), {.batch = 1}), UserError);
  EXPECT_THROW(Loader(ids(3), {.batch = 4}), UserError);
  EXPECT_THROW(Loader(ids(3), {.batch = 0}), UserError);
  EXPECT_THROW(Loader(ids(3), {.batch = 1, .prefetch = -1}), UserError);
  NamedArrays arrays;
  arrays.emplace_back("valid", Literal(DType::F32, {3}));
  EXPECT_THROW(Loader(array_dataset(arrays, "a"), {.batch = 2, .last = LastBatch::Pad}), UserError);
}

}  // namespace data_loader_test
}  // namespace stepgraph
