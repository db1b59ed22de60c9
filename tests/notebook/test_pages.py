"""The README's and the tour's first examples, and a notebook beside others, on the demo model."""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import mlxnb
from mlxnb.notebook.magics import register
from mlxnb.sessions.local import LocalEngine

from .cells import Cells

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


@pytest.fixture(scope="module")
def demo() -> Iterator[LocalEngine]:
    made = LocalEngine(budget=256 * 2**20)
    made.load("demo", progress=False)
    yield made
    made.close()


@pytest.fixture
def cells(
    bare_shell: InteractiveShell, demo: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> Cells:
    """A notebook whose user says yes to every call."""
    monkeypatch.setattr(mlxnb, "process_engine", lambda: demo)
    monkeypatch.setattr(builtins, "input", lambda prompt="": "y")
    register(bare_shell, lambda: demo, lambda other: other or demo)
    made = Cells(bare_shell)
    made.ok("%config MlxMagics.format = 'text'")
    return made


def blocks(page: str, heading: str = "") -> list[str]:
    """The Python of a page, below a heading that begins so."""
    text = (ROOT / page).read_text("utf-8")
    found: list[str] = CODE.findall(text.partition(heading)[2] if heading else text)
    return found


def test_the_tour_s_column_has_one_of_the_words(cells: Cells) -> None:
    for block in blocks("docs/tour.md", "## 4.")[:2]:
        cells.ok(block)
    assert set(cells["verdicts"]["verdict"]) <= {"good", "bad", "mixed"}
    assert cells["verdicts"].notna().all(axis=None) and len(cells["verdicts"]) == 3


def test_the_tour_s_function_is_called(cells: Cells) -> None:
    cells.ok("%mlx_session new tour")
    shown = cells.ok(blocks("docs/tour.md", "## 5.")[0]).stdout
    assert shown.count("[call population") == 1
    assert "[result of population: 2750000]" in shown


def test_the_readme_s_function_is_called(cells: Cells, demo: LocalEngine) -> None:
    cells["chat"] = demo.session(system="Answer in one sentence.")
    (block,) = (block for block in blocks("README.md") if "@chat.tool" in block)
    said = cells.ok(block).stdout
    calls = cells["chat"].calls()
    assert (calls["name"].tolist(), calls["error"].isna().all()) == (["weather"], True)
    assert said == cells["turn"].text + "\n" != "\n"


def test_the_notebook_on_the_inspector_leaves_what_others_have(
    cells: Cells, demo: LocalEngine
) -> None:
    demo.session(name="another").send("Hello there, this is another notebook.", max_tokens=2)
    here = demo.prefix_cache()
    demo.pin(here["block_id"].iloc[-1])
    notebook = json.loads((ROOT / "notebooks" / "05-inspect.ipynb").read_text("utf-8"))
    sources = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    for source in sources[1:]:
        if "NBVAL_IGNORE_OUTPUT" not in source and "inspect(" not in source:
            cells.ok(source)
    assert set(here["block_id"]) <= set(demo.prefix_cache()["block_id"])
    last = cells["turns"].iloc[-1]
    assert (last["session"], last["cached_tokens"]) == ("cleo", 0)
    assert last["miss_reason"] == "evicted"
