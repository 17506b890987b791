// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/device/scatter.h"

#include <algorithm>
#include <utility>

#include "stepgraph/base/error.h"
#include "stepgraph/run/device/wide_elements.h"

namespace stepgraph {
namespace {

/// Results that are summed at once: what lies in a core's own cache.
constexpr int64_t held_elements = 32'768;

int64_t load_index(DType dtype, const void* from, int64_t i) {
  switch (dtype) {
    case DType::I32: return static_cast<const int32_t*>(from)[i];
    case DType::I8: return static_cast<const int8_t*>(from)[i];
    case DType::U8: return static_cast<const uint8_t*>(from)[i];
    default: return static_cast<const int64_t*>(from)[i];
  }
}

struct AddTo {
  template <class Wide>
  Wide operator()(Wide held, Wide update) const {
    return wide_add(held, update);
  }
};
struct ReduceTo {
  ScatterKind kind;
  template <class Wide>
  Wide operator()(Wide held, Wide update) const {
    switch (kind) {
      case ScatterKind::Max: return wide_max(held, update);
      case ScatterKind::Min: return wide_min(held, update);
      default: return wide_multiply(held, update);
    }
  }
};

/// A part of the result: rows and columns of one index of the outer dim.
struct Part {
  int64_t outer, first_row, last_row, first_column, last_column;
  int64_t rows() const { return last_row - first_row; }
  int64_t columns() const { return last_column - first_column; }
};

template <class Element, class Combine>
class PartScatter {
 public:
  using Stored = typename Element::Stored;
  using Wide = typename Element::Wide;
  PartScatter(const ScatterOperands& operands, const ScatterPointers& pointers, Combine combine, void* scratch, int64_t* status)
      : operands_(operands), pointers_(pointers), combine_(combine), scratch_(scratch), status_(status) {}

  /// Through the updates with all of the part in the scratch.
  void walk(const Part& part, bool one_index) const {
    auto* const held = static_cast<Wide*>(scratch_);
    const int64_t columns = part.columns(), count = operands_.updates.sizes[1];
    for (int64_t row = part.first_row; row < part.last_row; ++row) load_base(part, row, held + (row - part.first_row) * columns);
    for (int64_t p = 0; p < count; ++p) {
      if (one_index) {
        const int64_t index = index_at(part.outer, p, part.first_column);
        if (index >= part.first_row && index < part.last_row) add_row(part, p, held + (index - part.first_row) * columns);
        continue;
      }
      const Stored* const update = update_at(part, p);
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t index = index_at(part.outer, p, part.first_column + c);
        if (index < part.first_row || index >= part.last_row) continue;
        Wide& to = held[(index - part.first_row) * columns + c];
        to = combine_(to, Element::load(update[c * operands_.updates.strides[2]]));
      }
    }
    for (int64_t row = part.first_row; row < part.last_row; ++row) store(part, row, held + (row - part.first_row) * columns);
  }

  /// A row of the result after another, of updates sorted by their row. One index for all of a row.
  void by_rows(const Part& part) const {
    const int64_t count = operands_.updates.sizes[1], rows = part.rows();
    auto* const ends = static_cast<int64_t*>(scratch_);  // of a row's updates
    int64_t* const order = ends + rows + 1;
    auto* const held = reinterpret_cast<Wide*>(order + count);
    std::fill_n(ends, rows + 1, int64_t{0});
    const auto row_of = [&](int64_t p) {
      const int64_t index = index_at(part.outer, p, part.first_column);
      return index < part.first_row || index >= part.last_row ? int64_t{-1} : index - part.first_row;
    };
    for (int64_t p = 0; p < count; ++p)
      if (const int64_t row = row_of(p); row >= 0) ++ends[row + 1];
    for (int64_t row = 0; row < rows; ++row) ends[row + 1] += ends[row];
    for (int64_t p = 0; p < count; ++p)
      if (const int64_t row = row_of(p); row >= 0) order[ends[row]++] = p;
    int64_t next = 0;
    for (int64_t row = 0; row < rows; ++row) {
      if (next == ends[row] && operands_.in_place) continue;
      if (next == ends[row] && !operands_.base) {
        std::fill_n(out_at(part, part.first_row + row), part.columns(), Stored{});
        continue;
      }
      load_base(part, part.first_row + row, held);
      for (; next < ends[row]; ++next) add_row(part, order[next], held);
      store(part, part.first_row + row, held);
    }
  }

