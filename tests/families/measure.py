"""What an architecture's caches are, what they hold, and whether a saved one goes on as it was."""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from architectures import VOCABULARY, build

from mlxnb import mlxlm
from mlxnb.engine.probe import can_batch, examine

TRIALS = 3
PARITY = 1e-4
"""A saved cache goes on as a cold run, relative to the largest logit."""
SHOWS = 1e-3
"""A wrong token shows."""
KINDS = {
    "KVCache": "kv",
    "RotatingKVCache": "window",
    "ChunkedKVCache": "chunked",
    "ArraysCache": "arrays",
}
Logits = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """One architecture. ``parity`` and ``control`` are the largest and the smallest gap.

    ``per_token`` are bytes of KV in the layers that keep all keys, ``fixed`` those of full
    windows, chunks and states; None where a cache is of no known kind.
    """

    name: str
    kinds: dict[str, int]
    reuse: str
    batchable: bool
    parity: float
    control: float
    per_token: int
    fixed: int | None


def measure(name: str) -> Measured:
    """Build an architecture and run it."""
    model = build(name)
    trials = [Trial(model, seed) for seed in range(TRIALS)]
    parity = max(trial.parity() for trial in trials)
    control = min(trial.control() for trial in trials)
    held = mlxlm.cells(trials[0].filled(trials[0].prefix))
    return Measured(
        name=name,
        kinds=dict(Counter(kind_of(cell) for cell in held)),
        reuse=reuse_of(model),
        batchable=_batchable(model),
        parity=parity,
        control=control,
        per_token=sum(_slot(cell) for cell in held if kind_of(cell) == "kv"),
        fixed=_fixed(held),
    )


def reuse_of(model: Any) -> str:
    """How a prefix is reused, as the engine has it once it has tried the model.

    ``prefix``: up to any token, as every layer keeps all of its keys. ``checkpoint``: from where
    the caches were saved. ``none``: not at all.
    """
    return examine(model, VOCABULARY).reuse


# --- caches -----------------------------------------------------------------------------------


def kind_of(cell: Any) -> str:
    """``kv``, ``window``, ``chunked``, ``arrays`` or ``other``."""
    return KINDS.get(type(cell).__name__, "other")


def _slot(cell: Any) -> int:
    """Bytes of one token's key and value."""
    keys, values = cell.keys, cell.values
    return int(keys.nbytes // keys.shape[2] + values.nbytes // values.shape[2])


def _fixed(held: list[Any]) -> int | None:
    """Bytes of what does not grow with the number of tokens."""
    sizes = {
        "kv": lambda cell: 0,
        "window": lambda cell: _slot(cell) * cell.max_size,
        "chunked": lambda cell: _slot(cell) * cell.chunk_size,
        "arrays": lambda cell: cell.nbytes,
    }
    kinds = {kind_of(cell) for cell in held}
    return None if "other" in kinds else sum(sizes[kind_of(cell)](cell) for cell in held)


def _batchable(model: Any) -> bool:
    try:
        return can_batch(model, VOCABULARY)
    except Exception:  # as when a model is loaded: it runs one request at a time then
        return False


# --- logits -----------------------------------------------------------------------------------


class Trial:
    """A random prefix, three tokens after it, and their logits ``(3, vocab)`` in one cold run."""

    def __init__(self, model: Any, seed: int) -> None:
        self.model = model
        self.random = random.Random(seed)
        self.prefix = self._tokens(self.random.randint(20, 60))
        self.rest = self._tokens(3)
        self.cold = self._run(mlxlm.new_caches(model), [*self.prefix, *self.rest])[-3:]

    def filled(self, tokens: list[int]) -> mlxlm.Caches:
        """Caches of these tokens, fed as a prompt is: in chunks, and the last one by itself."""
        caches = mlxlm.new_caches(self.model)
        half = len(tokens) // 2
        for chunk in (tokens[:half], tokens[half:-1], tokens[-1:]):
            self._run(caches, chunk)
        return caches

    def parity(self) -> float:
        """The gap of caches that were saved, while what they were saved of went on."""
        caches = self.filled(self.prefix)
        saved = copy.deepcopy(caches)
        self._run(caches, self._tokens(4))
        self._run(caches, self._tokens(1))
        return self._gap(saved)

    def control(self) -> float:
        """The gap of caches with one wrong token."""
        tokens, place = list(self.prefix), self.random.randrange(len(self.prefix))
        tokens[place] = (tokens[place] + self.random.randrange(1, VOCABULARY)) % VOCABULARY
        return self._gap(self.filled(tokens))

    def _gap(self, caches: mlxlm.Caches) -> float:
        """How far the logits after these caches are from the cold ones, relative to the largest."""
        warm = np.concatenate([self._run(caches, [token]) for token in self.rest])
        assert np.isfinite(warm).all()
        return float(np.abs(warm - self.cold).max() / np.abs(self.cold).max())

    def _run(self, caches: mlxlm.Caches, tokens: list[int]) -> Logits:
        return np.array(self.model(mx.array([tokens]), cache=caches)[0, :, :VOCABULARY])

    def _tokens(self, count: int) -> list[int]:
        return [self.random.randrange(VOCABULARY) for _ in range(count)]
