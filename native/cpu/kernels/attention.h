// Attention with online softmax, and no matrix of scores in memory.
//
// A block of keys becomes scores [key][lane], softmax runs down its columns, and the outputs
// [value][lane] are added up. Keys and values are read where they lie.
#pragma once

#include "weigh.h"

namespace mlxnb::MLXNB_ISA {

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
  score(a, p, keys, step, count, p.scores);
  if (p.edges) {
    hide_edges(a, p, begin, count);
  }
  if (a.mask_kind != Mask::none) {
    apply_mask(a, p, begin, count);
  }
  soften(a, p, count);
  const float* values = floats_of(a, p, a.v, a.v_strides, a.value_dim, begin, count, &step);
  weigh(a, p, p.scores, values, step, count);
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
