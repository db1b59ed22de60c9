"""A wall clock that is set ahead or back while a service runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.limits import Limits
from mlxnb.sessions.serving.steady import Steady

from .test_loads import add_models, scarce
from .test_store import row
from .world import World

YEAR = 365 * 86400.0
Talker = Callable[..., str]


class Wall:
    """A wall clock that is ``off`` by some seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.off, right = 0.0, time.time
        monkeypatch.setattr(time, "time", lambda: right() + self.off)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    return Wall(monkeypatch)


@pytest.mark.parametrize("off", [YEAR, -YEAR])
def test_no_model_is_taken_for_idle(world: World, talker: Talker, wall: Wall, off: float) -> None:
    world.limits = Limits(idle_unload_s=3600.0)
    talker("One.", "Two.")
    world.ask("a")
    wall.off = off
    world.service._models.unload_idle()
    assert world.service.loaded() == ["talker"]
    assert world.ask("b").error is None


def test_the_model_not_used_for_longest_makes_way_all_the_same(
    world: World,
    engine: LocalEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wall: Wall,
) -> None:
    scarce(engine, monkeypatch, room=2)
    add_models(world, tmp_path, "ada", "bob", "cy")
    for name, off in (("ada", YEAR), ("bob", 0.0), ("ada", -YEAR), ("cy", YEAR)):
        wall.off = off
        world.ask("who?", model=name)
    assert sorted(world.service.loaded()) == ["ada", "cy"]


def test_a_stored_response_outlives_a_clock_that_was_ahead(
    world: World, talker: Talker, wall: Wall
) -> None:
    """It is not found while the clock says that its time is over, and it is not deleted."""
    talker("One.", "Two.")
    answer = world.ask("a", store=True)
    store = world.service._filing._store
    assert store is not None
    wall.off = YEAR
    world.service._filing.sweep()
    assert store.get(answer.response_id, "") is None
    wall.off = 0.0
    assert world.service.stored(answer.response_id, answer.ask.caller).id == answer.response_id


def test_a_live_session_goes_on(world: World, talker: Talker, wall: Wall) -> None:
    talker("One.", "Two.", "Three.")
    answer = world.ask("a", store=True)
    for off in (YEAR, -YEAR):
        wall.off = off
        answer = world.ask("b", store=True, previous=answer.response_id)
        assert answer.cache == "hit"
        assert answer.turn is not None and answer.turn.timing.total_s >= 0


def test_what_expires_is_swept_when_its_time_has_passed(
    world: World, talker: Talker, wall: Wall
) -> None:
    store = world.service._filing._store
    assert store is not None
    store.put(row("old", expires=time.time() - 1))
    assert store.sweep() == 1


def test_time_that_is_set_ahead_has_not_passed(wall: Wall) -> None:
    steady, began = Steady(), time.time()
    wall.off = YEAR
    assert abs(steady.now() - began) < 60
    wall.off = -YEAR
    assert steady.now() < began - YEAR + 60
