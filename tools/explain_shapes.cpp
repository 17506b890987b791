// SPDX-License-Identifier: Apache-2.0
// stepgraph explain shapes
#include <cstdio>
#include <nlohmann/json.hpp>

#include "stepgraph/backend/shapes_report.h"
#include "tools/explain.h"
#include "tools/json_line.h"
#include "tools/planned_model.h"

namespace stepgraph {

void explain_shapes(const ExplainRequest& request) {
  const PlannedModel model(request.job);
  const ShapesReport report = explain_shapes(model.local(), model.options());
  if (!request.json) {
    std::fputs(text(report).c_str(), stdout);
    return;
  }
  using Json = nlohmann::ordered_json;
  Json sizes = Json::array(), forced = Json::array();
  for (const ShapesReport::Size& size : report.sizes) {
    sizes.push_back({{"symbol", size.symbol},
                     {"minimum", size.minimum},
                     {"maximum", size.maximum == INT64_MAX ? Json() : Json(size.maximum)},
                     {"multiple_of", size.multiple_of},
                     {"buckets", size.buckets},
                     {"read_from", size.read_from},
                     {"derived", size.derived}});
  }
  for (const ShapesReport::Forced& op : report.forced)
    forced.push_back({{"entry", op.entry}, {"op", op.op}, {"layer", op.scope}, {"place", op.place.known() ? op.place.text() : ""}, {"count", op.count}});
  const Json all{{"sizes", std::move(sizes)},
                 {"forced", std::move(forced)},
                 {"evaluated", report.evaluated},
                 {"compilations", report.compilations},
                 {"memory_plans", report.memory_plans < 0 ? Json() : Json(report.memory_plans)}};
  std::puts(json_line(all).c_str());
}

}  // namespace stepgraph
