// SPDX-License-Identifier: Apache-2.0
// Any bytes as an exported program: one UserError, or plain data and payloads. What begins as a zip is taken as the archive, what begins with '{' as the
// program in an archive whose checksums are right, the rest as a size expression.
#include <string>
#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/expression.h"
#include "stepgraph/compile/capture/pt2/program_reader.h"
#include "tests/support/pt2_bytes.h"

using namespace stepgraph;

namespace {

void read_all(std::vector<std::byte> bytes) {
  try {
    const pt2::Pt2Archive archive(std::move(bytes), "fuzz.pt2");
    const pt2::ExportedProgram program = pt2::read_program(archive);
    for (const auto* payloads : {&program.weights, &program.constants})
      for (const auto& [name, payload] : *payloads) {
        const Literal value = pt2::payload_literal(archive, payload, name);
        SG_CHECK(value.count() >= 0 && value.sizes().size() == payload.meta.sizes.size());
      }
  } catch (const UserError& error) {
    SG_CHECK(std::string(error.what()).starts_with("fuzz.pt2: "), error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with('{')) {
    const std::string config = R"({"config":{"w":{"path_name":"weight_0","is_param":true,"use_pickle":false,"tensor_meta":{"dtype":7,"sizes":[{"as_int":2}],)"
                               R"("strides":[{"as_int":1}],"storage_offset":{"as_int":0},"layout":7}}}})";
    read_all(testing::to_bytes(testing::zip_text(testing::pt2_members({{"models/model.json", text},
                                                                       {"data/weights/weight_0", std::string("\0\0\x80\x3f\0\0\0\x40", 8)},
                                                                       {"data/weights/model_weights_config.json", config}}))));
  } else if (text.starts_with("PK")) {
    read_all(testing::to_bytes(text));
  } else {
    try {
      if (const auto dim = pt2::parse_expression(text)) SG_CHECK(parse_dim(dim->text()) == *dim, text);
    } catch (const UserError&) {
    }
  }
  return 0;
}
