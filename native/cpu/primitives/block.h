#pragma once

#include <memory>
#include <optional>

#include "pages.h"
#include "product.h"

namespace mlxnb {

/// The weight of a norm over an axis, float32, and its epsilon.
struct Scale {
  mx::array weight;
  float eps;
};

/// How heads turn with their positions, as in `rope`.
struct Turn {
  mx::array frequencies;
  bool adjacent;
  float scale;
};

/// The half of a transformer block that attends: x + o(attention(norm(x))).
///
/// Queries and keys have norms of their own over each head where those are given.
class SelfAttention {
 public:
  /// Throws std::invalid_argument for what does not fit together.
  SelfAttention(Scale norm, std::vector<Matrix> qkvo, std::optional<Scale> q_norm,
                std::optional<Scale> k_norm, Turn turn, int heads, int kv_heads, float scale);

  const Scale norm;
  const Matrix q, k, v, o;
  const std::optional<Scale> q_norm, k_norm;
  const Turn turn;
  const int64_t heads, kv_heads, dim;
  const float scale;
};

/// The other half: x + down(silu(gate(n)) * up(n)), n = norm(x).
class FeedForward {
 public:
  FeedForward(Scale norm, Matrix gate, Matrix up, Matrix down);

  const Scale norm;
  const Matrix gate, up, down;
};

/// x (rows, n, width) float32 after attention over the pages' tokens, causal, in one primitive that
/// also writes the new keys and values; and the byte that a later call of the layer comes `after`.
std::pair<mx::array, mx::array> attend(std::shared_ptr<const SelfAttention> weights,
                                       std::shared_ptr<const Pages> pages, int layer,
                                       const mx::array& x, const std::optional<mx::array>& after);

/// x (..., width) float32 after the feed-forward half.
mx::array feed(std::shared_ptr<const FeedForward> weights, const mx::array& x);

}  // namespace mlxnb
