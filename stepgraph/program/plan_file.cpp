// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/plan_file.h"

#include <array>
#include <cstring>
#include <span>

#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/base/hash.h"
#include "stepgraph/program/plan_text.h"

namespace stepgraph {
namespace {

constexpr std::string_view magic = "sgplan\r\n";
constexpr uint32_t file_version = 1;
constexpr std::array<std::string_view, 3> section_names{"text", "constants", "objects"};
constexpr size_t number_bytes = 8, hash_size = 16;
constexpr size_t section_head_bytes = number_bytes + hash_size;
constexpr size_t head_bytes = magic.size() + 4 + 4 + section_names.size() * section_head_bytes;  // without its hash

void append_number(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}
void append_hash(std::string& out, std::string_view of) {
  const Hash128 hash = hash_bytes(std::as_bytes(std::span(of)));
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

}  // namespace

std::string plan_file_bytes(const StepPlan& plan) {
  const std::array<std::string, 3> sections{text(plan, {.constants = false}), constant_bytes(plan), object_bytes(plan)};
  std::string out(magic);
  append_number(out, file_version, 4);
  append_number(out, sections.size(), 4);
  for (const std::string& section : sections) {
    append_number(out, section.size(), number_bytes);
    append_hash(out, section);
  }
  append_hash(out, std::string(out));
  for (const std::string& section : sections) out += section;
  return out;
}

StepPlan plan_of_bytes(std::string_view bytes, const std::string& name) {
  const auto fail = [&](const std::string& message) { throw UserError(name + ": " + message); };
  if (!bytes.starts_with(magic)) fail("is no plan file");
  if (bytes.size() < magic.size() + 4) fail("plan file is cut off after " + std::to_string(bytes.size()) + " bytes");
  std::string_view rest = bytes.substr(magic.size());
  // The version first: what follows belongs to it.
  if (const uint64_t version = take_number(rest, 4); version != file_version)
    fail("plan file of version " + std::to_string(version) + ", wanted " + std::to_string(file_version));
  if (bytes.size() < head_bytes + hash_size) fail("plan file is cut off after " + std::to_string(bytes.size()) + " bytes");
  std::string_view head_hash = bytes.substr(head_bytes, hash_size);
  if (take_hash(head_hash) != hash_bytes(std::as_bytes(std::span(bytes.substr(0, head_bytes))))) fail("plan file is damaged: its head has another hash");
  if (const uint64_t count = take_number(rest, 4); count != section_names.size())
    fail("plan file of " + std::to_string(count) + " sections, wanted " + std::to_string(section_names.size()));
  std::string_view content = bytes.substr(head_bytes + hash_size);
  std::array<std::string_view, 3> sections;
  for (size_t i = 0; i < sections.size(); ++i) {
    const uint64_t size = take_number(rest, number_bytes);
    const Hash128 hash = take_hash(rest);
    const std::string section = "section " + std::string(section_names[i]);
    if (size > content.size()) fail("plan file is cut off: " + section + " has " + std::to_string(size) + " bytes, found " + std::to_string(content.size()));
    sections[i] = content.substr(0, size);
    content.remove_prefix(size);
    if (hash_bytes(std::as_bytes(std::span(sections[i]))) != hash) fail("plan file is damaged: " + section + " has another hash");
  }
  if (!content.empty()) fail("plan file is followed by " + std::to_string(content.size()) + " bytes more");
  try {
    return parse_plan(sections[0], name, {.constants = sections[1], .objects = sections[2], .has_objects = true});
  } catch (const UserError& error) {
    const std::string message = error.what();
    if (!message.starts_with(name + ":")) fail(message);
    throw;
  }
}

void write_plan(const std::string& path, const StepPlan& plan) { write_file(path, plan_file_bytes(plan)); }

StepPlan read_plan(const std::string& path) { return plan_of_bytes(read_file(path), path); }

}  // namespace stepgraph
