// SPDX-License-Identifier: Apache-2.0
#include "tools/curve.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace stepgraph {
namespace {

constexpr double width = 760, height = 420, left = 64, right = 20, top = 44, bottom = 48;

/// 1, 2 or 5 times a power of ten, so that about five of them fit.
double round_step(double range) {
  const double raw = range / 5, power = std::pow(10, std::floor(std::log10(raw))), part = raw / power;
  return (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10) * power;
}

struct Axes {
  double x0, x1, y0, y1;
  double x(double value) const { return left + (value - x0) / (x1 - x0) * (width - left - right); }
  double y(double value) const { return height - bottom - (value - y0) / (y1 - y0) * (height - top - bottom); }
};

Axes fit(const Curve& curve) {
  double low = curve.losses.front(), high = low;
  for (double loss : curve.losses) low = std::min(low, loss), high = std::max(high, loss);
  for (const auto& [step, loss] : curve.held_out) low = std::min(low, loss), high = std::max(high, loss);
  if (high - low < 1e-9) low -= 0.5, high += 0.5;
  const double margin = (high - low) * 0.05;
  const double first = static_cast<double>(curve.first_step);
  return {first, first + static_cast<double>(curve.losses.size()), low - margin, high + margin};
}

std::string grid(const Axes& axes) {
  std::string svg;
  const double step_y = round_step(axes.y1 - axes.y0);
  for (double value = std::ceil(axes.y0 / step_y) * step_y; value <= axes.y1; value += step_y)
    svg += fmt::format("<line x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}' class='grid'/><text x='{:.1f}' y='{:.1f}' class='y'>{:.4g}</text>\n", left,
                       width - right, axes.y(value), axes.y(value), left - 8, axes.y(value) + 4, std::abs(value) < step_y / 1e6 ? 0.0 : value);
  const double step_x = std::max(1.0, round_step(axes.x1 - axes.x0));
  for (double value = std::ceil(axes.x0 / step_x) * step_x; value <= axes.x1; value += step_x)
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' class='x'>{:.0f}</text>\n", axes.x(value), height - bottom + 18, value);
  return svg;
}

/// Means over about a twentieth of the run around each step, fewer at its ends, so that the line neither lags behind the points nor shrinks.
std::vector<double> local_means(const std::vector<double>& losses) {
  std::vector<double> sums{0};
  for (const double loss : losses) sums.push_back(sums.back() + loss);
  const size_t reach = std::min<size_t>(losses.size() / 40, 200);
  std::vector<double> means;
  for (size_t i = 0; i < losses.size(); ++i) {
    const size_t around = std::min({reach, i, losses.size() - 1 - i});
    means.push_back((sums[i + around + 1] - sums[i - around]) / static_cast<double>(2 * around + 1));
  }
  return means;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (char c : text) safe += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return safe;
}

/// The loss of a step that was skipped may be anything: it is drawn as the one before (the first finite one at the start).
Curve finite(Curve curve) {
  std::erase_if(curve.held_out, [](const auto& point) { return !std::isfinite(point.second); });
  const auto first = std::find_if(curve.losses.begin(), curve.losses.end(), [](double loss) { return std::isfinite(loss); });
  if (first == curve.losses.end()) curve.losses.clear();
  double last = curve.losses.empty() ? 0 : *first;
  for (double& loss : curve.losses) last = loss = std::isfinite(loss) ? loss : last;
  return curve;
}

}  // namespace

std::string curve_svg(const Curve& given) {
  const Curve curve = finite(given);
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' font-family='sans-serif' font-size='12'>\n"
      "<style>.grid{{stroke:#ddd}} .y{{text-anchor:end;fill:#555}} .x{{text-anchor:middle;fill:#555}}</style>\n"
      "<rect width='{0}' height='{1}' fill='white'/>\n<text x='{2}' y='24' font-size='15'>{3}</text>\n",
      width, height, left, escaped(curve.title));
  if (curve.losses.empty()) return svg + "<text x='100' y='200'>no steps</text></svg>\n";
  const Axes axes = fit(curve);
  svg += grid(axes);
  const std::vector<double> means = local_means(curve.losses);
  const size_t every = std::max<size_t>(1, curve.losses.size() / 2000);
  std::string line;
  for (size_t i = 0; i < curve.losses.size(); ++i) {
    if (i % every != 0 && i + 1 != curve.losses.size()) continue;
    const double x = axes.x(static_cast<double>(curve.first_step) + static_cast<double>(i) + 1);
    svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='1.4' fill='#9ec5e8'/>\n", x, axes.y(curve.losses[i]));
    line += fmt::format("{:.1f},{:.1f} ", x, axes.y(means[i]));
  }
  svg += fmt::format("<polyline points='{}' fill='none' stroke='#1f6fb2' stroke-width='2'/>\n", line);
  for (const auto& [step, loss] : curve.held_out)
    svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='4' fill='#d1495b'/>\n", axes.x(std::clamp(step, axes.x0, axes.x1)), axes.y(loss));
  if (!curve.held_out.empty())
    svg += fmt::format("<circle cx='{:.1f}' cy='20' r='4' fill='#d1495b'/><text x='{:.1f}' y='24'>held out</text>\n", width - 96, width - 86);
  svg += fmt::format("<text x='{:.1f}' y='{:.1f}' class='x'>{}</text><text x='16' y='{:.1f}' transform='rotate(-90 16 {:.1f})' class='x'>{}</text></svg>\n",
                     (left + width - right) / 2, height - 10, escaped(curve.x_label), height / 2, height / 2, escaped(curve.y_label));
  return svg;
}

}  // namespace stepgraph
