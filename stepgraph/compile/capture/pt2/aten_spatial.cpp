// SPDX-License-Identifier: Apache-2.0
// Windows as columns, sampling by a grid, unpooling, resampling that antialiases.
#include <cmath>

#include "stepgraph/compile/capture/pt2/aten_call.h"
#include "stepgraph/compile/ops/functions/windows.h"

namespace stepgraph::pt2 {
namespace {

std::vector<int64_t> two(OperatorCall& call, const char* argument) {
  std::vector<int64_t> values = call.integers(argument);
  if (values.size() == 1) values.push_back(values[0]);
  return values;
}
Columns columns_of(OperatorCall& call) { return {two(call, "kernel_size"), two(call, "stride"), two(call, "padding"), two(call, "dilation")}; }
void im2col_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  if (x.rank() == 4) return call.result(windows_to_columns(x, columns_of(call)));
  call.result(squeeze(windows_to_columns(unsqueeze(x, 0), columns_of(call)), {0}));
}
void col2im_row(OperatorCall& call) {
  const Value x = call.tensor("self");
  const Shape sizes = call.sizes("output_size");
  if (x.rank() == 3) return call.result(columns_to_image(x, sizes, columns_of(call)));
  call.result(squeeze(columns_to_image(unsqueeze(x, 0), sizes, columns_of(call)), {0}));
}

void grid_sampler_row(OperatorCall& call) {
  const int64_t mode = call.integer("interpolation_mode"), outside = call.integer("padding_mode");
  if (mode < 0 || mode > 2 || outside < 0 || outside > 2)
    call.fail("interpolation mode " + std::to_string(mode) + " or padding mode " + std::to_string(outside) + " is unknown");
  call.result(
      grid_sample(call.tensor("input"), call.tensor("grid"), static_cast<SampleKind>(mode), static_cast<OutsideKind>(outside), call.boolean("align_corners")));
}
void affine_grid_row(OperatorCall& call) { call.result(affine_grid(call.tensor("theta"), call.sizes("size"), call.boolean("align_corners"))); }

void max_unpool_row(OperatorCall& call) { call.result(max_unpool(call.tensor("self"), call.tensor("indices"), call.sizes("output_size"))); }

template <ResizeKind kind>
void antialias_row(OperatorCall& call) {
  const Value x = call.tensor(call.has("input") ? "input" : "self");
  std::vector<double> scales = call.reals("scale_factors");
  Shape sizes;
  if (call.has("output_size")) {
    sizes = call.sizes("output_size");
    for (const char* scale : {"scales_h", "scales_w"})
      if (call.has(scale)) scales.push_back(call.real(scale));
  } else {
    for (int64_t d = 0; d < x.rank() - 2; ++d) {
      if (!x.dim(2 + d).is_constant()) call.fail("antialias of a symbolic size is not supported");
      if (static_cast<size_t>(d) >= scales.size()) call.fail("has neither a size nor a factor for each dim");
      sizes.emplace_back(static_cast<int64_t>(std::floor(static_cast<double>(x.dim(2 + d).constant()) * scales[static_cast<size_t>(d)])));
    }
  }
  if (scales.size() != sizes.size()) scales.clear();
  call.result(resize_antialiased(x, kind, sizes, call.boolean("align_corners", false), scales));
}

}  // namespace

std::vector<NamedRow> spatial_rows() {
  return {
      {"im2col", im2col_row},
      {"col2im", col2im_row},
      {"grid_sampler", in_f32<grid_sampler_row>},
      {"grid_sampler_2d", in_f32<grid_sampler_row>},
      {"grid_sampler_3d", in_f32<grid_sampler_row>},
      {"affine_grid_generator", affine_grid_row},
      {"max_unpool2d", max_unpool_row},
      {"max_unpool3d", max_unpool_row},
      {"_upsample_bilinear2d_aa", in_f32<antialias_row<ResizeKind::Linear>>},
      {"_upsample_bicubic2d_aa", in_f32<antialias_row<ResizeKind::Cubic>>},
  };
}

}  // namespace stepgraph::pt2
