// SPDX-License-Identifier: Apache-2.0
// An op for the code generators: one element of a result as an expression over elements of its operands. An op whose row has this column is made into kernels
// and fused with others without being known by name; what has none is a call.
#pragma once
#include <optional>
#include <span>
#include <vector>
#include "stepgraph/compile/ir/op.h"
#include "stepgraph/compile/ops/form_builder.h"
#include "stepgraph/tensor/tensor_type.h"

namespace stepgraph {

/// Where the elements of operands come from.
class ElementSource {
 public:
  virtual ~ElementSource() = default;
  /// The element of operand i at an index, one affine a dim.
  virtual int element(size_t operand, std::vector<Affine> at) = 0;
  /// The element of that number in row-major order. Nothing if the operand is computed and its index cannot be told from the number: then `wanted_split` may say
  /// which factor of the form should be two.
  virtual std::optional<int> element_number(size_t operand, Affine number) = 0;
  /// The same where the index along `dim` is an i64 expression; at[dim] is 0. The operand then lies in memory.
  virtual int element_at(size_t operand, std::vector<Affine> at, size_t dim, int index) = 0;
  /// With a guard on each dim in `guarded`: `outside` where an index is not within the operand.
  virtual int element_within(size_t operand, std::vector<Affine> at, const std::vector<bool>& guarded, int outside) = 0;
};

/// A factor i of n elements as i / inner and i mod inner.
struct FactorSplit {
  int factor = 0;
  Dim inner;
};

struct ElementRequest {
  FormBuilder& form;
  const Op& op;
  std::span<const TensorType> inputs, results;
  size_t result = 0;
  std::span<const Affine> at;       ///< of the wanted element: an affine for each dim of the result
  std::span<const Affine> reduced;  ///< of an op that reduces: the factors (an affine for each reduced dim, in order) to reduce over
  ElementSource& operands;

  std::vector<Affine> index() const { return {at.begin(), at.end()}; }
};
/// Nothing for attributes (or dtypes) of which there is no expression.
using ElementFunction = std::optional<int> (*)(const ElementRequest&);

/// The index of element `number` of a tensor of that shape: nothing if a factor walks over more than one dim; `split` then says which.
std::optional<std::vector<Affine>> index_of_number(const Affine& number, const Shape& shape, std::span<const Factor> factors, std::optional<FactorSplit>& split);
/// How many numbers from 0 an index goes through, each once, row-major (each coefficient is what the factors inside of it count); 0 where it does not.
Dim counted(const Affine& index, std::span<const Factor> factors);
/// The sum of index times stride over the dims.
Affine address_of_index(std::span<const Affine> index, std::span<const Dim> strides);
/// Row-major.
Affine number_of_index(std::span<const Affine> index, const Shape& shape);

/// How an op is lowered.
enum class ElementKind : uint8_t {
  None,       ///< a call
  View,       ///< moves elements or makes them of nothing: made again wherever it is read, never stored for itself
  Pointwise,  ///< one element of each operand at the same place
  Reduce,     ///< over dims of its first operand
};

}  // namespace stepgraph
