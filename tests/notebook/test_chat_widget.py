"""The chat widget without a browser: what it tells the front end, over both kinds of engine."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from host.remote.attached import Attached
from IPython.core.interactiveshell import InteractiveShell
from scripted import Gate, load_scripted, model_of, scripted_folder

import mlxnb
from mlxnb.errors import InvalidOption, SessionBusy, SessionExists
from mlxnb.notebook.magics import register
from mlxnb.notebook.widgets import chat as chat_module
from mlxnb.notebook.widgets.chat import Chat
from mlxnb.notebook.widgets.chat_open import open_chat
from mlxnb.notebook.widgets.chat_rooms import Rooms, rooms
from mlxnb.notebook.widgets.transcript import LOST, Exchange, meter, noted, results_due, results_of
from mlxnb.notebook.widgets.transcript_html import as_bundle
from mlxnb.records.colours import ORIGINS
from mlxnb.records.turn import ToolCall, Turn
from mlxnb.sessions.local import LocalEngine

from .cells import Cells
from .test_chat_blocks import put, source

MIB = 2**20
DEADLINE_S = 30
TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {}}},
}
CALL = '<think>\nsum\n</think>\n\n<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'


def until(true: Callable[[], Any]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)


class Front(Chat):
    """A chat whose messages are carried out here as the page carries them out.

    ``told`` are all messages; ``shown`` is what the page shows, by id of the exchange.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.told: list[dict[str, Any]] = []
        self.shown: dict[int, dict[str, Any]] = {}
        self.busy = False
        super().__init__(*args, **options)
        self.ask("hello", view="v")
        until(lambda: self.of("list"))

    def send(self, content: dict[str, Any], buffers: Any = None) -> None:
        del buffers
        self.told.append(content)
        kind, busy = content["kind"], content.get("busy", self.busy)
        self.busy = self.busy or busy  # who looks sees no turn that has begun and is not answered
        if kind == "transcript":
            self.shown = {told["id"]: told for told in content["exchanges"]}
        elif kind == "exchange":
            self.shown[content["exchange"]["id"]] = content["exchange"]
        elif kind == "stream":
            self._stream(content)
        self.busy = busy

    def _stream(self, told: dict[str, Any]) -> None:
        shown = self.shown[told["id"]]
        for name in ("answer", "reasoning"):
            if name in told:
                shown[name] = put(shown[name], told[name])

    def ask(self, kind: str, **more: Any) -> str:
        """What the page sends; its id."""
        id = f"request-{len(self.told)}"
        self._take(None, {"kind": kind, "id": id, **more}, None)
        return id

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [told for told in list(self.told) if told["kind"] == kind]

    def say(self, text: str, **sampling: Any) -> dict[str, Any]:
        """Send and wait for the end; what is shown of the turn."""
        self.ask("send", text=text, sampling=sampling)
        return self.end()

    def end(self) -> dict[str, Any]:
        """Wait until a turn has ended that has begun by now or begins soon."""
        ends = len(self.ends)
        until(lambda: len(self.ends) > ends)
        return self.ends[-1]

    @property
    def ends(self) -> list[dict[str, Any]]:
        return [told["exchange"] for told in self.of("exchange") if not told["busy"]]

    @property
    def said(self) -> list[tuple[str | None, str]]:
        """What the page shows: what was said, and the text of each answer's blocks."""
        return [(told["said"], source(told["answer"])) for told in self.shown.values()]


def stop(front: Front) -> None:
    """Press the stop button, and wait until the engine knows."""
    turn, known = front._room._turn, threading.Event()
    until(lambda: turn._reply and turn._reply.turn is None)  # of rounds it is the last one
    reply = turn._reply
    cancel = reply.cancel

    def cancel_and_say_so() -> None:
        cancel()
        known.set()

    reply.cancel = cancel_and_say_so
    front.ask("stop")
    assert known.wait(DEADLINE_S)


# --- a conversation --------------------------------------------------------------------------


@pytest.fixture(params=["local", "remote"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalEngine | Attached]:
    """An engine of this process, and one of another, whose host runs here all the same."""
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(Rooms, "PERIOD_S", 0.02)
    made = LocalEngine(budget=64 * MIB) if request.param == "local" else Attached()
    yield made
    made.close() if isinstance(made, LocalEngine) else made.end()


@pytest.fixture
def say(place: Any, tmp_path: Path) -> Callable[..., str]:
    """Load a scripted model; its name."""

    def load(*answers: str, **options: Any) -> str:
        folder = tmp_path / f"scripted-{len(list(tmp_path.iterdir()))}"
        return load_scripted(place, scripted_folder(folder, answers, **options))

    return load


@pytest.fixture
def chat(place: Any) -> Iterator[Callable[..., Front]]:
    made: list[Front] = []

    def open(session: Any, save: bool = False) -> Front:
        made.append(Front(place, session, save))
        return made[-1]

    yield open
    for each in made:
        each.close()
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("mlxnb-chat")])


