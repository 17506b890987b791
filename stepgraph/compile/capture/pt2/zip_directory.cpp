// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/compile/capture/pt2/zip_directory.h"
#include <fmt/core.h>
#include <unzip.h>
#include <algorithm>
#include <array>
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

[[noreturn]] void zip_error(const std::string& where, const std::string& what) { throw UserError(where + ": " + what); }

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

// ---- fields of records, read where they stand: minizip 1.1 leaves out 64-bit ones on machines with a long of 64 bits

constexpr uint64_t in_extra = 0xffffffff;  // a 32-bit field that says: see the ZIP64 extra field

/// `count` little-endian bytes at `at`; nothing past the end.
std::optional<uint64_t> little(std::span<const std::byte> file, uint64_t at, size_t count) {
  if (at > file.size() || count > file.size() - at) return {};
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(file[at + i]);
  return value;
}

/// What the records at the end say of the directory.
struct End {
  uint64_t members = 0, begin = 0, size = 0;
};

/// Replaces the narrow numbers by those of the 64-bit records, which must say the same where both have room. True if there are such records; `end` is
/// where the ordinary end record begins, then where the 64-bit one does.
bool widen_end(std::span<const std::byte> file, uint64_t& end, End& found, const std::string& where) {
  constexpr uint64_t locator_bytes = 20, record_bytes = 56;
  constexpr uint64_t locator_signature = 0x07064b50, record_signature = 0x06064b50;
  if (end < locator_bytes || little(file, end - locator_bytes, 4) != locator_signature) return false;
  const auto fails = [&] { zip_error(where, "is no whole zip archive: its 64-bit end records disagree with the others"); };
  const uint64_t locator = end - locator_bytes, record = *little(file, locator + 8, 8);
  if (little(file, locator + 4, 4) != 0u || locator < record_bytes || record > locator - record_bytes || little(file, record, 4) != record_signature) fails();
  const auto field = [&](uint64_t offset, size_t count) { return *little(file, record + offset, count); };
  if (field(4, 8) != locator - record - 12 || field(16, 8) != 0 || field(24, 8) != field(32, 8)) fails();
  const auto widen = [&](uint64_t& narrow, uint64_t full, uint64_t wide) {
    if (narrow != full && narrow != wide) fails();
    narrow = wide;
  };
  widen(found.members, 0xffff, field(32, 8));
  widen(found.size, in_extra, field(40, 8));
  widen(found.begin, in_extra, field(48, 8));
  end = record;
  return true;
}

/// The end record, which must reach exactly the end of the file: of a file that was cut, or has something behind it, nobody knows what is missing.
End end_of(std::span<const std::byte> file, const std::string& where) {
  constexpr uint64_t record_bytes = 22, comment_max = 0xffff, signature = 0x06054b50;
  uint64_t at = file.size() < record_bytes ? 0 : file.size() - record_bytes;
  const uint64_t first = at > comment_max ? at - comment_max : 0;
  while (at > first && little(file, at, 4) != signature) --at;
  const auto field = [&](uint64_t offset, size_t count) { return little(file, at + offset, count).value_or(0); };
  if (field(0, 4) != signature || file.size() - at < record_bytes || at + record_bytes + field(20, 2) != file.size())
    zip_error(where, "is no whole zip archive: it does not end with an end record; was the file cut?");
  if (field(4, 4) != 0 || field(8, 2) != field(10, 2)) zip_error(where, "is a part of a zip archive of several files");
  End found{field(10, 2), field(16, 4), field(12, 4)};
  uint64_t end = at;
  if (!widen_end(file, end, found, where) && (found.begin == in_extra || found.size == in_extra))
    zip_error(where, "is no whole zip archive: it has no 64-bit end records where it says so");
  if (found.size > end || found.begin != end - found.size) zip_error(where, "the zip directory is damaged: it does not end where the end records begin");
  return found;
}

struct Entry {
  std::string name;
  uint64_t flags = 0, method = 0, crc = 0, stored = 0, size = 0, kind = 0, header = 0;
};

