"""What IPython makes of a cell before it runs: prompts stay out of it (C37)."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from mlxnb.notebook.verbatim import install

# What a tokenizer of Python trips over, or IPython takes for something else.
ODD = [
    "Why?",
    "What's up?",
    'a """ b',
    "f(x",
    "[1, 2",
    '"',
    "'",
    "0x 1_ 1e",
    "é ?",
    "$",
    "`",
    "x)",
    "}",
    "\\d",
    "!ls",
    "# x",
]


@pytest.fixture
def shell(bare_shell: InteractiveShell) -> InteractiveShell:
    install(bare_shell)
    return bare_shell


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("x = ", ""), ("if 1:\n    ", "\ny = 'it'"), ("'''a\n'''\n", "\n%time 1")],
)
def test_a_line_becomes_a_call_with_its_text(
    shell: InteractiveShell, before: str, text: str, after: str
) -> None:
    cell = shell.transform_cell(f"{before}%mlx_chat {text}{after}")
    call = f"{before}get_ipython().run_line_magic('mlx_chat', {text!r})\n"
    assert cell.startswith(call)
    compile(cell, "cell", "exec")


@pytest.mark.parametrize("text", ODD)
def test_a_terminal_sees_that_a_line_is_complete(shell: InteractiveShell, text: str) -> None:
    assert shell.check_complete(f"%mlx_chat {text}") == ("complete", "")


def test_a_terminal_lets_a_cell_go_on_until_a_blank_line(shell: InteractiveShell) -> None:
    assert shell.check_complete("%%mlx_chat -s a\nhello")[0] == "incomplete"
    assert shell.check_complete("%%mlx_chat -s a\nhello\n\n")[0] == "complete"


def test_a_line_that_ends_in_a_backslash_goes_on_as_in_all_magics(shell: InteractiveShell) -> None:
    cell = shell.transform_cell("%mlx_chat one \\\ntwo\nx = 1")
    assert cell == "get_ipython().run_line_magic('mlx_chat', 'one  two')\nx = 1\n"


@pytest.mark.parametrize("cell", ["%mlx_chat?", "%mlx_chat??", "?%mlx_chat", "%%mlx_chat?"])
def test_a_question_mark_at_the_name_asks_for_help(shell: InteractiveShell, cell: str) -> None:
    assert "'pinfo" in shell.transform_cell(cell)


@pytest.mark.parametrize(
    "cell", ["%mlx_chatter Why?", "x = 5 % mlx_chat\n", "%time x", "print?", ""]
)
def test_other_cells_are_as_before(
    bare_shell: InteractiveShell, cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bare_shell.transform_cell(cell)
    install(bare_shell)
    assert bare_shell.transform_cell(cell) == before


@pytest.mark.parametrize(
    "head", ["%%mlx_chat", "%%mlx_chat -s a --system 'it''s'", "\n\n%%mlx_chat "]
)
def test_a_cell_becomes_a_call_with_its_lines(shell: InteractiveShell, head: str) -> None:
    body = ">>> x?\n  %magic\n\n"
    line = head.strip().removeprefix("%%mlx_chat").strip()
    call = f"get_ipython().run_cell_magic('mlx_chat', {line!r}, {body!r})\n"
    assert shell.transform_cell(f"{head}\n{body}") == call
