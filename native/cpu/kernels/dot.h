// Products of a few rows of x with W, row by row of W: bound by the reading of W.
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

/// x of a block of 4-bit words: a square whose columns are the words.
MLXNB_INLINE void prepare_square(const Product& p, int64_t at, float* out) {
  f8 square[8];
  for (int i = 0; i < 8; ++i) {
    square[i] = load(p.x.type, p.x.data, at + 8 * i);
  }
  transpose(square);
  MLXNB_UNROLL
  for (int f = 0; f < 8; ++f) {
    store(out + 8 * f, square[f] * splat(f == 7 ? 1.0f : 1.0f / static_cast<float>(1 << (4 * f))));
  }
}

MLXNB_INLINE void prepare_few(const Product& p, int64_t at, int64_t begin, int64_t end,
                              float* out) {
  const int bits = p.weights.bits;
  const int fields = bits == 0 ? 1 : 32 / bits;
  for (int64_t k = begin; k < end; k += 8) {
    const f8 x = load_some(p.x.type, p.x.data, at + k, end - k);
    if (bits == 0) {
      store(out + k, x);
      continue;
    }
    for (int j = 0; j < 8; ++j) {
      const int field = j % fields;
      const float factor = field == fields - 1 ? 1.0f : 1.0f / static_cast<float>(1 << (bits * field));
      out[slot_of(bits, k + j)] = x[j] * factor;
    }
  }
}

static void prepare(const Product& p, int64_t row) {
  const Weights& w = p.weights;
  float* out = p.packed + row * p.slots;
  const int64_t at = row * p.x.stride;
  for (int64_t k = w.depth; k < p.slots; ++k) {
    out[slot_of(w.bits, k)] = 0;
  }
  const int64_t squares = w.bits == 4 ? w.depth / 64 * 64 : 0;
  for (int64_t k = 0; k < squares; k += 64) {
    prepare_square(p, at + k, out + k);
  }
  prepare_few(p, at, squares, w.depth, out);
  const int64_t groups = w.bits == 0 ? 0 : w.depth / w.group;
  for (int64_t g = 0; g < groups; ++g) {
    f8 total = {};
    for (int64_t k = g * w.group; k < (g + 1) * w.group; k += 8) {
      total += load(p.x.type, p.x.data, at + k);
    }
    p.sums[row * groups + g] = sum(total);
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

template <int bits, int count>
MLXNB_INLINE void dot_block(i8 words, f8 scale, const float* x, int64_t slots, f8 (&total)[count]) {
  f8 part[count] = {};
  MLXNB_UNROLL
  for (int f = 0; f < 32 / bits; ++f) {
    const f8 q = field_of<bits>(words, f);
    for (int m = 0; m < count; ++m) {
      part[m] += q * load(x + m * slots + 8 * f);
    }
  }
  for (int m = 0; m < count; ++m) {
    total[m] += part[m] * scale;
  }
}

/// One row of quantised W with `count` rows of x.
template <int bits, int group, int count>
MLXNB_INLINE void dot_row(const Product& p, int64_t row, const float* scales, const float* biases,
                          const float* x, const float* sums, float (&out)[dot_rows_of_x]) {
  const Weights& w = p.weights;
  constexpr int64_t block = 8 * 32 / bits;
  const int64_t groups = w.depth / group;
  const int64_t words = w.depth * bits / 32;
  const auto* packed = static_cast<const int32_t*>(w.data) + row * words;
  const int64_t whole = w.depth / block;
  f8 total[count] = {};
  for (int64_t b = 0; b < whole; ++b) {
    const i8 loaded = load_as<i8>(packed + 8 * b);
    dot_block<bits, count>(loaded, scale_of<bits, group>(scales, b), x + b * block, p.slots, total);
  }
  if (whole * block < w.depth) {  // half a block
    i8 loaded = {};
    std::memcpy(&loaded, packed + 8 * whole, 16);
    const f8 scale = scale_of<bits, group>(scales, whole, false);
    dot_block<bits, count>(loaded, scale, x + whole * block, p.slots, total);
  }
  for (int m = 0; m < count; ++m) {
    const float* s = sums + m * groups;
    f8 offset = {};
    int64_t g = 0;
    for (; g + 8 <= groups; g += 8) {
      offset += load(biases + g) * load(s + g);
    }
    float rest = 0;
    for (; g < groups; ++g) {
      rest += biases[g] * s[g];
    }
    out[m] = sum(total[m] + offset) + rest;
  }
}

/// One row of dense W with `count` rows of x.
template <int count>
MLXNB_INLINE void dot_dense(const Product& p, int64_t row, const float* x,
                            float (&out)[dot_rows_of_x]) {
  const Weights& w = p.weights;
  const int64_t base = row * w.depth;
  f8 total[count][2] = {};
  int64_t k = 0;
  for (; k + 16 <= w.depth; k += 16) {
    for (int half = 0; half < 2; ++half) {
      const f8 loaded = load(w.type, w.data, base + k + 8 * half);
      for (int m = 0; m < count; ++m) {
        total[m][half] += loaded * load(x + m * p.slots + k + 8 * half);
      }
    }
  }
  for (; k < w.depth; k += 8) {
    const f8 loaded = load_some(w.type, w.data, base + k, w.depth - k);
    for (int m = 0; m < count; ++m) {
      total[m][0] += loaded * load(x + m * p.slots + k);
    }
  }
  for (int m = 0; m < count; ++m) {
    out[m] = sum(total[m][0] + total[m][1]);
  }
}

/// Some rows of W, with their scales and biases as floats.
struct Strip {
  int64_t begin, end;
  const float* scales;
  const float* biases;
};

template <int bits, int group, int count>
static void dot_some(const Product& p, const Strip& strip, int64_t first) {
  const Weights& w = p.weights;
  const int64_t groups = bits == 0 ? 0 : w.depth / w.group;
  const float* x = p.packed + first * p.slots;
  const float* sums = bits == 0 ? nullptr : p.sums + first * groups;
  for (int64_t n = strip.begin; n < strip.end; ++n) {
    float out[dot_rows_of_x];
    if constexpr (bits == 0) {
      dot_dense<count>(p, n, x, out);
    } else {
      const int64_t at = (n - strip.begin) * groups;
      dot_row<bits, group, count>(p, n, strip.scales + at, strip.biases + at, x, sums, out);
    }
    const float bias = p.bias ? load_one(p.bias_type, p.bias, n) : 0.0f;
    for (int m = 0; m < count; ++m) {
      store(p.out_type, p.out, (first + m) * w.rows + n, out[m] + bias);
    }
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
