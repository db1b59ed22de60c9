// The two products of attention for a panel: scores of keys, and values weighted by them.
//
// With many lanes they are tiles of multiply.h. A decode step of one row has a lane for each head
// that shares a key head, often three or four: then a vector runs along a key or a value instead.
#pragma once

#include "panel.h"

namespace mlxnb::MLXNB_ISA {

/// `rows` rows of a product with the panel's lanes, as `any_tile` makes a few.
///
/// Eight at a time where a row is one vector: six sums would wait for each other.
template <bool across>
MLXNB_INLINE void tiles(const Attention& a, int64_t rows, const float* x, const float* w,
                        int64_t step, int64_t depth, float* out, bool more) {
  for (int64_t r = 0; r < rows;) {
    const float* from = w + r * (across ? 1 : step);
    if (a.lanes == 8 && rows - r >= 8) {
      tile<8, 1, across>(x, from, step, depth, out + r * 8, more);
      r += 8;
      continue;
    }
    const int64_t some = rows - r < strip ? rows - r : strip;
    any_tile<across>(some, a.lanes / 8, x, from, step, depth, out + r * a.lanes, more);
    r += some;
  }
}

template <int lanes>
static void score_few(const Attention& a, const Panel& p, const float* keys, int64_t step,
                      int64_t count, float* scores) {
  for (int64_t t = 0; t < count; ++t) {
    f8 total[few_lanes] = {};
    for (int64_t d = 0; d < a.dim; d += 8) {
      const f8 key = load(keys + t * step + d);
      for (int i = 0; i < lanes; ++i) {
        total[i] += key * load(p.rows + i * a.dim + d);
      }
    }
    store(scores + t * 8, sums(total));  // the lanes beyond hold the same once more
  }
}

/// Vectors [d, d + 8 * vectors) of the values of all keys, added to the panel's outputs.
template <int lanes, int vectors>
MLXNB_INLINE void add_few(const Panel& p, const float* weights, const float* values, int64_t step,
                          int64_t count, int64_t d) {
  f8 total[lanes][vectors] = {};
  for (int64_t t = 0; t < count; ++t) {
    for (int v = 0; v < vectors; ++v) {
      const f8 value = load(values + t * step + d + 8 * v);
      for (int i = 0; i < lanes; ++i) {
        total[i][v] += splat(weights[t * 8 + i]) * value;
      }
    }
  }
  for (int v = 0; v < vectors; ++v) {
    f8 square[8] = {};
    for (int i = 0; i < lanes; ++i) {
      square[i] = total[i][v];
    }
    transpose(square);
    for (int j = 0; j < 8; ++j) {
      float* at = p.out + (d + 8 * v + j) * 8;
      store(at, load(at) + square[j]);
    }
  }
}

template <int lanes>
static void weigh_few(const Attention& a, const Panel& p, const float* weights,
                      const float* values, int64_t step, int64_t count) {
  constexpr int vectors = lanes > 2 ? 3 : 4;  // as many sums as there are registers for
  int64_t d = 0;
  for (; d + 8 * vectors <= a.value_dim; d += 8 * vectors) {
    add_few<lanes, vectors>(p, weights, values, step, count, d);
  }
  for (; d < a.value_dim; d += 8) {
    add_few<lanes, 1>(p, weights, values, step, count, d);
  }
}

/// Scores [key][lane] of `count` keys, `step` apart.
static void score(const Attention& a, const Panel& p, const float* keys, int64_t step,
                  int64_t count, float* scores) {
  if (!has_few(a, p)) {
    tiles<false>(a, count, p.q, keys, step, a.dim, scores, false);
    return;
  }
  switch (p.count) {
    case 1:
      return score_few<1>(a, p, keys, step, count, scores);
    case 2:
      return score_few<2>(a, p, keys, step, count, scores);
    case 3:
      return score_few<3>(a, p, keys, step, count, scores);
    default:
      return score_few<4>(a, p, keys, step, count, scores);
  }
}

/// Add `count` values, `step` apart, to the panel's outputs, by weights [key][lane].
static void weigh(const Attention& a, const Panel& p, const float* weights, const float* values,
                  int64_t step, int64_t count) {
  if (!has_few(a, p)) {
    tiles<true>(a, a.value_dim, weights, values, step, count, p.out, true);
    return;
  }
  switch (p.count) {
    case 1:
      return weigh_few<1>(a, p, weights, values, step, count);
    case 2:
      return weigh_few<2>(a, p, weights, values, step, count);
    case 3:
      return weigh_few<3>(a, p, weights, values, step, count);
    default:
      return weigh_few<4>(a, p, weights, values, step, count);
  }
}

}  // namespace mlxnb::MLXNB_ISA
