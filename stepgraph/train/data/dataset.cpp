// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/data/dataset.h"
#include <fmt/core.h>
#include <algorithm>
#include <cstring>
#include <numeric>
#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

Sizes with_rows(int64_t rows, const Sizes& sample) {
  Sizes sizes{rows};
  sizes.insert(sizes.end(), sample.begin(), sample.end());
  return sizes;
}

void check_id(int64_t id, int64_t size) { SG_CHECK(id >= 0 && id < size, fmt::format("sample {} of {}", id, size)); }

class ArrayDataset final : public Dataset {
 public:
  ArrayDataset(NamedArrays arrays, const std::string& where) : arrays_(std::move(arrays)) {
    if (arrays_.empty()) throw UserError(fmt::format("{}: has no arrays", where));
    for (const auto& [name, value] : arrays_) {
      if (value.rank() == 0) throw UserError(fmt::format("{}: array {} is a scalar, wanted one row for each sample", where, quoted_name(name)));
      if (fields_.empty()) size_ = value.sizes()[0];
      if (value.sizes()[0] != size_)
        throw UserError(
            fmt::format("{}: array {} has {} rows, array {} has {}", where, quoted_name(name), value.sizes()[0], quoted_name(fields_[0].name), size_));
      for (const Field& other : fields_)
        if (other.name == name) throw UserError(fmt::format("{}: array {} is there twice", where, quoted_name(name)));
      fields_.push_back({name, value.dtype(), Sizes(value.sizes().begin() + 1, value.sizes().end())});
    }
  }
  int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }
  NamedArrays gather(std::span<const int64_t> ids) const override {
    NamedArrays out;
    for (size_t f = 0; f < fields_.size(); ++f) {
      const Literal& all = arrays_[f].second;
      Literal rows = Literal::uninitialised(fields_[f].dtype, with_rows(static_cast<int64_t>(ids.size()), fields_[f].sizes));
      const size_t row_bytes = size_ > 0 ? all.byte_count() / static_cast<size_t>(size_) : 0;
      std::byte* to = rows.mutable_data();
      for (size_t i = 0; i < ids.size(); ++i) {
        check_id(ids[i], size_);
        if (row_bytes > 0) std::memcpy(to + i * row_bytes, all.data() + static_cast<size_t>(ids[i]) * row_bytes, row_bytes);
      }
      out.emplace_back(fields_[f].name, std::move(rows));
    }
    return out;
  }
  std::optional<ValueRange> range(size_t field) const override {
    const Literal& array = arrays_[field].second;
    if (!is_integer(array.dtype()) || array.count() == 0) return std::nullopt;
    ValueRange found{array.integer_at(0), array.integer_at(0)};
    for (int64_t i = 1; i < array.count(); ++i) {
      const int64_t value = array.integer_at(i);
      found.minimum = std::min(found.minimum, value);
      found.maximum = std::max(found.maximum, value);
    }
    return found;
  }

 private:
  NamedArrays arrays_;
  std::vector<Field> fields_;
  int64_t size_ = 0;
};

class WindowDataset final : public Dataset {
 public:
  WindowDataset(TokenStream tokens, const WindowOptions& options, const std::string& where) : tokens_(std::move(tokens)), context_(options.context) {
    if (context_ < 1) throw UserError(fmt::format("{}: context {}, wanted at least 1", where, context_));
    if (options.stride < 0) throw UserError(fmt::format("{}: stride {}, wanted at least 1, or 0 for the context", where, options.stride));
    stride_ = options.stride > 0 ? options.stride : context_;
    // The last token of a window is followed by one more, its target.
    if (tokens_.size() <= context_)
      throw UserError(fmt::format("{}: {} tokens, too few for one window of {} tokens and a target", where, tokens_.size(), context_));
    size_ = (tokens_.size() - 1 - context_) / stride_ + 1;
    fields_ = {{options.tokens_name, DType::I32, {context_}}, {options.targets_name, DType::I32, {context_}}};
  }
  int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }
  NamedArrays gather(std::span<const int64_t> ids) const override {
    NamedArrays out;
    for (const int64_t shift : {0, 1}) {
      Literal rows = Literal::uninitialised(DType::I32, {static_cast<int64_t>(ids.size()), context_});
      const auto to = rows.as_mutable<int32_t>();
      for (size_t i = 0; i < ids.size(); ++i) {
        check_id(ids[i], size_);
        tokens_.copy(ids[i] * stride_ + shift, to.subspan(i * static_cast<size_t>(context_), static_cast<size_t>(context_)));
      }
      out.emplace_back(fields_[static_cast<size_t>(shift)].name, std::move(rows));
    }
    return out;
  }
  std::optional<ValueRange> range(size_t) const override { return ValueRange{0, tokens_.largest()}; }
  /// Windows may overlap many times.
  void hash_content(Hasher& hasher, std::span<const int64_t> ids) const override {
    hasher.number(context_).number(stride_).number(tokens_.size());
    constexpr int64_t block = 1 << 16;
    std::vector<int32_t> tokens;
    for (int64_t at = 0; at < tokens_.size(); at += block) {
      tokens.resize(static_cast<size_t>(std::min(block, tokens_.size() - at)));
      tokens_.copy(at, tokens);
      hasher.bytes(std::as_bytes(std::span(tokens)));
    }
    for (const int64_t id : ids) hasher.number(id);
  }

 private:
  TokenStream tokens_;
  int64_t context_, stride_ = 0, size_ = 0;
  std::vector<Field> fields_;
};

