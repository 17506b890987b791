// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/data/loader.h"
#include <fmt/core.h>
#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include "stepgraph/base/error.h"
#include "stepgraph/tensor/philox.h"
#include "stepgraph/train/data/json_text.h"

namespace stepgraph {
namespace {

/// In [0, bound), by the high half of a product: the bias is below bound / 2^64.
int64_t bounded(uint64_t random, int64_t bound) { return static_cast<int64_t>(static_cast<unsigned __int128>(random) * static_cast<uint64_t>(bound) >> 64); }

void check_options(const Dataset& dataset, const LoaderOptions& options) {
  if (options.batch < 1) throw UserError(fmt::format("batch size {}, wanted at least 1", options.batch));
  if (options.prefetch < 0) throw UserError(fmt::format("prefetch of {} batches, wanted at least 0", options.prefetch));
  if (options.epochs < 0) throw UserError(fmt::format("{} epochs, wanted at least 0", options.epochs));
  if (dataset.size() == 0) throw UserError("the dataset is empty");
  if (options.last == LastBatch::Drop && dataset.size() < options.batch)
    throw UserError(fmt::format("a batch of {} samples is larger than the dataset of {}, and incomplete batches are dropped", options.batch, dataset.size()));
  if (options.last == LastBatch::Pad)
    for (const Field& field : dataset.fields())
      if (field.name == "valid") throw UserError("the dataset has a field 'valid', which padded batches need for their mask");
}

/// Makes batches one after the other; whoever calls it owns it at that time.
class BatchMaker {
 public:
  BatchMaker(DatasetPointer dataset, const LoaderOptions& options) : dataset_(std::move(dataset)), options_(options) {}

  void seek(const Cursor& cursor) { cursor_ = cursor; }
  std::optional<Batch> next() {
    // A resumed cursor may leave less than a whole batch of its epoch, hence not only at the end of a batch.
    if (remaining() == 0 || (options_.last == LastBatch::Drop && remaining() < options_.batch)) start_epoch(cursor_.epoch + 1);
    if (options_.epochs > 0 && cursor_.epoch >= options_.epochs) return std::nullopt;
    prepare_order();
    Batch batch;
    batch.epoch = cursor_.epoch;
    batch.index = cursor_.batch;
    batch.valid_rows = std::min(options_.batch, remaining());
    const int64_t rows = options_.last == LastBatch::Pad ? options_.batch : batch.valid_rows;
    for (int64_t i = 0; i < rows; ++i) {
      // Padding begins at the start of the order, and goes round if the dataset is smaller than that.
      const int64_t place = i < batch.valid_rows ? cursor_.offset + i : (i - batch.valid_rows) % dataset_->size();
      batch.ids.push_back(order_[static_cast<size_t>(place)]);
    }
    batch.arrays = dataset_->gather_drawn(batch.ids, {options_.seed, cursor_.epoch});
    if (options_.last == LastBatch::Pad) batch.arrays.emplace_back("valid", valid_mask(rows, batch.valid_rows));
    advance(batch.valid_rows);
    batch.after = cursor_;
    return batch;
  }

 private:
  int64_t remaining() const { return dataset_->size() - cursor_.offset; }
  void start_epoch(int64_t epoch) {
    cursor_.epoch = epoch;
    cursor_.offset = cursor_.batch = 0;
  }
  void prepare_order() {
    if (order_epoch_ == cursor_.epoch) return;
    if (options_.shuffle) {
      order_ = shuffled(dataset_->size(), options_.seed, cursor_.epoch);
    } else if (order_.empty()) {
      order_.resize(static_cast<size_t>(dataset_->size()));
      std::iota(order_.begin(), order_.end(), int64_t{0});
    }
    order_epoch_ = cursor_.epoch;
  }
  void advance(int64_t rows) {
    cursor_.offset += rows;
    cursor_.samples += rows;
    ++cursor_.batch;
    // The end of an epoch is written as the start of the next, so that one place has one cursor.
    if (remaining() == 0 || (options_.last == LastBatch::Drop && remaining() < options_.batch)) start_epoch(cursor_.epoch + 1);
  }
  static Literal valid_mask(int64_t rows, int64_t valid) {
    Literal mask(DType::Bool, {rows});
    for (int64_t i = 0; i < valid; ++i) mask.set_integer(i, 1);
    return mask;
  }

  DatasetPointer dataset_;
  LoaderOptions options_;
  Cursor cursor_;
  std::vector<int64_t> order_;
  int64_t order_epoch_ = -1;
};

/// A batch, the end, or an error on its way from the thread to the caller.
struct Delivery {
  std::optional<Batch> batch;
  std::exception_ptr error;
};

}  // namespace

std::vector<int64_t> shuffled(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  // The counter is (place, epoch), the key the seed; the constant keeps the numbers apart from those that a step draws with the same seed.
  const std::array<uint32_t, 2> key{static_cast<uint32_t>(seed) ^ 0x73687566u, static_cast<uint32_t>(seed >> 32)};
  for (int64_t i = count - 1; i > 0; --i) {
    const auto place = static_cast<uint64_t>(i), age = static_cast<uint64_t>(epoch);
    const auto words =
        philox4x32({static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), static_cast<uint32_t>(age), static_cast<uint32_t>(age >> 32)}, key);
    const uint64_t random = static_cast<uint64_t>(words[1]) << 32 | words[0];
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(bounded(random, i + 1))]);
  }
  return order;
}

