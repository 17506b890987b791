// SPDX-License-Identifier: Apache-2.0
#include "tools/backend_flags.h"

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "stepgraph/base/error.h"
#include "stepgraph/base/file.h"
#include "stepgraph/base/nearest.h"
#include "stepgraph/train/data/arrays.h"
#include "tools/verbs.h"

namespace stepgraph {

void add_backend_flags(CLI::App& verb, BackendFlags& flags, const std::string& about_default) {
  verb.add_option("--backend", flags.name, "what runs the program: eager (aot_eager), segment (nvfuser), full (inductor) or " + about_default)
      ->type_name("NAME")
      ->default_str(flags.name);
  verb.add_option("--threads", flags.threads, "threads of a rank under a compiled back end; 0: the cores of this machine, shared among its ranks")
      ->type_name("N")
      ->default_str("0");
}

BackendOptions backend_options(const BackendFlags& flags) {
  const auto backend = backend_from_name(flags.name);
  if (!backend) throw UserError("--backend: found '" + flags.name + "', wanted eager, segment, full or reference");
  if (flags.threads < 0 || flags.threads > 4096) throw UserError(fmt::format("--threads: found {}, wanted 0 to 4096", flags.threads));
  BackendOptions options;
  options.backend = *backend;
  options.threads = static_cast<int>(flags.threads);
  return options;
}

void add_tap_flags(CLI::App& verb, TapFlags& flags, const std::string& otherwise) {
  verb.add_option("--tap", flags.patterns,
                  "values of the program to see besides its outputs, by phase, layer and operation: 'forward/h.0.attn/*'; may be repeated; without --tap-out " + otherwise)
      ->allow_extra_args(false)
      ->type_name("PATTERN");
  verb.add_option("--tap-out", flags.file, "write them to this .safetensors instead")->type_name("FILE");
}

void check_taps(const TapFlags& flags) {
  if (flags.file.empty()) return;
  if (flags.patterns.empty()) throw UserError("--tap-out has no use without --tap PATTERN");
  if (!flags.file.ends_with(".safetensors")) throw UserError("--tap-out: found '" + flags.file + "', wanted a name that ends in .safetensors");
  check_writable(flags.file);
}

void write_taps(const TapFlags& flags, const std::map<std::string, Literal>& taps) {
  const NamedArrays arrays(taps.begin(), taps.end());
  write_safetensors(flags.file, {arrays, {}});
  tell("note", fmt::format("{} tapped value{} in {}", arrays.size(), arrays.size() == 1 ? "" : "s", flags.file));
}

}  // namespace stepgraph
