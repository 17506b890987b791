// SPDX-License-Identifier: Apache-2.0
// The rows of the op table, each in the file of its family; op_table.cpp maps structs to them.
#pragma once
#include "stepgraph/compile/ops/op_table.h"

namespace stepgraph {

// sources.cpp
OpInfo constant_row();
OpInfo iota_row();
OpInfo size_value_row();
OpInfo random_row();
OpInfo fold_in_row();
// elementwise.cpp
OpInfo unary_row();
OpInfo polygamma_row();
OpInfo binary_row();
OpInfo compare_row();
OpInfo select_row();
OpInfo convert_row();
OpInfo stop_gradient_row();
// reduce.cpp, cumulative.cpp, moments.cpp
OpInfo reduce_row();
OpInfo arg_reduce_row();
OpInfo cumulative_row();
OpInfo moments_row();
// movement.cpp
OpInfo broadcast_row();
OpInfo reshape_row();
OpInfo transpose_row();
OpInfo reverse_row();
OpInfo slice_row();
OpInfo pad_row();
OpInfo concatenate_row();
// index.cpp
OpInfo index_select_row();
OpInfo index_add_row();
OpInfo gather_row();
OpInfo scatter_add_row();
OpInfo scatter_reduce_row();
// order.cpp
OpInfo argsort_row();
OpInfo pick_row();
OpInfo scatter_position_row();
// matmul.cpp, attention.cpp, convolution.cpp, pool.cpp
OpInfo matmul_row();
OpInfo attention_row();
OpInfo attention_gradient_row();
OpInfo convolution_row();
OpInfo pool_row();
// control.cpp
OpInfo call_row();
OpInfo loop_row();
OpInfo map_tensors_row();
// collective.cpp
OpInfo reshard_row();
OpInfo all_reduce_row();
OpInfo all_gather_row();
OpInfo reduce_scatter_row();

}  // namespace stepgraph
