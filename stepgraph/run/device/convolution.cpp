// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/run/device/convolution.h"

#include <dnnl.hpp>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "stepgraph/base/error.h"
#include "stepgraph/run/device/small_images.h"

namespace stepgraph {
namespace {

using dnnl::memory;
using Desc = memory::desc;
using Arguments = std::unordered_map<int, memory>;

dnnl::engine& cpu() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}
dnnl::stream& stream_of_thread() {
  thread_local dnnl::stream stream(cpu());
  return stream;
}
memory at(const Desc& desc, const void* data) { return memory(desc, cpu(), const_cast<void*>(data)); }

/// Row-major.
Desc plain(const memory::dims& dims) {
  memory::dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return Desc(dims, memory::data_type::f32, strides);
}
Desc any(const Desc& like) { return Desc(like.dims(), memory::data_type::f32, memory::format_tag::any); }
size_t room(const Desc& desc) { return (desc.get_size() + 63) / 64 * 64; }

/// Between the caller's layout and the one in which the library is fast; nothing where they are the same.
struct Change {
  Change(const Desc& from_desc, const Desc& to_desc) : from(from_desc), to(to_desc), needed(from_desc != to_desc) {
    if (!needed) return;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc desc(cpu(), from, cpu(), to, attributes);
    pad = desc.scratchpad_desc();
    reorder = dnnl::reorder(desc);
  }
  void run(const void* source, void* target, void* pad_memory) const {
    reorder.execute(stream_of_thread(),
                    Arguments{{DNNL_ARG_FROM, at(from, source)}, {DNNL_ARG_TO, at(to, target)}, {DNNL_ARG_SCRATCHPAD, at(pad, pad_memory)}});
  }
  Desc from, to, pad;
  bool needed;
  dnnl::primitive reorder;
};

/// One convolution of the library, with what it reads and writes in the caller's layout. Scratch: the two inputs and the result in its own layout, and its pad.
class Piece {
 public:
  Piece(const ConvolutionOperands& call, const Desc& a, const Desc& b, const Desc& out) : pass_(call.pass) {
    const memory::dims strides(call.strides), low(call.padding_low), high(call.padding_high);
    memory::dims dilation(call.dilation);
    for (int64_t& step : dilation) --step;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const bool is_forward = pass_ == ConvolutionPass::Forward, is_weight = pass_ == ConvolutionPass::WeightGradient;
    const Desc x = any(pass_ == ConvolutionPass::InputGradient ? out : a), w = any(is_weight ? out : b), y = any(is_forward ? out : is_weight ? b : a);
    constexpr auto direct = dnnl::algorithm::convolution_direct;
    const dnnl::convolution_forward::desc forward(is_forward ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training, direct, x, w, y, strides,
                                                  dilation, low, high);
    const dnnl::convolution_forward::primitive_desc forward_desc(forward, attributes, cpu());
    if (is_forward) {
      finish(forward_desc, dnnl::convolution_forward(forward_desc), {a, forward_desc.src_desc()}, {b, forward_desc.weights_desc()},
             {forward_desc.dst_desc(), out});
    } else if (is_weight) {
      const dnnl::convolution_backward_weights::primitive_desc desc({direct, x, w, y, strides, dilation, low, high}, attributes, cpu(), forward_desc);
      finish(desc, dnnl::convolution_backward_weights(desc), {a, desc.src_desc()}, {b, desc.diff_dst_desc()}, {desc.diff_weights_desc(), out});
    } else {
      const dnnl::convolution_backward_data::primitive_desc desc({direct, x, w, y, strides, dilation, low, high}, attributes, cpu(), forward_desc);
      finish(desc, dnnl::convolution_backward_data(desc), {a, desc.diff_dst_desc()}, {b, desc.weights_desc()}, {desc.diff_src_desc(), out});
    }
  }
  size_t scratch_bytes() const { return room(a_->to) + room(b_->to) + room(out_->from) + pad_bytes_; }
  /// `a_is_there`, `b_is_there`: in this scratch, since an earlier call.
  void run(const float* a, bool a_is_there, const float* b, bool b_is_there, float* out, std::byte* scratch) const {
    std::byte *const own_a = scratch, *const own_b = own_a + room(a_->to), *const own_out = own_b + room(b_->to), *const pad = own_out + room(out_->from);
    if (a_->needed && !a_is_there) a_->run(a, own_a, pad);
    if (b_->needed && !b_is_there) b_->run(b, own_b, pad);
    const bool is_weight = pass_ == ConvolutionPass::WeightGradient, is_forward = pass_ == ConvolutionPass::Forward;
    const memory first = at(a_->to, a_->needed ? static_cast<const void*>(own_a) : a), second = at(b_->to, b_->needed ? static_cast<const void*>(own_b) : b);
    const memory result = at(out_->from, out_->needed ? static_cast<void*>(own_out) : out);
    convolution_.execute(stream_of_thread(), Arguments{{is_forward || is_weight ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, first},
                                                       {is_weight ? DNNL_ARG_DIFF_DST : DNNL_ARG_WEIGHTS, second},
                                                       {is_forward  ? DNNL_ARG_DST
                                                        : is_weight ? DNNL_ARG_DIFF_WEIGHTS
                                                                    : DNNL_ARG_DIFF_SRC,
                                                        result},
                                                       {DNNL_ARG_SCRATCHPAD, at(pad_, pad)}});
    if (out_->needed) out_->run(own_out, out, pad);
  }

