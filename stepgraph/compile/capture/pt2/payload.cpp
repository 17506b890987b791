// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <algorithm>
#include <cstring>
#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/archive.h"
#include "stepgraph/compile/capture/pt2/program_json.h"
#include "stepgraph/compile/capture/pt2/zip_directory.h"

namespace stepgraph::pt2 {
namespace {

constexpr size_t rank_max = 64;

/// A strided view in numbers, dims of size 1 left out.
struct PayloadView {
  DType dtype = DType::F32;
  Sizes sizes, strides;  // in elements
  Sizes shape;           // with all dims
  int64_t offset = 0, count = 0;
  std::string where;
};

[[noreturn]] void payload_error(const std::string& where, const std::string& what) { throw UserError(where + ": " + what); }

int64_t constant_of(const Dim& dim, const char* what, const std::string& where) {
  if (!dim.is_constant()) payload_error(where, fmt::format("{} {} is symbolic, wanted a number", what, shown(dim.text())));
  if (dim.constant() < 0) payload_error(where, fmt::format("{} {} is negative", what, dim.constant()));
  return dim.constant();
}

PayloadView view_of(const Payload& payload, std::string where) {
  PayloadView view;
  view.where = std::move(where);
  const TensorMeta& meta = payload.meta;
  if (!meta.dtype)
    payload_error(view.where, fmt::format("its type, {}, is not supported, wanted f64 f32 bf16 f16 i64 i32 i8 u8 or bool", type_of_number(meta.dtype_number)));
  view.dtype = *meta.dtype;
  if (meta.sizes.size() > rank_max) payload_error(view.where, fmt::format("{} dims, wanted at most {}", meta.sizes.size(), rank_max));
  if (meta.sizes.size() != meta.strides.size()) payload_error(view.where, fmt::format("{} sizes but {} strides", meta.sizes.size(), meta.strides.size()));
  view.offset = constant_of(meta.storage_offset, "storage offset", view.where);
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    view.shape.push_back(constant_of(meta.sizes[i], "size", view.where));
    const int64_t stride = constant_of(meta.strides[i], "stride", view.where);
    if (view.shape.back() == 1) continue;
    view.sizes.push_back(view.shape.back());
    view.strides.push_back(stride);
  }
  try {
    view.count = element_count(view.shape);
  } catch (const UserError& error) {
    payload_error(view.where, error.what());
  }
  return view;
}

/// Elements from the first one of the storage to the last one that the view reads.
int64_t reach(const PayloadView& view) {
  int64_t last = view.offset;
  bool overflow = false;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    int64_t step = 0;
    overflow = overflow || __builtin_mul_overflow(view.sizes[i] - 1, view.strides[i], &step) || __builtin_add_overflow(last, step, &last);
  }
  overflow = overflow || __builtin_add_overflow(last, 1, &last);
  if (overflow) payload_error(view.where, "sizes and strides overflow 64 bits");
  return last;
}

void check_inside(const PayloadView& view, size_t member_bytes) {
  const auto stored = static_cast<int64_t>(member_bytes / size_bytes(view.dtype));
  if (member_bytes == 0) payload_error(view.where, "has no data in the file: it was a fake or meta tensor when it was saved");
  if (const int64_t wanted = reach(view); wanted > stored)
    payload_error(view.where, fmt::format("reads elements up to {} of {}, its storage has {} ({} bytes)", wanted, name(view.dtype), stored, member_bytes));
}

bool dense(const PayloadView& view) {
  int64_t stride = 1;
  for (size_t i = view.sizes.size(); i-- > 0;) {
    if (view.strides[i] != stride) return false;
    stride *= view.sizes[i];  // fits: the count does
  }
  return true;
}

template <size_t width>
void gather_row(std::byte* to, const std::byte* from, int64_t count, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + static_cast<size_t>(i) * width, from + static_cast<size_t>(i * stride) * width, width);
}

void gather_row(std::byte* to, const std::byte* from, int64_t count, int64_t stride, size_t width) {
  if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * width);
    return;
  }
  switch (width) {
    case 1: return gather_row<1>(to, from, count, stride);
    case 2: return gather_row<2>(to, from, count, stride);
    case 4: return gather_row<4>(to, from, count, stride);
    default: return gather_row<8>(to, from, count, stride);
  }
}

Literal gathered(const PayloadView& view, const std::byte* storage) {
  Literal result = Literal::uninitialised(view.dtype, view.shape);
  const size_t width = size_bytes(view.dtype);
  std::byte* to = result.mutable_data();
  const std::byte* base = storage + static_cast<size_t>(view.offset) * width;
  if (view.sizes.empty()) {
    std::memcpy(to, base, width);
    return result;
  }
  const size_t outer = view.sizes.size() - 1;
  const int64_t row = view.sizes[outer];
  Sizes index(outer, 0);
  int64_t at = 0;
  for (int64_t done = 0; done < view.count; done += row) {
    gather_row(to + static_cast<size_t>(done) * width, base + static_cast<size_t>(at) * width, row, view.strides[outer], width);
    for (size_t i = outer; i-- > 0;) {
      at += view.strides[i];
      if (++index[i] < view.sizes[i]) break;
      at -= view.sizes[i] * view.strides[i];
      index[i] = 0;
    }
  }
  return result;
}

void check_bools(const Literal& values, const std::string& where) {
  const std::span bytes = std::span(reinterpret_cast<const uint8_t*>(values.data()), values.byte_count());
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte > 1; });
  if (bad != bytes.end()) payload_error(where, fmt::format("bool element {} is {}, wanted 0 or 1", bad - bytes.begin(), *bad));
}

}  // namespace

Literal payload_literal(const Pt2Archive& archive, const Payload& payload, const std::string& name) {
  std::string where = fmt::format("{}: {}", archive.path(), shown(payload.member));
  if (!name.empty()) where += fmt::format(" (tensor '{}')", shown(name));
  const PayloadView view = view_of(payload, std::move(where));
  if (view.count == 0) return Literal(view.dtype, view.shape);
  const std::span<const std::byte> bytes = archive.member(payload.member);
  check_inside(view, bytes.size());

  const size_t width = size_bytes(view.dtype);
  const std::byte* first = bytes.data() + static_cast<size_t>(view.offset) * width;
  const bool shared = dense(view) && reinterpret_cast<uintptr_t>(first) % width == 0;
  if (!shared) {
    int64_t copied = 0;
    if (__builtin_mul_overflow(view.count, static_cast<int64_t>(width), &copied)) payload_error(view.where, "size overflows 64 bits");
    archive.charge_copy(copied, view.where);
  }
  Literal result = shared ? Literal::view(view.dtype, view.shape, archive.storage(), first) : gathered(view, bytes.data());
  if (view.dtype == DType::Bool) check_bools(result, view.where);
  return result;
}

bool same_payload(const Payload& a, const Payload& b) {
  return a.member == b.member && a.meta.dtype_number == b.meta.dtype_number && a.meta.storage_offset == b.meta.storage_offset && a.meta.sizes == b.meta.sizes &&
         a.meta.strides == b.meta.strides;
}

}  // namespace stepgraph::pt2
