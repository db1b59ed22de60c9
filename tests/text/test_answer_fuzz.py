"""Random answers in random pieces, against a slow reading of the whole text (W38–W40, C36)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mlxnb.text.answer import AnswerMachine, Piece
from mlxnb.text.tools import GRAMMARS, Grammar

TOOLS = [{"type": "function", "function": {"name": "f"}}]
F = '{"name": "f", "arguments": {}}'
X = "<function=f></function>"
FRAGMENTS = (
    *("<think>", "</think>", "<", "</", "<th", "<t", "ink>", ">", "think"),
    *("<tool>", "</tool>", "<to", "ol>", "/tool>", "[CALL]", "[CA", "LL]"),
    *(f"<tool>{F}</tool>", F, "{", "}", "[]", f"[{F},{F}]"),
    *(X, "<function=", "<func", "</function>", "f>", "g>", f"<tool>\n{X}\n</tool>"),
    *("STOP", "ST", "OP", "S", "a", "b", "ab", "é🙂", " ", "\n", "\n  ", "", "<mark>", "<ma"),
)


def parse(body: str, tools: Any) -> Any:
    named = re.fullmatch(r"\s*<function=(\w)></function>\s*", body)
    return {"name": named[1], "arguments": {}} if named else json.loads(body)


def parser_of(grammar: str) -> Any:
    """The same parser, as if it were mlx-lm's of that name."""

    def named(body: str, tools: Any) -> Any:
        return parse(body, tools)

    named.__module__ = f"mlx_lm.tool_parsers.{grammar}"
    return named


PARSERS = {name: parser_of(name) for name in ("mistral", "json_tools", "qwen3_coder")}


@dataclass(frozen=True)
class Setting:
    think: tuple[str, str] | None
    inside: bool
    tags: tuple[str, str]
    tools: bool
    grammar: str
    in_reasoning: bool
    markers: tuple[str, ...]
    stops: tuple[str, ...]
    cut: bool

    @property
    def bare(self) -> str:
        return "<function=" if self.tools and self.grammar == "qwen3_coder" else ""

    @property
    def plain(self) -> bool:
        return self.think is None and not self.tools


TAGS = ("<tool>", "</tool>")
STOPS = [
    (),
    (),
    ("STOP",),
    ("ab", "abSTOP", "ba"),
    ("\n",),
    ("<", "</tool>"),
    ("é🙂", "OP\n\n", ""),
]
SETTINGS = st.builds(
    Setting,
    think=st.sampled_from([("<think>", "</think>"), ("", "</think>"), None]),
    inside=st.booleans(),
    tags=st.sampled_from([TAGS, TAGS, ("[CALL]", "")]),
    tools=st.sampled_from([True, True, False]),
    grammar=st.sampled_from(sorted(PARSERS)),
    in_reasoning=st.booleans(),
    markers=st.sampled_from([(), ("<mark>",)]),
    stops=st.sampled_from(STOPS),
    cut=st.booleans(),
).filter(lambda setting: setting.think is not None or not setting.inside)


# --- the slow way: events over the whole raw text, each ("kind", text, place) ----------------

Event = tuple[str, str, int]


def first(raw: str, tags: list[str], at: int) -> tuple[int, str]:
    """The tag that starts first, of those the longest; (end, "") if there is none."""
    found = [(raw.find(tag, at), -len(tag), tag) for tag in tags if tag and raw.find(tag, at) >= 0]
    place, _, tag = min(found, default=(len(raw), 0, ""))
    return place, tag


def calls_in(body: str) -> int:
    """How many calls the body is; 0: none."""
    try:
        parsed = parse(body, None)
    except ValueError:
        return 0
    calls = parsed if isinstance(parsed, list) else [parsed]
    names = [call.get("name") for call in calls]
    return len(names) if all(name == "f" for name in names) else 0


