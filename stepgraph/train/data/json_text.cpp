// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/data/json_text.h"
#include <fmt/core.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include "stepgraph/base/error.h"
#include "stepgraph/train/data/arrays.h"

namespace stepgraph {
namespace {

using nlohmann::json;

constexpr int depth_max = 16;

struct TypeRow {
  const char* code;
  DType dtype;
};
constexpr TypeRow type_rows[] = {{"F64", DType::F64}, {"F32", DType::F32}, {"BF16", DType::BF16}, {"F16", DType::F16},  {"I64", DType::I64},
                                 {"I32", DType::I32}, {"I8", DType::I8},   {"U8", DType::U8},     {"BOOL", DType::Bool}};

/// Follows the events of a parse; builds nothing.
class StrictReader final : public nlohmann::json_sax<json> {
 public:
  explicit StrictReader(const std::string& where) : where_(where) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) throw UserError(fmt::format("{}: key {} is given twice", where_, quoted_name(name)));
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw UserError(fmt::format("{}: not valid JSON at byte {}", where_, position));
  }

 private:
  bool open() {
    if (keys_.size() >= depth_max) throw UserError(fmt::format("{}: JSON nested more than {} deep", where_, depth_max));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }
  const std::string& where_;
  std::vector<std::set<std::string>> keys_;
};

json parse_object(std::string_view text, const std::string& where) {
  check_json(text, where);
  json value = json::parse(text);
  if (!value.is_object()) throw UserError(fmt::format("{}: JSON {}, wanted an object", where, value.type_name()));
  return value;
}

/// A number of at least 0 that fits 63 bits.
int64_t natural(const json& value, const std::string& where) {
  if (!value.is_number_integer() || value < 0 || (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)))
    throw UserError(fmt::format("{}: {}, wanted an integer from 0 to 2^63 - 1", where,
                                value.is_number() ? "found " + value.dump() : std::string("found ") + value.type_name()));
  return value.get<int64_t>();
}

DType dtype_of_code(const json& value, const std::string& where) {
  if (!value.is_string()) throw UserError(fmt::format("{}: dtype is a JSON {}, wanted a string", where, value.type_name()));
  const auto& code = value.get_ref<const std::string&>();
  for (const TypeRow& row : type_rows)
    if (code == row.code) return row.dtype;
  throw UserError(fmt::format("{}: dtype {} is not supported, wanted one of F64 F32 BF16 F16 I64 I32 I8 U8 BOOL", where, quoted_name(code)));
}

TensorEntry parse_entry(const std::string& name, const json& fields, const std::string& file) {
  const std::string where = fmt::format("{}: tensor {}", file, quoted_name(name));
  if (!fields.is_object()) throw UserError(fmt::format("{}: is a JSON {}, wanted an object", where, fields.type_name()));
  for (const auto& [key, value] : fields.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      throw UserError(fmt::format("{}: unknown key {}, wanted dtype, shape and data_offsets", where, quoted_name(key)));
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!fields.contains(key)) throw UserError(fmt::format("{}: key {} is missing", where, key));

  TensorEntry entry;
  entry.name = name;
  entry.dtype = dtype_of_code(fields["dtype"], where);
  const json& shape = fields["shape"];
  if (!shape.is_array()) throw UserError(fmt::format("{}: shape is a JSON {}, wanted an array", where, shape.type_name()));
  for (const json& size : shape) entry.sizes.push_back(natural(size, where + ": shape"));
  const json& offsets = fields["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) throw UserError(where + ": data_offsets is not an array of two numbers");
  entry.begin = natural(offsets[0], where + ": data_offsets");
  entry.end = natural(offsets[1], where + ": data_offsets");
  return entry;
}

}  // namespace

void check_json(std::string_view text, const std::string& where) {
  StrictReader reader(where);
  json::sax_parse(text, &reader);
}

TensorHeader parse_tensor_header(std::string_view text, const std::string& where) {
  const json root = parse_object(text, where);
  TensorHeader header;
  for (const auto& [name, fields] : root.items()) {
    if (name != "__metadata__") {
      header.entries.push_back(parse_entry(name, fields, where));
      continue;
    }
    if (!fields.is_object()) throw UserError(fmt::format("{}: __metadata__ is a JSON {}, wanted an object", where, fields.type_name()));
    for (const auto& [key, value] : fields.items()) {
      if (!value.is_string())
        throw UserError(fmt::format("{}: __metadata__ entry {} is a JSON {}, wanted a string", where, quoted_name(key), value.type_name()));
      header.metadata[key] = value.get<std::string>();
    }
  }
  return header;
}

std::string print_tensor_header(const TensorHeader& header) {
  json root = json::object();
  if (!header.metadata.empty()) root["__metadata__"] = header.metadata;
  for (const TensorEntry& entry : header.entries) {
    const auto* row = std::find_if(std::begin(type_rows), std::end(type_rows), [&](const TypeRow& r) { return r.dtype == entry.dtype; });
    SG_CHECK(row != std::end(type_rows));
    root[entry.name] = {{"dtype", row->code}, {"shape", entry.sizes}, {"data_offsets", {entry.begin, entry.end}}};
  }
  try {
    return root.dump();
  } catch (const json::type_error&) {
    throw UserError("cannot write tensors to JSON: a name or metadata is not valid UTF-8");
  }
}

std::vector<int64_t> parse_integers(std::string_view text, const std::vector<std::string>& keys, const std::string& where) {
  const json root = parse_object(text, where);
  for (const auto& [key, value] : root.items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) throw UserError(fmt::format("{}: unknown key {}", where, quoted_name(key)));
  std::vector<int64_t> values;
  for (const std::string& key : keys) {
    if (!root.contains(key)) throw UserError(fmt::format("{}: key {} is missing", where, quoted_name(key)));
    values.push_back(natural(root[key], fmt::format("{}: {}", where, key)));
  }
  return values;
}

std::string print_integers(const std::vector<std::pair<std::string, int64_t>>& fields) {
  std::string out = "{";
  for (const auto& [key, value] : fields) out += fmt::format("{}{}: {}", out.size() > 1 ? ", " : "", json(key).dump(), value);
  return out + "}";
}

}  // namespace stepgraph
