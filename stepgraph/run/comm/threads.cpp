// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/comm/threads.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

std::string list_text(std::span<const int> ranks) {
  std::string result;
  for (const int rank : ranks) result += (result.empty() ? "" : ", ") + std::to_string(rank);
  return result;
}

/// One collective: what its ranks brought, and the result. Ranks share it, so it outlives a rank that fails half-way.
struct Round {
  std::vector<Literal> values;          // by place in the group
  std::vector<std::string> signatures;  // operation, dtype, sizes: must be equal
  Literal result;
  std::byte* elements = nullptr;  // of the result: taken once, since mutable_data() is for one thread
};

/// The meeting place of one group.
struct Channel {
  std::vector<int> group;
  std::shared_ptr<Round> round;  // of the collective that ranks are arriving at
  std::vector<bool> here;
  size_t arrived = 0;
  uint64_t phase = 0;  // counts completed meetings
};

/// State of all ranks. One mutex: ranks are few and meet seldom.
class World {
 public:
  explicit World(int count) : live_(count), finished_(static_cast<size_t>(count)), waiting_for_(static_cast<size_t>(count)) {}

  /// Registers the caller's part of a collective, waits for the group, and lets the last one to come run `prepare` before the others go on.
  std::shared_ptr<Round> arrive(int rank, std::span<const int> group, const Literal& value, std::string signature, const std::function<void(Round&)>& prepare);
  /// Waits until all ranks of the group have come here too.
  void leave(int rank, std::span<const int> group, const std::string& operation);
  /// The rank's body has returned or thrown.
  void finish(int rank, std::exception_ptr error);
  void fail(const std::string& message, std::string group, std::vector<int> suspects);
  [[noreturn]] void rethrow_first();
  bool failed();

 private:
  struct Failure {
    std::string message, group;
    std::vector<int> suspects;
  };
  struct Waiting {
    const Channel* channel;
    std::string operation;
  };
  Channel& channel(std::span<const int> group);
  void meet(std::unique_lock<std::mutex>& lock, Channel& channel, int rank, const std::string& operation, const std::function<void()>& complete);
  void check_signatures(const Channel& channel, const Round& round);
  void check_progress();
  void set_failure(Failure failure);
  void throw_if_failed() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::vector<int>, Channel> channels_;
  std::optional<Failure> failure_;
  int live_, waiting_ = 0;
  std::vector<bool> finished_;
  std::vector<std::optional<Waiting>> waiting_for_;
  std::exception_ptr cause_, echo_;
};

