// SPDX-License-Identifier: Apache-2.0
// stepgraph cache: what is in the compile cache, why something is not, whether it is sound, and no cache at all.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "stepgraph/backend/plan_cache.h"
#include "stepgraph/base/printable.h"
#include "tools/job_options.h"
#include "tools/json_line.h"
#include "tools/open_cache.h"
#include "tools/progress.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

using Json = nlohmann::ordered_json;

struct CacheFlags {
  std::string place;
  bool json = false, all = false;
};
struct ExplainMissFlags {
  JobFlags job;
  std::string what;
  bool json = false;
};

CompileCache& opened(const std::shared_ptr<CompileCache>& cache) {
  if (!cache) throw UserError("the compile cache is off; wanted a folder: --cache DIR, or STEPGRAPH_CACHE");
  return *cache;
}

std::string age_text(int64_t seconds) {
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 2 * 86400) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} days", seconds / 86400);
}

Json components_json(const CacheKey& key) {
  Json json = Json::object();
  for (const auto& [name, value] : key.components) json[printable(name)] = printable(value);
  return json;
}

Json entry_json(const CacheEntry& entry) {
  Json json;
  json["kind"] = entry.key.kind;
  json["about"] = printable(entry.about);
  json["path"] = printable(entry.path);
  json["bytes"] = entry.bytes;
  json["unused_seconds"] = entry.unused_seconds;
  if (!entry.problem.empty())
    json["problem"] = printable(entry.problem);
  else
    json["components"] = components_json(entry.key);
  return json;
}

void print(const Json& json) { std::puts(json_line(json).c_str()); }

void list(const CacheFlags& flags) {
  const std::shared_ptr<CompileCache> pointer = open_cache(flags.place, "");
  const CompileCache& cache = opened(pointer);
  const std::vector<CacheEntry> entries = cache.entries();
  int64_t bytes = 0, forms = 0, form_bytes = 0;
  Json json;
  json["folder"] = printable(cache.folder());
  json["limit_bytes"] = cache.limit_bytes();
  json["entries"] = Json::array();
  for (const CacheEntry& entry : entries) {
    bytes += entry.bytes;
    json["entries"].push_back(entry_json(entry));
    if (!flags.all && entry.key.kind == "form") {
      ++forms;
      form_bytes += entry.bytes;
      continue;
    }
    if (flags.json) continue;
    fmt::print("{:<8} {:>10}  used {:>8} ago  {}\n", entry.problem.empty() ? entry.key.kind : "damaged", bytes_text(static_cast<double>(entry.bytes)),
               age_text(entry.unused_seconds), printable(entry.problem.empty() ? entry.about : entry.problem));
  }
  json["bytes"] = bytes;
  if (flags.json) return print(json);
  if (forms > 0) fmt::print("{:<8} {:>10}  code of {} forms\n", "form", bytes_text(static_cast<double>(form_bytes)), forms);
  fmt::print("{}: {} entries, {} of {}\n", printable(cache.folder()), entries.size(), bytes_text(static_cast<double>(bytes)),
             bytes_text(static_cast<double>(cache.limit_bytes())));
}

int verify_entries(const CacheFlags& flags) {
  const std::shared_ptr<CompileCache> pointer = open_cache(flags.place, "");
  const CompileCache& cache = opened(pointer);
  const std::vector<CacheEntry> entries = cache.entries(true);
  Json json;
  json["folder"] = printable(cache.folder());
  json["entries"] = entries.size();
  json["problems"] = Json::array();
  for (const CacheEntry& entry : entries) {
    const std::string problem = problem_of(cache, entry);
    if (problem.empty()) continue;
    Json one;
    one["path"] = printable(entry.path);
    one["problem"] = printable(problem);
    json["problems"].push_back(std::move(one));
    if (!flags.json) fmt::print("{}\n", printable(problem.find(entry.path) == std::string::npos ? entry.path + ": " + problem : problem));
  }
  const size_t problems = json["problems"].size();
  if (flags.json)
    print(json);
  else
    fmt::print("{}: {} entries, {}\n", printable(cache.folder()), entries.size(),
               problems == 0 ? "all sound" : fmt::format("{} damaged: each is made again when it is wanted", problems));
  return problems == 0 ? 0 : 1;
}

void clear(const CacheFlags& flags) {
  const std::shared_ptr<CompileCache> pointer = open_cache(flags.place, "");
  CompileCache& cache = opened(pointer);
  const CompileCache::Cleared cleared = cache.clear();
  if (!flags.json) {
    fmt::print("{}: {} entries removed, {}\n", printable(cache.folder()), cleared.entries, bytes_text(static_cast<double>(cleared.bytes)));
    return;
  }
  Json json;
  json["folder"] = printable(cache.folder());
  json["entries"] = cleared.entries;
  json["bytes"] = cleared.bytes;
  print(json);
}

