// SPDX-License-Identifier: Apache-2.0
#include "tools/memory_map.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "tools/progress.h"

namespace stepgraph {
namespace {

constexpr double map_width = 1200, map_height = 640, map_left = 80, map_right = 20, map_top = 150, map_bottom = 70, live_top = 44, live_bottom = 130;
constexpr double character_width = 6.2;  ///< of the labels in rectangles, about

const char* phase_colour(Phase phase) {
  switch (phase) {
    case Phase::Forward: return "#7fb3d5";
    case Phase::Backward: return "#e59866";
    case Phase::Recompute: return "#e7b6cc";
    case Phase::Sync: return "#c39bd3";
    case Phase::Update: return "#82c49a";
    case Phase::Evaluation: return "#f2d16b";
    case Phase::None: break;
  }
  return "#c8ccd0";
}

std::string escaped_xml(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '\'' ? "&#39;" : std::string(1, c);
  return safe;
}

struct MapAxes {
  double moments = 1, bytes = 1;
  double x(double moment) const { return map_left + moment / moments * (map_width - map_left - map_right); }
  double y(double address) const { return map_height - map_bottom - address / bytes * (map_height - map_top - map_bottom); }
  double live_y(double live) const { return live_bottom - live / bytes * (live_bottom - live_top); }
};

std::string value_name(const ArenaValue& value) { return value.scope + (value.scope.empty() ? "" : "/") + value.label; }

std::string rectangle(const ArenaValue& value, const MapAxes& axes, bool is_labelled) {
  const double left = axes.x(value.life.first), right = axes.x(value.life.last + 1), top = axes.y(static_cast<double>(value.offset + value.life.bytes)), bottom = axes.y(static_cast<double>(value.offset));
  std::string svg = fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.2f}' fill='{}' class='b'><title>{}\n{} {}, instructions {} to {}, at {}</title></rect>\n", left, top,
                                std::max(right - left, 0.5), std::max(bottom - top, 0.3), phase_colour(value.phase), escaped_xml(value_name(value)),
                                bytes_text(static_cast<double>(value.life.bytes)), name(value.phase), value.life.first, value.life.last, value.offset);
  const auto room = static_cast<size_t>(std::max(0.0, (right - left - 4) / character_width));
  if (!is_labelled || bottom - top < 12 || room < 6) return svg;
  std::string label = fmt::format("{} {}", value_name(value), bytes_text(static_cast<double>(value.life.bytes)));
  if (label.size() > room) label = label.substr(0, room - 2) + "..";
  return svg + fmt::format("<text x='{:.1f}' y='{:.1f}' class='l'>{}</text>\n", left + 2, (top + bottom) / 2 + 4, escaped_xml(label));
}

/// The bytes that live at each instruction, as steps.
std::string live_line(const EntryMemory& memory, const MapAxes& axes) {
  std::vector<double> change(memory.moments.size() + 2, 0);
  for (const ArenaValue& value : memory.values) {
    change[static_cast<size_t>(value.life.first)] += static_cast<double>(value.life.bytes);
    change[std::min(static_cast<size_t>(value.life.last) + 1, change.size() - 1)] -= static_cast<double>(value.life.bytes);
  }
  std::string points = fmt::format("{:.1f},{:.1f} ", map_left, live_bottom);
  double live = 0;
  for (size_t i = 0; i + 1 < change.size(); ++i) {
    live += change[i];
    points += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", axes.x(static_cast<double>(i)), axes.live_y(live), axes.x(static_cast<double>(i + 1)), axes.live_y(live));
  }
  return fmt::format("<polygon points='{}{:.1f},{:.1f}' fill='#dfe6ec' stroke='#5d6d7e'/>\n", points, map_width - map_right, live_bottom);
}

std::string scales(const EntryMemory& memory, const MapAxes& axes) {
  std::string svg;
  for (int i = 0; i <= 4; ++i) {
    const double address = axes.bytes * i / 4;
    svg += fmt::format("<line x1='{0:.1f}' x2='{1:.1f}' y1='{2:.1f}' y2='{2:.1f}' class='g'/><text x='{3:.1f}' y='{4:.1f}' class='y'>{5}</text>\n", map_left, map_width - map_right, axes.y(address),
                       map_left - 8, axes.y(address) + 4, bytes_text(address));
    const double moment = axes.moments * i / 4;
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' class='x'>{:.0f}</text>\n", axes.x(moment), map_height - map_bottom + 18, moment);
  }
  double left = map_left;
  for (const Phase phase : {Phase::Forward, Phase::Backward, Phase::Recompute, Phase::Sync, Phase::Update, Phase::Evaluation, Phase::None}) {
    if (std::none_of(memory.values.begin(), memory.values.end(), [&](const ArenaValue& value) { return value.phase == phase; })) continue;
    svg += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='12' height='12' fill='{}'/><text x='{:.1f}' y='{:.1f}'>{}</text>\n", left, map_height - 24, phase_colour(phase), left + 18, map_height - 14,
                       phase == Phase::None ? "no phase" : name(phase));
    left += 110;
  }
  return svg + fmt::format("<text x='{:.1f}' y='{:.1f}' class='x'>instruction</text><text x='{:.1f}' y='{:.1f}' class='y'>live</text>\n", map_width / 2, map_height - 34, map_left - 8, live_bottom);
}

}  // namespace

std::string memory_map_svg(const EntryMemory& memory, const std::string& title) {
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' font-family='sans-serif' font-size='12'>\n"
      "<style>.g{{stroke:#ddd}} .y{{text-anchor:end;fill:#555}} .x{{text-anchor:middle;fill:#555}} .b{{stroke:#fff;stroke-width:.4}} .l{{font-size:11px;pointer-events:none}}</style>\n"
      "<rect width='{0}' height='{1}' fill='white'/>\n<text x='{2}' y='26' font-size='15'>{3}: entry {4}, arena {5} in use, at least {6} live at once</text>\n",
      map_width, map_height, map_left, escaped_xml(title), escaped_xml(memory.name), bytes_text(static_cast<double>(memory.used_bytes)), bytes_text(static_cast<double>(memory.peak.bytes)));
  if (memory.values.empty()) return svg + "<text x='100' y='200'>nothing lies in the arena</text></svg>\n";
  const MapAxes axes{static_cast<double>(memory.moments.size()) + 1, std::max(1.0, static_cast<double>(memory.used_bytes))};
  svg += live_line(memory, axes) + scales(memory, axes);
  std::vector<const ArenaValue*> by_size;
  for (const ArenaValue& value : memory.values) by_size.push_back(&value);
  std::stable_sort(by_size.begin(), by_size.end(), [](const ArenaValue* a, const ArenaValue* b) { return a->life.bytes > b->life.bytes; });
  constexpr size_t labelled = 60;
  for (size_t i = 0; i < by_size.size(); ++i) svg += rectangle(*by_size[i], axes, i < labelled);
  const double peak = axes.x(memory.peak.moment + 0.5);
  return svg + fmt::format("<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' stroke='#c0392b' stroke-dasharray='4 3'/><text x='{0:.1f}' y='{3}' class='x' style='fill:#c0392b'>peak</text></svg>\n", peak,
                           live_top, map_height - map_bottom, live_top - 4);
}

}  // namespace stepgraph
