// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/library_support.h"

#include <algorithm>

namespace stepgraph {

bool convolution_supported(const ConvolutionCall& call) {
  const size_t spatial = call.strides.size(), rank = spatial + 2;
  const auto all_from = [](const std::vector<int64_t>& values, int64_t least) {
    return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value >= least; });
  };
  const bool one_rank = call.padding_low.size() == spatial && call.padding_high.size() == spatial && call.dilation.size() == spatial &&
                        call.a.sizes.size() == rank && call.b.sizes.size() == rank && call.out.sizes.size() == rank;
  return spatial >= 1 && spatial <= 3 && one_rank && call.groups >= 1 && all_from(call.strides, 1) && all_from(call.dilation, 1) &&
         all_from(call.padding_low, 0) && all_from(call.padding_high, 0);
}

bool scatter_supported(const ScatterCall& call) { return call.dtype != DType::Bool && is_integer(call.index_dtype); }
bool scan_supported(const ScanCall& call) { return call.kind == ScanKind::LogSumExp ? is_floating(call.dtype) : call.dtype != DType::Bool; }

}  // namespace stepgraph
