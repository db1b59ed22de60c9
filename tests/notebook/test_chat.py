"""`%mlx_chat` and `%%mlx_chat`: sessions, options, results, mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlxnb.notebook.plain import plain
from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine

from .cells import Cells


def said(engine: LocalEngine, session: str = "session-1") -> list[str]:
    """What the user has said in a session."""
    history = engine.find_session(session).history
    return [m["content"] for m in history if m["role"] == "user"]


# --- prompts are verbatim (C37) ---------------------------------------------------------------

HARD = [
    "What is {x} and {{y}}?",
    "print(f'{1/0}') {cells",
    "$x $HOME $$ ${y} %timeit 100%",
    'quotes " and \' and ` and """ stay',
    r"back\slash \n \t C:\dir\ end",
    "!ls; ?help ??more %magic %%cell",
    "Why?",
    "Why??",
    "a  b   c\td",
    "-5 + 3 = ?",
    "- a list item",
    "naïve — 漢字 🙂",
    "<|im_end|> is text",
    "# a heading? # no comment",
    "ends in a semicolon;",
]


@pytest.mark.parametrize("text", HARD)
def test_a_line_is_said_as_it_stands(cells: Cells, engine: LocalEngine, text: str) -> None:
    cells["x"] = cells["y"] = "WRONG"
    cells.ok(f"%mlx_chat {text}")
    assert said(engine) == [text]


@pytest.mark.parametrize(
    "text", [*HARD, ">>> 1 / 0\n... x", "In [1]: x", "  a\n\n    b\n", "%mlx_chat"]
)
def test_a_cell_is_said_as_it_stands(cells: Cells, engine: LocalEngine, text: str) -> None:
    cells["x"] = cells["y"] = "WRONG"
    cells.ok(f"%%mlx_chat\n{text}")
    assert said(engine) == [text.removesuffix("\n")]