bool World::failed() {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

void World::set_failure(Failure failure) {
  if (failure_) return;
  failure_ = std::move(failure);
  changed_.notify_all();
}
void World::fail(const std::string& message, std::string group, std::vector<int> suspects) {
  const std::lock_guard lock(mutex_);
  set_failure({message, std::move(group), std::move(suspects)});
}
void World::throw_if_failed() const {
  if (failure_) throw CommError(failure_->message, failure_->group, failure_->suspects);
}

Channel& World::channel(std::span<const int> group) {
  const std::vector<int> key(group.begin(), group.end());
  Channel& result = channels_[key];
  if (result.group.empty()) {
    result.group = key;
    result.here.assign(key.size(), false);
  }
  return result;
}

/// A rank that waits for one that has ended, or a ring of ranks that wait for each other, would wait for ever.
void World::check_progress() {
  for (size_t rank = 0; rank < waiting_for_.size(); ++rank) {
    if (!waiting_for_[rank]) continue;
    const Channel& channel = *waiting_for_[rank]->channel;
    for (size_t i = 0; i < channel.group.size(); ++i) {
      const int peer = channel.group[i];
      if (channel.here[i] || !finished_[static_cast<size_t>(peer)]) continue;
      return set_failure({"rank " + std::to_string(peer) + " ended, but rank " + std::to_string(rank) + " waits for it in " + waiting_for_[rank]->operation +
                              " of ranks " + list_text(channel.group),
                          list_text(channel.group),
                          {peer}});
    }
  }
  if (waiting_ < live_ || live_ == 0) return;
  std::string message = "all ranks wait for each other:";
  std::vector<int> suspects;
  for (size_t rank = 0; rank < waiting_for_.size(); ++rank) {
    if (!waiting_for_[rank]) continue;
    suspects.push_back(static_cast<int>(rank));
    message += (suspects.size() > 1 ? ", rank " : " rank ") + std::to_string(rank) + " in " + waiting_for_[rank]->operation + " of ranks " +
               list_text(waiting_for_[rank]->channel->group);
  }
  set_failure({message, list_text(suspects), suspects});
}

void World::meet(std::unique_lock<std::mutex>& lock, Channel& channel, int rank, const std::string& operation, const std::function<void()>& complete) {
  throw_if_failed();
  const auto place = static_cast<size_t>(std::find(channel.group.begin(), channel.group.end(), rank) - channel.group.begin());
  channel.here[place] = true;
  if (++channel.arrived == channel.group.size()) {
    complete();
    throw_if_failed();
    channel.arrived = 0;
    channel.here.assign(channel.group.size(), false);
    ++channel.phase;
    for (const int peer : channel.group) {
      auto& waiting = waiting_for_[static_cast<size_t>(peer)];
      if (waiting) --waiting_;
      waiting.reset();
    }
    changed_.notify_all();
    return;
  }
  waiting_for_[static_cast<size_t>(rank)] = Waiting{&channel, operation};
  ++waiting_;
  check_progress();
  const uint64_t phase = channel.phase;
  changed_.wait(lock, [&] { return channel.phase != phase || failure_; });
  if (channel.phase == phase) throw_if_failed();
}

/// The ranks that brought another signature than most did are the suspects.
void World::check_signatures(const Channel& channel, const Round& round) {
  const auto& signatures = round.signatures;
  const auto votes = [&](const std::string& s) { return std::count(signatures.begin(), signatures.end(), s); };
  const std::string usual = *std::max_element(signatures.begin(), signatures.end(), [&](const auto& a, const auto& b) { return votes(a) < votes(b); });
  std::string message;
  std::vector<int> suspects;
  for (size_t i = 0; i < signatures.size(); ++i) {
    if (signatures[i] == usual) continue;
    suspects.push_back(channel.group[i]);
    message += ", rank " + std::to_string(channel.group[i]) + " called " + signatures[i];
  }
  if (suspects.empty()) return;
  const auto first = static_cast<size_t>(std::find(signatures.begin(), signatures.end(), usual) - signatures.begin());
  set_failure({"ranks " + list_text(channel.group) + " do not match: rank " + std::to_string(channel.group[first]) + " called " + usual + message,
               list_text(channel.group), suspects});
}

std::shared_ptr<Round> World::arrive(int rank, std::span<const int> group, const Literal& value, std::string signature,
                                     const std::function<void(Round&)>& prepare) {
  std::unique_lock lock(mutex_);
  throw_if_failed();
  Channel& place = channel(group);
  if (!place.round) {
    place.round = std::make_shared<Round>();
    place.round->values.resize(group.size());
    place.round->signatures.resize(group.size());
  }
  const std::shared_ptr<Round> round = place.round;
  const auto index = static_cast<size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
  round->values[index] = value;
  round->signatures[index] = signature;
  meet(lock, place, rank, signature, [&] {
    check_signatures(place, *round);
    if (failure_) return;
    prepare(*round);
    place.round = nullptr;
  });
  return round;
}

void World::leave(int rank, std::span<const int> group, const std::string& operation) {
  std::unique_lock lock(mutex_);
  meet(lock, channel(group), rank, operation, [] {});
}

void World::finish(int rank, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  finished_[static_cast<size_t>(rank)] = true;
  --live_;
  if (waiting_for_[static_cast<size_t>(rank)]) --waiting_;
  waiting_for_[static_cast<size_t>(rank)].reset();
  if (!error) return failure_ ? void() : check_progress();
  if (failure_) {
    if (!echo_) echo_ = error;
    return;
  }
  cause_ = error;
  std::string what = "an unknown exception";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
  }
  set_failure({"rank " + std::to_string(rank) + " failed: " + what, std::to_string(rank), {rank}});
}

void World::rethrow_first() {
  const std::lock_guard lock(mutex_);
  if (cause_) std::rethrow_exception(cause_);
  if (echo_) std::rethrow_exception(echo_);
  throw CommError(failure_->message, failure_->group, failure_->suspects);
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(World& world, int rank, int size) : world_(world), rank_(rank), size_(size) {}
  explicit ThreadCommunicator(std::unique_ptr<World> own) : own_(std::move(own)), world_(*own_), rank_(0), size_(1) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Literal all_reduce(const Literal& value, ReduceKind kind, std::span<const int> group) override;
  Literal all_gather(const Literal& piece, int64_t dim, std::span<const int> group) override;
  Literal reduce_scatter(const Literal& value, ReduceKind kind, int64_t dim, int64_t start, int64_t size, std::span<const int> group) override;
  Literal broadcast(const Literal& value, int root, std::span<const int> group) override;
  void barrier(std::span<const int> group) override;

 private:
  void check_group(std::span<const int> group) const;
  size_t place(std::span<const int> group) const { return static_cast<size_t>(std::find(group.begin(), group.end(), rank_) - group.begin()); }

  std::unique_ptr<World> own_;
  World& world_;
  int rank_, size_;
};

void ThreadCommunicator::check_group(std::span<const int> group) const {
  SG_CHECK(std::count(group.begin(), group.end(), rank_) == 1, "group " + list_text(group) + " of rank " + std::to_string(rank_));
  for (const int rank : group) SG_CHECK(rank >= 0 && rank < size_ && std::count(group.begin(), group.end(), rank) == 1, "group " + list_text(group));
}

