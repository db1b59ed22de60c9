"""Whatever is done with sessions, in whatever order: warm answers are cold answers, in logits."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxnb.cache.paged_pool import in_place
from mlxnb.engine import probe
from mlxnb.sessions.local import LocalEngine

from .families import REWINDABLE, Family
from .world import World

FolderOf = Callable[[str], Path]
TIGHT = [600_000, 1_200_000, 2_400_000]
PLENTY = [2**26]
STEPS = 24


def live(world: World, steps: int) -> None:
    """Some steps, then what was said in each session once more, without reuse."""
    for _ in range(steps):
        world.step()
    for person in world.people[:3]:
        world.replay(person)


@pytest.mark.parametrize("budgets", [PLENTY, TIGHT], ids=["plenty", "evicting"])
@pytest.mark.parametrize("family", REWINDABLE, ids=lambda family: family.name)
def test_warm_is_cold(
    engine: LocalEngine,
    folder_of: FolderOf,
    random_chunks: random.Random,
    family: Family,
    budgets: list[int],
) -> None:
    random_chunks.seed(family.name)
    world = World(engine, folder_of(family.name), family.name, budgets)
    live(world, STEPS)
    assert sum(engine.turns().cached_tokens) > 0


def test_two_models_in_turn_leave_each_other_alone(
    engine: LocalEngine, folder_of: FolderOf, random_chunks: random.Random
) -> None:
    """C14."""
    names = ["llama", "phi3"]
    worlds = [World(engine, folder_of(name), name, TIGHT) for name in names]
    for _ in range(STEPS):
        for world in worlds:
            world.step()


def test_random_lives_reach_what_they_are_there_for(
    engine: LocalEngine, folder_of: FolderOf, random_chunks: random.Random
) -> None:
    """Wide batches, evictions, refusals, every end and every way to a prefix."""
    world = World(engine, folder_of("llama"), "reach", [200_000, *TIGHT])
    missing: set[str] = set()
    for _ in range(20 * STEPS):
        world.step()
        turns = engine.turns(wide=True)
        reached = {
            "batch": world.widest >= 3,
            "eviction": world.evicted,
            "refusal": world.refused,
            "join": (turns.joined_tokens > 0).any(),
            "ends": {"length", "stop", "cancelled", "error"} <= set(turns.finish_reason),
            "ways": {"hit", "prefix_hit", "fresh"} <= set(turns.cache),
        }
        missing = {name for name, yes in reached.items() if not yes}
        if not missing:
            break
    assert not missing


@pytest.mark.parametrize("name", ["llama", "qwen3", "phi3"])
def test_warm_is_cold_without_native_code(
    engine: LocalEngine,
    folder_of: FolderOf,
    random_chunks: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.setenv("MLXNB_NATIVE", "0")
    live(World(engine, folder_of(name), f"{name} in plain MLX", TIGHT), STEPS)


@pytest.mark.parametrize("budgets", [PLENTY, TIGHT], ids=["plenty", "evicting"])
def test_warm_is_cold_on_blocks_without_native_code(
    engine: LocalEngine,
    folder_of: FolderOf,
    random_chunks: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    budgets: list[int],
) -> None:
    """MLX's own operations write and gather blocks, as they do beside the Metal kernels."""
    monkeypatch.setenv("MLXNB_NATIVE", "0")
    monkeypatch.setenv("MLXNB_PAGED", "1")
    monkeypatch.setattr(probe, "in_place", lambda: True)
    world = World(engine, folder_of("llama"), "blocks in plain MLX", budgets)
    assert all(space.paged for space in engine.core.store.spaces())
    live(world, STEPS)


@pytest.mark.usefixtures("contiguous")
@pytest.mark.parametrize("budgets", [PLENTY, TIGHT], ids=["plenty", "evicting"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "phi3"])
def test_warm_is_cold_on_contiguous_caches(
    engine: LocalEngine,
    folder_of: FolderOf,
    random_chunks: random.Random,
    name: str,
    budgets: list[int],
) -> None:
    live(World(engine, folder_of(name), f"{name} contiguous", budgets), STEPS)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_what_attends_in_place_is_paged_where_the_device_does(
    engine: LocalEngine, folder_of: FolderOf, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """So that the lives above are lived on paged caches at all."""
    monkeypatch.delenv("MLXNB_PAGED", raising=False)
    runtime = engine.core.runtime(engine.load(folder_of(name), progress=False).name)
    space = engine.core.store.space(runtime.key)
    assert runtime.paged == space.paged == (in_place() and name == "llama")
