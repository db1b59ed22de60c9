// Products of a few rows of x with W, row by row of W: bound by the reading of W.
//
// Rows of x lie interleaved, four together, so that all loads of a pass follow one pointer; some
// rows of W are multiplied at once, as far as there are registers for the sums.
//
// A 256-bit load of packed words holds one element of each of 8 runs: field f of word i is element
// fields * i + f of the block. x is put in that order once ("slots"), and multiplied by 2^-(bits*f)
// so that a field need not be shifted down: mask, convert, multiply-add.
#pragma once

#include "simd.h"

namespace mlxnb::MLXNB_ISA {

constexpr int64_t dot_rows_of_x = 4;  // rows of x per pass over a row of W

/// Slots in a block of eight words, or eight dense elements.
MLXNB_INLINE int64_t block_of(const Weights& w) { return w.bits == 4 ? 64 : w.bits == 8 ? 32 : 8; }

static int64_t slots(const Weights& w) {
  const int64_t block = block_of(w);
  return (w.depth + block - 1) / block * block;
}

/// The slot of element k of a row.
MLXNB_INLINE int64_t slot_of(int bits, int64_t k) {
  switch (bits) {
    case 4:
      return (k & ~int64_t{63}) + 8 * (k & 7) + ((k >> 3) & 7);
    case 8:
      return (k & ~int64_t{31}) + 8 * (k & 3) + ((k >> 2) & 7);
    default:
      return k;
  }
}

/// Where rows of x lie, `dot_rows_of_x` together: vectors of eight slots, row next to row.
struct Places {
  int64_t first;  // row of those together
  int64_t step;   // floats from vector to vector of a row
};

MLXNB_INLINE Places places_of(const Product& p, int64_t row) {
  const int64_t first = row / dot_rows_of_x * dot_rows_of_x;
  const int64_t left = p.count - first;
  return {first, 8 * (left < dot_rows_of_x ? left : dot_rows_of_x)};
}

/// x of a block of 4-bit words: a square whose columns are the words.
MLXNB_INLINE void prepare_square(const Product& p, int64_t at, float* out, int64_t step) {
  f8 square[8];
  for (int i = 0; i < 8; ++i) {
    square[i] = load(p.x.type, p.x.data, at + 8 * i);
  }
  transpose(square);
  MLXNB_UNROLL
  for (int f = 0; f < 8; ++f) {
    const float factor = f == 7 ? 1.0f : 1.0f / static_cast<float>(1 << (4 * f));
    store(out + f * step, square[f] * splat(factor));
  }
}

MLXNB_INLINE void prepare_few(const Product& p, int64_t at, int64_t begin, int64_t end, float* out,
                              int64_t step) {
  const int bits = p.weights.bits;
  const int fields = bits == 0 ? 1 : 32 / bits;
  for (int64_t k = begin; k < end; k += 8) {
    const f8 x = load_some(p.x.type, p.x.data, at + k, end - k);
    if (bits == 0) {
      store(out + k / 8 * step, x);
      continue;
    }
    for (int j = 0; j < 8; ++j) {
      const int field = j % fields;
      const int shift = field == fields - 1 ? 0 : bits * field;
      const float factor = 1.0f / static_cast<float>(1 << shift);
      const int64_t slot = slot_of(bits, k + j);
      out[slot / 8 * step + slot % 8] = x[j] * factor;
    }
  }
}

/// Sums of x over groups. Where the last eight overlap those before, what counts already is zero.
static void prepare_sums(const Product& p, int64_t row) {
  const Weights& w = p.weights;
  const int64_t groups = w.depth / w.group;
  const int64_t padded = padded_groups(groups);
  const int64_t late = groups < 8 ? 0 : padded - groups;
  const Places places = places_of(p, row);
  float* out = p.sums + places.first * padded + (row - places.first) * 8;
  for (int64_t g = 0; g < padded; g += 8) {
    store(out + g / 8 * places.step, f8{});
  }
  for (int64_t g = 0; g < groups; ++g) {
    f8 total = {};
    for (int64_t k = g * w.group; k < (g + 1) * w.group; k += 8) {
      total += load(p.x.type, p.x.data, row * p.x.stride + k);
    }
    const int64_t at = g < groups / 8 * 8 ? g : g + late;
    out[at / 8 * places.step + at % 8] = sum(total);
  }
}

static void prepare(const Product& p, int64_t row) {
  const Weights& w = p.weights;
  const Places places = places_of(p, row);
  float* out = p.packed + places.first * p.slots + (row - places.first) * 8;
  const int64_t at = row * p.x.stride;
  for (int64_t k = w.depth; k < p.slots; ++k) {
    const int64_t slot = slot_of(w.bits, k);
    out[slot / 8 * places.step + slot % 8] = 0;
  }
  const int64_t squares = w.bits == 4 ? w.depth / 64 * 64 : 0;
  for (int64_t k = 0; k < squares; k += 64) {
    prepare_square(p, at + k, out + k / 8 * places.step, places.step);
  }
  prepare_few(p, at, squares, w.depth, out, places.step);
  if (w.bits != 0) {
    prepare_sums(p, row);
  }
}

/// Scales or biases as floats: where they lie, or in `room`.
MLXNB_INLINE const float* side_of(Type type, const void* data, int64_t index, int64_t count,
                                  float* room) {
  if (type == Type::f32) {
    return static_cast<const float*>(data) + index;
  }
  int64_t g = 0;
  for (; g + 8 <= count; g += 8) {
    store(room + g, load(type, data, index + g));
  }
  for (; g < count; ++g) {
    room[g] = load_one(type, data, index + g);
  }
  return room;
}

/// The scales of a block's eight words.
template <int bits, int group>
MLXNB_INLINE f8 scale_of(const float* scales, int64_t block, bool whole = true) {
  constexpr int size = 8 * 32 / bits;
  if constexpr (size > group) {
    // both at once, and then each to its half: eight inserts would cost more than the products
    double both = 0;
    std::memcpy(&both, scales + 2 * block, whole ? 8 : 4);
    const f8 pairs = (f8)(d4{both, both, both, both});
    return __builtin_shufflevector(pairs, pairs, 0, 0, 0, 0, 5, 5, 5, 5);
  } else {
    return splat(scales[block / (group / size)]);
  }
}

template <int bits>
MLXNB_INLINE f8 field_of(i8 words, int field) {
  constexpr int fields = 32 / bits;
  if (field == fields - 1) {
    return to_float((i8)((u8)words >> (32 - bits)));
  }
  return to_float(words & splat(static_cast<int32_t>(((1u << bits) - 1) << (bits * field))));
}

/// Sums over `rows` rows of W and `count` rows of x: a block of quantised elements added to each.
///
/// Fields are multiplied before they are scaled: scaling
/// costs one multiplication a block instead of one a field.
template <int bits, int group, int rows, int count>
MLXNB_INLINE void dot_block(const i8 (&words)[rows], const f8 (&scale)[rows], const float* x,
                            f8 (&total)[rows][count]) {
  f8 part[rows][count] = {};
  MLXNB_UNROLL
  for (int f = 0; f < 32 / bits; ++f) {
    f8 q[rows];
    for (int r = 0; r < rows; ++r) {
      q[r] = field_of<bits>(words[r], f);
    }
    for (int m = 0; m < count; ++m) {
      const f8 loaded = load(x + (f * count + m) * 8);
      for (int r = 0; r < rows; ++r) {
        part[r][m] += q[r] * loaded;
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int m = 0; m < count; ++m) {
      total[r][m] += part[r][m] * scale[r];
    }
  }
}

/// What the groups' biases add to sums over the groups of x.
template <int rows, int count>
MLXNB_INLINE void add_biases(const float* biases, int64_t groups, const float* sums,
                             f8 (&total)[rows][count]) {
  const int64_t padded = padded_groups(groups);
  for (int64_t g = 0; g < padded; g += 8) {
    const int64_t at = g + 8 <= groups ? g : groups - 8;
    for (int r = 0; r < rows; ++r) {
      const float* from = biases + r * groups;
      const f8 bias = groups < 8 ? load_part(Type::f32, from, 0, groups) : load(from + at);
      for (int m = 0; m < count; ++m) {
        total[r][m] += bias * load(sums + g * count + m * 8);
      }
    }
  }
}

/// `rows` rows of quantised W from `row` on, with `count` rows of x.
template <int bits, int group, int rows, int count>
MLXNB_INLINE void dot_rows(const Product& p, int64_t row, const float* scales, const float* biases,
                           const float* x, const float* sums, f8 (&total)[rows][count]) {
  const Weights& w = p.weights;
  constexpr int64_t block = 8 * 32 / bits;
  const int64_t groups = w.depth / group;
  const int64_t words = w.depth * bits / 32;
  const auto* packed = static_cast<const int32_t*>(w.data) + row * words;
  const int64_t whole = w.depth / block;
  for (int64_t b = 0; b < whole; ++b) {
    i8 loaded[rows];
    f8 scale[rows];
    for (int r = 0; r < rows; ++r) {
      const int32_t* from = packed + r * words + 8 * b;
      __builtin_prefetch(from + 2 * rows * words);  // reading several rows at once hides the order
      loaded[r] = load_as<i8>(from);
      scale[r] = scale_of<bits, group>(scales + r * groups, b);
    }
    dot_block<bits, group, rows, count>(loaded, scale, x + b * block * count, total);
  }
  if (whole * block < w.depth) {  // half a block
    i8 loaded[rows] = {};
    f8 scale[rows];
    for (int r = 0; r < rows; ++r) {
      std::memcpy(&loaded[r], packed + r * words + 8 * whole, 16);
      scale[r] = scale_of<bits, group>(scales + r * groups, whole, false);
    }
    dot_block<bits, group, rows, count>(loaded, scale, x + whole * block * count, total);
  }
  add_biases<rows, count>(biases, groups, sums, total);
}

/// `rows` rows of dense W from `row` on, with `count` rows of x.
template <int rows, int count>
MLXNB_INLINE void dot_dense(const Product& p, int64_t row, const float* x,
                            f8 (&total)[rows][count]) {
  const Weights& w = p.weights;
  for (int64_t k = 0; k < w.depth; k += 8) {
    f8 loaded[rows];
    for (int r = 0; r < rows; ++r) {
      loaded[r] = load_some(w.type, w.data, (row + r) * w.depth + k, w.depth - k);
    }
    for (int m = 0; m < count; ++m) {
      const f8 other = load(x + k * count + m * 8);
      for (int r = 0; r < rows; ++r) {
        total[r][m] += loaded[r] * other;
      }
    }
  }
}

/// The vectors' sums into out, `rows` × `count` elements of it.
template <int rows, int count>
MLXNB_INLINE void put_sums(const Product& p, int64_t n, int64_t first,
                           const f8 (&total)[rows][count]) {
  f8 four[(rows * count + 3) / 4][4] = {};
  for (int i = 0; i < rows * count; ++i) {
    four[i / 4][i % 4] = total[i / count][i % count];
  }
  for (int i = 0; i < rows * count; i += 4) {
    const f8 summed = sums(four[i / 4]);
    for (int j = 0; j < 4 && i + j < rows * count; ++j) {
      const int r = (i + j) / count, m = (i + j) % count;
      const float bias = p.bias ? load_one(p.bias_type, p.bias, n + r) : 0.0f;
      store(p.out_type, p.out, (first + m) * p.weights.rows + n + r, summed[j] + bias);
    }
  }
}

/// Some rows of W, with their scales and biases as floats.
struct Strip {
  int64_t begin, end;
  const float* scales;
  const float* biases;
};

template <int bits, int group, int rows, int count>
MLXNB_INLINE void dot_few(const Product& p, const Strip& strip, int64_t n, int64_t first) {
  const float* x = p.packed + first * p.slots;
  f8 total[rows][count] = {};
  if constexpr (bits == 0) {
    dot_dense<rows, count>(p, n, x, total);
  } else {
    const int64_t groups = p.weights.depth / group;
    const int64_t at = (n - strip.begin) * groups;
    const float* sums = p.sums + first * padded_groups(groups);
    dot_rows<bits, group, rows, count>(p, n, strip.scales + at, strip.biases + at, x, sums, total);
  }
  put_sums<rows, count>(p, n, first, total);
}

template <int bits, int group, int count>
static void dot_some(const Product& p, const Strip& strip, int64_t first) {
  constexpr int rows = count == 1 ? 4 : count == 2 ? 2 : 1;  // of W
  int64_t n = strip.begin;
  for (; n + rows <= strip.end; n += rows) {
    dot_few<bits, group, rows, count>(p, strip, n, first);
  }
  for (; n < strip.end; ++n) {
    dot_few<bits, group, 1, count>(p, strip, n, first);
  }
}

// Rows of W that stay in the nearest cache while all rows of x pass.
constexpr int64_t dot_strip = 16;

template <int bits, int group>
static void dot_all(const Product& p, int64_t begin, int64_t end, float* room) {
  const Weights& w = p.weights;
  const int64_t groups = bits == 0 ? 0 : w.depth / w.group;
  for (int64_t n = begin; n < end; n += dot_strip) {
    Strip strip{n, n + dot_strip < end ? n + dot_strip : end, nullptr, nullptr};
    if constexpr (bits != 0) {
      const int64_t count = (strip.end - n) * groups;
      strip.scales = side_of(w.type, w.scales, n * groups, count, room);
      strip.biases = side_of(w.type, w.biases, n * groups, count, room + dot_strip * groups);
    }
    for (int64_t m = 0; m < p.count; m += dot_rows_of_x) {
      switch (p.count - m) {
        case 1:
          dot_some<bits, group, 1>(p, strip, m);
          break;
        case 2:
          dot_some<bits, group, 2>(p, strip, m);
          break;
        case 3:
          dot_some<bits, group, 3>(p, strip, m);
          break;
        default:
          dot_some<bits, group, 4>(p, strip, m);
      }
    }
  }
}

static size_t dot_scratch(const Product& p) {
  const Weights& w = p.weights;
  const bool wide = w.bits == 0 || w.type == Type::f32;
  return wide ? 0 : static_cast<size_t>(2 * dot_strip * (w.depth / w.group));
}

static void dot(const Product& p, int64_t task, float* scratch) {
  const Weights& w = p.weights;
  const int64_t begin = task * p.tile_rows;
  const int64_t end = begin + p.tile_rows < w.rows ? begin + p.tile_rows : w.rows;
  switch (w.bits * 1000 + (w.bits ? w.group : 0)) {
    case 4032:
      return dot_all<4, 32>(p, begin, end, scratch);
    case 4064:
      return dot_all<4, 64>(p, begin, end, scratch);
    case 4128:
      return dot_all<4, 128>(p, begin, end, scratch);
    case 8032:
      return dot_all<8, 32>(p, begin, end, scratch);
    case 8064:
      return dot_all<8, 64>(p, begin, end, scratch);
    case 8128:
      return dot_all<8, 128>(p, begin, end, scratch);
    default:
      return dot_all<0, 0>(p, begin, end, scratch);
  }
}

}  // namespace mlxnb::MLXNB_ISA