 private:
  template <class PrimitiveDesc>
  void finish(const PrimitiveDesc& desc, dnnl::primitive convolution, const Change& a, const Change& b, const Change& out) {
    convolution_ = std::move(convolution);
    pad_ = desc.scratchpad_desc();
    a_ = std::make_unique<Change>(a), b_ = std::make_unique<Change>(b), out_ = std::make_unique<Change>(out);
    pad_bytes_ = std::max({room(pad_), room(a.pad), room(b.pad), room(out.pad)});
  }
  ConvolutionPass pass_;
  dnnl::primitive convolution_;
  std::unique_ptr<Change> a_, b_, out_;
  Desc pad_;
  size_t pad_bytes_ = 0;
};

memory::dims dims_of(const Sizes& sizes) { return memory::dims(sizes.begin(), sizes.end()); }
/// [O, C, window...] as the library wants groups: [G, O / G, C, window...].
memory::dims grouped(const Sizes& weight, int64_t groups) {
  memory::dims dims = dims_of(weight);
  if (groups == 1) return dims;
  dims[0] /= groups;
  dims.insert(dims.begin(), groups);
  return dims;
}
int64_t count_of(const Sizes& sizes, size_t from) {
  int64_t count = 1;
  for (size_t d = from; d < sizes.size(); ++d) count *= sizes[d];
  return count;
}
constexpr int64_t most_pieces = 8;

/// Images [begin, end): the weight is brought into the library's layout once for all of a thread's pieces.
class ByImages : public ConvolutionWork {
 public:
  explicit ByImages(const ConvolutionOperands& call)
      : images_(call.a[0]), cut_((images_ + most_pieces - 1) / most_pieces), a_image_(count_of(call.a, 1)), out_image_(count_of(call.out, 1)) {
    const auto piece = [&](int64_t images) {
      memory::dims a = dims_of(call.a), out = dims_of(call.out);
      a[0] = out[0] = images;
      return std::make_unique<Piece>(call, plain(a), plain(grouped(call.b, call.groups)), plain(out));
    };
    full_ = piece(cut_);
    if (images_ % cut_ != 0) last_ = piece(images_ % cut_);
  }
  int64_t pieces() const override { return (images_ + cut_ - 1) / cut_; }
  size_t scratch_bytes() const override { return std::max(full_->scratch_bytes(), last_ ? last_->scratch_bytes() : 0); }
  void run(const float* a, const float* b, float* out, int64_t begin, int64_t end, void* scratch) const override {
    for (int64_t i = begin; i < end; ++i) {
      const bool is_last = last_ && i + 1 == pieces();
      // What is in scratch has another place, and maybe another layout, for the last piece.
      (is_last ? last_ : full_)->run(a + i * cut_ * a_image_, false, b, i > begin && !is_last, out + i * cut_ * out_image_, static_cast<std::byte*>(scratch));
    }
  }

