// SPDX-License-Identifier: Apache-2.0
// A recorded PyTorch model run again and compared tensor by tensor: loss, gradients, the losses of some optimizer steps, parameters and buffers after
// them, and a second batch of another size. docs/check.md describes the folder.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>
#include "stepgraph/backend/oracle_check.h"
#include "stepgraph/compile/step/optimizer.h"

namespace stepgraph {

/// How far a group of tensors may be off: a tensor is accepted within `absolute` or within `relative` of its largest magnitude, the group when besides
/// the root mean square of all its differences is at most `rms`.
struct Tolerance {
  double absolute = 1e-6, relative = 1e-5;
  std::optional<double> rms = {};
};
/// One entry of manifest.json.
struct RecordedRun {
  std::string name;
  std::string exported = "model.pt2", core, data = "data.safetensors";  ///< files in the folder
  Optimizer optimizer;
  int64_t steps = 0;
  std::map<std::string, std::string> tied;         ///< other name -> the recorded one
  std::vector<std::string> noise_gradients;        ///< their exact gradient is zero: neither it nor the parameter afterwards is compared
  bool core_keeps_gradients = true;
  std::map<std::string, Tolerance> tolerances;     ///< by group: loss, grad, losses, after.param, after.buffer, alt.loss, alt.grad_norm
};
/// The entry of `folder` in its own manifest.json, or in its parent's (by the folder's name). UserError.
RecordedRun read_recorded_run(const std::string& folder);
/// From the text of a manifest; `where` names it in errors.
RecordedRun parse_recorded_run(const std::string& text, const std::string& run, const std::string& where);

struct CheckOptions {
  std::string program;  ///< file in the folder; empty: the manifest's exported one
  std::string mesh;
  std::vector<std::string> skip;  ///< optional passes to leave out
  /// What runs the program: the oracle, so that the import is what is checked, or a compiled back end, so that the compiled step is.
  BackendOptions backend = {.backend = Backend::Reference};
};
struct CheckRow {
  std::string tensor;  ///< "grad.fc.weight", "loss", "grad (rms of 1234 elements)"
  double max_abs = 0, max_rel = 0, rms = 0;
  double allowed = 0;  ///< in terms of max_abs; of a group's row in terms of rms
  double ratio = 0;    ///< of what was found to what is allowed; infinite for a missing or differently shaped tensor
  bool of_group = false;  ///< a group's root mean square: max_abs and max_rel mean nothing
  std::string problem; ///< "" or why nothing could be compared
  bool ok() const { return ratio <= 1; }
};
struct CheckReport {
  std::string name, program, mesh;
  std::vector<CheckRow> rows;         ///< worst first
  std::vector<std::string> warnings;  ///< of the import, and what is left out and why
  bool ok() const;
};
/// UserError for a damaged folder or a model that cannot be imported.
CheckReport check_folder(const std::string& folder, const CheckOptions& options = {});
/// Where the compiled step first leaves the oracle on the recorded weights and batch. One device; the back end is a compiled one.
BisectReport bisect_folder(const std::string& folder, const CheckOptions& options);
/// The table, at most `limit` rows (0: all), and a last line with the verdict.
std::string text(const CheckReport& report, size_t limit = 0);

}  // namespace stepgraph
