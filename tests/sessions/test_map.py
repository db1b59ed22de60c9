"""A column of answers: prompts of rows, what is computed, failures, interrupts, resuming."""

from __future__ import annotations

import pickle
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest
from parity.families import FAMILIES
from pydantic import BaseModel
from scripted import Gate, model_of

from mlxnb.errors import (
    BadSchema,
    Interrupted,
    InvalidOption,
    NothingLoaded,
    Unfinished,
)
from mlxnb.sessions.column_frame import schema_fields
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.row_prompts import row_prompts

Say = Callable[..., str]
INSTRUCTION = "You answer in one word. " * 15  # some 300 tokens of the tiny model
ROWS = pd.Series([f"row {i} is {i * i}" for i in range(200)], name="text")


def shared_and_own(engine: LocalEngine) -> tuple[int, int]:
    """The tokens that all prompts begin with, and those that the prompts have beside them."""
    prompts = [list(record.prompt) for record in engine.ledger]
    first = min(prompts, key=len)
    shared = next(
        at for at in range(len(first)) if any(prompt[at] != first[at] for prompt in prompts)
    )
    return shared, sum(len(prompt) - shared for prompt in prompts)


def many(engine: LocalEngine) -> pd.Series:
    """Rows enough for the engine: two hundred, and fewer where each goes over a socket."""
    return ROWS if isinstance(engine, LocalEngine) else ROWS[:50]


def interrupt(at: int) -> Callable[[int, int], None]:
    """Progress that presses Ctrl-C when so many rows are done."""

    def tell(done: int, total: int) -> None:
        if done == at:
            signal.raise_signal(signal.SIGINT)

    return tell


def one_by_one(engine: LocalEngine, prompts: list[str], **options: Any) -> list[str]:
    """The answers of sessions of their own, that reuse nothing."""
    found = []
    for prompt in prompts:
        session = engine.session(reuse=False)
        found.append(session.send(prompt, **options).text)
        engine.remove_session(session.name)
    return found


# --- what is computed -------------------------------------------------------------------------


def test_what_all_prompts_share_is_computed_once(engine: LocalEngine, tiny: str) -> None:
    rows, template = many(engine), INSTRUCTION + "\nText: {}"
    answers = engine.map(rows, template, max_tokens=6)
    shared, own = shared_and_own(engine)
    assert (len(engine.turns()), 280 < shared < 320) == (len(rows), True)
    assert engine.turns()["prefill_tokens"].sum() <= 1.1 * (shared + own)
    alone = [INSTRUCTION + f"\nText: {text}" for text in rows]
    assert list(answers) == one_by_one(engine, alone, max_tokens=6)


def test_a_system_text_is_computed_once(engine: LocalEngine, tiny: str) -> None:
    engine.map(ROWS[:40], "{}", system=INSTRUCTION, max_tokens=2)
    shared, own = shared_and_own(engine)
    assert shared > 270
    assert engine.turns()["prefill_tokens"].sum() <= 1.1 * (shared + own)


@pytest.mark.parametrize("family", ["gemma3_text", "qwen3_5"])
@pytest.mark.parametrize("system", [INSTRUCTION, None])
def test_kv_that_cannot_be_rewound_is_computed_once_too(
    engine: LocalEngine, tmp_path: Path, family: str, system: str | None
) -> None:
    engine.load(FAMILIES[family].save(tmp_path / family), progress=False)
    template = "Text: {}" if system else INSTRUCTION + "\nText: {}"
    answers = engine.map(ROWS[:40], template, system=system, max_tokens=3)
    warm, *rows = engine.ledger
    computed = sum(record.usage.prefill_tokens for record in engine.ledger)
    own = sum(len(record.prompt) - len(warm.prompt) for record in rows)
    assert (warm.usage.output_tokens, len(warm.prompt) > 280, len(rows)) == (0, True, 40)
    assert computed <= 1.1 * (len(warm.prompt) + own)
    for at in (0, 20, 39):
        session = engine.session(system=system, reuse=False)
        assert session.send(template.replace("{}", ROWS[at]), max_tokens=3).text == answers[at]
        engine.remove_session(session.name)


