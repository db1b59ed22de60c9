// Products of many rows of x with W, by tiles.
//
// x is packed once into panels of 16 (the last: 8 or 16) of its rows, [slot][row]. A task unpacks
// some rows of W to floats, in slots too, which stay in its core's cache, and multiplies them with
// its panels: in registers six rows of W times 16 rows of x. W is broadcast, so it needs no
// transposition, and packed fields come out in the order in which they lie.
#pragma once

#include "dot.h"

namespace mlxnb::MLXNB_ISA {

constexpr int64_t strip = 6;        // rows of W in registers
constexpr int64_t panel_rows = 16;

/// out[r][lane] = Σ_k w[r * row_step + k * depth_step] * x[k][lane], plus what out holds if `more`.
///
/// `across`: the six elements are adjacent and k steps by `step`; else k is adjacent and they
/// are `step` apart.
template <int R, int V, bool across>
MLXNB_INLINE void tile(const float* x, const float* w, int64_t step, int64_t depth, float* out,
                       bool more) {
  f8 total[R][V];
  MLXNB_UNROLL
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      total[r][v] = more ? load(out + (r * V + v) * 8) : f8{};
    }
  }
  const float* row[R];
  for (int r = 0; r < R; ++r) {
    row[r] = w + (across ? r : r * step);
  }
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k) {
    f8 loaded[V];
    for (int v = 0; v < V; ++v) {
      loaded[v] = load(x + (k * V + v) * 8);
    }
    MLXNB_UNROLL
    for (int r = 0; r < R; ++r) {
      const f8 factor = splat(across ? w[k * step + r] : row[r][k]);
      for (int v = 0; v < V; ++v) {
        total[r][v] += factor * loaded[v];
      }
    }
  }
  MLXNB_UNROLL
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      store(out + (r * V + v) * 8, total[r][v]);
    }
  }
}

/// A tile of `rows` ≤ 6 rows and `vectors` × 8 lanes.
template <bool across>
static void any_tile(int64_t rows, int64_t vectors, const float* x, const float* w, int64_t step,
                     int64_t depth, float* out, bool more) {
#define MLXNB_TILE(R)                                                \
  case R:                                                            \
    vectors == 2 ? tile<R, 2, across>(x, w, step, depth, out, more)  \
                 : tile<R, 1, across>(x, w, step, depth, out, more); \
    return;
  switch (rows) {
    MLXNB_TILE(1)
    MLXNB_TILE(2)
    MLXNB_TILE(3)
    MLXNB_TILE(4)
    MLXNB_TILE(5)
    MLXNB_TILE(6)
  }
#undef MLXNB_TILE
}

MLXNB_INLINE int64_t rows_in(const Product& p, int64_t panel) {
  const int64_t left = p.count - panel * panel_rows;
  return left < panel_rows ? left : panel_rows;
}

MLXNB_INLINE int64_t vectors_in(const Product& p, int64_t panel) {
  return rows_in(p, panel) > 8 ? 2 : 1;
}

static void pack(const Product& p, int64_t panel) {
  const Weights& w = p.weights;
  float* out = p.packed + panel * panel_rows * p.slots;
  const int64_t rows = rows_in(p, panel);
  const int64_t vectors = vectors_in(p, panel);
  for (int64_t k = w.depth; k < p.slots; ++k) {
    std::memset(out + slot_of(w.bits, k) * 8 * vectors, 0, sizeof(float) * 8 * vectors);
  }
  for (int64_t k = 0; k < w.depth; k += 8) {
    const int64_t some = w.depth - k < 8 ? w.depth - k : 8;
    for (int64_t v = 0; v < vectors; ++v) {
      f8 square[8];
      for (int64_t i = 0; i < 8; ++i) {
        const int64_t m = 8 * v + i;
        const int64_t at = (panel * panel_rows + m) * p.x.stride + k;
        square[i] = m < rows ? load_some(p.x.type, p.x.data, at, some) : f8{};
      }
      transpose(square);
      for (int64_t j = 0; j < some; ++j) {
        store(out + (slot_of(w.bits, k + j) * vectors + v) * 8, square[j]);
      }
    }
  }
}

template <int bits, int group>
MLXNB_INLINE void unpack_block(const float* scales, const float* biases, i8 words, int64_t block,
                               bool whole, float* out) {
  const f8 scale = scale_of<bits, group>(scales, block, whole);
  const f8 bias = scale_of<bits, group>(biases, block, whole);
  const i8 mask = splat((1 << bits) - 1);
  MLXNB_UNROLL
  for (int f = 0; f < 32 / bits; ++f) {
    const i8 field = (i8)((u8)words >> (bits * f)) & mask;
    store(out + 8 * f, to_float(field) * scale + bias);
  }
}

/// Slots [begin, end) of a row of W, whole blocks.
template <int bits, int group>
static void unpack_row(const Weights& w, int64_t row, int64_t begin, int64_t end, float* out,
                       float* room) {
  constexpr int64_t block = 8 * 32 / bits;
  const int64_t groups = w.depth / group;
  const auto* packed = static_cast<const int32_t*>(w.data) + row * (w.depth * bits / 32);
  const float* scales = side_of(w.type, w.scales, row * groups, groups, room);
  const float* biases = side_of(w.type, w.biases, row * groups, groups, room + groups);
  int64_t b = begin / block;
  for (; (b + 1) * block <= (end < w.depth ? end : w.depth); ++b) {
    const i8 words = load_as<i8>(packed + 8 * b);
    unpack_block<bits, group>(scales, biases, words, b, true, out + b * block - begin);
  }
  if (b * block < end) {  // half a block
    i8 words = {};
    std::memcpy(&words, packed + 8 * b, 16);
    unpack_block<bits, group>(scales, biases, words, b, false, out + b * block - begin);
  }
}