struct Loader::State {
  State(DatasetPointer data, const LoaderOptions& chosen) : dataset(data), options(chosen), maker(std::move(data), chosen) {}

  DatasetPointer dataset;
  LoaderOptions options;
  Cursor cursor;
  std::exception_ptr failed;
  BatchMaker maker;  // used by the thread while there is one, else by the caller

  std::mutex mutex;
  std::condition_variable_any changed;
  std::deque<Delivery> ready;
  std::jthread thread;  // last, so that it is joined before what it uses goes

  Delivery make() {
    Delivery delivery;
    try {
      delivery.batch = maker.next();
    } catch (...) {
      delivery.error = std::current_exception();
    }
    return delivery;
  }
  void produce(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      Delivery delivery = make();
      const bool last = !delivery.batch;
      std::unique_lock lock(mutex);
      const bool room = changed.wait(lock, stop, [&] { return static_cast<int64_t>(ready.size()) < options.prefetch; });
      if (!room) return;
      ready.push_back(std::move(delivery));
      changed.notify_all();
      if (last) return;
    }
  }
  Delivery take() {
    if (options.prefetch == 0) return make();
    if (!thread.joinable()) thread = std::jthread([this](const std::stop_token& stop) { produce(stop); });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !ready.empty(); });
    // The last delivery (the end or an error) stays, so that later calls find it again.
    if (!ready.front().batch) return ready.front();
    Delivery delivery = std::move(ready.front());
    ready.pop_front();
    changed.notify_all();
    return delivery;
  }
  void stop() {
    if (!thread.joinable()) return;
    thread.request_stop();
    thread.join();
    thread = {};
    ready.clear();
  }
};

Loader::Loader(DatasetPointer dataset, const LoaderOptions& options) {
  check_options(*dataset, options);
  state_ = std::make_unique<State>(std::move(dataset), options);
}
Loader::~Loader() = default;

std::optional<Batch> Loader::next() {
  if (state_->failed) std::rethrow_exception(state_->failed);
  Delivery delivery = state_->take();
  if (delivery.error) {
    state_->failed = delivery.error;
    std::rethrow_exception(delivery.error);
  }
  if (delivery.batch) state_->cursor = delivery.batch->after;
  return std::move(delivery.batch);
}

int64_t Loader::batches_per_epoch() const {
  const int64_t size = state_->dataset->size(), batch = state_->options.batch;
  return state_->options.last == LastBatch::Drop ? size / batch : size / batch + (size % batch != 0);
}

Cursor Loader::cursor() const { return state_->cursor; }

void Loader::seek(const Cursor& cursor) {
  constexpr int64_t count_max = int64_t{1} << 53;  // far from overflow however long the run goes on
  const auto out_of_range = [](int64_t count) { return count < 0 || count > count_max; };
  if (out_of_range(cursor.epoch) || out_of_range(cursor.batch) || out_of_range(cursor.samples) || cursor.offset < 0 || cursor.offset > state_->dataset->size())
    throw UserError(fmt::format("cursor at sample {} of epoch {}, the dataset has {} samples", cursor.offset, cursor.epoch, state_->dataset->size()));
  state_->stop();
  state_->failed = nullptr;
  state_->cursor = cursor;
  state_->maker.seek(cursor);
}

std::string Loader::save() const {
  const Cursor& c = state_->cursor;
  // As a signed number the seed survives readers that know no unsigned ones; its halves keep it in range.
  return print_integers({{"epoch", c.epoch},
                         {"offset", c.offset},
                         {"batch", c.batch},
                         {"samples", c.samples},
                         {"dataset_size", state_->dataset->size()},
                         {"seed_high", static_cast<int64_t>(state_->options.seed >> 32)},
                         {"seed_low", static_cast<int64_t>(state_->options.seed & 0xffffffffu)},
                         {"shuffle", state_->options.shuffle ? 1 : 0}});
}

void Loader::restore(const std::string& text) {
  const auto values = parse_integers(text, {"epoch", "offset", "batch", "samples", "dataset_size", "seed_high", "seed_low", "shuffle"}, "data cursor");
  const int64_t size = state_->dataset->size();
  if (values[4] != size) throw UserError(fmt::format("data cursor: saved for a dataset of {} samples, this one has {}", values[4], size));
  const uint64_t seed = static_cast<uint64_t>(values[5]) << 32 | (static_cast<uint64_t>(values[6]) & 0xffffffffu);
  if (seed != state_->options.seed) throw UserError(fmt::format("data cursor: saved with seed {}, this run has {}", seed, state_->options.seed));
  if ((values[7] != 0) != state_->options.shuffle)
    throw UserError(
        fmt::format("data cursor: saved {} shuffling, this run is {}", values[7] ? "with" : "without", state_->options.shuffle ? "with" : "without"));
  seek({values[0], values[1], values[2], values[3]});
}

}  // namespace stepgraph
