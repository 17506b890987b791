// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/zip_directory.h"
#include <fmt/core.h>
#include <unzip.h>
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include "stepgraph/base/error.h"

namespace stepgraph::pt2 {
namespace {

constexpr uint64_t members_max = 1'000'000;
constexpr size_t name_max = 1000;
constexpr uint64_t local_header_bytes = 30, directory_entry_bytes = 46;

// ---- the library reads from memory through these

struct Cursor {
  std::span<const std::byte> file;
  uint64_t at = 0;
};

voidpf open_cursor(voidpf opaque, const void*, int) { return new Cursor{*static_cast<const std::span<const std::byte>*>(opaque), 0}; }
uLong read_cursor(voidpf, voidpf stream, void* to, uLong count) {
  auto& cursor = *static_cast<Cursor*>(stream);
  const uint64_t taken = std::min<uint64_t>(count, cursor.file.size() - cursor.at);
  if (taken > 0) std::memcpy(to, cursor.file.data() + cursor.at, taken);
  cursor.at += taken;
  return taken;
}
uLong write_cursor(voidpf, voidpf, const void*, uLong) { return 0; }
ZPOS64_T tell_cursor(voidpf, voidpf stream) { return static_cast<Cursor*>(stream)->at; }
long seek_cursor(voidpf, voidpf stream, ZPOS64_T offset, int origin) {
  auto& cursor = *static_cast<Cursor*>(stream);
  const uint64_t base = origin == ZLIB_FILEFUNC_SEEK_SET ? 0 : origin == ZLIB_FILEFUNC_SEEK_CUR ? cursor.at : cursor.file.size();
  uint64_t target = 0;
  // A wrapped sum is a step back: the library counts in 64 bits.
  __builtin_add_overflow(base, offset, &target);
  if (target > cursor.file.size()) return -1;
  cursor.at = target;
  return 0;
}
int close_cursor(voidpf, voidpf stream) {
  delete static_cast<Cursor*>(stream);
  return 0;
}
int no_error(voidpf, voidpf) { return 0; }

struct CloseZip {
  void operator()(void* zip) const { unzClose(zip); }
};
using Zip = std::unique_ptr<void, CloseZip>;

// ---- checks

[[noreturn]] void fail(const std::string& where, const std::string& what) { throw UserError(where + ": " + what); }

/// Nothing, or what is wrong with the name.
std::optional<std::string> fault_of_name(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.front() == '/') return "is an absolute path";
  for (const char c : name) {
    if (c == '\\') return "has a backslash";
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "has a control character";
  }
  while (!name.empty()) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part == ".." || part == ".") return "has a part '" + std::string(part) + "'";
    if (part.empty()) return "has an empty part";
    name = slash == std::string_view::npos ? std::string_view{} : name.substr(slash + 1);
  }
  return {};
}

void check_entry(const unz_file_info64& info, const std::string& name, const std::string& where) {
  const std::string member = fmt::format("member '{}'", shown(name));
  if (const auto fault = fault_of_name(name)) fail(where, fmt::format("the name of {} {}", member, *fault));
  if ((info.flag & 1) != 0) fail(where, member + " is encrypted");
  // The upper half of the attributes is a Unix file mode, if there is one.
  const uint64_t kind = info.external_fa >> 28 & 0xf;
  if (kind == 0xa) fail(where, member + " is a symbolic link");
  if (kind != 0 && kind != 0x8 && kind != 0x4) fail(where, member + " is no ordinary file");
  if (info.compression_method != 0)
    fail(where, fmt::format("{} is compressed (method {}), wanted it stored: save the program again with torch.export.save", member, info.compression_method));
  if (info.compressed_size != info.uncompressed_size)
    fail(where, fmt::format("{} is stored in {} bytes but claims {}", member, info.compressed_size, info.uncompressed_size));
}