def test_what_a_message_begins_with_can_be_computed_ahead(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(system="Be brief.")
    warm = engine.warm(session, begins="The quick brown fox")
    assert warm.prompt_tokens > engine.warm(session).prompt_tokens + 5
    turn = session.send("The quick brown fox jumps", max_tokens=1)
    assert turn.cached_tokens >= warm.prompt_tokens - 1
    with pytest.raises(InvalidOption, match="begins is a string"):
        engine.warm(session, begins=3)  # type: ignore[arg-type]


def test_an_interrupted_run_goes_on_without_repeating(engine: LocalEngine, tiny: str) -> None:
    rows, template = many(engine), INSTRUCTION + "\nText: {}"
    with pytest.raises(Interrupted, match=f"of {len(rows)} rows are answered") as stopped:
        engine.map(rows, template, max_tokens=6, progress=interrupt(len(rows) // 2))
    partial = stopped.value.partial
    done = int(partial.notna().sum())
    assert len(rows) // 2 <= done < len(rows)
    assert len(engine.sessions()) == 0
    answers = engine.map(rows, template, max_tokens=6, resume=partial)
    turns = engine.turns(wide=True)
    ended = turns[turns["finish_reason"] != "cancelled"]
    shared, own = shared_and_own(engine)
    assert len(ended) == len(rows)
    began = turns["prefill_chunks"] > 0  # some were stopped while they waited
    assert turns["prefill_tokens"][began].sum() <= 1.1 * (shared + own)
    alone = [INSTRUCTION + f"\nText: {text}" for text in rows]
    assert list(answers) == one_by_one(engine, alone, max_tokens=6)
    kept = partial.notna()
    assert answers[kept].equals(partial[kept])
    ids = answers.attrs["turns"]["turn_id"]
    assert ids[kept].equals(partial.attrs["turns"]["turn_id"][kept])
    assert ids.is_unique


def test_a_seed_draws_for_each_row_as_it_does_alone(engine: LocalEngine, tiny: str) -> None:
    hot = {"temperature": 1.5, "max_tokens": 8}
    answers = engine.map(ROWS[:10], "Say {}", seed=7, **hot)
    alone = [
        one_by_one(engine, [f"Say {t}"], seed=7 + i, **hot)[0] for i, t in enumerate(ROWS[:10])
    ]
    assert list(answers) == alone
    assert engine.map(ROWS[:10], "Say {}", seed=7, concurrency=1, **hot).equals(answers)
    assert not engine.map(ROWS[:10], "Say {}", seed=8, **hot).equals(answers)


def test_rows_know_nothing_of_each_other(engine: LocalEngine, say: Say) -> None:
    say("first", "second")
    assert set(engine.map(ROWS[:30], "{}", concurrency=3)) == {"first"}


def test_a_full_queue_is_waited_for(engine: LocalEngine, tiny: str) -> None:
    engine.core.lane(tiny).waiting.limit = 1
    answers = engine.map(ROWS[:40], "{}", max_tokens=2, concurrency=30)
    assert answers.notna().all()


# --- the result -------------------------------------------------------------------------------


def test_the_result_has_the_index_of_the_rows_and_the_facts_of_the_turns(
    engine: LocalEngine, tiny: str
) -> None:
    rows = pd.DataFrame({"city": ["Rome", None, "Oslo"], "year": [1, 2, 3]}, index=["a", "b", "c"])
    answers = engine.map(rows, "{city} in {year}", max_tokens=2)
    assert isinstance(answers, pd.Series)
    assert (list(answers.index), answers.name, answers.dtype) == (
        ["a", "b", "c"],
        "answer",
        "string",
    )
    facts, turns = answers.attrs["turns"], engine.turns().set_index("turn_id")
    assert list(facts.columns) == [
        "turn_id",
        "cached_tokens",
        "prefill_tokens",
        "output_tokens",
        "finish_reason",
        "error",
        "prompt_hash",
    ]
    for label in ("a", "c"):
        row = turns.loc[facts["turn_id"][label]]
        for name in ("cached_tokens", "prefill_tokens", "output_tokens", "finish_reason"):
            assert facts[name][label] == row[name]
    assert (turns["source"] == "python").all()


def test_a_row_without_a_value_is_not_asked(engine: LocalEngine, tiny: str) -> None:
    values = ["a", None, float("nan"), pd.NA, pd.NaT, "b"]
    answers = engine.map(pd.Series(values, dtype=object), "{}", max_tokens=2)
    assert list(answers.isna()) == [False, True, True, True, True, False]
    assert len(engine.turns()) == 2
    assert answers.attrs["turns"]["turn_id"].isna().sum() == 4


def test_no_rows_are_an_empty_column(engine: LocalEngine, tiny: str) -> None:
    answers = engine.map(pd.Series([], dtype="string"), "{}")
    assert (len(answers), answers.dtype, len(answers.attrs["turns"])) == (0, "string", 0)


def test_results_go_through_what_pandas_does_with_attrs(engine: LocalEngine, tiny: str) -> None:
    one = engine.map(ROWS[:3], "{}", max_tokens=2)
    two = engine.map(ROWS[:3], "{}!", max_tokens=2)
    both = pd.concat([one, two.rename("other")], axis=1)
    assert both.shape == (3, 2)
    for made in (one.copy(), one[one.notna()], one.to_frame(), pickle.loads(pickle.dumps(one))):
        assert made.attrs["turns"].equals(one.attrs["turns"])
    assert one.attrs != two.attrs


def test_sessions_are_as_they_were(engine: LocalEngine, tiny: str) -> None:
    kept = engine.session(name="mine")
    engine.map(ROWS[:5], "{}", max_tokens=2)
    assert list(engine.sessions()["name"]) == ["mine"]
    assert kept.turns == 0


# --- prompts ----------------------------------------------------------------------------------

FRAME = pd.DataFrame({"a": ["x{b}", "{}"], "b c": [1.5, 2.0], 3: [True, False]})


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{a}", ["x{b}", "{}"]),  # a value is not searched again
        ("{b c}", ["1.5", "2.0"]),
        ("{3}-{a}", ["True-x{b}", "False-{}"]),
        ("{{a}} {a}", ["{a} x{b}", "{a} {}"]),
        ('{"key": [1]} {a}', ['{"key": [1]} x{b}', '{"key": [1]} {}']),
        ("{a} %s $a \\n {", ["x{b} %s $a \\n {", "{} %s $a \\n {"]),
        ("{{}} {a}", ["{} x{b}", "{} {}"]),
    ],
)
def test_only_columns_in_braces_are_replaced(template: str, expected: list[str]) -> None:
    assert row_prompts(FRAME, template) == expected


def test_a_series_s_value_has_two_names() -> None:
    rows = pd.Series([1, 2], name="n")
    assert row_prompts(rows, "{} {n}") == ["1 1", "2 2"]
    assert row_prompts(rows, lambda value: f"<{value}>") == ["<1>", "<2>"]


def test_integers_beside_other_numbers_stay_integers() -> None:
    rows = pd.DataFrame({"whole": [1, 2], "part": [0.5, 1.5]})
    assert row_prompts(rows, "{whole}/{part}") == ["1/0.5", "2/1.5"]


def test_a_callable_gets_a_row_and_may_leave_it_out() -> None:
    made = row_prompts(FRAME, lambda row: row["a"] if row["b c"] > 1.7 else None)
    assert made == [None, "{}"]


@pytest.mark.parametrize(
    ("rows", "prompt", "told"),
    [
        (["a"], "{}", "rows is a Series or a DataFrame, not list"),
        (FRAME, "{d}", "no column for {d} in the prompt; there are: {a}, {b c}, {3}"),
        (FRAME, "{}", "no column for {}"),
        (FRAME, "{a.upper}", "no column for {a.upper}"),
        (FRAME, "{a[0]}", "no column for {a[0]}"),
        (FRAME, "{a!r}", "no column for {a!r}"),
        (FRAME, "{a:>9}", "no column for {a:>9}"),
        (FRAME, "hello", "names no column"),
        (FRAME, 7, "prompt is a text or a callable, not int"),
        (FRAME, lambda row: 7, "the prompt of row 0 is a string, not int"),
        (FRAME, lambda row: "\ud800", "half of a surrogate pair"),
        (ROWS[3:], lambda text: 1 // 0, "the prompt of row 3: ZeroDivisionError: integer division"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "{a}", "two columns are called 'a'"),
    ],
)
def test_a_mistake_in_a_prompt_comes_before_anything_starts(
    engine: LocalEngine, tiny: str, rows: Any, prompt: Any, told: str
) -> None:
    with pytest.raises(InvalidOption) as mistake:
        engine.map(rows, prompt)
    assert told in str(mistake.value)
    assert (len(engine.turns()), len(engine.sessions())) == (0, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"on_error": "ignore"},
        {"concurrency": 0},
        {"concurrency": True},
        {"n": 2},
        {"seed": -1},
        {"temperature": -1},
        {"unknown": 1},
        {"resume": ROWS},
        {"schema": "text"},
        {"schema": {"type": "array"}},
    ],
)
def test_a_bad_option_comes_before_anything_starts(
    engine: LocalEngine, tiny: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOption):
        engine.map(ROWS, "{}", **options)
    assert (len(engine.turns()), len(engine.sessions())) == (0, 0)


