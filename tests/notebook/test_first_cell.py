"""The cell that loads the extension may hold prompts, though IPython has read it before."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from mlxnb.notebook.first_cell import FirstCell
from mlxnb.notebook.magics import register
from mlxnb.sessions.local import LocalEngine

from .cells import Cells


@pytest.fixture
def fresh(bare_shell: InteractiveShell, engine: LocalEngine) -> Cells:
    """A shell whose cells can load the magics with ``load()``."""
    bare_shell.user_ns["load"] = lambda: register(
        bare_shell, lambda: engine, lambda other: other or engine
    )
    bare_shell.magics_manager.magics["line"].pop("mlx_chat", None)
    return Cells(bare_shell)


def said_last(engine: LocalEngine) -> str:
    frame = engine.tokens()
    return "".join(frame[frame.role == "user"].text).strip()


def said(engine: LocalEngine) -> list[str]:
    (name,) = engine.sessions()["name"]
    return [m["content"] for m in engine.find_session(name).history if m["role"] == "user"]


def test_prompts_behind_the_load_are_asked(fresh: Cells, engine: LocalEngine) -> None:
    cell = """load()
%config MlxMagics.max_tokens = 2
%mlx_chat -f text What is the capital of France?
%mlx_chat -f text And   of "Italy"?
if True:
    %mlx_chat -f text Why??
%mlx_chat -f text Is it 2*x?
%mlx_chat -f text Really.
"""
    assert fresh.shell.run_cell(cell, store_history=True).success
    asked = [
        "What is the capital of France?",
        'And   of "Italy"?',
        "Why??",
        "Is it 2*x?",
        "Really.",
    ]
    assert said(engine) == asked


def test_a_comparison_is_made_there_too(fresh: Cells, engine: LocalEngine) -> None:
    cell = """load()
%config MlxMagics.max_tokens = 2
%mlx_compare --temp 0 --temp 1 -o both Why is the sky blue?
"""
    fresh.shell.magics_manager.magics["line"].pop("mlx_compare", None)
    assert fresh.shell.run_cell(cell, store_history=True).success
    assert len(fresh.shell.user_ns["both"]) == 2
    assert said_last(engine) == "Why is the sky blue?"


def test_help_in_that_cell_stays_help(fresh: Cells) -> None:
    FirstCell(fresh.shell, "%mlx_chat Is it len?").install()
    asked: list[str] = []
    fresh.shell.register_magic_function(asked.append, "line", "mlx_chat")
    shown = fresh.ok("abs?\nlen?\nlen?").stdout
    assert asked == ["Is it len?"]
    assert "abs(x" in shown and "len(obj" in shown
    assert "FirstCell" not in repr(fresh.shell.magics_manager.magics["line"]["pinfo"])


def test_a_cell_without_such_prompts_is_left_alone(fresh: Cells) -> None:
    own = dict(fresh.shell.magics_manager.magics["line"])
    FirstCell(fresh.shell, "load()\nlen?\n%mlx_chat hello\n%mlx_chat 2+2?").install()
    assert fresh.shell.magics_manager.magics["line"] == own


def test_loading_anew_keeps_the_session_and_a_bad_default_the_magics(
    fresh: Cells, engine: LocalEngine
) -> None:
    fresh.ok("load()")
    fresh.ok("%mlx_session new kept")
    fresh.ok("load()")
    assert fresh.ok("%mlx_session").stdout.startswith("kept: ")
    fresh.shell.config.MlxMagics.temp = "hot"
    assert fresh.run("load()").error is not None
    assert "Current" in fresh.ok("%config MlxMagics").stdout