 private:
  int64_t images_, cut_, a_image_, out_image_;
  std::unique_ptr<Piece> full_, last_;
};

/// Groups, or without them output channels, [begin, end) of the weight: no sums over what several threads make.
class ByWeights : public ConvolutionWork {
 public:
  explicit ByWeights(const ConvolutionOperands& call) : has_groups_(call.groups > 1) {
    const int64_t channels = call.out[0], total = has_groups_ ? call.groups : channels;
    cut_ = (total + most_pieces - 1) / most_pieces;
    if (!has_groups_) cut_ = std::max<int64_t>((cut_ + 7) / 8 * 8, 16);
    cut_ = std::min(cut_, total);
    total_ = total;
    const int64_t outputs = has_groups_ ? channels / call.groups : 1, inputs = call.out[1];
    x_step_ = has_groups_ ? inputs * count_of(call.a, 2) : 0;
    y_step_ = outputs * count_of(call.b, 2), w_step_ = outputs * count_of(call.out, 1);
    const auto piece = [&](int64_t units) {
      ConvolutionOperands part = call;
      memory::dims x = dims_of(call.a), y = dims_of(call.b);
      Sizes weight = call.out;
      weight[0] = y[1] = units * outputs;
      if (has_groups_) x[1] = units * inputs;
      return std::make_unique<Piece>(part, slice(x, call.a), slice(y, call.b), plain(has_groups_ && units > 1 ? grouped(weight, units) : dims_of(weight)));
    };
    full_ = piece(cut_);
    if (total_ % cut_ != 0) last_ = piece(total_ % cut_);
  }
  int64_t pieces() const override { return (total_ + cut_ - 1) / cut_; }
  size_t scratch_bytes() const override { return std::max(full_->scratch_bytes(), last_ ? last_->scratch_bytes() : 0); }
  void run(const float* a, const float* b, float* out, int64_t begin, int64_t end, void* scratch) const override {
    for (int64_t i = begin; i < end; ++i) {
      const bool is_last = last_ && i + 1 == pieces();
      (is_last ? last_ : full_)
          ->run(a + i * cut_ * x_step_, i > begin && !is_last && !has_groups_, b + i * cut_ * y_step_, false, out + i * cut_ * w_step_,
                static_cast<std::byte*>(scratch));
    }
  }

 private:
  /// Some channels of a dense array.
  static Desc slice(const memory::dims& dims, const Sizes& of) {
    memory::dims strides(of.size(), 1);
    for (size_t d = of.size(); d-- > 1;) strides[d - 1] = strides[d] * of[d];
    return Desc(dims, memory::data_type::f32, strides);
  }
  bool has_groups_;
  int64_t total_ = 0, cut_ = 0, x_step_ = 0, y_step_ = 0, w_step_ = 0;
  std::unique_ptr<Piece> full_, last_;
};

/// Of no elements, or sums of none.
class Nothing : public ConvolutionWork {
 public:
  explicit Nothing(const ConvolutionOperands& call) : count_(element_count(call.out)) {}
  int64_t pieces() const override { return count_ > 0 ? 1 : 0; }
  size_t scratch_bytes() const override { return 0; }
  void run(const float*, const float*, float* out, int64_t begin, int64_t end, void*) const override {
    if (begin < end) std::fill_n(out, count_, 0.0F);
  }

 private:
  int64_t count_;
};

}  // namespace

std::unique_ptr<ConvolutionWork> convolution_work(const ConvolutionOperands& call) {
  if (element_count(call.a) == 0 || element_count(call.b) == 0 || element_count(call.out) == 0) return std::make_unique<Nothing>(call);
  try {
    if (is_of_small_images(call)) return small_image_work(call);
    if (call.pass == ConvolutionPass::WeightGradient) return std::make_unique<ByWeights>(call);
    return std::make_unique<ByImages>(call);
  } catch (const dnnl::error& error) {
    throw UserError(std::string("oneDNN has no convolution for this: ") + error.what());
  }
}

}  // namespace stepgraph
