// SPDX-License-Identifier: Apache-2.0
// One run of one entry by any back end: on one device, or on all ranks of a mesh as threads.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "stepgraph/backend/backend.h"

namespace stepgraph {

struct RunOutcome {
  std::vector<Literal> outputs;         ///< of the entry, in order; whole values
  std::map<std::string, Literal> taps;  ///< of BackendOptions::taps; where there are several ranks the part of each, by "NAME@RANK"
};
/// A Local module on all places of its mesh. `inputs` are whole values; their sizes give the values of symbols, unless `symbols` gives them. UserError for inputs
/// that do not fit, as of Interpreter::run.
RunOutcome run_entry(const Module& local, std::string_view entry, std::span<const Literal> inputs, const BackendOptions& options, const SymbolValues& symbols = {});

/// What run_once runs of an entry: Local, of one device, entry main.
Module run_program(const Module& module, std::string_view entry);
/// Outputs of an entry of a Logical module, on one device.
std::vector<Literal> run_once(const Module& module, std::string_view entry, std::span<const Literal> inputs, const BackendOptions& options, const SymbolValues& symbols = {});
/// The same of a Local module of one device.
std::vector<Literal> run_local_once(const Module& local, std::string_view entry, std::span<const Literal> inputs, const BackendOptions& options,
                                    const SymbolValues& symbols = {});

}  // namespace stepgraph
