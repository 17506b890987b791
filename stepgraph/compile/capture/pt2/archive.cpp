// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/archive.h"
#include <fcntl.h>
#include <fmt/core.h>
#include <libdeflate.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <map>
#include <system_error>
#include <thread>
#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/crc32.h"
#include "stepgraph/compile/capture/pt2/zip_directory.h"

namespace stepgraph::pt2 {
namespace {

static_assert(std::endian::native == std::endian::little, "payloads are used as they are stored");

constexpr size_t chunk_bytes = size_t{4} << 20;
constexpr size_t parallel_bytes = size_t{32} << 20;
constexpr unsigned threads_max = 4;
constexpr int64_t copy_allowance = int64_t{64} << 20;

constexpr const char* export_archive_again = "export the model again with PyTorch 2.9 or newer (torch.export.save)";

[[noreturn]] void archive_error(const std::string& where, const std::string& what) { throw UserError(where + ": " + what); }

/// A whole file, read only; unmapped at the end.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const auto failed = [&](const char* what) { throw SystemError(fmt::format("cannot {} {}: {}", what, path, std::generic_category().message(errno))); };
    // A pipe must not block.
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) archive_error("cannot open " + path, std::generic_category().message(errno));
    struct Close {
      int file;
      ~Close() { ::close(file); }
    } const close{file};
    struct stat info {};
    if (::fstat(file, &info) != 0) failed("read");
    if (!S_ISREG(info.st_mode)) archive_error(path, "is no ordinary file, wanted a .pt2 archive");
    size_ = static_cast<size_t>(info.st_size);
    if (size_ == 0) return;
    void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    if (at == MAP_FAILED) failed("map");
    data_ = static_cast<const std::byte*>(at);
  }
  ~Mapping() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// What was looked at need not stay in memory: it comes back from the file when it is read.
  void let_go() const {
    if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
  }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct Member {
  std::span<const std::byte> bytes;
  uint32_t crc = 0;
  std::atomic<bool> right = false;
};

uint32_t crc_of(std::span<const std::byte> bytes) { return libdeflate_crc32(0, bytes.data(), bytes.size()); }

}  // namespace

struct Pt2Archive::State {
  std::string path;
  std::shared_ptr<const void> storage;
  std::shared_ptr<const Mapping> mapping;  // of a file: it is the storage
  std::span<const std::byte> file;
  std::map<std::string, Member, std::less<>> members;
  std::atomic<int64_t> copied = 0;

  void read_directory();
  void check_kind() const;
  Member& find(std::string_view name);
  std::string text(std::string_view name);
  void check_header();
  [[noreturn]] void wrong_crc(std::string_view name) const {
    archive_error(path, fmt::format("member '{}' is damaged: its CRC-32 differs from the one in the zip directory", shown(name)));
  }
};

void Pt2Archive::State::read_directory() {
  std::string folder;
  for (ZipMember& member : read_zip_directory(file, path)) {
    const size_t slash = member.name.find('/');
    // Older containers have names without a folder: kept as they are, for check_kind to see.
    const std::string first = slash == std::string::npos ? std::string() : member.name.substr(0, slash);
    std::string name = slash == std::string::npos ? member.name : member.name.substr(slash + 1);
    if (members.empty()) folder = first;
    if (first != folder && name != "serialized_exported_program.json" && !members.contains("serialized_exported_program.json"))
      archive_error(path, fmt::format("members '{}' and '{}' are in different first folders, wanted one", shown(folder), shown(first)));
    Member& entry = members[std::move(name)];
    entry.bytes = file.subspan(member.begin, member.size);
    entry.crc = member.crc;
  }
}

void Pt2Archive::State::check_kind() const {
  if (members.contains("archive_format")) return;
  for (const auto& [name, member] : members) {
    if (name == "serialized_exported_program.json")
      archive_error(path, fmt::format("is an exported program in the form of PyTorch 2.8 or older, which holds pickles: {}", export_archive_again));
    if (name == "data.pkl" || name == "constants.pkl")
      archive_error(path, fmt::format("holds pickled objects (torch.save or torch.jit.save), wanted an exported program: {}", export_archive_again));
  }
  archive_error(path, "has no member archive_format, wanted a .pt2 archive of torch.export.save");
}

Member& Pt2Archive::State::find(std::string_view name) {
  const auto at = members.find(name);
  if (at == members.end()) archive_error(path, fmt::format("has no member '{}'", shown(name)));
  return at->second;
}

