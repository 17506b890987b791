// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/held_indices.h"

#include <algorithm>
#include <utility>

#include "stepgraph/program/form_accesses.h"
#include "stepgraph/program/plan_accesses.h"

namespace stepgraph {
namespace {

/// A launch with its sizes known, and where an index of it lies.
class IndexedLaunch {
 public:
  IndexedLaunch(const Form& form, const FormLaunch& launch, const SymbolValues& values) : form_(form), launch_(launch), values_(values) {
    for (size_t i = 0; i < launch.sizes.size(); ++i) sizes_.push_back(value_of(launch.sizes[i], values));
    for (size_t i = 0; i < sizes_.size(); ++i) own_[form_symbol(static_cast<int>(i))] = sizes_[i];
  }
  bool runs() const { return runs_at_all(form_, sizes_); }
  int64_t bound(const IndexUse& use) const { return value_of(use.bound, own_); }
  int operand(const IndexUse& use) const { return std::get<LoadExpr>(form_.exprs[static_cast<size_t>(use.index)].op).operand; }
  int buffer(const IndexUse& use) const { return launch_.operands[static_cast<size_t>(operand(use))].buffer; }
  DType dtype(const IndexUse& use) const { return form_.operands[static_cast<size_t>(operand(use))].dtype; }
  /// In bytes of the buffer.
  FormAccess access(const IndexUse& use) const {
    FormAccess access = load_access(form_, use.index, sizes_);
    const View& view = launch_.operands[static_cast<size_t>(operand(use))];
    access.region = access.region.shifted(product_of(value_of(view.offset, values_), static_cast<int64_t>(size_bytes(dtype(use)))));
    return access;
  }

 private:
  const Form& form_;
  const FormLaunch& launch_;
  const SymbolValues& values_;
  std::vector<int64_t> sizes_;
  SymbolValues own_;
};

ByteRegion region_of(const View& view, DType dtype, const SymbolValues& values) {
  const auto bytes = static_cast<int64_t>(size_bytes(dtype));
  std::vector<RegionStep> steps;
  for (size_t i = 0; i < view.sizes.size(); ++i) steps.push_back({value_of(view.sizes[i], values), product_of(value_of(view.strides[i], values), bytes)});
  return byte_region(product_of(value_of(view.offset, values), bytes), bytes, std::move(steps));
}

}  // namespace

const std::vector<IndexUse>& HeldIndices::uses_of(int form) {
  const auto at = static_cast<size_t>(form);
  if (!std::exchange(is_known_[at], char{1})) uses_[at] = index_uses(plan_.forms[at]);
  return uses_[at];
}

void HeldIndices::add(const InstructionOp& op, const SymbolValues& values) {
  const auto* call = std::get_if<FormCall>(&op);
  if (call == nullptr || uses_of(call->form).empty()) return;
  for (const FormLaunch& launch : call->launches) {
    const IndexedLaunch indexed(plan_.forms[static_cast<size_t>(call->form)], launch, values);
    if (!indexed.runs()) continue;
    for (const IndexUse& use : uses_of(call->form)) {
      if (use.index < 0 || !use.holds_all) continue;
      const FormAccess access = indexed.access(use);
      if (!access.is_exact) continue;
      std::vector<Held>& held = held_[indexed.buffer(use)];
      const DType dtype = indexed.dtype(use);
      const int64_t bound = indexed.bound(use);
      auto same = std::find_if(held.begin(), held.end(), [&](const Held& one) { return one.dtype == dtype && one.bound == bound; });
      if (same == held.end()) same = held.insert(held.end(), {dtype, bound, {}});
      same->bytes.add(access.region, false);
    }
  }
}

void HeldIndices::forget(int buffer, int64_t begin, int64_t end) {
  const auto found = held_.find(buffer);
  if (found == held_.end()) return;
  for (Held& held : found->second) held.bytes.remove(begin, end);
}

bool HeldIndices::is_held(int buffer, DType dtype, const ByteRegion& region, int64_t bound) const {
  if (region.empty()) return true;
  const auto found = held_.find(buffer);
  return found != held_.end() && std::any_of(found->second.begin(), found->second.end(), [&](const Held& held) {
           return held.dtype == dtype && held.bound <= bound && held.bytes.first_missing(region) == region.end();
         });
}

bool HeldIndices::may_fail(const InstructionOp& op) {
  if (const auto* call = std::get_if<FormCall>(&op)) return !uses_of(call->form).empty();
  return std::holds_alternative<ScatterCall>(op) || std::holds_alternative<EvaluateCall>(op) || std::holds_alternative<CollectiveCall>(op);
}

bool HeldIndices::are_held(const InstructionOp& op, const SymbolValues& values) {
  if (const auto* scatter = std::get_if<ScatterCall>(&op))
    return is_held(scatter->index.buffer, scatter->index_dtype, region_of(scatter->index, scatter->index_dtype, values),
                   value_of(scatter->out.sizes[1], values));
  const auto* call = std::get_if<FormCall>(&op);
  if (call == nullptr) return false;
  const std::vector<IndexUse>& uses = uses_of(call->form);
  return std::all_of(call->launches.begin(), call->launches.end(), [&](const FormLaunch& launch) {
    const IndexedLaunch indexed(plan_.forms[static_cast<size_t>(call->form)], launch, values);
    return std::all_of(uses.begin(), uses.end(), [&](const IndexUse& use) {
      return use.index >= 0 && is_held(indexed.buffer(use), indexed.dtype(use), indexed.access(use).region, indexed.bound(use));
    });
  });
}

}  // namespace stepgraph
