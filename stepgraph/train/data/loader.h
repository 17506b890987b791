// SPDX-License-Identifier: Apache-2.0
// Batches in an order that depends on nothing but (seed, epoch, dataset size): not on a global generator, threads, the mesh or a restart.
// A loader gives the global batch; each mesh coordinate takes its rows with slice_rows.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "stepgraph/train/data/dataset.h"

namespace stepgraph {

/// A permutation of 0 .. count-1 (Fisher-Yates, driven by Philox with the seed as key and (place, epoch) as counter).
std::vector<int64_t> shuffled(int64_t count, uint64_t seed, int64_t epoch);

/// What to do with the last batch of an epoch when the size does not divide.
enum class LastBatch {
  Drop,   ///< leave it out
  Short,  ///< give fewer rows
  Pad,    ///< fill it with samples from the start of the epoch; every batch gets a bool field "valid" that is false for those rows
};

/// How far a run has come. It stands between batches and counts samples, so it stays right when the batch size changes.
struct Cursor {
  int64_t epoch = 0;
  int64_t offset = 0;   ///< samples of this epoch's order already given
  int64_t batch = 0;    ///< batches of this epoch already given
  int64_t samples = 0;  ///< given since the very first, padding not counted
  bool operator==(const Cursor&) const = default;
};

struct LoaderOptions {
  int64_t batch = 32;
  uint64_t seed = 0;
  bool shuffle = true;
  LastBatch last = LastBatch::Drop;
  int64_t epochs = 0;    ///< 0: without end
  int64_t prefetch = 2;  ///< batches prepared ahead by a thread; 0: none, no thread
};

struct Batch {
  NamedArrays arrays;
  std::vector<int64_t> ids;  ///< of the rows, padding included
  int64_t valid_rows = 0;
  int64_t epoch = 0, index = 0;  ///< index in the epoch
  Cursor after;                  ///< where the run stands once this batch is used
};

class Loader {
 public:
  /// UserError if the dataset is empty, an epoch would have no batch, or an option is out of range.
  Loader(DatasetPointer dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch, over the ends of epochs; nothing after options.epochs of them. An error of the dataset is thrown here, also when it was met by
  /// the thread; after it each call throws it again.
  std::optional<Batch> next();
  int64_t batches_per_epoch() const;

  /// Behind the last batch that next() gave; batches prepared ahead do not count.
  Cursor cursor() const;
  void seek(const Cursor& cursor);
  /// JSON with the cursor and what it is a place in: seed, dataset size, whether shuffled.
  std::string save() const;
  /// Goes on exactly where `text` was saved. UserError if it was saved with another seed, dataset size or order.
  void restore(const std::string& text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stepgraph
