#pragma once

#include <memory>
#include <vector>

#include "base.h"

namespace mlxnb {

/// The rows of one call of a model over a pool of blocks: slabs, block tables, and new tokens.
///
/// A slab of keys or values is (layers, heads, slots, block, dim), evaluated; the slabs are held,
/// so MLX never gives their memory to another array, and what is written through `paged_write`
/// stays in the arrays that the pool has.
class Pages {
 public:
  /// `table` is (rows, width): position of the slab in the lists × slots of a slab + slot. Row r
  /// has starts[r] tokens and gets counts[r] more, at most; the rest of a call's is padding.
  ///
  /// Throws std::invalid_argument for what does not fit together or points outside of the slabs.
  Pages(std::vector<mx::array> keys, std::vector<mx::array> values, std::vector<int32_t> table,
        int64_t width, std::vector<int32_t> starts, std::vector<int32_t> counts);

  int64_t rows() const { return static_cast<int64_t>(starts_.size()); }
  int64_t start(int64_t row) const { return starts_[row]; }
  int64_t count(int64_t row) const { return counts_[row]; }
  const int32_t* starts() const { return starts_.data(); }
  int64_t layers() const { return shape_[0]; }
  int64_t heads() const { return shape_[1]; }
  int64_t slots() const { return shape_[2]; }
  int64_t block() const { return shape_[3]; }
  int64_t key_dim() const { return shape_[4]; }
  int64_t value_dim() const { return value_dim_; }
  mx::Dtype dtype() const { return dtype_; }
  int64_t room() const { return width_ * block(); }

  /// Where the keys and values of a row's block begin, at head 0 of a layer.
  char* keys(int64_t row, int64_t number, int64_t layer) const;
  char* values(int64_t row, int64_t number, int64_t layer) const;

 private:
  void check(std::vector<mx::array>& slabs) const;
  char* at(const std::vector<char*>& slabs, int64_t dim, int64_t row, int64_t number,
           int64_t layer) const;

  std::vector<mx::array> arrays_;
  std::vector<char*> keys_, values_;
  mx::Shape shape_;
  int64_t value_dim_;
  mx::Dtype dtype_;
  std::vector<int32_t> table_;
  int64_t width_;
  std::vector<int32_t> starts_, counts_;
};

}  // namespace mlxnb
