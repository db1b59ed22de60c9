"""A family counts for parity only where mistakes show: each must, in every trial."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxnb import mlxlm

from .families import FAMILIES, FORGETFUL, REWINDABLE, VOCABULARY, Family
from .spy import TOLERANCE, Logits

TRIALS = 16
BLOCK = 16


class Trial:
    """A random prefix, what comes after it, and the logits ``(4, vocab)`` of that, cold."""

    def __init__(self, model: Any, seed: int) -> None:
        self.model = model
        self.random = random.Random(seed)
        self.prefix = self.tokens(self.random.randint(BLOCK + 1, 64))
        self.rest = self.tokens(4)
        self.cold = self.run(mlxlm.new_caches(model), [*self.prefix, *self.rest])[-4:]

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

    assert min(t.gap(damaged(t)) for t in trials) > 10 * TOLERANCE


def test_a_foreign_block_shows(rewindable_trials: list[Trial]) -> None:
    def damaged(trial: Trial) -> mlxlm.Caches:
        ours, others = trial.filled(trial.prefix), trial.filled(trial.tokens(len(trial.prefix)))
        start = trial.random.randrange(len(trial.prefix) - BLOCK + 1)
        block = (slice(None), slice(None), slice(start, start + BLOCK))
        for mine, other in zip(ours, others, strict=True):
            mine.keys[block] = other.keys[block]
            mine.values[block] = other.values[block]
        return ours

    assert min(t.gap(damaged(t)) for t in rewindable_trials) > 10 * TOLERANCE


def test_positions_shifted_by_one_show(rewindable_trials: list[Trial]) -> None:
    def damaged(trial: Trial) -> mlxlm.Caches:
        """The prefix computed one position too late, without what stood before it."""
        late, length = trial.filled([trial.prefix[0], *trial.prefix]), len(trial.prefix)
        for cache in late:
            cache.keys[:, :, :length] = cache.keys[:, :, 1 : length + 1]
            cache.values[:, :, :length] = cache.values[:, :, 1 : length + 1]
            cache.offset = length
        return late

    assert min(t.gap(damaged(t)) for t in rewindable_trials) > 10 * TOLERANCE