def test_a_message_is_answered_and_metered(place: Any, say: Any, chat: Any) -> None:
    say("Hello *you*.", "Again.")
    front = chat(place.session(name="s"))
    told = front.say("hi")
    assert told["said"] == "hi" and told["kept"] and not told["running"]
    assert source(told["answer"]) == "<p>Hello <em>you</em>.</p>\n"
    turn = front.session.last
    usage = {"cached": turn.cached_tokens, "computed": turn.prefill_tokens}
    assert told["meter"].items() >= (usage | {"generated": turn.output_tokens, "end": ""}).items()
    assert front.say("more")["meter"]["cached"] > 0
    assert front.said == [("hi", "<p>Hello <em>you</em>.</p>\n"), ("more", "<p>Again.</p>\n")]
    assert list(place.turns()["source"]) == ["widget", "widget"]


def test_c43_sending_returns_at_once_and_stopping_works_in_prefill(
    place: Any, say: Any, chat: Any
) -> None:
    name = say("Hello.")
    front = chat(place.session(name="s"))
    with Gate(model_of(getattr(place, "local", place), name)) as gate:
        front.ask("send", text="hi", sampling={})
        gate.wait()
        assert not front.ends
        stop(front)
    until(lambda: front.ends)
    (told,) = front.ends
    assert told["answer"] == [] and not told["kept"] and "stopped" in told["meter"]["end"]
    assert front.session.turns == 0
    assert front.say("hi")["kept"]