class Subset final : public Dataset {
 public:
  Subset(DatasetPointer whole, std::vector<int64_t> ids) : whole_(std::move(whole)), ids_(std::move(ids)) {
    for (const int64_t id : ids_) check_id(id, whole_->size());
  }
  int64_t size() const override { return static_cast<int64_t>(ids_.size()); }
  const std::vector<Field>& fields() const override { return whole_->fields(); }
  NamedArrays gather(std::span<const int64_t> ids) const override { return whole_->gather(of_whole(ids)); }
  NamedArrays gather_drawn(std::span<const int64_t> ids, const Draw& draw) const override { return whole_->gather_drawn(of_whole(ids), draw); }
  std::optional<ValueRange> range(size_t field) const override { return whole_->range(field); }
  void hash_content(Hasher& hasher, std::span<const int64_t> ids) const override { whole_->hash_content(hasher, of_whole(ids)); }

 private:
  std::vector<int64_t> of_whole(std::span<const int64_t> ids) const {
    std::vector<int64_t> result;
    result.reserve(ids.size());
    for (const int64_t id : ids) {
      check_id(id, size());
      result.push_back(ids_[static_cast<size_t>(id)]);
    }
    return result;
  }

  DatasetPointer whole_;
  std::vector<int64_t> ids_;
};

}  // namespace

void Dataset::hash_content(Hasher& hasher, std::span<const int64_t> ids) const {
  constexpr size_t block = 256;
  for (size_t at = 0; at < ids.size(); at += block)
    for (const auto& [name, value] : gather(ids.subspan(at, std::min(block, ids.size() - at)))) hasher.bytes({value.data(), value.byte_count()});
}

Hash128 content_hash(const Dataset& dataset) {
  Hasher hasher;
  hasher.number(dataset.size());
  for (const Field& field : dataset.fields()) {
    hasher.text(field.name).text(type_text(field.dtype, field.sizes));
    for (const int64_t size : field.sizes) hasher.number(size);
  }
  std::vector<int64_t> ids(static_cast<size_t>(dataset.size()));
  std::iota(ids.begin(), ids.end(), int64_t{0});
  dataset.hash_content(hasher, ids);
  return hasher.finish();
}

DatasetPointer array_dataset(NamedArrays arrays, const std::string& where) { return std::make_shared<ArrayDataset>(std::move(arrays), where); }

DatasetPointer window_dataset(TokenStream tokens, const WindowOptions& options, const std::string& where) {
  return std::make_shared<WindowDataset>(std::move(tokens), options, where);
}

DatasetPointer subset(DatasetPointer whole, std::vector<int64_t> ids) { return std::make_shared<Subset>(std::move(whole), std::move(ids)); }

Splits split_every(const DatasetPointer& whole, int64_t every, int64_t rest) {
  if (every < 1 || rest < 0 || rest >= every) throw UserError(fmt::format("cannot take the samples i % {} == {} as the test set", every, rest));
  std::vector<int64_t> train, test;
  for (int64_t i = 0; i < whole->size(); ++i) (i % every == rest ? test : train).push_back(i);
  return {subset(whole, std::move(train)), subset(whole, std::move(test))};
}

Splits split_last(const DatasetPointer& whole, int64_t parts) {
  if (parts < 1) throw UserError(fmt::format("cannot hold out one of {} parts", parts));
  const int64_t kept = whole->size() - whole->size() / parts;
  std::vector<int64_t> train, test;
  for (int64_t i = 0; i < whole->size(); ++i) (i < kept ? train : test).push_back(i);
  return {subset(whole, std::move(train)), subset(whole, std::move(test))};
}

NamedArrays slice_rows(const NamedArrays& batch, int64_t start, int64_t extent, int64_t padded) {
  const int64_t rows = std::max(extent, padded);
  NamedArrays out;
  for (const auto& [name, value] : batch) {
    SG_CHECK(value.rank() > 0 && start >= 0 && extent >= 0 && extent <= value.sizes()[0] && start <= value.sizes()[0] - extent,
             fmt::format("rows {} to {} + {} of {} {}", start, start, extent, name, type_text(value.dtype(), value.sizes())));
    const size_t row_bytes = value.sizes()[0] > 0 ? value.byte_count() / static_cast<size_t>(value.sizes()[0]) : 0;
    Sizes sizes = value.sizes();
    sizes[0] = rows;
    Literal part(value.dtype(), sizes);
    const size_t bytes = static_cast<size_t>(extent) * row_bytes;
    if (bytes > 0) std::memcpy(part.mutable_data(), value.data() + static_cast<size_t>(start) * row_bytes, bytes);
    out.emplace_back(name, std::move(part));
  }
  return out;
}

}  // namespace stepgraph
