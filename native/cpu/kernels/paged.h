// The attention of attention.h where keys and values lie in blocks, found through a table.
#pragma once

#include "../paged.h"
#include "attention.h"

namespace mlxnb::MLXNB_ISA {

/// Tokens that lie one after another, from token `at` of a block on.
struct Stretch {
  int64_t block, at, count;
};

/// The stretch from `first` on, before `end`: of one block or of neighbours in memory.
MLXNB_INLINE Stretch stretch_of(const Attention& a, const Blocks& blocks, const void* const* table,
                                int64_t dim, int64_t first, int64_t end) {
  const int64_t bytes = static_cast<int64_t>(size_of(a.type)) * blocks.size * dim;
  const int64_t block = first / blocks.size;
  int64_t next = block + 1;
  while (next * blocks.size < end &&
         static_cast<const char*>(table[next]) - static_cast<const char*>(table[next - 1]) ==
             bytes) {
    ++next;
  }
  const int64_t last = next * blocks.size < end ? next * blocks.size : end;
  return {block, first % blocks.size, last - first};
}

/// Keys or values of a stretch as floats, `dim` apart; halves are widened into the panel's memory.
static const float* floats_in(const Attention& a, const Panel& p, const Blocks& blocks,
                              const void* const* table, const Stretch& s, int64_t dim) {
  const int64_t base = (p.kv_head * blocks.head + s.at) * dim;
  if (a.type == Type::f32) {
    return static_cast<const float*>(table[s.block]) + base;
  }
  const int64_t total = s.count * dim;
  for (int64_t i = 0; i < total; i += 8) {
    store_some(Type::f32, p.wide, i, load_some(a.type, table[s.block], base + i, total - i),
               total - i);
  }
  return p.wide;
}

static void score_blocks(const Attention& a, const Panel& p, const Blocks& blocks, int64_t begin,
                         int64_t end) {
  for (int64_t t = begin; t < end;) {
    const Stretch s = stretch_of(a, blocks, blocks.keys, a.dim, t, end);
    const float* keys = floats_in(a, p, blocks, blocks.keys, s, a.dim);
    score(a, p, keys, a.dim, s.count, p.scores + (t - begin) * a.lanes);
    t += s.count;
  }
}

static void add_values(const Attention& a, const Panel& p, const Blocks& blocks, int64_t begin,
                       int64_t end) {
  for (int64_t t = begin; t < end;) {
    const Stretch s = stretch_of(a, blocks, blocks.values, a.value_dim, t, end);
    const float* values = floats_in(a, p, blocks, blocks.values, s, a.value_dim);
    weigh(a, p, p.scores + (t - begin) * a.lanes, values, a.value_dim, s.count);
    t += s.count;
  }
}

/// One task of one row: `a` says all but where keys and values are.
static void attend_blocks(const Attention& a, const Blocks& blocks, int64_t task, float* scratch) {
  Panel p = panel_of(a, task, scratch);
  // what lies beyond is of padding, or of another sequence
  p.end = p.end < blocks.written ? p.end : blocks.written;
  take_queries(a, p);
  start(a, p);
  for (int64_t begin = p.begin; begin < p.end; begin += key_block) {
    const int64_t count = p.end - begin < key_block ? p.end - begin : key_block;
    score_blocks(a, p, blocks, begin, begin + count);
    if (p.edges) {
      hide_edges(a, p, begin, count);
    }
    soften(a, p, count);
    add_values(a, p, blocks, begin, begin + count);
  }
  finish(a, p, task);
}

}  // namespace mlxnb::MLXNB_ISA
