// SPDX-License-Identifier: Apache-2.0
// The reader of exported programs on the recorded samples: node counts, symbols and weights as the recording says; expressions, and views of payloads.
#include <gtest/gtest.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include "stepgraph/base/disk.h"
#include "stepgraph/base/error.h"
#include "stepgraph/compile/capture/pt2/crc32.h"
#include "stepgraph/compile/capture/pt2/expression.h"
#include "stepgraph/compile/capture/pt2/program_reader.h"
#include "stepgraph/train/data/arrays.h"
#include "tests/support/places.h"
#include "tests/support/pt2_bytes.h"

namespace stepgraph::pt2 {
namespace pt2_program_test {

using namespace stepgraph::testing;

const std::string samples = std::string(testing::source_root()) + "/tests/samples/";

nlohmann::json manifest() { return nlohmann::json::parse(posix_disk()->read_text(samples + "manifest.json")); }

/// Nodes as PyTorch's own graph has them: there each result of a node with several results, or with a list, is picked by a node of its own.
size_t nodes_with_picks(const ExportedGraph& graph) {
  size_t count = 0;
  for (const ExportedNode& node : graph.nodes) {
    ++count;
    const bool list = node.outputs.size() == 1 && std::holds_alternative<std::vector<TensorRef>>(node.outputs[0]);
    const bool region = node.target.find("higher_order") != std::string::npos;
    if (node.outputs.size() < 2 && !list && !region) continue;
    for (const Argument& output : node.outputs) {
      if (const auto* tensors = std::get_if<std::vector<TensorRef>>(&output)) count += tensors->size();
      if (const auto* tensor = std::get_if<TensorRef>(&output)) count += tensor->name.find("_unused_") == std::string::npos;
    }
  }
  return count;
}

TEST(Pt2Program, NodeCountsAreThoseOfTheRecording) {
  int programs = 0;
  const nlohmann::json recording = manifest();
  for (const auto& sample : recording["samples"]) {
    for (const char* kind : {"exported", "core"}) {
      const std::string path = samples + sample["name"].get<std::string>() + "/" + sample["files"][kind].get<std::string>();
      SCOPED_TRACE(path);
      const ExportedProgram program = read_program(Pt2Archive(path));
      EXPECT_EQ(nodes_with_picks(program.graph), sample["nodes"][kind].get<size_t>());
      EXPECT_EQ(program.verifiers, std::vector<std::string>{std::string(kind) == "core" ? "ATEN" : "TRAINING"});
      EXPECT_EQ(program.schema_major, 8);
      EXPECT_EQ(program.torch_version, sample["torch"].get<std::string>());
      ++programs;
    }
  }
  EXPECT_EQ(programs, 24);
}

TEST(Pt2Program, InputsHaveTheirNamesAndSymbols) {
  const nlohmann::json recording = manifest();
  for (const auto& sample : recording["samples"]) {
    SCOPED_TRACE(sample["name"].get<std::string>());
    const ExportedProgram program = read_program(Pt2Archive(samples + sample["name"].get<std::string>() + "/model.pt2"));
    std::vector<std::string> inputs;
    for (const ExportedInput& spec : program.inputs)
      if (spec.kind == ExportedInput::Kind::UserInput) inputs.push_back(spec.argument);
    EXPECT_EQ(inputs, sample["input_order"].get<std::vector<std::string>>());
    for (const auto& [input, dims] : sample["dynamic"].items())
      for (const auto& [dim, range] : dims.items()) {
        const Dim size = program.graph.tensors.at(input).sizes.at(std::stoul(dim));
        const auto found = std::find_if(program.ranges.begin(), program.ranges.end(), [&](const RangeConstraint& r) { return r.expression == size; });
        ASSERT_NE(found, program.ranges.end()) << input << " " << size.text();
        EXPECT_EQ(found->minimum, range["min"].get<int64_t>());
        EXPECT_EQ(found->maximum, range["max"].get<int64_t>());
      }
    ASSERT_EQ(program.outputs.size(), 1u);
    EXPECT_TRUE(program.graph.tensors.at(std::get<TensorRef>(program.outputs[0].value).name).sizes.empty());
  }
}

TEST(Pt2Program, WeightsAreTheRecordedOnes) {
  const nlohmann::json recording = manifest();
  for (const auto& sample : recording["samples"]) {
    for (const char* kind : {"exported", "core"}) {
      const std::string folder = samples + sample["name"].get<std::string>() + "/";
      SCOPED_TRACE(folder + kind);
      const Safetensors data = read_safetensors(folder + sample["files"]["data"].get<std::string>());
      const Pt2Archive archive(folder + sample["files"][kind].get<std::string>());
      const ExportedProgram program = read_program(archive);
      int64_t parameters = 0;
      size_t compared = 0;
      for (const auto& [name, payload] : program.weights) {
        const bool tied = sample["tied"].contains(name);
        const std::string recorded = tied ? sample["tied"][name].get<std::string>() : name;
        const Literal value = payload_literal(archive, payload, name);
        const Literal* wanted = find_array(data.arrays, (payload.is_parameter ? "param." : "buffer.") + recorded);
        ASSERT_NE(wanted, nullptr) << name;
        EXPECT_TRUE(value == *wanted) << name;
        EXPECT_EQ(tied, recorded != name && same_payload(payload, program.weights.at(recorded))) << name;
        if (payload.is_parameter && !tied) parameters += value.count();
        ++compared;
      }
      EXPECT_EQ(parameters, sample["parameters"].get<int64_t>());
      EXPECT_GT(compared, 2u);
    }
  }
}

TEST(Pt2Program, PlacesAreTheUsersLines) {
  const ExportedProgram program = read_program(Pt2Archive(samples + "tiny_resnet/model.pt2"));
  for (const ExportedNode& node : program.graph.nodes) EXPECT_EQ(node.place_file, "make_samples.py") << node.name;
  EXPECT_EQ(program.graph.nodes[0].place_line, 454);
  EXPECT_EQ(program.graph.nodes[0].scope, "stem");
}

// ---- expressions

std::string dim_text(std::string_view text) {
  const auto dim = parse_expression(text);
  return dim ? dim->text() : "none";
}

TEST(Pt2Expression, TermsAndInfix) {
  EXPECT_EQ(dim_text("Symbol('s48', positive=True, integer=True)"), "s48");
  EXPECT_EQ(dim_text("Mul(Integer(4), Symbol('s48', positive=True, integer=True))"), "4*s48");
  EXPECT_EQ(dim_text("Add(Integer(-1), Symbol('a'), Symbol('b'))"), "a + b - 1");
  EXPECT_EQ(dim_text("Pow(Symbol('a'), Integer(2))"), "a*a");
  EXPECT_EQ(dim_text("FloorDiv(Add(Symbol('a'), Integer(1)), Integer(2))"), "floordiv(a + 1, 2)");
  EXPECT_EQ(dim_text("CeilToInt(IntTrueDiv(Symbol('a'), Integer(2)))"), parse_dim("-floordiv(-a, 2)").text());
  EXPECT_EQ(dim_text("TruncToInt(FloatTrueDiv(ToFloat(Symbol('a')), Integer(3)))"), "floordiv(a, 3)");
  EXPECT_EQ(dim_text("ModularIndexing(Symbol('a'), Integer(2), Integer(5))"), "mod(floordiv(a, 2), 5)");
  EXPECT_EQ(dim_text("Max(Integer(1), Min(Symbol('a'), Integer(7)))"), "max(1, min(7, a))");
  EXPECT_EQ(dim_text("Mul(Rational(1, 2), Mul(Integer(4), Symbol('a')))"), "2*a");
  EXPECT_EQ(dim_text("Mul(Integer(2), Pow(Integer(2), Integer(-1)), Symbol('a'))"), "a");
  EXPECT_EQ(dim_text("4*s6 - (s6 + 1)//2"), parse_dim("4*s6 - floordiv(s6 + 1, 2)").text());
  EXPECT_EQ(dim_text("2*-s6 % 3"), parse_dim("mod(-2*s6, 3)").text());
  EXPECT_EQ(dim_text("s6**2"), "s6*s6");
  EXPECT_EQ(dim_text("9223372036854775807"), "9223372036854775807");
}

TEST(Pt2Expression, TruncatedProductsWithFractions) {
  EXPECT_EQ(dim_text("TruncToInt(Mul(Float('1.5', precision=53), ToFloat(Symbol('a', positive=True, integer=True))))"), "floordiv(3*a, 2)");
  EXPECT_EQ(dim_text("TruncToInt(0.75*a)"), "floordiv(3*a, 4)");
  EXPECT_EQ(dim_text("TruncToInt(Mul(Float('0.6', precision=53), ToFloat(Symbol('a'))))"), "floordiv(3*a, 5)");
  EXPECT_EQ(scaled_size(Dim::symbol("a"), 2.5)->text(), "floordiv(5*a, 2)");
  // 100 * 0.29 is 28.999999999999996, 0.1 + 0.2 is no 0.3, and pi is no quotient.
  EXPECT_FALSE(scaled_size(Dim::symbol("a"), 0.29));
  EXPECT_FALSE(scaled_size(Dim::symbol("a"), 3.14159265358979));
  EXPECT_EQ(dim_text("TruncToInt(0.6*a + 0.2)"), "none");
  EXPECT_EQ(dim_text("CeilToInt(0.6*a)"), "none");
}

TEST(Pt2Expression, WhatNoDimExpresses) {
  for (const char* text :
       {"Where(StrictLessThan(Symbol('a'), Integer(2)), Integer(1), Integer(2))", "Equality(Symbol('a'), Integer(2))", "a < 3", "int_oo", "1.5", "True",
        "IntTrueDiv(Symbol('a'), Integer(2))", "Unknown(Symbol('a'))", "Pow(Symbol('a'), Symbol('b'))", "a/2", "Float('1.5', precision=53)"})
    EXPECT_EQ(dim_text(text), "none") << text;
}

TEST(Pt2Expression, MalformedTexts) {
  const std::string deep = [] {
    std::string text;
    for (int i = 0; i < 5000; ++i) text += "(";
    return text;
  }();
  for (const std::string& text :
       {std::string(), std::string("Mul("), std::string("Symbol('s"), std::string("Symbol('')"), std::string("Symbol('a b')"), std::string("1 2"),
        std::string("9223372036854775808"), std::string("Mul(Integer(9223372036854775807), Integer(2))"), std::string("FloorDiv(Symbol('a'), Integer(0))"),
        std::string("a//0"), std::string("Symbol(a)"), std::string("*"), std::string("a %"), std::string("é"), deep, std::string(20000, '1')})
    EXPECT_THROW(parse_expression(text), UserError) << text.substr(0, 50);
}

// ---- payloads

TEST(Pt2Payload, ViewsOfOneStorage) {
  const std::string bytes = raw<float>({0, 1, 2, 3, 4, 5});
  const Pt2Archive archive = archive_of({{"data/weights/weight_0", bytes}});
  const auto read = [&](Shape sizes, Shape strides, int64_t offset) { return payload_literal(archive, payload("weight_0", 7, sizes, strides, offset)); };
  EXPECT_EQ(read({2, 3}, {3, 1}, 0).to_doubles(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read({3, 2}, {1, 3}, 0).to_doubles(), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(read({2}, {1}, 4).to_doubles(), (std::vector<double>{4, 5}));
  EXPECT_EQ(read({}, {}, 5).to_doubles(), (std::vector<double>{5}));
  EXPECT_EQ(read({2, 2, 3}, {0, 3, 1}, 0).to_doubles(), (std::vector<double>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read({4, 3}, {1, 1}, 0).to_doubles(), (std::vector<double>{0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5}));
  EXPECT_EQ(read({3}, {2}, 1).to_doubles(), (std::vector<double>{1, 3, 5}));
  EXPECT_EQ(read({0, 5}, {5, 1}, 0).count(), 0);
  EXPECT_EQ(read({1, 2, 1}, {77, 1, 99}, 0).to_doubles(), (std::vector<double>{0, 1}));
}

TEST(Pt2Payload, DenseViewsShareTheFileAndAreNeverWritten) {
  Literal kept;
  const std::byte* at = nullptr;
  {
    const Pt2Archive archive(samples + "mlp_gelu/model.pt2");
    const ExportedProgram program = read_program(archive);
    const Payload& payload = program.weights.begin()->second;
    at = archive.member(payload.member).data();
    kept = payload_literal(archive, payload);
  }
  EXPECT_EQ(kept.data(), at);
  const double before = kept.at(0);
  ASSERT_NE(before, 42);
  Literal changed = kept;
  changed.set(0, 42);
  EXPECT_NE(changed.data(), at);
  EXPECT_EQ(kept.at(0), before);
  // The last owner does not write the file's bytes either.
  kept.set(0, 42);
  EXPECT_NE(kept.data(), at);
  EXPECT_EQ(kept.at(0), 42);
}

TEST(Pt2Payload, ChecksumsOfParts) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{64}, size_t{999}, size_t{1000}})
    EXPECT_EQ(crc32_joined(crc32_of(text.substr(0, cut)), crc32_of(text.substr(cut)), text.size() - cut), crc32_of(text));
}

}  // namespace pt2_program_test
}  // namespace stepgraph::pt2
