// A panel of attention: what a task works on, and its queries.
//
// The lanes of a panel are (query, head) pairs that share a key head, the heads of a query next to
// each other.
#pragma once

#include "multiply.h"

namespace mlxnb::MLXNB_ISA {

constexpr int64_t key_block = 96;
constexpr int64_t few_lanes = 4;
// Less than any score, and finite: e^(hidden - hidden) is 1, and never NaN.
constexpr float hidden = -1e30f;

/// What a task works on.
struct Panel {
  int64_t batch, kv_head, first, count;  // lanes [first, first + count) of this key head
  int64_t begin, end;                    // keys
  bool edges;                            // some of these keys are hidden from some lanes
  bool head;                             // the first part of the keys: the sinks are in it
  float* q;       // [dim][lane]
  float* rows;    // [lane][dim], where there are few lanes
  float* scores;
  float* out;
  float* wide;  // keys or values as floats, where they are halves
  float* top;   // maximum and sum of each lane
  float* sum;
};

struct Lane {
  int64_t query, head;
};

MLXNB_INLINE Lane lane_of(const Attention& a, int64_t kv_head, int64_t lane) {
  const int64_t share = a.heads / a.kv_heads;
  return {lane / share, kv_head * share + lane % share};
}

/// The last key that a query sees.
MLXNB_INLINE int64_t limit_of(const Attention& a, int64_t query) {
  return a.causal ? a.keys - a.queries + query : a.keys - 1;
}

/// Whether a panel's products are better made key by key: up to four lanes, in whole vectors.
MLXNB_INLINE bool has_few(const Attention& a, const Panel& p) {
  return a.lanes == 8 && p.count <= few_lanes && a.dim % 8 == 0 && a.value_dim % 8 == 0;
}

static size_t attend_scratch(const Attention& a) {
  const int64_t widest = a.dim > a.value_dim ? a.dim : a.value_dim;
  const int64_t wide = a.type == Type::f32 ? 0 : key_block * widest;
  const int64_t lane = a.dim + 8 + key_block + a.value_dim + 8 + 2;
  return static_cast<size_t>(a.lanes * lane + few_lanes * a.dim + wide + 64);
}

static size_t part_floats(const Attention& a) {
  return static_cast<size_t>(a.lanes * (a.value_dim + 2));
}

static Panel panel_of(const Attention& a, int64_t task, float* scratch) {
  const int64_t split = task % a.splits;
  int64_t rest = task / a.splits;
  Panel p{};
  // late queries see the most keys: they come first, so that the last tasks are short
  const int64_t index = a.panels - 1 - rest % a.panels;
  rest /= a.panels;
  p.kv_head = rest % a.kv_heads;
  p.batch = rest / a.kv_heads;
  p.first = index * a.lanes;
  const int64_t left = a.queries * (a.heads / a.kv_heads) - p.first;
  p.count = left < a.lanes ? left : a.lanes;
  const int64_t early = limit_of(a, lane_of(a, p.kv_head, p.first).query);
  const int64_t late = limit_of(a, lane_of(a, p.kv_head, p.first + p.count - 1).query);
  const int64_t low = a.window > 0 && early - a.window + 1 > 0 ? early - a.window + 1 : 0;
  const int64_t high = late + 1 > low ? late + 1 : low;
  const int64_t part = (high - low + a.splits - 1) / a.splits;
  p.begin = low + split * part < high ? low + split * part : high;
  p.end = p.begin + part < high ? p.begin + part : high;
  p.edges = a.causal ? early < p.end - 1 || (a.window > 0 && late - a.window >= p.begin) : false;
  p.head = split == 0;
  p.q = scratch;
  p.scores = p.q + (a.dim + 7) / 8 * 8 * a.lanes;
  p.out = p.scores + key_block * a.lanes;
  p.top = p.out + (a.value_dim + 7) / 8 * 8 * a.lanes;
  p.sum = p.top + a.lanes;
  p.rows = p.sum + a.lanes;
  p.wide = p.rows + few_lanes * a.dim;
  return p;
}

/// The panel's queries, scaled.
static void take_queries(const Attention& a, const Panel& p) {
  for (int64_t half = 0; half < a.lanes; half += 8) {
    for (int64_t d = 0; d < a.dim; d += 8) {
      f8 square[8];
      for (int64_t i = 0; i < 8; ++i) {
        square[i] = f8{};
        if (half + i < p.count) {
          const Lane lane = lane_of(a, p.kv_head, p.first + half + i);
          const int64_t at = p.batch * a.q_strides[0] + lane.head * a.q_strides[1] +
                             lane.query * a.q_strides[2] + d;
          square[i] = load_some(a.type, a.q, at, a.dim - d) * splat(a.scale);
          if (has_few(a, p)) {
            store(p.rows + i * a.dim + d, square[i]);
          }
        }
      }
      transpose(square);
      for (int64_t j = 0; j < 8; ++j) {
        store(p.q + (d + j) * a.lanes + half, square[j]);
      }
    }
  }
}

static void start(const Attention& a, const Panel& p) {
  for (int64_t i = 0; i < a.lanes; ++i) {
    const bool sink = a.sinks && p.head && i < p.count;
    p.top[i] = sink ? load_one(a.sinks_type, a.sinks, lane_of(a, p.kv_head, p.first + i).head)
                    : hidden;
    p.sum[i] = sink ? 1.0f : 0.0f;
  }
  std::memset(p.out, 0, sizeof(float) * a.value_dim * a.lanes);
}

}  // namespace mlxnb::MLXNB_ISA