/// Replaces the fields that say so by those of the ZIP64 extra field; false if it lacks one.
bool widen(Entry& entry, std::span<const std::byte> extra) {
  std::array<uint64_t*, 3> fields = {&entry.size, &entry.stored, &entry.header};
  const auto narrow = [](const uint64_t* field) { return *field != in_extra; };
  if (std::all_of(fields.begin(), fields.end(), narrow)) return true;
  constexpr uint64_t zip64 = 1;
  uint64_t at = 0;
  for (auto id = little(extra, at, 2), size = little(extra, at + 2, 2); id && size; id = little(extra, at, 2), size = little(extra, at + 2, 2)) {
    at += 4;
    if (*size > extra.size() - at) return false;
    if (*id != zip64) {
      at += *size;
      continue;
    }
    extra = extra.subspan(at, *size);
    at = 0;
    for (uint64_t* field : fields) {
      if (narrow(field)) continue;
      const auto value = little(extra, at, 8);
      if (!value) return false;
      *field = *value;
      at += 8;
    }
    return true;
  }
  return false;
}

/// The directory entry at `at`.
Entry entry_at(std::span<const std::byte> file, uint64_t at, const std::string& where) {
  const auto field = [&](uint64_t offset, size_t count) {
    const auto value = little(file, at + offset, count);
    if (!value) zip_error(where, "the zip directory is damaged");
    return *value;
  };
  Entry entry;
  if (field(0, 4) != 0x02014b50) zip_error(where, "the zip directory is damaged");
  entry.flags = field(8, 2);
  entry.method = field(10, 2);
  entry.crc = field(16, 4);
  entry.stored = field(20, 4);
  entry.size = field(24, 4);
  // The upper half of the attributes is a Unix file mode, if there is one.
  entry.kind = field(38, 4) >> 28;
  entry.header = field(42, 4);
  const uint64_t name = field(28, 2), extra = field(30, 2);
  if (name > name_max) zip_error(where, fmt::format("a member's name has {} bytes, wanted at most {}", name, name_max));
  if (name + extra > file.size() - at - directory_entry_bytes) zip_error(where, "the zip directory is damaged");
  entry.name.assign(reinterpret_cast<const char*>(file.data()) + at + directory_entry_bytes, name);
  if (!widen(entry, file.subspan(at + directory_entry_bytes + name, extra)))
    zip_error(where, fmt::format("member '{}' has no 64-bit sizes where it says so", shown(entry.name)));
  return entry;
}

void check_entry(const Entry& entry, const std::string& where) {
  const std::string member = fmt::format("member '{}'", shown(entry.name));
  if (const auto fault = fault_of_name(entry.name)) zip_error(where, fmt::format("the name of {} {}", member, *fault));
  if ((entry.flags & 1) != 0) zip_error(where, member + " is encrypted");
  if (entry.kind == 0xa) zip_error(where, member + " is a symbolic link");
  if (entry.kind != 0 && entry.kind != 0x8 && entry.kind != 0x4) zip_error(where, member + " is no ordinary file");
  if (entry.method != 0)
    zip_error(where, fmt::format("{} is compressed (method {}), wanted it stored: save the program again with torch.export.save", member, entry.method));
  if (entry.stored != entry.size) zip_error(where, fmt::format("{} is stored in {} bytes but claims {}", member, entry.stored, entry.size));
}

