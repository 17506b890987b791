// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/tensor/literal.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>

#include "stepgraph/base/error.h"

namespace stepgraph {
namespace {

// ---- storage ----

constexpr size_t alignment = 64;
/// What no machine has is not asked for: a size from a bad file is then an error also where the system would promise the memory.
constexpr size_t bytes_max = size_t{1} << 39;

/// Gives shared_ptr's control block the first 64 bytes of the elements' own allocation: one allocation for a tensor instead of two.
template <class T>
struct FrontAllocator {
  using value_type = T;
  explicit FrontAllocator(void* block) : block(block) {}
  template <class U>
  FrontAllocator(const FrontAllocator<U>& other) : block(other.block) {}  // NOLINT: required of an allocator
  T* allocate(size_t count) {
    SG_CHECK(count * sizeof(T) <= alignment, "control block does not fit");
    return static_cast<T*>(block);
  }
  void deallocate(T*, size_t) { ::operator delete (block, std::align_val_t{alignment}); }
  template <class U>
  bool operator==(const FrontAllocator<U>& other) const {
    return block == other.block;
  }
  void* block;
};

std::shared_ptr<std::byte[]> allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* block = bytes > bytes_max ? nullptr : ::operator new (alignment + bytes, std::align_val_t{alignment}, std::nothrow);
  if (block == nullptr) throw SystemError("out of memory: cannot allocate " + std::to_string(bytes) + " bytes for a tensor");
  const auto keep = [](std::byte*) {};
  return {static_cast<std::byte*>(block) + alignment, keep, FrontAllocator<std::byte>(block)};
}

// ---- element access: one struct a dtype, with the type that loads and stores without loss ----

template <DType dtype>
struct Element;
template <class T>
struct PlainElement {
  using Stored = T;
  using Value = T;
  static Value load(Stored stored) { return stored; }
};
template <>
struct Element<DType::F64> : PlainElement<double> {};
template <>
struct Element<DType::F32> : PlainElement<float> {};
template <>
struct Element<DType::I64> : PlainElement<int64_t> {};
template <>
struct Element<DType::I32> : PlainElement<int32_t> {};
template <>
struct Element<DType::I8> : PlainElement<int8_t> {};
template <>
struct Element<DType::U8> : PlainElement<uint8_t> {};
template <>
struct Element<DType::Bool> {
  using Stored = uint8_t;  // not bool: a byte from a file may hold anything
  using Value = bool;
  static Value load(Stored stored) { return stored != 0; }
};
template <>
struct Element<DType::BF16> {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) { return bf16_to_f32(stored); }
};
template <>
struct Element<DType::F16> {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) { return f16_to_f32(stored); }
};

template <class Integer>
Integer saturate(double value) {
  if (std::isnan(value)) return 0;
  // Both limits as f64: the upper one of i64 rounds up to 2^63, which is already too large, hence >=.
  constexpr auto low = static_cast<double>(std::numeric_limits<Integer>::min());
  constexpr auto high = static_cast<double>(std::numeric_limits<Integer>::max());
  if (value <= low) return std::numeric_limits<Integer>::min();
  if (value >= high) return std::numeric_limits<Integer>::max();
  return static_cast<Integer>(value);
}

/// i64 as f64 rounded to odd: a later rounding to at most 51 bits then equals one rounding of the integer.
double to_odd_double(int64_t value) {
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const int excess = std::max(0, 64 - 53 - std::countl_zero(magnitude));
  const uint64_t lost = magnitude & ((uint64_t{1} << excess) - 1);
  magnitude = (magnitude >> excess) | (lost != 0 ? 1 : 0);
  const double result = std::ldexp(static_cast<double>(magnitude), excess);
  return value < 0 ? -result : result;
}

