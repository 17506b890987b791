// SPDX-License-Identifier: Apache-2.0
#include "tools/json_line.h"
#include "tools/trace_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "stepgraph/base/file.h"

namespace stepgraph {

TraceSink TraceFile::sink() {
  return [this](std::string_view entry, bool is_commit, std::span<const TraceSlice> slices) {
    constexpr size_t most_runs = 12;
    Run run{std::string(entry) + (is_commit ? " commit" : ""), {}};
    for (const TraceSlice& slice : slices) {
      const Instruction* instruction = slice.instruction;
      run.slices.push_back({instruction == nullptr ? "meet" : instruction->label, instruction == nullptr ? "" : instruction->scope,
                            instruction == nullptr ? "" : std::string(name(instruction->phase)), slice.thread, slice.start_ns, slice.end_ns, slice.bytes, slice.flops});
    }
    const std::lock_guard lock(mutex_);
    runs_.push_back(std::move(run));
    if (runs_.size() > most_runs) runs_.erase(runs_.begin());
  };
}

void TraceFile::write(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  const int64_t origin = runs_.empty() || runs_[0].slices.empty() ? 0 : runs_[0].slices[0].start_ns;
  for (const Run& run : runs_) {
    for (const Slice& slice : run.slices) {
      nlohmann::ordered_json event;
      event["name"] = slice.name;
      event["cat"] = run.entry;
      event["ph"] = "X";
      event["pid"] = 0;
      event["tid"] = slice.thread;
      event["ts"] = static_cast<double>(slice.start_ns - origin) / 1000;
      event["dur"] = static_cast<double>(slice.end_ns - slice.start_ns) / 1000;
      event["args"] = {{"layer", slice.scope}, {"phase", slice.phase}};
      // What was reached: the slice's part of the instruction's work by its own time.
      const auto ns = static_cast<double>(std::max<int64_t>(slice.end_ns - slice.start_ns, 1));
      if (slice.bytes > 0) event["args"]["bytes"] = slice.bytes, event["args"]["GB/s"] = slice.bytes / ns;
      if (slice.flops > 0) event["args"]["flops"] = slice.flops, event["args"]["GFLOP/s"] = slice.flops / ns;
      events.push_back(std::move(event));
    }
  }
  write_file(path, json_line({{"traceEvents", std::move(events)}}));
}

}  // namespace stepgraph
