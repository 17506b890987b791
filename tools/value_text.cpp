// SPDX-License-Identifier: Apache-2.0
#include "tools/value_text.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "stepgraph/base/error.h"
#include "stepgraph/base/text_scanner.h"
#include "stepgraph/train/data/arrays.h"

namespace stepgraph {
namespace {

using Json = nlohmann::ordered_json;

/// Nested lists of numbers as a tensor.
class ListReader {
 public:
  ListReader(const std::string& text, const std::string& name, DType dtype) : scanner_(text, name), dtype_(dtype) {}

  Literal read() {
    element(0);
    if (!scanner_.at_end()) scanner_.fail_wanted("the end of the value");
    const size_t count = is_floating(dtype_) ? reals_.size() : integers_.size();
    // "[1, []]": a number where another list has lists
    if (element_count(sizes_) != static_cast<int64_t>(count)) scanner_.fail("the lists are not equally deep");
    Literal value(dtype_, sizes_);
    for (size_t i = 0; i < count; ++i) {
      if (is_floating(dtype_))
        value.set(static_cast<int64_t>(i), reals_[i]);
      else
        value.set_integer(static_cast<int64_t>(i), integers_[i]);
    }
    return value;
  }

 private:
  void number() {
    if (dtype_ == DType::Bool) {
      if (scanner_.try_consume("true") || scanner_.try_consume("1"))
        integers_.push_back(1);
      else if (scanner_.try_consume("false") || scanner_.try_consume("0"))
        integers_.push_back(0);
      else
        scanner_.fail_wanted("true or false");
    } else if (is_floating(dtype_)) {
      reals_.push_back(scanner_.real());
    } else {
      integers_.push_back(scanner_.integer());
      if (!fits(integers_.back())) scanner_.fail(std::to_string(integers_.back()) + " does not fit " + std::string(name(dtype_)));
    }
  }

  bool fits(int64_t value) const {
    Literal one(dtype_, {});
    one.set_integer(0, value);
    return one.integer_at(0) == value;
  }

  void element(size_t depth) {
    if (depth > 16) scanner_.fail_wanted("at most 16 levels of lists");
    if (!scanner_.try_consume("[")) {
      if (leaf_depth_ && *leaf_depth_ != depth) scanner_.fail_wanted("lists of equal depth");
      leaf_depth_ = depth;
      return number();
    }
    int64_t count = 0;
    if (sizes_.size() == depth) sizes_.push_back(-1);
    if (!scanner_.try_consume("]")) {
      do {
        element(depth + 1);
        ++count;
      } while (scanner_.try_consume(","));
      scanner_.expect("]");
    }
    if (sizes_[depth] >= 0 && sizes_[depth] != count) scanner_.fail_wanted("lists of equal length");
    sizes_[depth] = count;
  }

  TextScanner scanner_;
  DType dtype_;
  Sizes sizes_;
  std::vector<double> reals_;
  std::vector<int64_t> integers_;
  std::optional<size_t> leaf_depth_;
};

Literal read_from_file(const std::string& reference, const std::string& name) {
  std::string path = reference, array = name;
  if (const size_t colon = reference.rfind(':'); colon != std::string::npos) path = reference.substr(0, colon), array = reference.substr(colon + 1);
  std::map<std::string, std::string> left_out;
  const NamedArrays arrays = path.ends_with(".safetensors") ? read_safetensors(path).arrays : read_npz(path, &left_out);
  if (const Literal* found = find_array(arrays, array)) return *found;
  if (const auto found = left_out.find(array); found != left_out.end()) throw UserError(found->second);
  if (arrays.size() == 1 && path == reference) return arrays[0].second;
  std::string known;
  for (const auto& [array_name, value] : arrays) known += (known.empty() ? "" : ", ") + array_name;
  throw UserError(path + ": there is no array '" + array + "'; it holds " + (known.empty() ? "none" : known));
}

Json nested(const Literal& value, size_t dim, int64_t& next) {
  if (dim == value.rank()) {
    const int64_t i = next++;
    if (value.dtype() == DType::Bool) return value.integer_at(i) != 0;
    if (!is_floating(value.dtype())) return value.integer_at(i);
    const double number = value.at(i);
    if (std::isfinite(number)) return number;
    return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  }
  Json list = Json::array();
  for (int64_t i = 0; i < value.sizes()[dim]; ++i) list.push_back(nested(value, dim + 1, next));
  return list;
}

}  // namespace

Literal read_value(const std::string& text, DType dtype, const std::string& name) {
  if (text.starts_with("@")) {
    Literal value = read_from_file(text.substr(1), name);
    return value.dtype() == dtype ? value : converted_in_range(value, dtype, name);
  }
  return ListReader(text, name, dtype).read();
}

std::string value_json(const Literal& value) {
  int64_t next = 0;
  return nested(value, 0, next).dump();
}

}  // namespace stepgraph
