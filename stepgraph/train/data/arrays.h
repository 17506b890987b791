// SPDX-License-Identifier: Apache-2.0
// Named arrays and the files that hold them: NumPy's .npz, .safetensors and .csv. Files are not trusted: a damaged or hostile one gives one
// UserError "FILE: what was found, what was wanted", and no allocation exceeds what the file can fill.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

/// Readers give them ordered by name, each name once.
using NamedArrays = std::vector<std::pair<std::string, Literal>>;
/// The array of that name, or nullptr.
const Literal* find_array(const NamedArrays& arrays, std::string_view name);

/// .npz: a zip archive of .npy members (format versions 1 to 3), stored or deflated, C or Fortran order. f8 f4 f2 i8 i4 i1 u1 b1 keep their type;
/// i2 and u2 become i32, u4 and u8 become i64 (an u8 above its range is refused); big-endian elements are swapped.
/// Arrays of other elements (strings, objects, complex numbers) are an error, or with `left_out` are left out: why, by name.
NamedArrays read_npz(const std::string& path, std::map<std::string, std::string>* left_out = nullptr);
NamedArrays parse_npz(std::span<const std::byte> bytes, const std::string& file, std::map<std::string, std::string>* left_out = nullptr);
/// Stored members in order of name, without times: equal arrays give equal bytes. bf16, which NumPy lacks, is written as f4.
void write_npz(const std::string& path, const NamedArrays& arrays);
std::vector<std::byte> print_npz(const NamedArrays& arrays);

struct Safetensors {
  NamedArrays arrays;
  std::map<std::string, std::string> metadata;
  bool operator==(const Safetensors&) const = default;
};
/// .safetensors: F64 F32 BF16 F16 I64 I32 I8 U8 BOOL. Data without holes and overlaps, as the format demands.
Safetensors read_safetensors(const std::string& path);
Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::string& file);
/// Canonical: header sorted by name and padded to 8 bytes, data by element size (largest first, so that each is aligned), then name.
void write_safetensors(const std::string& path, const Safetensors& content);
std::vector<std::byte> print_safetensors(const Safetensors& content);

struct CsvOptions {
  char delimiter = ',';
  enum class Header { Auto, Present, Absent } header = Header::Auto;  ///< Auto: a first row without any number is a header
};
struct CsvTable {
  std::vector<std::string> columns;  ///< empty without a header
  Literal values;                    ///< f64 [rows, columns]
};
/// .csv of numbers ("nan" and "inf" included), rows of equal length, fields optionally in double quotes.
CsvTable read_csv(const std::string& path, const CsvOptions& options = {});
CsvTable parse_csv(std::string_view text, const std::string& file, const CsvOptions& options = {});
/// Takes the rows of a csv as they are read, so that nothing else of a large file is held.
class CsvRows {
 public:
  virtual ~CsvRows() = default;
  /// Before the first row. No file has more than `rows` rows without being refused later; 0 where it will be refused.
  virtual void begin(int64_t rows, int64_t columns) = 0;
  /// `line` counts from 1, the header included: what a message calls the row.
  virtual void row(std::span<const double> values, int64_t line) = 0;
};
/// The same, row by row; returns the names of columns (empty without a header).
std::vector<std::string> read_csv(const std::string& path, CsvRows& rows, const CsvOptions& options = {});

/// The text in single quotes for a message: what is no printable UTF-8 escaped, long ones cut.
std::string quoted_name(std::string_view text);
/// "f32[2, 3]"
std::string type_text(DType dtype, const Sizes& sizes);
/// Bytes of an array read from `where`; UserError if the product or a size is out of range.
int64_t checked_bytes(DType dtype, const Sizes& sizes, const std::string& where);
/// As another dtype; UserError "WHERE: element ..." for an integer that would become another one, and a finite number that would become infinite.
Literal converted_in_range(const Literal& value, DType dtype, const std::string& where);
/// UserError if a stored bool is neither 0 nor 1: such a byte read as a bool would be undefined.
void check_bools(const Literal& value, const std::string& where);

}  // namespace stepgraph