def test_a_question_among_other_lines_is_said(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("before = 1\nif before:\n    %mlx_chat Why?\n%mlx_chat What's that?\nafter = 'x'")
    assert said(engine) == ["Why?", "What's that?"]
    assert cells["after"] == "x"


def test_a_question_that_is_assigned_is_said(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("x = %mlx_chat Why?")
    assert said(engine) == ["Why?"]


def test_a_line_of_a_string_is_no_question(cells: Cells, engine: LocalEngine) -> None:
    cells.ok('text = """\n%mlx_chat Why?\n"""')
    assert cells["text"] == "\n%mlx_chat Why?\n"
    assert len(engine.sessions()) == 0


def test_two_dashes_begin_a_text_that_looks_like_options(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_chat --max-tokens 1 -- -s is --what 'it says")
    assert said(engine) == ["-s is --what 'it says"]


def test_options_in_the_middle_of_a_text_are_text(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_chat what does -t 5 mean?")
    assert said(engine) == ["what does -t 5 mean?"]


def test_loading_twice_changes_nothing(cells: Cells, engine: LocalEngine) -> None:
    from mlxnb.notebook.magics import register

    register(cells.shell, lambda: engine, lambda other: other or engine)
    cells.ok("%config MlxMagics.max_tokens = 1")
    cells.ok("%mlx_chat -o turn Why?")
    assert (said(engine), cells["turn"].output_tokens) == (["Why?"], 1)
    assert cells.ok("%config").stdout.count("MlxMagics") == 1
    assert cells.complete("%mlx_session re") == ["rewind", "reset", "restore"]


# --- --var is the only interpolation ----------------------------------------------------------


def test_var_fills_only_the_given_names_and_once(cells: Cells, engine: LocalEngine) -> None:
    cells["a"], cells["b"], cells["c"] = 5, "{a}{c}", "WRONG"
    cells.ok("%%mlx_chat --var a b\n{a} {b} {c} {{a}} {a!r}")
    assert said(engine) == ["5 {a}{c} {c} {5} {a!r}"]


def test_var_takes_one_name_on_a_line(cells: Cells, engine: LocalEngine) -> None:
    cells["a"], cells["b"] = 1, 2
    cells.ok("%mlx_chat --var a --var b b is {b} and {a}")
    assert said(engine) == ["b is 2 and 1"]


def test_var_fills_the_system_text(cells: Cells, engine: LocalEngine) -> None:
    cells["policy"] = "Be brief.\nBe kind."
    cells.ok("%mlx_chat --system {policy} --var policy Hello")
    assert engine.find_session("session-1").options.system == "Be brief.\nBe kind."


def test_an_unknown_variable_is_a_mistake(cells: Cells, engine: LocalEngine) -> None:
    assert "nothing_of_that_name" in cells.run("%mlx_chat --var nothing_of_that_name x").mistake
    assert len(engine.sessions()) == 0


# --- sessions ---------------------------------------------------------------------------------


def test_the_current_session_is_made_once_and_goes_on(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_chat one")
    cells.ok("%mlx_chat two")
    assert said(engine) == ["one", "two"]
    assert list(engine.turns()["source"])[-2:] == ["magic", "magic"]


def test_a_named_session_leaves_the_current_one_alone(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_chat one")
    cells.ok("%mlx_chat -s other two")
    cells.ok("%mlx_chat three")
    assert (said(engine), said(engine, "other")) == (["one", "three"], ["two"])


def test_another_system_text_starts_a_new_session(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_chat --system 'Be brief.' one")
    cells.ok("%mlx_chat --system 'Be brief.' two")
    cells.ok("%mlx_chat --system 'Be long.' three")
    cells.ok("%mlx_chat four")
    assert (said(engine), said(engine, "session-2")) == (["one", "two"], ["three", "four"])


def test_a_named_session_with_another_system_text_is_a_mistake(cells: Cells) -> None:
    cells.ok("%mlx_chat -s a --system 'Be brief.' one")
    cells.ok("%mlx_chat -s a two")
    assert "exists" in cells.run("%mlx_chat -s a --system 'Be long.' three").mistake


def test_a_removed_session_is_followed_by_a_new_one(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_chat one")
    engine.remove_session("session-1")
    cells.ok("%mlx_chat two")
    assert said(engine) == ["two"]


def test_the_model_is_chosen_by_option_or_default(
    cells: Cells, engine: LocalEngine, folder: Path
) -> None:
    assert "no model 'nosuch'" in cells.run("%mlx_chat -m nosuch one").mistake
    cells.ok(f"%mlx_chat -m {folder} one")
    cells.ok("%config MlxMagics.model = 'nosuch'")
    cells.ok("%mlx_chat two")  # the current session keeps its model
    assert "nosuch" in cells.run("%mlx_chat -s new three").mistake


# --- options and results ----------------------------------------------------------------------


def test_sampling_options_reach_the_turn(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_chat -t 0.5 --max-tokens 3 --seed 7 --top-p 0.9 --top-k 5 --min-p 0.1 x")
    row = engine.turns(wide=True).iloc[-1]
    assert (row["temperature"], row["max_tokens"], row["seed"]) == (0.5, 3, 7)
    assert row["output_tokens"] == 3


def test_long_options_take_their_value_after_an_equals_sign(
    cells: Cells, engine: LocalEngine
) -> None:
    cells.ok("%mlx_chat --temp=0.25 --max-tokens=2 x")
    assert tuple(engine.turns(wide=True).iloc[-1][["temperature", "max_tokens"]]) == (0.25, 2)


def test_a_seed_gives_the_same_answer_again(cells: Cells) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        cells.ok(f"%mlx_chat -s {name} -t 1 --seed {seed} --max-tokens 12 -o {name} x")
    assert cells["a"].tokens == cells["b"].tokens != cells["c"].tokens


def test_defaults_come_from_config_and_the_line_wins(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%config MlxMagics.temp = 0.5")
    cells.ok("%mlx_chat x")
    cells.ok("%mlx_chat -t 0 --max-tokens 2 x")
    rows = engine.turns(wide=True).iloc[-2:]
    assert list(rows["temperature"]) == [0.5, 0.0]
    assert list(rows["max_tokens"]) == [4, 2]


def test_an_answer_ends_before_a_stop_text(cells: Cells) -> None:
    cells.ok("%mlx_chat -s a --max-tokens 40 -o whole x")
    text = cells["whole"].text
    cut = text[6:8]
    cells["stop"] = cut
    cells.ok(f"%%mlx_chat -s b --max-tokens 40 --stop never --stop {cut!r} -o turn\nx")
    assert cells["turn"].finish_reason == "stop_sequence"
    assert cells["turn"].text == text[: text.index(cut)]


def test_output_stores_the_turn(cells: Cells) -> None:
    cells.ok("%mlx_chat -o turn x")
    turn = cells["turn"]
    assert isinstance(turn, Turn)
    assert repr(turn).startswith("Turn(") and turn.id not in repr(turn)


def test_text_format_prints_the_answer_alone(cells: Cells) -> None:
    ran = cells.ok("%mlx_chat -f text --max-tokens 30 -o turn x")
    assert ran.stdout == plain(cells["turn"].text) + "\n"
    assert (ran.stderr, ran.shown, ran.value) == ("", [], None)


def test_markdown_shows_one_box_and_updates_it(cells: Cells) -> None:
    ran = cells.ok("%mlx_chat --max-tokens 8 -o turn x")
    assert ran.stdout == ""
    assert ran.shown[-1]["text/plain"] == plain(cells["turn"].text)
    assert all(set(bundle) == {"text/html", "text/plain"} for bundle in ran.shown)


def test_the_default_format_comes_from_config(cells: Cells) -> None:
    cells.ok("%config MlxMagics.format = 'text'")
    assert cells.ok("%mlx_chat x").shown == []
    assert cells.ok("%mlx_chat -f markdown x").shown != []


def test_a_terminal_gets_plain_text(cells: Cells) -> None:
    cells.shell.display_formatter.active_types = ["text/plain"]
    ran = cells.ok("%mlx_chat -o turn x")
    assert (ran.stdout, ran.shown) == (plain(cells["turn"].text) + "\n", [])
    assert cells.ok("%mlx_chat -f markdown x").shown == []


# --- mistakes: one line, no traceback (C39) ---------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%mlx_chat", "there is no text"),
        ("%%mlx_chat\n\n  \n", "there is no text"),
        ("%%mlx_chat -s\nx", "-s needs a value (NAME)"),
        ("%mlx_chat --nosuch x", "no option --nosuch; write --"),
        ("%%mlx_chat stray words\nx", "unexpected 'stray'"),
        ("%mlx_chat -t hot x", "-t: a number is needed, not 'hot'"),
        ("%mlx_chat --max-tokens 1.5 x", "--max-tokens: a whole number is needed, not '1.5'"),
        ("%mlx_chat -t 1000 x", "temperature"),
        ("%mlx_chat --max-tokens -1 x", "max_tokens"),
        ("%mlx_chat --top-p 2 x", "top_p"),
        ("%mlx_chat -f html x", "-f is one of markdown, text, code, not 'html'"),
        ("%mlx_chat -o not-a-name x", "'not-a-name' is not a name"),
        ("%mlx_chat -o class x", "'class' is not a name"),
        ("%mlx_chat --system 'open x", "a ' is not closed"),
    ],
)
def test_a_mistake_is_one_line(cells: Cells, line: str, words: str) -> None:
    assert words in cells.run(line).mistake


def test_a_prompt_too_long_is_one_line_and_touches_nothing(
    cells: Cells, engine: LocalEngine
) -> None:
    cells["long"] = "a b c d " * 40_000
    before = len(engine.turns())
    assert "context window" in cells.run("%mlx_chat --var long {long}").mistake
    assert len(engine.turns()) == before
    cells.ok("%mlx_chat short")


def test_without_a_model_the_line_says_how_to_load_one(bare_shell: object) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    from mlxnb.notebook.magics import register

    assert isinstance(bare_shell, InteractiveShell)
    empty = LocalEngine(budget=2**24)
    try:
        register(bare_shell, lambda: empty, lambda other: other or empty)
        assert "%mlx_load demo" in Cells(bare_shell).run("%mlx_chat hello").mistake
    finally:
        empty.close()
