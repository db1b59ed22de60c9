"""Which models can attend in place, and how they are made to.

Most of mlx-lm's model modules import ``scaled_dot_product_attention`` by name and pass it their
cache. That name is rebound in the module of a loaded model; a cache that is not paged goes to
what stood there before.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import mlx.core as mx

from mlxnb import mlxlm
from mlxnb.cache.paged import PagedKVCache, PagedLayer, paged_caches
from mlxnb.cache.paged_pool import PagedPool
from mlxnb.cache.paged_sequence import PagedSequence

log = logging.getLogger(__name__)

NAME = "scaled_dot_product_attention"
TOKENS = 19
"""Tokens of the trial: more than a block."""

Attention = Callable[..., mx.array]


def rebind(model: Any) -> bool:
    """Let the model's own modules attend in place where they are given a paged cache.

    Returns
    -------
    bool
        Whether there was such a name to rebind; doing it twice does no harm.
    """
    found = False
    for module in _modules(model):
        standing = getattr(module, NAME, None)
        if callable(standing):
            found = True
            if not hasattr(standing, "unpaged"):
                setattr(module, NAME, _in_place(standing))
    return found


def _modules(model: Any) -> Iterator[ModuleType]:
    """The Python modules in which the classes of the model's parts are defined."""
    for name in sorted({type(part).__module__ for part in model.modules()}):
        if name in sys.modules and not name.startswith("mlx.nn"):
            yield sys.modules[name]


def _in_place(standing: Attention) -> Attention:
    def scaled_dot_product_attention(
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        cache: Any,
        scale: float,
        mask: Any,
        sinks: mx.array | None = None,
    ) -> mx.array:
        if isinstance(cache, PagedLayer) and cache.owns(keys):
            return cache.attend(queries, scale, mask, sinks)
        out: mx.array = ours.unpaged(queries, keys, values, cache, scale, mask, sinks)
        return out

    ours: Any = scaled_dot_product_attention
    ours.unpaged = standing  # native kernels may take this place later
    return scaled_dot_product_attention


def supports_paging(model: Any, vocab: int) -> bool:
    """Whether the model gives the same logits on a paged cache, alone and in a batch.

    The model is rebound and tried: a few tokens in two chunks and one by one, then two rows of
    different lengths together.
    """
    tokens = [(vocab // 3 + 37 * number) % vocab for number in range(TOKENS)]
    try:
        caches = mlxlm.new_caches(model)
        if not (mlxlm.plain(caches) and rebind(model)):
            return False
        expected = _logits(model, caches, tokens)
        pool = PagedPool(mlxlm.shapes(caches))
        sequence = PagedSequence(pool)
        paged = paged_caches(sequence)
        found = _logits(model, paged, tokens)
        return same_logits(found, expected) and _batch_agrees(model, paged, expected, tokens)
    except Exception as error:
        log.info("the model keeps contiguous caches: %s", error)
        return False


def _logits(model: Any, caches: list[Any], tokens: list[int]) -> mx.array:
    """Logits ``(tokens, vocab)``: chunks of 3 and of all but 2, then one by one."""
    cuts = [0, 3, len(tokens) - 2, len(tokens) - 1, len(tokens)]
    parts = []
    for begin, end in itertools.pairwise(cuts):
        parts.append(model(mx.array([tokens[begin:end]]), cache=caches)[0])
        mx.eval(parts[-1], [cache.state for cache in caches])
    return mx.concatenate(parts)


def _batch_agrees(
    model: Any, paged: list[PagedKVCache], expected: mx.array, tokens: list[int]
) -> bool:
    """Two forks, cut to different lengths, are given their next tokens together."""
    lengths = (2, len(tokens) - 1)
    cut = [paged[0].sequence.fork(length) for length in lengths]
    batch = [PagedKVCache.merge(layers) for layers in zip(*map(paged_caches, cut), strict=True)]
    following = mx.array([[tokens[length]] for length in lengths])
    found = model(following, cache=batch)[:, -1]
    return same_logits(found, mx.stack([expected[length] for length in lengths]))


def same_logits(found: mx.array, expected: mx.array) -> bool:
    """Whether two runs agree within what another order of summing may change.

    Relative to the largest logit: 1e-3 in float32, 0.05 in half precision.
    """
    bound = 1e-3 if expected.dtype == mx.float32 else 0.05
    found, expected = found.astype(mx.float32), expected.astype(mx.float32)
    apart = mx.where(found == expected, 0.0, mx.abs(found - expected))  # both may be infinite
    largest = mx.max(mx.where(mx.isfinite(expected), mx.abs(expected), 0.0))
    return bool((mx.max(apart) < bound * largest).item())
