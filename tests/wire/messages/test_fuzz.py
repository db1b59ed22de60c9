"""W40: the stream adds up to the message, for whatever a model says and however it is cut."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from wire.answers import arguments, call, start, text, thought, turn
from wire.anthropic_stream import check_message, check_stream, message_of
from wire.played import CALL, THINK, TOOLS, play

from .streams import machine, run
from .test_machine import BEGIN

FRAGMENTS = (
    *("<think>", "</think>", "<", "<th", "ink>", "think", CALL, "<tool_call>", "</tool_call>"),
    *('{"name": "look", ', '"arguments": {}}', "{", "}", "STOP", "ST", "OP", "a", "b"),
    *("é🙂", " ", "\n", "\n\n  ", "</tool", "_call>", "\u2028", '"', "\\"),
)
RAW = st.lists(st.sampled_from(FRAGMENTS), max_size=12)
OPTIONS = st.fixed_dictionaries(
    {
        "tools": st.sampled_from([TOOLS, None]),
        "stops": st.sampled_from([(), ("STOP",), ("ab", "\n"), ("<",)]),
        "think": st.sampled_from([THINK, None]),
        "cut": st.booleans(),
    }
)
SHOWN = st.sampled_from(["summarized", "omitted"])


@settings(max_examples=1000, database=None)
@given(RAW, OPTIONS, SHOWN, st.integers(1, 9))
def test_w40_a_stream_adds_up_to_the_message(
    fragments: list[str], options: dict[str, Any], shown: str, size: int
) -> None:
    raw = "".join(fragments)
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    thinking = {"type": "adaptive", "display": shown}
    played = play(pieces, **options)
    made = machine(thinking=thinking)
    sent = run(made, played.pieces, played.turn)
    check_stream(sent)
    check_message(made.body())
    assert message_of(sent)["content"] == made.body()["content"]
    for cut in (fragments, [raw]):
        played, other = play(cut, **options), machine(thinking=thinking)
        run(other, played.pieces, played.turn)
        assert other.body() == made.body()


STEPS = st.lists(
    st.sampled_from(
        [
            [text("a")],
            [text(" \n")],
            [thought("hm")],
            [call("look", {"at": "é"}, id="call_")],
            [start("look", id="call_"), arguments('{"a'), arguments('t": 1'), arguments("}")],
        ]
    ),
    max_size=6,
)
ENDS = st.sampled_from(["stop", "length", "stop_sequence", "error", "cancelled"])


@settings(max_examples=1000, database=None)
@given(STEPS, ENDS, st.lists(st.integers(0, 20), max_size=3))
def test_w34_any_events_make_a_stream_in_order(
    steps: list[list[Any]], reason: Any, silences: list[int]
) -> None:
    matched = reason == "stop_sequence"
    events = [BEGIN]
    for number, step in enumerate(steps):
        if matched and any(piece.call for piece in step):
            continue  # never both
        events += [numbered(piece, number) for piece in step]
    made, sent = machine(), []
    for place, event in enumerate(events):
        sent += made.quiet() if place in silences else []
        sent += made.feed(event)
    sent += made.finish(turn(reason, stop_sequence="S" if matched else None))
    check_stream(sent)
    if reason in ("stop", "length", "stop_sequence"):
        assert message_of(sent)["content"] == made.body()["content"]


def numbered(piece: Any, number: int) -> Any:
    """The piece, its call with an id of its own."""
    if piece.call is None:
        return piece
    maker = start if piece.kind == "tool_start" else call
    given = {} if piece.kind == "tool_start" else {"arguments": piece.call.arguments}
    return maker(piece.call.name, id=f"call_{number}", **given)
