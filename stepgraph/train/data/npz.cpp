// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <zip.h>
#include <algorithm>
#include <cstring>
#include <memory>
#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/train/data/arrays.h"
#include "stepgraph/train/data/npy.h"

namespace stepgraph {
namespace {

// Deflate cannot expand by more than 1032; a few bytes of slack for tiny members.
constexpr uint64_t expansion_max = 1040;
constexpr uint64_t expansion_slack = 1024;

struct ZipCloser {
  void operator()(zip_t* zip) const { zip_discard(zip); }
  void operator()(zip_source_t* source) const { zip_source_free(source); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Zip = std::unique_ptr<zip_t, ZipCloser>;
using ZipSource = std::unique_ptr<zip_source_t, ZipCloser>;
using ZipFile = std::unique_ptr<zip_file_t, ZipCloser>;

class ZipStatus {
 public:
  ZipStatus() { zip_error_init(&error_); }
  ~ZipStatus() { zip_error_fini(&error_); }
  ZipStatus(const ZipStatus&) = delete;
  ZipStatus& operator=(const ZipStatus&) = delete;
  zip_error_t* get() { return &error_; }
  std::string text() { return zip_error_strerror(&error_); }

 private:
  zip_error_t error_;
};

Zip open_bytes(std::span<const std::byte> bytes, const std::string& file) {
  ZipStatus status;
  ZipSource source(zip_source_buffer_create(bytes.data(), bytes.size(), 0, status.get()));
  if (!source) throw SystemError(fmt::format("{}: {}", file, status.text()));
  Zip zip(zip_open_from_source(source.get(), ZIP_RDONLY, status.get()));
  if (!zip) throw UserError(fmt::format("{}: not a zip archive, wanted an .npz file ({})", file, status.text()));
  source.release();  // owned by the archive now
  return zip;
}

struct Member {
  zip_uint64_t index = 0;
  std::string name;  // without ".npy"
  int64_t bytes = 0;
};

Member member_at(zip_t* zip, zip_uint64_t index, uint64_t archive_bytes, const std::string& file) {
  zip_stat_t stat;
  zip_stat_init(&stat);
  if (zip_stat_index(zip, index, ZIP_FL_ENC_RAW, &stat) != 0)
    throw UserError(fmt::format("{}: member {}: {}", file, index, zip_error_strerror(zip_get_error(zip))));
  constexpr zip_uint64_t wanted = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if ((stat.valid & wanted) != wanted) throw UserError(fmt::format("{}: member {} has no complete directory entry", file, index));
  std::string name = stat.name;
  const std::string where = fmt::format("{}: member {}", file, quoted_name(name));
  if (!name.ends_with(".npy")) throw UserError(where + " is not an array, wanted a name that ends in .npy");
  name.resize(name.size() - 4);
  if (stat.encryption_method != ZIP_EM_NONE) throw UserError(where + " is encrypted");
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE)
    throw UserError(fmt::format("{} has compression method {}, wanted stored or deflated", where, stat.comp_method));
  if (stat.comp_size > archive_bytes) throw UserError(fmt::format("{} has {} compressed bytes, the file only {}", where, stat.comp_size, archive_bytes));
  if (stat.comp_method == ZIP_CM_STORE ? stat.size != stat.comp_size : stat.size > stat.comp_size * expansion_max + expansion_slack)
    throw UserError(fmt::format("{} claims {} bytes from {} compressed ones", where, stat.size, stat.comp_size));
  return {index, std::move(name), static_cast<int64_t>(stat.size)};
}

std::vector<Member> members_of(zip_t* zip, uint64_t archive_bytes, const std::string& file) {
  const zip_int64_t count = zip_get_num_entries(zip, 0);
  std::vector<Member> members;
  uint64_t total = 0;
  for (zip_int64_t i = 0; i < count; ++i) {
    members.push_back(member_at(zip, static_cast<zip_uint64_t>(i), archive_bytes, file));
    // Members that share compressed bytes could claim more together than one could alone.
    total += static_cast<uint64_t>(members.back().bytes);
    if (total > archive_bytes * expansion_max + expansion_slack)
      throw UserError(fmt::format("{}: members claim {} bytes together, more than {} bytes can hold", file, total, archive_bytes));
  }
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.name < b.name; });
  for (size_t i = 1; i < members.size(); ++i)
    if (members[i].name == members[i - 1].name) throw UserError(fmt::format("{}: member {} is there twice", file, quoted_name(members[i].name + ".npy")));
  return members;
}

Literal read_member(zip_t* zip, const Member& member, const std::string& file) {
  const std::string where = fmt::format("{}: member {}", file, quoted_name(member.name + ".npy"));
  ZipFile input(zip_fopen_index(zip, member.index, 0));
  if (!input) throw UserError(fmt::format("{}: {}", where, zip_error_strerror(zip_get_error(zip))));
  const auto failed = [&] { throw UserError(fmt::format("{}: {}", where, zip_error_strerror(zip_file_get_error(input.get())))); };
  const ByteSource next = [&](std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      const zip_int64_t got = zip_fread(input.get(), bytes.data(), bytes.size());
      if (got < 0) failed();
      if (got == 0) throw UserError(fmt::format("{}: its data ends {} bytes early", where, bytes.size()));
      bytes = bytes.subspan(static_cast<size_t>(got));
    }
  };
  Literal value = read_npy(member.bytes, next, where);
  // The checksum is compared when the end is met.
  std::byte more;
  const zip_int64_t got = zip_fread(input.get(), &more, 1);
  if (got < 0) failed();
  if (got > 0) throw UserError(fmt::format("{}: has more data than the {} bytes of its directory entry", where, member.bytes));
  return value;
}

}  // namespace