std::string Pt2Archive::State::text(std::string_view name) {
  Member& member = find(name);
  if (crc_of(member.bytes) != member.crc) wrong_crc(name);
  member.right = true;
  std::string result(reinterpret_cast<const char*>(member.bytes.data()), std::min<size_t>(member.bytes.size(), 100));
  while (!result.empty() && (result.back() == '\n' || result.back() == '\r' || result.back() == ' ')) result.pop_back();
  return result;
}

void Pt2Archive::State::check_header() {
  if (const std::string format = text("archive_format"); format != "pt2") archive_error(path, fmt::format("archive_format is '{}', wanted 'pt2'", shown(format)));
  if (const std::string version = text("archive_version"); version != "0")
    archive_error(path, fmt::format("archive_version is '{}', wanted '0': {}", shown(version), "a newer stepgraph may read it"));
  if (const std::string order = text("byteorder"); order != "little")
    archive_error(path, fmt::format("byteorder is '{}', wanted 'little': export the model on a little-endian machine", shown(order)));
}

Pt2Archive::Pt2Archive(const std::string& path) : state_(std::make_shared<State>()) {
  state_->mapping = std::make_shared<const Mapping>(path);
  state_->path = path;
  state_->storage = state_->mapping;
  state_->file = state_->mapping->bytes();
  state_->read_directory();
  state_->check_kind();
  state_->check_header();
}

Pt2Archive::Pt2Archive(std::vector<std::byte> bytes, std::string name) : state_(std::make_shared<State>()) {
  const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  state_->path = std::move(name);
  state_->storage = kept;
  state_->file = *kept;
  state_->read_directory();
  state_->check_kind();
  state_->check_header();
}

const std::string& Pt2Archive::path() const { return state_->path; }
int64_t Pt2Archive::file_bytes() const { return static_cast<int64_t>(state_->file.size()); }
std::shared_ptr<const void> Pt2Archive::storage() const { return state_->storage; }
bool Pt2Archive::has(std::string_view name) const { return state_->members.contains(name); }

std::vector<std::string> Pt2Archive::names() const {
  std::vector<std::string> result;
  for (const auto& [name, member] : state_->members) result.push_back(name);
  return result;
}

std::span<const std::byte> Pt2Archive::member(std::string_view name) const {
  Member& member = state_->find(name);
  if (!member.right) {
    if (crc_of(member.bytes) != member.crc) state_->wrong_crc(name);
    member.right = true;
  }
  return member.bytes;
}

void Pt2Archive::verify(std::span<const std::string> names) const {
  struct Chunk {
    const std::string* name;
    Member* member;
    size_t begin, size;
    uint32_t crc = 0;
  };
  std::vector<Chunk> chunks;
  size_t bytes = 0;
  for (const std::string& name : names) {
    Member& member = state_->find(name);
    if (member.right) continue;
    bytes += member.bytes.size();
    size_t begin = 0;
    do {
      const size_t size = std::min(chunk_bytes, member.bytes.size() - begin);
      chunks.push_back({&name, &member, begin, size});
      begin += size;
    } while (begin < member.bytes.size());
  }
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < chunks.size(); i = next++) chunks[i].crc = crc_of(chunks[i].member->bytes.subspan(chunks[i].begin, chunks[i].size));
  };
  std::vector<std::jthread> helpers;
  if (bytes >= parallel_bytes)
    for (unsigned i = 1; i < std::min(threads_max, std::thread::hardware_concurrency()); ++i) helpers.emplace_back(work);
  work();
  for (std::jthread& helper : helpers) helper.join();

  uint32_t crc = 0;
  for (const Chunk& chunk : chunks) {
    crc = chunk.begin == 0 ? chunk.crc : crc32_joined(crc, chunk.crc, chunk.size);
    if (chunk.begin + chunk.size < chunk.member->bytes.size()) continue;
    if (crc != chunk.member->crc) state_->wrong_crc(*chunk.name);
    chunk.member->right = true;
  }
  if (state_->mapping) state_->mapping->let_go();
}

void Pt2Archive::charge_copy(int64_t bytes, const std::string& what) const {
  const int64_t limit = 4 * file_bytes() + copy_allowance;
  const int64_t before = state_->copied.fetch_add(std::min(bytes, limit + 1));
  if (bytes > limit || before > limit - bytes)
    archive_error(path(), fmt::format("{}: strided views would be copied to more than {} bytes out of a file of {}", what, limit, file_bytes()));
}

}  // namespace stepgraph::pt2