def test_a_refusal_is_told_and_nothing_is_shown(place: Any, say: Any, chat: Any) -> None:
    say("Hello.")
    front = chat(place.session(name="s"))
    id = front.ask("send", text="hi", sampling={"temperature": -1})
    until(lambda: front.of("refused"))
    (refused,) = front.of("refused")
    assert refused["request"] == id and "temperature" in refused["reason"]
    assert front.shown == {} and not rooms(place).of(front.session).busy
    assert front.say("hi")["kept"]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"kind": "send", "text": "  "}, "no text"),
        ({"kind": "send"}, "no text"),
        ({"kind": "session", "name": "gone"}, "no session 'gone'"),
        ({"kind": "edit", "exchange": 10**9, "text": "x"}, "not part of the session"),
        ({"kind": "fly"}, "cannot do 'fly'"),
        ({"kind": "new", "model": "none"}, "none"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(
    place: Any, say: Any, chat: Any, asked: dict[str, Any], reason: str
) -> None:
    say("Hello.")
    front = chat(place.session(name="s"))
    front._take(None, {"id": "1", **asked}, None)
    until(lambda: front.of("refused"))
    assert reason in front.of("refused")[0]["reason"]
    assert "\n" not in front.of("refused")[0]["reason"]


def test_a_second_message_is_refused_while_one_is_answered(place: Any, say: Any, chat: Any) -> None:
    name = say("Hello.")
    session = place.session(name="s")
    one, other = chat(session), chat(session)
    with Gate(model_of(getattr(place, "local", place), name)) as gate:
        one.ask("send", text="hi")
        gate.wait()
        id = other.ask("send", text="me too")
        until(lambda: other.of("refused"))
    assert other.of("refused")[0]["request"] == id and one.of("refused") == []
    until(lambda: other.ends)
    assert one.said == other.said == [("hi", "<p>Hello.</p>\n")]


def test_chats_on_one_session_stay_in_step_and_a_late_one_too(
    place: Any, say: Any, chat: Any
) -> None:
    name = say("One two three.\n\nFour five.\n\n```py\na = 1\nb = 2\n```\nSix.")
    session = place.session(name="s")
    one, other = chat(session), chat(session)
    with Gate(model_of(getattr(place, "local", place), name), calls=25) as gate:
        one.ask("send", text="hi")
        gate.wait()
        until(lambda: other.shown)
        late = chat(session)
        until(lambda: late.shown)
    until(lambda: late.ends)
    assert one.said == other.said == late.said
    assert "a = 1" in one.said[0][1] and "Six" in one.said[0][1]


def test_turns_of_other_doors_are_shown(place: Any, say: Any, chat: Any) -> None:
    say("Hello.", "Again.", "Third.")
    session = place.session(name="s")
    session.send("before")
    front = chat(session)
    until(lambda: front.said == [("before", "<p>Hello.</p>\n")])
    session.send("from a cell")
    until(lambda: len(front.said) == 2 and not front.busy)
    assert front.said[1] == ("from a cell", "<p>Again.</p>\n")
    meter = front.shown[max(front.shown)]["meter"]
    assert meter["generated"] == session.last.output_tokens
    session.rewind(2)
    until(lambda: front.said == [])


def test_a_turn_of_another_door_streams_and_can_be_stopped(place: Any, say: Any, chat: Any) -> None:
    name = say("One two three four five six seven eight.")
    session = place.session(name="s")
    front, other = chat(session), chat(session)
    with Gate(model_of(getattr(place, "local", place), name), calls=5) as gate:
        answer = session.reply("from a cell")
        reader = threading.Thread(target=answer.outcome)
        reader.start()
        gate.wait()
        for each in front, other:
            until(lambda each=each: each.said and "One" in each.said[-1][1])
            assert each.busy and each.said[-1][0] == "from a cell"
        late = chat(session)
        assert late.busy and late.said[-1][0] == "from a cell"
        front.ask("stop")
        until(lambda: answer_cancelled(answer, place))
    reader.join()
    until(lambda: not (front.busy or other.busy or late.busy))
    (shown,) = front.shown.values()
    assert not shown["kept"] and shown["meter"]["end"].startswith("stopped")
    assert front.shown == other.shown == late.shown
    assert "eight" in source(front.say("more")["answer"])


def answer_cancelled(answer: Any, place: Any) -> bool:
    """Whether the engine knows that a reply is to stop."""
    requests = getattr(answer, "_requests", None)
    return all(request.cancelled for request in requests) if requests else answer._cancelled


def test_a_turn_that_nobody_reads_is_shown_at_its_end(place: Any, say: Any, chat: Any) -> None:
    say("Hello.")
    session = place.session(name="s")
    front = chat(session)
    reply = session.reply("unread")
    until(lambda: reply.turn is not None)
    until(lambda: front.said == [("unread", "<p>Hello.</p>\n")])
    until(lambda: not front.busy)
    before = dict(front.shown)
    front._room.look(deep=True)
    assert front.shown == before


@pytest.mark.parametrize("late", [False, True], ids=["at once", "when it is over"])
def test_calls_of_another_door_are_shown_in_their_order(
    place: Any, say: Any, chat: Any, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """A turn can be over before a chat is told of it."""
    say(CALL, CALL, "Done.")
    session = place.session(name="s")
    tell = session._tell

    def tell_late(said: Any, after: Any, reply: Any, source: Any) -> None:
        if late:
            reply.result()
        tell(said, after, reply, source)

    monkeypatch.setattr(session, "_tell", tell_late)

    def add(a: int) -> int:
        """Double a number."""
        return 2 * a

    session.tool(add, confirm=False)
    front = chat(session)
    session.run("add")
    until(lambda: len(front.shown) == 3 and not front.busy)
    shown = list(front.shown.values())
    assert [told["said"] for told in shown] == ["add", None, None]
    assert [[r["text"] for r in told["results"]] for told in shown] == [[], ["4"], ["4"]]
    assert all(told["kept"] and told["meter"]["generated"] for told in shown)
    before = dict(front.shown)
    front._room.look(deep=True)
    assert front.shown == before and len(front.of("transcript")) == 1


@pytest.mark.parametrize("ended", [0, 1, 2], ids=["running", "ended", "and another"])
def test_the_results_that_a_turn_goes_on_from_are_known_also_when_it_has_ended(ended: int) -> None:
    """A shared host may have ended it, and more, before this process looks at the history."""
    call = {"id": "c", "function": {"name": "add", "arguments": "{}"}}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "add", "content": "4"},
    ]
    called = SimpleNamespace(call_id="c", turn_id="t", name="add", told="4", error=None)
    caller: Any = Turn("t", finish_reason="tool_calls", tool_calls=[ToolCall("c", "add", {})])
    session: Any = SimpleNamespace(
        last=Turn("u", finish_reason="stop") if ended else caller,
        history=[*history, *[{"role": "assistant", "content": "Done."}] * ended],
        toolbox=SimpleNamespace(calls=[called], of_turn=lambda turn: [called] * (turn == "t")),
    )
    assert [result["text"] for result in results_of(session, caller)] == ["4"]
    assert results_due(session) == []  # they are in the history
    session.last, session.history = caller, history[:2]
    assert len(results_due(session)) == len(results_of(session, caller)) == 1
    session.history = history[:1]  # it was taken back
    assert results_due(session) == results_of(session, caller) == []


def test_an_edit_forks_and_leaves_the_old_branch(place: Any, say: Any, chat: Any) -> None:
    say("One.", "Two.", "Three.")
    front = chat(place.session(name="s"))
    front.say("a")
    second = front.say("b")
    front.say("c")
    front.ask("edit", exchange=second["id"], text="B", sampling={})
    until(lambda: front.session.name != "s" and front.ends[-1]["said"] == "B")
    assert front.said == [("a", "<p>One.</p>\n"), ("B", "<p>Two.</p>\n")]
    assert [m["content"] for m in place.find_session("s").history[::2]] == ["a", "b", "c"]
    assert front.session.forked_from == "s"
    assert front.shown[max(front.shown)]["meter"]["cached"] > 0


def test_the_first_message_can_be_edited(place: Any, say: Any, chat: Any) -> None:
    say("One.", "Two.")
    front = chat(place.session(name="s", system="Be brief."))
    first = front.say("a")
    front.say("b")
    front.ask("edit", exchange=first["id"], text="A", sampling={})
    until(lambda: front.ends[-1]["said"] == "A")
    assert front.said == [("A", "<p>One.</p>\n")]
    assert front.session.history[0] == {"role": "system", "content": "Be brief."}


