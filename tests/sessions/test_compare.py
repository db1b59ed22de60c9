"""Comparisons: sides, agreement, and that sessions stay as they were."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted import Gate, model_of

from mlxnb.errors import Interrupted, InvalidOption, MlxnbError, NothingLoaded, UnknownSession
from mlxnb.sessions.comparison import COLUMNS
from mlxnb.sessions.local import LocalEngine

Say = Callable[..., str]


def test_models_answer_side_by_side(engine: LocalEngine, say: Say) -> None:
    one, two, three = say("a b c"), say("a b d e"), say("a b c")
    found = engine.compare("Hello", models=[one, two, three])
    assert found.dtypes.astype(str).to_dict() == COLUMNS
    assert list(found["model"]) == [one, two, three]
    assert list(found["label"]) == [Path(name).name for name in (one, two, three)]
    assert list(found["answer"]) == ["a b c", "a b d e", "a b c"]
    assert list(found["agreement"]) == [1.0, 0.5, 1.0]
    assert list(found["same"]) == [True, False, True]
    assert found["session"].isna().all()
    assert found["error"].isna().all()
    turns = engine.turns().set_index("turn_id").loc[list(found["turn_id"])]
    for name in ("output_tokens", "cached_tokens", "ttft_s", "total_s", "finish_reason"):
        assert list(turns[name]) == list(found[name])


def test_without_sides_the_model_loaded_last_answers(engine: LocalEngine, say: Say) -> None:
    say("first")
    name = say("last")
    found = engine.compare("Hello", max_tokens=20)
    assert list(found["model"]) == [name]
    assert list(found["answer"]) == ["last"]
    assert list(found["agreement"]) == [1.0]


def test_sessions_answer_from_their_past_and_stay_as_they_were(
    engine: LocalEngine, say: Say
) -> None:
    say("one", "two", "three")
    fresh, older = engine.session(name="fresh"), engine.session(name="older")
    older.send("Hello")
    before = older.history, older.tokens, older.last
    there = engine.sessions()["name"].tolist()
    found = engine.compare("And now?", sessions=["fresh", older])
    assert list(found["answer"]) == ["one", "two"]
    assert list(found["session"]) == list(found["label"]) == ["fresh", "older"]
    assert found["cached_tokens"][1] >= len(older.tokens) - 1
    assert (older.history, older.tokens, older.last) == before
    assert (fresh.turns, fresh.history) == (0, [])
    assert engine.sessions()["name"].tolist() == there
    assert older.send("And now?").text == "two"


def test_settings_are_sides_of_their_own(engine: LocalEngine, tiny: str) -> None:
    settings = [{"max_tokens": 8}, {"max_tokens": 4}, {"temperature": 5.0, "seed": 1}]
    found = engine.compare("Hello", settings=settings, max_tokens=8)
    assert list(found["settings"]) == ["max_tokens=8", "max_tokens=4", "temperature=5.0, seed=1"]
    assert list(found["label"]) == list(found["settings"])
    assert list(found["output_tokens"]) == [8, 4, 8]
    assert list(found["agreement"][:2]) == [1.0, 0.5]
    assert found["agreement"][2] < 1 and not found["same"][2]
    seeded = engine.session().send("Hello", temperature=5.0, seed=1, max_tokens=8)
    assert found["answer"][2] == seeded.text


def test_every_side_answers_with_all_settings(engine: LocalEngine, say: Say) -> None:
    name = say("one", "two")
    engine.session(name="s").send("Hello")
    found = engine.compare("Hi", [name], ["s"], [{"seed": 1}, {"seed": 2}], system="Be brief.")
    short = Path(name).name
    assert list(found["label"]) == [
        f"{short}, seed=1",
        f"{short}, seed=2",
        "s, seed=1",
        "s, seed=2",
    ]
    assert list(found["answer"]) == ["one", "one", "two", "two"]
    assert engine.sessions()["name"].tolist() == ["s"]


def test_a_side_that_fails_has_no_answer_and_says_why(engine: LocalEngine, say: Say) -> None:
    wide, narrow = say("yes"), say("yes", max_position_embeddings=16)
    found = engine.compare("Hello " * 20, models=[wide, narrow, wide])
    assert list(found["answer"].isna()) == [False, True, False]
    assert found["error"][1].startswith("ContextOverflow: ")
    assert found["agreement"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"models": ["nothing-of-that-name"]}, NothingLoaded),
        ({"sessions": ["nobody"]}, UnknownSession),
        ({"models": 3}, InvalidOption),
        ({"settings": [{"temperature": -1}]}, InvalidOption),
        ({"settings": [{"warmth": 1}]}, InvalidOption),
        ({"settings": [3]}, InvalidOption),
        ({"settings": [{"n": 2}]}, InvalidOption),
        ({"temperature": "hot"}, InvalidOption),
        ({"sessions": ["s"], "system": "Be brief."}, InvalidOption),
    ],
)
def test_a_mistake_comes_before_anything_starts(
    engine: LocalEngine, say: Say, given: dict[str, Any], kind: type[MlxnbError]
) -> None:
    say("yes")
    engine.session(name="s")
    with pytest.raises(kind):
        engine.compare("Hello", **given)
    assert len(engine.turns()) == 0
    assert engine.sessions()["name"].tolist() == ["s"]


def test_a_session_of_another_engine_is_told(engine: LocalEngine, say: Say) -> None:
    name = say("yes")
    engine.session(name="s")
    other = LocalEngine(budget=2**26)
    try:
        other.take_in(engine.core.source(name))  # type: ignore[arg-type]
        stranger = other.session(name, name="s")
        with pytest.raises(InvalidOption, match="belongs to another engine"):
            engine.compare("Hello", sessions=[stranger])
    finally:
        other.close()


def test_an_interrupt_keeps_the_sides_that_have_answered(engine: LocalEngine, say: Say) -> None:
    quick, slow = say("yes"), say("word " * 100)
    main = threading.main_thread().ident
    assert main is not None
    with Gate(model_of(engine, slow), calls=2) as gate:

        def press() -> None:
            gate.wait()
            signal.pthread_kill(main, signal.SIGINT)
            gate.open()

        thread = threading.Thread(target=press)
        thread.start()
        with pytest.raises(Interrupted, match="1 of 3 have answered") as stopped:
            engine.compare("Hello", models=[quick, slow, quick])
        thread.join()
    partial = stopped.value.partial
    assert list(partial["answer"].isna()) == [False, True, True]
    assert partial["finish_reason"][1] == "cancelled"
    assert len(engine.sessions()) == 0
