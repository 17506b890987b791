// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <mutex>
#include <utility>

#include "stepgraph/backend/backend.h"
#include "stepgraph/backend/compiled_executor.h"
#include "stepgraph/compile/flat.h"
#include "stepgraph/compile/passes/tap.h"
#include "stepgraph/reference/reference_executor.h"

namespace stepgraph {
namespace {

/// The oracle on a program of its own, that with taps.
class TappedReference : public Executor {
 public:
  TappedReference(Module module, const MeshBinding& binding, bool flush_denormals)
      : module_(std::move(module)), oracle_(reference_executor(module_, binding, flush_denormals)) {}
  void connect(Communicator& group) override { oracle_->connect(group); }
  EntryResults run(std::string_view entry, const EntryInputs& inputs) override { return oracle_->run(entry, inputs); }
  std::optional<std::string> commit() override { return oracle_->commit(); }
  void find_non_finite(std::string_view entry, const EntryInputs& inputs) override { oracle_->find_non_finite(entry, inputs); }
  Literal read_state(std::string_view name) const override { return oracle_->read_state(name); }
  void write_state(std::string_view name, Literal part) override { oracle_->write_state(name, std::move(part)); }
  int64_t peak_bytes() const override { return oracle_->peak_bytes(); }

 private:
  const Module module_;
  const std::unique_ptr<Executor> oracle_;
};

}  // namespace

MakeExecutor make_executors(const BackendOptions& options, PassLog* log) {
  if (options.backend == Backend::Reference && options.fullgraph) throw UserError("--fullgraph: nothing is compiled by the back end reference, wanted eager, segment or full");
  if (options.backend == Backend::Reference) {
    if (options.taps.empty())
      return [flush = options.flush_denormals](const Module& local, const MeshBinding& binding) { return reference_executor(local, binding, flush); };
    return [options, log](const Module& local, const MeshBinding& binding) -> std::unique_ptr<Executor> {
      return std::make_unique<TappedReference>(tap(flatten_for_kernels(local, {}, log, "flatten"), options.taps), binding, options.flush_denormals);
    };
  }
  struct Shared {
    std::mutex mutex;
    const Module* module = nullptr;
    std::shared_ptr<CompiledModule> compiled;
  };
  auto shared = std::make_shared<Shared>();
  return [options, log, shared](const Module& local, const MeshBinding& binding) {
    const std::lock_guard lock(shared->mutex);
    if (shared->module != &local) {
      shared->module = &local;
      shared->compiled = std::make_shared<CompiledModule>(local, options, target_of(options, binding.rank_count()), log);
    }
    return compiled_executor(shared->compiled, binding);
  };
}

}  // namespace stepgraph
