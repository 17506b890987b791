// SPDX-License-Identifier: Apache-2.0
// Walks an exported graph and appends what it computes: operators by the row table, sizes as Dims, regions (no_grad, autocast) by what they mean, in-place operators
// as writes to their tensor's storage.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>
#include "stepgraph/compile/capture/pt2/aten_call.h"

namespace stepgraph::pt2 {

struct WalkOptions {
  bool training = true;
};

class Walk {
 public:
  /// `autocast`: of the region that the whole program stands in.
  Walk(Surroundings surroundings, const Autocast& autocast) : surroundings_(std::move(surroundings)), autocast_(autocast) {}
  /// `names` holds the graph's inputs; returns what its outputs stand for.
  std::vector<Item> run(const ExportedGraph& graph, std::map<std::string, Item>& names);

 private:
  void visit(const ExportedNode& node, std::map<std::string, Item>& names);
  void aten(const ExportedNode& node, std::map<std::string, Item>& names);
  void region(const ExportedNode& node, std::map<std::string, Item>& names);
  std::optional<Dim> closed_form(const ExportedNode& node) const;
  void size_operator(const ExportedNode& node, std::map<std::string, Item>& names);
  void write_result(const ExportedNode& node, OperatorCall& call, std::string_view argument, std::map<std::string, Item>& names);
  void bind_outputs(const ExportedNode& node, std::vector<Item> outputs, std::map<std::string, Item>& names);

  Surroundings surroundings_;
  bool gradients_on_ = true;
  const std::map<std::string, Dim>* closed_forms_ = nullptr;  ///< of the graph at hand: what the exporter says of its sizes
  Autocast autocast_;  ///< of the region at hand
};

/// All operators of the program that no row takes: one UserError with counts, places and what to do.
void check_operators(const ExportedProgram& program, const std::string& path);

}  // namespace stepgraph::pt2