/// Where the data begins, behind a local header that says the same as the directory.
uint64_t data_begin(std::span<const std::byte> file, const Entry& entry, const std::string& where) {
  constexpr uint64_t sizes_follow = 8;  // flag: sizes and checksum are behind the data
  const auto differs = [&] { zip_error(where, fmt::format("member '{}': its header disagrees with the zip directory", shown(entry.name))); };
  if (entry.header > file.size() || file.size() - entry.header < local_header_bytes) differs();
  const auto field = [&](uint64_t offset, size_t count) { return little(file, entry.header + offset, count).value_or(0); };
  if (field(0, 4) != 0x04034b50 || field(8, 2) != entry.method || (field(6, 2) & 1) != 0) differs();
  if ((field(6, 2) & sizes_follow) == 0 && (field(14, 4) != entry.crc || (field(22, 4) != entry.size && field(22, 4) != in_extra))) differs();
  const uint64_t name = field(26, 2), extra = field(28, 2);
  const uint64_t begin = entry.header + local_header_bytes + name + extra;
  if (name != entry.name.size() || begin > file.size()) differs();
  if (std::memcmp(file.data() + entry.header + local_header_bytes, entry.name.data(), name) != 0) differs();
  if (entry.size > file.size() - begin)
    zip_error(where, fmt::format("member '{}' claims {} bytes at offset {}, the file has only {}", shown(entry.name), entry.size, begin, file.size()));
  return begin;
}

/// Sorts by place. `end` is where the directory begins.
void check_overlaps(std::vector<ZipMember>& members, uint64_t end, const std::string& where) {
  std::sort(members.begin(), members.end(), [](const ZipMember& a, const ZipMember& b) { return a.begin != b.begin ? a.begin < b.begin : a.size < b.size; });
  uint64_t taken = 0;
  for (const ZipMember& member : members) {
    if (member.header < taken) zip_error(where, fmt::format("member '{}' overlaps another one", shown(member.name)));
    taken = member.begin + member.size;
    if (taken > end) zip_error(where, fmt::format("member '{}' overlaps the zip directory", shown(member.name)));
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
  if (file.empty()) zip_error(where, "is empty, wanted a .pt2 archive");
  constexpr char magic[] = {'P', 'K', 3, 4};
  if (file.size() < sizeof magic || std::memcmp(file.data(), magic, sizeof magic) != 0) zip_error(where, "does not begin as a zip archive, wanted a .pt2 archive");

  const End end = end_of(file, where);
  zlib_filefunc64_def functions{open_cursor, read_cursor, write_cursor, tell_cursor, seek_cursor, close_cursor, no_error, &file};
  const Zip zip(unzOpen2_64("", &functions));
  if (zip == nullptr) zip_error(where, "is no whole zip archive: its directory is missing or damaged");
  unz_global_info64 global{};
  if (unzGetGlobalInfo64(zip.get(), &global) != UNZ_OK) zip_error(where, "the zip directory is damaged");
  if (global.number_entry != end.members) zip_error(where, "the zip directory is damaged");
  if (global.number_entry > members_max || global.number_entry > file.size() / directory_entry_bytes)
    zip_error(where, fmt::format("claims {} members, too many for a file of {} bytes", global.number_entry, file.size()));

  std::vector<ZipMember> members;
  std::set<std::string> names;
  int state = global.number_entry == 0 ? UNZ_END_OF_LIST_OF_FILE : unzGoToFirstFile(zip.get());
  const uint64_t directory = unzGetOffset64(zip.get());
  if (end.members > 0 && directory != end.begin) zip_error(where, "the zip directory is damaged");
  for (uint64_t entry = 0; state == UNZ_OK; ++entry, state = unzGoToNextFile(zip.get())) {
    if (entry >= members_max) zip_error(where, "too many members");
    Entry found = entry_at(file, unzGetOffset64(zip.get()), where);
    if (!names.insert(found.name).second) zip_error(where, fmt::format("member '{}' is there twice", shown(found.name)));
    if (found.name.ends_with('/') && found.size == 0) continue;
    check_entry(found, where);
    const uint64_t begin = data_begin(file, found, where);
    members.push_back({std::move(found.name), found.header, begin, found.size, static_cast<uint32_t>(found.crc)});
  }
  if (state != UNZ_END_OF_LIST_OF_FILE) zip_error(where, "the zip directory is damaged");
  check_overlaps(members, end.begin, where);
  return members;
}

}  // namespace stepgraph::pt2
