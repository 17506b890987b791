// SPDX-License-Identifier: Apache-2.0
// The rows of the op table, each in the file of its family. An op of the variant without a line here does not compile.
#pragma once
#include <type_traits>
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

template <class Struct>
using OpType = std::type_identity<Struct>;

// sources.cpp
OpInfo row_of(OpType<Constant>);
OpInfo row_of(OpType<Iota>);
OpInfo row_of(OpType<SizeValue>);
OpInfo row_of(OpType<Random>);
OpInfo row_of(OpType<FoldIn>);
// elementwise.cpp
OpInfo row_of(OpType<Unary>);
OpInfo row_of(OpType<Polygamma>);
OpInfo row_of(OpType<Binary>);
OpInfo row_of(OpType<Compare>);
OpInfo row_of(OpType<Select>);
OpInfo row_of(OpType<Convert>);
OpInfo row_of(OpType<StopGradient>);
// reduce.cpp, cumulative.cpp, moments.cpp
OpInfo row_of(OpType<Reduce>);
OpInfo row_of(OpType<ArgReduce>);
OpInfo row_of(OpType<Cumulative>);
OpInfo row_of(OpType<Moments>);
// movement.cpp
OpInfo row_of(OpType<Broadcast>);
OpInfo row_of(OpType<Reshape>);
OpInfo row_of(OpType<Transpose>);
OpInfo row_of(OpType<Reverse>);
OpInfo row_of(OpType<Slice>);
OpInfo row_of(OpType<Pad>);
OpInfo row_of(OpType<Concatenate>);
// indexing.cpp
OpInfo row_of(OpType<IndexSelect>);
OpInfo row_of(OpType<IndexAdd>);
OpInfo row_of(OpType<Gather>);
OpInfo row_of(OpType<ScatterAdd>);
OpInfo row_of(OpType<ScatterReduce>);
// order.cpp
OpInfo row_of(OpType<ArgSort>);
OpInfo row_of(OpType<Pick>);
OpInfo row_of(OpType<ScatterPosition>);
// matmul.cpp, attention.cpp, convolution.cpp, pool.cpp
OpInfo row_of(OpType<MatMul>);
OpInfo row_of(OpType<Attention>);
OpInfo row_of(OpType<AttentionGradient>);
OpInfo row_of(OpType<Convolution>);
OpInfo row_of(OpType<Pool>);
// control.cpp
OpInfo row_of(OpType<Call>);
OpInfo row_of(OpType<Loop>);
OpInfo row_of(OpType<MapTensors>);
// collective.cpp
OpInfo row_of(OpType<Reshard>);
OpInfo row_of(OpType<AllReduce>);
OpInfo row_of(OpType<AllGather>);
OpInfo row_of(OpType<ReduceScatter>);

}  // namespace stepgraph
