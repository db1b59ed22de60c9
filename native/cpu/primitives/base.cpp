#include "base.h"

#include <cstdint>
#include <cstring>
#include <optional>

namespace mlxnb {
namespace {

/// Copy elements of any strides to a dense place.
void gather(const char* from, char* to, const mx::Shape& shape, const mx::Strides& strides,
            size_t size, size_t axis = 0) {
  if (axis == shape.size()) {
    std::memcpy(to, from, size);
    return;
  }
  size_t inner = size;
  for (size_t i = axis + 1; i < shape.size(); ++i) {
    inner *= static_cast<size_t>(shape[i]);
  }
  for (int64_t i = 0; i < shape[axis]; ++i) {
    gather(from + i * strides[axis] * static_cast<int64_t>(size), to + i * inner, shape, strides,
           size, axis + 1);
  }
}

const void* copied(const mx::array& x, mx::Stream stream) {
  void* to = temporary((x.nbytes() + 3) / 4, stream);
  dispatch(stream, [from = x.data<char>(), to, shape = x.shape(), strides = x.strides(),
                    size = x.itemsize()] {
    gather(from, static_cast<char*>(to), shape, strides, size);
  });
  return to;
}

/// The stride between the rows of the last axis, if there is one for all of them.
std::optional<int64_t> row_stride(const mx::array& x) {
  const int last = static_cast<int>(x.ndim()) - 1;
  if (x.shape(last) > 1 && x.strides(last) != 1) {
    return std::nullopt;
  }
  int64_t stride = x.shape(last);
  int64_t rows = 0;  // of the axes seen so far
  for (int i = last - 1; i >= 0; --i) {
    if (x.shape(i) == 1) {
      continue;
    }
    if (rows == 0) {
      stride = x.strides(i);
      rows = 1;
    } else if (x.strides(i) != stride * rows) {
      return std::nullopt;
    }
    rows *= x.shape(i);
  }
  return stride;
}

}  // namespace

size_t to_alignment(const void* memory) {
  return (alignment - reinterpret_cast<uintptr_t>(memory) % alignment) % alignment;
}

Type type_of(mx::Dtype dtype) {
  if (dtype == mx::float32) {
    return Type::f32;
  }
  if (dtype == mx::float16) {
    return Type::f16;
  }
  if (dtype == mx::bfloat16) {
    return Type::bf16;
  }
  throw std::invalid_argument("the native kernels know float32, float16 and bfloat16 only");
}

mx::Stream cpu_stream() {
  if (mx::default_device() != mx::Device::cpu) {
    throw std::invalid_argument("the native kernels need the CPU as the default device");
  }
  return mx::default_stream(mx::Device::cpu);
}

void hold(std::vector<mx::array>& arrays) {
  for (auto& x : arrays) {
    x.eval();
    if (!x.flags().row_contiguous) {
      throw std::invalid_argument("arrays that are held must be contiguous");
    }
  }
}

void allocate(mx::array& out) { out.set_data(mx::allocator::malloc(out.nbytes())); }

void allocate(mx::array& out, const mx::array& donor) {
  const bool fits = donor.flags().row_contiguous && donor.size() == out.size() &&
                    donor.itemsize() == out.itemsize() && donor.offset() == 0;
  if (fits && donor.is_donatable()) {
    out.copy_shared_buffer(donor);
  } else {
    allocate(out);
  }
}

void allocate_by_position(mx::array& out) {
  const int64_t heads = out.shape(1), queries = out.shape(2), dim = out.shape(3);
  const mx::Strides strides{queries * heads * dim, dim, heads * dim, 1};
  auto flags = out.flags();
  flags.contiguous = true;
  flags.row_contiguous = heads == 1 || queries == 1;
  flags.col_contiguous = out.size() <= 1;
  out.set_data(mx::allocator::malloc(out.nbytes()), out.size(), strides, flags);
}

float* temporary(size_t floats, mx::Stream stream) {
  const size_t room = floats + alignment / sizeof(float);
  mx::array held(mx::Shape{static_cast<mx::ShapeElem>(room)}, mx::float32, nullptr, {});
  held.set_data(mx::allocator::malloc(room * sizeof(float)));
  auto* memory = held.data<float>() + to_alignment(held.data<float>()) / sizeof(float);
  mx::cpu::get_command_encoder(stream).add_temporary(std::move(held));
  return memory;
}

const void* flat(const mx::array& x, mx::Stream stream) {
  return x.flags().row_contiguous ? x.data<void>() : copied(x, stream);
}

Rows rows_of(const mx::array& x, mx::Stream stream) {
  const Type type = type_of(x.dtype());
  if (const auto stride = row_stride(x)) {
    return {x.data<void>(), *stride, type};
  }
  return {copied(x, stream), x.shape(-1), type};
}

}  // namespace mlxnb
