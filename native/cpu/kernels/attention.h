// Attention with online softmax, and no matrix of scores in memory.
//
// The lanes of a panel are (query, head) pairs that share a key head, the heads of a query next to
// each other. A block of keys becomes scores [key][lane], softmax runs down its columns, and the
// outputs [value][lane] are added up: both products are the tiles of multiply.h, which read keys
// and values where they lie.
#pragma once

#include "multiply.h"

namespace mlxnb::MLXNB_ISA {

constexpr int64_t key_block = 96;
// Less than any score, and finite: e^(hidden - hidden) is 1, and never NaN.
constexpr float hidden = -1e30f;

/// What a task works on.
struct Panel {
  int64_t batch, kv_head, first, count;  // lanes [first, first + count) of this key head
  int64_t begin, end;                    // keys
  bool edges;                            // some of these keys are hidden from some lanes
  bool head;                             // the first part of the keys: the sinks are in it
  float* q;
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

static size_t attend_scratch(const Attention& a) {
  const int64_t widest = a.dim > a.value_dim ? a.dim : a.value_dim;
  const int64_t wide = a.type == Type::f32 ? 0 : key_block * widest;
  return static_cast<size_t>(a.lanes * (a.dim + 8 + key_block + a.value_dim + 8 + 2) + wide + 64);
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
  p.wide = p.sum + a.lanes;
  return p;
}

/// The panel's queries, scaled, [dim][lane].
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

/// `count` rows of keys or values from `begin` on, as floats, and the step from row to row.
static const float* floats_of(const Attention& a, const Panel& p, const void* data,
                              const int64_t (&strides)[3], int64_t dim, int64_t begin,
                              int64_t count, int64_t* step) {
  const int64_t base = p.batch * strides[0] + p.kv_head * strides[1] + begin * strides[2];
  if (a.type == Type::f32) {
    *step = strides[2];
    return static_cast<const float*>(data) + base;
  }
  *step = dim;
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t d = 0; d < dim; d += 8) {
      const f8 loaded = load_some(a.type, data, base + t * strides[2] + d, dim - d);
      store_some(Type::f32, p.wide, t * dim + d, loaded, dim - d);
    }
  }
  return p.wide;
}

/// Hide the keys that are too late or too early for a lane.
static void hide_edges(const Attention& a, const Panel& p, int64_t begin, int64_t count) {
  for (int64_t half = 0; half < a.lanes; half += 8) {
    i8 last{};
    for (int64_t i = 0; i < 8 && half + i < p.count; ++i) {
      const int64_t query = lane_of(a, p.kv_head, p.first + half + i).query;
      last[i] = static_cast<int32_t>(limit_of(a, query));
    }
    const i8 first = a.window > 0 ? last - splat(static_cast<int32_t>(a.window)) : splat(-1);
    for (int64_t t = 0; t < count; ++t) {
      float* at = p.scores + t * a.lanes + half;
      const i8 key = splat(static_cast<int32_t>(begin + t));
      store(at, choose((key <= last) & (key > first), load(at), splat(hidden)));
    }
  }
}

MLXNB_INLINE int64_t mask_base(const Attention& a, const Panel& p, int64_t lane) {
  const Lane l = lane_of(a, p.kv_head, p.first + lane);
  return p.batch * a.mask_strides[0] + l.head * a.mask_strides[1] + l.query * a.mask_strides[2];
}

/// Whether a boolean mask hides a block from all lanes.
static bool all_hidden(const Attention& a, const Panel& p, int64_t begin, int64_t count) {
  const auto* mask = static_cast<const bool*>(a.mask);
  for (int64_t i = 0; i < p.count; ++i) {
    const bool* row = mask + mask_base(a, p, i);
    for (int64_t t = begin; t < begin + count; ++t) {
      if (row[t * a.mask_strides[3]]) {
        return false;
      }
    }
  }
  return true;
}

static void apply_mask(const Attention& a, const Panel& p, int64_t begin, int64_t count) {
  const int64_t step = a.mask_strides[3];
  for (int64_t i = 0; i < p.count; ++i) {
    const int64_t base = mask_base(a, p, i) + begin * step;
    float* score = p.scores + i;
    if (a.mask_kind == Mask::boolean) {
      const bool* mask = static_cast<const bool*>(a.mask) + base;
      for (int64_t t = 0; t < count; ++t) {
        score[t * a.lanes] = mask[t * step] ? score[t * a.lanes] : hidden;
      }
    } else {
      for (int64_t t = 0; t < count; ++t) {
        const float masked = score[t * a.lanes] + load_one(a.mask_type, a.mask, base + t * step);
        score[t * a.lanes] = masked < hidden ? hidden : masked;
      }
    }
  }
}

