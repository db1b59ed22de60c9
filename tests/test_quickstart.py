"""`mlxnb demo`: a notebook's cells in a fresh kernel, their output, and the engine's frames."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mlxnb import quickstart
from mlxnb.quickstart import NotebookFailed, Screen


def notebook(folder: Path, *sources: str) -> Path:
    path = folder / "some.ipynb"
    cells = [new_markdown_cell("# not run"), *map(new_code_cell, sources)]
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_prints_sources_outputs_and_both_frames(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quickstart.run(notebook(tmp_path, "x = 6\nprint('first')", "x * 7"))
    printed = capsys.readouterr().out
    assert printed.startswith(">>>  x = 6\n...  print('first')\nfirst\n\n>>>  x * 7\n42\n")
    assert "not run" not in printed
    for column in ("turn_id", "cached_tokens", "prefill_tokens", "diverged_at", "block_id"):
        assert column in printed


def test_the_kernel_is_this_interpreter_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    source = "import os, sys; print(sys.prefix, os.getcwd(), os.environ['IPYTHONDIR'], sep='\\n')"
    with pytest.raises(NotebookFailed):
        quickstart.run(notebook(tmp_path, source, "1 / 0"))
    prefix, folder, profile = capsys.readouterr().out.split("\n")[1:4]
    assert prefix == sys.prefix
    assert not Path(folder).exists() and not Path(profile).exists()
    assert list(home.iterdir()) == []


def test_an_error_in_a_cell_is_one_line_that_names_the_cell(tmp_path: Path) -> None:
    with pytest.raises(NotebookFailed, match=r"^cell 3: ValueError: two$"):
        quickstart.run(notebook(tmp_path, "1", "raise ValueError('two\\nlines')", "3"))


def test_a_usage_error_of_a_magic_is_noticed(tmp_path: Path) -> None:
    source = "from IPython.core.error import UsageError\nraise UsageError('no such thing')"
    with pytest.raises(NotebookFailed, match=r"^cell 2: UsageError: no such thing$"):
        quickstart.run(notebook(tmp_path, source))


def test_a_dead_kernel_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(NotebookFailed, match=r"^cell 2: the kernel died$"):
        quickstart.run(notebook(tmp_path, "import os; os._exit(3)"))


def test_a_display_is_printed_once_as_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    for text in ("a", "a b", "a b c"):
        content = {"data": {"text/plain": text}, "transient": {"display_id": "1"}}
        screen.show("update_display_data", content)
    screen.show("stream", {"name": "stdout", "text": "at once\n"})
    screen.finish()
    assert capsys.readouterr().out == "at once\na b c\n\n"