def test_an_answer_is_made_again_on_a_branch(place: Any, say: Any, chat: Any) -> None:
    say("One.", "Two.")
    front = chat(place.session(name="s"))
    front.say("a")
    last = front.say("b")
    front.ask("regenerate", exchange=last["id"], sampling={"max_tokens": 1})
    until(lambda: front.session.name != "s" and len(front.ends) == 3)
    assert front.ends[-1]["said"] == "b"
    assert front.ends[-1]["meter"]["end"] == "cut at max_tokens"
    assert place.find_session("s").turns == 2


def test_an_edit_that_is_refused_leaves_all_as_it_was(place: Any, say: Any, chat: Any) -> None:
    say("One.")
    front = chat(place.session(name="s"))
    first = front.say("a")
    id = front.ask("edit", exchange=first["id"], text="A", sampling={"top_p": 7})
    until(lambda: front.of("refused"))
    assert front.of("refused")[0]["request"] == id and "top_p" in front.of("refused")[0]["reason"]
    assert front.session.name == "s" and list(place.sessions()["name"]) == ["s"]
    assert list(front.shown.values()) == [first]


def test_a_stopped_message_is_made_again(place: Any, say: Any, chat: Any) -> None:
    name = say("One.", "Two.")
    front = chat(place.session(name="s"))
    front.say("a")
    with Gate(model_of(getattr(place, "local", place), name)) as gate:
        front.ask("send", text="b")
        gate.wait()
        stop(front)
    until(lambda: len(front.ends) == 2)
    stopped = front.ends[-1]
    assert not stopped["kept"]
    front.ask("regenerate", exchange=stopped["id"])
    until(lambda: len(front.ends) == 3)
    assert front.said == [("a", "<p>One.</p>\n"), ("b", "<p>Two.</p>\n")]


def test_sessions_can_be_made_and_changed(place: Any, say: Any, chat: Any) -> None:
    say("One.")
    front = chat(place.session(name="s", system="Be brief."))
    front.say("a")
    front.ask("new")
    until(lambda: front.session.name != "s")
    assert front.session.options.system == "Be brief." and front.said == []
    until(lambda: {s["name"] for s in front.of("list")[-1]["sessions"]} >= {front.session.name})
    front.ask("session", name="s")
    until(lambda: front.said == [("a", "<p>One.</p>\n")])


def test_another_model_begins_a_session(place: Any, say: Any, chat: Any) -> None:
    names = [say("One."), say("Other.")]
    front = chat(place.session(name="s", model=names[0]))
    assert set(front.of("list")[0]["models"]) == set(names)
    front.ask("new", model=names[1])
    until(lambda: front.session.name != "s")
    assert front.session.model == names[1] and front.say("hi")["kept"]


def test_thoughts_and_calls_and_results_are_shown(place: Any, say: Any, chat: Any) -> None:
    say(CALL, "It is four.")
    front = chat(place.session(name="s", tools=[TOOL]))
    told = front.say("add")
    assert source(told["reasoning"]) == "<p>sum</p>\n"
    (call,) = told["calls"]
    assert call["name"] == "add" and call["arguments"] == '{\n  "a": 2\n}'
    front.ask("send", text="and?")
    until(lambda: front.of("refused"))
    assert "send_tool_result is due" in front.of("refused")[0]["reason"]
    front.session.send_tool_result(call["id"], 4)
    until(lambda: front.shown[max(front.shown)]["results"])
    last = front.shown[max(front.shown)]
    assert last["said"] is None and len(front.shown) == 2
    assert last["results"] == [{"id": call["id"], "name": "add", "text": "4"}]
    assert source(last["answer"]) == "<p>It is four.</p>\n"


def test_functions_are_called_until_there_is_an_answer(place: Any, say: Any, chat: Any) -> None:
    say(CALL, "It is four.", "And more.")
    session = place.session(name="s")
    called = list[int]()

    def add(a: int) -> int:
        """Double a number."""
        called.append(a)
        return 2 * a

    session.tool(add, confirm=False)
    front = chat(session)
    front.say("add")
    assert called == [2]
    first, last = front.shown.values()
    assert (first["said"], first["kept"], last["said"], last["kept"]) == ("add", True, None, True)
    assert last["results"] == [{"id": first["calls"][0]["id"], "name": "add", "text": "4"}]
    assert source(last["answer"]) == "<p>It is four.</p>\n"
    before = dict(front.shown)
    front._room.look(deep=True)
    assert front.shown == before and len(front.of("transcript")) == 1
    front.ask("edit", exchange=last["id"], text="again")
    until(lambda: front.ends[-1]["said"] is None and len(front.ends) == 2)
    assert called == [2, 2] and front.session.name != "s"