std::string value_text(const Literal& value, int64_t except_dim = -1) {
  std::string result(name(value.dtype()));
  result += '[';
  for (size_t d = 0; d < value.rank(); ++d) result += (d > 0 ? ", " : "") + (static_cast<int64_t>(d) == except_dim ? "*" : std::to_string(value.sizes()[d]));
  return result + "]";
}

Literal ThreadCommunicator::all_reduce(const Literal& value, ReduceKind kind, std::span<const int> group) {
  check_group(group);
  check_reduce_dtype(kind, value.dtype());
  if (group.size() == 1) return value;
  const std::string signature = "all_reduce " + std::string(name(kind)) + " " + value_text(value);
  const auto round = world_.arrive(rank_, group, value, signature, [](Round& r) {
    r.result = Literal::uninitialised(r.values[0].dtype(), r.values[0].sizes());
    r.elements = r.result.mutable_data();
  });
  // Each rank reduces its share for all; shares end on cache lines.
  const auto ranks = static_cast<int64_t>(group.size()), own = static_cast<int64_t>(place(group));
  const int64_t share = (value.count() / ranks + 64) / 64 * 64;
  std::vector<const Literal*> values;
  for (const Literal& v : round->values) values.push_back(&v);
  reduce_elements(kind, values, round->elements, std::min(own * share, value.count()),
                  own + 1 == ranks ? value.count() : std::min((own + 1) * share, value.count()));
  world_.leave(rank_, group, signature);
  return round->result;
}

Literal ThreadCommunicator::all_gather(const Literal& piece, int64_t dim, std::span<const int> group) {
  check_group(group);
  SG_CHECK(dim >= 0 && dim < static_cast<int64_t>(piece.rank()), "all_gather dim");
  if (group.size() == 1) return piece;
  const std::string signature = "all_gather dim " + std::to_string(dim) + " " + value_text(piece, dim);
  const auto round = world_.arrive(rank_, group, piece, signature, [dim](Round& r) {
    std::vector<const Literal*> pieces;
    for (const Literal& v : r.values) pieces.push_back(&v);
    r.result = join_dim(pieces, dim);
  });
  return round->result;
}

Literal ThreadCommunicator::reduce_scatter(const Literal& value, ReduceKind kind, int64_t dim, int64_t start, int64_t size, std::span<const int> group) {
  check_group(group);
  check_reduce_dtype(kind, value.dtype());
  if (group.size() == 1) return slice_dim(value, dim, start, size);
  const std::string signature = "reduce_scatter " + std::string(name(kind)) + " dim " + std::to_string(dim) + " " + value_text(value);
  const auto round = world_.arrive(rank_, group, value, signature, [](Round&) {});
  std::vector<Literal> slices;
  std::vector<const Literal*> pieces;
  for (const Literal& v : round->values) slices.push_back(slice_dim(v, dim, start, size));
  for (const Literal& slice : slices) pieces.push_back(&slice);
  Literal result = Literal::uninitialised(value.dtype(), slices[0].sizes());
  reduce_elements(kind, pieces, result.mutable_data(), 0, result.count());
  return result;
}

Literal ThreadCommunicator::broadcast(const Literal& value, int root, std::span<const int> group) {
  check_group(group);
  const auto source = static_cast<size_t>(std::find(group.begin(), group.end(), root) - group.begin());
  SG_CHECK(source < group.size(), "broadcast from rank " + std::to_string(root) + ", group " + list_text(group));
  const auto round = world_.arrive(rank_, group, rank_ == root ? value : Literal(), "broadcast from rank " + std::to_string(root), [](Round&) {});
  return round->values[source];
}

void ThreadCommunicator::barrier(std::span<const int> group) {
  check_group(group);
  world_.arrive(rank_, group, Literal(), "barrier", [](Round&) {});
}

}  // namespace

void run_ranks(int count, const std::function<void(int rank, Communicator& communicator)>& body) {
  SG_CHECK(count >= 1, std::to_string(count) + " ranks");
  if (count > most_thread_ranks)
    throw UserError("found a mesh of " + std::to_string(count) + " devices, ranks as threads of one process are at most " + std::to_string(most_thread_ranks));
  World world(count);
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < count; ++rank) {
      threads.emplace_back([&world, &body, rank, count] {
        std::exception_ptr error;
        try {
          ThreadCommunicator communicator(world, rank, count);
          body(rank, communicator);
        } catch (...) {
          error = std::current_exception();
        }
        world.finish(rank, error);
      });
    }
  } catch (const std::system_error& error) {
    world.fail("cannot start rank " + std::to_string(threads.size()) + " of " + std::to_string(count) + ": " + error.what(), "", {});
  }
  for (std::thread& thread : threads) thread.join();
  if (world.failed()) world.rethrow_first();
}

std::unique_ptr<Communicator> lone_communicator() { return std::make_unique<ThreadCommunicator>(std::make_unique<World>(1)); }

}  // namespace stepgraph
