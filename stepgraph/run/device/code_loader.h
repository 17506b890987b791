// SPDX-License-Identifier: Apache-2.0
// Object files of forms made callable in this process: relocated by LLVM, not compiled.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>
#include "stepgraph/program/form.h"

namespace stepgraph {

/// See FormCode.
using FormFunction = void (*)(void* const* operands, const int64_t* sizes, int64_t begin, int64_t end, void* scratch, int64_t* status);

class LoadedCode {
 public:
  virtual ~LoadedCode() = default;
  virtual FormFunction function(size_t form) const = 0;  ///< valid while this lives
};
/// UserError if an object is damaged or needs what this process has not.
std::unique_ptr<LoadedCode> load_code(std::span<const FormCode> code);

}  // namespace stepgraph