def test_too_many_rounds_are_told(place: Any, say: Any, chat: Any) -> None:
    say(CALL)
    session = place.session(name="s")

    def add(a: int) -> int:
        """Double a number."""
        return 2 * a

    session.tool(add, confirm=False)
    session.toolbox.rounds = 1
    told = chat(session).say("add")
    assert "the limit of 1 rounds" in told["meter"]["problem"]


def pending(front: Front) -> dict[str, Any] | None:
    """The call that the page asks about now."""
    asked = [told["pending"] for told in front.shown.values() if told["pending"] is not None]
    return asked[0] if asked and asked[0]["state"] == "ask" else None


def asked(front: Front) -> dict[str, Any]:
    until(lambda: pending(front))
    found = pending(front)
    assert found is not None and front.busy
    return found


@pytest.fixture
def adder(place: Any) -> Callable[..., tuple[Any, list[int]]]:
    """A session with a function that is asked about, and with what it was called."""

    def make() -> tuple[Any, list[int]]:
        session, called = place.session(name="s"), list[int]()

        @session.tool
        def add(a: int) -> int:
            """Double a number."""
            called.append(a)
            return 2 * a

        return session, called

    return make


def test_a_call_is_asked_about_on_the_page(say: Any, chat: Any, adder: Any) -> None:
    say(CALL, "It is four.")
    session, called = adder()
    front, other = chat(session), chat(session)
    front.ask("send", text="add")
    call = asked(front)
    assert (call["name"], call["arguments"]) == ("add", '{"a": 2}')
    assert asked(other) == call and asked(chat(session)) == call  # on pages that come later too
    assert called == []
    other.ask("answer", call=call["id"], consent="yes")
    told = front.end()
    assert called == [2] and told["results"][0]["text"] == "4"
    assert pending(front) is None and not front.busy
    assert session.calls()["confirmed"].tolist() == [True]
    front.ask("answer", call=call["id"], consent="yes")
    until(lambda: front.of("refused"))
    assert front.of("refused")[-1]["reason"] == "this call is not asked about any more"


def test_a_refused_call_is_told_to_the_model(say: Any, chat: Any, adder: Any) -> None:
    say(CALL, "Then not.")
    session, called = adder()
    front = chat(session)
    front.ask("send", text="add")
    front.ask("answer", call=asked(front)["id"], consent="perhaps")
    until(lambda: front.of("refused"))
    assert front.of("refused")[-1]["reason"] == "a call is answered with yes, no, always"
    front.ask("answer", call=asked(front)["id"], consent="no")
    told = front.end()
    assert told["results"][0]["text"] == "[tool error] the user refused this call"
    assert called == [] and source(told["answer"]) == "<p>Then not.</p>\n"


def test_always_is_asked_once(say: Any, chat: Any, adder: Any) -> None:
    say(CALL, CALL, "Done.")
    session, called = adder()
    front = chat(session)
    front.ask("send", text="add")
    front.ask("answer", call=asked(front)["id"], consent="always")
    front.end()
    assert called == [2, 2] and session.calls()["confirmed"].isna().tolist() == [False, True]


def test_stopping_where_it_is_asked_makes_no_call(say: Any, chat: Any, adder: Any) -> None:
    say(CALL, "I see.")
    session, called = adder()
    front = chat(session)
    front.ask("send", text="add")
    asked(front)
    front.ask("stop")
    until(lambda: not front.busy)
    assert called == [] and session.turns == 1 and pending(front) is None
    assert session.calls()["error"].tolist() == ["interrupted by the user before it was done"]
    (stopped,) = front.shown.values()
    assert stopped["meter"]["problem"].startswith("stopped at its calls")
    told = front.say("never mind")
    assert source(told["answer"]) == "<p>I see.</p>\n"
    assert told["results"][0]["text"].startswith("[tool error] interrupted by the user")
    before = dict(front.shown)
    front._room.look(deep=True)
    assert front.shown == before


@pytest.mark.parametrize("door", ["chat", "cell"])
def test_results_are_shown_again_with_the_turn_that_keeps_them(
    place: Any, say: Any, chat: Any, adder: Any, door: str
) -> None:
    """The turn that went on from them was stopped: the model reads them with what is said next."""
    name = say(CALL, "It is four.", "As I said.")
    session, _ = adder()
    front = chat(session)
    front.ask("send", text="add")
    call = asked(front)["id"]
    with Gate(model_of(getattr(place, "local", place), name)) as gate:
        front.ask("answer", call=call, consent="yes")
        gate.wait()
        stop(front)
    until(lambda: not front.busy)
    stopped = front.ends[-1]
    assert not stopped["kept"] and [r["text"] for r in stopped["results"]] == ["4"]
    if door == "chat":
        told = front.say("go on")
        assert told["kept"] and [r["text"] for r in told["results"]] == ["4"]
    else:
        session.send("go on")
        until(lambda: front.said[-1] == ("go on", "<p>It is four.</p>\n"))
        until(lambda: [r["text"] for r in list(front.shown.values())[-1]["results"]] == ["4"])
    assert front.say("and on")["results"] == []
    before = dict(front.shown)
    front._room.look(deep=True)
    assert front.shown == before


