// SPDX-License-Identifier: Apache-2.0
// Printing and reading lose nothing: every op with every attribute changed, literals of every dtype to the bit, names that need quotes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "stepgraph/compile/ir/text.h"

namespace stepgraph {
namespace round_trip_test {

/// Gives every attribute a value that is not the default one.
class Filler : public EachField<Filler> {
 public:
  void field(std::string_view, bool& value) { value = !value; }
  void field(std::string_view, int64_t& value) { value = value + 3; }
  void field(std::string_view, std::vector<int64_t>& value) { value = {2, -1, INT64_MIN}; }
  void field(std::string_view, std::string& value) { value = "a \"quoted\" \\ name\n"; }
  void field(std::string_view, double& value) { value = -0.1; }
  void field(std::string_view, std::optional<DType>& value) { value = DType::F16; }
  void field(std::string_view, DType& value) { value = value == DType::BF16 ? DType::I8 : DType::BF16; }
  void field(std::string_view, Dim& value) { value = floordiv(Dim::symbol("n") * 3 + 1, 2) + max(Dim::symbol("m.x"), 4); }
  void field(std::string_view, Shape& value) { value = {Dim::symbol("n"), 7, mod(Dim::symbol("n") - 1, 5)}; }
  void field(std::string_view, Literal& value) { value = Literal::from_doubles(DType::F32, {2}, std::vector<double>{0.1, -3}); }
  void field(std::string_view, GraphId& value) { value = {1}; }
  void field(std::string_view, ReduceKind& value) { value = ReduceKind::Max; }
  void field(std::string_view, std::vector<AxisRef>& value) { value = {{"data", 1, 0}, {"model", 2, 4}}; }
  void field(std::string_view, Sharding& value) {
    value = Sharding::replicated(2);
    value.dims[0].axes = {{"data", 1, 0}};
    value.dims[0].grain = Dim::symbol("n") * 2;
    value.partial = {{{"model", 1, 2}, ReduceKind::Max}};
  }
};

Module module_of(Op op) {
  Module module;
  Graph& graph = module.graph(module.add_graph("main"));
  module.add_graph("other");
  graph.values = {{{DType::F32, {2}, {}}, -1}, {{DType::F32, {}, {}}, 0}};
  graph.inputs = {{{0}, {}}};
  graph.nodes.push_back({std::move(op), {{0}, {0}}, {{1}}, {}, {}});
  graph.outputs = {{{1}, {}}};
  return module;
}

TEST(RoundTrip, EveryOp) {
  for (const Op& usual : all_ops()) {
    Op changed = usual;
    Filler filler;
    visit_fields(changed, filler);
    for (const Op& op : {usual, changed}) {
      const std::string text = print_module(module_of(op));
      SCOPED_TRACE(text);
      const Module again = parse_module(text);
      EXPECT_EQ(again.graph({0}).nodes.at(0).op, op);
      EXPECT_EQ(print_module(again), text);
    }
  }
}

void expect_exact(const Literal& literal) {
  const std::string text = literal_text(literal);
  EXPECT_EQ(parse_literal(text), literal) << text;
}

TEST(RoundTrip, LiteralsToTheBit) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    std::vector<double> values = {0, 1};
    if (dtype != DType::Bool) values.insert(values.end(), {2, 100, 7});
    if (is_floating(dtype)) values.insert(values.end(), {-0.0, 0.1, 1.0 / 3, 1e-3, 65504, infinity, -infinity, std::nan(""), 6e-8});
    for (const Sizes& sizes : {Sizes{static_cast<int64_t>(values.size())}, Sizes{1, static_cast<int64_t>(values.size()), 1}})
      expect_exact(Literal::from_doubles(dtype, sizes, values));
    for (const int64_t count : {0, 1, 4, 5, 63, 64, 65, 66, 67, 1000}) {
      Literal counted(dtype, {count});
      for (int64_t k = 0; k < count; ++k) counted.set(k, static_cast<double>(k % 100));
      expect_exact(counted);
      expect_exact(Literal::full(dtype, {count}, 1));
    }
    expect_exact(Literal(dtype, {}));
    expect_exact(Literal(dtype, {3, 0, 2}));
  }
}

