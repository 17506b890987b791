// SPDX-License-Identifier: Apache-2.0
// Errors of the functions of f32 that generated code brings itself, in units of the last place, against the C library in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include <fmt/core.h>

#include "stepgraph/compile/codegen/emit_form.h"
#include "stepgraph/compile/ops/elementwise_table.h"
#include "stepgraph/run/device/code_loader.h"
#include "tests/support/effort.h"
#include "tests/support/form_maker.h"

namespace stepgraph {
namespace codegen_math_test {

using testing::FormMaker;

/// The most that emit_math.h allows.
struct Allowed {
  UnaryKind kind;
  double ulps;
};
const Allowed allowed[] = {{UnaryKind::Exp, 1.25}, {UnaryKind::Log, 1}, {UnaryKind::Tanh, 1.75},   {UnaryKind::Erf, 1.75},
                           {UnaryKind::Sin, 2},    {UnaryKind::Cos, 2}, {UnaryKind::Sigmoid, 2.5}, {UnaryKind::Rsqrt, 1.5}};

/// Distance in units of the last place of the exact result rounded to f32; infinite where one is NaN or infinite alone, or a zero has the wrong sign.
double ulps_between(float found, double exact) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto rounded = static_cast<float>(exact);
  if (std::isnan(exact)) return std::isnan(found) ? 0 : infinity;
  if (std::isinf(rounded) || std::isinf(found)) return found == rounded ? 0 : infinity;
  if (found == 0 && rounded == 0) return std::signbit(found) == std::signbit(rounded) ? 0 : infinity;
  const float size = std::fabs(rounded);
  const double last_place = std::max<double>(std::nextafter(size, std::numeric_limits<float>::infinity()) - size, 0x1p-149);
  return std::fabs(found - exact) / last_place;
}

class Function {
 public:
  explicit Function(UnaryKind kind) {
    FormMaker maker;
    maker.form.size_count = 1;
    const int i = maker.factor(Dim::symbol("s0")), x = maker.reads(DType::F32), y = maker.writes(DType::F32);
    const Affine at = FormMaker::at({{i, 1}});
    maker.store(y, at, maker.unary(kind, maker.load(x, at)));
    code_ = emit_form(maker.form, Target{});
    loaded_ = load_code({&code_, 1});
  }
  std::vector<float> operator()(const std::vector<float>& x) const {
    std::vector<float> y(x.size());
    void* operands[] = {const_cast<float*>(x.data()), y.data()};
    const auto size = static_cast<int64_t>(x.size());
    int64_t status[4] = {};
    loaded_->function(0)(operands, &size, 0, (size + 4095) / 4096, nullptr, status);
    return y;
  }

 private:
  FormCode code_;
  std::unique_ptr<LoadedCode> loaded_;
};

struct Worst {
  double ulps = 0;
  float x = 0;
};
constexpr uint64_t all_floats = uint64_t{1} << 32;
/// Over some floats. Where the exact result rounds to what was found it is off by half a unit at most, which is not looked at more closely.
void look_at(UnaryKind kind, const Function& function, const std::vector<float>& x, Worst& worst) {
  const std::vector<float> y = function(x);
  Literal wide = Literal::uninitialised(DType::F64, {static_cast<int64_t>(x.size())}), exact = wide;
  std::copy(x.begin(), x.end(), wide.as_mutable<double>().begin());
  unary_info(kind).floats(wide, exact);
  const std::span<const double> wanted = exact.as<double>();
  for (size_t k = 0; k < x.size(); ++k) {
    if (std::bit_cast<uint32_t>(y[k]) == std::bit_cast<uint32_t>(static_cast<float>(wanted[k]))) continue;
    const double ulps = ulps_between(y[k], wanted[k]);
    if (ulps > worst.ulps) worst = {ulps, x[k]};
  }
}
/// Over the floats whose bits are 0, step, ...: of n threads, one a core, each takes every nth block of them.
Worst worst_of(UnaryKind kind, uint64_t step) {
  const Function function(kind);
  constexpr uint64_t block = 1 << 14;  // in a cache, with its results
  std::vector<Worst> worst(std::max(1u, std::thread::hardware_concurrency()));
  const auto work = [&](uint64_t thread) {
    std::vector<float> x;
    for (uint64_t low = thread * block * step; low < all_floats; low += worst.size() * block * step) {
      x.clear();
      for (uint64_t bits = low; bits < all_floats && x.size() < block; bits += step) x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
      look_at(kind, function, x, worst[thread]);
    }
  };
  std::vector<std::jthread> threads;
  for (uint64_t thread = 0; thread < worst.size(); ++thread) threads.emplace_back(work, thread);
  threads.clear();
  return *std::ranges::max_element(worst, {}, &Worst::ulps);
}

void expect_within(const Allowed& limit, uint64_t step) {
  const Worst worst = worst_of(limit.kind, step);
  ::testing::Test::RecordProperty(std::string(name(limit.kind)), fmt::format("{:.3f}", worst.ulps));
  EXPECT_LE(worst.ulps, limit.ulps) << name(limit.kind) << " at " << worst.x;
  if (step == 1) fmt::print("{}: {:.4f} ulp at {:.9g}\n", name(limit.kind), worst.ulps, worst.x);
}

TEST(CodegenMath, EachFunctionIsWithinItsError) {
  for (const Allowed& limit : allowed) {
    expect_within(limit, testing::is_sanitized ? 9973 : 97);
    expect_within(limit, 0x10000);  // all of bf16
  }
}

TEST(LongCodegenMath, EachFunctionIsWithinItsErrorOnAllFloats) {
  for (const Allowed& limit : allowed) expect_within(limit, 1);
}

TEST(CodegenMath, EachFunctionAtItsEdges) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> edges = {0.0F,       -0.0F,       infinity,    -infinity,  std::numeric_limits<float>::quiet_NaN(),
                                    1e-45F,     -1e-45F,     0x1p-126F,   88.72283F,  88.72284F,
                                    -87.33655F, -103.97207F, -103.97209F, 0.625F,     0.62499994F,
                                    0.92F,      1.0F,        -1.0F,       3.9999998F, 4.0F,
                                    0x1p20F,    1048577.0F,  -0x1p20F,    3e38F,      0x1.fffffep-1F,
                                    1.0000001F};
  for (const Allowed& limit : allowed) {
    const std::vector<float> found = Function(limit.kind)(edges);
    for (size_t k = 0; k < edges.size(); ++k) {
      Literal x = Literal::scalar(DType::F64, edges[k]), exact(DType::F64, {});
      unary_info(limit.kind).floats(x, exact);
      EXPECT_LE(ulps_between(found[k], exact.at(0)), limit.ulps) << name(limit.kind) << " of " << edges[k] << " is " << found[k];
    }
  }
}

}  // namespace codegen_math_test
}  // namespace stepgraph
