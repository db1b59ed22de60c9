"""One process of the headless host: its start, its words, its end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil

from mlxnb.link.places import state_dir, write_private
from mlxnb.link.record import HostRecord, records
from mlxnb.wire.errors import WireError

START_S = 120.0
"""Seconds that a host has to publish its record: the first import of MLX can be slow."""
STOP_S = 5.0
"""Seconds that a host has to end its answers when it is told to stop."""
LOOK_S = 0.05
# A host's own log lines, which never hold what anybody wrote (W44).
OWN_LINE = re.compile(r"mlxnb[.\w]*\[(DEBUG|INFO|WARNING|ERROR|CRITICAL)\]: .*")


class Headless:
    """A running host and its record; made by `start`."""

    def __init__(self, process: asyncio.subprocess.Process, log: logging.Logger) -> None:
        self._process, self._log = process, log
        self._said: deque[str] = deque(maxlen=20)
        self._found: HostRecord | None = None
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, python: str, config: Mapping[str, Any], log: logging.Logger) -> Headless:
        """Start one and wait until it answers.

        Parameters
        ----------
        python
            The interpreter that has MLX.
        config
            Reaches the host as JSON in a private file: command lines are seen by all users.

        Raises
        ------
        WireError
            503: it did not start; says why and what to do.
        """
        path = state_dir() / f"headless-{secrets.token_hex(8)}.json"
        write_private(path, json.dumps(config))
        try:
            host = cls(await _spawn(python, str(path)), log)
            try:
                await host._published(python)
            except BaseException:
                await host.stop()
                raise
            return host
        except OSError as error:
            raise not_started(python, str(error)) from error
        finally:
            path.unlink(missing_ok=True)

    @property
    def record(self) -> HostRecord:
        """As the host has published it."""
        assert self._found is not None, "a host is handed out when it has its record"
        return self._found

    async def wait(self) -> int:
        """Wait for its end, however it comes; the exit status."""
        status = await self._process.wait()
        await self._listening
        return status

    async def stop(self) -> None:
        """End it: it has a few seconds for what runs."""
        with suppress(ProcessLookupError):
            self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
        await self.wait()

    async def _published(self, python: str) -> None:
        """Wait for its record."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                while self._process.returncode is None:
                    self._found = _record_of(self._process.pid)
                    if self._found is not None:
                        return
                    await asyncio.sleep(LOOK_S)
        if self._process.returncode is None:
            raise not_started(python, f"it was not ready within {START_S:.0f} s")
        await self._listening
        raise not_started(python, self._said[-1] if self._said else "it said nothing")

    async def _listen(self) -> None:
        """Hand its words to the log.

        All of them until it is ready; then its own log lines alone. A traceback or a library's
        warning may quote a prompt once there have been requests, and is dropped.
        """
        assert self._process.stderr is not None, "its standard error is a pipe"
        async for line in _lines(self._process.stderr):
            own = OWN_LINE.fullmatch(line)
            if own or self._found is None:
                level = logging.getLevelNamesMapping()[own[1]] if own else logging.INFO
                self._log.log(level, "headless host: %s", line)
                self._said.append(line)


async def _lines(stream: asyncio.StreamReader) -> Any:
    """Lines with words on them; a line too long for the stream's buffer is passed over."""
    while True:
        try:
            raw = await stream.readline()
        except ValueError:
            continue
        if not raw:
            return
        line = raw.decode("utf-8", "replace").rstrip()
        if line:
            yield line


async def _spawn(python: str, config: str) -> asyncio.subprocess.Process:
    arguments = ("-m", "mlxnb.host", "--parent-pid", str(os.getpid()), "--config", config)
    return await asyncio.create_subprocess_exec(
        python,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C in the server's terminal is for the server
    )


def _record_of(pid: int) -> HostRecord | None:
    """The record that a process, or a child of it where it is a wrapper, has published."""
    try:
        family = {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    except psutil.NoSuchProcess:
        return None
    return next((r for r in records("headless") if r.process.pid in family), None)


def not_started(python: str, reason: str, retry_s: int = 1) -> WireError:
    """503: there is no host to ask."""
    return WireError(
        503,
        "no host has the model, and the headless host did not start: "
        f"{reason} ({python} -m mlxnb.host). Run %mlx_load and %mlx_serve in a notebook, or set "
        "c.MlxNb.host_python to a Python that has mlxnb with MLX",
        code="host_not_started",
        headers={"Retry-After": str(retry_s)},
    )
