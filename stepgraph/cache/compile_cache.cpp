// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/cache/compile_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "stepgraph/base/descriptor.h"
#include "stepgraph/base/disk.h"
#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/base/section_file.h"

namespace stepgraph {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> section_names{"key", "about", "content"};
constexpr SectionFile entry_file{"sgcache\n", 1, "cache entry", section_names};
constexpr std::string_view entry_ending = ".entry", writing_prefix = ".writing-";
/// A writer that has not come to an end in this time was killed.
constexpr int64_t writer_seconds = 3600;
/// More than any key is long.
constexpr int64_t key_bytes_max = int64_t{1} << 20;

/// A file of the cache.
struct Found {
  std::string path;
  int64_t bytes = 0;
  fs::file_time_type used;
  bool is_entry = false;  ///< else what a writer left, or writes

  /// Of a clock that was put back: used just now.
  int64_t unused_seconds() const {
    return std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(fs::file_time_type::clock::now() - used).count());
  }
};

bool is_hash(std::string_view text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_kind(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

/// Files that come and go meanwhile are there or not.
void add_files(const fs::path& folder, std::vector<Found>& found) {
  std::error_code error;
  for (auto file = fs::directory_iterator(folder, error); !error && file != fs::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    Found one;
    one.is_entry = name.ends_with(entry_ending) && is_hash(name.substr(0, name.size() - entry_ending.size()));
    if (!one.is_entry && !name.starts_with(writing_prefix)) continue;
    std::error_code gone;
    one.path = file->path().string();
    const uintmax_t bytes = file->file_size(gone);
    if (gone) continue;
    one.used = file->last_write_time(gone);
    if (gone) continue;
    one.bytes = static_cast<int64_t>(bytes);
    found.push_back(std::move(one));
  }
}

/// Of one kind; empty: of all. The last used first.
std::vector<Found> files_of(const std::string& folder, const std::string& kind) {
  std::vector<Found> found;
  if (!kind.empty()) add_files(fs::path(folder) / kind, found);
  std::error_code error;
  for (auto sub = fs::directory_iterator(folder, error); kind.empty() && !error && sub != fs::directory_iterator(); sub.increment(error)) {
    std::error_code gone;
    if (is_kind(sub->path().filename().string()) && sub->is_directory(gone)) add_files(sub->path(), found);
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.used != b.used ? a.used > b.used : a.path < b.path; });
  return found;
}

CacheEntry entry_of(const Found& file, bool whole) {
  CacheEntry entry;
  entry.path = file.path;
  entry.bytes = file.bytes;
  entry.unused_seconds = file.unused_seconds();
  try {
    // From one open file: another may take its place meanwhile.
    FileReader reader(file.path);
    std::string bytes(static_cast<size_t>(whole ? reader.bytes() : std::min(reader.bytes(), key_bytes_max)), '\0');
    bytes.resize(reader.read(bytes));
    const auto sections = whole ? read_sections(entry_file, bytes, file.path) : read_first_sections(entry_file, bytes, file.path, 2);
    entry.key = key_of_bytes(sections[0]);
    entry.about = sections[1];
    if (fs::path(file.path).stem() != entry.key.hash().text()) throw UserError(file.path + ": cache entry stands under another name");
  } catch (const Error& problem) {
    entry.problem = problem.what();
  }
  return entry;
}

/// Nothing where there is no file.
std::optional<std::string> read_if_there(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  const auto fail = [&](int error) { throw SystemError(path + ": cannot read cache entry: " + cause(error)); };
  struct stat info{};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) fail(errno);
  if (!S_ISREG(info.st_mode)) throw SystemError(path + ": is not a regular file");
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::pread(file.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    if (count == 0) bytes.resize(done);
    done += static_cast<size_t>(count);
  }
  return bytes;
}

std::string unique_name() {
  static std::atomic<int64_t> count{0};
  return std::string(writing_prefix) + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

}  // namespace

std::string CompileCache::path(const CacheKey& key) const {
  SG_CHECK(is_kind(key.kind), "a kind of cache entries: " + key.kind);
  return options_.folder + "/" + key.kind + "/" + key.hash().text() + std::string(entry_ending);
}

void CompileCache::warn(const std::string& about_file, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (warned_.insert(about_file).second && options_.warn) options_.warn("compile cache: " + message);
}

/// Machine code is run from it: so it must not be everyone's to write.
bool CompileCache::is_trusted() {
  {
    const std::lock_guard lock(mutex_);
    if (trusted_) return *trusted_;
    struct stat info{};
    const bool exists = ::stat(options_.folder.c_str(), &info) == 0;
    if (!exists) return true;  // will be made by this process, or another one
    trusted_ = (info.st_mode & S_IWOTH) == 0;
    if (*trusted_) return true;
  }
  warn(options_.folder, options_.folder + " can be written by every user of this machine, so it is not used: the code in it would be run");
  return false;
}

std::optional<std::string> CompileCache::find(const CacheKey& key) {
  std::optional<std::string> found = read(key);
  if (options_.asked) options_.asked(key, found.has_value());
  return found;
}

