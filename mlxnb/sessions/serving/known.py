"""What is known of models that are not loaded: their texts, kept until a file of theirs changes."""

from __future__ import annotations

import threading

from mlxnb.models.source import ModelSource
from mlxnb.sessions.texts import Texts

Stamp = tuple[tuple[str, int, int], ...]
"""Names, sizes and times of change of a folder's files."""


class Known:
    """Texts of models by their sources. Any thread may ask; one reads a model at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[ModelSource, tuple[Stamp, Texts]] = {}

    def texts(self, source: ModelSource) -> Texts:
        """The model's texts; no weights are read.

        Raises
        ------
        ModelBroken
            Its files cannot be read.
        """
        with self._lock:
            stamp = _stamp(source)
            kept = self._texts.get(source)
            if kept is None or kept[0] != stamp:
                kept = self._texts[source] = (stamp, Texts.of_source(source))
            return kept[1]


def _stamp(source: ModelSource) -> Stamp:
    folders = [source.path, *([source.adapter] if source.adapter is not None else [])]
    found = []
    for folder in folders:
        for file in sorted(folder.iterdir()):
            status = file.stat()
            found.append((str(file), status.st_size, status.st_mtime_ns))
    return tuple(found)
