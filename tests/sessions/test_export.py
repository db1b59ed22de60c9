"""Sessions as files: exported, imported, kept and restored."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine.running import until
from markdown_it import MarkdownIt
from scripted import THINKING, load_scripted, scripted_folder

from mlxnb.errors import (
    InvalidOption,
    NothingLoaded,
    SessionExists,
    StateUnwritable,
    UnknownSession,
)
from mlxnb.sessions.exported import read
from mlxnb.sessions.exported_store import Kept, kept_file
from mlxnb.sessions.session import Session

from .test_toolbox import add, call

Say = Callable[..., str]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is kept by this test alone."""
    folder = tmp_path / "state"
    monkeypatch.setenv("MLXNB_STATE", str(folder))
    return folder


@pytest.fixture
def told(engine: Any, say: Say) -> Session:
    """A session of two turns, the first of which called a function."""
    say(call("add", a=1, b=2), "<think>hm</think>It is 3.", "And on.", "And on and on.")
    session: Session = engine.session(name="told", system="Be ünique.", seed=7, stop=["."])
    session.tool(add, confirm=False)
    session.run("1 + 2?", stop=[])
    return session


def prompts(engine: Any) -> list[list[int]]:
    return [list(engine.ledger[i].prompt) for i in engine.turns()["turn_id"]]


# --- JSON -------------------------------------------------------------------------------------


def test_an_import_goes_on_token_for_token(engine: Any, told: Session, tmp_path: Path) -> None:
    path = told.export(tmp_path / "told.json")
    other = engine.import_session(path, name="other")
    assert other.options == told.options
    assert (other.history, other.tokens, other.turns) == (told.history, told.tokens, told.turns)
    assert (told.send("more").text, other.send("more").text) == ("And on", "And on")
    one, two = prompts(engine)[-2:]
    assert one == two
    assert other.tokens == told.tokens
    other.rewind(2)
    told.rewind(2)
    assert (other.history, other.tokens) == (told.history, told.tokens)


def test_an_import_can_be_exported_again(engine: Any, told: Session, tmp_path: Path) -> None:
    first = told.export(tmp_path / "one.json")
    second = engine.import_session(first, name="other").export(tmp_path / "two.json")
    one, two = (json.loads(path.read_text("utf-8")) for path in (first, second))
    varying = ("id", "name", "saved_at")
    assert {n: v for n, v in one.items() if n not in varying} == {
        n: v for n, v in two.items() if n not in varying
    }
    assert one["id"] != two["id"]


def test_a_file_is_for_its_user_alone_and_replaced_whole(told: Session, tmp_path: Path) -> None:
    path = tmp_path / "told.json"
    path.write_text("old")
    os.chmod(path, 0o644)
    assert told.export(str(path)) == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text("utf-8"))["format"] == "mlxnb-session"
    assert [p.name for p in tmp_path.iterdir() if "told" in p.name] == ["told.json"]


def test_a_file_that_cannot_be_written_says_why(told: Session, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"no/told.json cannot be written: No such file"):
        told.export(tmp_path / "no" / "told.json")


def test_results_that_are_not_said_yet_are_taken_along(
    engine: Any, say: Say, tmp_path: Path
) -> None:
    say(call("add", a=1, b=2) + call("add", a=3, b=4), "Fine.")
    session = engine.session()
    session.tool(add)
    one, two = session.send("go").tool_calls
    session.add_tool_result(one.id, {"sum": 3})
    other = engine.import_session(session.export(tmp_path / "x.json"), "other")
    assert other.send_tool_result(two.id, 7).text == "Fine."
    assert [m["content"] for m in other.history if m["role"] == "tool"] == ['{"sum": 3}', "7"]


def test_another_model_s_tokens_are_left_out_and_it_says_so(
    engine: Any, told: Session, tmp_path: Path, say: Say
) -> None:
    path = told.export(tmp_path / "told.json")
    name = say("x", "y", "Another answer.", template=THINKING)
    with pytest.warns(UserWarning, match="exported from another model than .* rendered anew"):
        other = engine.import_session(path, "other", model=name)
    assert (other.model, other.tokens, other.history) == (name, [], told.history)
    assert other.turns == told.turns
    other.send("more")
    text = engine.core.runtime(name).tokenizer.decode(prompts(engine)[-1])
    assert text.index("Be ünique.") < text.index("It is 3.") < text.index("more")
    assert other.tokens != []


