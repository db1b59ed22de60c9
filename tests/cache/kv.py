"""KV that can be checked: each number says which token, place and layer it belongs to."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from mlxnb import mlxlm
from mlxnb.cache.layout import Layout
from mlxnb.cache.live import Live
from mlxnb.cache.plan import Plan
from mlxnb.cache.room import NoRoom
from mlxnb.cache.store import PrefixCache
from mlxnb.mlxlm import LayerShape
from mlxnb.records.tokens import pack, unpack

LAYERS = [LayerShape(2, 4, 4, mx.float32), LayerShape(1, 8, 4, mx.float32)]
TOKEN = sum(shape.nbytes for shape in LAYERS)
"""Bytes of a token's KV."""
SLAB_BYTES = 256 * TOKEN


class Model:
    """As much of a model as caches are made from."""

    def __init__(self) -> None:
        self.layers = [None] * len(LAYERS)


def numbers(tokens: list[int], start: int, layer: int) -> np.ndarray[Any, Any]:
    """A number for each token at its place: ``(tokens,)`` float32, exact."""
    places = np.arange(start, start + len(tokens))
    return (np.array(tokens) + 100 * places + 0.25 * layer).astype(np.float32)


def feed(live: Live, tokens: list[int]) -> None:
    """What a model does when tokens are fed to it."""
    assert live.caches is not None
    start = live.length
    for number, (cache, shape) in enumerate(zip(live.caches, LAYERS, strict=True)):
        column = mx.array(numbers(tokens, start, number))[None, None, :, None]
        keys = mx.broadcast_to(column, (1, shape.heads, len(tokens), shape.key_dim))
        values = -mx.broadcast_to(column, (1, shape.heads, len(tokens), shape.value_dim))
        cache.update_and_fetch(keys, values)
    mlxlm.evaluate(live.caches)
    live.tokens.extend(pack(tokens))


def assert_sound(live: Live) -> None:
    """Its KV is that of its tokens, and its arrays take what is reserved."""
    caches, tokens = live.kv(), unpack(bytes(live.tokens))
    assert mlxlm.lengths(caches) == {len(tokens)}
    for number, cache in enumerate(caches):
        keys, values = cache.keys_and_values()
        wanted = mx.array(numbers(tokens, 0, number))[None, None, :, None]
        assert mx.all(keys == wanted).item() and mx.all(values == -wanted).item()
    if live.pages is None and live.caches is not None:
        assert mlxlm.nbytes(live.caches) == live.reserved


def store_of(budget: int, key: str = "model", paged: bool = False) -> PrefixCache:
    """A store with one model in it."""
    store = PrefixCache(budget)
    store.register(key, key, Model(), Layout(LAYERS), paged)
    return store


def planned(
    store: PrefixCache,
    prompt: list[int],
    owner: str | None = None,
    salt: str = "",
    key: str = "model",
) -> Plan:
    return store.plan(key, salt, pack(prompt), owner)


def begun(store: PrefixCache, plan: Plan, key: str = "model") -> Live:
    """Start a sequence, and compute the rest of its prompt."""
    live = store.admit(key, plan)
    assert live.length == plan.matched
    feed(live, unpack(plan.prompt)[live.length :])
    return live


def talk(
    store: PrefixCache,
    prompt: list[int],
    owner: str | None = None,
    salt: str = "",
    key: str = "model",
) -> Plan:
    """A whole turn; returns its plan as it was carried out."""
    plan = planned(store, prompt, owner, salt, key)
    live = begun(store, plan, key)
    assert_sound(live)
    store.retire(live)
    return plan


def real_bytes(store: PrefixCache) -> int:
    """Bytes of all arrays there are, counted one by one."""
    total = 0
    for space in store.spaces():
        slabs = space.pool._slabs.values()
        total += sum(array.nbytes for slab in slabs for array in (*slab.keys, *slab.values))
        if not space.paged:
            there = (live.caches for live in space.lives if live.caches is not None)
            total += sum(map(mlxlm.nbytes, there))
    return total


__all__ = [
    "LAYERS",
    "SLAB_BYTES",
    "TOKEN",
    "Model",
    "NoRoom",
    "assert_sound",
    "begun",
    "feed",
    "planned",
    "real_bytes",
    "store_of",
    "talk",
]
