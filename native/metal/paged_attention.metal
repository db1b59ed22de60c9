// Attention of a row's newest tokens over keys and values that lie in blocks of a pool.
//
// This text is the header of kernels that mx.fast.metal_kernel compiles at run time; their bodies,
// which name the buffers, come from mlxnb/cache/paged_metal.py. A slab of keys or values is
// (layers, heads, SLOTS, BLOCK, dim), contiguous.
//
// Where lanes differ there are no barriers; simd_sum and simd_max are reached by whole simdgroups.
#ifndef MLXNB_PAGED_ATTENTION
#define MLXNB_PAGED_ATTENTION

// Less than any score, and finite: exp(hidden - hidden) is 1, and never NaN.
#define MLXNB_HIDDEN -1e30f
#define MLXNB_WIDTH 32

template <typename T, int N>
struct Slabs {
  const device T* at[N];
};

// What `info` begins with; then come, for each row, the position after its last query, its tokens
// that are in blocks, and after those of all rows a table of `entries` pairs for each row: place of
// a block (slab * SLOTS + slot, -1: none) and its number in the row. The `tail` tokens after those
// in blocks lie in arrays (rows, kv_heads, tail, dim).
struct PagedInfo {
  int rows, heads, kv_heads, queries, entries, parts, window, sinks;
  float scale;
  int tail;
};

inline PagedInfo read_info(const device int* info) {
  PagedInfo i;
  i.rows = info[0];
  i.heads = info[1];
  i.kv_heads = info[2];
  i.queries = info[3];
  i.entries = info[4];
  i.parts = info[5];
  i.window = info[6];
  i.sinks = info[7];
  i.scale = as_type<float>(info[8]);
  i.tail = info[9];
  return i;
}

#define MLXNB_INFO 10

// What a simdgroup has seen: each lane has every 32nd element of the query and of the output.
template <int D, int V>
struct Seen {
  float q[(D + MLXNB_WIDTH - 1) / MLXNB_WIDTH];
  float o[(V + MLXNB_WIDTH - 1) / MLXNB_WIDTH];
  float top;
  float sum;
};

// One more key and its value; all lanes of a simdgroup come here together.
template <typename T, int D, int V>
inline void see(thread Seen<D, V>& seen, const device T* key, const device T* value, int lane) {
  float score = 0.0f;
  for (int d = lane, j = 0; d < D; d += MLXNB_WIDTH, ++j) {
    score += seen.q[j] * float(key[d]);
  }
  score = simd_sum(score);
  const float top = metal::max(seen.top, score);
  const float fade = metal::exp(seen.top - top);
  const float weight = metal::exp(score - top);
  seen.top = top;
  seen.sum = seen.sum * fade + weight;
  for (int d = lane, j = 0; d < V; d += MLXNB_WIDTH, ++j) {
    seen.o[j] = seen.o[j] * fade + weight * float(value[d]);
  }
}

