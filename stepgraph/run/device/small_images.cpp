// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/device/small_images.h"

#include <algorithm>

#include "stepgraph/run/device/gemm.h"

namespace stepgraph {
namespace {

int64_t count_of_spatial(const Sizes& sizes) {
  int64_t count = 1;
  for (size_t d = 2; d < sizes.size(); ++d) count *= sizes[d];
  return count;
}

/// weight [O, rows] = result gradient [O, positions] * columns [rows, positions]^T, where a row is an element of the window in a channel of x.
class SmallImages : public ConvolutionWork {
 public:
  explicit SmallImages(const ConvolutionOperands& call)
      : images_(call.a[0]),
        inputs_(call.a[1]),
        outputs_(call.out[0]),
        in_count_(count_of_spatial(call.a)),
        out_count_(count_of_spatial(call.b)),
        window_count_(count_of_spatial(call.out)),
        positions_(images_ * out_count_) {
    // The element of an image that each element of the window meets at each position; -1 in the padding.
    for (int64_t e = 0; e < window_count_ * out_count_; ++e) {
      int64_t from = 0, step = 1, window = e / out_count_, position = e % out_count_;
      for (size_t d = call.strides.size(); d-- > 0;) {
        const int64_t size = call.a[d + 2], at = position % call.b[d + 2] * call.strides[d] + window % call.out[d + 2] * call.dilation[d] - call.padding_low[d];
        position /= call.b[d + 2], window /= call.out[d + 2];
        from = from < 0 || at < 0 || at >= size ? -1 : from + at * step;
        step *= size;
      }
      from_.push_back(from);
    }
  }
  int64_t pieces() const override { return (outputs_ + cut - 1) / cut; }
  size_t scratch_bytes() const override { return static_cast<size_t>((rows() + cut) * positions_) * sizeof(float); }
  void run(const float* a, const float* b, float* out, int64_t begin, int64_t end, void* scratch) const override {
    auto *const columns = static_cast<float*>(scratch), *const gradient = columns + rows() * positions_;
    if (begin < end) fill_columns(a, columns);
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * cut, count = std::min(cut, outputs_ - first);
      for (int64_t o = 0; o < count; ++o)
        for (int64_t image = 0; image < images_; ++image)
          std::copy_n(b + (image * outputs_ + first + o) * out_count_, out_count_, gradient + o * positions_ + image * out_count_);
      gemm(GemmLibrary::OneDnn, DType::F32, {false, true, count, rows(), positions_, positions_, positions_, rows()}, gradient, columns, false,
           out + first * rows());
    }
  }

 private:
  static constexpr int64_t cut = 64;  // output channels a piece
  int64_t rows() const { return inputs_ * window_count_; }
  void fill_columns(const float* x, float* columns) const {
    for (int64_t channel = 0; channel < inputs_; ++channel) {
      for (int64_t window = 0; window < window_count_; ++window) {
        float* const row = columns + (channel * window_count_ + window) * positions_;
        const int64_t* const from = from_.data() + window * out_count_;
        for (int64_t image = 0; image < images_; ++image) {
          const float* const source = x + (image * inputs_ + channel) * in_count_;
          for (int64_t p = 0; p < out_count_; ++p) row[image * out_count_ + p] = from[p] < 0 ? 0.0F : source[from[p]];
        }
      }
    }
  }
  int64_t images_, inputs_, outputs_, in_count_, out_count_, window_count_, positions_;
  std::vector<int64_t> from_;
};

}  // namespace

bool is_of_small_images(const ConvolutionOperands& call) {
  if (call.pass != ConvolutionPass::WeightGradient || call.groups != 1) return false;
  constexpr int64_t most_positions = 8, most_elements = 8 << 20;
  const int64_t positions = count_of_spatial(call.b);
  return positions <= most_positions && call.a[0] * positions * call.a[1] * count_of_spatial(call.out) <= most_elements;
}

std::unique_ptr<ConvolutionWork> small_image_work(const ConvolutionOperands& call) { return std::make_unique<SmallImages>(call); }

}  // namespace stepgraph