def region_of(raw: str, at: int, tag: str, setting: Setting) -> tuple[int, int]:
    """Where the region that ``tag`` opens ends, and how many calls it is; -1: it is none."""
    bare = tag == setting.bare
    end = "</function>" if bare else setting.tags[1]
    heads = ("f",) if bare else GRAMMARS.get(setting.grammar, Grammar()).body
    head = raw[at:].lstrip()
    if heads and head and not any(head.startswith(h) or h.startswith(head) for h in heads):
        return at, -1
    close = raw.find(end, at) if end else -1
    if close < 0 and setting.cut:
        return len(raw), 0
    stop = len(raw) if close < 0 else close + len(end)
    body = raw[at : len(raw) if close < 0 else close]
    return stop, calls_in(raw[at - len(tag) : stop] if bare else body)


def events(raw: str, setting: Setting) -> Iterator[Event]:
    inside, at, in_markup, after_call = setting.inside, 0, False, False
    think = list(setting.think or ())
    no_tools_before = 0  # in the text of a false region only think tags are sought

    def chars(start: int, end: int) -> Iterator[Event]:
        for place in range(start, end):
            yield "reasoning" if inside else "text", raw[place], place

    while at < len(raw):
        tags = list(think)
        if at >= no_tools_before and (not inside or setting.in_reasoning):
            tags += [*setting.tags, setting.bare]
        if at >= no_tools_before and not inside:
            tags += setting.markers
        bound = no_tools_before if at < no_tools_before else len(raw)
        place, tag = first(raw[:bound], tags, at)
        after_call = after_call and (inside or not raw[at:place].strip())
        yield from chars(at, place)
        at = place + len(tag)
        if not tag:
            at = bound
        elif tag in think:
            inside = tag == think[0]
            yield "think", "", at
        elif tag in setting.markers:
            yield "skip", "", at
        elif tag == setting.tags[0] and not setting.tools:
            in_markup = True
            yield "skip", "", at
        elif tag == setting.tags[1] and (in_markup or after_call):
            in_markup = False
            yield "skip", "", at
        elif tag == setting.tags[1]:
            after_call = after_call and inside
            yield from chars(place, at)
        else:
            end, calls = region_of(raw, at, tag, setting)
            if calls > 0:
                yield from [("call", "", end)] * calls
                inside, at, after_call = False, end, True
            elif calls == 0:
                no_tools_before, at = end, place
            else:
                after_call = after_call and inside
                yield from chars(place, at)


def decided(text: str, stops: list[str], ended: bool) -> tuple[int, str] | None:
    """A match that nothing behind ``text`` can change any more."""
    at, stop = first(text, stops, 0)
    if stop and not ended:
        ends = [text[place:] for place in range(at + 1)]
        if any(
            longer.startswith(end) for end in ends for longer in stops if len(longer) > len(end)
        ):
            return None
    return (at, stop) if stop else None


@dataclass
class Answer:
    text: str = ""
    reasoning: str = ""
    calls: int = 0
    stop: str | None = None
    length: int = 0


def lead_cut(found: list[Event], setting: Setting) -> list[Event]:
    """Without the blank text that stands around reasoning, or alone, before real text."""
    if setting.think is None:
        return found
    real = next((n for n, (kind, c, _) in enumerate(found) if kind == "text" and c.strip()), None)
    before = found[:real]
    marks = [n for n, (kind, *_) in enumerate(before) if kind in ("think", "skip", "call")]
    kept_from = marks[-1] if marks else 0
    trim = setting.inside or any(kind == "think" for kind, *_ in before)
    blank = [n for n, (kind, *_) in enumerate(before) if kind == "text"]
    kept = [] if real is None else [n for n in blank if n >= kept_from]
    if trim:
        lines = [n for n in kept if found[n][1] == "\n"]
        kept = [n for n in kept if n > lines[-1]] if lines else []
    return [event for n, event in enumerate(found) if n not in blank or n in kept]


def stop_cut(found: list[Event], setting: Setting, answer: Answer) -> list[Event]:
    """What comes out before a stop sequence is known to have matched."""
    stops, text, places = list(filter(None, setting.stops)), "", []
    for n, (kind, char, place) in enumerate([*found, ("end", "", 0)]):
        if kind == "text":
            text, places = text + char, [*places, place]
        match = decided(text, stops, kind in ("call", "end"))
        if match is not None:
            answer.stop, answer.length = match[1], places[match[0]]
            shown = set(places[: match[0]])
            return [
                e for e in found[: n + 1] if e[0] != "call" and (e[0] != "text" or e[2] in shown)
            ]
        if kind == "call":
            return found
    return found


