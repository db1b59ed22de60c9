"""What each view shows of a turn's events, and how often."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from mlxnb.engine.events import Event, Piece, Prefill
from mlxnb.notebook import views
from mlxnb.notebook.fence import FirstFence
from mlxnb.notebook.pace import PERIOD_S, Pace
from mlxnb.notebook.views import CodeView, MarkdownView, TextView, View
from mlxnb.records.turn import FinishReason, Timing, ToolCall, Turn, Usage

from .cells import Cells, Ran

CODE = "Look:\n\n```python\nx = 1\n\nif x:\n    y = '```'\n```\n\nand\n\n```\nnot this\n```\n"


def turn(text: str, reason: FinishReason = "stop", **facts: Any) -> Turn:
    usage = Usage(prompt_tokens=1200, cached_tokens=1000, output_tokens=11)
    timing = Timing(ttft_s=0.25, decode_s=2.0)
    return Turn("t1", text, finish_reason=reason, usage=usage, timing=timing, **facts)


def show(cells: Cells, view: str, events: list[Event], ended: Turn | None) -> Ran:
    """A turn's events in a view of that class, run in a cell."""

    def run() -> None:
        made: View = getattr(views, view)()
        for event in events:
            made.show(event)
        made.close(ended)

    cells["run"] = run
    return cells.ok("run()")


def pieces(text: str, size: int = 3) -> list[Event]:
    return [Piece("text", text[i : i + size]) for i in range(0, len(text), size)]


# --- pace (C42) -------------------------------------------------------------------------------


