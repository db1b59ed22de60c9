// Vectors of eight floats, in the compiler's own extension: the same source becomes AVX2, two
// NEON registers or SSE, by the flags of the unit that includes it. All of it is `static` in a
// namespace of that unit's own, so that the linker never mixes instruction sets.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "../kernels.h"

namespace mlxnb::MLXNB_ISA {

using f8 = float __attribute__((vector_size(32)));
using i8 = int32_t __attribute__((vector_size(32)));
using u8 = uint32_t __attribute__((vector_size(32)));
using d4 = double __attribute__((vector_size(32)));
using h8 = uint16_t __attribute__((vector_size(16)));

#define MLXNB_INLINE static inline __attribute__((always_inline))
#define MLXNB_UNROLL _Pragma("GCC unroll 16")

MLXNB_INLINE f8 splat(float x) { return f8{x, x, x, x, x, x, x, x}; }
MLXNB_INLINE i8 splat(int32_t x) { return i8{x, x, x, x, x, x, x, x}; }

template <class V>
MLXNB_INLINE V load_as(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}
MLXNB_INLINE f8 load(const float* p) { return load_as<f8>(p); }
MLXNB_INLINE void store(float* p, f8 v) { std::memcpy(p, &v, sizeof(v)); }

MLXNB_INLINE f8 to_float(i8 v) { return __builtin_convertvector(v, f8); }
MLXNB_INLINE i8 to_int(f8 v) { return __builtin_convertvector(v, i8); }  // towards zero
MLXNB_INLINE f8 choose(i8 mask, f8 yes, f8 no) {
  return (f8)((mask & (i8)yes) | (~mask & (i8)no));
}
// a NaN in `a` stays
MLXNB_INLINE f8 max(f8 a, f8 b) { return b > a ? b : a; }
MLXNB_INLINE f8 min(f8 a, f8 b) { return b < a ? b : a; }

MLXNB_INLINE float sum(f8 v) {
  const f8 a = v + __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
  const f8 b = a + __builtin_shufflevector(a, a, 2, 3, 0, 1, 6, 7, 4, 5);
  return b[0] + b[1];
}

/// The four vectors' sums, twice.
MLXNB_INLINE f8 sums(const f8 (&v)[4]) {
  f8 pair[2];
  for (int i = 0; i < 2; ++i) {
    const f8 a = v[2 * i], b = v[2 * i + 1];
    pair[i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13) +
              __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  }
  const f8 four = __builtin_shufflevector(pair[0], pair[1], 0, 1, 8, 9, 4, 5, 12, 13) +
                  __builtin_shufflevector(pair[0], pair[1], 2, 3, 10, 11, 6, 7, 14, 15);
  return four + __builtin_shufflevector(four, four, 4, 5, 6, 7, 0, 1, 2, 3);
}

/// e^x with a relative error below 2e-7; 0 below -87.3, and never more than e^88.
///
/// Cephes' expf: x = n ln 2 + r, a polynomial of degree 6 in r, times 2^n.
MLXNB_INLINE f8 exp(f8 x) {
  const f8 low = splat(-87.33654f);
  const f8 bound = min(max(x, low), splat(88.0f));
  const f8 rounder = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to the nearest integer
  const f8 n = (bound * splat(1.44269504f) + rounder) - rounder;
  const f8 r = (bound - n * splat(0.693359375f)) - n * splat(-2.12194440e-4f);
  f8 p = splat(1.9875691500e-4f);
  p = p * r + splat(1.3981999507e-3f);
  p = p * r + splat(8.3334519073e-3f);
  p = p * r + splat(4.1665795894e-2f);
  p = p * r + splat(1.6666665459e-1f);
  p = p * r + splat(5.0000001201e-1f);
  p = p * r * r + r + splat(1.0f);
  const f8 power = (f8)((to_int(n) + splat(127)) << 23);
  return choose(x < low, splat(0.0f), p * power);
}

// --- half precision -----------------------------------------------------------------------------

MLXNB_INLINE f8 widen_bf16(h8 v) { return (f8)(__builtin_convertvector(v, u8) << 16); }

MLXNB_INLINE f8 widen_f16(h8 v) {
#if defined(__F16C__)
  return _mm256_cvtph_ps((__m128i)v);
#else
  // exponent and mantissa moved in place, then rebiased by a product, which keeps subnormals
  const u8 wide = __builtin_convertvector(v, u8);
  const u8 magnitude = (wide & 0x7fffu) << 13;
  const f8 value = (f8)magnitude * splat(5.192296858534828e33f);  // 2^112
  const u8 special = (u8)(magnitude >= (0x7c00u << 13)) & 0x7f800000u;
  return (f8)((u8)value | special | ((wide & 0x8000u) << 16));
#endif
}

MLXNB_INLINE uint16_t narrow_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Round to nearest even; overflow becomes infinity.
MLXNB_INLINE uint16_t narrow_f16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits >= 0x47800000u) {
    return static_cast<uint16_t>(sign | (bits > 0x7f800000u ? 0x7e00u : 0x7c00u));
  }
  if (bits < 0x38800000u) {  // a subnormal: the addition shifts and rounds
    float value;
    std::memcpy(&value, &bits, 4);
    value += 0.5f;
    std::memcpy(&bits, &value, 4);
    return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13));
}

