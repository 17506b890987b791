// SPDX-License-Identifier: Apache-2.0
// In which order what is run as one runs, and where the commit begins: what writes states, in place, comes behind it, and nothing that finds fault with the
// data does. As a rule the commit is the end of an entry. Where all that is required before it (outputs, and what may fail) hangs on no call of backward, it
// begins right after that: then each update of a state runs as soon as its gradient is there, and gradients need not live until the end. The order is that of
// the program, as far as that goes.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace stepgraph {

struct OrderUnit {
  int position = 0;             ///< in the program
  std::vector<size_t> reads;    ///< units whose values it reads
  std::vector<size_t> follows;  ///< others that run before it: of an update those that read the states it replaces
  bool is_update = false;       ///< it writes states alone, and nothing reads what it makes
  bool is_required = false;     ///< it makes an output or may find fault with the data
  bool is_backward_call = false;
};
/// Whether the commit can begin before backward.
bool can_commit_early(std::span<const OrderUnit> units);

struct UnitOrder {
  std::vector<size_t> order;
  std::vector<char> in_commit;  ///< by unit
};
/// InternalError if units wait for one another.
UnitOrder order_units(std::span<const OrderUnit> units, bool commit_early);

}  // namespace stepgraph
