// SPDX-License-Identifier: Apache-2.0
// GPT-2's training step written as plain loops in double, forward and backward by hand: what the captured, differentiated step must equal.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stepgraph::testing {

using Numbers = std::vector<double>;
using NamedNumbers = std::map<std::string, Numbers>;

struct PlainGptSizes {
  int64_t batch = 0, time = 0, vocabulary = 0, layers = 0, heads = 0, width = 0;
};

class PlainGpt {
 public:
  PlainGpt(PlainGptSizes sizes, NamedNumbers parameters);
  /// Mean cross entropy over all positions; fills `gradients`.
  double forward_backward(const std::vector<int64_t>& tokens, const std::vector<int64_t>& targets);
  struct Step {
    double rate = 0, decay = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  };
  /// AdamW; weight decay for tensors whose name ends in "weight" and does not hold "ln_". Scales the gradients first when their norm is above clip (> 0).
  void update(const Step& step, double clip);

  NamedNumbers parameters, gradients, first, second;
  double gradient_norm = 0;

 private:
  struct Layer;
  void attention_forward(Layer& layer) const;
  void attention_backward(Layer& layer, const Numbers& d_mixed, Numbers& d_qkv) const;
  void block_forward(const std::string& name, Layer& layer, Numbers& x) const;
  void block_backward(const std::string& name, Layer& layer, Numbers& dx);
  void dense_forward(const std::string& name, const Numbers& x, Numbers& y, int64_t in, int64_t out) const;
  void dense_backward(const std::string& name, const Numbers& x, const Numbers& dy, Numbers& dx, int64_t in, int64_t out);
  void norm_forward(const std::string& name, const Numbers& x, Numbers& y) const;
  void norm_backward(const std::string& name, const Numbers& x, const Numbers& dy, Numbers& dx);

  PlainGptSizes sizes_;
  int64_t rows_ = 0, steps_ = 0;
};

}  // namespace stepgraph::testing
