// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/base/section_file.h"

#include "stepgraph/base/error.h"
#include "stepgraph/base/hash.h"

namespace stepgraph {
namespace {

constexpr size_t version_bytes = 4, count_bytes = 4, section_size_bytes = 8, hash_size = 16;

void append_number(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}
Hash128 hash_of(std::string_view bytes) { return hash_bytes(std::as_bytes(std::span(bytes))); }
void append_hash(std::string& out, std::string_view of) {
  const Hash128 hash = hash_of(of);
  append_number(out, hash.high, 8);
  append_number(out, hash.low, 8);
}

/// Takes bytes off the front; the caller knows that they are there.
uint64_t take_number(std::string_view& from, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= static_cast<uint64_t>(static_cast<unsigned char>(from[i])) << (8 * i);
  from.remove_prefix(bytes);
  return value;
}
Hash128 take_hash(std::string_view& from) {
  const uint64_t high = take_number(from, 8);
  return {high, take_number(from, 8)};
}

/// Without its hash.
size_t head_bytes(const SectionFile& kind) { return kind.magic.size() + version_bytes + count_bytes + kind.sections.size() * (section_size_bytes + hash_size); }

class SectionReader {
 public:
  SectionReader(const SectionFile& kind, std::string_view bytes, const std::string& name) : kind_(kind), name_(name), what_(kind.what) {
    const auto cut_off = [&] { fail(what_ + " is cut off after " + std::to_string(bytes.size()) + " bytes"); };
    if (!bytes.starts_with(kind.magic)) fail("is no " + what_);
    if (bytes.size() < kind.magic.size() + version_bytes) cut_off();
    head_ = bytes.substr(kind.magic.size());
    // The version first: what follows belongs to it.
    if (const uint64_t version = take_number(head_, version_bytes); version != kind.version)
      fail(what_ + " of version " + std::to_string(version) + ", wanted " + std::to_string(kind.version));
    const size_t head = head_bytes(kind);
    if (bytes.size() < head + hash_size) cut_off();
    std::string_view head_hash = bytes.substr(head, hash_size);
    if (take_hash(head_hash) != hash_of(bytes.substr(0, head))) fail(what_ + " is damaged: its head has another hash");
    if (const uint64_t count = take_number(head_, count_bytes); count != kind.sections.size())
      fail(what_ + " of " + std::to_string(count) + " sections, wanted " + std::to_string(kind.sections.size()));
    content_ = bytes.substr(head + hash_size);
  }

  std::string_view next() {
    const uint64_t size = take_number(head_, section_size_bytes);
    const Hash128 hash = take_hash(head_);
    const std::string section = "section " + std::string(kind_.sections[next_++]);
    if (size > content_.size()) fail(what_ + " is cut off: " + section + " has " + std::to_string(size) + " bytes, found " + std::to_string(content_.size()));
    const std::string_view found = content_.substr(0, size);
    content_.remove_prefix(size);
    if (hash_of(found) != hash) fail(what_ + " is damaged: " + section + " has another hash");
    return found;
  }
  std::vector<std::string_view> next_ones(size_t count) {
    std::vector<std::string_view> found;
    for (size_t i = 0; i < count; ++i) found.push_back(next());
    return found;
  }
  void finish() const {
    if (!content_.empty()) fail(what_ + " is followed by " + std::to_string(content_.size()) + " bytes more");
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw UserError(name_ + ": " + message); }

  const SectionFile& kind_;
  const std::string& name_;
  std::string what_;
  std::string_view head_, content_;  // what is not read yet
  size_t next_ = 0;
};

}  // namespace

std::string section_file_bytes(const SectionFile& kind, std::span<const std::string> sections) {
  SG_CHECK(sections.size() == kind.sections.size(), "the sections of a " + std::string(kind.what));
  size_t total = head_bytes(kind) + hash_size;
  for (const std::string& section : sections) total += section.size();
  std::string out(kind.magic);
  out.reserve(total);
  append_number(out, kind.version, version_bytes);
  append_number(out, sections.size(), count_bytes);
  for (const std::string& section : sections) {
    append_number(out, section.size(), section_size_bytes);
    append_hash(out, section);
  }
  append_hash(out, std::string(out));
  for (const std::string& section : sections) out += section;
  return out;
}

std::vector<std::string_view> read_first_sections(const SectionFile& kind, std::string_view bytes, const std::string& name, size_t count) {
  SectionReader reader(kind, bytes, name);
  return reader.next_ones(count);
}

std::vector<std::string_view> read_sections(const SectionFile& kind, std::string_view bytes, const std::string& name) {
  SectionReader reader(kind, bytes, name);
  std::vector<std::string_view> found = reader.next_ones(kind.sections.size());
  reader.finish();
  return found;
}

}  // namespace stepgraph
