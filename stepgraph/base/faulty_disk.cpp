// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>

#include "stepgraph/base/disk.h"

namespace stepgraph {
namespace {

/// A file or a directory, with what is seen now and what a power failure would leave.
struct Inode {
  bool directory = false;
  std::vector<std::byte> data, synced_data;
  std::map<std::string, std::shared_ptr<Inode>> children, synced_children;
};
using InodePtr = std::shared_ptr<Inode>;

[[noreturn]] void fail(const std::string& what, int error) { throw SystemError("cannot " + what + ": " + std::generic_category().message(error)); }

/// "/a//b/" and "a/b" are one path: the root stands for the working directory as well.
std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (start <= path.size()) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string part = path.substr(start, end - start);
    if (part == "..") throw SystemError("cannot use " + path + ": '..' is not supported by this disk");
    if (!part.empty() && part != ".") parts.push_back(part);
    start = end + 1;
  }
  return parts;
}

/// What the machine finds at `inode` when it comes back.
InodePtr survivor(const InodePtr& inode, CrashOutcome outcome) {
  auto result = std::make_shared<Inode>();
  result->directory = inode->directory;
  result->data = outcome == CrashOutcome::EverythingHeld ? inode->data : inode->synced_data;
  result->synced_data = result->data;
  const auto& children = outcome == CrashOutcome::SyncedOnly ? inode->synced_children : inode->children;
  for (const auto& [name, child] : children) result->children[name] = survivor(child, outcome);
  result->synced_children = result->children;
  return result;
}

}  // namespace

struct FaultyDisk::State {
  mutable std::mutex mutex;
  InodePtr root = std::make_shared<Inode>();
  int64_t operations = 0;
  std::optional<std::pair<int64_t, DiskFault>> request;
  bool crashed = false, full = false;
  int64_t generation = 0;  // restarts so far: a file open before one is dead after it

  State() { root->directory = true; }

  void refuse_if_crashed() const {
    if (crashed) throw DiskCrash("the disk has crashed");
  }

  /// To be called at the start of a write operation, `what` as in "cannot <what>". True: crash in the middle, after doing a part.
  bool begin(const std::string& what) {
    refuse_if_crashed();
    const int64_t number = operations++;
    if (!request || request->first != number) return false;
    const DiskFault fault = request->second;
    switch (fault) {
      case DiskFault::Error: fail(what, EIO);
      case DiskFault::Full: full = true; return false;
      case DiskFault::Crash: crashed = true; return true;
    }
    return false;
  }
  /// The same for an operation that a crash leaves undone.
  void begin_whole(const std::string& what) {
    if (begin(what)) throw DiskCrash("the disk crashed: " + what);
  }

  InodePtr find(const std::vector<std::string>& parts) const {
    InodePtr inode = root;
    for (const std::string& part : parts) {
      const auto child = inode->children.find(part);
      if (child == inode->children.end()) return nullptr;
      inode = child->second;
    }
    return inode;
  }
  InodePtr find(const std::string& path) const { return find(parts_of(path)); }

  InodePtr file(const std::string& path) const {
    const InodePtr inode = find(path);
    if (inode == nullptr) fail("open " + path, ENOENT);
    if (inode->directory) fail("read " + path, EISDIR);
    return inode;
  }

  /// The directory that holds the path's last part, and that part.
  std::pair<InodePtr, std::string> parent(const std::string& path, const std::string& what) const {
    std::vector<std::string> parts = parts_of(path);
    if (parts.empty()) fail(what, EISDIR);
    std::string last = std::move(parts.back());
    parts.pop_back();
    InodePtr directory = find(parts);
    if (directory == nullptr) fail(what, ENOENT);
    if (!directory->directory) fail(what, ENOTDIR);
    return {std::move(directory), std::move(last)};
  }
};

namespace {

class FaultyFile : public DiskFile {
 public:
  using AppendFunction = std::function<void(std::span<const std::byte>)>;
  FaultyFile(AppendFunction append, std::function<void()> sync, std::function<void()> close)
      : append_(std::move(append)), sync_(std::move(sync)), close_(std::move(close)) {}
  void append(std::span<const std::byte> bytes) override { append_(bytes); }
  void sync() override { sync_(); }
  void close() override { close_(); }

