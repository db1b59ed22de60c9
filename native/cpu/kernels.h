// What the rest knows of the kernels: plain structures over raw memory, and a table of functions
// for each instruction set. Nothing here knows MLX.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mlxnb {

enum class Type : uint8_t { f32, f16, bf16 };

constexpr size_t size_of(Type type) { return type == Type::f32 ? 4 : 2; }

/// Elements of a floating type, `stride` apart from row to row and adjacent in a row.
struct Rows {
  const void* data;
  int64_t stride;
  Type type;
};

/// Weights (rows, depth): dense, or quantised as MLX does it in its affine mode.
///
/// Quantised: an element is scale * q + bias with one scale and bias for `group` elements of a
/// row; q has `bits` bits, packed from the low end of 32-bit words.
struct Weights {
  const void* data;
  const void* scales;
  const void* biases;
  int64_t rows;
  int64_t depth;
  int bits;  // 4 or 8; 0: dense
  int group;
  Type type;  // of dense elements, or of scales and biases
};

/// Groups of a row in whole vectors of eight.
constexpr int64_t padded_groups(int64_t groups) { return (groups + 7) / 8 * 8; }

/// out = x Wᵀ + bias, `count` rows of x. The fields below the line are the driver's.
struct Product {
  Weights weights;
  Rows x;
  int64_t count;
  void* out;  // (count, weights.rows)
  Type out_type;
  const void* bias;  // (weights.rows) or null
  Type bias_type;
  // ---
  int64_t slots;      // depth in the kernels' order, padded
  float* packed;      // x in that order: by rows, or by panels of 16 rows
  float* sums;        // (count, padded groups): sums of x over groups; products by rows only
  int64_t tile_rows;  // rows of W that a task takes
  int64_t tiles;
  int64_t chunk;  // panels that a task takes
  int64_t panels;
  int64_t cut;  // slots that are unpacked at a time
};

enum class Mask : uint8_t { none, boolean, additive };

/// softmax(scale q kᵀ + mask) v with online softmax; strides are in elements, the last is 1.
struct Attention {
  const void* q;  // (batch, heads, queries, dim)
  const void* k;  // (batch, kv_heads, keys, dim)
  const void* v;  // (batch, kv_heads, keys, value_dim)
  void* out;      // (batch, queries, heads, value_dim), contiguous
  Type type;      // of these four
  int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
  int64_t q_strides[3], k_strides[3], v_strides[3];
  float scale;
  bool causal;     // query i sees keys up to keys - queries + i
  int64_t window;  // and no more than this many of them; 0: all
  Mask mask_kind;
  const void* mask;
  Type mask_type;  // of an additive mask
  int64_t mask_strides[4];
  const void* sinks;  // (heads) or null: a logit that takes part in the sum and has no value
  Type sinks_type;
  // ---
  int64_t panels;  // of `lanes` (query, head) pairs that share a key head
  int64_t lanes;   // 8 or 16
  int64_t splits;  // parts of the keys that different tasks take
  float* parts;    // a part's maxima, sums and outputs, where there are several
};

/// out = x / sqrt(mean(x²) + eps) * weight, row by row.
struct Norm {
  Rows x;
  void* out;           // (rows, dim)
  const void* weight;  // (dim) or null
  Type weight_type;
  int64_t rows, dim;
  float eps;
};

/// Rotary positions; out is (batch, heads, length, dim), contiguous.
struct Rope {
  const void* x;
  void* out;
  Type type;
  int64_t batch, heads, length, dim;
  int64_t strides[3];
  int64_t rotated;  // of dim
  bool adjacent;    // pairs (2i, 2i + 1) instead of (i, i + rotated / 2)
  float scale;
  const float* frequencies;  // (rotated / 2)
  int64_t offset;
  const int32_t* offsets;  // of each row of the batch, `offset_stride` apart; null: `offset`
  int64_t offset_stride;
};

struct Blocks;

struct Kernels {
  const char* name;

  int64_t (*slots)(const Weights&);
  // products by rows of W, for few rows of x
  void (*prepare)(const Product&, int64_t row);
  void (*dot)(const Product&, int64_t task, float* scratch);
  size_t (*dot_scratch)(const Product&);
  // products by tiles, for many
  void (*pack)(const Product&, int64_t panel);
  void (*multiply)(const Product&, int64_t task, float* scratch);
  size_t (*multiply_scratch)(const Product&);
  /// Rows of W as elements of `type`.
  void (*lookup)(const Weights&, int64_t row, void* out, Type type);

  void (*attend)(const Attention&, int64_t task, float* scratch);
  size_t (*attend_scratch)(const Attention&);
  size_t (*part_floats)(const Attention&);
  void (*merge)(const Attention&, int64_t panel);
  /// `attend` of one row whose keys and values lie in blocks.
  void (*attend_blocks)(const Attention&, const Blocks&, int64_t task, float* scratch);

  void (*norm)(const Norm&, int64_t row);
  /// x - log Σ e^x of a row of `count` elements
  void (*log_softmax)(Type, const void* x, void* out, int64_t count);
  void (*rope)(const Rope&, int64_t batch, int64_t position, float* scratch);
  /// silu(gate) * up, and a + b
  void (*gated)(Type, const void* gate, const void* up, void* out, int64_t begin, int64_t end);
  void (*add)(Type, const void* a, const void* b, void* out, int64_t begin, int64_t end);
};

/// The best table that this machine can run; MLXNB_ISA=portable forces the plain one.
const Kernels& kernels();

}  // namespace mlxnb
