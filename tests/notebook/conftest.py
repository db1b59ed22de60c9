"""A tiny model that talks on until it is stopped, an engine with it, and a shell on the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from models.tiny import byte_level, config_of, random_model, save_folder
from traitlets.config import Config

from mlxnb.notebook.magics import register
from mlxnb.sessions.local import LocalEngine

from .cells import Cells


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of two layers whose end token is never the likeliest."""
    tokenizer = byte_level("smollm")
    config = config_of("llama", tokenizer.get_vocab_size(), max_position_embeddings=100_000)
    model = random_model(config)
    rows = model.lm_head.weight
    rows[tokenizer.token_to_id("<|im_end|>")] = 0
    model.lm_head.weight = rows
    return save_folder(tmp_path_factory.mktemp("models") / "tiny", config, tokenizer, model)


@pytest.fixture(scope="session")
def the_engine(folder: Path) -> Iterator[LocalEngine]:
    engine = LocalEngine(budget=256 * 2**20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXNB_CACHE", str(folder.parent / "cache"))
        engine.load(folder, progress=False)
    yield engine
    engine.close()


@pytest.fixture
def engine(the_engine: LocalEngine) -> Iterator[LocalEngine]:
    """The engine, without sessions afterwards."""
    yield the_engine
    for name in the_engine.sessions()["name"]:
        the_engine.remove_session(name)


@pytest.fixture
def bare_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A shell of its own for each test, without history and without the magics."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def cells(bare_shell: InteractiveShell, engine: LocalEngine) -> Cells:
    register(bare_shell, lambda: engine, lambda other: other or engine)
    bare_shell.run_line_magic("config", "MlxMagics.max_tokens = 4")
    return Cells(bare_shell)
