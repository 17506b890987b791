// SPDX-License-Identifier: Apache-2.0
// In place of the files that speak to libraries, in builds without them.
#include "stepgraph/base/error.h"
#include "stepgraph/run/device/attention_rows.h"
#include "stepgraph/run/device/convolution.h"
#include "stepgraph/run/device/gemm.h"

namespace stepgraph {
namespace {

[[noreturn]] void fail_without_libraries() { throw UserError("this build has no compiled back end; wanted one with -DSTEPGRAPH_CODEGEN=ON"); }

}  // namespace

bool has_libraries() { return false; }
void load_libraries(const Target&) { fail_without_libraries(); }
std::string library_versions() { return {}; }
void use_no_library_threads() {}
NoLibraryThreads::NoLibraryThreads() = default;
NoLibraryThreads::~NoLibraryThreads() = default;
void gemm(GemmLibrary, DType, const GemmShape&, const void*, const void*, bool, void*) { fail_without_libraries(); }
std::unique_ptr<ConvolutionWork> convolution_work(const ConvolutionOperands&) { fail_without_libraries(); }

void exp_row(float*, int64_t) { fail_without_libraries(); }
RowSoftness soften_row(float*, int64_t, int64_t, float, const float*) { fail_without_libraries(); }
void scale_row(float*, int64_t, float) { fail_without_libraries(); }
float weigh_row(float*, const float*, int64_t, float) { fail_without_libraries(); }
void slope_row(const float*, float*, int64_t, float, float) { fail_without_libraries(); }
void multiply_row(float*, const float*, int64_t) { fail_without_libraries(); }
void draw_row(float*, int64_t, uint64_t, uint64_t, uint32_t, float) { fail_without_libraries(); }

}  // namespace stepgraph
