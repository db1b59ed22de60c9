"""Python functions that a model calls: schemas, the loop, what goes wrong."""

from __future__ import annotations

import builtins
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pandas as pd
import pytest
from pydantic import BaseModel, Field
from scripted import Gate, model_of

from mlxnb.errors import ContextOverflow, InvalidOption, PendingToolCalls, RequestFailed
from mlxnb.records.turn import Turn
from mlxnb.sessions.engine import Engine
from mlxnb.sessions.function import CHARS, Function, told
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.session import Session
from mlxnb.sessions.toolbox_rounds import Watcher, run

Say = Callable[..., str]


def call(function: str, **arguments: Any) -> str:
    said = json.dumps({"name": function, "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call>"


def results(session: Session) -> list[str]:
    return [m["content"] for m in session.history if m["role"] == "tool"]


class Unit(Enum):
    C = "C"
    F = "F"


class Place(BaseModel):
    city: str
    zone: int = 0


def weather(
    place: Place,
    days: Annotated[int, Field(ge=1, le=7)] = 1,
    *,
    unit: Unit = Unit.C,
    how: Literal["long", "short"] = "short",
) -> str:
    """Say how the weather will be.

    It is never wrong.

    Parameters
    ----------
    place
        Where, as precisely
        as it is known.
    days : int
        How far ahead.

    Returns
    -------
    str
        In words.
    """
    return f"{place.city}: {days} days of sun in {unit.value}, {how}"


# --- what the model is told of a function -----------------------------------------------------


def test_a_definition_comes_of_signature_hints_and_docstring() -> None:
    told = Function(weather).definition["function"]
    assert told["name"] == "weather"
    assert told["description"] == "Say how the weather will be.\n\nIt is never wrong."
    parameters = told["parameters"]
    assert parameters["required"] == ["place"]
    assert parameters["additionalProperties"] is False
    properties = parameters["properties"]
    assert properties["place"]["description"] == "Where, as precisely as it is known."
    assert properties["days"] == {
        "default": 1,
        "maximum": 7,
        "minimum": 1,
        "type": "integer",
        "description": "How far ahead.",
    }
    assert properties["how"] == {"default": "short", "enum": ["long", "short"], "type": "string"}
    assert parameters["$defs"]["Place"]["properties"]["city"] == {"type": "string"}


def google(a: int, b: str) -> None:
    """Do it.

    Args:
        a: The first.
        b (str): The second.
    """


def sphinx(a: int, b: str) -> None:
    """Do it.

    :param a: The first.
    :param b: The second.
    """


@pytest.mark.parametrize("function", [google, sphinx])
def test_docstrings_of_other_styles_are_read(function: Callable[..., Any]) -> None:
    told = Function(function).definition["function"]
    assert told["description"] == "Do it."
    words = [p["description"] for p in told["parameters"]["properties"].values()]
    assert words == ["The first.", "The second."]


def test_a_function_without_hints_and_docstring_takes_any_json() -> None:
    def bare(a, b=2):  # type: ignore[no-untyped-def]
        return a, b

    function = Function(bare)
    told = function.definition["function"]
    assert "description" not in told
    assert told["parameters"]["properties"] == {"a": {}, "b": {"default": 2}}
    assert function(function.arguments({"a": [1]})) == "[[1], 2]"


def test_arguments_are_coerced_and_defaults_filled() -> None:
    function = Function(weather)
    found = function.arguments({"place": {"city": "Rome", "zone": "3"}, "days": "2", "unit": "F"})
    assert found == {
        "place": Place(city="Rome", zone=3),
        "days": 2,
        "unit": Unit.F,
        "how": "short",
    }
    assert function(found) == "Rome: 2 days of sun in F, short"


def test_wrong_arguments_are_named_without_what_they_were() -> None:
    with pytest.raises(ValueError) as raised:
        Function(weather).arguments({"place": {}, "days": 9, "more": "secret"})
    assert str(raised.value) == (
        "place.city: Field required; days: Input should be less than or equal to 7; "
        "more: Unexpected keyword argument"
    )


async def waits(a: int) -> None: ...


def positional(a: int, /) -> None: ...


def many(*a: int) -> None: ...


def frame(a: pd.DataFrame) -> None: ...


def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (waits, "waits is async"),
        (positional, "cannot give positional ones"),
        (many, "cannot give positional ones"),
        (frame, "frame: no JSON schema comes of its parameters"),
        (unknown, "unknown: its signature cannot be read: name 'Nowhere'"),
        (lambda a: a, "<lambda> is no name for a tool"),
        (3, "a tool is a function with a name, not int"),
        (int.__add__, "__add__: .*"),
    ],
)
def test_what_cannot_be_called_from_json_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        Function(function)