def test_a_model_that_is_not_loaded_is_told(engine: LocalEngine, tiny: str) -> None:
    with pytest.raises(NothingLoaded):
        engine.map(ROWS, "{}", model="nothing-of-that-name")


# --- failures ---------------------------------------------------------------------------------

LONG = pd.Series(["short", "long " * 600, "short too"])


def test_a_row_that_fails_has_no_answer_and_says_why(engine: LocalEngine, tiny: str) -> None:
    answers = engine.map(LONG, "{}", max_tokens=2)
    assert list(answers.isna()) == [False, True, False]
    assert answers.attrs["turns"]["error"][1].startswith("ContextOverflow: the prompt has ")
    assert list(answers.attrs["turns"]["error"].isna()) == [True, False, True]


def test_a_row_that_fails_can_end_the_run(engine: LocalEngine, tiny: str) -> None:
    with pytest.raises(Unfinished, match="ContextOverflow: the prompt has") as ended:
        engine.map(LONG, "{}", max_tokens=2, on_error="raise", concurrency=1)
    assert list(ended.value.partial.isna()) == [False, True, True]
    assert len(engine.sessions()) == 0


def test_a_model_that_goes_ends_the_run_and_what_is_done_stays(
    engine: LocalEngine, tiny: str
) -> None:
    def unload(done: int, total: int) -> None:
        if done == 5:
            engine.unload(tiny)

    with pytest.raises(Unfinished, match="NothingLoaded") as ended:
        engine.map(ROWS, "{}", max_tokens=2, progress=unload)
    assert 5 <= ended.value.partial.notna().sum() < 200
    assert len(engine.sessions()) == 0


