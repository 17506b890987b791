// SPDX-License-Identifier: Apache-2.0
// Zip archives byte by byte, so that tests can make damaged ones, and .npy arrays to put in.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepgraph::testing {

inline std::vector<std::byte> to_bytes(std::string_view text) {
  std::vector<std::byte> out(text.size());
  if (!text.empty()) std::memcpy(out.data(), text.data(), text.size());
  return out;
}
/// `count` little-endian bytes of a number.
inline std::string little(uint64_t value, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}
inline uint32_t crc32_of(std::string_view data) {
  uint32_t crc = 0xffffffffu;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

struct ZipMember {
  std::string name, data;  // data as it stands in the archive
  uint16_t method = 0, flags = 0;
  int64_t claimed_bytes = -1;  // uncompressed; -1: as many as data has
  int64_t claimed_compressed = -1;
  int64_t crc = -1;  // of the uncompressed data
};

inline std::string zip_text(const std::vector<ZipMember>& members) {
  std::string out, directory;
  for (const ZipMember& m : members) {
    const uint64_t compressed = m.claimed_compressed >= 0 ? static_cast<uint64_t>(m.claimed_compressed) : m.data.size();
    const uint64_t size = m.claimed_bytes >= 0 ? static_cast<uint64_t>(m.claimed_bytes) : m.data.size();
    const uint64_t crc = m.crc >= 0 ? static_cast<uint64_t>(m.crc) : crc32_of(m.data);
    const std::string common = little(m.flags, 2) + little(m.method, 2) + little(0, 2) + little(33, 2) + little(crc, 4) + little(compressed, 4) +
                               little(size, 4) + little(m.name.size(), 2) + little(0, 2);
    directory += "PK\1\2" + little(20, 2) + little(20, 2) + common + little(0, 2) + little(0, 2) + little(0, 2) + little(0, 4) + little(out.size(), 4) + m.name;
    out += "PK\3\4" + little(20, 2) + common + m.name + m.data;
  }
  const size_t at = out.size();
  return out + directory + "PK\5\6" + little(0, 4) + little(members.size(), 2) + little(members.size(), 2) + little(directory.size(), 4) + little(at, 4) +
         little(0, 2);
}

/// Deflate's form for data that it leaves alone, in one block.
inline std::string deflated_plainly(std::string_view data) { return "\1" + little(data.size(), 2) + little(~data.size() & 0xffff, 2) + std::string(data); }

inline std::string npy_text(std::string_view header, std::string_view data, int version = 1) {
  return "\x93NUMPY" + std::string(1, static_cast<char>(version)) + std::string(1, '\0') + little(header.size(), version == 1 ? 2 : 4) + std::string(header) +
         std::string(data);
}
inline std::string npy_header(std::string_view descr, std::string_view shape, std::string_view fortran = "False") {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(fortran) + ", 'shape': " + std::string(shape) + ", }\n";
}
/// An archive of one array 'x'.
inline std::string npz_text(std::string_view npy) { return zip_text({{"x.npy", std::string(npy)}}); }

inline std::string safetensors_text(std::string_view header, std::string_view data) {
  return little(header.size(), 8) + std::string(header) + std::string(data);
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace stepgraph::testing