def test_a_model_that_is_not_loaded_is_named(engine: Any, told: Session, tmp_path: Path) -> None:
    path = told.export(tmp_path / "told.json")
    engine.unload(told.model)
    with pytest.raises(NothingLoaded):
        engine.import_session(path, "other")


def test_a_name_that_is_taken_is_refused(engine: Any, told: Session, tmp_path: Path) -> None:
    path = told.export(tmp_path / "told.json")
    with pytest.raises(SessionExists, match="told"):
        engine.import_session(path)
    engine.remove_session("told")
    assert engine.import_session(path).name == "told"


def changed(path: Path, **fields: Any) -> Path:
    content = json.loads(path.read_text("utf-8"))
    for name, value in fields.items():
        if callable(value):
            value(content[name])
        else:
            content[name] = value
    path.write_text(json.dumps(content), "utf-8")
    return path


def without_call(messages: list[Any]) -> None:
    del messages[2]["tool_calls"]


def another_system(messages: list[Any]) -> None:
    messages[0]["content"] = "Obey."


def odd_role(messages: list[Any]) -> None:
    messages[1]["role"] = "developer"


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"format": "other"}, "format: Input should be 'mlxnb-session'"),
    ({"version": 2}, "version: Input should be 1"),
    ({"extra": 1}, "extra: Extra inputs are not permitted"),
    ({"name": ""}, "name: String should have at least 1 character"),
    ({"messages": "x"}, "messages: Input should be a valid array"),
    ({"messages": without_call}, "messages: a tool's result without its call"),
    ({"messages": another_system}, "messages: the system text is not that of the options"),
    ({"messages": odd_role}, "messages.1.role: Input should be"),
    ({"messages": lambda m: m.pop()}, "messages: no answer at the end"),
    ({"tokens": lambda t: t.append(-1)}, "tokens.*: Input should be greater than or equal to 0"),
    ({"tokens": []}, "lengths: more than there are tokens"),
    ({"key": None}, "key: tokens without it"),
    ({"lengths": [1]}, "lengths: not one for each answer"),
    ({"lengths": [5, 1]}, "lengths: they do not ascend"),
    ({"spans": [{"start": 5, "end": 2, "role": "user", "message": 0}]}, "spans: not places"),
    ({"spans": [{"start": 0, "end": 2, "role": "user", "message": 99}]}, "spans: no such message"),
    ({"results": {"c": {"role": "tool", "content": "x"}}}, "results: of calls that are not out"),
    ({"options": lambda o: o.update(history="x")}, "options.history: Input should be"),
    ({"options": lambda o: o["sampling"].update(top_p=7)}, "options.sampling: .*top_p"),
    ({"options": lambda o: o.update(tools=["x"])}, "options.tools: not JSON objects"),
]


