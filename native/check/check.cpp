// The kernels and their loops against plain loops in double, over random shapes, without MLX or
// Python: for sanitizers. Operands are of the exact size, so that a read beyond them is seen.
//
//   check [examples] [seed]
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "../cpu/paged.h"
#include "../cpu/run.h"

using namespace mlxnb;

namespace {

using Random = std::mt19937;
using Floats = std::vector<float>;

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

Floats normal(Random& random, int64_t count) {
  std::normal_distribution<float> draw;
  Floats out(count);
  for (float& x : out) {
    x = draw(random);
  }
  return out;
}

void expect_near(const char* what, const Floats& found, const std::vector<double>& expected) {
  double worst = 0, largest = 1e-30;
  for (size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(found[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  if (!(worst <= 1e-4 * largest)) {
    std::printf("%s: off by %g of %g\n", what, worst, largest);
    std::exit(1);
  }
}

/// Memory for the driver's fields, aligned as primitives have it.
class Lines : public Memory {
 public:
  float* take(size_t floats) override {
    const size_t bytes = (floats * sizeof(float) + 63) / 64 * 64;
    taken_.emplace_back(static_cast<float*>(std::aligned_alloc(64, bytes)), std::free);
    return taken_.back().get();
  }

 private:
  std::vector<std::unique_ptr<float, void (*)(void*)>> taken_;
};

struct Packed {
  std::vector<uint32_t> words;
  Floats scales, biases;
  std::vector<double> values;
};

Packed packed(Random& random, int64_t rows, int64_t depth, int bits, int group) {
  Packed p{std::vector<uint32_t>(rows * depth * bits / 32), normal(random, rows * depth / group),
           normal(random, rows * depth / group), std::vector<double>(rows * depth)};
  for (int64_t i = 0; i < rows * depth; ++i) {
    const auto q = static_cast<uint32_t>(pick(random, 0, (1 << bits) - 1));
    p.words[i * bits / 32] |= q << (i * bits % 32);
    p.values[i] = double{p.scales[i / group]} * q + p.biases[i / group];
  }
  return p;
}

/// W and bias of a product with some x, and what it should give.
struct Factor {
  Factor(Random& random, const Floats& x, int64_t depth, int bits, int group)
      : rows(pick(random, 1, 130)),
        w(packed(random, rows, bits == 0 ? depth * group : depth, bits ? bits : 4, group)),
        dense(w.values.begin(), w.values.begin() + rows * depth),
        bias(normal(random, rows)),
        out(x.size() / depth * rows) {
    const auto count = static_cast<int64_t>(x.size()) / depth;
    product.weights = {bits ? static_cast<const void*>(w.words.data()) : dense.data(),
                       w.scales.data(), w.biases.data(), rows, depth, bits, bits ? group : 0,
                       Type::f32};
    product.x = {x.data(), depth, Type::f32};
    product.count = count;
    product.out = out.data();
    product.out_type = product.bias_type = Type::f32;
    product.bias = bias.data();
    for (int64_t m = 0; m < count; ++m) {
      for (int64_t n = 0; n < rows; ++n) {
        double total = bias[n];
        for (int64_t k = 0; k < depth; ++k) {
          total += x[m * depth + k] * w.values[n * depth + k];
        }
        expected.push_back(total);
      }
    }
  }
  Factor(const Factor&) = delete;

  int64_t rows;
  Packed w;
  Floats dense, bias, out;
  Product product{};
  std::vector<double> expected;
};

void check_product(Random& random, Pool& pool) {
  const int bits = std::array{0, 4, 8}[pick(random, 0, 2)];
  const int group = 32 << pick(random, 0, 2);
  const int64_t depth = bits == 0 ? pick(random, 1, 200) : group * pick(random, 1, 10);
  const Floats x = normal(random, pick(random, 1, 50) * depth);
  Factor factor(random, x, depth, bits, group);
  Product& p = factor.product;
  const Room room = plan(p, kernels(), pool.threads());
  Lines lines;
  p.packed = lines.take(room.packed + room.sums);
  p.sums = p.packed + room.packed;
  run(p, kernels(), pool);
  expect_near("product", factor.out, factor.expected);
}

/// Several products of one x, not all with W alike.
void check_products(Random& random, Pool& pool) {
  const int group = 32 << pick(random, 0, 2);
  const int64_t depth = group * pick(random, 1, 5);
  const Floats x = normal(random, pick(random, 1, 40) * depth);
  std::deque<Factor> factors;
  std::vector<Product> products;
  for (int64_t i = pick(random, 1, 4); i > 0; --i) {
    factors.emplace_back(random, x, depth, pick(random, 0, 3) ? 4 : 0, group);
    products.push_back(factors.back().product);
  }
  Lines lines;
  run(products, kernels(), pool, lines);
  for (const Factor& factor : factors) {
    expect_near("products", factor.out, factor.expected);
  }
}

/// Whether query i sees key t.
bool sees(const Attention& a, const std::vector<uint8_t>& mask, int64_t i, int64_t t) {
  const int64_t last = a.keys - a.queries + i;
  if (a.causal && (t > last || (a.window > 0 && t <= last - a.window))) {
    return false;
  }
  return a.mask_kind == Mask::none || mask[i * a.keys + t];
}

void check_attention(Random& random, Pool& pool) {
  Attention a{};
  a.type = Type::f32;
  a.batch = pick(random, 1, 2);
  a.kv_heads = pick(random, 1, 3);
  a.heads = a.kv_heads * pick(random, 1, 9);
  a.queries = pick(random, 1, 20);
  a.keys = a.queries + pick(random, 0, 250);
  a.dim = pick(random, 1, 70);
  a.value_dim = pick(random, 1, 70);
  a.scale = 0.3f;
  a.causal = pick(random, 0, 1);
  a.window = a.causal ? pick(random, 0, 40) : 0;
  std::vector<uint8_t> mask(a.queries * a.keys);
  for (size_t i = 0; i < mask.size(); ++i) {
    const bool last = static_cast<int64_t>(i) % a.keys == a.keys - a.queries + i / a.keys;
    mask[i] = last || pick(random, 0, 1);  // each query sees its own key at least
  }
  a.mask_kind = pick(random, 0, 1) ? Mask::boolean : Mask::none;
  a.mask = mask.data();
  a.mask_strides[2] = a.keys;
  a.mask_strides[3] = 1;
  const Floats q = normal(random, a.batch * a.heads * a.queries * a.dim);
  const Floats k = normal(random, a.batch * a.kv_heads * a.keys * a.dim);
  const Floats v = normal(random, a.batch * a.kv_heads * a.keys * a.value_dim);
  const Floats sinks = normal(random, a.heads);
  a.q = q.data();
  a.k = k.data();
  a.v = v.data();
  a.sinks = pick(random, 0, 1) ? sinks.data() : nullptr;
  const auto strides = [](int64_t (&s)[3], int64_t heads, int64_t length, int64_t dim) {
    s[0] = heads * length * dim;
    s[1] = length * dim;
    s[2] = dim;
  };
  strides(a.q_strides, a.heads, a.queries, a.dim);
  strides(a.k_strides, a.kv_heads, a.keys, a.dim);
  strides(a.v_strides, a.kv_heads, a.keys, a.value_dim);
  Floats out(a.batch * a.queries * a.heads * a.value_dim);
  a.out = out.data();
  Lines lines;
  a.parts = lines.take(plan(a, kernels(), pool.threads()));
  run(a, kernels(), pool);

  std::vector<double> expected(out.size());
  for (int64_t row = 0; row < a.batch * a.queries * a.heads; ++row) {
    const int64_t h = row % a.heads, i = row / a.heads % a.queries, b = row / a.heads / a.queries;
    const int64_t shared = b * a.kv_heads + h / (a.heads / a.kv_heads);
    double total = a.sinks ? std::exp(double{sinks[h]}) : 0;
    for (int64_t t = 0; t < a.keys; ++t) {
      double score = 0;
      for (int64_t d = 0; d < a.dim; ++d) {
        score += double{q[((b * a.heads + h) * a.queries + i) * a.dim + d]} *
                 k[(shared * a.keys + t) * a.dim + d];
      }
      const double weight = sees(a, mask, i, t) ? std::exp(score * a.scale) : 0;
      total += weight;
      for (int64_t d = 0; d < a.value_dim; ++d) {
        expected[row * a.value_dim + d] += weight * v[(shared * a.keys + t) * a.value_dim + d];
      }
    }
    for (int64_t d = 0; d < a.value_dim; ++d) {
      expected[row * a.value_dim + d] /= total;
    }
  }
  expect_near("attention", out, expected);
}

/// Keys or values of all rows in the blocks of one slab, (heads, slots, block, dim); what no row has
/// is NaN.
struct Slab {
  int64_t heads, block, dim;
  std::vector<int64_t> slots;  // of the rows' blocks, one row after another
  Floats data;

  Slab(int64_t heads_, int64_t block_, int64_t dim_, const std::vector<int64_t>& slots_)
      : heads(heads_), block(block_), dim(dim_), slots(slots_),
        data(heads * std::ssize(slots) * block * dim, std::numeric_limits<float>::quiet_NaN()) {}

  float* at(int64_t head, int64_t number, int64_t token) {
    return data.data() + ((head * std::ssize(slots) + slots[number]) * block + token) * dim;
  }
};

void check_blocks(Random& random, Pool& pool) {
  PagedAttention p{};
  Attention& a = p.each;
  a.type = Type::f32;
  a.batch = 1;
  a.kv_heads = pick(random, 1, 3);
  a.heads = a.kv_heads * pick(random, 1, 9);
  a.queries = pick(random, 1, 20);
  a.dim = pick(random, 1, 70);
  a.value_dim = pick(random, 1, 70);
  a.scale = 0.3f;
  a.causal = true;
  a.window = pick(random, 0, 1) * pick(random, 1, 40);
  const int64_t rows = pick(random, 1, 3), block = 16;
  std::vector<int64_t> first;
  int64_t blocks = 0;
  for (int64_t r = 0; r < rows; ++r) {
    p.keys.push_back(a.queries + pick(random, 0, 250));
    first.push_back(blocks);
    blocks += (p.keys[r] + block - 1) / block;
  }
  std::vector<int64_t> slots(blocks);
  std::iota(slots.begin(), slots.end(), 0);
  if (pick(random, 0, 1)) {
    std::shuffle(slots.begin(), slots.end(), random);
  }
  Slab k(a.kv_heads, block, a.dim, slots), v(a.kv_heads, block, a.value_dim, slots);
  std::vector<const void*> k_table(blocks), v_table(blocks);
  for (int64_t r = 0; r < rows; ++r) {
    // the last rows may be padding
    const int64_t written = p.keys[r] - (r > 0 ? pick(random, 0, a.queries - 1) : 0);
    for (int64_t b = first[r]; b < (r + 1 < rows ? first[r + 1] : blocks); ++b) {
      k_table[b] = k.at(0, b, 0);
      v_table[b] = v.at(0, b, 0);
    }
    for (int64_t h = 0; h < a.kv_heads; ++h) {
      for (int64_t t = 0; t < written; ++t) {
        for (Slab* slab : {&k, &v}) {
          const Floats drawn = normal(random, slab->dim);
          std::copy(drawn.begin(), drawn.end(), slab->at(h, first[r] + t / block, t % block));
        }
      }
    }
    p.blocks.push_back({k_table.data() + first[r], v_table.data() + first[r], block,
                        blocks * block, written});
  }
  const Floats q = normal(random, rows * a.heads * a.queries * a.dim);
  const Floats sinks = normal(random, a.heads);
  Floats out(rows * a.queries * a.heads * a.value_dim);
  a.q = q.data();
  a.q_strides[1] = a.queries * a.dim;
  a.q_strides[2] = a.dim;
  a.out = out.data();
  a.sinks = pick(random, 0, 1) ? sinks.data() : nullptr;
  p.q_row = a.heads * a.queries * a.dim;
  p.out_row = a.queries * a.heads * a.value_dim;
  Lines lines;
  a.parts = lines.take(plan(p, kernels(), pool.threads()));
  run(p, kernels(), pool);

  std::vector<double> expected(out.size());
  for (int64_t place = 0; place < rows * a.queries * a.heads; ++place) {
    const int64_t h = place % a.heads, i = place / a.heads % a.queries;
    const int64_t r = place / a.heads / a.queries, shared = h / (a.heads / a.kv_heads);
    const int64_t at = p.keys[r] - a.queries + i;
    const int64_t low = a.window > 0 ? std::max<int64_t>(0, at - a.window + 1) : 0;
    double total = a.sinks ? std::exp(double{sinks[h]}) : 0;
    double* into = expected.data() + place * a.value_dim;
    for (int64_t t = low; t <= std::min(at, p.blocks[r].written - 1); ++t) {
      double score = 0;
      for (int64_t d = 0; d < a.dim; ++d) {
        score += double{q[((r * a.heads + h) * a.queries + i) * a.dim + d]} *
                 k.at(shared, first[r] + t / block, t % block)[d];
      }
      const double weight = std::exp(score * a.scale);
      total += weight;
      for (int64_t d = 0; d < a.value_dim; ++d) {
        into[d] += weight * v.at(shared, first[r] + t / block, t % block)[d];
      }
    }
    for (int64_t d = 0; d < a.value_dim; ++d) {
      // padding that sees nothing gives some finite value
      into[d] = total > 0 ? into[d] / total : out[place * a.value_dim + d];
    }
  }
  expect_near("attention over blocks", out, expected);
}

void check_small(Random& random, Pool& pool) {
  const int64_t rows = pick(random, 1, 200), dim = pick(random, 1, 300);
  const Floats x = normal(random, rows * dim), weight = normal(random, dim);
  Floats out(rows * dim);
  run(Norm{{x.data(), dim, Type::f32}, out.data(), weight.data(), Type::f32, rows, dim, 1e-5f},
      kernels(), pool);
  std::vector<double> expected(rows * dim);
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t d = 0; d < dim; ++d) {
      squares += double{x[r * dim + d]} * x[r * dim + d];
    }
    for (int64_t d = 0; d < dim; ++d) {
      expected[r * dim + d] = x[r * dim + d] / std::sqrt(squares / dim + 1e-5) * weight[d];
    }
  }
  expect_near("norm", out, expected);
  run(kernels().gated, Type::f32, x.data(), out.data(), out.data(), rows * dim, pool);
  for (int64_t i = 0; i < rows * dim; ++i) {
    expected[i] *= x[i] / (1 + std::exp(-double{x[i]}));
  }
  expect_near("gate", out, expected);
}

/// Loops from several threads over one pool; each task of each loop runs exactly once.
void check_pool(Pool& pool) {
  const auto loops = [&pool](int64_t tasks) {
    for (int loop = 0; loop < 300; ++loop) {
      std::vector<int> times(tasks);
      pool.run([&](int64_t task, float* scratch) {
        scratch[0] = static_cast<float>(task);
        ++times[task];
      }, tasks, 16);
      for (const int n : times) {
        if (n != 1) {
          std::printf("a task ran %d times\n", n);
          std::exit(1);
        }
      }
      if (loop % 100 == 99) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // workers fall asleep
      }
    }
  };
  std::thread other(loops, 7);
  loops(50);
  other.join();
}

}  // namespace

int main(int argc, char** argv) {
  const int examples = argc > 1 ? std::atoi(argv[1]) : 100;
  Random random(argc > 2 ? std::atoi(argv[2]) : 1);
  for (const int threads : {1, 3}) {
    Pool pool(threads);
    check_pool(pool);
    for (int i = 0; i < examples; ++i) {
      check_product(random, pool);
      check_products(random, pool);
      check_attention(random, pool);
      check_blocks(random, pool);
      check_small(random, pool);
    }
  }
  std::printf("%s: %d examples\n", kernels().name, 2 * examples);
}
