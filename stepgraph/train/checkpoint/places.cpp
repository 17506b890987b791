// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/checkpoint/places.h"
#include <fmt/core.h>
#include <algorithm>
#include <charconv>
#include "stepgraph/base/error.h"
#include "stepgraph/base/hash.h"

namespace stepgraph {
namespace {

constexpr std::string_view name_prefix = "step-";

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string CheckpointName::text() const {
  return attempt == 1 ? fmt::format("{}{:08}", name_prefix, step) : fmt::format("{}{:08}.{}", name_prefix, step, attempt);
}

std::optional<CheckpointName> parse_checkpoint_name(std::string_view text) {
  if (!text.starts_with(name_prefix)) return std::nullopt;
  const std::string_view rest = text.substr(name_prefix.size());
  const size_t dot = rest.find('.');
  const auto step = number(rest.substr(0, dot));
  const auto attempt = dot == std::string_view::npos ? std::optional<int64_t>(1) : number(rest.substr(dot + 1));
  if (!step || !attempt) return std::nullopt;
  const CheckpointName name{*step, *attempt};
  // Only the one spelling that text() gives, so that no two names mean the same.
  if (name.text() != text) return std::nullopt;
  return name;
}

std::vector<CheckpointName> list_checkpoints(const Disk& disk, const std::string& directory) {
  std::vector<CheckpointName> names;
  if (!disk.is_directory(directory)) return names;
  for (const std::string& entry : disk.list(directory))
    if (const auto name = parse_checkpoint_name(entry)) names.push_back(*name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<CheckpointName> by_preference(std::vector<CheckpointName> all, const CheckpointName& newest) {
  std::sort(all.begin(), all.end(), [&](const CheckpointName& a, const CheckpointName& b) {
    const bool a_later = a > newest, b_later = b > newest;
    return a_later != b_later ? b_later : b < a;
  });
  return all;
}

std::string print_latest(const CheckpointName& name) {
  const std::string text = name.text();
  return fmt::format("{} {}\n", text, hash_bytes(std::as_bytes(std::span(text))).text());
}

CheckpointName parse_latest(std::string_view text, const std::string& where) {
  const auto name = parse_checkpoint_name(text.substr(0, text.find(' ')));
  if (!name || print_latest(*name) != text) throw UserError(fmt::format("{}: does not hold the name of a checkpoint and its checksum", where));
  return *name;
}

}  // namespace stepgraph
