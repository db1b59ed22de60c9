"""A family counts for parity only where mistakes show: each must, in every trial."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxnb import mlxlm

from .families import FAMILIES, FORGETFUL, REWINDABLE, VOCABULARY, Family
from .spy import TOLERANCE, Logits

TRIALS = 16
BLOCK = 16
WRONG = 10 * TOLERANCE
"""A gap that shows."""


class Trial:
    """A random prefix, what comes after it, and the logits ``(4, vocab)`` of that, cold."""

    def __init__(self, model: Any, seed: int) -> None:
        self.model = model
        self.random = random.Random(seed)
        self.prefix = self.tokens(self.random.randint(BLOCK + 1, 64))
        self.rest = self.tokens(4)
        self.cold = self.run(mlxlm.new_caches(model), [*self.prefix, *self.rest])[-4:]

    @functools.cached_property
    def caches(self) -> mlxlm.Caches:
        """Of the prefix; take copies."""
        return self.filled(self.prefix)

    @functools.cached_property
    def others(self) -> list[Any]:
        """The cells of as many other tokens."""
        return mlxlm.cells(self.filled(self.tokens(len(self.prefix))))

    def tokens(self, count: int) -> list[int]:
        return [self.random.randrange(VOCABULARY) for _ in range(count)]

    def run(self, caches: mlxlm.Caches, tokens: list[int]) -> Logits:
        return np.array(self.model(mx.array([tokens]), cache=caches)[0])

    def filled(self, tokens: list[int]) -> mlxlm.Caches:
        caches = mlxlm.new_caches(self.model)
        self.run(caches, tokens)
        return caches

    def gap(self, caches: mlxlm.Caches) -> float:
        """How far the logits after these caches are from the cold ones, relative to the largest."""
        warm = np.concatenate([self.run(caches, [token]) for token in self.rest])
        assert np.isfinite(warm).all()
        return float(np.abs(warm - self.cold).max() / np.abs(self.cold).max())


@pytest.fixture(scope="module", params=FAMILIES.values(), ids=lambda family: family.name)
def trials(request: pytest.FixtureRequest) -> list[Trial]:
    model = request.param.model()
    return [Trial(model, seed) for seed in range(TRIALS)]


@pytest.fixture(scope="module", params=REWINDABLE, ids=lambda family: family.name)
def rewindable_trials(request: pytest.FixtureRequest) -> list[Trial]:
    model = request.param.model()
    return [Trial(model, seed) for seed in range(TRIALS)]


@pytest.fixture(scope="module", params=FORGETFUL, ids=lambda family: family.name)
def forgetful_trials(request: pytest.FixtureRequest) -> list[Trial]:
    model = request.param.model()
    return [Trial(model, seed) for seed in range(TRIALS)]


def test_the_families_that_the_project_promises_are_among_them() -> None:
    names = {family.name for family in REWINDABLE}
    assert {"llama", "qwen2", "qwen3", "mistral", "phi3", "olmo2"} <= names


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_a_family_is_rewindable_where_all_its_layers_keep_all_keys(family: Family) -> None:
    rewindable = mlxlm.rewindable(mlxlm.new_caches(family.model()))
    assert rewindable == (family not in FORGETFUL)


def test_a_sound_prefix_gives_the_cold_logits(trials: list[Trial]) -> None:
    assert max(t.gap(t.filled(t.prefix)) for t in trials) < TOLERANCE / 10


def test_one_wrong_token_shows(trials: list[Trial]) -> None:
    def damaged(trial: Trial) -> mlxlm.Caches:
        tokens = list(trial.prefix)
        place = trial.random.randrange(len(tokens))
        tokens[place] = (tokens[place] + trial.random.randrange(1, VOCABULARY)) % VOCABULARY
        return trial.filled(tokens)

    assert min(t.gap(damaged(t)) for t in trials) > WRONG


def test_a_foreign_block_shows(rewindable_trials: list[Trial]) -> None:
    def damaged(trial: Trial) -> mlxlm.Caches:
        ours, others = trial.filled(trial.prefix), trial.filled(trial.tokens(len(trial.prefix)))
        start = trial.random.randrange(len(trial.prefix) - BLOCK + 1)
        block = (slice(None), slice(None), slice(start, start + BLOCK))
        for mine, other in zip(mlxlm.cells(ours), mlxlm.cells(others), strict=True):
            mine.keys[block] = other.keys[block]
            mine.values[block] = other.values[block]
        return ours

    assert min(t.gap(damaged(t)) for t in rewindable_trials) > WRONG


def test_positions_shifted_by_one_show(rewindable_trials: list[Trial]) -> None:
    def damaged(trial: Trial) -> mlxlm.Caches:
        """The prefix computed one position too late, without what stood before it."""
        late, length = trial.filled([trial.prefix[0], *trial.prefix]), len(trial.prefix)
        for cache in mlxlm.cells(late):
            cache.keys[:, :, :length] = cache.keys[:, :, 1 : length + 1]
            cache.values[:, :, :length] = cache.values[:, :, 1 : length + 1]
            cache.offset = length
        return late

    assert min(t.gap(damaged(t)) for t in rewindable_trials) > WRONG


# --- models that cannot be rewound: one cell of their caches is damaged -------------------------

Damage = Callable[[Trial, Any, int], None]
"""Damages a cell, given its number among those of the trial."""


def an_array_of_another_state(trial: Trial, cell: Any, number: int) -> None:
    at = trial.random.randrange(len(cell.cache))
    cell[at] = trial.others[number][at]


def a_state_of_one_token_before(trial: Trial, cell: Any, number: int) -> None:
    before = mlxlm.cells(trial.filled(trial.prefix[:-1]))
    cell.cache = list(before[number].cache)


def a_tail_of_other_keys(trial: Trial, cell: Any, number: int) -> None:
    other, length = trial.others[number], trial.random.randint(1, min(BLOCK, seen(cell)))
    tail = (slice(None), slice(None), slice(cell.offset - length, cell.offset))
    cell.keys[tail] = other.keys[tail]
    cell.values[tail] = other.values[tail]


def keys_shifted_by_one(trial: Trial, cell: Any, number: int) -> None:
    """They end one token too early."""
    cell.keys[:, :, 1 : cell.offset] = cell.keys[:, :, : cell.offset - 1]
    cell.values[:, :, 1 : cell.offset] = cell.values[:, :, : cell.offset - 1]


TO_KEYS: list[Damage] = [a_tail_of_other_keys, keys_shifted_by_one]
DAMAGES: dict[str, list[Damage]] = {
    "ArraysCache": [an_array_of_another_state, a_state_of_one_token_before],
    "ChunkedKVCache": TO_KEYS,
    "KVCache": TO_KEYS,
    "RotatingKVCache": TO_KEYS,
}


def seen(cell: Any) -> int:
    """How many of a cell's last tokens the next one sees; a state counts as one.

    None where a chunk begins: no damage to the last chunk shows then.
    """
    if hasattr(cell, "chunk_size"):
        return int(cell.offset % cell.chunk_size)
    if hasattr(cell, "max_size"):
        return min(cell.offset, cell.max_size - 1)
    return getattr(cell, "offset", 1)


def gaps_of(damage: Damage, kind: str, trials: list[Trial]) -> list[float]:
    """A gap for each trial that has cells of this kind, with one of them damaged."""
    gaps = []
    for trial in trials:
        caches = copy.deepcopy(trial.caches)
        numbered = list(enumerate(mlxlm.cells(caches)))
        if those := [(n, c) for n, c in numbered if type(c).__name__ == kind and seen(c)]:
            number, cell = trial.random.choice(those)
            damage(trial, cell, number)
            gaps.append(trial.gap(caches))
    return gaps


def test_every_kind_of_cell_has_its_damages(forgetful_trials: list[Trial]) -> None:
    kinds = {type(cell).__name__ for cell in mlxlm.cells(forgetful_trials[0].caches)}
    assert kinds <= DAMAGES.keys()


def test_damage_to_one_cell_shows(forgetful_trials: list[Trial]) -> None:
    smallest = {
        (kind, damage.__name__): min(gaps)
        for kind, damages in DAMAGES.items()
        for damage in damages
        if (gaps := gaps_of(damage, kind, forgetful_trials))
    }
    assert {which: gap for which, gap in smallest.items() if gap <= WRONG} == {}