@dataclass
class Point:
    x: int
    y: float


def circular() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is", "as it is"),
        (None, "null"),
        ([1, "ü", None], '[1, "ü", null]'),
        ({1: (2, 3)}, '{"1": [2, 3]}'),
        (Point(1, 2.5), '{"x": 1, "y": 2.5}'),
        (Place(city="Rome"), '{"city": "Rome", "zone": 0}'),
        (range, "<class 'range'>"),
        (pd.DataFrame({"a": [1]}), "   a\n0  1"),
        (circular(), "[[...]]"),
    ],
)
def test_a_result_is_text_json_or_its_str(result: Any, text: str) -> None:
    assert told(result) == text


def test_what_never_ends_is_not_walked() -> None:
    assert told(iter(int, 1)).startswith("<callable_iterator")


def test_a_long_result_is_cut_at_the_stated_length() -> None:
    def long() -> str:
        return "x" * (CHARS + 1)

    text = Function(long)({})
    assert text == "x" * CHARS + f"\n[cut: {CHARS + 1:,} characters in all]"


# --- the loop ---------------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def divide(a: float, b: float) -> float:
    """Divide."""
    return a / b


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was asked; ``y`` is answered, or what stands in it beforehand."""
    prompts: list[str] = []

    def answer(prompt: str = "") -> str:
        prompts.append(prompt)
        return "y"

    monkeypatch.setattr(builtins, "input", answer)
    yield prompts


def test_functions_are_called_until_the_model_answers(engine: Engine, say: Say) -> None:
    say(call("add", a=1, b="2"), call("add", a=3, b=4), "It is 7.")
    session = engine.session()
    assert session.tool(add, confirm=False) is add
    turn = session.run("1 + 2 + 4?")
    assert (turn.text, turn.finish_reason) == ("It is 7.", "stop")
    assert results(session) == ["3", "7"]
    assert session.turns == 3
    frame = session.calls()
    assert frame["name"].tolist() == ["add", "add"]
    assert frame["arguments"].tolist() == ['{"a": 1, "b": "2"}', '{"a": 3, "b": 4}']
    assert frame["result"].tolist() == ["3", "7"]
    assert frame["error"].isna().all() and frame["confirmed"].isna().all()
    assert (frame["seconds"] >= 0).all()
    assert frame["turn_id"].tolist() == engine.turns()["turn_id"].tolist()[:2]


def test_a_decorator_registers_and_leaves_the_function(engine: Engine, say: Say) -> None:
    say("hi")
    session = engine.session()

    @session.tool
    def one(a: int) -> int:
        return a

    @session.tool(confirm=False)
    def two() -> int:
        return 2

    assert (one(1), two()) == (1, 2)
    assert [f.name for f in session.toolbox] == ["one", "two"]
    assert session.toolbox.asking == ["one"]
    tools = session.options.tool_list
    assert tools is not None
    assert [tool["function"]["name"] for tool in tools] == ["one", "two"]


def test_send_stays_one_turn(engine: Engine, say: Say) -> None:
    say(call("add", a=1, b=2))
    session = engine.session()
    session.tool(add, confirm=False)
    assert session.send("1 + 2?").finish_reason == "tool_calls"
    assert len(session.calls()) == 0


def test_two_calls_of_one_turn_are_answered_in_order_and_one_may_fail(
    engine: Engine, say: Say
) -> None:
    say(call("divide", a=1, b=0) + "\n" + call("add", a=1, b=2), "Well.")
    session = engine.session()
    session.tool(divide, confirm=False)
    session.tool(add, confirm=False)
    assert session.run("go").text == "Well."
    assert results(session) == ["[tool error] ZeroDivisionError: float division by zero", "3"]
    frame = session.calls()
    assert frame["error"].tolist() == ["ZeroDivisionError: float division by zero", pd.NA]
    assert frame["result"].tolist() == [pd.NA, "3"]
    assert frame["seconds"].notna().all()


def test_wrong_arguments_and_unknown_names_go_back_to_the_model(engine: Engine, say: Say) -> None:
    say(call("add", a="x", b=2) + "\n" + call("subtract", a=1), "Well.")
    session = engine.session()
    session.tool(add, confirm=False)
    assert session.run("go").text == "Well."
    wrong, unknown = results(session)
    assert wrong.startswith("[tool error] the arguments are wrong: a: Input should be a valid int")
    assert unknown == "[tool error] there is no tool 'subtract' (there are: add)"
    assert session.calls()["seconds"].isna().all()


def test_exit_in_a_function_ends_nothing(engine: Engine, say: Say) -> None:
    def leave() -> None:
        raise SystemExit(3)

    say(call("leave"), "Still here.")
    session = engine.session()
    session.tool(leave, confirm=False)
    assert session.run("go").text == "Still here."
    assert results(session) == ["[tool error] SystemExit: 3"]


def test_a_call_is_asked_about_and_may_be_refused(
    engine: Engine, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter(["what?", "n", " Y "])
    prompts: list[str] = []
    monkeypatch.setattr(builtins, "input", lambda prompt: prompts.append(prompt) or next(said))
    say(call("divide", a=1, b=2) + "\n" + call("add", a=1, b=2), "Fine.")
    session = engine.session()
    session.tool(divide)
    session.tool(add)
    assert session.run("go").text == "Fine."
    assert results(session) == ["[tool error] the user refused this call", "3"]
    assert session.calls()["confirmed"].tolist() == [False, True]
    assert session.calls()["seconds"].isna().tolist() == [True, False]
    shown = 'call divide {"a": 1, "b": 2}? [y]es / [n]o / [a]lways: '
    assert prompts == [shown, shown, 'call add {"a": 1, "b": 2}? [y]es / [n]o / [a]lways: ']


def test_always_asks_once_for_a_function(
    engine: Engine, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[str] = []
    monkeypatch.setattr(builtins, "input", lambda prompt: prompts.append(prompt) or "a")
    say(call("add", a=1, b=2) + call("add", a=1, b=3), call("add", a=4, b=4), "Fine.")
    session = engine.session()
    session.tool(add)
    session.run("go")
    assert len(prompts) == 1
    assert session.calls()["confirmed"].tolist() == [True, pd.NA, pd.NA]


def test_end_of_input_is_a_no(engine: Engine, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr(builtins, "input", ended)
    say(call("add", a=1, b=2), "Fine.")
    session = engine.session()
    session.tool(add)
    session.run("go")
    assert session.calls()["confirmed"].tolist() == [False]


def test_where_nobody_can_be_asked_nothing_is_said(engine: Engine, say: Say) -> None:
    say(call("add", a=1, b=2), "3")
    session = engine.session()
    session.tool(add)
    with pytest.raises(InvalidOption, match="before add is called you are asked, and here you"):
        session.run("go")
    assert (session.turns, len(session.calls()), len(engine.turns())) == (0, 0, 0)


def test_a_kernel_whose_frontend_takes_no_input_is_asked_nothing(
    engine: Engine, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kernel:
        _allow_stdin = False

        def raw_input(self, prompt: str = "") -> str:
            raise NotImplementedError

    say(call("add", a=1, b=2), "3")
    session = engine.session()
    session.tool(add)
    monkeypatch.setattr(builtins, "input", Kernel().raw_input)
    with pytest.raises(InvalidOption, match="confirm=False"):
        session.run("go")
    monkeypatch.setattr(Kernel, "_allow_stdin", True)  # as it said, and cannot after all
    with pytest.raises(InvalidOption, match="confirm=False"):
        session.run("go")
    assert session.calls()["seconds"].isna().all()
    assert session.send("well?").text == "3"


def test_the_rounds_have_an_end(engine: Engine, say: Say) -> None:
    say(*[call("add", a=n, b=1) for n in range(3)], "Enough.")
    session = engine.session()
    session.tool(add, confirm=False)
    with pytest.warns(UserWarning, match="the limit of 2 rounds of tool calls is reached"):
        turn = session.run("go", rounds=2)
    assert turn.finish_reason == "tool_calls"
    assert session.calls()["result"].tolist() == ["1", "2", pd.NA]
    assert session.send("so?").text == "Enough."
    assert results(session)[-1] == "[tool error] the limit of 2 rounds of tool calls is reached"
    assert [m["role"] for m in session.history[-3:]] == ["tool", "user", "assistant"]


@pytest.mark.parametrize("rounds", [-1, True, 1.5, "8"])
def test_rounds_are_a_number(engine: Engine, say: Say, rounds: Any) -> None:
    say("hi")
    with pytest.raises(InvalidOption, match="rounds is a whole number"):
        engine.session().run("go", rounds=rounds)


def test_an_interrupt_keeps_what_is_done(engine: Engine, say: Say) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    say(call("add", a=1, b=2) + call("stop") + call("add", a=5, b=5), "Fine.")
    session = engine.session()
    session.tool(add, confirm=False)
    session.tool(stop, confirm=False)
    with pytest.raises(KeyboardInterrupt):
        session.run("go")
    assert session.turns == 1
    frame = session.calls()
    assert frame["name"].tolist() == ["add", "stop", "add"]
    assert frame["result"].tolist() == ["3", pd.NA, pd.NA]
    assert session.send("go on").text == "Fine."
    done, stopped, undone = results(session)
    assert done == "3"
    assert stopped == undone == "[tool error] interrupted by the user before it was done"


def test_a_turn_that_fails_after_the_calls_keeps_their_results(engine: Any, say: Say) -> None:
    name = say(call("add", a=1, b=2), "It is 3.")
    session = engine.session()
    model = model_of(getattr(engine, "local", engine), name)

    @session.tool(confirm=False)
    def add(a: int, b: int) -> int:
        model.on_call = lambda: 1 // 0
        return a + b

    with pytest.raises(RequestFailed):
        session.run("go")
    model.on_call = lambda: None
    turn = session.reply(None).result()
    assert turn.text == "It is 3."
    assert results(session) == ["3"]
    assert [m["role"] for m in session.history] == ["user", "assistant", "tool", "assistant"]


def test_an_interrupt_of_the_answer_to_the_calls_keeps_their_results(engine: Any, say: Say) -> None:
    class Stops(Watcher):
        turns = 0

        def turn(self, begin: Callable[[], Reply]) -> Turn:
            self.turns += 1
            if self.turns == 2:
                with Gate(model):
                    reply = begin()
                    reply.cancel()
                reply.result()
                raise KeyboardInterrupt
            return super().turn(begin)

    name = say(call("add", a=1, b=2), "It is 3.")
    model = model_of(getattr(engine, "local", engine), name)
    session = engine.session()
    session.tool(add, confirm=False)
    with pytest.raises(KeyboardInterrupt):
        run(session, "go", watcher=Stops())
    assert session.turns == 1
    assert session.send("go on").text == "It is 3."
    assert results(session) == ["3"]


def test_a_call_before_the_cut_is_made(engine: Engine, say: Say) -> None:
    say(call("add", a=1, b=2) + "\n" + call("add", a=3, b=4), "It is 3.")
    session = engine.session(max_tokens=len(call("add", a=1, b=2)) - 10)
    session.tool(add, confirm=False)
    assert session.run("go").text == "It is 3."
    assert engine.turns()["finish_reason"].tolist() == ["length", "stop"]
    assert results(session) == ["3"]


def long_file(times: int = 1000) -> str:
    return "abc " * times


def test_results_that_overflow_the_context_are_cut_and_the_model_is_told(
    engine: Engine, say: Say
) -> None:
    say(call("long_file") + call("add", a=1, b=2) + call("long_file", times=900), "Well.", "On.")
    session = engine.session(max_tokens=300)
    session.tool(long_file, confirm=False)
    session.tool(add, confirm=False)
    with pytest.warns(UserWarning, match="of long_file overflows the context: it is cut"):
        turn = session.run("go")
    assert turn.text == "Well."
    first, three, second = results(session)
    note = "characters in all; the rest does not fit the context: ask for less]"
    assert first.startswith("abc abc ") and first.endswith(f"\n[cut: 4,000 {note}")
    assert second.startswith("abc ") and second.endswith(f"\n[cut: 3,600 {note}")
    assert three == "3"
    assert session.calls()["result"].tolist() == [first, three, second]
    assert session.send("and?").text == "On."


def test_the_length_told_is_that_before_any_cut(engine: Engine, say: Say) -> None:
    say(call("long_file", times=25_000), "Well.")
    session = engine.session(max_tokens=100)
    session.tool(long_file, confirm=False)
    with pytest.warns(UserWarning, match="it is cut"):
        session.run("go")
    (told,) = results(session)
    assert "[cut: 100,000 characters in all; the rest" in told


def test_results_that_cannot_be_short_enough_end_the_run(engine: Engine, say: Say) -> None:
    many = "".join(call("long_file", times=times) for times in range(40, 64))
    say(many, "Well.")
    session = engine.session()
    session.tool(long_file, confirm=False)
    with warnings.catch_warnings(), pytest.raises(ContextOverflow):
        warnings.simplefilter("ignore")
        session.run("go")
    assert session.calls()["result"].str.len().max() <= 200
    session.rewind()
    assert session.turns == 0


def test_a_named_tool_is_called_once_and_others_as_often_as_the_model_likes(
    engine: Engine, say: Say
) -> None:
    say(call("add", a=1, b=2) + call("add", a=3, b=4))
    session = engine.session()
    session.tool(add)
    turn = session.send("go", tool_choice="add")
    assert (len(turn.tool_calls), turn.finish_reason) == (1, "tool_calls")
    session.reset()
    assert len(session.send("go", tool_choice="required").tool_calls) == 2


def test_what_is_left_of_a_call_that_had_to_be_is_no_text(engine: Engine, say: Say) -> None:
    say(call("add", a=1, b=2) + call("add", a=3, b=4))
    session = engine.session(max_tokens=len(call("add", a=1, b=2)))
    session.tool(add)
    turn = session.send("go", tool_choice="required")
    assert (len(turn.tool_calls), turn.finish_reason, turn.text) == (1, "length", "")
    assert session.history[-1]["content"] == ""


def test_nothing_cannot_be_said(engine: Engine, say: Say) -> None:
    say(call("add", a=1, b=2), "It is 3.")
    session = engine.session()
    session.tool(add, confirm=False)
    with pytest.raises(InvalidOption, match="a message is a string"):
        session.reply(None)
    session.send("go")
    with pytest.raises(PendingToolCalls):
        session.reply(None)


def test_a_tool_that_is_no_function_ends_the_run(engine: Engine, say: Say) -> None:
    elsewhere = {"type": "function", "function": {"name": "elsewhere", "parameters": {}}}
    say(call("add", a=1, b=2), call("elsewhere") + call("add", a=1, b=1), "Fine.")
    session = engine.session(tools=[elsewhere])
    session.tool(add, confirm=False)
    turn = session.run("go")
    assert [made.name for made in turn.tool_calls] == ["elsewhere", "add"]
    assert len(session.calls()) == 1
    session.send_tool_result(turn.tool_calls[0].id, "1")
    last = session.send_tool_result(turn.tool_calls[1].id, "2")
    assert last is not None and last.text == "Fine."


# --- tools come and go ------------------------------------------------------------------------


def test_tools_after_turns_change_the_beginning_and_the_next_turn_says_so(
    engine: Any, say: Say
) -> None:
    name = say("One.", "Two.", call("add", a=1, b=2), "Three.")
    session = engine.session()
    session.send("a")
    session.send("b")
    assert session.tokens
    session.tool(add, confirm=False)
    assert session.tokens == []  # its line begins without the tools
    turn = session.run("c")
    assert turn.text == "Three."
    row = engine.turns().iloc[2]
    assert row["miss_reason"] == "tools_changed"
    tokenizer = engine.core.runtime(name).tokenizer
    text = tokenizer.decode(list(engine.ledger[row["turn_id"]].prompt))
    assert '"description": "Add two numbers."' in text
    assert text.index("# Tools") < text.index("One.") < text.index("Two.")
    assert engine.turns().iloc[3]["cached_tokens"] >= row["prompt_tokens"]  # exact again
    session.rewind(2)
    assert [m["content"] for m in session.history if m["role"] == "user"] == ["a", "b"]


def test_the_same_function_again_changes_nothing(engine: Engine, say: Say) -> None:
    say("One.", "Two.")
    session = engine.session()
    session.tool(add)
    session.tool(divide)
    session.send("a")
    before = session.tokens
    session.tool(add, confirm=False)
    assert session.tokens == before
    assert session.toolbox.asking == ["divide"]


def test_a_removed_function_is_no_tool(engine: Engine, say: Say) -> None:
    say("One.")
    session = engine.session()
    session.tool(add)
    session.tool(divide)
    session.remove_tool("add")
    tools = session.options.tool_list
    assert tools is not None
    assert [tool["function"]["name"] for tool in tools] == ["divide"]
    with pytest.raises(InvalidOption, match=r"no function 'add' is registered \(there are: div"):
        session.remove_tool("add")


def test_a_fork_has_the_functions(engine: Engine, say: Say) -> None:
    say("Hi.", call("add", a=1, b=2), "It is 3.")
    session = engine.session()
    session.tool(add, confirm=False)
    session.send("hi")
    fork = session.fork()
    assert fork.run("go").text == "It is 3."
    assert (len(fork.calls()), len(session.calls())) == (1, 0)


def test_an_empty_frame_of_calls_has_its_columns(engine: Engine, say: Say) -> None:
    say("Hi.")
    frame = engine.session().calls()
    assert list(frame.columns) == [
        *("call_id", "turn_id", "name", "arguments"),
        *("result", "error", "seconds", "confirmed"),
    ]
    assert str(frame["seconds"].dtype) == "Float64"
