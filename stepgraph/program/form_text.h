// SPDX-License-Identifier: Apache-2.0
// Forms as text, one line an expression, canonical: what is read prints to the same text.
//
//     form sizes 1 {
//       factor i0 = s0
//       factor i1 = 64
//       operand 0 read f32
//       operand 1 write f32
//       %0 = load 0 [64*i0 + i1] : f32
//       %1 = sum over i1 of %0 : f32
//       %2 = div %0, %1 : f32
//       store 1 [64*i0 + i1] = %2
//     }
//
// A factor that is cut: "factor i1 = 128 block_of i0 total s0". A load with indices and guards: "load 0 [i1] index %0 < s1 stride 64 where [i0 - 1] < 8 else
// %1". Constants are numbers, or the bits where a number would lose some ("bits x7fc00001"). Reading checks the form of the text alone; the rest is check's.
#pragma once
#include <string>
#include <string_view>
#include "stepgraph/base/hash.h"
#include "stepgraph/program/form.h"

namespace stepgraph {

class TextScanner;

std::string text(const Form& form);
/// UserError "NAME:12:7: found ..., wanted ..." for the first fault.
Form parse_form(std::string_view text, const std::string& name = "form");
Form read_form(TextScanner& scanner);
/// Of its text.
Hash128 form_hash(const Form& form);

/// The parts, for messages: "[64*i0 + i1]", "%2 = div %0, %1 : f32".
std::string text(const Affine& affine);
std::string expr_text(const Form& form, size_t index);

/// InternalError for what is no form: places that do not exist, dtypes that do not fit, values that vary over factors which their store or their reduction does
/// not know, an operand that is changed in place at another index than it is read at.
void check(const Form& form);

}  // namespace stepgraph
