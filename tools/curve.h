// SPDX-License-Identifier: Apache-2.0
// A loss curve as SVG.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace stepgraph {

struct Curve {
  std::string title, x_label = "step", y_label = "loss";
  int64_t first_step = 0;                           ///< steps done before the first loss
  std::vector<double> losses;                       ///< of consecutive steps
  std::vector<std::pair<double, double>> held_out;  ///< (step, loss) of evaluations
};
/// One self-contained picture over the number of steps done: losses as points, their local mean as a line, evaluations as dots, axes with round numbers.
std::string curve_svg(const Curve& curve);

}  // namespace stepgraph
