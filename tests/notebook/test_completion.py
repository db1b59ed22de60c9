"""What completes on the magics' lines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlxnb.notebook.commands import CHAT, COMMANDS, VERBS
from mlxnb.notebook.completion import Completion
from mlxnb.sessions.local import LocalEngine

from .cells import Cells


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"mlx_session"}))
def test_every_option_completes(cells: Cells, name: str) -> None:
    assert cells.complete(f"%{name} --") == [o.names[-1] for o in COMMANDS[name].options]


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_a_verb_completes(cells: Cells, verb: str) -> None:
    expected = [option.names[-1] for option in VERBS[verb].options]
    assert cells.complete(f"%mlx_session {verb} --") == expected


def test_verbs_complete(cells: Cells) -> None:
    assert cells.complete("%mlx_session ") == list(VERBS)
    assert cells.complete("%mlx_session re") == ["rewind", "reset", "restore"]


def test_a_given_option_is_not_offered_again_unless_it_repeats(cells: Cells) -> None:
    offered = cells.complete("%mlx_chat -t 1 --stop x --")
    assert "--temp" not in offered and "--stop" in offered
    assert len(offered) == len(CHAT.options) - 1


def test_the_first_line_of_a_cell_completes(cells: Cells) -> None:
    assert cells.complete("%%mlx_chat --te") == ["--temp"]


def test_an_assigned_magic_completes(cells: Cells) -> None:
    assert cells.complete("x = %mlx_turns --w") == ["--wide"]


def test_choices_complete(cells: Cells) -> None:
    assert cells.complete("%mlx_chat -f ") == ["markdown", "text", "code"]
    assert cells.complete("%mlx_chat --format te") == ["text"]
    assert cells.complete("%mlx_session new --history ") == ["exact", "template"]


def test_names_of_sessions_complete(cells: Cells) -> None:
    cells.ok("%mlx_session new paris\n%mlx_session new prague\n%mlx_session new rome")
    assert cells.complete("%mlx_chat -s p") == ["paris", "prague"]
    assert cells.complete("%mlx_session use ") == ["paris", "prague", "rome"]
    assert cells.complete("%mlx_session rm ro") == ["rome"]
    assert cells.complete("%mlx_session fork -s ro") == ["rome"]
    assert cells.complete("%mlx_warm ro") == ["rome"]


def test_names_of_models_complete(cells: Cells, folder: Path) -> None:
    assert cells.complete("%mlx_unload ") == [str(folder)]
    assert cells.complete(f"%mlx_chat -m {str(folder)[:-2]}") == [str(folder)]
    assert "demo" in cells.complete("%mlx_load de")


def test_a_prompt_is_not_completed_by_ours(cells: Cells) -> None:
    cells.ok("%mlx_session new paris")
    assert "paris" not in cells.complete("%mlx_chat Where is p")


def test_completing_makes_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> LocalEngine:
        raise AssertionError("an engine was made")

    monkeypatch.delitem(sys.modules, "mlxnb.sessions.local")
    assert Completion(never).candidates("%mlx_chat -s ") == ("", [])


def test_other_lines_are_left_to_others(cells: Cells) -> None:
    cells["some_long_name"] = 1
    assert cells.complete("print(some_l") == ["some_long_name"]
    assert cells.complete("%mlx_tur") == ["%mlx_turns"]
