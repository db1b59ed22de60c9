"""docs/why-missed.md: its code is run from the first line to the last, and does what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from models.tiny import byte_level, config_of, save_folder
from scripted import load_scripted, scripted_folder

import mlxnb
from mlxnb.notebook.serving import serve
from mlxnb.records.diagnosis import REASONS
from mlxnb.sessions.local import LocalEngine

PAGE = (Path(__file__).parents[2] / "docs" / "why-missed.md").read_text("utf-8")
PARTS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
CODE = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
WINDOW = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}


def models(engine: LocalEngine, folder: Path) -> dict[str, str]:
    """The models that the page calls by these names."""
    vocabulary = byte_level("smollm")
    size = vocabulary.get_vocab_size()
    made = {"OTHER": config_of("llama", size), "WINDOWED": config_of("llama", size, **WINDOW)}
    found = {
        name: engine.load(save_folder(folder / name, config, vocabulary), progress=False).name
        for name, config in made.items()
    }
    answers = ["<think>well, let me see about that</think>one", "two"]
    found["THINKER"] = load_scripted(engine, scripted_folder(folder / "thinker", answers))
    return found


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The row of the last turn of each part of the page."""
    engine = LocalEngine(budget=2**30)
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlxnb, "process_engine", lambda: engine)
        patch.setenv("MLXNB_STATE", str(folder / "state"))
        names: dict[str, Any] = {}
        exec(CODE.findall(PAGE)[0], names)
        _, served = serve(engine, 0)
        names |= {"served": served, **models(engine, folder)}
        found = {}
        for part, text in PARTS.items():
            exec(CODE.findall(text)[0], names)
            found[part.strip("`")] = engine.turns().iloc[-1]
        names["client"].close()
        yield found
        engine.served.stop()
    engine.close()


def test_every_reason_has_its_part() -> None:
    assert [part.strip("`") for part in PARTS][:-1] == sorted(
        REASONS, key=lambda reason: PAGE.index(f"## `{reason}`")
    )
    assert list(PARTS)[-1] == "No reason"


@pytest.mark.parametrize("reason", REASONS)
def test_the_code_makes_it_happen(rows: dict[str, Any], reason: str) -> None:
    assert rows[reason]["miss_reason"] == reason


def test_a_session_that_goes_on_misses_nothing(rows: dict[str, Any]) -> None:
    assert pd.isna(rows["No reason"]["miss_reason"])


@pytest.mark.parametrize("part", [part for part, text in PARTS.items() if "| cache |" in text])
def test_the_row_is_as_the_page_shows_it(rows: dict[str, Any], part: str) -> None:
    *_, names, _, cells = re.findall(r"^\| (.+) \|$", PARTS[part], re.M)
    row = rows[part.strip("`")]
    shown = ["NA" if pd.isna(row[name]) else str(row[name]) for name in names.split(" | ")]
    assert shown == cells.split(" | ")


@pytest.mark.parametrize("reason", ["system_volatile", "tools_changed", "not_rewindable"])
def test_what_was_the_same_again_was_computed_again(rows: dict[str, Any], reason: str) -> None:
    assert rows[reason]["prefill_tokens"] > 30