def test_a_fault_in_what_shows_progress_stops_all(engine: LocalEngine, tiny: str) -> None:
    def fail(done: int, total: int) -> None:
        raise OSError("no place to show it")

    with pytest.raises(Unfinished, match="OSError: no place to show it") as ended:
        engine.map(ROWS, "{}", max_tokens=2, progress=fail)
    assert 1 <= ended.value.partial.notna().sum() < 200
    assert len(engine.turns()) < 200
    assert len(engine.sessions()) == 0


def test_an_interrupt_while_all_rows_run_stops_them(engine: LocalEngine, say: Say) -> None:
    name = say("word " * 50)
    main = threading.main_thread().ident
    assert main is not None
    with Gate(model_of(engine, name), calls=3) as gate:

        def press() -> None:
            gate.wait()
            signal.pthread_kill(main, signal.SIGINT)
            gate.open()

        thread = threading.Thread(target=press)
        thread.start()
        with pytest.raises(KeyboardInterrupt) as stopped:
            engine.map(ROWS, "{}")
        thread.join()
    assert isinstance(stopped.value, Interrupted)
    assert stopped.value.partial.isna().all()
    facts = stopped.value.partial.attrs["turns"]
    assert set(facts["finish_reason"].dropna()) == {"cancelled"}
    assert len(engine.sessions()) == 0
    assert len(engine.turns()) < 20


# --- resuming ---------------------------------------------------------------------------------


def test_only_rows_that_are_new_or_changed_are_asked_again(engine: LocalEngine, tiny: str) -> None:
    rows = pd.Series(["a", "b", "c"], index=["x", "y", "z"])
    before = engine.map(rows, "Say {}", max_tokens=3)
    now = pd.Series(["c", "B", "d"], index=["z", "y", "new"])
    after = engine.map(now, "Say {}", max_tokens=3, resume=before)
    assert len(engine.turns()) == 5
    assert after["z"] == before["z"]
    assert list(after) == one_by_one(engine, ["Say c", "Say B", "Say d"], max_tokens=3)


@pytest.mark.parametrize(
    "changed",
    [{"max_tokens": 4}, {"system": "Be brief."}, {"seed": 3}, {"temperature": 0.5}],
)
def test_other_options_ask_all_rows_again(
    engine: LocalEngine, tiny: str, changed: dict[str, Any]
) -> None:
    before = engine.map(ROWS[:3], "{}", max_tokens=3)
    engine.map(ROWS[:3], "{}", resume=before, **{"max_tokens": 3, **changed})
    assert len(engine.turns()) == 6


def test_rows_that_failed_are_asked_again(engine: LocalEngine, tiny: str) -> None:
    before = engine.map(LONG, "{}", max_tokens=2)
    after = engine.map(LONG, "{}", max_tokens=2, resume=before)
    assert len(engine.turns()) == 2  # the long one never became a turn
    assert after.attrs["turns"].equals(before.attrs["turns"])


