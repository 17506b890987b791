// SPDX-License-Identifier: Apache-2.0
// The .npy header: a magic word, a version and a Python dictionary (NumPy enhancement proposal 1, versions 1 to 3).
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>
#include "stepgraph/base/error.h"
#include "stepgraph/tensor/literal.h"

namespace stepgraph {

/// Element type in the file.
enum class NpyElement { F64, F32, F16, I64, I32, I16, I8, U64, U32, U16, U8, Bool };

struct NpyHeader {
  NpyElement element = NpyElement::F32;
  bool big_endian = false;
  bool fortran_order = false;
  Sizes sizes;
};

/// An array of strings, objects, records or complex numbers: it may stand beside arrays that are read.
class UnsupportedElements : public UserError {
 public:
  using UserError::UserError;
};

/// Fills the whole span with the next bytes of the member, or throws.
using ByteSource = std::function<void(std::span<std::byte>)>;
/// Reads `member_bytes` bytes through `next`. `where` names file and member in errors.
Literal read_npy(int64_t member_bytes, const ByteSource& next, const std::string& where);
/// Version 1 (2 if the header is long) in C order; bf16 must have been converted before.
std::vector<std::byte> print_npy(const Literal& value);

}  // namespace stepgraph
