// SPDX-License-Identifier: Apache-2.0
// A value on the host: dtype, sizes, and dense row-major elements. Copies share storage; the storage of a Literal is written only by its sole
// owner (mutable_data copies when it is shared).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include "stepgraph/tensor/dtype.h"

namespace stepgraph {

using Sizes = std::vector<int64_t>;
/// Product, overflow-checked: UserError "size overflows 64 bits"; negative sizes are refused.
int64_t element_count(const Sizes& sizes);

class Literal {
 public:
  Literal() : Literal(DType::F32, Sizes{0}) {}
  /// Zero-filled.
  Literal(DType dtype, Sizes sizes);
  /// Elements are left as they are: the caller writes all of them.
  static Literal uninitialised(DType dtype, Sizes sizes);
  static Literal scalar(DType dtype, double value);   ///< rounds once
  static Literal integer(DType dtype, int64_t value);
  static Literal full(DType dtype, Sizes sizes, double value);
  /// `values` in row-major order, each rounded once to dtype; count must match sizes.
  static Literal from_doubles(DType dtype, Sizes sizes, std::span<const double> values);
  static Literal from_integers(DType dtype, Sizes sizes, std::span<const int64_t> values);
  /// Elements that lie elsewhere, in memory that `owner` keeps alive and nobody changes. They are never written: mutable_data copies first. `data` must be
  /// aligned to the element size.
  static Literal view(DType dtype, Sizes sizes, const std::shared_ptr<const void>& owner, const std::byte* data);
  template <class T>
  static Literal of(Sizes sizes, std::span<const T> values);  ///< T in float double int64_t int32_t int8_t uint8_t bool

  DType dtype() const { return dtype_; }
  const Sizes& sizes() const { return sizes_; }
  size_t rank() const { return sizes_.size(); }
  int64_t count() const { return count_; }
  size_t byte_count() const { return static_cast<size_t>(count_) * size_bytes(dtype_); }

  const std::byte* data() const { return storage_.get(); }
  std::byte* mutable_data();
  template <class T>
  std::span<const T> as() const { return {reinterpret_cast<const T*>(data()), static_cast<size_t>(count_)}; }
  template <class T>
  std::span<T> as_mutable() { return {reinterpret_cast<T*>(mutable_data()), static_cast<size_t>(count_)}; }

  /// Element by linear index, of any dtype.
  double at(int64_t index) const;
  int64_t integer_at(int64_t index) const;  ///< floats truncate; exact for i64
  void set(int64_t index, double value);    ///< one rounding
  void set_integer(int64_t index, int64_t value);
  std::vector<double> to_doubles() const;

  /// The same elements with other sizes of equal count; shares storage.
  Literal reshaped(Sizes sizes) const;
  /// Each element converted with one rounding; float to integer truncates towards zero and saturates, NaN gives 0; an
  /// integer to a narrower one keeps the low bits; to bool is `!= 0`.
  Literal converted(DType dtype) const;

  /// Bit equality of dtype, sizes and elements.
  bool operator==(const Literal& other) const;
  /// "f32[2, 3] {1, 2, 3, ...}" with at most `limit` elements, shortest text that reads back to the same value.
  std::string text(int64_t limit = 1000) const;

 private:
  struct Unfilled {};
  Literal(DType dtype, Sizes sizes, Unfilled);
  DType dtype_;
  Sizes sizes_;
  int64_t count_ = 0;
  std::shared_ptr<std::byte[]> storage_;  // 64-byte aligned, but for views
  bool view_ = false;                     // of memory that is not ours to write
};

/// Every element has the bits of the first; false where there is none.
bool is_splat(const Literal& value);

}  // namespace stepgraph