NamedArrays parse_npz(std::span<const std::byte> bytes, const std::string& file, std::map<std::string, std::string>* left_out) {
  if (bytes.empty()) throw UserError(fmt::format("{}: is empty, wanted an .npz file", file));
  const Zip zip = open_bytes(bytes, file);
  NamedArrays arrays;
  for (const Member& member : members_of(zip.get(), bytes.size(), file)) {
    try {
      arrays.emplace_back(member.name, read_member(zip.get(), member, file));
    } catch (const UnsupportedElements& unsupported) {
      if (!left_out) throw;
      left_out->emplace(member.name, unsupported.what());
    }
  }
  return arrays;
}

NamedArrays read_npz(const std::string& path, std::map<std::string, std::string>* left_out) { return parse_npz(read_file_bytes(path), path, left_out); }

std::vector<std::byte> print_npz(const NamedArrays& arrays) {
  std::vector<std::pair<std::string, std::vector<std::byte>>> members;
  for (const auto& [name, value] : arrays) members.emplace_back(name + ".npy", print_npy(value.dtype() == DType::BF16 ? value.converted(DType::F32) : value));
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });

  ZipStatus status;
  const auto failed = [&](zip_t* zip) { throw SystemError(fmt::format("cannot write an npz archive: {}", zip_error_strerror(zip_get_error(zip)))); };
  ZipSource target(zip_source_buffer_create(nullptr, 0, 0, status.get()));
  if (!target) throw SystemError(fmt::format("cannot write an npz archive: {}", status.text()));
  zip_source_keep(target.get());  // the archive takes one reference, the result is read through the other
  Zip zip(zip_open_from_source(target.get(), ZIP_TRUNCATE, status.get()));
  if (!zip) {
    zip_source_free(target.get());
    throw SystemError(fmt::format("cannot write an npz archive: {}", status.text()));
  }
  for (const auto& [name, bytes] : members) {
    ZipSource source(zip_source_buffer(zip.get(), bytes.data(), bytes.size(), 0));
    if (!source) failed(zip.get());
    const zip_int64_t index = zip_file_add(zip.get(), name.c_str(), source.get(), ZIP_FL_ENC_UTF_8);
    if (index < 0) throw UserError(fmt::format("cannot write array {} to an npz archive: {}", quoted_name(name), zip_error_strerror(zip_get_error(zip.get()))));
    source.release();
    const auto at = static_cast<zip_uint64_t>(index);
    constexpr zip_uint16_t first_day = 1 << 5 | 1;  // 1980-01-01, the earliest a zip can say
    if (zip_set_file_compression(zip.get(), at, ZIP_CM_STORE, 0) != 0 || zip_file_set_dostime(zip.get(), at, 0, first_day, 0) != 0) failed(zip.get());
  }
  if (zip_close(zip.get()) != 0) failed(zip.get());
  zip.release();

  std::vector<std::byte> out;
  zip_stat_t stat;
  zip_stat_init(&stat);
  if (members.empty()) {
    // libzip writes nothing for an archive without members; this is the empty archive: an end record of 22 bytes.
    out.assign(22, std::byte{0});
    std::memcpy(out.data(), "PK\5\6", 4);
    return out;
  }
  if (zip_source_stat(target.get(), &stat) != 0 || zip_source_open(target.get()) != 0) throw SystemError("cannot read back an npz archive");
  out.resize(stat.size);
  const zip_int64_t got = zip_source_read(target.get(), out.data(), out.size());
  zip_source_close(target.get());
  if (got != static_cast<zip_int64_t>(out.size())) throw SystemError("cannot read back an npz archive");
  return out;
}

void write_npz(const std::string& path, const NamedArrays& arrays) {
  const std::vector<std::byte> bytes = print_npz(arrays);
  write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace stepgraph
