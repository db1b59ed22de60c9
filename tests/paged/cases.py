"""Random blocks in a shuffled pool, and attention over them computed the long way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from hypothesis import strategies as st

from mlxnb.cache.pool import BLOCK, SLAB

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A call of paged attention; ``lengths`` include the ``width`` new tokens."""

    lengths: tuple[int, ...]
    width: int = 1
    heads: int = 2
    share: int = 1
    dim: int = 64
    value_dim: int = 0
    layers: int = 2
    layer: int = 1
    window: int | None = None
    sinks: bool = False
    seed: int = 0

    def arrays(self, dtype: mx.Dtype = mx.float32) -> dict[str, Any]:
        """Arguments of ``paged_attention``. What no row has is NaN: nobody may look at it."""
        random = np.random.default_rng(self.seed)
        blocks = [-(-length // BLOCK) for length in self.lengths]
        slots = sum(blocks) + random.integers(0, 5)
        slabs = -(-int(slots) // SLAB)
        places = random.permutation(slabs * SLAB)[: sum(blocks)]
        table = np.zeros((len(blocks), max(blocks)), np.int32)
        pools = {
            name: np.full((self.layers, self.heads, slabs * SLAB, BLOCK, dim), np.nan, np.float32)
            for name, dim in (("keys", self.dim), ("values", self.value_dim or self.dim))
        }
        at = 0
        for row, (count, length) in enumerate(zip(blocks, self.lengths, strict=True)):
            table[row, :count] = places[at : at + count]
            at += count
            for number, place in enumerate(table[row, :count]):
                tokens = min(BLOCK, length - number * BLOCK)
                for pool in pools.values():
                    shape = (self.layers, self.heads, tokens, pool.shape[-1])
                    pool[:, :, place, :tokens] = random.normal(size=shape)
            table[row, count:] = table[row, 0]
        queries = random.normal(
            size=(len(blocks), self.heads * self.share, self.width, self.dim)
        ).astype(np.float32)
        return {
            "queries": mx.array(queries).astype(dtype),
            **{
                name: [
                    mx.array(np.ascontiguousarray(pool[:, :, n * SLAB : (n + 1) * SLAB])).astype(
                        dtype
                    )
                    for n in range(slabs)
                ]
                for name, pool in pools.items()
            },
            "table": mx.array(table),
            "lengths": mx.array(self.lengths, dtype=mx.int32),
            "layer": self.layer,
            "scale": self.dim**-0.5,
            "window": self.window,
            "sinks": mx.array(random.normal(size=self.heads * self.share)).astype(dtype)
            if self.sinks
            else None,
        }


def long_way(
    queries: mx.array,
    keys: list[mx.array],
    values: list[mx.array],
    table: mx.array,
    lengths: mx.array,
    layer: int,
    scale: float,
    window: int | None,
    sinks: mx.array | None,
) -> Array:
    """Each query by itself, in float64."""
    pools = [
        np.concatenate([np.array(s.astype(mx.float32)[layer]) for s in p], axis=1)
        for p in (keys, values)
    ]
    q = np.array(queries.astype(mx.float32), np.float64)
    share = q.shape[1] // pools[0].shape[0]
    out = np.zeros((*q.shape[:3], pools[1].shape[-1]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        last = int(lengths[b].item()) - q.shape[2] + i
        first = max(0, last + 1 - window) if window else 0
        at = np.arange(first, last + 1)
        rows, tokens = np.array(table)[b, at // BLOCK], at % BLOCK
        k, v = (pool[h // share, rows, tokens].astype(np.float64) for pool in pools)
        scores = scale * k @ q[b, h, i]
        extra = [float(sinks[h].item())] if sinks is not None else []
        top = max([scores.max(), *extra])
        weights = np.exp(scores - top)
        total = weights.sum() + sum(np.exp(e - top) for e in extra)
        out[b, h, i] = weights @ v / total
    return out


EDGES = [
    Case((1,)),
    Case((15,)),
    Case((16,)),
    Case((17,)),
    Case((255,), heads=1),
    Case((257,), heads=1, dim=80),
    Case((16, 17, 1, 40), share=3),
    Case((300, 3), heads=1, share=4, seed=3),
    Case((33, 64), dim=80, share=2),
    Case((33, 7), dim=96),
    Case((33, 7), dim=128, share=8, heads=1),
    Case((20,), dim=256),
    Case((50,), dim=96, value_dim=64),
    Case((3, 20), width=2),
    Case((40, 90), width=5, share=2),
    Case((100,), window=1),
    Case((100, 12), window=16, share=2),
    Case((100, 12), window=33),
    Case((64, 30), width=4, window=7),
    Case((100, 1), sinks=True, share=2),
    Case((100, 31), sinks=True, window=20, width=3),
    Case((10,), layers=1, layer=0),
]


@st.composite
def any_case(draw: st.DrawFn, longest: int = 120, widest: int = 6) -> Case:
    """Cases of all kinds, small enough for a few milliseconds each."""
    width = draw(st.integers(1, widest))
    lengths = draw(st.lists(st.integers(width, longest), min_size=1, max_size=4))
    return Case(
        tuple(lengths),
        width,
        heads=draw(st.integers(1, 3)),
        share=draw(st.sampled_from([1, 2, 3, 4])),
        dim=draw(st.sampled_from([64, 80, 96, 128])),
        layer=draw(st.integers(0, 1)),
        window=draw(st.none() | st.integers(1, 40)),
        sinks=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    )
