"""A model that is on this machine, ready to be loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class ModelSource:
    """An mlx-lm folder and the name that it goes by.

    ``path`` is the folder that is loaded; for ``kind`` gguf it is the import, and the name is
    the file's path. ``adapter`` is a folder of mlx-lm adapters. ``kv_bits``: keys and values are
    kept in so many bits each. ``trust_model_code``: the config may name a Python file that builds
    the model (never set from a user's name alone).
    """

    name: str
    path: Path
    kind: Literal["mlx", "gguf"] = "mlx"
    adapter: Path | None = None
    kv_bits: int | None = None
    trust_model_code: bool = False

    def __str__(self) -> str:
        """One line, for a terminal."""
        return f"{self.name}: {self.path}"
