// The loops around the kernels: how work is cut into tasks for the pool. Nothing here knows MLX.
#pragma once

#include <vector>

#include "kernels.h"
#include "pool.h"

namespace mlxnb {

/// Memory that a loop needs beside its operands, in floats.
struct Room {
  size_t packed;
  size_t sums;
};

/// Where loops that run one after another get memory from, aligned to a cache line.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual float* take(size_t floats) = 0;
};

/// Cut a product into tasks for so many threads; fills the driver's fields but `packed`, `sums`.
Room plan(Product& product, const Kernels& kernels, int threads);
void run(const Product& product, const Kernels& kernels, Pool& pool);
/// Products of the same rows of x, which are packed once where all W lie alike; plans them too.
void run(std::vector<Product> products, const Kernels& kernels, Pool& pool, Memory& memory);

/// Cut attention into tasks; fills the driver's fields but `parts`. Returns the floats of `parts`.
size_t plan(Attention& attention, const Kernels& kernels, int threads);
void run(const Attention& attention, const Kernels& kernels, Pool& pool);

void run(const Norm& norm, const Kernels& kernels, Pool& pool);
void run(const Rope& rope, const Kernels& kernels, Pool& pool);

/// An elementwise kernel over `size` elements.
using Elementwise = void (*)(Type, const void*, const void*, void*, int64_t, int64_t);
void run(Elementwise kernel, Type type, const void* a, const void* b, void* out, int64_t size,
         Pool& pool);

}  // namespace mlxnb