 private:
  int64_t index_at(int64_t outer, int64_t p, int64_t column) const {
    const Sizes& strides = operands_.index.strides;
    const int64_t index = load_index(operands_.index_dtype, pointers_.index, outer * strides[0] + p * strides[1] + column * strides[2]);
    if ((index < 0 || index >= operands_.out[1]) && status_[0] == 0) status_[0] = 1, status_[1] = index, status_[2] = operands_.out[1];
    return index;
  }
  const Stored* update_at(const Part& part, int64_t p) const {
    const Sizes& strides = operands_.updates.strides;
    return static_cast<const Stored*>(pointers_.updates) + part.outer * strides[0] + p * strides[1] + part.first_column * strides[2];
  }
  Stored* out_at(const Part& part, int64_t row) const {
    return static_cast<Stored*>(pointers_.out) + (part.outer * operands_.out[1] + row) * operands_.out[2] + part.first_column;
  }
  void add_row(const Part& part, int64_t p, Wide* held) const {
    const Stored* const update = update_at(part, p);
    const int64_t stride = operands_.updates.strides[2], columns = part.columns();
    if (stride == 1)
      for (int64_t c = 0; c < columns; ++c) held[c] = combine_(held[c], Element::load(update[c]));
    else
      for (int64_t c = 0; c < columns; ++c) held[c] = combine_(held[c], Element::load(update[c * stride]));
  }
  void load_base(const Part& part, int64_t row, Wide* held) const {
    if (!operands_.base) {
      std::fill_n(held, part.columns(), Wide{});
      return;
    }
    const Sizes& strides = operands_.base->strides;
    const Stored* const base = static_cast<const Stored*>(pointers_.base) + part.outer * strides[0] + row * strides[1] + part.first_column * strides[2];
    for (int64_t c = 0; c < part.columns(); ++c) held[c] = Element::load(base[c * strides[2]]);
  }
  void store(const Part& part, int64_t row, const Wide* held) const {
    Stored* const out = out_at(part, row);
    for (int64_t c = 0; c < part.columns(); ++c) out[c] = Element::store(held[c]);
  }

  const ScatterOperands& operands_;
  const ScatterPointers& pointers_;
  Combine combine_;
  void* scratch_;
  int64_t* status_;
};

int64_t blocks_of_size(int64_t size, int64_t block) { return (size + block - 1) / block; }

}  // namespace

ScatterWork::ScatterWork(ScatterOperands operands) : operands_(std::move(operands)) {
  const Sizes &out = operands_.out, &updates = operands_.updates.sizes;
  SG_CHECK(out.size() == 3 && updates.size() == 3 && operands_.index.sizes == updates && updates[0] == out[0] && updates[2] == out[2],
           "a scatter wants [outer, count, inner] into [outer, size, inner]");
  outer_ = out[0], size_ = out[1], inner_ = out[2], count_ = updates[1];
  one_index_ = inner_ == 1 || operands_.index.strides[2] == 0;
  constexpr int64_t line = 16, wide = 64, many = 32;  // columns that two threads do not share a line of; when to cut by them; pieces enough without
  rows_ = std::max<int64_t>(size_, 1), columns_ = std::max<int64_t>(inner_, 1);
  if (inner_ >= wide)
    columns_ = line;
  else if (outer_ < many)
    rows_ = std::max<int64_t>(blocks_of_size(size_, 2 * many), 1);
  row_blocks_ = blocks_of_size(size_, rows_), column_blocks_ = blocks_of_size(inner_, columns_);
}

int64_t ScatterWork::pieces() const {
  if (size_ == 0) return outer_ * count_ * inner_ > 0 ? 1 : 0;  // updates without a place are an error
  return outer_ * row_blocks_ * column_blocks_;
}

size_t ScatterWork::scratch_bytes() const {
  return static_cast<size_t>(std::max(std::max(held_elements, inner_), one_index_ ? size_ + 1 + count_ + inner_ : 0)) * sizeof(int64_t);
}

void ScatterWork::run(const ScatterPointers& pointers, int64_t begin, int64_t end, void* scratch, int64_t* status) const {
  const auto run_as = [&](auto element, auto combine) {
    const PartScatter<decltype(element), decltype(combine)> scatter(operands_, pointers, combine, scratch, status);
    if (size_ == 0) return scatter.walk({0, 0, 0, 0, inner_}, one_index_);
    const int64_t blocks = row_blocks_ * column_blocks_;
    for (int64_t piece = begin; piece < end;) {
      // Neighbours of one index of the outer dim as one.
      const int64_t outer = piece / blocks, first = piece % blocks, last = std::min(blocks, first + end - piece);
      piece += last - first;
      Part part{outer, 0, size_, 0, inner_};
      if (column_blocks_ > 1)
        part.first_column = first * columns_, part.last_column = std::min(last * columns_, inner_);
      else
        part.first_row = first * rows_, part.last_row = std::min(last * rows_, size_);
      if (part.rows() * part.columns() > held_elements && one_index_) {
        scatter.by_rows(part);
        continue;
      }
      const int64_t step = std::max<int64_t>(held_elements / part.columns(), 1), last_row = part.last_row;
      for (; part.first_row < last_row; part.first_row = part.last_row) {
        part.last_row = std::min(part.first_row + step, last_row);
        scatter.walk(part, one_index_);
      }
    }
  };
  with_wide_element(operands_.dtype, [&](auto element) {
    if (operands_.kind == ScatterKind::Add)
      run_as(element, AddTo{});
    else
      run_as(element, ReduceTo{operands_.kind});
  });
}

}  // namespace stepgraph
