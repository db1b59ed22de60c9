// Attention of sequences whose keys and values lie in blocks of a pool. Nothing here knows MLX.
#pragma once

#include <vector>

#include "kernels.h"
#include "pool.h"

namespace mlxnb {

/// Keys and values of one row: where each block's part for the layer begins, at key head 0.
struct Blocks {
  const void* const* keys;    // a block of a head is (size, dim)
  const void* const* values;  // and (size, value_dim)
  int64_t size;               // tokens in a block
  int64_t head;               // tokens from one head's block to the next one's
  int64_t written;            // tokens of the row that are there
};

/// The newest tokens of several rows over all tokens of each.
struct PagedAttention {
  Attention each;             // one row of it: batch is 1; k, v and keys are the blocks' to say
  int64_t q_row, out_row;     // elements from row to row
  std::vector<int64_t> keys;  // position after the last query of each row
  std::vector<Blocks> blocks;
  // --- the driver's
  std::vector<int64_t> splits;
  std::vector<int64_t> tasks;  // before each row, and in all
};

/// Cut the work into tasks; fills the driver's fields. Returns the floats that `each.parts` needs.
size_t plan(PagedAttention& attention, const Kernels& kernels, int threads);
void run(const PagedAttention& attention, const Kernels& kernels, Pool& pool);

}  // namespace mlxnb