def test_rows_that_cannot_be_told_apart_cannot_be_resumed(engine: LocalEngine, tiny: str) -> None:
    rows = pd.Series(["a", "b"], index=[0, 0])
    before = engine.map(rows, "{}", max_tokens=2)
    with pytest.raises(InvalidOption, match="without duplicates"):
        engine.map(rows, "{}", max_tokens=2, resume=before)


# --- answers with a form ----------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}, "sure": {"type": "boolean"}},
    "required": ["mood", "sure"],
    "additionalProperties": False,
}


class Judgement(BaseModel):
    mood: Literal["good", "bad"]
    sure: bool


@pytest.mark.parametrize("schema", [SCHEMA, Judgement])
def test_answers_of_a_schema_are_columns(engine: LocalEngine, say: Say, schema: Any) -> None:
    say('{"mood": "good", "sure": true}')
    found = engine.map(ROWS[:12], "{}", schema=schema)
    assert isinstance(found, pd.DataFrame)
    assert list(found.columns) == ["mood", "sure"]
    assert set(found["mood"]) == {"good"}
    assert (found["sure"].dtype, found["sure"].all()) == ("boolean", True)
    again = engine.map(ROWS[:12], "{}", schema=schema, resume=found)
    assert len(engine.turns()) == 12
    assert again.equals(found)


class Node(BaseModel):
    v: int
    kids: list[Node] = []


def test_a_model_that_holds_others_of_its_kind_has_columns(engine: LocalEngine, say: Say) -> None:
    say('{"v": 1, "kids": [{"v": 2, "kids": []}]}')
    found = engine.map(ROWS[:2], "{}", schema=Node)
    assert [str(dtype) for dtype in found.dtypes] == ["Int64", "object"]
    assert list(found.iloc[0]) == [1, [Node(v=2)]]


@pytest.mark.parametrize("reference", ["#", "#/$defs/x", "#/nowhere", "elsewhere.json"])
def test_a_reference_to_no_object_is_no_schema(reference: str) -> None:
    with pytest.raises(BadSchema, match="object with properties"):
        schema_fields({"$ref": reference, "$defs": {"x": {"$ref": "#"}}})


def test_properties_keep_their_types_and_what_has_no_type_of_a_column_stays(
    engine: LocalEngine, say: Say
) -> None:
    say('{"n": 3, "x": 0.5, "name": "a", "tags": ["b", "c"]}')
    kinds = {"n": "integer", "x": "number", "name": "string"}
    properties: dict[str, Any] = {name: {"type": kind} for name, kind in kinds.items()}
    properties["tags"] = {"type": "array", "items": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    found = engine.map(ROWS[:2], "{}", schema=schema)
    assert [str(dtype) for dtype in found.dtypes] == ["Int64", "Float64", "string", "object"]
    assert list(found.loc[0]) == [3, 0.5, "a", ["b", "c"]]
    assert engine.map(ROWS[:2], "{}", schema=schema, resume=found).equals(found)


def test_an_answer_that_was_cut_is_no_answer(engine: LocalEngine, tiny: str) -> None:
    found = engine.map(ROWS[:3], "{}", schema=SCHEMA, max_tokens=4)
    assert found.isna().all(axis=None)
    assert found.attrs["turns"]["error"].str.contains("did not come to its end: length").all()


def test_a_schema_that_cannot_be_enforced_is_told(engine: LocalEngine, tiny: str) -> None:
    with pytest.raises(BadSchema):
        engine.map(ROWS[:3], "{}", schema={"type": "object", "properties": {"a": {"type": "x"}}})
    assert len(engine.turns()) == 0


# --- progress ---------------------------------------------------------------------------------


def test_progress_is_told_row_by_row(engine: LocalEngine, tiny: str) -> None:
    told: list[tuple[int, int]] = []
    engine.map(ROWS[:7], "{}", max_tokens=1, progress=lambda *at: told.append(at))
    assert told == [(done, 7) for done in range(1, 8)]


@pytest.mark.parametrize(
    ("watched", "progress", "shown"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_a_bar_is_shown_where_somebody_watches(
    engine: LocalEngine,
    tiny: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    watched: bool,
    progress: bool,
    shown: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: watched)
    engine.map(ROWS[:3], "{}", max_tokens=1, progress=progress)
    out, err = capsys.readouterr()
    assert ("answering" in err, out) == (shown, "")