 private:
  AppendFunction append_;
  std::function<void()> sync_, close_;
};

}  // namespace

FaultyDisk::FaultyDisk() : state_(std::make_shared<State>()) {}
FaultyDisk::~FaultyDisk() = default;

void FaultyDisk::fail_at(int64_t operation, DiskFault fault) {
  const std::lock_guard lock(state_->mutex);
  state_->request = {operation, fault};
}
void FaultyDisk::clear_fault() {
  const std::lock_guard lock(state_->mutex);
  state_->request.reset();
  state_->full = false;
}
int64_t FaultyDisk::write_operations() const {
  const std::lock_guard lock(state_->mutex);
  return state_->operations;
}
bool FaultyDisk::crashed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->crashed;
}
void FaultyDisk::restart(CrashOutcome outcome) {
  const std::lock_guard lock(state_->mutex);
  state_->root = survivor(state_->root, outcome);
  state_->request.reset();
  state_->crashed = state_->full = false;
  ++state_->generation;
}
void FaultyDisk::flip_bit(const std::string& path, int64_t byte, int bit) {
  const std::lock_guard lock(state_->mutex);
  const InodePtr inode = state_->file(path);
  const auto index = static_cast<size_t>(byte);
  SG_CHECK(index < inode->data.size() && bit >= 0 && bit < 8);
  inode->data[index] ^= std::byte{1} << bit;
  if (index < inode->synced_data.size()) inode->synced_data[index] = inode->data[index];
}
void FaultyDisk::truncate(const std::string& path, int64_t size) {
  const std::lock_guard lock(state_->mutex);
  const InodePtr inode = state_->file(path);
  SG_CHECK(size >= 0 && static_cast<size_t>(size) <= inode->data.size());
  inode->data.resize(static_cast<size_t>(size));
  inode->synced_data.resize(std::min(inode->synced_data.size(), inode->data.size()));
}

std::vector<std::byte> FaultyDisk::read(const std::string& path, int64_t limit) const {
  const std::lock_guard lock(state_->mutex);
  state_->refuse_if_crashed();
  const InodePtr inode = state_->file(path);
  if (static_cast<int64_t>(inode->data.size()) > limit)
    throw SystemError("cannot read " + path + ": found " + std::to_string(inode->data.size()) + " bytes, the limit is " + std::to_string(limit));
  return inode->data;
}

std::vector<std::byte> FaultyDisk::read_range(const std::string& path, int64_t offset, int64_t count) const {
  const std::lock_guard lock(state_->mutex);
  state_->refuse_if_crashed();
  const InodePtr inode = state_->file(path);
  const auto size = static_cast<int64_t>(inode->data.size());
  if (offset < 0 || count < 0 || offset > size || count > size - offset)
    throw SystemError("cannot read " + path + ": wanted " + std::to_string(count) + " bytes from " + std::to_string(offset) + ", it has " +
                      std::to_string(size));
  const auto begin = inode->data.begin() + offset;
  return {begin, begin + count};
}

int64_t FaultyDisk::file_size(const std::string& path) const {
  const std::lock_guard lock(state_->mutex);
  state_->refuse_if_crashed();
  return static_cast<int64_t>(state_->file(path)->data.size());
}
bool FaultyDisk::exists(const std::string& path) const {
  const std::lock_guard lock(state_->mutex);
  state_->refuse_if_crashed();
  return state_->find(path) != nullptr;
}
bool FaultyDisk::is_directory(const std::string& path) const {
  const std::lock_guard lock(state_->mutex);
  state_->refuse_if_crashed();
  const InodePtr inode = state_->find(path);
  return inode != nullptr && inode->directory;
}
std::vector<std::string> FaultyDisk::list(const std::string& directory) const {
  const std::lock_guard lock(state_->mutex);
  state_->refuse_if_crashed();
  const InodePtr inode = state_->find(directory);
  if (inode == nullptr) fail("list " + directory, ENOENT);
  if (!inode->directory) fail("list " + directory, ENOTDIR);
  std::vector<std::string> names;
  for (const auto& [name, child] : inode->children) names.push_back(name);
  return names;
}

