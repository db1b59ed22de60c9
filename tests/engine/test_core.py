"""Loading, unloading, replacing, restarting: what an engine is as a whole."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest
from models.tiny import byte_level, config_of, random_model, save_folder

from mlxnb.engine.life import default_budget
from mlxnb.errors import (
    EngineClosed,
    EngineDied,
    ModelBroken,
    NothingLoaded,
    UnsupportedModel,
)
from mlxnb.models.source import ModelSource

from .running import Engine, prompt_of, until, wait

MIB = 2**20


def write(folder: Path, seed: int = 0, **changes: Any) -> ModelSource:
    """A tiny model on disk."""
    config = config_of("llama", 400, **changes)
    save_folder(folder, config, byte_level("smollm"), random_model(config, seed))
    return ModelSource(str(folder), folder)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    return write(tmp_path_factory.mktemp("models") / "one")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))


def die() -> None:
    raise SystemExit


def kill(engine: Engine) -> None:
    with pytest.raises(EngineDied):
        engine.core.owner.call(die)


def answer(engine: Engine, source: ModelSource, **more: Any) -> list[int]:
    return engine.answer(prompt_of(30), 6, model=source.name, **more)


# --- loading ----------------------------------------------------------------------------------


def test_a_model_is_loaded_on_the_owner_s_thread(bare: Engine, source: ModelSource) -> None:
    runtime = bare.core.load(source)
    assert (runtime.rewindable, runtime.batchable, runtime.vocab) == (True, True, 400)
    assert bare.core.names() == [source.name]
    assert len(answer(bare, source)) == 6


def test_loading_again_returns_what_is_there(bare: Engine, source: ModelSource) -> None:
    assert bare.core.load(source) is bare.core.load(source)


def test_progress_is_told_on_the_thread_that_waits(bare: Engine, source: ModelSource) -> None:
    told: list[tuple[int, int, threading.Thread]] = []
    bare.core.load(
        source, lambda done, total: told.append((done, total, threading.current_thread()))
    )
    done, total, _ = told[-1]
    assert done == total > 0
    assert {thread for _, _, thread in told} == {threading.current_thread()}


def test_other_models_go_on_while_one_is_read(engine: Engine, source: ModelSource) -> None:
    request = engine.request(prompt_of(20), 10_000)
    engine.start(request)
    until(lambda: len(request.generated) > 3)
    lane = engine.core.lane("tiny")
    steps: list[bool] = []
    step = lane.step

    def noted() -> bool:
        steps.append("build" in _callers())
        return step()

    lane.step = noted  # type: ignore[method-assign]
    engine.core.load(source)
    request.cancelled = True
    wait(request)
    assert sum(steps) >= 4  # a step a layer, and for what stands outside of layers


def _callers() -> set[str]:
    import sys

    frame, names = sys._getframe(1), set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return names


def test_a_failed_load_changes_nothing(engine: Engine, source: ModelSource, tmp_path: Path) -> None:
    engine.run(engine.request(prompt_of(20), 4, owner="a"))
    copy = write(tmp_path / "broken")
    config = json.loads((copy.path / "config.json").read_text())
    (copy.path / "config.json").write_text(json.dumps({**config, "hidden_size": 32}))
    gc.collect()
    engine.core.owner.call(mx.clear_cache)
    before, budget = mx.get_active_memory(), engine.core.budget
    with pytest.raises(ModelBroken):
        engine.core.load(copy)
    gc.collect()
    engine.core.owner.call(mx.clear_cache)
    assert mx.get_active_memory() <= before * 1.02
    assert (engine.core.names(), engine.core.budget) == (["tiny"], budget)
    following = engine.request([*prompt_of(20), 5], 4, owner="a")
    engine.run(following)
    assert following.cached == 20
    with pytest.raises(NothingLoaded):
        engine.core.runtime(copy.name)


def test_a_failed_replacement_leaves_the_old_model(bare: Engine, tmp_path: Path) -> None:
    source = write(tmp_path / "model")
    bare.core.load(source)
    before = answer(bare, source)
    config = json.loads((source.path / "config.json").read_text())
    (source.path / "config.json").write_text(json.dumps({**config, "model_type": "nothing"}))
    with pytest.raises(UnsupportedModel):
        bare.core.load(source)
    assert answer(bare, source) == before


def test_a_model_that_cannot_run_is_not_taken_in(bare: Engine) -> None:
    class Broken:
        layers = (None,)

        def __call__(self, inputs: Any, cache: Any = None) -> Any:
            raise RuntimeError("on purpose")

    with pytest.raises(ModelBroken, match="on purpose"):
        bare.install("broken", Broken)
    assert bare.core.names() == [] and bare.core.store.spaces() == []


def test_a_model_of_the_same_name_is_replaced(bare: Engine, tmp_path: Path) -> None:
    source = write(tmp_path / "model")
    bare.core.load(source)
    one = answer(bare, source, owner="a")
    write(tmp_path / "model", seed=5)
    runtime = bare.core.load(source)
    assert bare.core.runtimes() == [runtime]
    request = bare.request(prompt_of(30), 6, model=source.name, owner="a")
    bare.run(request)
    assert request.cached == 0 and request.generated != one


def test_two_names_of_one_model_share_kv_and_part_well(
    bare: Engine, source: ModelSource, tmp_path: Path
) -> None:
    other = ModelSource("other", source.path)
    bare.core.load(source)
    bare.core.load(other)
    first = answer(bare, source)
    request = bare.request(prompt_of(30), 6, model="other")
    bare.run(request)
    assert (request.cached, request.generated) == (29, first)
    bare.core.unload(source.name)
    again = bare.request(prompt_of(30), 6, model="other")
    bare.run(again)
    assert (again.cached, again.generated) == (29, first)


def test_an_interrupted_load_changes_nothing(
    bare: Engine, source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxnb.engine import life

    read: list[int] = []
    build = life.build

    def slowly(source: ModelSource, progress: Callable[[int, int], None]) -> Any:
        def slow(done: int, total: int) -> None:
            read.append(done)
            time.sleep(0.2)
            progress(done, total)

        return build(source, slow)

    monkeypatch.setattr(life, "build", slowly)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bare.core.load(source, interrupt)
    bare.core.owner.call(lambda: None)
    assert 0 < len(read) < 5
    assert bare.core.names() == []
    monkeypatch.undo()
    assert bare.core.load(source).batchable


# --- unloading --------------------------------------------------------------------------------


def test_unloading_gives_the_memory_back(bare: Engine, source: ModelSource) -> None:  # C18
    def active() -> int:
        gc.collect()
        bare.core.owner.call(mx.clear_cache)
        return int(mx.get_active_memory())

    bare.core.load(source)
    answer(bare, source)
    bare.core.unload(source.name)
    baseline = active()
    for _ in range(2):
        bare.core.load(source)
        bare.run(*(bare.request(prompt_of(40 + n), 6, model=source.name) for n in range(3)))
        weights = active() - baseline
        bare.core.unload(source.name)
        assert weights > 100_000
        assert active() - baseline <= 0.02 * weights
    assert bare.core.names() == []


@pytest.mark.parametrize("call", ["unload", "runtime", "lane"])
def test_what_is_not_loaded_is_named_with_what_is(engine: Engine, call: str) -> None:
    with pytest.raises(NothingLoaded, match=r"'other'.*tiny"):
        getattr(engine.core, call)("other")


# --- the budget -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "working_set", "weights", "budget"),
    [
        (16 * 1024, None, 0, 4 * 1024),
        (16 * 1024, 12 * 1024, 0, 4 * 1024),
        (16 * 1024, 12 * 1024, 8 * 1024, 1228),
        (16 * 1024, 12 * 1024, 10 * 1024, 256),
        (512, None, 0, 256),
    ],
)
def test_the_default_budget(
    memory: int,
    working_set: int | None,
    weights: int,
    budget: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """min(a quarter, 0.85 × the working set − weights − 1 GiB), 256 MiB at the least; in MiB."""
    device = {} if working_set is None else {"max_recommended_working_set_size": working_set * MIB}
    monkeypatch.setattr(mx, "device_info", lambda: device)
    total = SimpleNamespace(total=memory * MIB)
    monkeypatch.setattr("psutil.virtual_memory", lambda: total)
    assert default_budget(weights * MIB) // MIB == budget


def test_the_budget_can_be_set_and_is_kept(engine: Engine, source: ModelSource) -> None:
    engine.core.budget = 5 * MIB
    engine.core.load(source)
    assert engine.core.budget == engine.core.store.budget == 5 * MIB


def test_a_budget_that_nobody_set_follows_what_is_loaded(
    source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "mlxnb.engine.life.default_budget", lambda weights: asked.append(weights) or 300 * MIB
    )
    engine = Engine()
    runtime = engine.core.load(source)
    engine.core.unload(source.name)
    engine.close()
    assert asked == [runtime.info.bytes, 0]


# --- death and restart ------------------------------------------------------------------------


def test_after_a_death_what_waits_fails_and_the_next_is_served(
    bare: Engine, source: ModelSource
) -> None:  # C20
    bare.core.load(source)
    first = answer(bare, source)
    running = bare.request(prompt_of(30), 10_000, model=source.name)
    bare.core.lane(source.name).admission.rows = 1
    waiting = bare.request(prompt_of(31), 5, model=source.name)
    bare.start(running), bare.start(waiting)
    until(lambda: len(running.generated) > 2)
    kill(bare)
    bare.core.check()
    for request in (running, waiting):
        done = wait(request)
        assert (done.finish_reason, type(done.error)) == ("error", EngineDied)
    assert (bare.core.restarts, bare.core.owner.healthy) == (1, True)
    assert bare.core.names() == [source.name] and bare.core.runtimes() == []
    assert answer(bare, source) == first
    assert len(bare.ended) == 4


def test_a_stuck_engine_is_given_up(source: ModelSource) -> None:
    engine = Engine(budget=64 * MIB)
    engine.core.load(source)
    first = answer(engine, source)
    old, there, free = engine.core.owner, threading.Event(), threading.Event()
    request = engine.request(prompt_of(30), 10_000, model=source.name)
    engine.start(request)
    until(lambda: len(request.generated) > 2)

    def hold() -> None:
        there.set()
        free.wait(60)

    stuck = threading.Thread(target=lambda: _swallow(lambda: old.call(hold)))
    stuck.start()
    there.wait(60)  # a step before it may be slow, and is not what is stuck
    old.stuck_after = 0.5
    until(lambda: not old.healthy)
    engine.core.check()
    assert isinstance(wait(request).error, EngineDied)
    assert engine.core.owner is not old
    assert answer(engine, source) == first
    free.set()  # the old thread comes to itself, and finds nothing to do
    old._thread.join(60)
    stuck.join(60)
    assert answer(engine, source) == first
    assert [reason for _, reason in engine.ended] == ["length", "error", "length", "length"]
    engine.close()


@pytest.mark.parametrize("tokens", [0, 1, 5])
def test_a_request_that_is_stuck_in_its_model_fails(tokens: int) -> None:
    """In prefill, at the first step of decode, and later."""
    engine = Engine(budget=64 * MIB)
    watched, free = engine.install(), threading.Event()
    request = engine.request(prompt_of(9), 10)  # eight of them in one chunk

    def wait_there(ids: list[list[int]]) -> None:
        if len(watched.calls) == tokens:
            free.wait(60)

    watched.before = wait_there
    old = engine.core.owner
    engine.start(request)
    until(lambda: len(watched.calls) == tokens and request.live is not None)
    old.stuck_after = 0.05
    until(lambda: not old.healthy)
    engine.core.check()
    assert isinstance(wait(request).error, EngineDied)
    free.set()
    old._thread.join(60)
    assert len(engine.ended) == 1
    engine.close()


def _swallow(call: Callable[[], object]) -> None:
    with pytest.raises(EngineDied):
        call()


def test_a_load_that_outlives_its_engine_does_not_touch_the_new_one(
    bare: Engine, source: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxnb.engine import life

    read: list[int] = []
    old, free, build = bare.core.owner, threading.Event(), life.build
    other = write(tmp_path / "other", seed=2)

    def slowly(source: ModelSource, progress: Callable[[int, int], None]) -> Any:
        def slow(done: int, total: int) -> None:
            read.append(done)
            old.stuck_after = 0.05
            free.wait(60)
            progress(done, total)

        return build(source, slow)

    monkeypatch.setattr(life, "build", slowly)
    with pytest.raises(EngineDied):
        bare.core.load(other)
    monkeypatch.undo()
    bare.core.check()
    bare.core.load(source)
    free.set()
    old._thread.join(60)
    assert len(read) == 1  # the rest of it is not read
    assert bare.core.names() == [source.name]
    assert [space.key for space in bare.core.store.spaces()] == [bare.core.runtime(source.name).key]


def test_checking_from_many_threads_restarts_once(bare: Engine, source: ModelSource) -> None:
    bare.core.load(source)
    kill(bare)
    threads = [threading.Thread(target=bare.core.check) for _ in range(8)]
    threads += [threading.Thread(target=lambda: bare.core.runtime(source.name)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert bare.core.restarts == 1
    assert len(bare.core.runtimes()) == 1


def test_checking_does_not_wait_for_a_load(
    bare: Engine, source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxnb.engine import life

    going, free = threading.Event(), threading.Event()
    build = life.build

    def held(source: ModelSource, progress: Callable[[int, int], None]) -> Any:
        going.set()
        assert free.wait(60)
        return build(source, progress)

    monkeypatch.setattr(life, "build", held)
    loader = threading.Thread(target=bare.core.load, args=(source,))
    loader.start()
    assert going.wait(60)
    bare.core.check()
    assert bare.core.names() == []
    free.set()
    loader.join(60)
    assert bare.core.names() == [source.name]


def test_a_request_that_was_planned_before_a_death_is_refused(
    bare: Engine, source: ModelSource
) -> None:
    bare.core.load(source)
    request = bare.request(prompt_of(30), 4, model=source.name)
    bare.core.plan(request)
    kill(bare)
    bare.core.check()
    with pytest.raises(EngineDied):
        bare.core.submit(request)


# --- the end ----------------------------------------------------------------------------------


def test_closing_ends_what_runs(engine: Engine) -> None:
    request = engine.start(engine.request(prompt_of(30), 10_000))
    until(lambda: len(request.generated) > 2)
    engine.close()
    assert isinstance(wait(request).error, EngineClosed)
    engine.close()


def test_closing_gives_the_memory_back(source: ModelSource) -> None:  # C18
    gc.collect()
    mx.clear_cache()
    baseline = mx.get_active_memory()
    engine = Engine(budget=64 * MIB)
    engine.core.load(source)
    answer(engine, source, owner="a")
    weights = mx.get_active_memory() - baseline
    engine.close()
    mx.clear_cache()
    assert weights > 100_000
    assert mx.get_active_memory() - baseline <= 0.02 * weights


def test_a_closed_engine_stays_closed(engine: Engine, source: ModelSource) -> None:
    engine.close()
    engine.core.check()
    assert engine.core.restarts == 0
    for ask in (lambda: engine.core.load(source), lambda: engine.core.runtime("tiny")):
        with pytest.raises(EngineClosed):
            ask()


def test_the_limit_of_open_files_is_the_processs_own() -> None:
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (512, 1024)); import mlxnb.mlxlm;"
        "print(r.getrlimit(r.RLIMIT_NOFILE))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "(512, 1024)"
