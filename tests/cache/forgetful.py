"""Caches of models that cannot be rewound, in which each number says what it has come from."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from mlxnb import mlxlm
from mlxnb.cache.disk.tier import DiskTier
from mlxnb.cache.layout import Layout
from mlxnb.cache.live import Live
from mlxnb.cache.plan import Plan
from mlxnb.cache.store import PrefixCache
from mlxnb.mlxlm.door import cache as mlx_caches
from mlxnb.records.tokens import pack, unpack

from .kv import numbers

WINDOW = 24
STATE = 2000
"""Numbers in a state."""
PRIME = 65521
HEADS, DIM = 2, 4


class Model:
    """As much of a model as caches are made from: keys that are kept, windows, states."""

    def __init__(self, kept: int, windows: int, states: int, dtype: mx.Dtype = mx.float32) -> None:
        self.kept, self.windows, self.states, self.dtype = kept, windows, states, dtype
        self.layers = [None] * (kept + windows + states)

    def make_cache(self) -> list[Any]:
        kept = [mlx_caches.KVCache() for _ in range(self.kept)]
        windows = [mlx_caches.RotatingKVCache(max_size=WINDOW) for _ in range(self.windows)]
        return [*kept, *windows, *(mlx_caches.ArraysCache(size=1) for _ in range(self.states))]

    def layout(self) -> Layout:
        caches = mlxlm.new_caches(self)
        take_in(caches, [1], 0)
        return Layout.of(caches)


KINDS = {
    "windows": (1, 2, 0),
    "states": (1, 0, 2),
    "both": (1, 1, 1),
    "states alone": (0, 0, 2),
}


def state_of(tokens: list[int], start: int = 0) -> int:
    """A number that depends on each token and its place; those of parts can be added."""
    return sum((token + 1) * (place + 1) for place, token in enumerate(tokens, start)) % PRIME


def take_in(caches: list[Any], tokens: list[int], start: int) -> None:
    """What a model does when tokens are fed to it."""
    for number, cell in enumerate(mlxlm.cells(caches)):
        if mlxlm.kind_of(cell) == "state":
            before = 0 if cell[0] is None else int(cell[0][0, 0].item())
            now = (before + state_of(tokens, start)) % PRIME
            cell[0] = mx.full((1, STATE), float(now))
            continue
        column = mx.array(numbers(tokens, start, number))[None, None, :, None]
        keys = mx.broadcast_to(column, (1, HEADS, len(tokens), DIM))
        cell.update_and_fetch(keys, -keys)
    mlxlm.evaluate(caches)


def feed(live: Live, tokens: list[int]) -> None:
    assert live.caches is not None
    take_in(live.caches, tokens, live.length)
    live.tokens.extend(pack(tokens))


def assert_sound(live: Live) -> None:
    """All of its cells are what its tokens make them."""
    caches, tokens = live.kv(), unpack(bytes(live.tokens))
    assert mlxlm.lengths(caches) <= {len(tokens)}
    assert live.caches is None or mlxlm.nbytes(live.caches) <= live.reserved
    for number, cell in enumerate(mlxlm.cells(caches)):
        kind = mlxlm.kind_of(cell)
        if not tokens:
            assert cell.empty() or not cell.offset
            continue
        if kind == "state":
            assert (cell[0] == float(state_of(tokens))).all().item()
            continue
        seen = tokens if kind == "kept" else tokens[-WINDOW:]
        wanted = mx.array(numbers(seen, len(tokens) - len(seen), number))[None, None, :, None]
        keys, values = cell.keys[:, :, : len(tokens)], cell.values[:, :, : len(tokens)]
        if kind == "window":
            keys, values = (cell._temporal_order(array) for array in (cell.keys, cell.values))
            keys, values = keys[:, :, -len(seen) :], values[:, :, -len(seen) :]
        assert mx.all(keys == wanted).item() and mx.all(values == -wanted).item()


# --- turns ------------------------------------------------------------------------------------


def store_of(
    budget: int, kind: str = "both", key: str = "model", disk: DiskTier | None = None
) -> PrefixCache:
    store = PrefixCache(budget, disk)
    add_model(store, kind, key)
    return store


def add_model(store: PrefixCache, kind: str, key: str) -> None:
    model = Model(*KINDS[kind])
    store.register(key, key, model, model.layout())


def planned(
    store: PrefixCache,
    prompt: list[int],
    owner: str | None = None,
    marks: tuple[int, ...] = (),
    key: str = "model",
) -> Plan:
    return store.plan(key, "", pack(prompt), owner, marks=marks)


def begun(store: PrefixCache, plan: Plan, key: str = "model") -> Live:
    """Start a sequence and compute the rest of its prompt, as a lane does it."""
    live = store.admit(key, plan)
    assert live.length == plan.matched
    assert_sound(live)
    left = unpack(plan.prompt)[live.length :]
    while left:
        count = live.until_mark(len(left))
        feed(live, left[:count])
        left = left[count:]
        if live.due:
            store.room.checkpoint(live)
    return live


def talk(
    store: PrefixCache,
    prompt: list[int],
    owner: str | None = None,
    marks: tuple[int, ...] = (),
    key: str = "model",
) -> Plan:
    """A whole turn; returns its plan as it was carried out."""
    plan = planned(store, prompt, owner, marks, key)
    live = begun(store, plan, key)
    assert_sound(live)
    store.retire(live)
    return plan
