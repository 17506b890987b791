// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/samples.h"

#include <algorithm>
#include <utility>

#include "stepgraph/compile/ir/text.h"

namespace stepgraph::testing {

std::string describe(const Sample& sample) {
  std::string result(name(sample.op));
  class Printer : public FieldVisitor {
   public:
    explicit Printer(std::string& out) : out_(out) {}
    void field(std::string_view name, bool& value) override { add(name, value ? "true" : "false"); }
    void field(std::string_view name, int64_t& value) override { add(name, std::to_string(value)); }
    void field(std::string_view name, std::vector<int64_t>& value) override { add(name, text(Shape(value.begin(), value.end()))); }
    void field(std::string_view name, std::string& value) override { add(name, value); }
    void field(std::string_view name, double& value) override { add(name, std::to_string(value)); }
    void field(std::string_view name, std::optional<DType>& value) override {
      if (value) add(name, std::string(stepgraph::name(*value)));
    }
    void field(std::string_view name, DType& value) override { add(name, std::string(stepgraph::name(value))); }
    void field(std::string_view name, Dim& value) override { add(name, value.text()); }
    void field(std::string_view name, Shape& value) override { add(name, text(value)); }
    void field(std::string_view name, Literal& value) override { add(name, value.text(4)); }
    void field(std::string_view, GraphId&) override {}
    void field(std::string_view, ReduceKind&) override {}
    void field(std::string_view, std::vector<AxisRef>&) override {}
    void field(std::string_view, Sharding&) override {}

   private:
    void add(std::string_view name, const std::string& value) { out_ += " " + std::string(name) + "=" + value; }
    std::string& out_;
  };
  Printer printer(result);
  visit_fields(sample.op, printer);
  for (const Literal& input : sample.inputs) {
    result += " " + text(TensorType{input.dtype(), Shape(input.sizes().begin(), input.sizes().end()), {}});
  }
  return result;
}

uint64_t Numbers::next() {
  state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  return z ^ (z >> 31);
}

double Numbers::uniform(double low, double high) { return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53; }
int64_t Numbers::integer(int64_t low, int64_t high) { return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1)); }

Literal Numbers::uniform(const Sizes& sizes, double low, double high) {
  Literal result(DType::F64, sizes);
  for (double& element : result.as_mutable<double>()) element = uniform(low, high);
  return result;
}

Literal Numbers::signed_uniform(const Sizes& sizes, double low, double high) {
  Literal result = uniform(sizes, low, high);
  for (double& element : result.as_mutable<double>()) element = integer(0, 1) == 0 ? element : -element;
  return result;
}

Literal Numbers::distinct(const Sizes& sizes) {
  Literal result(DType::F64, sizes);
  auto elements = result.as_mutable<double>();
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = 0.2 * static_cast<double>(i) - 0.1 * static_cast<double>(elements.size()) + uniform(0, 0.05);
  for (size_t i = elements.size(); i > 1; --i) std::swap(elements[i - 1], elements[static_cast<size_t>(integer(0, static_cast<int64_t>(i) - 1))]);
  return result;
}

Literal Numbers::integers(DType dtype, const Sizes& sizes, int64_t low, int64_t high) {
  Literal result(dtype, sizes);
  for (int64_t i = 0; i < result.count(); ++i) result.set_integer(i, integer(low, high));
  return result;
}

Literal Numbers::bools(const Sizes& sizes) { return integers(DType::Bool, sizes, 0, 1); }

std::vector<Sizes> usual_sizes() { return {{}, {1}, {0}, {6}, {3, 4}, {2, 0, 3}, {2, 3, 1, 4}, {1, 700}}; }

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all = [] {
    std::vector<Sample> result;
    for (const auto& family : {source_samples(), elementwise_samples(), reduce_samples(), movement_samples(), index_samples(), block_samples()}) {
      result.insert(result.end(), family.begin(), family.end());
    }
    return result;
  }();
  return all;
}

const std::vector<std::pair<std::string, std::string>>& covered_elsewhere() {
  static const std::vector<std::pair<std::string, std::string>> names = {
      {"call", "tests/ops/control_test.cpp"},
      {"loop", "tests/ops/control_test.cpp"},
      {"map_tensors", "tests/ops/control_test.cpp"},
      {"reshard", "tests/ops/sharding_test.cpp"},
      {"all_reduce", "tests/ops/sharding_test.cpp"},
      {"all_gather", "tests/ops/sharding_test.cpp"},
      {"reduce_scatter", "tests/ops/sharding_test.cpp"},
  };
  return names;
}

}  // namespace stepgraph::testing
