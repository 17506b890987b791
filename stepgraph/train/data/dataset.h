// SPDX-License-Identifier: Apache-2.0
// A dataset: samples 0 .. size()-1, each with the same named fields. Immutable, hence safe to read from several threads.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include "stepgraph/base/hash.h"
#include "stepgraph/train/data/arrays.h"
#include "stepgraph/train/data/tokens.h"

namespace stepgraph {

struct Field {
  std::string name;
  DType dtype = DType::F32;
  Sizes sizes;  ///< of one sample, without the batch
  bool operator==(const Field&) const = default;
};

/// What random changes of samples are a function of, beside the sample: the same in each run.
struct Draw {
  uint64_t seed = 0;
  int64_t epoch = 0;
};

/// Of the values of an integer field.
struct ValueRange {
  int64_t minimum = 0, maximum = 0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual const std::vector<Field>& fields() const = 0;
  /// The samples in the order of `ids` (each in range, repeats allowed): one array [ids.size(), ...] for each field, in field order.
  virtual NamedArrays gather(std::span<const int64_t> ids) const = 0;
  /// The same for training: where the dataset changes samples at random (mirrored images), by this draw.
  virtual NamedArrays gather_drawn(std::span<const int64_t> ids, const Draw&) const { return gather(ids); }
  /// Bounds of the values of an integer field (by its index), where they are known without reading files. They may be those of a larger set.
  virtual std::optional<ValueRange> range(size_t) const { return std::nullopt; }
  /// Streams what these samples are into a hash; unlike gather() it need not make them.
  virtual void hash_content(Hasher& hasher, std::span<const int64_t> ids) const;
};
/// Shared: a subset keeps its whole, a loader's thread keeps what it reads.
using DatasetPointer = std::shared_ptr<const Dataset>;

/// Of all samples in their order, under their fields' names: equal data have equal hashes, wherever they lie.
Hash128 content_hash(const Dataset& dataset);

/// Arrays of equal first size, the number of samples. UserError if they differ or one is a scalar; `where` names them in errors.
DatasetPointer array_dataset(NamedArrays arrays, const std::string& where);

struct WindowOptions {
  int64_t context = 64;
  int64_t stride = 0;  ///< 0: context, so that one epoch covers the stream once
  std::string tokens_name = "tokens", targets_name = "targets";
};
/// Sample i: i32 tokens [i*stride, i*stride + context) and as targets the same moved on by one. A tail shorter than a window is left out.
/// UserError if there is no full window.
DatasetPointer window_dataset(TokenStream tokens, const WindowOptions& options, const std::string& where);

/// The samples with these ids of `whole`, in this order.
DatasetPointer subset(DatasetPointer whole, std::vector<int64_t> ids);

struct Splits {
  DatasetPointer train, test;
  std::vector<std::string> notes = {};  ///< for the user: arrays of a file that are left out
};
/// Sample i is a test sample when i % every == rest.
Splits split_every(const DatasetPointer& whole, int64_t every, int64_t rest);
/// The last size/parts samples are test samples.
Splits split_last(const DatasetPointer& whole, int64_t parts);

/// Rows [start, start + extent) of every array, followed by zeros up to `padded` rows (0: no padding): the part of a global batch that belongs to
/// a mesh coordinate, where the local size may exceed the valid extent.
NamedArrays slice_rows(const NamedArrays& batch, int64_t start, int64_t extent, int64_t padded = 0);

}  // namespace stepgraph