def test_whatever_a_function_raises_is_its_error(place: Any, say: Any, chat: Any) -> None:
    say(CALL, "I see.")
    session = place.session(name="s")

    def add(a: int) -> int:
        """Raise what is no Exception."""
        raise asyncio.CancelledError("by a library")

    session.tool(add, confirm=False)
    told = chat(session).say("add")
    assert source(told["answer"]) == "<p>I see.</p>\n"
    assert told["results"][0]["text"] == "[tool error] CancelledError: by a library"


def test_a_session_is_not_removed_under_a_question(
    place: Any, say: Any, chat: Any, adder: Any
) -> None:
    say(CALL, "Done.")
    session, called = adder()
    front = chat(session)
    front.ask("send", text="add")
    call = asked(front)
    with pytest.raises(SessionBusy, match="asks about one"):
        place.remove_session("s")
    front.ask("answer", call=call["id"], consent="yes")
    front.end()
    assert called == [2]


def double(a: int) -> int:
    """Another function."""
    return 2 * a


def test_nobody_else_speaks_while_calls_are_asked_about(say: Any, chat: Any, adder: Any) -> None:
    say(CALL, "Done.")
    session, called = adder()
    front = chat(session)
    front.ask("send", text="add")
    call = asked(front)
    for act in (
        session.rewind,
        session.reset,
        lambda: session.send("more"),
        lambda: session.run("more"),
        lambda: session.tool(double),
        lambda: session.remove_tool("add"),
    ):
        with pytest.raises(SessionBusy, match="'s' is calling functions"):
            act()
    assert pending(front) == call and called == []
    front.ask("answer", call=call["id"], consent="yes")
    front.end()
    session.rewind()
    assert session.turns == 1
    session.rewind()
    until(lambda: front.shown == {})
    front.ask("send", text="again")
    front.ask("answer", call=asked(front)["id"], consent="no")
    front.end()
    first = front.shown[min(front.shown)]  # nothing of what was taken back is shown with it
    assert (first["said"], first["results"]) == ("again", [])


def test_what_functions_print_and_display_is_shown(place: Any, say: Any, chat: Any) -> None:
    say(CALL, "Done.")
    session = place.session(name="s")

    def add(a: int) -> str:
        """Print in two threads, and say why the rest is not possible."""
        print("<b>one</b>")
        thread = threading.Thread(target=print, args=("two",))
        thread.start()
        thread.join()
        print("three", file=sys.stderr)
        reasons = list[str]()
        for act in (lambda: input("your name? "), lambda: session.send("inside")):
            try:
                act()
            except (RuntimeError, SessionBusy) as error:
                reasons.append(str(error))
        return "; ".join(reasons)

    session.tool(add, confirm=False)
    front = chat(session)
    told = front.say("add")
    first = next(iter(front.shown.values()))
    (output,) = first["outputs"]
    assert (output["name"], output["text"]) == ("add", "<b>one</b>\ntwo\nthree\n")
    reasons = told["results"][0]["text"]
    assert "cannot ask with input()" in reasons and "'s' is calling functions" in reasons
    assert "output of add: &lt;b&gt;one" in as_bundle(front._room.shown, "key")["text/html"]


def test_calls_of_a_cell_are_shown_as_its_own(place: Any, say: Any, chat: Any) -> None:
    say(CALL, CALL, "Done.")
    session = place.session(name="s")
    seen = list[Any]()

    def add(a: int) -> int:
        """Look at the chat."""
        until(lambda: state_of(front) == "run")
        front.ask("send", text="meanwhile")
        until(lambda: len(front.of("refused")) > len(seen))
        seen.append(front.of("refused")[-1]["reason"])
        if len(seen) == 2:
            front.ask("stop")
            time.sleep(DEADLINE_S)
        return a

    session.tool(add, confirm=False)
    front = chat(session)
    with pytest.raises(KeyboardInterrupt):
        session.run("add")
    assert len(seen) == 2
    assert all("is answering; wait, or stop it" in reason for reason in seen)
    until(lambda: not front.busy)
    assert state_of(front) is None and len(front.shown) == 2
    assert session.calls()["error"].isna().tolist() == [True, False]
    assert source(front.say("go on")["answer"]) == "<p>Done.</p>\n"


def state_of(front: Front) -> str | None:
    states = [told["pending"]["state"] for told in front.shown.values() if told["pending"]]
    return states[0] if states else None


def test_stopping_in_a_function_ends_the_rounds(place: Any, say: Any, chat: Any) -> None:
    say(CALL, "Never.")
    session = place.session(name="s")

    def add(a: int) -> int:
        """Stop it all."""
        front.ask("stop")
        return a

    session.tool(add, confirm=False)
    front = chat(session)
    told = front.say("add")
    assert told["calls"] and told["kept"]
    assert len(front.shown) == 1 and session.turns == 1