def slowly(raw: str, setting: Setting) -> Answer:
    answer = Answer(length=len(raw))
    found = stop_cut(lead_cut(list(events(raw, setting)), setting), setting, answer)
    answer.calls = sum(kind == "call" for kind, *_ in found)
    for call, part in groupby(found, lambda event: event[0] == "call"):
        text = "" if call else "".join(char for kind, char, _ in part if kind == "text")
        if text.strip() or answer.stop is not None or setting.plain:
            answer.text += text
    for between, part in groupby(found, lambda event: event[0] in ("call", "think")):
        thought = "" if between else "".join(c for kind, c, _ in part if kind == "reasoning")
        answer.reasoning += thought if thought.strip() else ""
    return answer


# --- the machine -----------------------------------------------------------------------------


def machine_of(setting: Setting, **changed: Any) -> AnswerMachine:
    options: dict[str, Any] = {
        "think": setting.think,
        "starts_in_reasoning": setting.inside,
        "tool_tags": setting.tags,
        "parse_tool": PARSERS[setting.grammar],
        "tools": TOOLS if setting.tools else None,
        "stops": setting.stops,
        "tool_in_reasoning": setting.in_reasoning,
        "markers": setting.markers,
    }
    return AnswerMachine(**options | changed)


def run(machine: AnswerMachine, pieces: list[str], cut: bool) -> Answer:
    out: list[Piece] = []
    for piece in pieces:
        out += machine.feed(piece)
    out += machine.finish(cut)
    answer = Answer(
        "".join(piece.text for piece in out if piece.kind == "text"),
        "".join(piece.text for piece in out if piece.kind == "reasoning"),
        sum(piece.kind == "tool_call" for piece in out),
        machine.stop_sequence,
        machine.visible_raw_length,
    )
    assert (answer.text, answer.reasoning) == (machine.text, machine.reasoning)
    assert answer.calls == len(machine.tool_calls)
    return answer


# A few fragments, each used again and again: they meet in more ways than many used once.
RAW = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6).flatmap(
    lambda some: st.lists(st.sampled_from(some), max_size=12)
)


@settings(max_examples=2500, database=None)
@given(RAW, SETTINGS, st.integers(1, 9))
def test_w40_any_pieces_give_what_the_whole_text_gives(
    fragments: list[str], setting: Setting, size: int
) -> None:
    raw = "".join(fragments)
    expected = slowly(raw, setting)
    equal = [raw[at : at + size] for at in range(0, len(raw), size)]
    for pieces in (fragments, equal, [raw]):
        # how much was fed behind a match is the feeder's affair
        assert run(machine_of(setting), pieces, setting.cut) == expected


@settings(max_examples=1000, database=None)
@given(RAW, SETTINGS)
def test_w36_what_is_kept_at_a_match_reads_as_what_was_shown(
    fragments: list[str], setting: Setting
) -> None:
    raw = "".join(fragments)
    shown = run(machine_of(setting), [*raw], setting.cut)
    if shown.stop is None or not shown.text.strip():
        return
    kept = run(machine_of(setting, stops=()), [raw[: shown.length]], cut=True)
    assert (kept.text, kept.calls) == (shown.text, 0)


@settings(max_examples=500, database=None)
@given(RAW, st.integers(1, 9))
def test_a_plain_model_s_bytes_are_its_text(fragments: list[str], size: int) -> None:
    raw = "".join(fragments)
    machine = AnswerMachine(
        think=None, starts_in_reasoning=False, tool_tags=None, parse_tool=None, tools=None, stops=()
    )
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    assert run(machine, pieces, False) == Answer(raw, length=len(raw))


@settings(max_examples=1000, database=None)
@given(RAW, SETTINGS)
def test_w30_no_think_tag_that_the_model_wrote_comes_out(
    fragments: list[str], setting: Setting
) -> None:
    machine, out = machine_of(setting), []
    for piece in fragments:
        out += machine.feed(piece)
    for piece in [*out, *machine.finish(setting.cut)]:
        assert not any(tag and tag in piece.text for tag in setting.think or ())