void FaultyDisk::make_directories(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  state_->begin_whole("make directory " + path);
  if (state_->full && state_->find(path) == nullptr) fail("make directory " + path, ENOSPC);
  InodePtr inode = state_->root;
  for (const std::string& part : parts_of(path)) {
    InodePtr& child = inode->children[part];
    if (child == nullptr) {
      child = std::make_shared<Inode>();
      child->directory = true;
    }
    if (!child->directory) fail("make directory " + path, ENOTDIR);
    inode = child;
  }
}

std::unique_ptr<DiskFile> FaultyDisk::create(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  const std::string what = "create " + path;
  state_->begin_whole(what);
  if (state_->full) fail(what, ENOSPC);
  const auto [directory, name] = state_->parent(path, what);
  InodePtr& inode = directory->children[name];
  if (inode != nullptr && inode->directory) fail(what, EISDIR);
  // Truncating keeps the file: what was synced of it is there until new bytes are.
  if (inode == nullptr) inode = std::make_shared<Inode>();
  inode->data.clear();

  // The file shares the state, so it may outlive the disk.
  const auto guarded = [state = state_, file = inode, path, generation = state_->generation, open = std::make_shared<bool>(true)](auto body) {
    const std::lock_guard file_lock(state->mutex);
    state->refuse_if_crashed();
    if (state->generation != generation) throw DiskCrash("the disk was restarted while " + path + " was open");
    SG_CHECK(*open, path + " is closed");
    body(*state, *file, *open);
  };
  return std::make_unique<FaultyFile>(
      [guarded, path](std::span<const std::byte> bytes) {
        guarded([&](State& state, Inode& file, bool&) {
          const bool crash = state.begin("write " + path);
          const size_t count = crash || state.full ? bytes.size() / 2 : bytes.size();
          file.data.insert(file.data.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
          if (crash) throw DiskCrash("the disk crashed: write " + path);
          if (state.full) fail("write " + path, ENOSPC);
        });
      },
      [guarded, path] {
        guarded([&](State& state, Inode& file, bool&) {
          state.begin_whole("sync " + path);
          file.synced_data = file.data;
        });
      },
      [guarded, path] {
        guarded([&](State& state, Inode&, bool& open) {
          open = false;
          state.begin_whole("close " + path);
        });
      });
}

void FaultyDisk::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(state_->mutex);
  const std::string what = "rename " + from + " to " + to;
  state_->begin_whole(what);
  const auto [source, source_name] = state_->parent(from, what);
  const auto [target, target_name] = state_->parent(to, what);
  const auto moved = source->children.find(source_name);
  if (moved == source->children.end()) fail(what, ENOENT);
  const InodePtr inode = moved->second;
  if (to == from) return;
  const auto replaced = target->children.find(target_name);
  if (replaced != target->children.end()) {
    if (replaced->second->directory && !inode->directory) fail(what, EISDIR);
    if (!replaced->second->directory && inode->directory) fail(what, ENOTDIR);
    if (replaced->second->directory && !replaced->second->children.empty()) fail(what, ENOTEMPTY);
  }
  source->children.erase(moved);
  target->children[target_name] = inode;
}

void FaultyDisk::remove_tree(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  const std::string what = "remove " + path;
  const bool crash = state_->begin(what);
  if (state_->find(path) != nullptr) {
    const auto [directory, name] = state_->parent(path, what);
    if (crash) {
      // Files go one by one: the crash finds the tree in half.
      auto& children = directory->children.at(name)->children;
      children.erase(children.begin(), std::next(children.begin(), static_cast<std::ptrdiff_t>(children.size() / 2)));
    } else {
      directory->children.erase(name);
    }
  }
  if (crash) throw DiskCrash("the disk crashed: " + what);
}

void FaultyDisk::sync_directory(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  state_->begin_whole("sync directory " + path);
  const InodePtr inode = state_->find(path);
  if (inode == nullptr) fail("open directory " + path, ENOENT);
  if (!inode->directory) fail("open directory " + path, ENOTDIR);
  inode->synced_children = inode->children;
}

}  // namespace stepgraph
