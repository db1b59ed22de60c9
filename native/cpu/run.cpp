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

namespace {

void pack(const Product& p, const Kernels& k, Pool& pool) {
  if (by_rows(p)) {
    for (int64_t row = 0; row < p.count; ++row) {
      k.prepare(p, row);
    }
  } else {
    pool.run([&](int64_t panel, float*) { k.pack(p, panel); }, p.panels, 0);
  }
}

int64_t tasks_of(const Product& p) {
  return by_rows(p) ? p.tiles : p.tiles * divide(p.panels, p.chunk);
}

size_t scratch_of(const Product& p, const Kernels& k) {
  return by_rows(p) ? k.dot_scratch(p) : k.multiply_scratch(p);
}

bool alike(const Product& a, const Product& b) {
  const Weights &v = a.weights, &w = b.weights;
  return v.depth == w.depth && v.bits == w.bits && v.group == w.group;
}

/// All tasks of packed products, as one loop.
void multiply(const Product* begin, const Product* end, const Kernels& k, Pool& pool) {
  int64_t tasks = 0;
  size_t floats = 0;
  for (const Product* p = begin; p != end; ++p) {
    tasks += tasks_of(*p);
    floats = std::max(floats, scratch_of(*p, k));
  }
  const auto one = [&](int64_t task, float* scratch) {
    const Product* p = begin;
    for (; task >= tasks_of(*p); ++p) {
      task -= tasks_of(*p);
    }
    by_rows(*p) ? k.dot(*p, task, scratch) : k.multiply(*p, task, scratch);
  };
  pool.run(one, tasks, floats);
}

}  // namespace

void run(const Product& p, const Kernels& k, Pool& pool) {
  pack(p, k, pool);
  multiply(&p, &p + 1, k, pool);
}

void run(std::vector<Product> products, const Kernels& k, Pool& pool, Memory& memory) {
  Product* const all = products.data();
  for (size_t first = 0, next; first < products.size(); first = next) {
    next = first;
    do {
      Product& p = all[next];
      const Room room = plan(p, k, pool.threads());
      const bool shares = next > first;
      p.packed = shares ? all[first].packed : memory.take(room.packed + room.sums);
      p.sums = shares ? all[first].sums : p.packed + room.packed;
      ++next;
    } while (next < products.size() && alike(all[first], all[next]));
    pack(all[first], k, pool);
    multiply(all + first, all + next, k, pool);
  }
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
