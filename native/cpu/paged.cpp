#include "paged.h"

#include <algorithm>

namespace mlxnb {
namespace {

// As for contiguous attention: below this many multiply-adds the caller works alone.
constexpr int64_t small_attention = 1 << 16;
constexpr int64_t fewest_keys = 64;  // in a part

int64_t divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Row `row` as attention of its own.
Attention row_of(const PagedAttention& p, int64_t row, const Kernels& kernels) {
  Attention a = p.each;
  const auto size = static_cast<int64_t>(size_of(a.type));
  a.q = static_cast<const char*>(a.q) + row * p.q_row * size;
  a.out = static_cast<char*>(a.out) + row * p.out_row * size;
  a.keys = p.keys[row];
  a.splits = p.splits[row];
  if (a.parts != nullptr) {
    a.parts += p.tasks[row] * static_cast<int64_t>(kernels.part_floats(a));
  }
  return a;
}

int64_t work_of(const PagedAttention& p) {
  int64_t keys = 0;
  for (const int64_t count : p.keys) {
    keys += p.each.window > 0 ? std::min(count, p.each.window + p.each.queries) : count;
  }
  return keys * p.each.kv_heads * p.each.panels * p.each.dim;
}

}  // namespace

size_t plan(PagedAttention& p, const Kernels& kernels, int threads) {
  Attention& a = p.each;
  const auto rows = static_cast<int64_t>(p.keys.size());
  const int64_t lanes = a.queries * (a.heads / a.kv_heads);
  a.lanes = lanes <= 8 ? 8 : 16;
  a.panels = divide(lanes, a.lanes);
  const int64_t panels = a.kv_heads * a.panels;
  const bool share = threads > 1 && work_of(p) >= small_attention && rows * panels < 4 * threads;
  p.tasks = {0};
  bool parts = false;
  for (const int64_t keys : p.keys) {
    const int64_t most = std::max<int64_t>(1, divide(keys, fewest_keys));
    p.splits.push_back(share ? std::clamp<int64_t>(divide(4 * threads, rows * panels), 1, most) : 1);
    p.tasks.push_back(p.tasks.back() + panels * p.splits.back());
    parts = parts || p.splits.back() > 1;
  }
  return parts ? static_cast<size_t>(p.tasks.back()) * kernels.part_floats(a) : 0;
}

void run(const PagedAttention& p, const Kernels& kernels, Pool& pool) {
  const auto attend = [&](int64_t task, float* scratch) {
    const auto after = std::upper_bound(p.tasks.begin(), p.tasks.end(), task);
    const int64_t row = after - p.tasks.begin() - 1;
    kernels.attend_blocks(row_of(p, row, kernels), p.blocks[row], task - p.tasks[row], scratch);
  };
  const size_t floats = kernels.attend_scratch(p.each);
  if (work_of(p) < small_attention) {
    pool.alone(attend, p.tasks.back(), floats);
  } else {
    pool.run(attend, p.tasks.back(), floats);
  }
  for (size_t row = 0; row < p.keys.size(); ++row) {
    const Attention a = row_of(p, static_cast<int64_t>(row), kernels);
    for (int64_t panel = 0; a.splits > 1 && panel < a.kv_heads * a.panels; ++panel) {
      kernels.merge(a, panel);
    }
  }
}

}  // namespace mlxnb
