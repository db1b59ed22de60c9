"""The disk tier: what a prefix cache keeps beyond its process and its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from mlxnb.cache.disk.backlog import Act, Backlog
from mlxnb.cache.disk.chores import Chores
from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.keeper import Keeper, default_quota
from mlxnb.cache.disk.known import Known
from mlxnb.cache.disk.limits import Limits
from mlxnb.cache.disk.pause import Pause
from mlxnb.cache.disk.reader import Reader
from mlxnb.cache.disk.removal import Remover
from mlxnb.cache.disk.rewriting import Rewriter
from mlxnb.cache.disk.schema import MIGRATIONS
from mlxnb.cache.disk.unsaved import Unsaved
from mlxnb.cache.disk.writer import Writer
from mlxnb.records.database import Database

INDEX = "index.sqlite"
FEATURE = "the disk cache"


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry on disk, for a frame; ``last_used`` in seconds since the epoch."""

    id: str
    parent: str | None
    kind: str
    start: int
    end: int
    nbytes: int
    last_used: float


class DiskTier:
    """Entries in a folder that this user's processes share, written behind by a thread.

    Any thread may call, and nothing raises: what cannot be read is a miss, and what cannot be
    written is dropped. A namespace keeps apart what must not meet; its ids are found in it alone.

    Parameters
    ----------
    folder
        Made for this user alone when something is written.
    quota
        Bytes that the shards may take; None: a tenth of the disk, at most 50 GB.
    limits
        How much is taken on, and when what is done.
    clock
        Seconds that only go forward, for the time after a fault.

    Attributes
    ----------
    quota
        Bytes that the shards may take.
    """

    def __init__(
        self,
        folder: Path,
        quota: int | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.quota = default_quota(folder) if quota is None else quota
        limits = limits or Limits()
        limits, index = replace(limits, batch=min(limits.batch, self.quota // 8)), folder / INDEX
        self._pause = Pause(folder, limits.off_s, clock)
        self._unsaved = Unsaved()
        self._notes: dict[str, float] = {}
        self._backlog = Backlog(limits, self._pause)
        self._reader = Reader(Database(index, MIGRATIONS, FEATURE), self._pause)
        self._known = Known(self._reader, limits.poll_s)
        files = Database(index, MIGRATIONS, FEATURE)
        rewriter = Rewriter(files, limits.batch)
        self._keeper = Keeper(files, rewriter, self._unsaved, self.quota, limits.batch)
        self._remover = Remover(files, rewriter)
        self._writer = Writer(
            files,
            self._backlog,
            self._keeper,
            Chores(self._keeper, self._remover, rewriter, self._pause, limits),
            self._known,
            self._pause,
            limits.close_s,
        )

    # --- entries ------------------------------------------------------------------------------

    def has(self, namespace: str, ids: Iterable[str]) -> int:
        """How many of the leading ids are there.

        Looked up in memory; the first call for a namespace reads its ids from disk.
        """
        return self._backlog.leading(namespace, ids, self._known.ids(namespace))

    def put(self, namespace: str, entries: Iterable[Entry]) -> int:
        """Have entries written that are not there yet; how many were taken.

        Never waits for the disk: what would make more than ``limits.backlog`` bytes wait is
        dropped, and everything is for a while after a fault.
        """
        taken = self._backlog.put(namespace, entries, self._known.ids(namespace))
        if taken:
            self._writer.wake()
        return taken

    def get(self, namespace: str, ids: Sequence[str]) -> list[Entry]:
        """Read the leading ids that are there and sound.

        One that is damaged or gone is taken out of the index, and the list ends before it.
        """
        leading = ids[: self.has(namespace, ids)]
        found = self._backlog.pending(namespace, leading)
        read, lost = self._reader.get(namespace, [name for name in leading if name not in found])
        if lost:
            drop = partial(self._remover.drop, namespace, lost)
            self._act(Act(drop, namespace, tuple(row.id for row in lost)))
        found |= read
        whole = list(takewhile(found.__contains__, leading))
        if whole:
            self._unsaved.use(namespace, whole)
            self._writer.wake()
        return [found[name] for name in whole]

    def forget(self, namespace: str, ids: Sequence[str]) -> None:
        """Delete entries of a chain for good, their bytes too.

        From the last one backwards, up to one that another entry has as its parent. It is done
        behind; until then none of them is there.
        """
        if ids:
            chain = tuple(ids)
            self._act(Act(partial(self._remover.forget, namespace, chain), namespace, chain))

    def clear(self, namespace: str | None = None) -> None:
        """Delete everything of a namespace, or everything; done behind, and gone at once."""
        self._act(Act(partial(self._remover.clear, namespace), namespace, None))

    # --- the writing --------------------------------------------------------------------------

    def flush(self, timeout: float) -> bool:
        """Wait until all that was asked for is done to the files; False: it is not yet."""
        if self._unsaved:
            self._act(Act(self._keeper.save))
        return self._backlog.flush(timeout)

    def close(self) -> None:
        """Write what waits, for ``limits.close_s`` at most; from then on nothing is there."""
        if self._unsaved:
            self._act(Act(self._keeper.save))
        self._writer.close()
        self._reader.close()

    def _act(self, act: Act) -> None:
        self._backlog.act(act)
        self._writer.wake()

    # --- notes --------------------------------------------------------------------------------

    def note(self, key: str, value: float) -> None:
        """Keep a measured number beyond this process."""
        self._notes[key] = value
        self._unsaved.note(key, value)
        self._writer.wake()

    def noted(self, key: str) -> float | None:
        """A number that was kept; None: there is none."""
        if key not in self._notes:
            query = "SELECT value FROM notes WHERE key = ?"
            found = self._reader.ask(lambda c: c.execute(query, (key,)).fetchone(), None)
            if found is None:
                return None
            self._notes[key] = float(found[0])
        return self._notes[key]

    # --- what there is ------------------------------------------------------------------------

    def entries(self, namespace: str) -> list[Stored]:
        """What is on disk of a namespace, in the order it was written."""
        query = (
            "SELECT id, parent, kind, start, stop, length, last_used FROM entries"
            " WHERE namespace = ? ORDER BY start, added"
        )
        nothing: list[tuple[Any, ...]] = []
        found = self._reader.ask(lambda c: c.execute(query, (namespace,)).fetchall(), nothing)
        return [Stored(*values) for values in found]

    @property
    def nbytes(self) -> int:
        """Bytes of all shards."""
        return self._total("SELECT coalesce(sum(size), 0) FROM shards")

    @property
    def count(self) -> int:
        """Entries in all shards."""
        return self._total("SELECT count(*) FROM entries")

    def _total(self, query: str) -> int:
        return int(self._reader.ask(lambda c: c.execute(query).fetchone()[0], 0))

    @property
    def dropped(self) -> int:
        """Entries that were not taken for want of room, or that a fault has cost."""
        return self._backlog.dropped

    @property
    def state(self) -> str:
        """``ok``, or ``off:`` and why nothing is written."""
        return self._pause.state