static void unpack_dense(const Weights& w, int64_t row, int64_t begin, int64_t end, float* out) {
  for (int64_t k = begin; k < end; k += 8) {
    store(out + k - begin, load_some(w.type, w.data, row * w.depth + k, w.depth - k));
  }
}

static void unpack(const Weights& w, int64_t row, int64_t begin, int64_t end, float* out,
                   float* room) {
  switch (w.bits * 1000 + (w.bits ? w.group : 0)) {
    case 4032:
      return unpack_row<4, 32>(w, row, begin, end, out, room);
    case 4064:
      return unpack_row<4, 64>(w, row, begin, end, out, room);
    case 4128:
      return unpack_row<4, 128>(w, row, begin, end, out, room);
    case 8032:
      return unpack_row<8, 32>(w, row, begin, end, out, room);
    case 8064:
      return unpack_row<8, 64>(w, row, begin, end, out, room);
    case 8128:
      return unpack_row<8, 128>(w, row, begin, end, out, room);
    default:
      return unpack_dense(w, row, begin, end, out);
  }
}

/// A tile's sums, [row of W][lane], into the rows of out.
static void put(const Product& p, int64_t panel, int64_t n, int64_t rows, const float* sums) {
  const int64_t lanes = 8 * vectors_in(p, panel);
  const int64_t count = rows_in(p, panel);
  float bias[strip] = {};
  for (int64_t r = 0; p.bias && r < rows; ++r) {
    bias[r] = load_one(p.bias_type, p.bias, n + r);
  }
  for (int64_t m = 0; m < count; ++m) {
    const int64_t at = (panel * panel_rows + m) * p.weights.rows + n;
    if (p.out_type == Type::f32) {
      float* out = static_cast<float*>(p.out) + at;
      for (int64_t r = 0; r < rows; ++r) {
        out[r] = sums[r * lanes + m] + bias[r];
      }
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        store(p.out_type, p.out, at + r, sums[r * lanes + m] + bias[r]);
      }
    }
  }
}

// Rows of the unpacked tile are a little apart from a multiple of the cache's ways.
MLXNB_INLINE int64_t tile_stride(const Product& p) { return p.cut + 16; }
MLXNB_INLINE int64_t strips_of(const Product& p) { return (p.tile_rows + strip - 1) / strip; }
constexpr int64_t tile_floats = strip * panel_rows;

static size_t multiply_scratch(const Product& p) {
  const Weights& w = p.weights;
  const int64_t kept = p.cut < p.slots ? strips_of(p) * p.chunk : 1;
  const int64_t sides = w.bits == 0 ? 0 : (w.depth / w.group + 8) * 2;
  return static_cast<size_t>(p.tile_rows * tile_stride(p) + kept * tile_floats + (sides + 15) / 16 * 16);
}

static void multiply(const Product& p, int64_t task, float* scratch) {
  const Weights& w = p.weights;
  const int64_t first = (task / p.tiles) * p.chunk;
  const int64_t last = first + p.chunk < p.panels ? first + p.chunk : p.panels;
  const int64_t row = (task % p.tiles) * p.tile_rows;
  const int64_t rows = row + p.tile_rows < w.rows ? p.tile_rows : w.rows - row;
  float* unpacked = scratch;
  float* sums = scratch + p.tile_rows * tile_stride(p);
  float* room = sums + (p.cut < p.slots ? strips_of(p) * p.chunk : 1) * tile_floats;
  for (int64_t begin = 0; begin < p.slots; begin += p.cut) {
    const int64_t end = begin + p.cut < p.slots ? begin + p.cut : p.slots;
    for (int64_t r = 0; r < rows; ++r) {
      unpack(w, row + r, begin, end, unpacked + r * tile_stride(p), room);
    }
    for (int64_t panel = first; panel < last; ++panel) {
      const int64_t vectors = vectors_in(p, panel);
      const float* x = p.packed + panel * panel_rows * p.slots + begin * vectors * 8;
      for (int64_t r = 0; r < rows; r += strip) {
        const int64_t some = rows - r < strip ? rows - r : strip;
        const int64_t kept = p.cut < p.slots ? (panel - first) * strips_of(p) + r / strip : 0;
        float* out = sums + kept * tile_floats;
        any_tile<false>(some, vectors, x, unpacked + r * tile_stride(p), tile_stride(p),
                        end - begin, out, begin > 0);
        if (end == p.slots) {
          put(p, panel, row + r, some, out);
        }
      }
    }
  }
}

static void lookup(const Weights& w, int64_t row, void* out, Type type) {
  if (w.bits == 0) {
    for (int64_t k = 0; k < w.depth; k += 8) {
      const f8 loaded = load_some(w.type, w.data, row * w.depth + k, w.depth - k);
      store_some(type, out, k, loaded, w.depth - k);
    }
    return;
  }
  const int fields = 32 / w.bits;
  const uint32_t mask = (1u << w.bits) - 1;
  const auto* words = static_cast<const uint32_t*>(w.data) + row * (w.depth / fields);
  const int64_t groups = w.depth / w.group;
  for (int64_t g = 0; g < groups; ++g) {
    const float scale = load_one(w.type, w.scales, row * groups + g);
    const float bias = load_one(w.type, w.biases, row * groups + g);
    for (int64_t k = g * w.group; k < (g + 1) * w.group; ++k) {
      const uint32_t q = (words[k / fields] >> (w.bits * (k % fields))) & mask;
      store(type, out, k, static_cast<float>(q) * scale + bias);
    }
  }
}

}  // namespace mlxnb::MLXNB_ISA