ZipMember read_entry(unzFile zip, uint64_t file_bytes, const std::string& where) {
  unz_file_info64 info{};
  std::string name(name_max + 1, '\0');
  if (unzGetCurrentFileInfo64(zip, &info, name.data(), name.size(), nullptr, 0, nullptr, 0) != UNZ_OK) fail(where, "the zip directory is damaged");
  if (info.size_filename > name_max) fail(where, fmt::format("a member's name has {} bytes, wanted at most {}", info.size_filename, name_max));
  name.resize(info.size_filename);
  if (!name.empty() && name.back() == '/' && info.uncompressed_size == 0) return {std::move(name), 0, 0, 0};
  check_entry(info, name, where);

  const std::string member = fmt::format("member '{}'", shown(name));
  if (unzOpenCurrentFile2(zip, nullptr, nullptr, 1) != UNZ_OK) fail(where, member + ": its header disagrees with the zip directory");
  const uint64_t begin = unzGetCurrentFileZStreamPos64(zip);
  unzCloseCurrentFile(zip);
  if (begin > file_bytes || info.uncompressed_size > file_bytes - begin)
    fail(where, fmt::format("{} claims {} bytes at offset {}, the file has only {}", member, info.uncompressed_size, begin, file_bytes));
  return {std::move(name), begin, info.uncompressed_size, static_cast<uint32_t>(info.crc)};
}

/// Sorts by place. `end` is where the directory begins.
void check_overlaps(std::vector<ZipMember>& members, uint64_t end, const std::string& where) {
  std::sort(members.begin(), members.end(), [](const ZipMember& a, const ZipMember& b) { return a.begin != b.begin ? a.begin < b.begin : a.size < b.size; });
  uint64_t taken = 0;
  for (const ZipMember& member : members) {
    // Its local header stands right before the data: at least so many bytes.
    const uint64_t header = local_header_bytes + member.name.size();
    if (member.begin < header || member.begin - header < taken) fail(where, fmt::format("member '{}' overlaps another one", shown(member.name)));
    taken = member.begin + member.size;
    if (taken > end) fail(where, fmt::format("member '{}' overlaps the zip directory", shown(member.name)));
  }
}

}  // namespace

std::string shown(std::string_view text) {
  constexpr size_t limit = 120;
  std::string result;
  for (const char c : text.substr(0, limit)) result += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text.size() > limit ? result + "..." : result;
}

std::vector<ZipMember> read_zip_directory(std::span<const std::byte> file, const std::string& where) {
  if (file.empty()) fail(where, "is empty, wanted a .pt2 archive");
  constexpr char magic[] = {'P', 'K', 3, 4};
  if (file.size() < sizeof magic || std::memcmp(file.data(), magic, sizeof magic) != 0) fail(where, "does not begin as a zip archive, wanted a .pt2 archive");

  zlib_filefunc64_def functions{open_cursor, read_cursor, write_cursor, tell_cursor, seek_cursor, close_cursor, no_error, &file};
  const Zip zip(unzOpen2_64("", &functions));
  if (zip == nullptr) fail(where, "is no whole zip archive: its directory is missing or damaged");
  unz_global_info64 global{};
  if (unzGetGlobalInfo64(zip.get(), &global) != UNZ_OK) fail(where, "the zip directory is damaged");
  if (global.number_entry > members_max || global.number_entry > file.size() / directory_entry_bytes)
    fail(where, fmt::format("claims {} members, too many for a file of {} bytes", global.number_entry, file.size()));

  std::vector<ZipMember> members;
  std::set<std::string> names;
  int state = global.number_entry == 0 ? UNZ_END_OF_LIST_OF_FILE : unzGoToFirstFile(zip.get());
  const uint64_t directory = unzGetOffset64(zip.get());
  for (uint64_t entry = 0; state == UNZ_OK; ++entry, state = unzGoToNextFile(zip.get())) {
    if (entry >= members_max) fail(where, "too many members");
    ZipMember member = read_entry(zip.get(), file.size(), where);
    if (!names.insert(member.name).second) fail(where, fmt::format("member '{}' is there twice", shown(member.name)));
    if (member.name.back() != '/') members.push_back(std::move(member));
  }
  if (state != UNZ_END_OF_LIST_OF_FILE) fail(where, "the zip directory is damaged");
  check_overlaps(members, directory, where);
  return members;
}

}  // namespace stepgraph::pt2
