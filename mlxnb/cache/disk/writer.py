"""The thread that writes behind."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from safetensors import SafetensorError

from mlxnb.cache.disk.backlog import Act, Backlog, Item
from mlxnb.cache.disk.chores import Chores
from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.keeper import Keeper
from mlxnb.cache.disk.known import Known
from mlxnb.cache.disk.pause import Pause
from mlxnb.records.database import Database


class Writer:
    """Does what is in the backlog, and keeps the files tidy meanwhile.

    Its thread begins with the first thing to do. It touches nothing of MLX.

    Parameters
    ----------
    files
        The index as it is written to; closed at the end.
    close_s
        Seconds that closing may take.
    """

    def __init__(
        self,
        files: Database,
        backlog: Backlog,
        keeper: Keeper,
        chores: Chores,
        known: Known,
        pause: Pause,
        close_s: float,
    ) -> None:
        self._files, self._backlog, self._keeper = files, backlog, keeper
        self._chores, self._known, self._pause = chores, known, pause
        self._close_s = close_s
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # Now, and not when the thread starts: who fills the backlog is to end before this does.
        atexit.register(self.close)

    # --- any thread ---------------------------------------------------------------------------

    def wake(self) -> None:
        """There is something to do."""
        with self._lock:
            if self._thread is None and not self._backlog.closed:
                thread = threading.Thread(target=self._main, name="mlxnb-disk", daemon=True)
                with contextlib.suppress(RuntimeError):  # the interpreter is about to end
                    thread.start()
                    self._thread = thread

    def close(self) -> bool:
        """Do what is left, for a short time; False: the thread is still at it."""
        with self._lock:
            self._backlog.close()
            thread = self._thread
        atexit.unregister(self.close)
        if thread is not None:
            thread.join(self._close_s)
        return thread is None or not thread.is_alive()

    # --- the thread ---------------------------------------------------------------------------

    def _main(self) -> None:
        while (items := self._backlog.take(self._chores.wait)) is not None:
            done = self._attempt(partial(self._do, items), items)
            if self._backlog.closed and not done:
                break
            self._attempt(self._chores.do)
        self._files.close()

    def _attempt(self, work: Callable[[], None], items: Sequence[Item] = ()) -> bool:
        """Do something; a fault turns writing off for a while."""
        try:
            work()
        except Exception as error:
            again = isinstance(error, OSError | SafetensorError) and not self._backlog.closed
            self._backlog.give_up(items, error, again)
            return False
        return True

    def _do(self, items: Sequence[Item]) -> None:
        if not items:
            return
        entries: defaultdict[str, list[Entry]] = defaultdict(list)
        for item in items:
            if isinstance(item, Act):
                item.run()
            else:
                entries[item.namespace].append(item.entry)
        for namespace, group in entries.items():
            self._keeper.write(namespace, group)
        if entries:
            self._pause.end()
        self._known.refresh()
        self._backlog.settle(items)
        self._chores.stir()
