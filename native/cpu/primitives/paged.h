#pragma once

#include <memory>
#include <optional>

#include "../paged.h"
#include "pages.h"

namespace mlxnb {

/// Tokens (rows, heads, tokens, dim) whose last axis is dense; strides in bytes.
struct Tokens {
  const char* data;
  int64_t row, head, token;

  Tokens(const char* at, int64_t row, int64_t head, int64_t token)
      : data(at), row(row), head(head), token(token) {}
  /// Of an array; a copy is dispatched where its last axis is not dense.
  Tokens(const mx::array& x, mx::Stream stream);
};

/// Write the call's new keys and values into a layer of its blocks.
void write(const Pages& pages, int64_t layer, const Tokens& keys, const Tokens& values);

/// Attention of a call, and the pointers that it points to.
struct PagedCall {
  PagedAttention attention;
  std::vector<const void*> keys, values;
};

/// Look up where each row's blocks begin; `attention.each` is there.
void point(const Pages& pages, int64_t layer, PagedCall& call);

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
