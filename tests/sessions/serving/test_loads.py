"""Models that are loaded when they are asked for: W9, W13, W45–W48."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted import Gate, model_of

from mlxnb.engine.events import Done
from mlxnb.errors import (
    EngineClosed,
    ModelBroken,
    ModelNotFound,
    ModelUnloaded,
    NotEnoughMemory,
    QueueFull,
)
from mlxnb.models.source import ModelSource
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.limits import Limits
from mlxnb.sessions.serving.loads import Loads

from .world import Following, World, scripted_source

Talker = Callable[..., str]


class Slow:
    """Holds an engine's loads until they are let go; then they go on, or fail."""

    def __init__(self, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.given_up = threading.Event()
        load = engine.take_in

        def take_in(source: ModelSource, show: Callable[[int, int], None]) -> object:
            self.begun.set()
            try:
                while not self.go.wait(0.01):
                    show(1, 2)
            except Exception:
                self.given_up.set()
                raise
            if self.error is not None:
                raise self.error
            return load(source, show)

        monkeypatch.setattr(engine, "take_in", take_in)


@pytest.fixture
def slow(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(engine, monkeypatch)


# --- loads ------------------------------------------------------------------------------------


def test_a_model_is_loaded_when_it_is_asked_for(world: World, talker: Talker) -> None:
    talker("One.", loaded=False)
    answer = world.ask("a")
    assert answer.turn is not None and answer.turn.text == "One."
    assert world.service.loaded() == ["talker"]


def test_all_numbers_are_known_before_the_model_is(
    world: World, talker: Talker, slow: Slow
) -> None:
    """W13"""
    talker("One.", loaded=False)
    following = world.begin("a")
    answer = following.answer
    assert slow.begun.wait(30) and world.service.loaded() == []
    assert (answer.cache, answer.cached_tokens) == ("fresh", 0)
    prompt = answer.prompt_tokens
    slow.go.set()
    assert following.wait().usage.prompt_tokens == prompt


def test_requests_share_one_load_and_one_of_them_owns_it(
    world: World, talker: Talker, slow: Slow
) -> None:
    """W46"""
    talker("One.", loaded=False)
    following = [world.begin(text) for text in "abc"]
    assert slow.begun.wait(30)
    assert world.service.health().status == "loading"
    assert world.service.health().waiting == 3
    slow.go.set()
    timings = [(each.wait(), each.answer.record.timing)[1] for each in following]
    assert [t.load_owner for t in timings] == [True, False, False]
    assert timings[0].resolve_s > 0 and timings[0].load_wait_s == 0
    assert all(t.load_wait_s > 0 and t.resolve_s == 0 for t in timings[1:])
    assert world.service.counters()["model_loads"] == 1


def test_those_that_waited_run_in_order_of_arrival(
    world: World, talker: Talker, slow: Slow
) -> None:
    talker("One.", loaded=False)
    following = [world.begin(text) for text in "abcd"]
    slow.go.set()
    for each in following:
        each.wait()
    numbers = [each.answer.request.number for each in following]
    assert numbers == sorted(numbers)


def test_a_failed_load_is_an_error_for_all_and_changes_nothing_else(
    world: World, talker: Talker, slow: Slow
) -> None:
    """W46, W41"""
    talker("One.", loaded=False)
    following = [world.begin(text) for text in "ab"]
    slow.error = ModelBroken("a shard is missing")
    slow.go.set()
    for each in following:
        assert each.wait().finish_reason == "error"
        assert isinstance(each.answer.error, ModelBroken)
        assert each.answer.record.error == "error: ModelBroken: a shard is missing"
        assert isinstance(each.events[-1], Done)
    slow.error = None
    again = world.ask("c")
    assert again.turn is not None and again.turn.text == "One."


def test_too_many_that_wait_for_a_load_are_refused(
    world: World, talker: Talker, slow: Slow, engine: LocalEngine
) -> None:
    """W45"""
    world.limits = Limits(waiting=2)
    talker("One.", loaded=False)
    following = [world.begin(text) for text in "ab"]
    with pytest.raises(QueueFull):
        world.begin("c")
    slow.go.set()
    for each in following:
        assert each.wait().finish_reason == "stop"
    assert len(engine.ledger) == 2


def test_who_leaves_during_a_load_ends_at_once_and_others_go_on(
    world: World, talker: Talker, slow: Slow
) -> None:
    """W43"""
    talker("One.", loaded=False)
    leaving, staying = world.begin("a"), world.begin("b")
    assert slow.begun.wait(30)
    leaving.answer.cancel()
    assert leaving.wait().finish_reason == "cancelled"
    assert leaving.answer.record.error == "client_abort"
    slow.go.set()
    assert staying.wait().text == "One."
    assert len(leaving.events) == 1


def test_a_load_that_nobody_waits_for_is_given_up(world: World, talker: Talker, slow: Slow) -> None:
    """W43"""
    talker("One.", loaded=False)
    following = world.begin("a")
    assert slow.begun.wait(30)
    following.answer.cancel()
    assert slow.given_up.wait(30)
    slow.go.set()
    again = world.ask("b")
    assert again.turn is not None and again.turn.text == "One."


def test_a_model_that_came_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    loads = Loads(lambda source, progress: None, lambda name: True, limit=1)

    class Waiting:
        gone = False

        def loaded(self, error: Exception | None) -> None: ...

    assert loads.join(ModelSource("m", tmp_path), Waiting()) is None


def test_a_closed_engine_takes_nothing_in(
    world: World, talker: Talker, engine: LocalEngine
) -> None:
    talker("One.")
    engine.close()
    with pytest.raises(EngineClosed):
        world.begin("a")
    assert world.service.health().status == "error"


def test_what_was_told_before_a_load_stands(
    world: World, talker: Talker, slow: Slow, engine: LocalEngine
) -> None:
    """W21: whatever the cache holds when the model has come."""
    talker("One.", loaded=False)
    waiting = [world.begin("the same words") for _ in range(2)]
    told = [(each.answer.cache, each.answer.cached_tokens) for each in waiting]
    slow.go.set()
    for each, before in zip(waiting, told, strict=True):
        each.wait()
        assert (each.answer.record.cache, each.answer.cached_tokens) == before == ("fresh", 0)


# --- memory -----------------------------------------------------------------------------------


def scarce(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Let an engine hold so many models."""
    load = engine.take_in

    def take_in(source: ModelSource, show: Callable[[int, int], None]) -> object:
        if len(engine.core.names()) >= room:
            raise NotEnoughMemory("too large", 2, 1)
        return load(source, show)

    monkeypatch.setattr(engine, "take_in", take_in)


def add_models(world: World, tmp_path: Path, *names: str) -> None:
    for name in names:
        world.add(scripted_source(tmp_path / name, [f"I am {name}."], name=name), load=False)


def test_the_model_not_used_for_longest_makes_way(
    world: World, engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W46"""
    scarce(engine, monkeypatch, room=2)
    add_models(world, tmp_path, "ada", "bob", "cy")
    for name in ("ada", "bob", "ada", "cy"):
        answer = world.ask("who?", model=name)
        assert answer.turn is not None and answer.turn.text == f"I am {name}."
    assert sorted(world.service.loaded()) == ["ada", "cy"]


def test_a_model_in_use_does_not_make_way(
    world: World, engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scarce(engine, monkeypatch, room=1)
    add_models(world, tmp_path, "ada", "bob")
    world.ask("who?", model="ada")
    with Gate(model_of(engine, "ada")) as gate:
        running = world.begin("and?", model="ada")
        gate.wait()
        refused = world.begin("who?", model="bob")
        refused.wait()
        assert isinstance(refused.answer.error, NotEnoughMemory)
    assert running.wait().finish_reason == "stop"


def test_an_idle_model_is_unloaded_and_a_busy_one_is_not(
    world: World, talker: Talker, engine: LocalEngine
) -> None:
    """W48"""
    world.limits = Limits(idle_unload_s=0.0)
    talker("One.", loaded=False)
    world.ask("a")
    world.service._watch.close()
    with_gate = world.begin("b")
    with_gate.wait()
    world.service._models.unload_idle()
    assert world.service.loaded() == []
    world.ask("c")
    with Gate(model_of(engine, "talker")) as gate:
        running = world.begin("d")
        gate.wait()
        world.service._models.unload_idle()
    assert running.wait().finish_reason == "stop"


# --- swaps ------------------------------------------------------------------------------------


def test_a_swap_under_load_never_mixes_models(
    world: World, engine: LocalEngine, tmp_path: Path
) -> None:
    """W47"""
    texts = {"a": "I am the first one of us.", "b": "And I am quite another, I say."}
    sources = {n: scripted_source(tmp_path / n, [text]) for n, text in texts.items()}
    world.add(sources["a"])
    following: list[Following] = []
    ended = threading.Semaphore(0)

    def swap() -> None:
        for number in range(6):
            engine.load_source(sources["ba"[number % 2]], progress=False)
            assert all(ended.acquire(timeout=60) for _ in range(2))

    swapping = threading.Thread(target=swap)
    swapping.start()
    while swapping.is_alive():
        following.append(world.begin(f"Who are you, number {len(following)}?"))
        following[-1].wait()
        ended.release()
    swapping.join()
    for each in following:
        if each.answer.error is None:
            assert each.text in texts.values()
        else:
            assert isinstance(each.answer.error, ModelUnloaded)
    assert {each.text for each in following if each.answer.error is None} == set(texts.values())


def test_files_that_changed_before_the_load_are_not_taken_for_the_old_ones(
    world: World, tmp_path: Path, slow: Slow
) -> None:
    source = scripted_source(tmp_path / "m", ["One."])
    world.add(source, load=False)
    following = world.begin("a")
    assert slow.begun.wait(30)
    scripted_source(tmp_path / "m", ["Another."])
    slow.go.set()
    following.wait()
    assert isinstance(following.answer.error, ModelUnloaded)
    again = world.ask("a")
    assert again.turn is not None and again.turn.text == "Another."


def test_an_unknown_model_is_told_with_those_there_are(world: World, talker: Talker) -> None:
    talker("One.", loaded=False)
    with pytest.raises(ModelNotFound, match="talker") as caught:
        world.begin("a", model="nobody/nothing")
    assert caught.value.param == "model"
