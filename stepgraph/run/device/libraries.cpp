// SPDX-License-Identifier: Apache-2.0
// The one file that speaks to the libraries of matrix products. OpenBLAS is loaded at run time: which of its builds is installed does not matter then.
#include <dlfcn.h>
#include <dnnl.h>
#include <fmt/core.h>
#include <omp.h>
#include <stdlib.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>

#include "stepgraph/base/error.h"
#include "stepgraph/run/device/gemm.h"

namespace stepgraph {
namespace {

// As of any CBLAS.
constexpr int row_major = 101, no_transpose = 111, transpose = 112;
template <class T>
using Product = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, T alpha, const T* a, int lda, const T* b, int ldb, T beta, T* c,
                         int ldc);
struct OpenBlas {
  Product<float> sgemm = nullptr;
  Product<double> dgemm = nullptr;
  std::string version;
};
OpenBlas open_blas;
std::mutex loading;
std::optional<InstructionSet> loaded;

void load_open_blas(InstructionSet isa) {
  // Read by the library when it is loaded: its own choice is a poor one on processors that are younger than it.
  ::setenv("OPENBLAS_CORETYPE", isa == InstructionSet::Avx512 ? "SkylakeX" : "Haswell", 1);
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* const library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw UserError("libopenblas.so.0 cannot be loaded: " + std::string(::dlerror()) + "; wanted OpenBLAS (libopenblas0-pthread)");
  const auto find = [&](const char* name) {
    void* const found = ::dlsym(library, name);
    if (found == nullptr) throw UserError(std::string("libopenblas.so.0: found no ") + name);
    return found;
  };
  open_blas = {reinterpret_cast<Product<float>>(find("cblas_sgemm")), reinterpret_cast<Product<double>>(find("cblas_dgemm")), {}};
  // "OpenBLAS 0.3.21 DYNAMIC_ARCH NO_AFFINITY Haswell ..."
  const std::string about = reinterpret_cast<const char* (*)()>(find("openblas_get_config"))();
  const size_t begin = about.find(' ');
  open_blas.version = "openblas" + (begin == std::string::npos ? "" : about.substr(begin, about.find(' ', begin + 1) - begin));
  reinterpret_cast<void (*)(int)>(find("openblas_set_num_threads"))(1);
}

void limit_onednn(InstructionSet isa) {
  const dnnl_cpu_isa_t wanted = isa == InstructionSet::Avx512 ? dnnl_cpu_isa_avx512_core : dnnl_cpu_isa_avx2;
  if (dnnl_set_max_cpu_isa(wanted) != dnnl_success && dnnl_get_effective_cpu_isa() != wanted)
    throw UserError("oneDNN is in use for other instructions already than those that the plan was made for");
}

template <class T>
void call(Product<T> product, const GemmShape& s, const void* a, const void* b, bool accumulate, void* c) {
  product(row_major, s.transpose_a ? transpose : no_transpose, s.transpose_b ? transpose : no_transpose, static_cast<int>(s.m), static_cast<int>(s.n),
          static_cast<int>(s.k), T{1}, static_cast<const T*>(a), static_cast<int>(s.lda), static_cast<const T*>(b), static_cast<int>(s.ldb),
          accumulate ? T{1} : T{0}, static_cast<T*>(c), static_cast<int>(s.ldc));
}

}  // namespace

bool has_libraries() { return true; }
void load_libraries(const Target& target) {
  const std::lock_guard lock(loading);
  if (loaded && *loaded != target.isa) throw UserError("a plan for other instructions runs in this process already; wanted one kind of plan a process");
  if (loaded) return;
  load_open_blas(target.isa);
  limit_onednn(target.isa);
  loaded = target.isa;
}

std::string library_versions() {
  const dnnl_version_t* version = dnnl_version();
  return "onednn " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch) + ", " + open_blas.version;
}

void use_no_library_threads() { omp_set_num_threads(1); }
NoLibraryThreads::NoLibraryThreads() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
NoLibraryThreads::~NoLibraryThreads() { omp_set_num_threads(before_); }

void gemm(GemmLibrary library, DType dtype, const GemmShape& s, const void* a, const void* b, bool accumulate, void* c) {
  if (s.m == 0 || s.n == 0) return;
  if (s.k == 0) {
    const size_t unit = size_bytes(dtype);
    for (int64_t i = 0; i < s.m && !accumulate; ++i)
      std::fill_n(static_cast<std::byte*>(c) + static_cast<size_t>(i * s.ldc) * unit, static_cast<size_t>(s.n) * unit, std::byte{0});
    return;
  }
  SG_CHECK(std::max({s.m, s.n, s.k, s.lda, s.ldb, s.ldc}) <= INT32_MAX, "a matrix product wants sizes below 2^31");
  if (dtype == DType::F64) return call<double>(open_blas.dgemm, s, a, b, accumulate, c);
  SG_CHECK(dtype == DType::F32, "a matrix product wants f32 or f64");
  if (library == GemmLibrary::OpenBlas) return call<float>(open_blas.sgemm, s, a, b, accumulate, c);
  const dnnl_status_t status = dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1.0F, static_cast<const float*>(a), s.lda,
                                          static_cast<const float*>(b), s.ldb, accumulate ? 1.0F : 0.0F, static_cast<float*>(c), s.ldc);
  SG_CHECK(status == dnnl_success, "oneDNN refused a matrix product");
}

}  // namespace stepgraph
