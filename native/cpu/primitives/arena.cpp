#include "arena.h"

#include <sys/mman.h>

#include <cstring>

namespace mlxnb {
namespace {

constexpr size_t large_page = size_t{1} << 21;

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

mx::array allocated(size_t bytes) {
  mx::array memory(mx::Shape{static_cast<mx::ShapeElem>(bytes / alignment), alignment}, mx::uint8,
                   nullptr, {});
  memory.set_data(mx::allocator::malloc(bytes));
  memory.set_status(mx::array::Status::available);
  return memory;
}

/// Ask for large pages where whole ones fit; a wish, so failing is no error.
void advise(char* begin, size_t bytes) {
#if defined(MADV_HUGEPAGE)
  const auto from = rounded(reinterpret_cast<uintptr_t>(begin), large_page);
  const auto to = (reinterpret_cast<uintptr_t>(begin) + bytes) / large_page * large_page;
  if (to > from) {
    madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
  }
#endif
}

}  // namespace

Arena::Arena(size_t bytes)
    : memory_(allocated(rounded(bytes, alignment) + alignment)),
      used_(to_alignment(memory_.data<char>())) {
  advise(memory_.data<char>(), memory_.nbytes());
}

size_t Arena::room(const mx::array& x) { return rounded(x.nbytes(), alignment); }

std::vector<mx::array> Arena::take(const std::vector<mx::array>& arrays) {
  std::vector<mx::array> out;
  for (const auto& x : arrays) {
    if (!x.is_available()) {
      throw std::invalid_argument("an array must be evaluated");
    }
    if (!x.flags().row_contiguous) {
      out.push_back(x);
      continue;
    }
    if (used_ + room(x) > memory_.nbytes()) {
      throw std::length_error("the arrays do not fit the arena");
    }
    std::memcpy(memory_.data<char>() + used_, x.data<char>(), x.nbytes());
    mx::array copy(x.shape(), x.dtype(), nullptr, {});
    copy.copy_shared_buffer(memory_, x.strides(), x.flags(), x.size(),
                            static_cast<int64_t>(used_ / x.itemsize()));
    copy.set_status(mx::array::Status::available);
    used_ += room(x);
    out.push_back(std::move(copy));
  }
  return out;
}

}  // namespace mlxnb