@pytest.mark.parametrize(("change", "reason"), BROKEN, ids=[reason for _, reason in BROKEN])
def test_a_file_that_is_none_says_where(
    engine: Any, told: Session, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    path = changed(told.export(tmp_path / "told.json"), **change)
    with pytest.raises(InvalidOption, match=rf"told.json is no exported .*: {reason}") as raised:
        engine.import_session(path, "other")
    assert "\n" not in str(raised.value)
    assert engine.sessions()["name"].tolist() == ["told"]


def test_tokens_that_the_model_does_not_have_are_refused(
    engine: Any, told: Session, tmp_path: Path
) -> None:
    path = changed(told.export(tmp_path / "told.json"), tokens=lambda t: t.append(2**31))
    with pytest.raises(InvalidOption, match="tokens that its model does not have"):
        engine.import_session(path, "other")


@pytest.mark.parametrize("field", ["format", "version"])
def test_a_file_that_does_not_say_what_it_is_is_refused(
    engine: Any, told: Session, tmp_path: Path, field: str
) -> None:
    path = told.export(tmp_path / "told.json")
    content = json.loads(path.read_text("utf-8"))
    del content[field]
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(InvalidOption, match=f"told.json is no exported .*: {field}: Field requ"):
        engine.import_session(path, "other")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": "\\ud800"}'])
def test_what_is_no_json_is_refused(engine: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InvalidOption, match=r"x.json is no exported session of mlxnb: "):
        engine.import_session(path)


def test_a_file_that_is_not_there_says_so(engine: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"x.json cannot be read: No such file"):
        engine.import_session(tmp_path / "x.json")


def test_a_session_without_turns_is_exported_too(engine: Any, say: Say, tmp_path: Path) -> None:
    say("Hi.")
    path = engine.session(system="Be brief.").export(tmp_path / "x.json")
    other = engine.import_session(path, "other")
    assert other.history == [{"role": "system", "content": "Be brief."}]
    assert other.send("hi").text == "Hi."


def test_template_history_has_no_tokens(engine: Any, say: Say, tmp_path: Path) -> None:
    say("Hi.", "Again.")
    session = engine.session(history="template")
    session.send("hi")
    path = session.export(tmp_path / "x.json")
    assert json.loads(path.read_text("utf-8"))["tokens"] == []
    other = engine.import_session(path, "other")
    assert other.send("and?").text == "Again."
    assert (other.turns, other.options.history) == (2, "template")


# --- Markdown ---------------------------------------------------------------------------------


def test_markdown_has_all_that_was_said(told: Session, tmp_path: Path) -> None:
    path = told.export(tmp_path / "told.md")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text("utf-8")
    assert text == told.to_markdown()
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [
        "# told",
        *("## System", "## User", "## Assistant", "## Result of add", "## Assistant"),
    ]
    assert "> Be ünique." in text
    assert 'Call of add:\n\n```json\n{\n  "a": 1,\n  "b": 2\n}\n```' in text
    assert "Reasoning:\n\n> hm\n\nAnswer:\n\n> It is 3." in text


HOSTILE = [
    "```python\nleft open",
    "~~~~\n# not a heading",
    "<!-- never closed\n\n# h",
    "<script>\nx\n\ny",
    "> > deep\nlazy",
    "- a\n\n  # in a list\n\n1. b",
    "# A heading\n\n## Assistant\n\nnot me",
    "    code\n\ttab",
    "[a]: http://x\n\n***\n---",
    "a\u2028b\x0bc\rd\n\n\n",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_is_said_gets_out_of_its_quote(engine: Any, say: Say, text: str) -> None:
    say(text + "\n````\n`````", "Fine.")
    session = engine.session(name="a_b *c*")
    session.send(text)
    session.send("last")
    tokens = MarkdownIt().parse(session.to_markdown())
    heads = [t.level for t in tokens if t.type == "heading_open" and t.level == 0]
    quotes = [t for t in tokens if t.type == "blockquote_open" and t.level == 0]
    assert (len(heads), len(quotes)) == (1 + 4, 4)
    assert [t.type for t in tokens if t.level == 0 and t.type.startswith(("html", "fence"))] == []
    assert tokens[1].children is not None
    assert "".join(child.content for child in tokens[1].children) == "a_b *c*"


def test_fences_of_results_are_longer_than_those_in_them(engine: Any, say: Say) -> None:
    def fences() -> str:
        return "```\ncode\n````\n# head"

    say(call("fences"), "Fine.")
    session = engine.session()
    session.tool(fences, confirm=False)
    session.run("go")
    tokens = MarkdownIt().parse(session.to_markdown())
    blocks = [token.content for token in tokens if token.type == "fence"]
    assert blocks == ["{}\n", "```\ncode\n````\n# head\n"]


# --- kept sessions ----------------------------------------------------------------------------


def saved(name: str, turns: int) -> None:
    """Wait until so many turns are in the file."""
    until(lambda: len(read(kept_file(name)).lengths) == turns)


def gone(engine: Any, name: str) -> None:
    """As if the process had ended: the session is forgotten and its file is not."""
    getattr(engine, "local", engine).remove_session(name)


def test_a_session_that_is_kept_is_saved_after_each_turn(engine: Any, told: Session) -> None:
    told.keep()
    file = kept_file("told")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    saved("told", 2)
    told.send("more")
    saved("told", 3)
    told.rewind()
    saved("told", 2)
    tokens, history = told.tokens, told.history
    gone(engine, "told")
    again = engine.restore_session("told")
    assert (again.tokens, again.history) == (tokens, history)
    again.send("more")
    saved("told", 3)


def test_restore_takes_the_one_that_was_saved_last(engine: Any, say: Say) -> None:
    say("Hi.", "Again.")
    for name in ("one", "two"):
        session = engine.session(name=name)
        session.keep()
        session.send("hi")
        saved(name, 1)
        gone(engine, name)
    assert engine.restore_session().name == "two"
    with pytest.raises(UnknownSession, match=r"no session 'three' is kept \(kept: two, one\)"):
        engine.restore_session("three")


def test_restore_finds_a_session_that_is_here(engine: Any, told: Session) -> None:
    assert engine.restore_session("told").name == "told"
    told.keep()
    assert engine.restore_session().turns == 2
    assert len(engine.sessions()) == 1


def test_another_session_of_that_name_is_not_handed_back(engine: Any, told: Session) -> None:
    told.keep()
    saved("told", 2)
    gone(engine, "told")
    other = engine.session(name="told")
    for name in ("told", None):
        with pytest.raises(
            SessionExists, match=r"another session 'told' is here .* remove it first"
        ):
            engine.restore_session(name)
    assert other.turns == 0
    engine.remove_session("told")
    assert engine.restore_session("told").turns == 2
    assert engine.restore_session("told").turns == 2  # it is here by now


def test_a_folder_that_was_removed_is_made_again(
    engine: Any, told: Session, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told.keep()
    shutil.rmtree(state / "sessions")
    told.rewind()
    until(lambda: kept_file("told").exists())
    saved("told", 1)
    assert stat.S_IMODE((state / "sessions").stat().st_mode) == 0o700
    assert "was not saved" not in caplog.text


def test_a_file_in_the_place_of_the_folder_is_told(told: Session, state: Path) -> None:
    kept = Kept("told", "id", told.exported)
    shutil.rmtree(state / "sessions")
    (state / "sessions").write_text("")
    with pytest.raises(StateUnwritable, match="sessions cannot be made"):
        kept.write()
    with pytest.raises(StateUnwritable, match="sessions cannot be made"):
        told.keep()


def test_nothing_kept_says_so(engine: Any) -> None:
    with pytest.raises(UnknownSession, match=r"no session is kept \(kept: none\)"):
        engine.restore_session()


def test_another_session_of_that_name_is_not_written_over(engine: Any, told: Session) -> None:
    told.keep()
    saved("told", 2)
    gone(engine, "told")
    other = engine.session(name="told")
    with pytest.raises(SessionExists, match="another session 'told' is kept already"):
        other.keep()
    saved("told", 2)


def test_a_removed_session_s_file_stays_unless_it_is_to_be_forgotten(
    engine: Any, told: Session
) -> None:
    told.keep()
    engine.remove_session("told")
    assert kept_file("told").exists()
    engine.restore_session("told")
    engine.remove_session("told", forget=True)
    assert not kept_file("told").exists()


def test_a_file_without_its_session_can_be_forgotten(engine: Any, told: Session) -> None:
    told.keep()
    engine.remove_session("told")
    engine.remove_session("told", forget=True)
    assert not kept_file("told").exists()
    with pytest.raises(UnknownSession):
        engine.remove_session("told", forget=True)


def test_what_was_forgotten_is_not_written_again(told: Session) -> None:
    kept = Kept("forgotten", "id", told.exported)
    assert kept_file("forgotten").exists()
    kept.forget()
    kept.save()
    for thread in threading.enumerate():
        if thread.name == "mlxnb-keep":
            thread.join()
    assert not kept_file("forgotten").exists()


def test_a_broken_file_hides_no_other(
    engine: Any, told: Session, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told.keep()
    (state / "sessions" / "broken.json").write_text("{")
    gone(engine, "told")
    assert engine.restore_session().name == "told"


@pytest.mark.parametrize("name", ["..x", "a/b", "é" * 200, "A", "a\nb"])
def test_any_name_can_be_kept(engine: Any, say: Say, name: str) -> None:
    say("Hi.")
    session = engine.session(name=name)
    session.keep()
    gone(engine, name)
    assert engine.restore_session(name).name == name


def test_a_scripted_model_of_another_engine_goes_on_where_it_was(
    engine: Any, tmp_path: Path
) -> None:
    """The model finds out from its KV which turn it is: the past is really there."""
    folder = scripted_folder(tmp_path / "other", ["One.", "Two.", "Three."])
    load_scripted(engine, folder)
    session = engine.session(name="s")
    session.send("a")
    session.send("b")
    path = session.export(tmp_path / "s.json")
    engine.unload(session.model)
    load_scripted(engine, folder)
    assert engine.import_session(path, "t").send("c").text == "Three."
