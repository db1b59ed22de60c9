"""The engine as its users see it: models, names, options, warming, and the end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from models.tiny import byte_level, config_of, save_folder
from scripted import QWEN, Gate, load_scripted, model_of, scripted_folder

import mlxnb
from mlxnb.errors import (
    ContextOverflow,
    EngineClosed,
    InvalidOption,
    MlxnbError,
    NothingLoaded,
    RequestFailed,
    SessionExists,
    UnknownBlock,
    UnknownSession,
    UnknownTurn,
)
from mlxnb.records import frames
from mlxnb.sessions.engine import Engine
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.session import Session

Say = Callable[..., str]
LONG = "You answer in one word. " * 12
MIB = 2**20


# --- models -----------------------------------------------------------------------------------


def test_a_folder_s_path_is_its_name(
    engine: LocalEngine, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_folder.parent)
    info = engine.load(Path("tiny"), progress=False)
    assert info.name == str(tiny_folder)
    assert info.loaded
    for name in (str(tiny_folder), "./tiny", tiny_folder):
        assert engine.session(name).model == str(tiny_folder)  # type: ignore[arg-type]
    engine.unload("./tiny")
    with pytest.raises(NothingLoaded):
        engine.session(str(tiny_folder))


@pytest.mark.parametrize("progress", [True, False])
def test_loading_shows_its_progress_unless_told_not_to(
    engine: LocalEngine, tiny_folder: Path, capsys: pytest.CaptureFixture[str], progress: bool
) -> None:
    engine.load(tiny_folder, progress=progress)
    assert (f"loading {tiny_folder}" in capsys.readouterr().err) is progress


def test_without_a_model_nothing_is_loaded(engine: LocalEngine) -> None:
    with pytest.raises(NothingLoaded, match="demo"):
        engine.session()


def test_the_default_model_is_the_one_loaded_last(engine: LocalEngine, say: Say) -> None:
    first, second = say("one"), say("two")
    assert engine.session().model == second
    assert load_scripted(engine, Path(first)) == first
    assert engine.session().model == first
    engine.unload(first)
    assert engine.session().model == second


def test_a_session_whose_model_is_gone_says_so(engine: LocalEngine, say: Say) -> None:
    name = say("one")
    session = engine.session(name="s")
    engine.unload(name)
    with pytest.raises(NothingLoaded, match="no model"):
        session.send("hi")
    assert engine.session(name="s") is session
    assert not session.answering


def test_a_turn_whose_model_is_unloaded_fails(engine: LocalEngine, say: Say) -> None:
    name = say("word " * 500)
    session = engine.session()
    with Gate(model_of(engine, name), calls=6) as gate:
        reply = session.reply("hi")
        gate.wait()
        unloading = threading.Thread(target=engine.unload, args=(name,))
        unloading.start()
    unloading.join(30)
    with pytest.raises(RequestFailed, match="was unloaded"):
        reply.result()
    assert session.turns == 0
    assert engine.turns().finish_reason.tolist() == ["error"]
    assert engine.turns().error[0].startswith("ModelUnloaded")


def test_two_models_answer_in_turn(engine: LocalEngine, say: Say) -> None:
    first, second = say("one", "uno"), say("two", "due")
    sessions = [engine.session(first), engine.session(second)]
    assert [s.send("hi").text for s in sessions] == ["one", "two"]
    assert [s.send("hi").text for s in sessions] == ["uno", "due"]


# --- sampling ---------------------------------------------------------------------------------


def written(folder: Path, text: str) -> Path:
    """A copy of the small model whose makers want it sampled so."""
    tokenizer = byte_level("smollm")
    save_folder(folder, config_of("qwen3", tokenizer.get_vocab_size()), tokenizer)
    (folder / "generation_config.json").write_text(text)
    return folder


def test_request_before_session_before_the_model_s_makers(
    engine: LocalEngine, tmp_path: Path
) -> None:
    folder = written(tmp_path / "m", '{"do_sample": true, "temperature": 0.7, "top_k": 5}')
    engine.load(folder, progress=False)
    engine.session(max_tokens=2).send("hi")
    session = engine.session(temperature=0.5, max_tokens=2)
    session.send("hi")
    session.send("hi", temperature=0)
    assert engine.turns(wide=True).temperature.tolist() == [0.7, 0.5, 0.0]


def test_without_a_wish_the_answer_is_greedy(engine: LocalEngine, tmp_path: Path) -> None:
    engine.load(written(tmp_path / "m", '{"temperature": 0.7}'), progress=False)
    session = engine.session(max_tokens=4)
    first = session.send("hi")
    session.reset()
    assert session.send("hi").tokens == first.tokens
    rows = engine.turns(wide=True)
    assert rows.temperature.tolist() == [0.0, 0.0]
    assert rows.seed.isna().all()


def test_a_wish_that_makes_no_sense_is_left_out(engine: LocalEngine, tmp_path: Path) -> None:
    folder = written(tmp_path / "m", '{"do_sample": true, "temperature": 0.7, "top_p": 1.5}')
    engine.load(folder, progress=False)
    engine.session(max_tokens=2).send("hi")
    assert engine.turns(wide=True).temperature.tolist() == [0.7]


def test_a_seed_gives_the_same_answer_again(engine: LocalEngine, tiny: str) -> None:
    texts = [
        engine.session(tiny, temperature=1.0, seed=seed, max_tokens=12).send("hi").tokens
        for seed in (5, 5, 6)
    ]
    assert texts[0] == texts[1] != texts[2]


# --- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temprature": 1}, "no option 'temprature'; there are .*temperature"),
        ({"temperature": "hot"}, "temperature is a number"),
        ({"temperature": []}, "temperature is a number"),
        ({"max_tokens": 0}, "max_tokens lies in"),
        ({"max_tokens": 1.5}, "max_tokens is an integer"),
        ({"stop": 5}, "stop is a string or a list of strings"),
        ({"stop": [1]}, "stop is a string or a list of strings"),
        ({"logit_bias": [1]}, "logit_bias maps token ids"),
        ({"history": "exakt"}, "history is 'exact' or 'template'"),
        ({"history": ["exact"]}, "history is 'exact' or 'template'"),
        ({"reuse": 1}, "reuse is True or False"),
        ({"reuse": {}}, "reuse is True or False"),
        ({"cache_salt": 5}, "cache_salt is a string"),
        ({"cache_salt": []}, "cache_salt is a string"),
        ({"thinking": "yes"}, "thinking is True, False or None"),
        ({"thinking": {}}, "thinking is True, False or None"),
        ({"system": 5}, "system is a string"),
        ({"system": "\ud800"}, "system has half of a surrogate pair"),
        ({"name": 5}, "name is a string"),
        ({"name": []}, "name is a string"),
        ({"name": ""}, "name is a string that is not empty"),
        ({"name": ".."}, "name is a string that is not empty"),
        ({"tools": {"name": "f"}}, "tools is a list of tool definitions"),
        ({"tools": ["f"]}, "tools is a list of tool definitions"),
        ({"tools": [{"f": print}]}, "tools must be plain JSON"),
        ({"tools": [{"f": float("nan")}]}, "tools must be plain JSON"),
    ],
)
def test_an_option_that_cannot_be_is_refused(
    engine: LocalEngine, tiny: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        engine.session(tiny, **options)
    assert len(engine.sessions()) == 0


def test_none_is_an_option_not_given(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(
        tiny, cache_salt=None, history=None, reuse=None, temperature=None, thinking=None
    )
    assert session.options == engine.session(tiny).options


def test_a_biased_token_must_be_one_of_the_model_s(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, max_tokens=2)
    for token in (-1, 10**6):
        with pytest.raises(InvalidOption, match=f"no token {token}"):
            session.send("hi", logit_bias={token: 1.0})
    assert session.send("hi", logit_bias={7: 100.0}).tokens == [7, 7]


def test_thinking_may_be_switched_off(engine: LocalEngine, say: Say) -> None:
    ask = "{% if enable_thinking is defined and not enable_thinking %}quiet{% endif %}"
    name = say("fine", template=ask + QWEN)
    tokenizer = engine.core.runtime(name).tokenizer
    for thinking, quiet in ((None, False), (True, False), (False, True)):
        turn = engine.session(thinking=thinking).send("hi")
        text = tokenizer.decode(list(engine.ledger[turn.id].prompt))
        assert text.startswith("quiet") is quiet


# --- sessions by name -------------------------------------------------------------------------


def test_a_session_is_found_by_its_name(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, "Be brief.", name="s", temperature=0.5, tools=[])
    assert engine.session(name="s") is session
    assert engine.session(tiny, "Be brief.", name="s", temperature=0.5) is session
    assert engine.find_session("s") is session
    with pytest.raises(UnknownSession, match="'t' \\(there are: s\\)"):
        engine.find_session("t")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"system": "Secret two"}, ["system"]),
        ({"temperature": 0.6}, ["temperature"]),
        ({"top_p": 0.5, "history": "template"}, ["history", "top_p"]),
        ({"cache_salt": "secret"}, ["cache_salt"]),
        ({"tools": [{"name": "secret"}]}, ["tools"]),
        ({"reuse": False}, ["reuse"]),
        ({"model": "secret/model"}, ["model"]),
        ({"thinking": False}, ["thinking"]),
    ],
)
def test_another_session_under_a_name_is_refused_without_telling_texts(
    engine: LocalEngine, tiny: str, options: dict[str, Any], named: list[str]
) -> None:
    engine.session(tiny, "Secret one", name="s", temperature=0.5)
    with pytest.raises(SessionExists) as caught:
        engine.session(name="s", **options)
    message = str(caught.value)
    assert all(name in message for name in named)
    assert "secret" not in message.lower()


def test_names_are_made_up_and_never_taken_twice(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny, name="session-2")
    made = [engine.session(tiny).name for _ in range(3)]
    assert made == ["session-1", "session-3", "session-4"]
    with pytest.raises(SessionExists, match="'session-2' exists"):
        engine.session(tiny).fork("session-2")


def test_threads_get_sessions_of_their_own(engine: LocalEngine, tiny: str) -> None:
    made: list[Session] = []
    threads = [threading.Thread(target=lambda: made.append(engine.session(tiny))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({session.name for session in made}) == 8


# --- warming ----------------------------------------------------------------------------------


def test_a_warmed_system_text_is_there_for_every_session(engine: LocalEngine, tiny: str) -> None:
    warm = engine.warm(LONG)
    assert (warm.cached_tokens, warm.output_tokens, warm.text) == (0, 0, "")
    turn = engine.session(tiny, LONG, max_tokens=2).send("hi")
    assert turn.cached_tokens >= warm.prompt_tokens
    rows = engine.turns()
    assert rows.turn_id.tolist() == [warm.id, turn.id]
    assert rows.output_tokens.tolist()[0] == 0
    assert engine.sessions().name.tolist() == ["session-1"]


def test_a_warmed_session_finds_its_history(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, LONG, max_tokens=8)
    session.send("hi")
    engine.unload(tiny)
    engine.load(tiny, progress=False)
    before = session.tokens
    warm = engine.warm(session)
    assert warm.cached_tokens == 0
    assert warm.prompt_tokens >= len(before)
    turn = session.send("more")
    assert turn.cached_tokens >= warm.prompt_tokens


def test_a_session_with_calls_outstanding_is_warmed_too(engine: LocalEngine, say: Say) -> None:
    say('<tool_call>{"name": "f", "arguments": {}}</tool_call>', "fine")
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    session = engine.session(tools=[tool])
    (call,) = session.send("hi").tool_calls
    warm = engine.warm(session)
    turn = session.send_tool_result(call.id, "1")
    assert turn is not None
    assert turn.cached_tokens >= warm.prompt_tokens
    assert turn.text == "fine"


def test_a_text_that_does_not_fit_is_not_warmed(engine: LocalEngine, say: Say) -> None:
    say("fine", max_position_embeddings=64)
    with pytest.raises(ContextOverflow):
        engine.warm(LONG)
    assert len(engine.sessions()) == 0
    with pytest.raises(InvalidOption, match="system is a string"):
        engine.warm(5)  # type: ignore[arg-type]


# --- the prefix cache -------------------------------------------------------------------------


def test_the_budget_can_be_set(engine: LocalEngine, tiny: str) -> None:
    engine.budget = 2 * MIB
    assert engine.budget == 2 * MIB
    for value in (0, MIB - 1, "1", 2.5 * MIB, True, None):
        with pytest.raises(InvalidOption, match="1 MiB or more"):
            engine.budget = value  # type: ignore[assignment]
    assert engine.session(tiny, max_tokens=2).send("hi").finish_reason == "length"


def test_the_memory_is_one_row(engine: LocalEngine, tiny: str) -> None:
    engine.warm(LONG)
    frame = engine.memory()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == frames.MEMORY
    (row,) = frame.itertuples()
    assert row.weights_bytes == engine.core.runtime(tiny).info.bytes > 0
    assert row.kv_bytes + row.snapshots_bytes == engine.core.store.nbytes > 0
    held = row.weights_bytes + row.kv_bytes + row.snapshots_bytes + row.pool_bytes
    assert row.total_bytes == held
    assert row.limit_bytes <= row.budget_bytes == engine.budget
    assert min(row.available_bytes, row.reserve_bytes) > 0


def test_a_block_is_pinned_by_its_id(engine: LocalEngine, tiny: str) -> None:
    engine.warm(LONG)
    frame = engine.prefix_cache()
    last = frame.block_id.iloc[-1]
    engine.pin(last)
    assert engine.prefix_cache().set_index("block_id").pinned[last]
    engine.pin(last, pinned=False)
    assert not engine.prefix_cache().pinned.any()
    with pytest.raises(UnknownBlock):
        engine.pin("nothing")
    assert engine.session(tiny).model == tiny


# --- the end ----------------------------------------------------------------------------------


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mlxnb-engine"]


def test_a_closed_engine_has_no_thread_and_says_that_it_is_closed(tiny_folder: Path) -> None:
    before = engine_threads()
    engine = LocalEngine(budget=64 * MIB)
    engine.load(tiny_folder, progress=False)
    session = engine.session(max_tokens=2)
    turn = session.send("hi")
    engine.close()
    engine.close()
    assert engine.closed
    assert engine_threads() == before
    acts: list[Callable[[], object]] = [
        lambda: session.send("more"),
        lambda: engine.session(),
        lambda: engine.load(tiny_folder, progress=False),
        lambda: engine.unload(str(tiny_folder)),
        lambda: engine.warm("x"),
        lambda: setattr(engine, "budget", 4 * MIB),
    ]
    for act in acts:
        with pytest.raises(EngineClosed, match="was closed"):
            act()
    assert engine_threads() == before
    assert not session.answering
    assert engine.turns().turn_id.tolist() == [turn.id]
    assert engine.explain(turn).turn_id == turn.id
    assert len(engine.sessions()) == 1
    assert len(engine.prefix_cache()) == 0
    assert not engine.models().loaded.any()


def test_closing_ends_what_runs(tmp_path: Path) -> None:
    engine = LocalEngine(budget=64 * MIB)
    name = load_scripted(engine, scripted_folder(tmp_path / "m", ["word " * 500]))
    session = engine.session(name="s")
    with Gate(model_of(engine, name), calls=6) as gate:
        reply = session.reply("hi")
        gate.wait()
        closing = threading.Thread(target=engine.close)
        closing.start()
    with pytest.raises(RequestFailed, match="was closed"):
        reply.result()
    closing.join(30)
    assert session.last is not None
    assert session.last.finish_reason == "error"
    assert session.last.text.startswith("word")
    assert not session.answering
    assert engine.turns().error[0].startswith("EngineClosed")


def test_the_process_s_engine_is_made_anew_after_it_was_closed() -> None:
    first = mlxnb.engine()
    assert mlxnb.engine() is first
    first.close()
    second = mlxnb.engine()
    assert second is not first
    assert not second.closed
    second.close()


def test_a_session_that_outlives_the_process_s_end_does_no_harm(tiny_folder: Path) -> None:
    """A stream that is half read when the interpreter goes."""
    code = f"""
