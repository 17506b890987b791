// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/plain_gpt.h"

#include <cmath>

namespace stepgraph::testing {
namespace {

/// The model is written in f32, so its constants are f32's also when everything else is computed in f64.
constexpr double c32(double value) { return static_cast<double>(static_cast<float>(value)); }

constexpr double norm_epsilon = c32(1e-5);

size_t at(int64_t i) { return static_cast<size_t>(i); }

struct RowStatistics {
  double mean, inverse;
};
RowStatistics row_statistics(const double* x, int64_t n) {
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < n; ++i) mean += x[i] / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean) / static_cast<double>(n);
  return {mean, 1 / std::sqrt(variance + norm_epsilon)};
}

const double gelu_scale = c32(std::sqrt(2 / M_PI));

double gelu(double x) { return 0.5 * x * (1 + std::tanh(gelu_scale * (x + c32(0.044715) * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(gelu_scale * (x + c32(0.044715) * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_scale * (1 + c32(3 * 0.044715) * x * x);
}

}  // namespace

/// What the backward of a block needs of its forward.
struct PlainGpt::Layer {
  Numbers in, normed1, qkv, weights, mixed, middle, normed2, before, after;
};

PlainGpt::PlainGpt(PlainGptSizes sizes, NamedNumbers parameters_) : parameters(std::move(parameters_)), sizes_(sizes), rows_(sizes.batch * sizes.time) {
  for (const auto& [name, values] : parameters) first[name] = second[name] = Numbers(values.size());
}

void PlainGpt::dense_forward(const std::string& name, const Numbers& x, Numbers& y, int64_t in, int64_t out) const {
  const Numbers &w = parameters.at(name + ".weight"), &b = parameters.at(name + ".bias");
  y.assign(at(rows_ * out), 0);
  for (int64_t r = 0; r < rows_; ++r)
    for (int64_t o = 0; o < out; ++o) {
      double sum = b[at(o)];
      for (int64_t i = 0; i < in; ++i) sum += x[at(r * in + i)] * w[at(o * in + i)];
      y[at(r * out + o)] = sum;
    }
}

void PlainGpt::dense_backward(const std::string& name, const Numbers& x, const Numbers& dy, Numbers& dx, int64_t in, int64_t out) {
  const Numbers& w = parameters.at(name + ".weight");
  Numbers &dw = gradients[name + ".weight"], &db = gradients[name + ".bias"];
  dx.assign(at(rows_ * in), 0);
  for (int64_t r = 0; r < rows_; ++r)
    for (int64_t o = 0; o < out; ++o) {
      const double d = dy[at(r * out + o)];
      db[at(o)] += d;
      for (int64_t i = 0; i < in; ++i) {
        dw[at(o * in + i)] += d * x[at(r * in + i)];
        dx[at(r * in + i)] += d * w[at(o * in + i)];
      }
    }
}

void PlainGpt::norm_forward(const std::string& name, const Numbers& x, Numbers& y) const {
  const Numbers &w = parameters.at(name + ".weight"), &b = parameters.at(name + ".bias");
  const int64_t n = sizes_.width;
  y.assign(x.size(), 0);
  for (int64_t r = 0; r < rows_; ++r) {
    const RowStatistics row = row_statistics(&x[at(r * n)], n);
    for (int64_t i = 0; i < n; ++i) y[at(r * n + i)] = (x[at(r * n + i)] - row.mean) * row.inverse * w[at(i)] + b[at(i)];
  }
}

void PlainGpt::norm_backward(const std::string& name, const Numbers& x, const Numbers& dy, Numbers& dx) {
  const Numbers& w = parameters.at(name + ".weight");
  Numbers &dw = gradients[name + ".weight"], &db = gradients[name + ".bias"];
  const int64_t n = sizes_.width;
  dx.assign(x.size(), 0);
  for (int64_t r = 0; r < rows_; ++r) {
    const RowStatistics row = row_statistics(&x[at(r * n)], n);
    double mean_d = 0, mean_dh = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double h = (x[at(r * n + i)] - row.mean) * row.inverse, d = dy[at(r * n + i)];
      dw[at(i)] += d * h;
      db[at(i)] += d;
      mean_d += d * w[at(i)] / static_cast<double>(n);
      mean_dh += d * w[at(i)] * h / static_cast<double>(n);
    }
    for (int64_t i = 0; i < n; ++i) {
      const double h = (x[at(r * n + i)] - row.mean) * row.inverse;
      dx[at(r * n + i)] = row.inverse * (dy[at(r * n + i)] * w[at(i)] - mean_d - h * mean_dh);
    }
  }
}

void PlainGpt::attention_forward(Layer& layer) const {
  const int64_t T = sizes_.time, C = sizes_.width, H = sizes_.heads, D = C / H;
  const double scale = c32(1 / std::sqrt(static_cast<double>(D)));
  layer.weights.assign(at(sizes_.batch * H * T * T), 0);
  layer.mixed.assign(at(rows_ * C), 0);
  for (int64_t b = 0; b < sizes_.batch; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t t = 0; t < T; ++t) {
        const double* q = &layer.qkv[at((b * T + t) * 3 * C + h * D)];
        double* p = &layer.weights[at(((b * H + h) * T + t) * T)];
        double top = -INFINITY, total = 0;
        for (int64_t s = 0; s <= t; ++s) {
          const double* k = &layer.qkv[at((b * T + s) * 3 * C + C + h * D)];
          for (int64_t d = 0; d < D; ++d) p[s] += scale * q[d] * k[d];
          top = std::max(top, p[s]);
        }
        for (int64_t s = 0; s <= t; ++s) total += p[s] = std::exp(p[s] - top);
        for (int64_t s = 0; s <= t; ++s) {
          p[s] /= total;
          const double* v = &layer.qkv[at((b * T + s) * 3 * C + 2 * C + h * D)];
          for (int64_t d = 0; d < D; ++d) layer.mixed[at((b * T + t) * C + h * D + d)] += p[s] * v[d];
        }
      }
}

void PlainGpt::attention_backward(Layer& layer, const Numbers& d_mixed, Numbers& d_qkv) const {
  const int64_t T = sizes_.time, C = sizes_.width, H = sizes_.heads, D = C / H;
  const double scale = c32(1 / std::sqrt(static_cast<double>(D)));
  d_qkv.assign(layer.qkv.size(), 0);
  Numbers dp(at(T));
  for (int64_t b = 0; b < sizes_.batch; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t t = 0; t < T; ++t) {
        const double* p = &layer.weights[at(((b * H + h) * T + t) * T)];
        const double* dy = &d_mixed[at((b * T + t) * C + h * D)];
        double along = 0;
        for (int64_t s = 0; s <= t; ++s) {
          const size_t v = at((b * T + s) * 3 * C + 2 * C + h * D);
          dp[at(s)] = 0;
          for (int64_t d = 0; d < D; ++d) {
            dp[at(s)] += dy[d] * layer.qkv[v + at(d)];
            d_qkv[v + at(d)] += p[s] * dy[d];
          }
          along += p[s] * dp[at(s)];
        }
        const size_t q = at((b * T + t) * 3 * C + h * D);
        for (int64_t s = 0; s <= t; ++s) {
          const size_t k = at((b * T + s) * 3 * C + C + h * D);
          const double ds = p[s] * (dp[at(s)] - along) * scale;
          for (int64_t d = 0; d < D; ++d) {
            d_qkv[q + at(d)] += ds * layer.qkv[k + at(d)];
            d_qkv[k + at(d)] += ds * layer.qkv[q + at(d)];
          }
        }
      }
}

void PlainGpt::block_forward(const std::string& name, Layer& layer, Numbers& x) const {
  const int64_t C = sizes_.width;
  Numbers y;
  layer.in = x;
  norm_forward(name + ".ln_1", x, layer.normed1);
  dense_forward(name + ".attn.c_attn", layer.normed1, layer.qkv, C, 3 * C);
  attention_forward(layer);
  dense_forward(name + ".attn.c_proj", layer.mixed, y, C, C);
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  layer.middle = x;
  norm_forward(name + ".ln_2", x, layer.normed2);
  dense_forward(name + ".mlp.c_fc", layer.normed2, layer.before, C, 4 * C);
  layer.after = layer.before;
  for (double& value : layer.after) value = gelu(value);
  dense_forward(name + ".mlp.c_proj", layer.after, y, 4 * C, C);
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

void PlainGpt::block_backward(const std::string& name, Layer& layer, Numbers& dx) {
  const int64_t C = sizes_.width;
  Numbers d, e;
  dense_backward(name + ".mlp.c_proj", layer.after, dx, d, 4 * C, C);
  for (size_t i = 0; i < d.size(); ++i) d[i] *= gelu_slope(layer.before[i]);
  dense_backward(name + ".mlp.c_fc", layer.normed2, d, e, C, 4 * C);
  norm_backward(name + ".ln_2", layer.middle, e, d);
  for (size_t i = 0; i < dx.size(); ++i) dx[i] += d[i];
  dense_backward(name + ".attn.c_proj", layer.mixed, dx, d, C, C);
  attention_backward(layer, d, e);
  dense_backward(name + ".attn.c_attn", layer.normed1, e, d, C, 3 * C);
  norm_backward(name + ".ln_1", layer.in, d, e);
  for (size_t i = 0; i < dx.size(); ++i) dx[i] += e[i];
}

double PlainGpt::forward_backward(const std::vector<int64_t>& tokens, const std::vector<int64_t>& targets) {
  const int64_t C = sizes_.width, V = sizes_.vocabulary, T = sizes_.time;
  for (const auto& [name, values] : parameters) gradients[name].assign(values.size(), 0);
  const Numbers &wte = parameters.at("transformer.wte.weight"), &wpe = parameters.at("transformer.wpe.weight");
  Numbers &d_wte = gradients["transformer.wte.weight"], &d_wpe = gradients["transformer.wpe.weight"];
  const auto block = [](int64_t l) { return "transformer.h." + std::to_string(l); };

  Numbers x(at(rows_ * C)), last, normed, dx, d;
  for (int64_t r = 0; r < rows_; ++r)
    for (int64_t c = 0; c < C; ++c) x[at(r * C + c)] = wte[at(tokens[at(r)] * C + c)] + wpe[at(r % T * C + c)];
  std::vector<Layer> layers(at(sizes_.layers));
  for (int64_t l = 0; l < sizes_.layers; ++l) block_forward(block(l), layers[at(l)], x);
  norm_forward("transformer.ln_f", x, normed);

  double loss = 0;
  d.assign(normed.size(), 0);
  Numbers logits(at(V));
  for (int64_t r = 0; r < rows_; ++r) {
    double top = -INFINITY, total = 0;
    for (int64_t v = 0; v < V; ++v) {
      logits[at(v)] = 0;
      for (int64_t c = 0; c < C; ++c) logits[at(v)] += normed[at(r * C + c)] * wte[at(v * C + c)];
      top = std::max(top, logits[at(v)]);
    }
    for (int64_t v = 0; v < V; ++v) total += std::exp(logits[at(v)] - top);
    loss -= logits[at(targets[at(r)])] - top - std::log(total);
    for (int64_t v = 0; v < V; ++v) {
      const double slope = (std::exp(logits[at(v)] - top) / total - (v == targets[at(r)])) / static_cast<double>(rows_);
      for (int64_t c = 0; c < C; ++c) {
        d_wte[at(v * C + c)] += slope * normed[at(r * C + c)];
        d[at(r * C + c)] += slope * wte[at(v * C + c)];
      }
    }
  }
  norm_backward("transformer.ln_f", x, d, dx);
  for (int64_t l = sizes_.layers; l-- > 0;) block_backward(block(l), layers[at(l)], dx);
  for (int64_t r = 0; r < rows_; ++r)
    for (int64_t c = 0; c < C; ++c) {
      d_wte[at(tokens[at(r)] * C + c)] += dx[at(r * C + c)];
      d_wpe[at(r % T * C + c)] += dx[at(r * C + c)];
    }
  return loss / static_cast<double>(rows_);
}

void PlainGpt::update(const Step& step, double clip) {
  ++steps_;
  double squares = 0;
  for (const auto& [name, values] : gradients)
    for (double value : values) squares += value * value;
  gradient_norm = std::sqrt(squares);
  const double factor = clip > 0 ? std::min(1.0, c32(clip) / (gradient_norm + c32(1e-6))) : 1;
  for (auto& [name, p] : parameters) {
    const bool decays = name.ends_with("weight") && name.find("ln_") == std::string::npos;
    Numbers &g = gradients[name], &m = first[name], &v = second[name];
    for (size_t i = 0; i < p.size(); ++i) {
      g[i] *= factor;
      if (decays) p[i] -= step.rate * step.decay * p[i];
      m[i] = c32(step.beta1) * m[i] + c32(1 - step.beta1) * g[i];
      v[i] = c32(step.beta2) * v[i] + c32(1 - step.beta2) * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(step.beta1, static_cast<double>(steps_)));
      const double v_hat = v[i] / (1 - std::pow(step.beta2, static_cast<double>(steps_)));
      p[i] -= step.rate * m_hat / (std::sqrt(v_hat) + c32(step.epsilon));
    }
  }
}

}  // namespace stepgraph::testing