/// One thing that a job wants of the cache.
Json explained(const CompileCache& cache, const CacheKey& key, bool as_json) {
  const std::optional<CacheEntry> nearest = cache.nearest(key);
  const std::vector<KeyDifference> different = nearest ? differences(nearest->key, key) : std::vector<KeyDifference>{};
  const bool is_there = nearest && different.empty();
  Json json;
  json["kind"] = key.kind;
  json["cached"] = is_there;
  json["components"] = components_json(key);
  if (nearest) json["nearest"] = printable(nearest->path);
  json["differences"] = Json::array();
  for (const KeyDifference& difference : different) {
    Json one;
    one["component"] = printable(difference.component);
    one["was"] = difference.before ? Json(printable(*difference.before)) : Json();
    one["now"] = difference.now ? Json(printable(*difference.now)) : Json();
    json["differences"].push_back(std::move(one));
  }
  if (as_json) return json;
  if (is_there) {
    fmt::print("{:<8} is in the cache: {}, used {} ago\n", key.kind, printable(nearest->about), age_text(nearest->unused_seconds));
  } else if (!nearest) {
    fmt::print("{:<8} is not in the cache, which has none\n", key.kind);
  } else {
    fmt::print("{:<8} is not in the cache; the nearest one ({}, used {} ago) differs in\n", key.kind, printable(nearest->about),
               age_text(nearest->unused_seconds));
    for (const KeyDifference& difference : different) fmt::print("  {}\n", printable(text({difference})));
  }
  return json;
}

void explain_miss(ExplainMissFlags flags) {
  if (!flags.what.empty() && !flags.job.model.empty()) throw UserError("found both " + flags.what + " and --model " + flags.job.model);
  if (!flags.what.empty()) flags.job.model = flags.what;
  TrainJob job = read_job(flags.job).job;
  if (job.model.name.empty()) throw UserError("no model is given");
  opened(job.cache);
  if (job.backend == Backend::Reference) throw UserError("the reference back end compiles nothing, wanted --backend eager, segment or full");
  // Asked as a run asks, in order; what is not there is made and not kept.
  std::vector<CacheKey> wanted;
  CacheOptions looking = cache_options(job.cache->folder(), "");
  looking.read_only = true;
  looking.asked = [&](const CacheKey& key, bool) {
    if (key.kind != "form") wanted.push_back(key);
  };
  job.cache = std::make_shared<CompileCache>(looking);
  TrainerProgram program = trainer_program(build_job_model(job).module, trainer_options(job));
  announce_rest(program.backend, program.local.symbols);
  wanted.push_back(plan_key(program.local, program.backend, target_of(program.backend, static_cast<int>(program.local.mesh.device_count()))));
  Json json;
  json["folder"] = printable(job.cache->folder());
  json["wanted"] = Json::array();
  for (const CacheKey& key : wanted) json["wanted"].push_back(explained(*job.cache, key, flags.json));
  if (flags.json) print(json);
}

CLI::App* add_sub(CLI::App& verb, const std::string& name, const std::string& what, const std::shared_ptr<CacheFlags>& flags) {
  CLI::App* sub = verb.add_subcommand(name, what);
  sub->add_option("--cache", flags->place, "the folder; without it STEPGRAPH_CACHE, else stepgraph in the user's caches")->type_name("DIR");
  sub->add_flag("--json", flags->json, "one JSON line");
  return sub;
}

}  // namespace

void add_cache(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("cache", "what was compiled and kept: list it, ask why something is not in it, verify it, clear it");
  verb->require_subcommand(1);
  verb->footer(
      "Examples:\n"
      "  stepgraph cache ls\n"
      "  stepgraph cache explain --config examples/digits.toml --threads 4\n"
      "  stepgraph cache clear --cache runs/cache\n"
      "docs/cache.md says what is kept, and where.");
  const auto flags = std::make_shared<CacheFlags>();
  CLI::App* listing = add_sub(*verb, "ls", "entries, by kind, the last used first", flags);
  listing->add_flag("--all", flags->all, "each form too");
  listing->callback([flags] { list(*flags); });
  const auto explaining = std::make_shared<ExplainMissFlags>();
  CLI::App* why = verb->add_subcommand("explain", "whether a job's plan is in the cache; if not, what differs from the nearest one");
  why->add_option("what", explaining->what, "a model of the zoo, a .sg file, or a .pt2 file of torch.export.save")->type_name("MODEL|FILE");
  why->add_flag("--json", explaining->json, "one JSON line, with all components of the key");
  add_job_flags(*why, explaining->job);
  why->callback([explaining] { explain_miss(*explaining); });
  CLI::App* verifying = add_sub(*verb, "verify", "read every entry, and prove every plan again; exit code 1 if one is damaged", flags);
  verifying->callback([flags] {
    if (const int code = verify_entries(*flags); code != 0) throw CLI::RuntimeError(code);
  });
  CLI::App* clearing = add_sub(*verb, "clear", "remove all entries", flags);
  clearing->callback([flags] { clear(*flags); });
}

}  // namespace stepgraph