std::optional<std::string> CompileCache::read(const CacheKey& key) {
  if (!is_trusted()) return std::nullopt;
  const std::string file = path(key);
  try {
    const std::optional<std::string> bytes = read_if_there(file);
    if (!bytes) return std::nullopt;
    const std::vector<std::string_view> sections = read_sections(entry_file, *bytes, file);
    if (sections[0] != key_bytes(key)) throw UserError(file + ": cache entry of another key");
    std::error_code ignored;
    if (!options_.read_only) fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);  // where it may not be changed it is only evicted sooner
    return std::string(sections[2]);
  } catch (const Error& problem) {
    warn(file, std::string(problem.what()) + "; it is made again");
    return std::nullopt;
  }
}

void CompileCache::reject(const CacheKey& key, const std::string& why) { warn(path(key), path(key) + ": " + why + "; it is made again"); }

/// Not synced: after a crash of the machine an entry may be damaged, and is found to be.
void CompileCache::write(const std::string& kind, const std::string& to, std::string_view bytes) {
  const std::unique_ptr<Disk> disk = posix_disk();
  const std::string folder = options_.folder + "/" + kind;
  const bool is_new = !disk->exists(options_.folder);
  disk->make_directories(folder);
  if (is_new) fs::permissions(options_.folder, fs::perms::owner_all);
  const std::string beside = folder + "/" + unique_name();
  try {
    const std::unique_ptr<DiskFile> file = disk->create(beside);
    file->append(bytes);
    file->close();
    disk->rename(beside, to);
  } catch (...) {
    std::error_code ignored;
    fs::remove(beside, ignored);
    throw;
  }
}

void CompileCache::store(const CacheKey& key, std::string_view about, std::string_view content) {
  constexpr int tries = 3;  // a folder may be cleared meanwhile
  {
    const std::lock_guard lock(mutex_);
    if (!writable_ || options_.read_only) return;
  }
  if (!is_trusted()) return;
  const std::array<std::string, 3> sections{key_bytes(key), std::string(about), std::string(content)};
  const std::string bytes = section_file_bytes(entry_file, sections);
  if (static_cast<int64_t>(bytes.size()) > options_.limit_bytes) return;
  for (int i = 1;; ++i) {
    try {
      return write(key.kind, path(key), bytes);
    } catch (const std::exception& problem) {
      std::error_code error;
      if (i < tries && !fs::exists(options_.folder + "/" + key.kind, error)) continue;
      warn(options_.folder, std::string(problem.what()) + "; what was compiled is not kept");
      const std::lock_guard lock(mutex_);
      writable_ = false;
      return;
    }
  }
}

void CompileCache::trim() {
  if (options_.read_only) return;
  int64_t total = 0;
  std::error_code ignored;  // another process may be first
  for (const Found& file : files_of(options_.folder, "")) {
    if (file.is_entry) total += file.bytes;
    const bool goes = file.is_entry ? total > options_.limit_bytes : file.unused_seconds() > writer_seconds;
    if (goes) fs::remove(file.path, ignored);
  }
}

std::optional<CacheEntry> CompileCache::nearest(const CacheKey& key) const {
  std::optional<CacheEntry> best;
  size_t fewest = 0;
  for (const Found& file : files_of(options_.folder, key.kind)) {
    if (!file.is_entry) continue;
    CacheEntry entry = entry_of(file, false);
    if (!entry.problem.empty()) continue;
    const size_t count = differences(entry.key, key).size();
    if (best && count >= fewest) continue;
    fewest = count;
    best = std::move(entry);
  }
  return best;
}

std::vector<CacheEntry> CompileCache::entries(bool whole) const {
  std::vector<CacheEntry> found;
  for (const Found& file : files_of(options_.folder, "")) {
    if (!file.is_entry) continue;
    CacheEntry entry = entry_of(file, whole);
    std::error_code error;
    // One that another process removed and put there again meanwhile is read again; a damaged one stays so.
    for (int tries = 0; tries < 3 && !entry.problem.empty() && fs::exists(file.path, error); ++tries) entry = entry_of(file, whole);
    if (entry.problem.empty() || fs::exists(file.path, error)) found.push_back(std::move(entry));
  }
  std::sort(found.begin(), found.end(), [](const CacheEntry& a, const CacheEntry& b) {
    const auto place = [](const CacheEntry& entry) { return std::tuple(fs::path(entry.path).parent_path(), entry.unused_seconds, entry.path); };
    return place(a) < place(b);
  });
  return found;
}

std::string CompileCache::content(const CacheEntry& entry) const {
  const std::string bytes = read_file(entry.path);
  return std::string(read_sections(entry_file, bytes, entry.path)[2]);
}

CompileCache::Cleared CompileCache::clear() {
  Cleared cleared;
  for (const Found& file : files_of(options_.folder, "")) {
    std::error_code error;
    if (!file.is_entry && file.unused_seconds() <= writer_seconds) continue;  // is being written
    if (!fs::remove(file.path, error) || !file.is_entry) continue;
    ++cleared.entries;
    cleared.bytes += file.bytes;
  }
  return cleared;
}

}  // namespace stepgraph
