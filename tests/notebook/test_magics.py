"""The magics beside `%mlx_chat`: what they do, print, return and store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from scripted import load_scripted, scripted_folder

from mlxnb.errors import RequestFailed
from mlxnb.models.info import ModelInfo
from mlxnb.notebook.commands import COMMANDS, VERBS
from mlxnb.notebook.magics import register
from mlxnb.records.explain import Explanation
from mlxnb.records.frames import BLOCKS, MODELS, SESSIONS, TURNS
from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.local_session import LocalSession
from mlxnb.sessions.session import Session

from .cells import Cells

# --- every magic ------------------------------------------------------------------------------


def test_all_are_there(cells: Cells) -> None:
    magics = cells.shell.magics_manager.magics
    ours = {name for name in magics["line"] if name.startswith("mlx_")}
    assert ours == set(COMMANDS)
    cells_too = {name for name in magics["cell"] if name.startswith("mlx_")}
    assert cells_too == {"mlx_chat", "mlx_map", "mlx_compare"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_every_option_and_argument(cells: Cells, name: str) -> None:
    shown = cells.shell.object_inspect_mime(f"%{name}", detail_level=0)["text/plain"]
    command = COMMANDS[name]
    parts = [command.usage, command.summary, command.notes.partition("\n")[0]]
    parts += [", ".join(option.names) for option in command.options]
    parts += [argument.help for argument in command.arguments]
    assert [part for part in parts if part not in shown] == []


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_sessions_names_every_verb(cells: Cells, verb: str) -> None:
    shown = cells.shell.object_inspect_mime("%mlx_session", detail_level=0)["text/plain"]
    assert VERBS[verb].usage in shown and VERBS[verb].summary in shown


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"mlx_chat", "mlx_session"}))
def test_an_unknown_option_is_one_line(cells: Cells, name: str) -> None:
    assert f"%{name}: no option --nosuch" in cells.run(f"%{name} --nosuch").mistake


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        ("mlx_turns", TURNS),
        ("mlx_prefix", BLOCKS),
        ("mlx_sessions", SESSIONS),
        ("mlx_models", MODELS),
    ],
)
def test_frames_are_shown_or_stored(cells: Cells, line: str, columns: dict[str, str]) -> None:
    cells.ok("%mlx_chat hello")
    frame = cells.ok(f"%{line}").value
    assert isinstance(frame, pd.DataFrame) and list(frame) == list(columns) and len(frame)
    ran = cells.ok(f"%{line} -o kept")
    assert ran.value is None and ran.stdout == ""
    assert list(cells["kept"]) == list(columns)
    cells.ok(f"also = %{line}")
    assert list(cells["also"]) == list(columns)


@pytest.mark.parametrize("line", ["mlx_turns -o 1x", "mlx_session new -o 1x", "mlx_explain -o 1x"])
def test_a_result_is_stored_under_a_variable_s_name_only(cells: Cells, line: str) -> None:
    cells.ok("%mlx_chat hello")
    assert "'1x' is not a name" in cells.run(f"%{line}").mistake


# --- models -----------------------------------------------------------------------------------


@pytest.fixture
def own(bare_shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cells:
    """Cells on an engine of their own, with nothing loaded."""
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
    engine = LocalEngine(budget=64 * 2**20)
    register(bare_shell, lambda: engine, lambda other: other or engine)
    bare_shell.user_ns["engine"] = engine
    monkeypatch.setattr(bare_shell, "reset", engine.close, raising=False)
    return Cells(bare_shell)


def test_load_and_unload(own: Cells, folder: Path, tmp_path: Path) -> None:
    spaced = tmp_path / "with space"
    spaced.symlink_to(folder)
    own["spaced"] = spaced
    try:
        ran = own.ok("%mlx_load '{spaced}' --no-progress -o info")
        assert ran.stdout == f"{spaced}: llama, 0.1M parameters, context 100,000\n"
        assert ran.stderr == ""
        assert isinstance(own["info"], ModelInfo) and own["info"].loaded
        own.ok("%mlx_chat --max-tokens 1 hello")
        assert own.ok("%mlx_unload '{spaced}'").stdout == f"{spaced}: unloaded\n"
        assert "%mlx_load" in own.run("%mlx_chat --max-tokens 1 again").mistake
        assert "is loaded" in own.run("%mlx_unload '{spaced}'").mistake
    finally:
        own["engine"].close()


def test_progress_is_shown_unless_switched_off(own: Cells, folder: Path) -> None:
    try:
        assert "loading" in own.ok(f"%mlx_load {folder}").stderr
        own.ok(f"%mlx_unload {folder}")
        own.ok("%config MlxMagics.progress = False")
        assert own.ok(f"%mlx_load {folder}").stderr == ""
    finally:
        own["engine"].close()


def test_an_unknown_model_is_one_line(cells: Cells) -> None:
    assert "no model 'nosuch'" in cells.run("%mlx_load nosuch --no-progress").mistake


def test_an_adapter_that_is_not_there_is_one_line(cells: Cells, folder: Path) -> None:
    assert "nowhere" in cells.run(f"%mlx_load {folder} --adapter /nowhere").mistake


# --- sessions ---------------------------------------------------------------------------------


def test_new_makes_the_current_session(cells: Cells, folder: Path) -> None:
    ran = cells.ok("%mlx_session new mine --system 'Be {brief}.' -o session")
    assert ran.stdout == f"mine: 0 turns, on {folder}\n"
    cells.ok("%mlx_chat hello")
    session = cells["session"]
    assert isinstance(session, Session)
    assert (session.turns, session.options.system) == (1, "Be {brief}.")


def test_new_takes_the_sessions_options(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_session new a --history template --no-reuse --salt s")
    options = engine.find_session("a").options
    assert (options.history, options.reuse, options.cache_salt) == ("template", False, "s")


def test_use_chooses_the_current_session(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_session new a\n%mlx_session new b\n%mlx_session use a\n%mlx_chat hello")
    assert (engine.find_session("a").turns, engine.find_session("b").turns) == (1, 0)


def test_fork_goes_on_from_the_same_past(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_session new a\n%mlx_chat one")
    ran = cells.ok("%mlx_session fork b\n%mlx_chat two")
    assert ran.stdout.startswith("b: forked from a after 1 turn\n")
    assert (engine.find_session("a").turns, engine.find_session("b").turns) == (1, 2)
    assert cells.ok("%mlx_session fork -s a").stdout == "a-fork-1: forked from a after 1 turn\n"


def test_rewind_takes_turns_back(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_session new a\n%mlx_chat one\n%mlx_chat two\n%mlx_chat three")
    assert cells.ok("%mlx_session rewind").stdout == "a: 2 turns left\n"
    assert cells.ok("%mlx_session rewind 2 -s a").stdout == "a: 0 turns left\n"
    assert "cannot be taken back" in cells.run("%mlx_session rewind").mistake
    assert "number of turns" in cells.run("%mlx_session rewind all").mistake


def test_reset_keeps_the_system_text(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_session new a --system 'Be brief.'\n%mlx_chat one")
    assert cells.ok("%mlx_session reset").stdout == "a: reset\n"
    assert engine.find_session("a").history == [{"role": "system", "content": "Be brief."}]


def test_an_empty_system_text_is_one(cells: Cells, engine: LocalEngine) -> None:
    cells.ok('%mlx_session new a --system ""')
    assert engine.find_session("a").history == [{"role": "system", "content": ""}]


def test_rm_removes_a_session(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_session new a")
    assert cells.ok("%mlx_session rm a").stdout == "a: removed\n"
    assert len(engine.sessions()) == 0
    assert "no session yet" in cells.run("%mlx_session show").mistake
    assert "no session 'a'" in cells.run("%mlx_session rm a").mistake


def test_without_a_current_session_those_that_are_there_are_named(cells: Cells) -> None:
    cells.ok("%mlx_session new a\n%mlx_session new b\n%mlx_session rm b")
    assert cells.run("%mlx_session").mistake.endswith("%mlx_session use NAME takes one of: a")


@pytest.mark.parametrize("line", ["", "show", "show a"])
def test_show_prints_what_was_said(cells: Cells, line: str) -> None:
    cells.ok("%mlx_session new a --system 'Be brief.'\n%mlx_chat -o turn one")
    lines = cells.ok(f"%mlx_session {line}").stdout.split("\n")
    assert lines[0].startswith("a: 1 turn, on ")
    assert lines[1:3] == ["system: Be brief.", "user: one"]
    assert lines[3].startswith("assistant: ")


def test_show_names_the_tools_that_were_called(
    cells: Cells, engine: LocalEngine, tmp_path: Path
) -> None:
    answer = 'So:<tool_call>\n{"name": "add", "arguments": {"a": "é"}}\n</tool_call>'
    model = load_scripted(engine, scripted_folder(tmp_path / "calls", [answer, "Two."]))
    session = engine.session(model, name="calls", tools=[{"function": {"name": "add"}}])
    (call,) = session.send("1 + 1?").tool_calls
    session.send_tool_result(call.id, 2)
    shown = cells.ok("%mlx_session show calls").stdout.split("\n")
    engine.unload(model)
    assert shown[2:6] == [
        "assistant: So:",
        f'call {call.id}: add {{"a": "é"}}',
        "tool: 2",
        "assistant: Two.",
    ]


def test_a_verb_is_needed_that_there_is(cells: Cells) -> None:
    assert "VERB is one of new, use, fork" in cells.run("%mlx_session frok").mistake


# --- looking ----------------------------------------------------------------------------------


def test_wide_turns_have_more_columns(cells: Cells) -> None:
    frame = cells.ok("%mlx_turns --wide").value
    assert list(frame)[: len(TURNS)] == list(TURNS) and "seed" in frame


def test_explain_takes_an_id_a_variable_or_nothing(cells: Cells) -> None:
    cells.ok("%mlx_chat -o first one\n%mlx_chat -o second two")
    first, second = cells["first"], cells["second"]
    for line, turn in (("", second), ("first", first), (first.id, first), (second.id, second)):
        found = cells.ok(f"%mlx_explain {line}").value
        assert isinstance(found, Explanation) and found.turn_id == turn.id
    cells.ok("%mlx_explain first -o found")
    assert cells["found"].turn_id == first.id
    assert "nosuch" in cells.run("%mlx_explain nosuch").mistake


def test_blocks_are_pinned_and_let_go(cells: Cells) -> None:
    cells.ok("%mlx_chat one")
    block = cells.ok("%mlx_prefix").value["block_id"].iloc[0]
    frame = cells.ok(f"%mlx_prefix --pin {block}").value
    assert frame.set_index("block_id").loc[block, "pinned"]
    frame = cells.ok(f"%mlx_prefix --unpin {block}").value
    assert not frame.set_index("block_id").loc[block, "pinned"]
    assert "nosuch" in cells.run("%mlx_prefix --pin nosuch").mistake


def test_warm_computes_a_file_s_system_text(cells: Cells, tmp_path: Path) -> None:
    text = "Answer like a sailor would, and never about the weather at sea."
    (tmp_path / "system.txt").write_text(text, "utf-8")
    ran = cells.ok(f"%mlx_warm {tmp_path / 'system.txt'} -o warm")
    assert isinstance(cells["warm"], Turn)
    warm = cells["warm"]
    assert ran.stdout == f"warm: {warm.prompt_tokens} tokens, {warm.cached_tokens} were cached\n"
    assert warm.cached_tokens < 20
    cells["text"] = text
    cells.ok("%mlx_chat --system {text} --var text -o turn Hello")
    assert cells["turn"].cached_tokens >= warm.prompt_tokens - 1


def test_warm_computes_a_session_s_history(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_session new a --system 'A text of some length, never seen before.'")
    cells.ok("%mlx_warm a -o warm\n%mlx_chat -o turn Hello")
    assert cells["turn"].cached_tokens >= cells["warm"].prompt_tokens - 1 > 30
    assert list(engine.turns()["source"])[-2:] == ["magic", "magic"]


def test_warm_without_session_and_file_is_one_line(cells: Cells) -> None:
    assert "no session and no readable text file" in cells.run("%mlx_warm nosuch").mistake


# --- faults of the engine ---------------------------------------------------------------------


def test_a_fault_of_the_engine_is_the_cells_error_with_its_traceback(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(session: Session, text: str, **options: object) -> None:
        raise RequestFailed("the tensor is on fire") from RuntimeError("fire")

    monkeypatch.setattr(LocalSession, "reply", fail)
    ran = cells.run("%mlx_chat hello")
    assert type(ran.error) is RequestFailed
    assert "Traceback" in ran.stdout and "fire" in ran.stdout


def test_a_request_that_the_user_made_fail_is_one_line(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxnb.errors import BudgetExceeded

    def fail(session: Session, text: str, **options: object) -> None:
        raise RequestFailed("it does\nnot fit") from BudgetExceeded("it does not fit")

    monkeypatch.setattr(LocalSession, "reply", fail)
    assert cells.run("%mlx_chat hello").mistake == "it does not fit"


# --- the extension ----------------------------------------------------------------------------

RELOAD = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "mlxnb")
heavy = {"mlx", "pandas", "numpy", "transformers", "markdown_it", "nh3"} & set(sys.modules)
shell.run_line_magic("load_ext", "mlxnb")
import mlxnb
before = mlxnb.engine()
shell.run_line_magic("reload_ext", "mlxnb")
print(sorted(heavy), mlxnb.engine() is before)
before.close()
"""


def test_the_extension_is_light_and_reloading_keeps_the_engine(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RELOAD],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=os.environ | {"IPYTHONDIR": str(tmp_path)},
    )
    assert done.stdout.splitlines()[-1] == "[] True"
