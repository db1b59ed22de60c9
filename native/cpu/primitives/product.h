#pragma once

#include <optional>

#include "base.h"

namespace mlxnb {

/// W of a product and its bias, evaluated and held, for primitives that make several products.
class Matrix {
 public:
  /// As `quantized_matmul` takes them; without scales a dense matrix, as `linear` takes it.
  Matrix(const mx::array& w, const std::optional<mx::array>& scales,
         const std::optional<mx::array>& biases, const std::optional<mx::array>& bias, int group,
         int bits);

  int64_t rows() const { return weights_.rows; }
  int64_t depth() const { return weights_.depth; }

  /// The product with `count` rows of x, one after another.
  Product of(const float* x, int64_t count, float* out) const;

 private:
  std::vector<mx::array> arrays_;
  Weights weights_{};
  const void* bias_{nullptr};
  Type bias_type_{Type::f32};
};

/// x Wᵀ + bias with W (rows, depth) quantised in MLX's affine mode: 4 or 8 bits, groups of 32, 64
/// or 128. x is (..., depth), the result (..., rows) in the type that x and the scales promote to.
///
/// Throws std::invalid_argument for layouts and shapes that the kernels do not have.
mx::array quantized_matmul(const mx::array& x, const mx::array& w, const mx::array& scales,
                           const mx::array& biases, const std::optional<mx::array>& bias,
                           int group, int bits);

/// x Wᵀ + bias with W (rows, depth) in float32, float16 or bfloat16.
mx::array linear(const mx::array& x, const mx::array& w, const std::optional<mx::array>& bias);

/// Rows of a quantised table (rows, depth) for ids of any shape: (..., depth), in the scales' type.
///
/// Ids that are negative count from the end; others beyond the table give zeros.
mx::array quantized_embedding(const mx::array& ids, const mx::array& w, const mx::array& scales,
                              const mx::array& biases, int group, int bits);

}  // namespace mlxnb
