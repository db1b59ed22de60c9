"""The headless host of this notebook server: started on demand, kept running, gone with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from mlxnb.jupyter.headless import Headless, not_started
from mlxnb.link.record import HostRecord
from mlxnb.wire.errors import WireError

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 60.0
GOOD_LIFE_S = 60.0
"""A host that lived so long did not crash because of how it was started."""
PATIENCE_S = 5.0
"""A request waits so long for a start that is put off; others are told when to come back."""


class Supervisor:
    """Keeps one headless host running from the first request that needs it on.

    Parameters
    ----------
    python
        The interpreter that has MLX.
    config
        Called at each start; see `Headless.start`.
    """

    def __init__(
        self, python: str, config: Callable[[], Mapping[str, Any]], log: logging.Logger
    ) -> None:
        self._python, self._config, self._log = python, config, log
        self._host: Headless | None = None
        self._starting: asyncio.Task[HostRecord] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._due = 0.0  # no start before that, in the loop's time
        self._backoff_s = FIRST_BACKOFF_S
        self._reason = ""

    @property
    def record(self) -> HostRecord | None:
        """The record of the host, while it runs."""
        return None if self._host is None else self._host.record

    async def ensure(self) -> HostRecord:
        """The record of the host, which is started if it does not run.

        However many ask, one start is made; one that stops asking does not stop it.

        Raises
        ------
        WireError
            503: it did not start, or is not to be started again yet.
        """
        if self._host is not None:
            return self._host.record
        wait_s = self._due - self._now()
        if wait_s > PATIENCE_S:
            raise not_started(self._python, self._reason, int(wait_s) + 1)
        if self._starting is None or self._starting.done():
            self._begin()
        assert self._starting is not None
        return await asyncio.shield(self._starting)

    async def stop(self) -> None:
        """End the host and its supervision."""
        tasks = [task for task in (self._watching, self._starting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._host is not None:
            await self._host.stop()
            self._host = None

    def _begin(self) -> None:
        self._starting = asyncio.create_task(self._start())
        self._starting.add_done_callback(_noticed)

    async def _start(self) -> HostRecord:
        await asyncio.sleep(max(0.0, self._due - self._now()))
        try:
            self._host = await Headless.start(self._python, self._config(), self._log)
        except WireError as error:
            self._put_off(error.message)
            self._log.error("%s", error.message)
            raise
        self._log.info("The headless host runs as process %d", self._host.record.process.pid)
        self._watching = asyncio.create_task(self._watch(self._host))
        return self._host.record

    async def _watch(self, host: Headless) -> None:
        """Start it anew when it ends of itself."""
        born = self._now()
        status = await host.wait()
        self._host = None
        if self._now() - born > GOOD_LIFE_S:
            self._backoff_s = FIRST_BACKOFF_S
        self._put_off(f"it ended with status {status}")
        self._log.warning("The headless host ended with status %d; it is started anew", status)
        self._begin()

    def _put_off(self, reason: str) -> None:
        self._reason = reason
        self._due = self._now() + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, LAST_BACKOFF_S)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _noticed(task: asyncio.Task[HostRecord]) -> None:
    """Take the error of a start that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