import mlxnb
engine = mlxnb.engine()
engine.load({str(tiny_folder)!r}, progress=False)
stream = engine.session(max_tokens=400).stream("hi")
next(stream)
other = engine.session(max_tokens=400).reply("hi")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_local_engine_is_an_engine(engine: LocalEngine) -> None:
    assert isinstance(engine, Engine)
    assert issubclass(EngineClosed, MlxnbError)


FORKED = """
import os, sys
import mlxnb
engine = mlxnb.engine()
child = os.fork()
if child == 0:
    try:
        mlxnb.engine().turns()
        engine.core.check()
    except mlxnb.errors.EngineDied as error:
        os._exit(7 if "spawn" in str(error) else 8)
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_is_told_to_spawn() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert told.stdout.strip() == "7", told.stderr


def test_a_turn_that_is_no_id_is_unknown(engine: LocalEngine) -> None:
    with pytest.raises(UnknownTurn):
        engine.explain(99)  # type: ignore[arg-type]


def test_a_session_s_name_in_the_place_of_a_model_s_is_told(engine: Engine, tiny: str) -> None:
    engine.session(name="notes")
    with pytest.raises(NothingLoaded, match=r"no model 'notes' .*: session\(name='notes'\)"):
        engine.session("notes")
    with pytest.raises(NothingLoaded) as raised:
        engine.session("others")
    assert "session(" not in str(raised.value)


def test_a_name_has_an_end(engine: Engine, tiny: str) -> None:
    assert engine.session(name="x" * 1000).name == "x" * 1000
    with pytest.raises(InvalidOption, match="name has 1,001 characters, of 1,000 at most"):
        engine.session(name="x" * 1001)
