// SPDX-License-Identifier: Apache-2.0
#include "stepgraph/program/form_accesses.h"

#include <algorithm>
#include <optional>

#include "stepgraph/base/error.h"
#include "stepgraph/program/form_text.h"

namespace stepgraph {
namespace {

int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }
int64_t ceil_quotient(int64_t a, int64_t b) { return -floor_quotient(-a, b); }

/// A summand of an address: coefficient * x for x in [low, high].
struct AddressLine {
  int factor = -1;
  int64_t coefficient = 0, low = 0, high = 0;
};
struct Address {
  int64_t constant = 0;
  std::vector<AddressLine> lines;
  bool is_exact = true;
};

class FormReach {
 public:
  FormReach(const Form& form, std::span<const int64_t> sizes) : form_(form) {
    for (size_t i = 0; i < sizes.size(); ++i) values_[form_symbol(static_cast<int>(i))] = sizes[i];
    for (const Factor& factor : form.factors) {
      sizes_.push_back(std::max<int64_t>(number(factor.size), 0));
      totals_.push_back(factor.block_of < 0 ? sizes_.back() : std::max<int64_t>(number(factor.total), 0));
    }
  }

  std::vector<FormAccess> all() const {
    std::vector<FormAccess> result;
    for (const Expr& expr : form_.exprs) {
      const auto* load = std::get_if<LoadExpr>(&expr.op);
      if (load == nullptr) continue;
      FormAccess access = of_load(*load);
      if (!access.region.empty()) result.push_back(std::move(access));
    }
    std::vector<IntervalSet> stored(form_.operands.size());
    for (const Store& store : form_.stores) {
      FormAccess access = reach(store.operand, store.at, {}, {});
      access.is_write = true;
      if (access.region.empty()) continue;
      const auto operand = static_cast<size_t>(store.operand);
      if (!access.region.is_distinct)
        throw InternalError("a store to " + text(store.at) + " of operand " + std::to_string(operand) + " may write an element twice");
      if (stored[operand].touches(access.region)) throw InternalError("two stores to operand " + std::to_string(operand) + " share bytes");
      stored[operand].add(access.region, true);
      result.push_back(std::move(access));
    }
    return result;
  }
  FormAccess of_load(const LoadExpr& load) const { return reach(load.operand, load.at, load.guards, load.indices); }
  bool runs() const {
    return std::all_of(sizes_.begin(), sizes_.end(), [](int64_t size) { return size > 0; }) && std::all_of(totals_.begin(), totals_.end(), [](int64_t total) { return total > 0; });
  }

 private:
  int64_t number(const Dim& dim) const { return dim.is_constant() ? dim.constant() : evaluate(dim, values_); }
  size_t index(int factor) const { return static_cast<size_t>(factor); }

  FormAccess reach(int operand, const Affine& at, const std::vector<Guard>& guards, const std::vector<IndexTerm>& indices) const {
    FormAccess access{.operand = operand, .is_write = false, .region = {}, .is_exact = true};
    const auto bytes = static_cast<int64_t>(size_bytes(form_.operands[static_cast<size_t>(operand)].dtype));
    std::optional<Address> address = address_of(at, guards);
    if (!address) return access;
    join_blocks(*address);
    access.is_exact = address->is_exact;
    int64_t begin = address->constant;
    std::vector<RegionStep> steps;
    for (const AddressLine& line : address->lines) {
      if (line.low > line.high) return access;
      begin = sum_of(begin, product_of(line.coefficient, line.low));
      steps.push_back({line.high - line.low + 1, product_of(line.coefficient, bytes)});
    }
    for (const IndexTerm& term : indices) steps.push_back({number(term.size), product_of(number(term.stride), bytes)});
    access.region = byte_region(product_of(begin, bytes), bytes, std::move(steps));
    return access;
  }

  /// Nothing where a guard leaves nothing.
  std::optional<Address> address_of(const Affine& at, const std::vector<Guard>& guards) const {
    Address address;
    address.constant = number(at.constant);
    for (const AffineTerm& term : at.terms) {
      const int64_t most = std::min(sizes_[index(term.factor)], totals_[index(term.factor)]);
      const int64_t coefficient = number(term.coefficient);
      product_of(coefficient, -1);  // so that quotients cannot overflow
      address.lines.push_back({term.factor, coefficient, 0, most - 1});
    }
    std::vector<const Guard*> rest;
    for (const Guard& guard : guards) {
      const std::optional<Guard> outer = outermost(guard);
      if (!outer) rest.push_back(&guard);
      else if (!narrow(address, *outer)) return std::nullopt;
    }
    for (const Guard* guard : rest) replace(address, *guard);
    return address;
  }

