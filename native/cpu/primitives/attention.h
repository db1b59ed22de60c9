#pragma once

#include <optional>

#include "base.h"

namespace mlxnb {

/// Grouped-query attention, softmax(scale q kᵀ + mask) v.
///
/// q is (batch, heads, queries, dim), k (batch, kv_heads, keys, dim), v (batch, kv_heads, keys,
/// value_dim), all of one floating type; slices of larger arrays are read where they lie. The
/// result has q's type; its memory is (batch, queries, heads, value_dim), so that the usual
/// transposition after it costs nothing. A mask broadcasts to (batch, heads, queries, keys). A
/// query that sees no key gives some finite value.
///
/// Throws std::invalid_argument for shapes and types that the kernels do not have.
mx::array attention(const mx::array& q, const mx::array& k, const mx::array& v, float scale,
                    bool causal, int window, const std::optional<mx::array>& mask,
                    const std::optional<mx::array>& sinks);

}  // namespace mlxnb