TEST(RoundTrip, EveryHalfAndSomeSingles) {
  for (const DType dtype : {DType::BF16, DType::F16}) {
    for (int64_t start = 0; start < 65536; start += 64) {
      Literal literal(dtype, {64});
      for (int64_t i = 0; i < 64; ++i) {
        const auto bits = static_cast<uint16_t>(start + i);
        std::memcpy(literal.mutable_data() + 2 * i, &bits, 2);
      }
      ASSERT_EQ(parse_literal(literal_text(literal)), literal) << literal_text(literal);
    }
  }
  // Shortest texts that miss when they are read as f64 and rounded again, the largest and smallest numbers, and a walk over all exponents.
  for (const float value : {7.038531e-26f, std::numeric_limits<float>::max(), std::numeric_limits<float>::min(), std::numeric_limits<float>::denorm_min(), 16777217.0f})
    expect_exact(Literal::of<float>({1}, std::vector<float>{value}));
  for (uint32_t bits = 1; bits < 0xFF000000u; bits += 1000003) {
    float value = 0;
    std::memcpy(&value, &bits, 4);
    const Literal literal = Literal::of<float>({1}, std::vector<float>{value});
    ASSERT_EQ(parse_literal(literal_text(literal)), literal) << literal_text(literal);
  }
  for (const double value : {std::numeric_limits<double>::max(), std::numeric_limits<double>::denorm_min(), 0.1, 1.0 / 3}) 
    expect_exact(Literal::of<double>({1}, std::vector<double>{value}));
  expect_exact(Literal::from_integers(DType::I64, {2}, std::vector<int64_t>{INT64_MIN, INT64_MAX}));
}

TEST(RoundTrip, LiteralFormsAreChosenBySize) {
  EXPECT_EQ(literal_text(Literal::full(DType::F32, {2, 2}, 1)), "f32[2, 2] {1, 1, 1, 1}");
  EXPECT_EQ(literal_text(Literal::full(DType::F32, {8, 8}, 0.5)), "f32[8, 8] splat 0.5");
  EXPECT_EQ(literal_text(Literal::full(DType::Bool, {8}, 1)), "bool[8] splat true");
  EXPECT_EQ(literal_text(Literal::scalar(DType::F64, -0.0)), "f64[] {-0}");
  Literal counted(DType::U8, {70});
  for (int64_t i = 0; i < 70; ++i) counted.set_integer(i, i);
  EXPECT_TRUE(literal_text(counted).starts_with("u8[70] base64 \"AAECAwQF")) << literal_text(counted);
}

TEST(RoundTrip, NamesThatNeedQuotesAndRepeat) {
  Module module;
  module.name = "two words";
  for (const char* name : {"a", "a", "a.1", "a", "", "1", "x/y \"z\"\n"}) module.add_graph(name);
  module.entries = {{"main", {0}}, {"the second", {3}}, {"", {6}}};
  const std::string text = print_module(module);
  const Module again = parse_module(text);
  EXPECT_EQ(print_module(again), text);
  EXPECT_EQ(again.name, module.name);
  EXPECT_EQ(again.entries, module.entries);
  EXPECT_EQ(again.graphs[1].name, "a.2");
  EXPECT_EQ(again.graphs[2].name, "a.1");
  EXPECT_EQ(again.graphs[6].name, module.graphs[6].name);
}

TEST(RoundTrip, EverythingElseThatIsStated) {
  const char* text = R"(stepgraph 1
module m stage sharded
mesh data=2,model=4
symbol batch in [1, 4096] multiple 8 buckets [8, 64]
symbol length in [-3, inf]
symbol n
symbol coord.data coordinate in [0, 1]
symbol step.0 iteration in [0, 9]

graph @norm composite "layer_norm" gradient @norm_backward {
  input %0 : f32[batch, 64]<{data}, {model:(1)2}> parameter "wte.weight"
  input %1 : f32[]<>
  %2, %3 = moments(%0, dims=[1]) : f32[batch]<{data} partial(sum: model)>, f32[batch]<{data}> at "gpt.cpp:41" scope "h.0.attn"
  call(%1, graph=@norm_backward)
  output %2 new_state "wte.weight"
  output %3
}

graph @norm_backward {
}

entry step @norm
)";
  EXPECT_EQ(print_module(parse_module(text)), text);
}

TEST(RoundTrip, ANodeWithoutAPlaceHasItsLineInTheFile) {
  const std::string text = "stepgraph 1\nmodule m\ngraph @g {\n  input %0 : f32[]\n\n  %1 = neg(%0) : f32[]\n  %2 = neg(%1) : f32[] at \"a.cpp:7\"\n}\n";
  const Module module = parse_module(text, "folder/model.sg");
  EXPECT_EQ(module.graphs[0].nodes[0].place.text(), "model.sg:6");
  EXPECT_EQ(module.graphs[0].nodes[1].place.text(), "a.cpp:7");
  EXPECT_FALSE(parse_module(text).graphs[0].nodes[0].place.known());
}

}  // namespace round_trip_test
}  // namespace stepgraph