// One threadgroup: a query of a head (x), a row (y), a part of its blocks (z). Its SIMDS simdgroups
// take tokens in turn, the lanes of one share a key's elements. `shared` is SIMDS * (V + 2) floats.
//
// WHOLE: there is one part, and out is the attention, (rows, heads, queries, V). Else out is
// (rows, heads, queries, parts, V) sums of weighted values, and tops (..., 4) the maximum that
// their weights are relative to, the sum of the weights, and nothing: MLX passes arrays of less
// than 8 elements in another address space.
template <typename T, typename O, int D, int V, int N, int SIMDS, int BLOCK, int SLOTS, bool WHOLE>
inline void paged_attention(
    const device T* queries,
    const thread Slabs<T, N>& keys,
    const thread Slabs<T, N>& values,
    const device T* tail_keys,
    const device T* tail_values,
    const device T* sinks,
    const device int* info,
    int layer,
    device O* out,
    device float* tops,
    threadgroup float* shared,
    uint3 group,
    uint simd_,
    uint lane_) {
  const int simd = int(simd_);
  const int lane = int(lane_);
  const PagedInfo i = read_info(info);
  const int head = int(group.x) / i.queries;
  const int query = int(group.x) % i.queries;
  const int row = int(group.y);
  const int part = int(group.z);
  const int kv_head = head / (i.heads / i.kv_heads);
  const int at = info[MLXNB_INFO + row] - i.queries + query;
  const int in_blocks = info[MLXNB_INFO + i.rows + row];
  const int last = at < in_blocks ? at : in_blocks - 1;
  const int first = i.window > 0 ? at - i.window + 1 : 0;
  const device int* table = info + MLXNB_INFO + 2 * i.rows + 2 * row * i.entries;
  const long index = (row * i.heads + head) * i.queries + query;

  Seen<D, V> seen;
  for (int d = lane, j = 0; d < D; d += MLXNB_WIDTH, ++j) {
    seen.q[j] = i.scale * float(queries[index * D + d]);
  }
  for (int d = lane, j = 0; d < V; d += MLXNB_WIDTH, ++j) {
    seen.o[j] = 0.0f;
  }
  const bool sink = i.sinks != 0 && part == 0 && simd == 0;
  seen.top = sink ? float(sinks[head]) : MLXNB_HIDDEN;
  seen.sum = sink ? 1.0f : 0.0f;

  const int share = (i.entries + i.parts - 1) / i.parts;
  const int end = part * share + share < i.entries ? part * share + share : i.entries;
  for (int entry = part * share; entry < end; ++entry) {
    const int place = table[2 * entry];
    const int start = table[2 * entry + 1] * BLOCK;
    if (place < 0 || start > last || start + BLOCK <= first) {
      continue;
    }
    const long block = long(layer * i.kv_heads + kv_head) * SLOTS + place % SLOTS;
    const device T* key = keys.at[place / SLOTS] + block * (BLOCK * D);
    const device T* value = values.at[place / SLOTS] + block * (BLOCK * V);
    for (int t = simd; t < BLOCK; t += SIMDS) {
      if (start + t >= first && start + t <= last) {
        see<T, D, V>(seen, key + t * D, value + t * V, lane);
      }
    }
  }
  if (part == i.parts - 1) {
    const long base = long(row * i.kv_heads + kv_head) * i.tail;
    for (int t = simd; t < i.tail; t += SIMDS) {
      if (in_blocks + t >= first && in_blocks + t <= at) {
        see<T, D, V>(seen, tail_keys + (base + t) * D, tail_values + (base + t) * V, lane);
      }
    }
  }

  threadgroup float* all_tops = shared;
  threadgroup float* all_sums = shared + SIMDS;
  threadgroup float* all = shared + 2 * SIMDS;
  if (lane == 0) {
    all_tops[simd] = seen.top;
    all_sums[simd] = seen.sum;
  }
  for (int d = lane, j = 0; d < V; d += MLXNB_WIDTH, ++j) {
    all[simd * V + d] = seen.o[j];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float highest = all_tops[0];
  for (int s = 1; s < SIMDS; ++s) {
    highest = metal::max(highest, all_tops[s]);
  }
  float factors[SIMDS];
  float total = 0.0f;
  for (int s = 0; s < SIMDS; ++s) {
    factors[s] = metal::exp(all_tops[s] - highest);
    total += factors[s] * all_sums[s];
  }
  for (int d = simd * MLXNB_WIDTH + lane; d < V; d += SIMDS * MLXNB_WIDTH) {
    float result = 0.0f;
    for (int s = 0; s < SIMDS; ++s) {
      result += factors[s] * all[s * V + d];
    }
    if (WHOLE) {
      out[index * V + d] = O(total > 0.0f ? result / total : 0.0f);
    } else {
      out[(index * i.parts + part) * V + d] = O(result);
    }
  }
  if (!WHOLE && simd == 0 && lane == 0) {
    tops[(index * i.parts + part) * 4] = highest;
    tops[(index * i.parts + part) * 4 + 1] = total;
  }
}

// One simdgroup: the parts (queries, count, V) of one query become its attention.
template <typename T, int V>
inline void merge_parts(
    const device float* parts,
    const device float* tops,
    int count,
    device T* out,
    uint index,
    uint lane) {
  parts += long(index) * count * V;
  tops += long(index) * count * 4;
  float highest = MLXNB_HIDDEN;
  for (int p = int(lane); p < count; p += MLXNB_WIDTH) {
    highest = metal::max(highest, tops[4 * p]);
  }
  highest = simd_max(highest);
  float total = 0.0f;
  for (int p = int(lane); p < count; p += MLXNB_WIDTH) {
    total += tops[4 * p + 1] * metal::exp(tops[4 * p] - highest);
  }
  total = simd_sum(total);
  for (int d = int(lane); d < V; d += MLXNB_WIDTH) {
    float result = 0.0f;
    for (int p = 0; p < count; ++p) {
      result += parts[p * V + d] * metal::exp(tops[4 * p] - highest);
    }
    out[long(index) * V + d] = T(total > 0.0f ? result / total : 0.0f);
  }
}

#endif
