// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/train/cached_module.h"

#include <fmt/format.h>

#include <utility>

#include "stepgraph/backend/plan_cache.h"
#include "stepgraph/backend/timed_part.h"
#include "stepgraph/compile/ir/text.h"

namespace stepgraph {
namespace {

using Components = std::map<std::string, std::string>;

/// Constants make a text long: a module with more bytes of them is not kept.
constexpr size_t constant_bytes_max = size_t{1} << 20;

std::string joined_words(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ",")); }
std::string number_text(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; }

// Each names all members of a struct: one that is added does not compile until it has its component.

void add(const Schedule& schedule, Components& parts) {
  const auto& [kind, rate, warmup, total, minimum, every, factor] = schedule;
  parts["schedule"] = fmt::format("kind {} warmup {} total {} minimum {} every {} factor {}", static_cast<int>(kind), warmup, total, minimum, every, factor);
  parts["optimizer.lr"] = fmt::format("{}", rate);
}

std::string group_text(const ParameterGroup& group) {
  const auto& [patterns, rate_factor, weight_decay, frozen] = group;
  return fmt::format("patterns {} rate_factor {} weight_decay {} frozen {}", joined_words(patterns), rate_factor, number_text(weight_decay), frozen);
}

void add(const Optimizer& optimizer, Components& parts) {
  const auto& [kind, rate, weight_decay, momentum, dampening, nesterov, beta1, beta2, epsilon, alpha, centered, rate_decay, beta2_decay, clip_threshold,
               minimum_scale, ema_decay, no_decay, groups] = optimizer;
  add(rate, parts);
  parts["optimizer.name"] = name(kind);
  const std::pair<const char*, double> numbers[] = {{"weight_decay", weight_decay},
                                                    {"momentum", momentum},
                                                    {"dampening", dampening},
                                                    {"beta1", beta1},
                                                    {"beta2", beta2},
                                                    {"epsilon", epsilon},
                                                    {"alpha", alpha},
                                                    {"rate_decay", rate_decay},
                                                    {"beta2_decay", beta2_decay},
                                                    {"nesterov", nesterov},
                                                    {"clip_threshold", clip_threshold},
                                                    {"minimum_scale", minimum_scale},
                                                    {"centered", centered}};
  for (const auto& [key, value] : numbers) parts[std::string("optimizer.") + key] = fmt::format("{}", value);
  parts["optimizer.ema_decay"] = number_text(ema_decay);
  parts["optimizer.no_decay"] = joined_words(no_decay);
  std::string all;
  for (const ParameterGroup& group : groups) all += (all.empty() ? "" : " | ") + group_text(group);
  parts["optimizer.groups"] = all;
}

void add(const StepOptions& step, Components& parts) {
  const auto& [clip_norm, micro_batches, gradients_as_outputs, loss_scale] = step;
  const auto& [kind, start, growth, backoff, interval] = loss_scale;
  parts["train.clip_norm"] = number_text(clip_norm);
  parts["train.micro_batches"] = std::to_string(micro_batches);
  parts["train.gradients_as_outputs"] = gradients_as_outputs ? "true" : "false";
  parts["train.loss_scale"] = fmt::format("kind {} start {} growth {} backoff {} interval {}", static_cast<int>(kind), start, growth, backoff, interval);
}

void add(const CompileOptions& options, Components& parts) {
  const auto& [training, mesh, sharding, skip, stop_at] = options;
  const auto& [inputs, batch_axes] = sharding;
  if (training) {
    const auto& [optimizer, step] = *training;
    add(optimizer, parts);
    add(step, parts);
  }
  parts["mesh"] = mesh.text();
  std::string layouts;
  for (const InputSharding& input : inputs) {
    const auto& [pattern, kind, layout] = input;
    layouts += fmt::format("{}{} {} {}", layouts.empty() ? "" : " | ", pattern, kind ? static_cast<int>(*kind) : -1, text(layout));
  }
  parts["shardings"] = layouts;
  parts["batch_axes"] = joined_words(batch_axes);
  parts["skip"] = joined_words(skip);
  parts["stop_at"] = stop_at;
}

size_t constant_bytes(const Module& module) {
  size_t bytes = 0;
  for (const Graph& graph : module.graphs)
    for (const Node& node : graph.nodes)
      if (const auto* constant = std::get_if<Constant>(&node.op)) bytes += constant->value.byte_count();
  return bytes;
}

}  // namespace

CacheKey module_key(const Module& module, const CompileOptions& options) {
  CacheKey key{std::string(module_cache_kind), {}};
  key.components["module"] = Hasher().text(print_module(module)).finish().text();
  add(options, key.components);
  add_versions(key);
  return key;
}

Module compile_cached(Module module, const CompileOptions& options, const std::shared_ptr<CompileCache>& cache, PassLog* log) {
  if (!cache || (log != nullptr && log->dump) || constant_bytes(module) > constant_bytes_max) return compile(std::move(module), options, log);
  TimedPart looking("cache", log);
  const int64_t nodes = node_count(module);
  const CacheKey key = module_key(module, options);
  if (const std::optional<std::string> content = cache->find(key)) {
    try {
      Module found = parse_module(*content);
      looking.end(nodes, node_count(found));
      return found;
    } catch (const UserError& problem) {
      cache->reject(key, problem.what());
    }
  }
  looking.end(nodes, 0, why_missed(*cache, key));
  module = compile(std::move(module), options, log);
  if (constant_bytes(module) <= constant_bytes_max) cache->store(key, fmt::format("{}, {} nodes", module.name, node_count(module)), print_module(module));
  return module;
}

}  // namespace stepgraph