template <DType to, class Value>
typename Element<to>::Stored store(Value value) {
  using Stored = typename Element<to>::Stored;
  if constexpr (to == DType::Bool) {
    return value != 0;
  } else if constexpr (to == DType::BF16 || to == DType::F16) {
    if constexpr (std::is_same_v<Value, float>) {
      return to == DType::BF16 ? f32_to_bf16(value) : f32_to_f16(value);
    } else if constexpr (std::is_same_v<Value, int64_t>) {
      return to == DType::BF16 ? f64_to_bf16(to_odd_double(value)) : f64_to_f16(to_odd_double(value));
    } else {
      return to == DType::BF16 ? f64_to_bf16(value) : f64_to_f16(value);
    }
  } else if constexpr (std::is_floating_point_v<Value> && std::is_integral_v<Stored>) {
    return saturate<Stored>(value);
  } else {
    return static_cast<Stored>(value);
  }
}

/// Calls `body` with the dtype as a compile-time constant.
template <class Body>
decltype(auto) dispatch(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::F64: return body(std::integral_constant<DType, DType::F64>{});
    case DType::F32: return body(std::integral_constant<DType, DType::F32>{});
    case DType::BF16: return body(std::integral_constant<DType, DType::BF16>{});
    case DType::F16: return body(std::integral_constant<DType, DType::F16>{});
    case DType::I64: return body(std::integral_constant<DType, DType::I64>{});
    case DType::I32: return body(std::integral_constant<DType, DType::I32>{});
    case DType::I8: return body(std::integral_constant<DType, DType::I8>{});
    case DType::U8: return body(std::integral_constant<DType, DType::U8>{});
    case DType::Bool: return body(std::integral_constant<DType, DType::Bool>{});
  }
  check_failed("dtype is one of the enumerators", std::to_string(static_cast<int>(dtype)), std::source_location::current());
}

template <DType dtype>
const typename Element<dtype>::Stored* elements(const std::byte* data) {
  return reinterpret_cast<const typename Element<dtype>::Stored*>(data);
}
template <DType dtype>
typename Element<dtype>::Stored* elements(std::byte* data) {
  return reinterpret_cast<typename Element<dtype>::Stored*>(data);
}

template <class Source>
void fill_from(DType dtype, std::byte* data, std::span<const Source> values) {
  dispatch(dtype, [&](auto tag) {
    auto* out = elements<tag.value>(data);
    for (size_t i = 0; i < values.size(); ++i) out[i] = store<tag.value>(values[i]);
  });
}

void check_count(int64_t wanted, size_t found) {
  if (static_cast<size_t>(wanted) != found) throw UserError("literal: found " + std::to_string(found) + " values, its sizes want " + std::to_string(wanted));
}

// ---- text ----

template <class Value>
std::string shortest(Value value) {
  if (std::isnan(value)) return "nan";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

/// The fewest digits that read back to the same half-width number: far fewer than its exact value as f32 has.
template <class Round>
std::string shortest_half(float value, Round round) {
  if (!std::isfinite(value) || value == 0) return shortest(value);
  char buffer[64];
  for (int digits = 1; digits < 9; ++digits) {
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific, digits - 1).ptr;
    double read = 0;
    std::from_chars(buffer, end, read);
    if (round(read) == value) return shortest(read);
  }
  return shortest(value);
}

std::string element_text(const Literal& literal, int64_t index) {
  const auto i = static_cast<size_t>(index);
  switch (literal.dtype()) {
    case DType::F64: return shortest(literal.as<double>()[i]);
    case DType::F32: return shortest(literal.as<float>()[i]);
    case DType::BF16:
    case DType::F16: return shortest_half(static_cast<float>(literal.at(index)), [&](double value) { return round_to(literal.dtype(), value); });
    case DType::I64:
    case DType::I32:
    case DType::I8:
    case DType::U8: return std::to_string(literal.integer_at(index));
    case DType::Bool: return literal.integer_at(index) != 0 ? "true" : "false";
  }
  return {};
}

}  // namespace

