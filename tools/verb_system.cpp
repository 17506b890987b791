// SPDX-License-Identifier: Apache-2.0
// stepgraph doctor, stepgraph version
#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "stepgraph/base/version.h"
#include "stepgraph/compile/ir/op.h"
#include "stepgraph/train/models/models.h"
#include "tools/progress.h"
#include "tools/verbs.h"

namespace stepgraph {
namespace {

using Json = nlohmann::ordered_json;

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string cpu_features() {
  std::ifstream file("/proc/cpuinfo");
  std::string found;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;)
      for (const char* wanted : {"sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_bf16"})
        if (word == wanted) found += (found.empty() ? "" : " ") + word;
    break;
  }
  return found.empty() ? "none known" : found;
}

double free_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) return std::stod(line.substr(13)) * 1024;
  return 0;
}

void doctor(bool json) {
  struct statvfs disk {};
  const double disk_bytes = statvfs(".", &disk) == 0 ? static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize) : 0;
  Json report;
  report["stepgraph"] = version_string;
  report["cpu"] = cpu_model();
  report["cpu_features"] = cpu_features();
  report["cores"] = std::thread::hardware_concurrency();
  report["memory_available_bytes"] = free_memory_bytes();
  report["disk_available_bytes"] = disk_bytes;
  report["executors"] = {"reference"};
  report["communicators"] = {"threads"};
  report["operators"] = all_ops().size();
  for (const ModelInfo& model : models()) report["models"].push_back(model.name);
  if (json) {
    std::puts(report.dump().c_str());
    return;
  }
  fmt::print("stepgraph      {}\ncpu            {} ({} threads)\nfeatures       {}\nmemory         {} available\ndisk           {} available here\n",
             version_string, cpu_model(), std::thread::hardware_concurrency(), cpu_features(), bytes_text(free_memory_bytes()), bytes_text(disk_bytes));
  fmt::print("executors      reference (the oracle: plain loops; ranks as threads)\noperators      {}\nmodels         ", all_ops().size());
  for (const ModelInfo& model : models()) fmt::print("{} ", model.name);
  fmt::print("\nwrite access   {}\n", access(".", W_OK) == 0 ? "yes" : "no: checkpoints and curves cannot be written here");
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("doctor", "what this machine has for Stepgraph");
  verb->add_flag("--json", *json, "one JSON line");
  verb->callback([json] { doctor(*json); });
}

void add_version(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("version", "the version");
  verb->callback([] { fmt::print("stepgraph {}\n", version_string); });
}

}  // namespace stepgraph