/// Scores become weights relative to the new maximum; what was added up before is scaled to it.
static void soften(const Attention& a, const Panel& p, int64_t count) {
  for (int64_t half = 0; half < a.lanes; half += 8) {
    const f8 before = load(p.top + half);
    f8 top = before;
    for (int64_t t = 0; t < count; ++t) {
      top = max(load(p.scores + t * a.lanes + half), top);
    }
    f8 total = {};
    for (int64_t t = 0; t < count; ++t) {
      float* at = p.scores + t * a.lanes + half;
      const f8 weight = exp(load(at) - top);
      store(at, weight);
      total += weight;
    }
    const f8 fade = exp(before - top);
    store(p.top + half, top);
    store(p.sum + half, load(p.sum + half) * fade + total);
    for (int64_t d = 0; d < a.value_dim; ++d) {
      float* at = p.out + d * a.lanes + half;
      store(at, load(at) * fade);
    }
  }
}

static void add_block(const Attention& a, const Panel& p, int64_t begin, int64_t count) {
  int64_t step;
  const float* keys = floats_of(a, p, a.k, a.k_strides, a.dim, begin, count, &step);
  for (int64_t t = 0; t < count; t += strip) {
    const int64_t some = count - t < strip ? count - t : strip;
    any_tile<false>(some, a.lanes / 8, p.q, keys + t * step, step, a.dim, p.scores + t * a.lanes,
                    false);
  }
  if (p.edges) {
    hide_edges(a, p, begin, count);
  }
  if (a.mask_kind != Mask::none) {
    apply_mask(a, p, begin, count);
  }
  soften(a, p, count);
  const float* values = floats_of(a, p, a.v, a.v_strides, a.value_dim, begin, count, &step);
  for (int64_t d = 0; d < a.value_dim; d += strip) {
    const int64_t some = a.value_dim - d < strip ? a.value_dim - d : strip;
    any_tile<true>(some, a.lanes / 8, p.scores, values + d, step, count, p.out + d * a.lanes, true);
  }
}

/// Outputs over sums, from [value][lane] to the lanes' rows.
static void put_outputs(const Attention& a, const Panel& p) {
  for (int64_t half = 0; half < a.lanes; half += 8) {
    const f8 total = load(p.sum + half);
    const f8 factor = choose(total > splat(0.0f), splat(1.0f) / total, total);
    for (int64_t d = 0; d < a.value_dim; d += 8) {
      const int64_t some = a.value_dim - d < 8 ? a.value_dim - d : 8;
      f8 square[8] = {};
      for (int64_t j = 0; j < some; ++j) {
        square[j] = load(p.out + (d + j) * a.lanes + half) * factor;
      }
      transpose(square);
      for (int64_t i = 0; i < 8 && half + i < p.count; ++i) {
        const Lane lane = lane_of(a, p.kv_head, p.first + half + i);
        const int64_t row = (p.batch * a.queries + lane.query) * a.heads + lane.head;
        store_some(a.type, a.out, row * a.value_dim + d, square[i], some);
      }
    }
  }
}

/// The panel's outputs, or what one part of the keys gave towards them.
static void finish(const Attention& a, const Panel& p, int64_t task) {
  if (a.splits == 1) {
    put_outputs(a, p);
    return;
  }
  float* part = a.parts + task * static_cast<int64_t>(part_floats(a));
  std::memcpy(part, p.top, sizeof(float) * a.lanes);
  std::memcpy(part + a.lanes, p.sum, sizeof(float) * a.lanes);
  std::memcpy(part + 2 * a.lanes, p.out, sizeof(float) * a.lanes * a.value_dim);
}

static void attend(const Attention& a, int64_t task, float* scratch) {
  const Panel p = panel_of(a, task, scratch);
  take_queries(a, p);
  start(a, p);
  for (int64_t begin = p.begin; begin < p.end; begin += key_block) {
    const int64_t count = p.end - begin < key_block ? p.end - begin : key_block;
    if (a.mask_kind != Mask::boolean || !all_hidden(a, p, begin, count)) {
      add_block(a, p, begin, count);
    }
  }
  finish(a, p, task);
}

/// Put the parts of one panel together; the first one's memory is used up.
static void merge(const Attention& a, int64_t index) {
  const auto floats = static_cast<int64_t>(part_floats(a));
  float* into = a.parts + index * a.splits * floats;
  for (int64_t half = 0; half < a.lanes; half += 8) {
    f8 top = load(into + half);
    for (int64_t s = 1; s < a.splits; ++s) {
      top = max(load(into + s * floats + half), top);
    }
    f8 total = {};
    for (int64_t s = 0; s < a.splits; ++s) {
      const float* part = into + s * floats;
      const f8 factor = exp(load(part + half) - top);
      total += load(part + a.lanes + half) * factor;
      for (int64_t d = 0; d < a.value_dim; ++d) {
        float* at = into + (2 + d) * a.lanes + half;
        const f8 added = load(part + (2 + d) * a.lanes + half) * factor;
        store(at, s == 0 ? added : load(at) + added);
      }
    }
    store(into + a.lanes + half, total);
  }
  Panel p = panel_of(a, index * a.splits, nullptr);
  p.sum = into + a.lanes;
  p.out = into + 2 * a.lanes;
  put_outputs(a, p);
}

}  // namespace mlxnb::MLXNB_ISA
