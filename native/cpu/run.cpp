#include "run.h"

#include <algorithm>

namespace mlxnb {
namespace {

constexpr int64_t few_rows = 8;     // of x: up to here W is read row by row
constexpr int64_t panel_rows = 16;  // of x, in the tiled kernel
constexpr int64_t most_slots = 2048;
// Sharing out costs about a microsecond: work below this (in multiply-adds or elements) is done
// by the caller.
constexpr int64_t small_product = 1 << 15;
constexpr int64_t small_attention = 1 << 14;
constexpr int64_t small_elements = 1 << 13;

int64_t divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool by_rows(const Product& p) { return p.count <= few_rows; }

Room plan_rows(Product& p, int threads) {
  const Weights& w = p.weights;
  const bool small = w.rows * w.depth * p.count < small_product;
  const int64_t tasks = small ? 1 : 8 * threads;
  p.tile_rows = std::max<int64_t>(divide(divide(w.rows, tasks), 4) * 4, small ? w.rows : 8);
  p.tiles = divide(w.rows, p.tile_rows);
  p.panels = p.count;
  p.chunk = p.cut = 0;
  const int64_t groups = w.bits == 0 ? 0 : padded_groups(w.depth / w.group);
  return {static_cast<size_t>(p.count * p.slots), static_cast<size_t>(p.count * groups)};
}

Room plan_tiles(Product& p, int threads) {
  const Weights& w = p.weights;
  p.panels = divide(p.count, panel_rows);
  p.tile_rows = w.rows >= 96 * threads ? 48 : 24;
  p.tiles = divide(w.rows, p.tile_rows);
  p.chunk = std::min<int64_t>(p.panels, 64);
  // tiles of W are unpacked once for each chunk, so chunks shrink only where threads would idle
  while (p.chunk > 8 && p.tiles * divide(p.panels, p.chunk) < 4 * threads) {
    p.chunk = divide(p.chunk, 2);
  }
  const int64_t cuts = divide(p.slots, most_slots);
  p.cut = cuts == 1 ? p.slots : divide(divide(p.slots, cuts), 64) * 64;
  return {static_cast<size_t>(p.panels * panel_rows * p.slots), 0};
}

}  // namespace

Room plan(Product& p, const Kernels& k, int threads) {
  p.slots = k.slots(p.weights);
  return by_rows(p) ? plan_rows(p, threads) : plan_tiles(p, threads);
}

void run(const Product& p, const Kernels& k, Pool& pool) {
  if (by_rows(p)) {
    for (int64_t row = 0; row < p.count; ++row) {
      k.prepare(p, row);
    }
    const auto dot = [&](int64_t task, float* scratch) { k.dot(p, task, scratch); };
    pool.run(dot, p.tiles, k.dot_scratch(p));
    return;
  }
  pool.run([&](int64_t panel, float*) { k.pack(p, panel); }, p.panels, 0);
  const auto multiply = [&](int64_t task, float* scratch) { k.multiply(p, task, scratch); };
  pool.run(multiply, p.tiles * divide(p.panels, p.chunk), k.multiply_scratch(p));
}

size_t plan(Attention& a, const Kernels& k, int threads) {
  const int64_t lanes = a.queries * (a.heads / a.kv_heads);
  a.lanes = lanes <= 8 ? 8 : 16;
  a.panels = divide(lanes, a.lanes);
  const int64_t tasks = a.batch * a.kv_heads * a.panels;
  const int64_t work = tasks * a.keys * a.dim;
  a.splits = 1;
  if (tasks < 4 * threads && work >= small_attention && threads > 1) {
    a.splits = std::clamp<int64_t>(divide(4 * threads, tasks), 1, divide(a.keys, 64));
  }
  const auto parts = static_cast<size_t>(tasks * a.splits);
  return a.splits == 1 ? 0 : parts * k.part_floats(a);
}

void run(const Attention& a, const Kernels& k, Pool& pool) {
  const int64_t panels = a.batch * a.kv_heads * a.panels;
  const auto attend = [&](int64_t task, float* scratch) { k.attend(a, task, scratch); };
  const size_t floats = k.attend_scratch(a);
  if (panels * a.keys * a.dim < small_attention) {
    pool.alone(attend, panels * a.splits, floats);
  } else {
    pool.run(attend, panels * a.splits, floats);
  }
  for (int64_t panel = 0; a.splits > 1 && panel < panels; ++panel) {
    k.merge(a, panel);
  }
}

void run(const Norm& n, const Kernels& k, Pool& pool) {
  const int64_t share = std::max<int64_t>(1, small_elements / n.dim);
  const auto rows = [&](int64_t task, float*) {
    for (int64_t row = task * share; row < std::min(n.rows, (task + 1) * share); ++row) {
      k.norm(n, row);
    }
  };
  pool.run(rows, divide(n.rows, share), 0);
}

void run(const Rope& r, const Kernels& k, Pool& pool) {
  const int64_t share = std::max<int64_t>(1, small_elements / (r.dim * r.heads));
  const int64_t total = r.batch * r.length;
  const auto positions = [&](int64_t task, float* scratch) {
    for (int64_t i = task * share; i < std::min(total, (task + 1) * share); ++i) {
      k.rope(r, i / r.length, i % r.length, scratch);
    }
  };
  pool.run(positions, divide(total, share), static_cast<size_t>(r.rotated));
}

void run(Elementwise kernel, Type type, const void* a, const void* b, void* out, int64_t size,
         Pool& pool) {
  const auto part = [&](int64_t task, float*) {
    kernel(type, a, b, out, task * small_elements, std::min(size, (task + 1) * small_elements));
  };
  pool.run(part, divide(size, small_elements), 0);
}

}  // namespace mlxnb