  /// The guard as one over its outermost factor alone: where the others together count through less than one of its steps, and it begins and ends at a step.
  /// Heads of a row of heads are such. Nothing if it is not.
  std::optional<Guard> outermost(const Guard& guard) const {
    if (guard.index.terms.size() < 2) return guard;
    const auto slope = [&](const AffineTerm& term) { return number(term.coefficient); };
    const auto outer = std::max_element(guard.index.terms.begin(), guard.index.terms.end(), [&](const auto& a, const auto& b) { return slope(a) < slope(b); });
    int64_t inside = 0;
    for (const AffineTerm& term : guard.index.terms) {
      if (slope(term) <= 0) return std::nullopt;
      if (&term != &*outer) inside = sum_of(inside, product_of(slope(term), std::min(sizes_[index(term.factor)], totals_[index(term.factor)]) - 1));
    }
    if (inside >= slope(*outer) || number(guard.index.constant) % slope(*outer) != 0 || number(guard.size) % slope(*outer) != 0) return std::nullopt;
    return Guard{{guard.index.constant, {*outer}}, guard.size};
  }

  /// A guard over one factor says how far it runs. False if nowhere.
  bool narrow(Address& address, const Guard& guard) const {
    const int64_t constant = number(guard.index.constant), size = number(guard.size);
    const int64_t slope = guard.index.terms.empty() ? 0 : number(guard.index.terms[0].coefficient);
    if (slope == 0) return constant >= 0 && constant < size;
    // 0 <= slope * x + constant < size
    const int64_t to_zero = product_of(constant, -1), to_size = sum_of(sum_of(size, -1), to_zero);
    product_of(to_size, -1);  // so that the quotients cannot overflow
    const int64_t low = slope > 0 ? ceil_quotient(to_zero, slope) : ceil_quotient(to_size, slope);
    const int64_t high = slope > 0 ? floor_quotient(to_size, slope) : floor_quotient(to_zero, slope);
    if (low > high) return false;
    for (AddressLine& line : address.lines) {
      if (line.factor != guard.index.terms[0].factor) continue;
      line.low = std::max(line.low, low);
      line.high = std::min(line.high, high);
    }
    return true;
  }

  /// A guard over several factors that stands in the address, times a number, is one summand whose range is known: a window's place within its row.
  void replace(Address& address, const Guard& guard) const {
    const auto line_of = [&](int factor) {
      return std::find_if(address.lines.begin(), address.lines.end(), [&](const AddressLine& line) { return line.factor == factor; });
    };
    std::optional<int64_t> multiple;
    int64_t low = number(guard.index.constant), high = low;
    for (const AffineTerm& term : guard.index.terms) {
      const auto line = line_of(term.factor);
      const int64_t slope = number(term.coefficient);
      if (line == address.lines.end() || slope == 0 || line->coefficient % slope != 0 || line->low > line->high) return;
      if (multiple && *multiple != line->coefficient / slope) return;
      multiple = line->coefficient / slope;
      const int64_t a = product_of(slope, line->low), b = product_of(slope, line->high);
      low = sum_of(low, std::min(a, b));
      high = sum_of(high, std::max(a, b));
    }
    for (const AffineTerm& term : guard.index.terms) address.lines.erase(line_of(term.factor));
    address.constant = sum_of(address.constant, product_of(product_of(*multiple, -1), number(guard.index.constant)));
    address.lines.push_back({-1, *multiple, std::max<int64_t>(low, 0), std::min(high, sum_of(number(guard.size), -1))});
  }

  /// A factor that is cut and its blocks run over the whole together.
  void join_blocks(Address& address) const {
    for (size_t i = 0; i < address.lines.size(); ++i) {
      AddressLine& line = address.lines[i];
      if (line.factor < 0) continue;
      const int block = form_.factors[index(line.factor)].block_of;
      if (block < 0) continue;
      const int64_t size = sizes_[index(line.factor)], total = totals_[index(line.factor)], blocks = sizes_[index(block)];
      const auto outer = std::find_if(address.lines.begin(), address.lines.end(), [&](const AddressLine& other) { return other.factor == block; });
      if (outer == address.lines.end()) continue;
      const int64_t whole = product_of(blocks, size);
      if (whole <= total) continue;  // none is short
      const bool is_joint = outer->coefficient == product_of(line.coefficient, size) && outer->low == 0 && outer->high == blocks - 1 && line.low == 0 &&
                            line.high == std::min(size, total) - 1;
      if (!is_joint) {
        address.is_exact = false;
        continue;
      }
      line.high = total - 1;
      address.lines.erase(outer);
      i = static_cast<size_t>(-1);  // from the start: places have moved
    }
  }

  const Form& form_;
  SymbolValues values_;
  std::vector<int64_t> sizes_, totals_;  ///< of each factor
};

}  // namespace

std::vector<FormAccess> form_accesses(const Form& form, std::span<const int64_t> sizes) { return FormReach(form, sizes).all(); }
FormAccess load_access(const Form& form, int expr, std::span<const int64_t> sizes) {
  return FormReach(form, sizes).of_load(std::get<LoadExpr>(form.exprs[static_cast<size_t>(expr)].op));
}
bool runs_at_all(const Form& form, std::span<const int64_t> sizes) { return FormReach(form, sizes).runs(); }

}  // namespace stepgraph
