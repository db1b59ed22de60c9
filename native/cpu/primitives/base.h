// What our MLX primitives share: they run on the CPU, on their stream's thread, like MLX's own.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../run.h"
#include "mlx/allocator.h"
#include "mlx/array.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "mlx/utils.h"

namespace mlxnb {

namespace mx = mlx::core;

inline bool is_floating(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

/// Throws std::invalid_argument for a dtype that the kernels do not know.
Type type_of(mx::Dtype dtype);

/// The CPU's default stream; throws where the default device is another.
mx::Stream cpu_stream();

class CpuPrimitive : public mx::Primitive {
 public:
  using mx::Primitive::Primitive;
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(std::string(name()) + " runs on the CPU only");
  }
};

/// One whose output has the shape of its first input.
class SameShape : public CpuPrimitive {
 public:
  using CpuPrimitive::CpuPrimitive;
  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& in) override {
    return {in[0].shape()};
  }
};

/// Evaluate arrays whose memory is to be used directly; throws where one is not contiguous.
void hold(std::vector<mx::array>& arrays);

/// Allocate an array's memory, row-contiguous.
void allocate(mx::array& out);

/// Allocate it in place of an input of the same size that nobody else needs.
void allocate(mx::array& out, const mx::array& donor);

/// Allocate the memory of ``(rows, heads, queries, dim)`` in the order (rows, queries, heads, dim).
void allocate_by_position(mx::array& out);

/// A cache line. MLX's memory begins anywhere in one, and a vector that lies in two takes twice as
/// long to load.
constexpr size_t alignment = 64;

/// Bytes from here to the next cache line.
size_t to_alignment(const void* memory);

/// Aligned floats that live until the tasks dispatched so far are done; MLX counts them.
float* temporary(size_t floats, mx::Stream stream);

/// The array's elements one after another; a copy is dispatched where they are not.
const void* flat(const mx::array& x, mx::Stream stream);

/// The array as a matrix of its last axis; a copy is dispatched where there is no common stride.
Rows rows_of(const mx::array& x, mx::Stream stream);

template <class F>
void dispatch(mx::Stream stream, F&& function) {
  mx::cpu::get_command_encoder(stream).dispatch(std::forward<F>(function));
}

}  // namespace mlxnb
