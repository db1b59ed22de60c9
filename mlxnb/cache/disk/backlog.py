"""What waits to be done to the files, in order, and how it looks as if it were done already."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace

from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.limits import Limits
from mlxnb.cache.disk.pause import Pause


@dataclass(frozen=True, slots=True, eq=False)
class Put:
    """An entry to be written."""

    namespace: str
    entry: Entry
    since: float


@dataclass(frozen=True, slots=True, eq=False)
class Act:
    """Something else to be done.

    Until it is done, ``ids`` are not there for anybody unless they are put again; with None
    nothing of the namespace is, and without a namespace nothing at all.
    """

    run: Callable[[], None]
    namespace: str | None = None
    ids: tuple[str, ...] | None = ()


Item = Put | Act


class Backlog:
    """A queue. Any thread adds to it and looks at it, one takes.

    Attributes
    ----------
    dropped
        Entries that there was no room for, or that a fault has cost.
    """

    def __init__(self, limits: Limits, pause: Pause) -> None:
        self.dropped = 0
        self._limits, self._pause = limits, pause
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._pending: dict[str, dict[str, Entry]] = {}
        self._hidden: dict[str | None, Counter[str | None]] = {}
        self._bytes = 0
        self._added = self._settled = self._hurry = 0
        self._closed = False

    # --- any thread ---------------------------------------------------------------------------

    def put(self, namespace: str, entries: Iterable[Entry], known: Container[str]) -> int:
        """Take entries that are not there, as far as there is room; how many."""
        taken = 0
        with self._changed:
            for entry in entries:
                if self.leading(namespace, [entry.id], known):
                    continue
                packed = self._packed(entry)
                if packed is None:
                    self.dropped += 1
                    continue
                self._pending.setdefault(namespace, {})[entry.id] = packed
                self._bytes += packed.nbytes
                self._add(Put(namespace, packed, time.monotonic()))
                taken += 1
        return taken

    def _packed(self, entry: Entry) -> Entry | None:
        """The entry with its data as plain bytes, uncopied; None: there is no room for it."""
        try:
            packed = replace(entry, data=memoryview(entry.data).cast("B"))
        except (TypeError, ValueError, BufferError):
            return None
        full = self._bytes + packed.nbytes > self._limits.backlog
        return None if full or self._closed or self._pause.active else packed

    def act(self, act: Act) -> None:
        """Do something after all that waits already."""
        with self._changed:
            if not self._closed:
                self._hide(act, 1)
                self._unpend(act)
                self._add(act)

    def _unpend(self, act: Act) -> None:
        """What has been put so far is written, but not there: what is put from now on is."""
        if act.ids is None and act.namespace is None:
            self._pending.clear()
        elif act.namespace is not None:
            pending = self._pending.get(act.namespace, {})
            for name in list(pending) if act.ids is None else act.ids:
                pending.pop(name, None)

    def _add(self, item: Item) -> None:
        self._items.append(item)
        self._added += 1
        self._changed.notify_all()

    def _hide(self, act: Act, count: int) -> None:
        hidden = self._hidden.setdefault(act.namespace, Counter())
        for name in (None,) if act.ids is None else act.ids:
            hidden[name] += count
            if not hidden[name]:
                del hidden[name]

    def leading(self, namespace: str, ids: Iterable[str], known: Container[str]) -> int:
        """How many leading ids are known or wait to be written; takes no lock."""
        pending = self._pending.get(namespace, {})
        hidden = self._hidden.get(namespace, ())
        if self._closed:
            return 0
        if None in hidden or self._hidden.get(None):
            known = ()
        count = 0
        for name in ids:
            # What has been written is known before it stops pending.
            if name not in pending and (name in hidden or name not in known):
                break
            count += 1
        return count

    def pending(self, namespace: str, ids: Iterable[str]) -> dict[str, Entry]:
        """Those of these entries that wait to be written."""
        pending = self._pending.get(namespace, {})
        found = ((name, pending.get(name)) for name in ids)
        return {name: entry for name, entry in found if entry is not None}

    def flush(self, timeout: float) -> bool:
        """Wait until all that was added is done; False: it is not, for now at least."""
        with self._changed:
            target = self._hurry = self._added
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._settled >= target or self._pause.active, timeout=timeout
            )
            return self._settled >= target and not self._pause.active

    def close(self) -> None:
        """Take nothing more; what waits is done once more, even after a fault."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Nothing more is taken."""
        return self._closed

    # --- the thread that does it --------------------------------------------------------------

    def take(self, timeout: float) -> Sequence[Item] | None:
        """What is to be done now: entries together, all else alone.

        Returns
        -------
        Nothing if nothing was to be done for ``timeout`` seconds; None at the end.
        """
        until = time.monotonic() + timeout
        with self._changed:
            while (wait := self._due()) > 0:
                left = until - time.monotonic()
                if self._closed:
                    return None
                if left <= 0:
                    return []
                self._changed.wait(min(wait, left))
            return self._next()

    def _due(self) -> float:
        """Seconds until something is to be done."""
        if not self._items or (self._pause.active and not self._closed):
            return threading.TIMEOUT_MAX
        hurried = self._closed or self._settled < self._hurry
        if hurried or self._bytes >= self._limits.batch:
            return 0
        first = self._items[0]
        if any(isinstance(item, Act) for item in self._items) or not isinstance(first, Put):
            return 0
        return first.since + self._limits.delay_s - time.monotonic()

    def _next(self) -> list[Item]:
        taken: list[Item] = [self._items.popleft()]
        total = 0 if isinstance(taken[0], Act) else taken[0].entry.nbytes
        while self._items and isinstance(taken[0], Put) and total < self._limits.batch:
            item = self._items[0]
            if isinstance(item, Act):
                break
            taken.append(self._items.popleft())
            total += item.entry.nbytes
        return taken

    def settle(self, items: Sequence[Item]) -> None:
        """These are done."""
        with self._changed:
            for item in items:
                if isinstance(item, Act):
                    self._hide(item, -1)
                else:
                    self._release(item)
            self._settled += len(items)
            self._changed.notify_all()

    def _release(self, put: Put) -> None:
        self._bytes -= put.entry.nbytes
        pending = self._pending.get(put.namespace, {})
        if pending.get(put.entry.id) is put.entry:
            del pending[put.entry.id]

    def give_up(self, items: Sequence[Item], fault: Exception, again: bool) -> None:
        """After a fault, drop all entries, and these acts unless they are to be done again."""
        with self._changed:
            self._pause.begin(fault)
            acts = [item for item in items if isinstance(item, Act)]
            kept = [*(acts if again else []), *(i for i in self._items if isinstance(i, Act))]
            puts = [item for item in (*items, *self._items) if isinstance(item, Put)]
            self._items = deque(kept)
            self.dropped += len(puts)
            self.settle([*puts, *([] if again else acts)])
