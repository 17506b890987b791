// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>
#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/train/data/arrays.h"
#include "stepgraph/train/data/json_text.h"

namespace stepgraph {
namespace {

constexpr size_t length_bytes = 8;
// The limit that the format's first library set; headers of real models stay far below.
constexpr uint64_t safetensors_header_bytes_max = 100'000'000;

/// Every range against its type and the data, and all of them against one another.
void check_ranges(const TensorHeader& header, int64_t data_bytes, const std::string& file) {
  std::vector<const TensorEntry*> by_place;
  for (const TensorEntry& entry : header.entries) {
    const std::string where = fmt::format("{}: tensor {}", file, quoted_name(entry.name));
    if (entry.end < entry.begin) throw UserError(fmt::format("{}: its data ends at {}, before it begins at {}", where, entry.end, entry.begin));
    if (entry.end > data_bytes) throw UserError(fmt::format("{}: its data ends at {}, the file has {} bytes of data", where, entry.end, data_bytes));
    const int64_t wanted = checked_bytes(entry.dtype, entry.sizes, where);
    if (entry.end - entry.begin != wanted)
      throw UserError(fmt::format("{}: {} bytes of data, wanted {} for {}", where, entry.end - entry.begin, wanted, type_text(entry.dtype, entry.sizes)));
    by_place.push_back(&entry);
  }
  std::sort(by_place.begin(), by_place.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return std::tie(a->begin, a->end, a->name) < std::tie(b->begin, b->end, b->name); });
  int64_t covered = 0;
  for (const TensorEntry* entry : by_place) {
    if (entry->begin < covered) throw UserError(fmt::format("{}: tensor {}: its data overlaps with another's", file, quoted_name(entry->name)));
    if (entry->begin > covered)
      throw UserError(fmt::format("{}: data bytes {} to {} before tensor {} belong to no tensor", file, covered, entry->begin, quoted_name(entry->name)));
    covered = entry->end;
  }
  if (covered != data_bytes) throw UserError(fmt::format("{}: {} bytes behind the last tensor belong to no tensor", file, data_bytes - covered));
}

uint64_t header_length(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < length_bytes) throw UserError(fmt::format("{}: {} bytes, too few for a .safetensors file", file, bytes.size()));
  uint64_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (length > safetensors_header_bytes_max) throw UserError(fmt::format("{}: header of {} bytes, at most {} are accepted", file, length, safetensors_header_bytes_max));
  if (length > bytes.size() - length_bytes) throw UserError(fmt::format("{}: header of {} bytes, the file has {} in all", file, length, bytes.size()));
  return length;
}

/// Indices into content.arrays: by element size, largest first, then name.
std::vector<size_t> data_order(const Safetensors& content) {
  std::vector<size_t> order(content.arrays.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) {
    return std::pair(-static_cast<int>(size_bytes(content.arrays[i].second.dtype())), std::string_view(content.arrays[i].first));
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

TensorHeader header_of(const Safetensors& content) {
  TensorHeader header;
  header.metadata = content.metadata;
  int64_t at = 0;
  for (const size_t i : data_order(content)) {
    const auto& [name, value] = content.arrays[i];
    if (name == "__metadata__") throw UserError("cannot write a tensor of name '__metadata__' to .safetensors, the format reserves it");
    const int64_t end = at + static_cast<int64_t>(value.byte_count());
    header.entries.push_back({name, value.dtype(), value.sizes(), at, end});
    at = end;
  }
  return header;
}

std::vector<std::byte> print_header(const Safetensors& content) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : content.arrays) names.push_back(name);
  std::sort(names.begin(), names.end());
  if (const auto twin = std::adjacent_find(names.begin(), names.end()); twin != names.end())
    throw UserError(fmt::format("cannot write tensor {} twice", quoted_name(*twin)));

  std::string text = print_tensor_header(header_of(content));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > safetensors_header_bytes_max)
    throw UserError(fmt::format("cannot write a .safetensors header of {} bytes, at most {} are accepted", text.size(), safetensors_header_bytes_max));
  std::vector<std::byte> out(length_bytes + text.size());
  for (size_t i = 0; i < length_bytes; ++i) out[i] = static_cast<std::byte>(static_cast<uint64_t>(text.size()) >> (8 * i) & 0xff);
  std::memcpy(out.data() + length_bytes, text.data(), text.size());
  return out;
}

}  // namespace

Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  const uint64_t length = header_length(bytes, file);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + length_bytes, length);
  if (!text.starts_with('{')) throw UserError(fmt::format("{}: the header does not begin with '{{'", file));
  TensorHeader header = parse_tensor_header(text, file + ": header");
  const std::span<const std::byte> data = bytes.subspan(length_bytes + length);
  check_ranges(header, static_cast<int64_t>(data.size()), file);

  Safetensors content;
  content.metadata = std::move(header.metadata);
  for (const TensorEntry& entry : header.entries) {
    Literal value = Literal::uninitialised(entry.dtype, entry.sizes);
    if (value.byte_count() > 0) std::memcpy(value.mutable_data(), data.data() + entry.begin, value.byte_count());
    check_bools(value, fmt::format("{}: tensor {}", file, quoted_name(entry.name)));
    content.arrays.emplace_back(entry.name, std::move(value));
  }
  return content;
}

Safetensors read_safetensors(const std::string& path) { return parse_safetensors(read_file_bytes(path), path); }

std::vector<std::byte> print_safetensors(const Safetensors& content) {
  std::vector<std::byte> out = print_header(content);
  size_t bytes = out.size();
  for (const auto& [name, value] : content.arrays) bytes += value.byte_count();
  out.reserve(bytes);
  for (const size_t i : data_order(content)) {
    const Literal& value = content.arrays[i].second;
    out.insert(out.end(), value.data(), value.data() + value.byte_count());
  }
  return out;
}

void write_safetensors(const std::string& path, const Safetensors& content) {
  const std::vector<std::byte> bytes = print_safetensors(content);
  write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace stepgraph
