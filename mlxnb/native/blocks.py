"""Transformer blocks as two kernels each: attention over a paged cache, and the feed-forward half.

A decode step of a small model is hundreds of operations of a few microseconds each, and as much
again goes into making and scheduling them. A block of the plain kind, pre-norm with SwiGLU, as
Llama and Qwen have it, is two instead.
"""

from __future__ import annotations

import functools
from typing import Any

import mlx.core as mx

from mlxnb.native.extension import available, extension
from mlxnb.native.layers import is_ours, made_over, turn_of

_HOMES = {f"mlx_lm.models.{name}" for name in ("llama", "qwen2", "qwen3")}


class Fused:
    """The two kernels of a block, which hold the block's arrays as they are now.

    Raises
    ------
    AttributeError, KeyError, TypeError, ValueError
        The block has no such layers, or the kernels have no code for them.
    """

    def __init__(self, block: Any) -> None:
        native, attention, mlp = extension(), block.self_attn, block.mlp
        queries, keys = attention.get("q_norm"), attention.get("k_norm")
        self.attend = native.SelfAttention(
            _scale(block.input_layernorm),
            *map(_matrix, (attention.q_proj, attention.k_proj, attention.v_proj)),
            _matrix(attention.o_proj),
            None if queries is None else _scale(queries),
            None if keys is None else _scale(keys),
            *turn_of(attention.rope),
            attention.n_heads,
            attention.n_kv_heads,
            attention.scale,
        )
        self.feed = native.FeedForward(
            _scale(block.post_attention_layernorm),
            *map(_matrix, (mlp.gate_proj, mlp.up_proj, mlp.down_proj)),
        )


def fuse(block: Any) -> bool:
    """Let a transformer block of the plain kind use the two kernels; False: it is none.

    Its layers use kernels of ours already. Arrays that are put into it later are not seen.
    """
    kind: Any = type(block)
    if kind.__name__ != "TransformerBlock" or not _is_plain(block):
        return False
    try:
        block.fused = Fused(block)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    block.__class__ = _over(kind)
    return True


def _is_plain(block: Any) -> bool:
    halves = [block.get("self_attn"), block.get("mlp")]
    homes = {type(part).__module__ for part in (block, *halves)}
    if len(homes) > 1 or not homes <= _HOMES:
        return False
    return all(is_ours(layer) for half in halves for layer in half.children().values())


@functools.cache
def _over(kind: Any) -> Any:
    def call(block: Any, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        return _called(kind, block, x, mask, cache)

    return made_over(kind, __call__=call)


def _called(kind: Any, block: Any, x: mx.array, mask: Any, cache: Any) -> mx.array:
    """The block's own ``__call__``, by kernels as far as they go."""
    if x.dtype != mx.float32 or not available():
        out: mx.array = kind.__call__(block, x, mask, cache)
        return out
    fused, attended = block.fused, None
    if hasattr(cache, "write_and_attend"):
        kernel = functools.partial(fused.attend, x)
        attended = cache.write_and_attend(x.shape[1], mask, kernel)
    if attended is None:
        attended = x + block.self_attn(block.input_layernorm(x), mask, cache)
    fed: mx.array = fused.feed(attended)
    return fed


def _scale(norm: Any) -> Any:
    return extension().Scale(norm["weight"], norm.eps)


def _matrix(layer: Any) -> Any:
    make = extension().Matrix
    if "scales" in layer:
        arrays = layer["weight"], layer["scales"], layer.get("biases")
        return make(*arrays, layer.get("bias"), layer.group_size, layer.bits)
    return make(layer["weight"], bias=layer.get("bias"))