int64_t element_count(const Sizes& sizes) {
  int64_t count = 1;
  bool empty = false, overflow = false;
  for (const int64_t size : sizes) {
    if (size < 0) throw UserError("found size " + std::to_string(size) + ", wanted a size of at least 0");
    if (size == 0)
      empty = true;
    else
      overflow = overflow || __builtin_mul_overflow(count, size, &count);
  }
  if (empty) return 0;
  if (overflow) throw UserError("size overflows 64 bits");
  return count;
}

Literal Literal::uninitialised(DType dtype, Sizes sizes) { return Literal(dtype, std::move(sizes), Unfilled{}); }

Literal::Literal(DType dtype, Sizes sizes, Unfilled) : dtype_(dtype), sizes_(std::move(sizes)), count_(stepgraph::element_count(sizes_)) {
  if (count_ > static_cast<int64_t>(PTRDIFF_MAX / 2 / size_bytes(dtype))) throw UserError("size overflows 64 bits");
  storage_ = allocate(byte_count());
}

Literal::Literal(DType dtype, Sizes sizes) : Literal(dtype, std::move(sizes), Unfilled{}) {
  if (count_ > 0) std::memset(storage_.get(), 0, byte_count());
}

Literal Literal::view(DType dtype, Sizes sizes, const std::shared_ptr<const void>& owner, const std::byte* data) {
  SG_CHECK(reinterpret_cast<uintptr_t>(data) % size_bytes(dtype) == 0, "unaligned view");
  Literal result(dtype, Sizes{0});
  result.sizes_ = std::move(sizes);
  result.count_ = stepgraph::element_count(result.sizes_);
  result.storage_ = std::shared_ptr<std::byte[]>(owner, const_cast<std::byte*>(data));
  result.view_ = true;
  return result;
}

Literal Literal::scalar(DType dtype, double value) { return from_doubles(dtype, {}, {&value, 1}); }
Literal Literal::integer(DType dtype, int64_t value) { return from_integers(dtype, {}, {&value, 1}); }

Literal Literal::full(DType dtype, Sizes sizes, double value) {
  Literal result = uninitialised(dtype, std::move(sizes));
  dispatch(dtype, [&](auto tag) { std::fill_n(elements<tag.value>(result.storage_.get()), result.count_, store<tag.value>(value)); });
  return result;
}

Literal Literal::from_doubles(DType dtype, Sizes sizes, std::span<const double> values) {
  Literal result = uninitialised(dtype, std::move(sizes));
  check_count(result.count_, values.size());
  fill_from(dtype, result.storage_.get(), values);
  return result;
}

Literal Literal::from_integers(DType dtype, Sizes sizes, std::span<const int64_t> values) {
  Literal result = uninitialised(dtype, std::move(sizes));
  check_count(result.count_, values.size());
  fill_from(dtype, result.storage_.get(), values);
  return result;
}

template <class T>
Literal Literal::of(Sizes sizes, std::span<const T> values) {
  constexpr DType dtype = std::is_same_v<T, float>     ? DType::F32
                          : std::is_same_v<T, double>  ? DType::F64
                          : std::is_same_v<T, int64_t> ? DType::I64
                          : std::is_same_v<T, int32_t> ? DType::I32
                          : std::is_same_v<T, int8_t>  ? DType::I8
                          : std::is_same_v<T, uint8_t> ? DType::U8
                                                       : DType::Bool;
  Literal result = uninitialised(dtype, std::move(sizes));
  check_count(result.count_, values.size());
  if (!values.empty()) std::memcpy(result.storage_.get(), values.data(), values.size_bytes());
  return result;
}
template Literal Literal::of(Sizes, std::span<const float>);
template Literal Literal::of(Sizes, std::span<const double>);
template Literal Literal::of(Sizes, std::span<const int64_t>);
template Literal Literal::of(Sizes, std::span<const int32_t>);
template Literal Literal::of(Sizes, std::span<const int8_t>);
template Literal Literal::of(Sizes, std::span<const uint8_t>);
template Literal Literal::of(Sizes, std::span<const bool>);