def test_a_chat_that_is_not_on_a_page_is_told_nothing(place: Any, say: Any, chat: Any) -> None:
    say("One.", "Two.")
    one, other = (chat(place.session(name="s")) for _ in range(2))
    other.ask("bye", view="v")
    until(lambda: not other._views)
    told = len(other.told)
    one.say("a")
    assert len(other.told) == told
    other.ask("hello", view="w")
    until(lambda: other.said == one.said)


def test_only_saving_keeps_the_transcript(place: Any, say: Any, chat: Any) -> None:
    say("One.", "Two.")
    session = place.session(name="s")
    kept, unkept = chat(session, save=True), chat(session)
    kept.say("a secret")
    until(lambda: len(kept.transcript) == 1)
    assert kept.transcript[0]["said"] == "a secret"
    assert "secret" not in str({k: v for k, v in unkept.get_state().items() if k[0] != "_"})
    assert unkept.transcript == []
    kept.ask("new")
    until(lambda: kept.transcript == [])


def test_a_saved_copy_needs_no_widgets(cells: Cells) -> None:
    made = cells.ok("made = get_ipython().run_line_magic('mlx_widget', '--save')\nmade").shown
    view, copy = made
    assert "application/vnd.jupyter.widget-view+json" in view
    assert "<summary>Saved transcript, 0 turns</summary>" in copy["text/html"]
    cells["made"].close()
    other = cells.ok("%mlx_widget")
    assert other.shown == [] and "text/html" not in other.value._repr_mimebundle_()[0]
    other.value.close()


def test_a_saved_copy_has_all_of_a_turn_as_text() -> None:
    said = Exchange("<b>hi</b>", text="A *b*", reasoning="hm", meter={"cached": 1, "end": "cut"})
    said.calls = [{"id": "1", "name": "add", "arguments": '{"a": "<i>"}'}]
    later = Exchange(None, [{"id": "1", "name": "add", "text": "<u>4</u>"}], "Four.\x1b[31m")
    bundle = as_bundle([said, later], "key")
    page = bundle["text/html"]
    for part in ("Saved transcript, 2 turns", "&lt;b&gt;hi&lt;/b&gt;", "<em>b</em>", "<p>hm</p>"):
        assert part in page
    assert "call add" in page and "&lt;i&gt;" in page and "cached 1 · cut" in page
    assert "result of add: &lt;u&gt;4&lt;/u&gt;" in page
    assert bundle["text/plain"] == "> <b>hi</b>\n\nA *b*\n\nFour.\ufffd[31m"


def test_a_host_that_goes_away_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))
    place: Any = Attached()
    load_scripted(place, scripted_folder(tmp_path / "m", ["One."]))
    front = Front(place, place.session(name="s"))
    front.say("a")
    place.end()
    front.ask("send", text="b")
    until(lambda: front.of("refused"))
    assert front.said == [("a", "<p>One.</p>\n")]
    front.close()


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Two hosts with the same model; the process's engine is the last one of the list."""
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))
    made: list[Any] = [Attached(), Attached()]
    folder = scripted_folder(tmp_path / "m", ["One.", "Two."])
    for host in made:
        load_scripted(host, folder)
    yield made
    for host in made:
        host.end()
    gc.collect()


# httpcore2 leaves the socket that could not connect to the garbage collector
UNCONNECTED = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)


def lose(host: Any) -> None:
    """End a host behind its engine's back."""
    host.server.stop(0.0)


@UNCONNECTED
def test_a_chat_goes_on_in_the_engine_in_use_when_its_host_is_gone(hosts: list[Any]) -> None:
    used = hosts[:1]
    session = hosts[0].session(name="s", system="Be brief.", top_k=3)
    one, other = (Front(hosts[0], session, now=lambda: used[-1]) for _ in range(2))
    one.say("a")
    lose(hosts[0])
    one.ask("send", text="b")
    until(lambda: one.of("refused"))
    assert "%mlx_load" in one.of("refused")[0]["reason"]
    used.append(hosts[1])
    for front, text in ((one, "b"), (other, "c")):
        assert front.say(text)["kept"]
        assert front.session is hosts[1].find_session("s")
    assert one.session.options == session.options
    until(lambda: len(one.said) == 3)
    assert [said for said, _ in one.said] == [said for said, _ in other.said] == ["a", "b", "c"]
    for front in (one, other):
        lost, *new = front.shown.values()
        assert not lost["kept"] and lost["meter"]["end"] == LOST and all(e["kept"] for e in new)
        front.close()


def test_a_chat_stays_in_its_engine_while_that_lives(hosts: list[Any]) -> None:
    front = Front(hosts[0], hosts[0].session(name="s"), now=lambda: hosts[1])
    assert front.say("a")["kept"]
    assert list(hosts[1].sessions()["name"]) == []
    front.close()


