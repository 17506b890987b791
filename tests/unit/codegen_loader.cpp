// SPDX-License-Identifier: Apache-2.0
// Object files of forms: several at once, damaged ones, and ones that want what this process does not give.
#include <gtest/gtest.h>

#include "stepgraph/base/error.h"
#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/run/device/code_loader.h"
#include "tests/support/error_of.h"
#include "tests/support/form_maker.h"

namespace stepgraph {
namespace codegen_loader_test {

using testing::error_of;
using testing::FormMaker;

FormCode code_of(UnaryKind kind) {
  FormMaker maker;
  const int i = maker.factor(20), x = maker.reads(DType::F32), y = maker.writes(DType::F32);
  const Affine at = FormMaker::at({{i, 1}});
  maker.store(y, at, maker.unary(kind, maker.load(x, at)));
  return emit_form(maker.form, Target{});
}

TEST(CodegenLoader, ManyFormsAndOneTwice) {
  const std::vector<FormCode> code = {code_of(UnaryKind::Negate), code_of(UnaryKind::Tan), code_of(UnaryKind::Negate), code_of(UnaryKind::Sigmoid)};
  const std::unique_ptr<LoadedCode> loaded = load_code(code);
  EXPECT_EQ(loaded->function(0), loaded->function(2));
  std::vector<float> x(20, 1), y(20);
  void* operands[] = {x.data(), y.data()};
  int64_t status[4] = {};
  loaded->function(0)(operands, nullptr, 0, 1, nullptr, status);
  EXPECT_EQ(y[19], -1);
  loaded->function(1)(operands, nullptr, 0, 1, nullptr, status);
  EXPECT_FLOAT_EQ(y[0], 1.5574077F);
  EXPECT_NO_THROW(load_code({}));
}

TEST(CodegenLoader, ATruncatedObjectIsRefused) {
  FormCode code = code_of(UnaryKind::Tan);
  const std::string whole = code.object;
  for (size_t size = 0; size < whole.size(); size += size < 128 ? 1 : 37) {
    code.object = whole.substr(0, size);
    EXPECT_NE(error_of([&] { load_code({&code, 1}); }).find(code.symbol), std::string::npos) << size;
  }
}

TEST(CodegenLoader, OtherFilesAndOtherSymbolsAreRefused) {
  FormCode code = code_of(UnaryKind::Tan);
  const std::string whole = code.object;
  for (const std::string& other : {std::string("text"), std::string(1000, '\0'), std::string(1000, 'x')}) {
    code.object = other;
    EXPECT_NE(error_of([&] { load_code({&code, 1}); }).find("damaged"), std::string::npos);
  }
  code.object = whole;
  const size_t name = code.object.find(std::string("tan") + '\0');
  ASSERT_NE(name, std::string::npos);
  code.object.replace(name, 3, "abc");
  EXPECT_NE(error_of([&] { load_code({&code, 1}); }).find("abc"), std::string::npos);
  code.object = whole;
  code.symbol = "form_of_another_name";
  EXPECT_NE(error_of([&] { load_code({&code, 1}); }).find("form_of_another_name"), std::string::npos);
}

}  // namespace codegen_loader_test
}  // namespace stepgraph
