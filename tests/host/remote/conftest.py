"""The fixtures of the sessions' suite, with an engine in another place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sessions.conftest import cache_folder, say, tiny, tiny_folder

from .attached import Attached

__all__ = ["cache_folder", "say", "tiny", "tiny_folder"]


@pytest.fixture
def engine(state: Path) -> Iterator[Attached]:
    made = Attached()
    yield made
    made.end()
