// SPDX-License-Identifier: Apache-2.0
// Options of verbs that run a program without being a job: which back end, and which of its values are wanted.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>
#include "stepgraph/backend/backend.h"

namespace CLI {
class App;
}

namespace stepgraph {

struct BackendFlags {
  std::string name = "reference";
  int64_t threads = 0;
};
/// --backend and --threads. `about_default` is said of the default in --help.
void add_backend_flags(CLI::App& verb, BackendFlags& flags, const std::string& about_default);
/// UserError for a name that is no back end's.
BackendOptions backend_options(const BackendFlags& flags);

struct TapFlags {
  std::vector<std::string> patterns;
  std::string file;  ///< empty: none
};
/// --tap and --tap-out. `otherwise`: what is done with taps without a file.
void add_tap_flags(CLI::App& verb, TapFlags& flags, const std::string& otherwise);
/// Before a run that may be long: UserError for a file without a pattern or of another kind, SystemError if it cannot be written.
void check_taps(const TapFlags& flags);
/// Into the file.
void write_taps(const TapFlags& flags, const std::map<std::string, Literal>& taps);

}  // namespace stepgraph
