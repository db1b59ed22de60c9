"""A shard: an immutable safetensors file, one tensor of bytes an entry, under a name of its own."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from uuid import uuid4

import numpy as np
from safetensors.numpy import save_file

from mlxnb.cache.disk.entry import Entry, checksum
from mlxnb.cache.disk.rows import Row

VERSION = "1"
"""Of what a shard's tensors hold, in its metadata."""
SUFFIX = ".safetensors"
LEFT_BEHIND = (f"*{SUFFIX}", "*.partial", ".tmp*", "*.damaged-*")
"""Files that may be there for nothing: shards, what was being written, and indices put aside."""
_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors that say nothing of the file."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A file that has been written, with the rows of what is in it.

    Attributes
    ----------
    size
        Bytes of the file.
    """

    name: str
    namespace: str
    size: int
    rows: list[Row]

    @property
    def payload(self) -> int:
        """Bytes of the entries' data."""
        return sum(row.length for row in self.rows)


def path_of(folder: Path, name: str) -> Path:
    """The file of a shard; in the folder, whatever the name."""
    return folder / f"{Path(name).name}{SUFFIX}"


def write(folder: Path, namespace: str, entries: Sequence[Entry]) -> Shard:
    """Write a shard; it is there as a whole, or not at all.

    Raises
    ------
    OSError, SafetensorError
        It cannot be written.
    """
    name = uuid4().hex
    partial = folder / f"{name}.partial"
    tensors = {entry.id: np.frombuffer(entry.data, np.uint8) for entry in entries}
    try:
        save_file(tensors, partial, {"version": VERSION, "namespace": namespace})
        _sync(partial)
        places, size = read_places(partial), partial.stat().st_size
        partial.rename(path_of(folder, name))
        _sync(folder)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    rows = [Row.of(entry, name, places[entry.id]) for entry in entries]
    return Shard(name, namespace, size, rows)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def read_places(path: Path) -> dict[str, int]:
    """Where in the file the bytes of each entry begin.

    Raises
    ------
    OSError, ValueError
        There is no such file, or it is no shard.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return {name: 8 + length + tensor["data_offsets"][0] for name, tensor in header.items()}


def read(folder: Path, rows: Iterable[Row]) -> dict[str, Entry]:
    """The entries of these rows by id, without those that are damaged or gone.

    Raises
    ------
    OSError
        It could not be seen whether they are.
    """
    place = attrgetter("shard", "place")
    found: dict[str, Entry] = {}
    for name, group in groupby(sorted(rows, key=place), key=attrgetter("shard")):
        found.update((entry.id, entry) for entry in _sound(path_of(folder, name), group))
    return found


def _sound(path: Path, rows: Iterable[Row]) -> Iterator[Entry]:
    """Those that are in the file as they were written."""
    try:
        # A pipe of that name is not waited for.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        _raise_passing(error)
        return
    try:
        for row in rows:
            data = _read(file, row)
            if data is not None and checksum(row.tokens, data) == row.checksum:
                yield row.entry(data)
    finally:
        os.close(file)


def _read(file: int, row: Row) -> bytes | None:
    try:
        return os.pread(file, row.length, row.place)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        _raise_passing(error)
        return None


def _raise_passing(error: Exception) -> None:
    if isinstance(error, OSError) and error.errno in _PASSING:
        raise error


def remove(folder: Path, names: Iterable[str]) -> None:
    """Delete the files of shards; one that is gone or no file is let be."""
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            path_of(folder, name).unlink()
