"""The frames: what each turn did, and why it did not reuse more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from models.tiny import byte_level, config_of, save_folder
from scripted import Gate, model_of

from mlxnb.errors import QueueFull, RequestFailed, UnknownTurn
from mlxnb.records import frames
from mlxnb.records.diagnosis import REASONS
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.session import Session

Say = Callable[..., str]
LONG = "You answer in one word. " * 12
MIB = 2**20


def last(engine: LocalEngine) -> Any:
    return engine.turns().iloc[-1]


def dtypes(frame: pd.DataFrame) -> dict[str, str]:
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


# --- frames of nothing, of the past, and of what runs -----------------------------------------


def test_an_empty_engine_has_frames_with_all_columns(engine: LocalEngine) -> None:
    assert dtypes(engine.turns()) == frames.TURNS
    assert dtypes(engine.prefix_cache()) == frames.BLOCKS
    assert dtypes(engine.sessions()) == frames.SESSIONS
    assert dtypes(engine.models()) == frames.MODELS
    assert dtypes(engine.memory()) == frames.MEMORY
    for frame in (engine.turns(), engine.prefix_cache(), engine.sessions()):
        assert len(frame) == 0
    with pytest.raises(UnknownTurn, match="no turn yet"):
        engine.explain()


def test_frames_of_a_running_engine_are_the_same(engine: LocalEngine, say: Say) -> None:
    name = say("one two three", "four")
    session = engine.session(name="s")
    session.send("hi")
    with Gate(model_of(engine, name), calls=3) as gate:
        reply = session.reply("more")
        gate.wait()
        assert dtypes(engine.turns()) == frames.TURNS
        assert dtypes(engine.prefix_cache()) == frames.BLOCKS
        assert dtypes(engine.sessions()) == frames.SESSIONS
        assert dtypes(engine.memory()) == frames.MEMORY
        running = last(engine)
        assert (running.session, running.model, running.source) == ("s", name, "python")
        assert pd.isna(running.finish_reason)
        assert running.prompt_tokens == running.cached_tokens + running.prefill_tokens
        assert engine.prefix_cache().kind.tolist() == ["hot"]
        assert engine.explain(reply.turn_id).turn_id == reply.turn_id
    reply.result()
    assert last(engine).finish_reason == "stop"


def test_a_row_is_what_the_turn_says(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, name="s", max_tokens=8)
    session.send("one")
    turn = session.send("two")
    row = last(engine)
    assert row.turn_id == turn.id
    for name in ("prompt_tokens", "cached_tokens", "prefill_tokens", "output_tokens"):
        assert row[name] == getattr(turn, name)
    assert row.reuse == turn.cached_tokens / turn.prompt_tokens
    phases = ["pre_inference_s", "queue_s", "resolve_s", "load_wait_s", "prefill_s", "decode_s"]
    assert sum(row[phase] for phase in phases) == pytest.approx(row.total_s)
    assert 0 < row.ttft_s <= row.total_s
    assert row.saved_s > 0
    assert row.decode_tps == pytest.approx(7 / row.decode_s)
    assert row.prefill_tps == pytest.approx(turn.prefill_tokens / row.prefill_s)


def test_one_token_has_no_decode_rate(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny).send("hi", max_tokens=1)
    assert pd.isna(last(engine).decode_tps)


def test_rows_are_in_order_of_start(engine: LocalEngine, say: Say) -> None:
    name = say("word " * 30)
    with Gate(model_of(engine, name)) as gate:
        replies = [engine.session().reply("hi", max_tokens=n) for n in (20, 2, 10)]
        gate.wait()
    for reply in replies:
        reply.result()
    rows = engine.turns()
    assert rows.turn_id.tolist() == [reply.turn_id for reply in replies]
    assert rows.started_at.is_monotonic_increasing


def test_cancelled_and_failed_turns_are_rows(engine: LocalEngine, say: Say) -> None:
    name = say("word " * 30)
    model = model_of(engine, name)
    with Gate(model, calls=6) as gate:
        reply = engine.session().reply("hi")
        gate.wait()
        reply.cancel()
    reply.outcome()
    model.on_call = lambda: 1 // 0
    with pytest.raises(RequestFailed):
        engine.session().send("again")
    rows = engine.turns()
    assert rows.finish_reason.tolist() == ["cancelled", "error"]
    assert rows.output_tokens.tolist()[0] > 0
    assert rows.error.isna().tolist() == [True, False]
    assert "ZeroDivisionError" in rows.error[1]


def test_a_turn_that_never_started_is_no_row(engine: LocalEngine, say: Say) -> None:
    name = say("word " * 30)
    lane = engine.core.lane(name)
    with Gate(model_of(engine, name)) as gate:
        first = engine.session().reply("hi")
        gate.wait()
        lane.waiting.limit = 0
        session = engine.session()
        with pytest.raises(QueueFull):
            session.send("hi")
        assert not session.answering
    first.result()
    assert len(engine.turns()) == 1


def test_wide_rows_have_more_columns_behind_the_same(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny, temperature=0.5, seed=3, max_tokens=2).send("hi")
    wide = engine.turns(wide=True)
    assert wide.columns.tolist()[: len(frames.TURNS)] == list(frames.TURNS)
    assert (wide.seed[0], wide.temperature[0], wide.max_tokens[0]) == (3, 0.5, 2)


# --- cache ------------------------------------------------------------------------------------


def test_cache_says_where_tokens_were_found(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, LONG, max_tokens=4)
    session.send("one")
    session.send("two")
    engine.session(tiny, LONG, max_tokens=4).send("three")
    assert engine.turns().cache.tolist() == ["fresh", "hit", "prefix_hit"]


def test_sessions_show_what_their_next_turn_would_find(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, name="s", max_tokens=4)
    engine.session(tiny, name="t", history="template", max_tokens=4).send("hi")
    session.send("one")
    fork = session.fork("f")
    rows = engine.sessions().set_index("name")
    assert rows.turns.to_dict() == {"s": 1, "t": 1, "f": 1}
    assert rows.tokens["s"] == len(session.tokens)
    assert rows.cached_tokens["s"] == rows.cached_tokens["f"] >= len(session.tokens) - 1
    assert rows.hot.to_dict() == {"s": True, "t": True, "f": False}
    assert pd.isna(rows.tokens["t"])
    assert rows.forked_from["f"] == "s"
    turn = fork.send("two")
    assert turn.cached_tokens >= rows.cached_tokens["f"]
    engine.unload(tiny)
    assert engine.sessions().set_index("name").cached_tokens["s"] == 0


def test_models_show_what_was_found_out_about_them(engine: LocalEngine, tiny: str) -> None:
    rows = engine.models().set_index("name")
    assert rows.loaded[tiny]
    assert rows.reuse[tiny] == "prefix"
    assert rows.family[tiny] == "qwen3"
    assert rows.context_length[tiny] == 512


# --- explain ----------------------------------------------------------------------------------


def test_a_turn_is_explained_by_itself_its_id_or_as_the_last(
    engine: LocalEngine, tiny: str
) -> None:
    session = engine.session(tiny, max_tokens=4)
    first = session.send("one")
    second = session.send("two")
    assert engine.explain().turn_id == engine.explain(second).turn_id == second.id
    assert engine.explain(first.id).turn_id == engine.explain(first).turn_id == first.id
    with pytest.raises(UnknownTurn, match="t99"):
        engine.explain("t99")


def test_an_explanation_hides_texts_where_asked(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny, "Secret one. " * 5, max_tokens=2).send("hi")
    engine.session(tiny, "Secret two. " * 5, max_tokens=2).send("hi")
    assert "Secret" in repr(engine.explain())
    hidden = engine.explain(show_text=False)
    assert "Secret" not in repr(hidden)
    assert "Secret" not in hidden.frame.to_string()


def test_a_turn_of_a_model_that_is_gone_is_explained_without_its_words(
    engine: LocalEngine, tiny: str
) -> None:
    turn = engine.session(tiny, max_tokens=2).send("hi")
    engine.unload(tiny)
    assert engine.explain(turn).prompt_tokens == turn.prompt_tokens


# --- why not more -----------------------------------------------------------------------------


def missed(engine: LocalEngine) -> Any:
    reason = last(engine).miss_reason
    assert pd.isna(reason) or reason in REASONS
    return reason


def test_a_first_turn_misses_nothing(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny, max_tokens=2).send("hi")
    assert missed(engine) == "first_turn"


def test_a_continued_turn_misses_nothing(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, max_tokens=2)
    session.send("hi")
    session.send("more")
    row = last(engine)
    assert pd.isna(row.miss_reason)
    assert pd.isna(row.diverged_at)


def test_evicted(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, LONG, max_tokens=2)
    first = session.send("hi")
    engine.budget = MIB
    for number in range(6):
        engine.session(tiny, f"{number} " * 100, max_tokens=2).send("hi")
    session.send("more")
    row = last(engine)
    assert row.miss_reason == "evicted"
    assert row.cached_tokens < first.prompt_tokens
    assert engine.explain().nearest_id == first.id


def test_other_salt(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny, LONG, max_tokens=2).send("hi")
    engine.session(tiny, LONG, cache_salt="mine", max_tokens=2).send("hi")
    assert missed(engine) == "other_salt"


def test_system_changed(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny, LONG, max_tokens=2).send("hi")
    engine.session(tiny, "Talk at length. " * 12, max_tokens=2).send("hi")
    row = last(engine)
    assert row.miss_reason == "system_changed"
    system = next(s for s in engine.ledger.last().spans if s.role == "system")
    assert system.start <= row.diverged_at < system.end


def test_system_volatile(engine: LocalEngine, tiny: str) -> None:
    for day in ("2026-11-28", "2026-11-29"):
        engine.session(tiny, f"Today is {day}. {LONG}", max_tokens=2).send("hi")
    assert missed(engine) == "system_volatile"
    assert engine.explain().tokens_lost > 50


def test_tools_changed(engine: LocalEngine, say: Say) -> None:
    name = say("fine")
    for tool in ("add", "subtract"):
        definition = {"type": "function", "function": {"name": tool, "description": LONG}}
        engine.session(name, "Be brief.", tools=[definition]).send("hi")
    assert missed(engine) == "tools_changed"
    assert engine.turns(wide=True).tools.nunique() == 2


def test_history_edited(engine: LocalEngine, say: Say) -> None:
    """Somebody puts other words into a conversation that is rendered anew."""
    say("one", "two", "three")
    session = engine.session(history="template")
    for text in ("first question", "second question"):
        session.send(text)
    history = session._history
    edited = ({**history.messages[0], "content": "another question"}, *history.messages[1:])
    session._history = type(history)(edited, history.line, history.marks)
    session.send("third question")
    assert missed(engine) == "history_edited"
    assert engine.explain().role == "user"


def test_template_rewrote(engine: LocalEngine, say: Say) -> None:
    say("<think>hm, let me see about that</think>one", "two")
    session = engine.session(history="template")
    session.send("hi")
    session.send("more")
    assert missed(engine) == "template_rewrote"


def test_reuse_off(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny, LONG, max_tokens=2).send("hi")
    engine.session(tiny, LONG, reuse=False, max_tokens=2).send("hi")
    row = last(engine)
    assert (row.miss_reason, row.cached_tokens, row.cache) == ("reuse_off", 0, "fresh")


def test_not_rewindable(engine: LocalEngine, tmp_path: Path) -> None:
    """A model with a window: reuse ends at the checkpoint before, and the row says why."""
    tokenizer = byte_level("smollm")
    config = config_of(
        "llama",
        tokenizer.get_vocab_size(),
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"],
    )
    engine.load(save_folder(tmp_path / "m", config, tokenizer), progress=False)
    said = "the quick brown fox jumps over the lazy dog and "
    first = engine.session(max_tokens=4).send(said + "runs away")
    turn = engine.session(max_tokens=4).send(said + "sleeps")
    row = last(engine)
    assert row.miss_reason == "not_rewindable" and row.cached_tokens < row.diverged_at - 16
    assert engine.models().set_index("name").reuse[turn.model] == "checkpoint"
    assert first.cached_tokens == 0
    alone = engine.session(reuse=False, max_tokens=4)
    assert alone.send(said + "sleeps").tokens == turn.tokens


def test_other_model(engine: LocalEngine, tiny: str, tmp_path: Path) -> None:
    tokenizer = byte_level("smollm")
    config = config_of("llama", tokenizer.get_vocab_size())
    other = engine.load(save_folder(tmp_path / "m", config, tokenizer), progress=False).name
    engine.session(tiny, LONG, max_tokens=2).send("hi")
    engine.session(other, LONG, max_tokens=2).send("hi")
    assert missed(engine) == "other_model"


def test_a_new_conversation_misses_nothing_of_the_old_one(engine: LocalEngine, tiny: str) -> None:
    sessions: list[Session] = [engine.session(tiny, LONG, max_tokens=2) for _ in range(2)]
    sessions[0].send("hi")
    sessions[1].send("What is the time?")
    assert missed(engine) == "new_conversation"
