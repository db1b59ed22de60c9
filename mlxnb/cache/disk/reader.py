"""What any thread reads from the files."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TypeVar

from mlxnb.cache.disk import rows, shard
from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.pause import Pause
from mlxnb.cache.disk.rows import Row
from mlxnb.errors import StorageTimeout
from mlxnb.records.database import Database

log = logging.getLogger(__name__)

T = TypeVar("T")


class Reader:
    """Reads the index and the shards, and never raises.

    Parameters
    ----------
    database
        The index, by a connection of its own: the writer's transactions are not waited for.
    pause
        Is told of an index that cannot be read.
    """

    def __init__(self, database: Database, pause: Pause) -> None:
        self._database, self._pause = database, pause
        self._folder = database.path.parent
        self._closed = False

    @property
    def there(self) -> bool:
        """Whether there is an index."""
        return os.path.exists(self._database.path)  # where Path's own method may raise

    def ask(self, work: rows.Work[T], default: T) -> T:
        """What the index answers; the default where there is none, or it cannot be read."""
        try:
            return self._database.read(work) if self.there and not self._closed else default
        except StorageTimeout:
            return default
        except Exception as error:
            self._pause.begin(error)
            return default

    def get(self, namespace: str, ids: Sequence[str]) -> tuple[dict[str, Entry], list[Row]]:
        """The entries that are sound, by their ids, and the rows of those that are not."""
        found: dict[str, Entry] = {}
        seen: dict[str, Row] = {}
        try:
            for _ in range(2):  # what another process merges meanwhile lies elsewhere then
                left = [name for name in ids if name not in found]
                asked = self._find(namespace, left)
                changed = [row for name, row in asked.items() if seen.get(name) != row]
                found |= shard.read(self._folder, changed)
                seen = asked
                if len(found) == len(ids):
                    break
        except OSError as error:
            log.debug("the disk cache %s was not read: %s", self._folder, error.strerror)
            return found, []
        return found, [row for name, row in seen.items() if name not in found]

    def _find(self, namespace: str, ids: Sequence[str]) -> dict[str, Row]:
        nothing: dict[str, Row] = {}
        return self.ask(lambda connection: rows.find(connection, namespace, ids), nothing)

    def close(self) -> None:
        """Close the index; from now on there is nothing in it."""
        self._closed = True
        self._database.close()
