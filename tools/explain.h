// SPDX-License-Identifier: Apache-2.0
// stepgraph explain SUBJECT: why the program came out as it did. A subject is a row of the table in verb_explain.cpp and a file of its own.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "stepgraph/train/job.h"

namespace CLI {
class App;
}

namespace stepgraph {

/// What the command line says, for every subject.
struct ExplainRequest {
  TrainJob job;
  std::string entry;  ///< one alone; empty: all
  std::string map;    ///< memory: the SVG to write; empty: none
  int64_t rows = 20;  ///< of a table; 0: all
  bool json = false;
};

struct ExplainSubject {
  const char* name;
  const char* help;
  void (*explain)(const ExplainRequest& request);  ///< prints
};

void explain_fusion(const ExplainRequest& request);
void explain_memory(const ExplainRequest& request);
void explain_evaluate(const ExplainRequest& request);
void explain_shapes(const ExplainRequest& request);

// shared by the subjects
/// UserError for an entry that is none of these.
void check_entry(const ExplainRequest& request, const std::vector<std::string>& entries);
/// Of at most that many columns; what is cut ends in "...".
std::string cut(std::string text, size_t columns);
/// How many rows are printed of so many.
size_t rows_of(const ExplainRequest& request, size_t count);
/// "... and 12 more (--rows 0 shows all)" if any are left.
void print_rest(size_t shown, size_t count);

}  // namespace stepgraph