// --- elements of any floating type --------------------------------------------------------------

MLXNB_INLINE f8 load(Type type, const void* data, int64_t index) {
  switch (type) {
    case Type::f16:
      return widen_f16(load_as<h8>(static_cast<const uint16_t*>(data) + index));
    case Type::bf16:
      return widen_bf16(load_as<h8>(static_cast<const uint16_t*>(data) + index));
    default:
      return load(static_cast<const float*>(data) + index);
  }
}

/// The first `count` < 8 elements from `index`, zeros after them; reads no further.
MLXNB_INLINE f8 load_part(Type type, const void* data, int64_t index, int64_t count) {
  const size_t size = size_of(type);
  alignas(32) unsigned char part[32] = {};
  std::memcpy(part, static_cast<const char*>(data) + index * size, count * size);
  return load(type, part, 0);
}

MLXNB_INLINE f8 load_some(Type type, const void* data, int64_t index, int64_t count) {
  return count >= 8 ? load(type, data, index) : load_part(type, data, index, count);
}

MLXNB_INLINE void store(Type type, void* data, int64_t index, float value) {
  switch (type) {
    case Type::f16:
      static_cast<uint16_t*>(data)[index] = narrow_f16(value);
      break;
    case Type::bf16:
      static_cast<uint16_t*>(data)[index] = narrow_bf16(value);
      break;
    default:
      static_cast<float*>(data)[index] = value;
  }
}

MLXNB_INLINE void store(Type type, void* data, int64_t index, f8 value) {
  if (type == Type::f32) {
    store(static_cast<float*>(data) + index, value);
    return;
  }
  for (int i = 0; i < 8; ++i) {
    store(type, data, index + i, value[i]);
  }
}

MLXNB_INLINE void store_some(Type type, void* data, int64_t index, f8 value, int64_t count) {
  if (count >= 8) {
    store(type, data, index, value);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    store(type, data, index + i, value[i]);
  }
}

MLXNB_INLINE float load_one(Type type, const void* data, int64_t index) {
  if (type == Type::f32) {
    return static_cast<const float*>(data)[index];
  }
  return load_part(type, data, index, 1)[0];
}

/// Eight vectors as the columns of an 8 × 8 square.
MLXNB_INLINE void transpose(f8 (&r)[8]) {
  f8 t[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[2 * i + 1] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  f8 s[8];
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 2; ++i) {
      const f8 a = t[4 * half + i];
      const f8 b = t[4 * half + i + 2];
      s[4 * half + 2 * i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      s[4 * half + 2 * i + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = __builtin_shufflevector(s[i], s[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[i + 4] = __builtin_shufflevector(s[i], s[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

}  // namespace mlxnb::MLXNB_ISA
