// What stands between the products: norms, rotary positions, gates and sums.
#pragma once

#include <cmath>
#include <limits>

#include "simd.h"

namespace mlxnb::MLXNB_ISA {

static void norm(const Norm& n, int64_t row) {
  const int64_t from = row * n.x.stride;
  f8 squares[2] = {};
  for (int64_t k = 0; k < n.dim; k += 8) {
    const f8 x = load_some(n.x.type, n.x.data, from + k, n.dim - k);
    squares[(k / 8) % 2] += x * x;
  }
  const float mean = sum(squares[0] + squares[1]) / static_cast<float>(n.dim);
  const f8 factor = splat(1.0f / std::sqrt(mean + n.eps));
  for (int64_t k = 0; k < n.dim; k += 8) {
    const int64_t left = n.dim - k;
    f8 x = load_some(n.x.type, n.x.data, from + k, left) * factor;
    if (n.weight) {
      x *= load_some(n.weight_type, n.weight, k, left);
    }
    store_some(n.x.type, n.out, row * n.dim + k, x, left);
  }
}

static void log_softmax(Type type, const void* x, void* out, int64_t count) {
  const f8 low = splat(-std::numeric_limits<float>::infinity());
  f8 top = low;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    top = max(load(type, x, i), top);
  }
  float highest = low[0];
  for (int lane = 0; lane < 8; ++lane) {
    highest = top[lane] > highest ? top[lane] : highest;
  }
  for (; i < count; ++i) {
    const float rest = load_one(type, x, i);
    highest = rest > highest ? rest : highest;
  }
  f8 total = {};
  for (i = 0; i + 8 <= count; i += 8) {
    total += exp(load(type, x, i) - splat(highest));
  }
  float all = sum(total);
  for (; i < count; ++i) {
    all += std::exp(load_one(type, x, i) - highest);
  }
  const f8 shift = splat(highest + std::log(all));
  for (i = 0; i < count; i += 8) {
    store_some(type, out, i, load_some(type, x, i, count - i) - shift, count - i);
  }
}

/// Cosines, then sines, of a position; MLX's own arithmetic: the angle is a product in float32.
static void angles_of(const Rope& r, float position, float* out) {
  const int64_t half = r.rotated / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float angle = position * r.frequencies[i];
    out[i] = std::cos(angle);
    out[half + i] = std::sin(angle);
  }
}

static void rotate_halves(const Rope& r, int64_t from, int64_t to, const float* angles) {
  const int64_t half = r.rotated / 2;
  for (int64_t i = 0; i < half; i += 8) {
    const int64_t some = half - i < 8 ? half - i : 8;
    const f8 c = load_some(Type::f32, angles, i, some);
    const f8 s = load_some(Type::f32, angles, half + i, some);
    const f8 a = load_some(r.type, r.x, from + i, some);
    const f8 b = load_some(r.type, r.x, from + half + i, some);
    store_some(r.type, r.out, to + i, a * c - b * s, some);
    store_some(r.type, r.out, to + half + i, a * s + b * c, some);
  }
}

static void rotate_pairs(const Rope& r, int64_t from, int64_t to, const float* angles) {
  const int64_t half = r.rotated / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float a = load_one(r.type, r.x, from + 2 * i);
    const float b = load_one(r.type, r.x, from + 2 * i + 1);
    store(r.type, r.out, to + 2 * i, a * angles[i] - b * angles[half + i]);
    store(r.type, r.out, to + 2 * i + 1, a * angles[half + i] + b * angles[i]);
  }
}

/// All heads of one position.
static void rope(const Rope& r, int64_t batch, int64_t position, float* scratch) {
  const int64_t offset = r.offsets ? r.offsets[batch * r.offset_stride] : r.offset;
  angles_of(r, static_cast<float>(offset + position) * r.scale, scratch);
  for (int64_t h = 0; h < r.heads; ++h) {
    const int64_t from = batch * r.strides[0] + h * r.strides[1] + position * r.strides[2];
    const int64_t to = ((batch * r.heads + h) * r.length + position) * r.dim;
    r.adjacent ? rotate_pairs(r, from, to, scratch) : rotate_halves(r, from, to, scratch);
    for (int64_t d = r.rotated; d < r.dim; d += 8) {
      const f8 rest = load_some(r.type, r.x, from + d, r.dim - d);
      store_some(r.type, r.out, to + d, rest, r.dim - d);
    }
  }
}

static void gated(Type type, const void* gate, const void* up, void* out, int64_t begin,
                  int64_t end) {
  for (int64_t i = begin; i < end; i += 8) {
    const int64_t some = end - i;
    const f8 g = load_some(type, gate, i, some);
    const f8 silu = g / (splat(1.0f) + exp(-g));
    store_some(type, out, i, silu * load_some(type, up, i, some), some);
  }
}

static void add(Type type, const void* a, const void* b, void* out, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += 8) {
    const int64_t some = end - i;
    const f8 total = load_some(type, a, i, some) + load_some(type, b, i, some);
    store_some(type, out, i, total, some);
  }
}

}  // namespace mlxnb::MLXNB_ISA
