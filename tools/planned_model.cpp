// SPDX-License-Identifier: Apache-2.0
#include "tools/planned_model.h"

#include <utility>

#include "tools/verbs.h"

namespace stepgraph {

Module read_model(const TrainJob& job) {
  if (job.model.name.empty()) throw UserError("name a model of the zoo, a .sg or .pt2 file, or a job with --config");
  BuiltModel built = read_job_model(job);
  for (const std::string& warning : built.warnings) tell("warning", warning);
  return std::move(built.module);
}

PlannedModel::PlannedModel(const TrainJob& job) : options_(trainer_options(job).backend) {
  if (options_.backend == Backend::Reference) throw UserError("the reference back end has no plan, wanted --backend eager, segment or full");
  Module module = read_model(job);
  if (module.stage == Stage::Sharded) throw UserError(job.model.name + " is at stage sharded, wanted logical or local");
  if (module.stage == Stage::Local) {
    if (!job.mesh.empty() && parse_mesh(job.mesh).text() != module.mesh.text())
      throw UserError(job.model.name + " is compiled for mesh " + module.mesh.text() + ", found --mesh " + job.mesh);
    local_ = std::move(module);
  } else {
    CompileOptions compile_for = compile_options(job);
    if (module.find_entry("step") || !module.find_entry("init") || !module.find_entry("forward")) compile_for.training.reset();
    local_ = compile(std::move(module), compile_for);
  }
  std::erase_if(local_.entries, [](const Entry& entry) { return entry.name == "forward"; });
  local_ = prune_graphs(std::move(local_));
  for (const Symbol& symbol : local_.symbols.all())
    if (symbol.kind == SymbolKind::Size && symbol.maximum == INT64_MAX) options_.largest[symbol.name] = job.batch;
  target_ = host_target(options_.threads, static_cast<int>(local_.mesh.device_count()));
}

}  // namespace stepgraph
