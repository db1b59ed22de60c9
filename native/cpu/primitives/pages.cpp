#include "pages.h"

namespace mlxnb {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

}  // namespace

Pages::Pages(std::vector<mx::array> keys, std::vector<mx::array> values,
             std::vector<int32_t> table, int64_t width, std::vector<int32_t> starts,
             std::vector<int32_t> counts)
    : dtype_(mx::float32),
      table_(std::move(table)),
      width_(width),
      starts_(std::move(starts)),
      counts_(std::move(counts)) {
  if (keys.empty() || keys.size() != values.size() || keys[0].ndim() != 5 ||
      values[0].ndim() != 5) {
    refuse("there are slabs of keys, and as many of values, with five axes");
  }
  shape_ = keys[0].shape();
  value_dim_ = values[0].shape(4);
  dtype_ = keys[0].dtype();
  type_of(dtype_);
  check(keys);
  shape_.back() = values[0].shape(4);
  check(values);
  shape_.back() = keys[0].shape(4);
  if (counts_.size() != starts_.size() ||
      static_cast<int64_t>(table_.size()) != rows() * width_) {
    refuse("the table has a row for each start and each count");
  }
  const auto all = static_cast<int64_t>(keys.size()) * slots();
  for (const int32_t entry : table_) {
    if (entry < 0 || entry >= all) {
      refuse("the table points outside of the slabs");
    }
  }
  for (int64_t row = 0; row < rows(); ++row) {
    if (start(row) < 0 || count(row) < 0 || start(row) + count(row) > room()) {
      refuse("the table has no blocks for so many tokens");
    }
  }
  for (auto* slabs : {&keys, &values}) {
    for (mx::array& slab : *slabs) {
      (slabs == &keys ? keys_ : values_).push_back(slab.data<char>());
      arrays_.push_back(slab);
    }
  }
}

void Pages::check(std::vector<mx::array>& slabs) const {
  for (mx::array& slab : slabs) {
    if (slab.shape() != shape_ || slab.dtype() != dtype_) {
      refuse("all slabs have one shape and one type");
    }
    slab.eval();
    if (!slab.flags().row_contiguous) {
      refuse("slabs are contiguous");
    }
  }
}

char* Pages::at(const std::vector<char*>& slabs, int64_t dim, int64_t row, int64_t number,
                int64_t layer) const {
  const int64_t entry = table_[row * width_ + number];
  const auto size = static_cast<int64_t>(mx::size_of(dtype_));
  const int64_t number_in_slab = layer * heads() * slots() + entry % slots();
  return slabs[entry / slots()] + number_in_slab * block() * dim * size;
}

char* Pages::keys(int64_t row, int64_t number, int64_t layer) const {
  return at(keys_, key_dim(), row, number, layer);
}

char* Pages::values(int64_t row, int64_t number, int64_t layer) const {
  return at(values_, value_dim(), row, number, layer);
}

}  // namespace mlxnb