std::byte* Literal::mutable_data() {
  if (view_ || storage_.use_count() > 1) {
    auto copy = allocate(byte_count());
    if (byte_count() > 0) std::memcpy(copy.get(), storage_.get(), byte_count());
    storage_ = std::move(copy);
    view_ = false;
  } else {
    // use_count() is a relaxed load: what another thread read before it dropped its copy must not see our writes. Taking a copy acquires
    // what that thread released. (A fence would do as well, but the thread sanitizer does not know fences.)
    const auto acquired = storage_;
  }
  return storage_.get();
}

double Literal::at(int64_t index) const {
  return dispatch(dtype_, [&](auto tag) {
    using E = Element<tag.value>;
    return static_cast<double>(E::load(elements<tag.value>(data())[index]));
  });
}

int64_t Literal::integer_at(int64_t index) const {
  return dispatch(dtype_, [&](auto tag) {
    using E = Element<tag.value>;
    return store<DType::I64>(E::load(elements<tag.value>(data())[index]));
  });
}

void Literal::set(int64_t index, double value) {
  std::byte* out = mutable_data();
  dispatch(dtype_, [&](auto tag) { elements<tag.value>(out)[index] = store<tag.value>(value); });
}

void Literal::set_integer(int64_t index, int64_t value) {
  std::byte* out = mutable_data();
  dispatch(dtype_, [&](auto tag) { elements<tag.value>(out)[index] = store<tag.value>(value); });
}

std::vector<double> Literal::to_doubles() const {
  std::vector<double> result(static_cast<size_t>(count_));
  dispatch(dtype_, [&](auto tag) {
    using E = Element<tag.value>;
    const auto* in = elements<tag.value>(data());
    for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<double>(E::load(in[i]));
  });
  return result;
}

Literal Literal::reshaped(Sizes sizes) const {
  if (stepgraph::element_count(sizes) != count_)
    throw UserError("literal: cannot reshape " + std::to_string(count_) + " elements to " + std::to_string(stepgraph::element_count(sizes)));
  Literal result = *this;
  result.sizes_ = std::move(sizes);
  return result;
}

Literal Literal::converted(DType dtype) const {
  if (dtype == dtype_) return *this;
  Literal result = uninitialised(dtype, sizes_);
  std::byte* target = result.storage_.get();
  dispatch(dtype_, [&](auto from) {
    dispatch(dtype, [&](auto to) {
      using E = Element<from.value>;
      const auto* in = elements<from.value>(data());
      auto* out = elements<to.value>(target);
      const int64_t count = count_;
      for (int64_t i = 0; i < count; ++i) out[i] = store<to.value>(E::load(in[i]));
    });
  });
  return result;
}

bool Literal::operator==(const Literal& other) const {
  if (dtype_ != other.dtype_ || sizes_ != other.sizes_) return false;
  return storage_ == other.storage_ || std::memcmp(data(), other.data(), byte_count()) == 0;
}

std::string Literal::text(int64_t limit) const {
  std::string result(name(dtype_));
  result += '[';
  for (size_t i = 0; i < sizes_.size(); ++i) result += (i > 0 ? ", " : "") + std::to_string(sizes_[i]);
  result += "] {";
  for (int64_t i = 0; i < std::min(count_, limit); ++i) {
    if (i > 0) result += ", ";
    result += element_text(*this, i);
  }
  if (count_ > limit) result += limit > 0 ? ", ..." : "...";
  return result + "}";
}

bool is_splat(const Literal& value) {
  const size_t width = size_bytes(value.dtype());
  // Every element equals its neighbour: the bytes equal themselves moved by one element.
  return value.count() > 0 && std::memcmp(value.data(), value.data() + width, value.byte_count() - width) == 0;
}

}  // namespace stepgraph