@UNCONNECTED
def test_without_a_model_a_lost_chat_says_so_and_keeps_what_it_shows(hosts: list[Any]) -> None:
    front = Front(hosts[0], hosts[0].session(name="s"), now=lambda: hosts[1])
    told = front.say("a")
    hosts[1].unload(front.session.model)
    lose(hosts[0])
    front.ask("send", text="b")
    until(lambda: front.of("refused"))
    assert "no model" in front.of("refused")[0]["reason"]
    assert list(front.shown.values()) == [told]
    front.close()


def test_a_turn_that_was_lost_with_its_host_has_no_counts(engine: LocalEngine) -> None:
    lost = meter(Turn("t1", "A paragraph.", finish_reason="error"), engine)
    assert noted(lost) == "failed; the model does not see this turn again"


def test_a_meter_tells_reused_tokens_by_origin(place: Any, say: Any, chat: Any) -> None:
    say("Hello.", "Again.")
    front = chat(place.session(name="s"))
    assert front.say("hi")["meter"]["origins"] == {}
    told = front.say("more")["meter"]
    frame = place.tokens(front.session.last)
    assert told["origins"] == {"hot": int((frame["origin"] == "hot").sum())}
    assert told["origins"]["hot"] == told["cached"] > 0


def test_other_chats_learn_of_new_sessions(place: Any, say: Any, chat: Any) -> None:
    say("One.", "Two.")
    one, other = chat(place.session(name="s")), chat(place.session(name="other"))
    told = one.say("a")

    def listed() -> set[str]:
        return {session["name"] for session in other.of("list")[-1]["sessions"]}

    one.ask("edit", exchange=told["id"], text="A")
    until(lambda: one.session.name in listed() - {"s", "other"})
    until(lambda: len(one.ends) == 2)
    fork = one.session.name
    one.ask("new")
    until(lambda: one.session.name in listed() - {"s", "other", fork})


def test_a_closed_chat_is_told_nothing_and_the_watch_ends(place: Any, say: Any) -> None:
    say("One.")
    session = place.session(name="s")
    front = Front(place, session)
    watch = rooms(place)._watch
    assert watch is not None
    front.close()
    told = len(front.told)
    session.send("a")
    assert len(front.told) == told
    watch.join(DEADLINE_S)
    assert not watch.is_alive()


def test_colours_are_those_of_the_inspector() -> None:
    css = (Path(chat_module.__file__).parent / "chat.css").read_text("utf-8")
    for name, colour in ORIGINS.items():
        assert f"--{name}: {colour.fill};" in css
        assert f".mlxnb-{name} {{ background: var(--{name}); }}" in css


# --- the doors -------------------------------------------------------------------------------


def test_the_magic_shows_the_current_session(cells: Cells) -> None:
    cells.ok("%mlx_chat -f text -s talk hi")
    chat = cells.ok("%mlx_widget -s talk").value
    assert repr(chat) == "Chat(session='talk')" and not chat.save
    assert [e.said for e in rooms(chat._engine).of(chat.session).shown] == ["hi"]
    chat.close()
    current = cells.ok("%mlx_widget --save").value
    assert current.save
    cells.ok("%mlx_chat -f text in a cell")
    room = rooms(current._engine).of(current.session)
    until(lambda: [e.said for e in room.shown] == ["in a cell"])
    current.close()


def test_the_magics_mistakes_are_one_line(cells: Cells) -> None:
    assert "--nope" in cells.run("%mlx_widget --nope").mistake
    assert "nothing" in cells.run("%mlx_widget -m nothing").mistake
    assert cells.run("%mlx_widget -s ''").mistake.startswith("name is a string that is not empty")


def test_a_chat_is_opened_by_name_or_made(engine: LocalEngine) -> None:
    made = open_chat(engine, "new one")
    assert made.session is engine.find_session("new one")
    again = open_chat(engine, "new one")
    assert again.session is made.session
    assert open_chat(engine, made.session).session is made.session
    with pytest.raises(SessionExists, match="system"):
        open_chat(engine, "new one", system="Be brief.")


@pytest.mark.parametrize(
    ("session", "reason"),
    [(5, "not of the type int"), ("", "not empty"), (["a"], "not of the type list")],
)
def test_what_is_no_session_is_one_line(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, session: Any, reason: str
) -> None:
    monkeypatch.setattr(mlxnb, "process_engine", lambda: engine)
    with pytest.raises(InvalidOption, match=reason) as raised:
        mlxnb.chat(session=session)
    assert "\n" not in str(raised.value)


def test_an_empty_name_is_told_over_a_host_too(
    hosts: list[Any], bare_shell: InteractiveShell
) -> None:
    with pytest.raises(InvalidOption, match="not empty"):
        open_chat(hosts[0], "")
    register(bare_shell, lambda: hosts[0], lambda other: other or hosts[0])
    said = Cells(bare_shell).run("%mlx_widget -s ''").mistake
    assert said.startswith("name is a string that is not empty")