class Clock:
    """Time that passes only in sleep and in what is shown."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_showings_are_a_twentieth_of_a_second_apart_whatever_comes() -> None:
    clock, shown, chance = Clock(), [], random.Random(1)
    pace = Pace(clock, clock.sleep)

    def action() -> int:
        shown.append(clock.now)
        return 10

    for _ in range(2_000):
        clock.now += chance.choice((0, 0.001, 0.02, 0.2))
        if pace.due or chance.random() < 0.01:
            pace.show(action)
    gaps = [b - a for a, b in pairwise(shown)]
    assert min(gaps) >= PERIOD_S - 1e-9
    assert len(shown) > 100


def test_the_first_showing_does_not_wait() -> None:
    clock = Clock()
    Pace(clock, clock.sleep).show(lambda: 1)
    assert clock.now == 0


@pytest.mark.parametrize(
    ("cost", "size", "wait"), [(0.0, 10, 0.05), (0.02, 10, 0.2), (0.0, 100_000, 0.4), (5.0, 1, 1.0)]
)
def test_what_is_costly_is_shown_less_often(cost: float, size: int, wait: float) -> None:
    clock = Clock()
    pace = Pace(clock, clock.sleep)

    def action() -> int:
        clock.now += cost
        return size

    pace.show(action)
    begin = clock.now
    while not pace.due:
        clock.now += 0.001
    assert clock.now - begin == pytest.approx(wait, abs=0.002)


# --- text -------------------------------------------------------------------------------------


def test_text_is_printed_whole_with_one_newline_at_the_end(cells: Cells) -> None:
    for text in ("one\ntwo", "one\n", "a " * 500):
        ran = show(cells, "TextView", pieces(text), turn(text))
        assert ran.stdout == text.removesuffix("\n") + "\n"
        assert (ran.stderr, ran.shown) == ("", [])


def test_an_empty_answer_prints_nothing(cells: Cells) -> None:
    assert show(cells, "TextView", [Prefill(1, 2, 0)], turn("")).stdout == ""


def test_text_leaves_reasoning_and_progress_out(cells: Cells) -> None:
    events: list[Event] = [Prefill(1, 2, 0), Piece("reasoning", "hmm"), Piece("text", "yes")]
    assert show(cells, "TextView", events, turn("yes", reasoning="hmm")).stdout == "yes\n"


def test_text_names_tool_calls(cells: Cells) -> None:
    call = ToolCall("c1", "look", {"at": "é"})
    events: list[Event] = [Piece("text", "I look."), Piece("tool_call", call=call)]
    ran = show(cells, "TextView", events, turn("I look.", "tool_calls", tool_calls=[call]))
    assert ran.stdout == 'I look.\n[call c1: look {"at": "é"}]\n'


def test_control_characters_do_not_reach_a_terminal(cells: Cells) -> None:
    text = "a\x1b[2Jb\x1b]52;c;eA==\x07c\x9bd\re\x08\tf\x7f"
    ran = show(cells, "TextView", pieces(text, 1), turn(text))
    assert ran.stdout == "a�[2Jb�]52;c;eA==�c�de�\tf�\n"


def test_what_no_event_brought_is_shown_at_the_end(cells: Cells) -> None:
    ended = turn("one two three", "cancelled")
    assert show(cells, "TextView", [Piece("text", "one ")], ended).stdout == "one two three\n"
    ran = show(cells, "MarkdownView", [Piece("text", "one ")], ended)
    assert ran.shown[-1]["text/plain"] == "one two three"


# --- code -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_code_prints_the_first_fenced_block(cells: Cells, size: int) -> None:
    ran = show(cells, "CodeView", pieces(CODE, size), turn(CODE))
    assert (ran.stdout, ran.stderr) == ("x = 1\n\nif x:\n    y = '```'\n", "")


def test_code_without_a_fence_says_so(cells: Cells) -> None:
    ran = show(cells, "CodeView", pieces("no code"), turn("no code"))
    assert (ran.stdout, ran.stderr) == ("", "the answer has no fenced code; -f text shows it\n")


def test_code_of_an_interrupted_answer_is_what_was_there(cells: Cells) -> None:
    text = "```\nx = 1\ny = "
    ran = show(cells, "CodeView", pieces(text), turn(text, "cancelled"))
    assert (ran.stdout, ran.stderr) == ("x = 1\ny = \n", "")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("~~~\na\n~~~\nb", "a\n"),
        ("````\n```\na\n```\n````\n", "```\na\n```\n"),
        ("   ```js\na\n   ```\n", "a\n"),
        ("    ```\nindented is no fence\n", ""),
        ("inline ``` is none\n```x```\n", ""),
        ("```\na\n``` x\nb\n```\n", "a\n``` x\nb\n"),
        ("```\nopen", "open\n"),
        ("```", ""),
    ],
)
def test_a_fence_is_what_commonmark_calls_one(text: str, code: str) -> None:
    fence = FirstFence()
    assert fence.feed(text) + fence.finish() == code


# --- markdown ---------------------------------------------------------------------------------


def test_the_box_ends_with_the_facts(cells: Cells) -> None:
    ran = show(cells, "MarkdownView", pieces("**yes**"), turn("**yes**"))
    page = ran.shown[-1]["text/html"]
    assert "<strong>yes</strong>" in page
    assert "11 tokens · 1,000 of 1,200 cached · first token 0.25 s · 5.0 tokens/s<" in page


@pytest.mark.parametrize(
    ("reason", "words"),
    [("length", "cut at max_tokens"), ("cancelled", "interrupted"), ("error", "failed")],
)
def test_an_unusual_end_is_named(cells: Cells, reason: FinishReason, words: str) -> None:
    assert words in show(cells, "MarkdownView", [], turn("x", reason)).shown[-1]["text/html"]


def test_reasoning_is_folded_above_the_answer(cells: Cells) -> None:
    events: list[Event] = [Piece("reasoning", "<b>hmm</b>"), Piece("text", "yes")]
    ran = show(cells, "MarkdownView", events, turn("yes", reasoning="<b>hmm</b>"))
    page = ran.shown[-1]["text/html"]
    assert page.index("<details") < page.index("&lt;b&gt;hmm") < page.index("</details>")
    assert page.index("</details>") < page.index("<p>yes</p>")
    assert " open" not in page
    assert ran.shown[-1]["text/plain"] == "yes"
    assert "Reasoning …" in ran.shown[0]["text/html"]


def test_a_call_is_shown_escaped(cells: Cells) -> None:
    call = ToolCall("c1", "look", {"at": "<img src=x>"})
    ended = turn("", "tool_calls", tool_calls=[call])
    page = show(cells, "MarkdownView", [Piece("tool_call", call=call)], ended).shown[-1][
        "text/html"
    ]
    assert "call c1: look" in page and "&lt;img" in page and "<img" not in page


def test_progress_is_shown_only_when_the_prefill_lasts(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = [Prefill(0, 4000, 0), Prefill(512, 4000, 0), *pieces("yes")]
    assert "prefill" not in str(show(cells, "MarkdownView", events, turn("yes")).shown)
    monkeypatch.setattr(views, "PATIENCE_S", -1)
    shown = show(cells, "MarkdownView", events, turn("yes")).shown
    assert "prefill 0/4,000" in shown[0]["text/html"]
    assert "prefill" not in shown[-1]["text/html"]


def test_progress_can_be_switched_off(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "PATIENCE_S", -1)

    def run() -> None:
        view = MarkdownView(progress=False)
        view.show(Prefill(512, 4000, 0))
        view.close(turn("yes"))

    cells["run"] = run
    assert "prefill" not in str(cells.ok("run()").shown)


def test_an_open_span_does_not_flicker(cells: Cells) -> None:
    ran = show(cells, "MarkdownView", [Piece("text", "a **bo")], turn("a **bold** b"))
    assert "<strong>bo</strong>" in ran.shown[0]["text/html"]
    assert "<strong>bold</strong> b" in ran.shown[-1]["text/html"]


def test_an_answer_without_text_still_shows_its_facts(cells: Cells) -> None:
    ran = show(cells, "MarkdownView", [], turn("", "cancelled"))
    assert len(ran.shown) == 1 and "interrupted" in ran.shown[0]["text/html"]


@pytest.mark.parametrize("view", [TextView, CodeView])
def test_a_view_can_be_closed_without_a_turn(cells: Cells, view: type[View]) -> None:
    assert show(cells, view.__name__, pieces("```\nx\n"), None).stdout.endswith("x\n")
