#pragma once

#include <memory>
#include <optional>

#include "pages.h"

namespace mlxnb {

/// Write new keys (rows, heads, n, key_dim) and values into the rows' blocks, in place.
///
/// MLX knows nothing of it: an operation that has to see what was written takes the result, a
/// byte, as its `after`. The first counts[r] of the n tokens are written.
mx::array paged_write(std::shared_ptr<const Pages> pages, int layer, const mx::array& keys,
                      const mx::array& values, const std::optional<mx::array>& after);

/// Causal attention of queries (rows, query_heads, n, key_dim) over each row's tokens.
///
/// Query i of row r stands at starts[r] + i and sees the tokens up to there that were written, no
/// more than `window` of them if that is not 0. The result is (rows, query_heads, n, value_dim),
/// its memory (rows, n, query_heads, value_dim).
mx::array paged_attention(std::shared_ptr<const Pages> pages, int layer, const mx::array& queries,
                          float scale, int window, const std::optional<mx::array>& sinks,
                          const std::optional<mx::array>& after);

}  // namespace mlxnb
