"""`%mlx_chat -n`: several answers from one computation of the prompt."""

from __future__ import annotations

import pytest

from mlxnb.engine.events import Piece
from mlxnb.notebook.views import MarkdownView, TextView
from mlxnb.records.turn import ToolCall, Turn, Usage
from mlxnb.sessions.local import LocalEngine

from .cells import Cells


def test_answers_stand_one_below_the_other(cells: Cells, engine: LocalEngine) -> None:
    ran = cells.ok("%mlx_chat -n 3 -t 9 --seed 1 --max-tokens 6 -f text -o turn Hello")
    turn = cells["turn"]
    texts = [choice.text for choice in turn.choices]
    assert (len(texts), len(set(texts)), turn.choices[0] is turn) == (3, 3, True)
    heads = [f"[{number} of 3]\n" for number in (1, 2, 3)]
    assert [head in ran.stdout for head in heads] == [True] * 3
    assert ran.stdout.index(heads[0]) < ran.stdout.index(heads[1]) < ran.stdout.index(heads[2])
    assert len({choice.prompt_tokens for choice in turn.choices}) == 1
    assert engine.find_session(turn.session).turns == 1


def test_a_session_s_own_number_counts_too(cells: Cells, engine: LocalEngine) -> None:
    engine.session(name="two", n=2, temperature=1.0)
    assert "[2 of 2]\n" in cells.ok("%mlx_chat -s two -f text Hello").stdout


def test_one_answer_has_no_number(cells: Cells) -> None:
    ran = cells.ok("%mlx_chat -n 1 -f text -o turn Hello")
    assert "[1 of" not in ran.stdout
    assert cells["turn"].choices == []


@pytest.mark.parametrize("given", ["0", "129", "many"])
def test_a_number_that_cannot_be_is_one_line(cells: Cells, given: str) -> None:
    assert "-n" in (told := cells.run(f"%mlx_chat -n {given} Hello").mistake) or "n lies" in told


def chosen(text: str, *calls: ToolCall) -> Turn:
    return Turn("t1", text, finish_reason="stop", tool_calls=[*calls], usage=Usage(output_tokens=2))


def test_each_answer_has_a_box_and_facts_of_its_own(cells: Cells) -> None:
    turn = chosen("**one**")
    turn.choices = [turn, chosen("two <b>", ToolCall("c1", "look", {})), chosen("three")]

    def run() -> None:
        view = MarkdownView()
        view.of = 3
        view.show(Piece("text", "**one**"))
        view.close(turn)
        view.show_others(turn)

    cells["run"] = run
    pages = [bundle["text/html"] for bundle in cells.ok("run()").shown]
    last = {
        number: next(p for p in reversed(pages) if f"{number} of 3 · 2 tokens" in p)
        for number in (1, 2, 3)
    }
    assert "<strong>one</strong>" in last[1]
    assert "two &lt;b&gt;" in last[2] and "call c1: look {}" in last[2]
    assert "three" in last[3]


def test_an_empty_answer_is_numbered_too(cells: Cells) -> None:
    turn = chosen("")
    turn.choices = [turn, chosen("")]

    def run() -> None:
        view = TextView()
        view.of = 2
        view.close(turn)
        view.show_others(turn)

    cells["run"] = run
    assert cells.ok("run()").stdout == "[1 of 2]\n[2 of 2]\n"
