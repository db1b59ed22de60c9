"""The cache folder goes, or cannot be written, while an engine uses it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mlxnb.sessions.local import LocalEngine


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test alone."""
    made = tmp_path / "cache"
    monkeypatch.setenv("MLXNB_CACHE", str(made))
    return made


def notes(folder: Path) -> list[Path]:
    return list((folder / "probes").glob("*.json"))


def test_a_folder_that_was_deleted_is_made_again(
    folder: Path, engine: LocalEngine, tiny_folder: Path
) -> None:
    name = engine.load(tiny_folder, progress=False).name
    assert len(notes(folder)) == 1
    session = engine.session(name, max_tokens=2, temperature=0.0)
    session.send("hi")
    shutil.rmtree(folder)
    assert session.send("and?").cached_tokens > 0
    engine.unload(name)
    engine.load(tiny_folder, progress=False)
    assert len(notes(folder)) == 1
    assert session.send("so?").output_tokens == 2


@pytest.mark.parametrize("place", ["", "probes"])
def test_a_folder_that_cannot_be_written_costs_the_notes(
    folder: Path, engine: LocalEngine, tiny_folder: Path, place: str
) -> None:
    """A file stands where a folder should be, as root may write anywhere."""
    name = engine.load(tiny_folder, progress=False).name
    session = engine.session(name, max_tokens=2, temperature=0.0)
    first = session.send("hi")
    shutil.rmtree(folder)
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_text("")
    engine.unload(name)
    assert engine.load(tiny_folder, progress=False).batchable
    again = engine.session(name, max_tokens=2, temperature=0.0).send("hi")
    assert again.tokens == first.tokens
    assert len(engine.models()) >= 1


def test_notes_that_are_damaged_are_written_anew(
    folder: Path, engine: LocalEngine, tiny_folder: Path
) -> None:
    name = engine.load(tiny_folder, progress=False).name
    (note,) = notes(folder)
    whole = note.read_text()
    engine.unload(name)
    note.write_bytes(b"\xff\xfe{")
    assert engine.load(tiny_folder, progress=False).batchable
    assert note.read_text() == whole
