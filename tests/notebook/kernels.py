"""A real kernel, and all that it publishes for a cell."""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

DEADLINE_S = 120


@dataclass(frozen=True)
class Message:
    """One message of a cell; ``sent`` is the kernel's time of it, in seconds."""

    kind: str
    content: dict[str, Any]
    sent: float
    parent: str


@dataclass
class Cell:
    """A cell's messages so far; ``reply`` is there when it has ended."""

    id: str
    began: float
    messages: list[Message] = field(default_factory=list)
    reply: dict[str, Any] | None = None

    def of(self, *kinds: str) -> list[Message]:
        return [m for m in self.messages if m.kind in kinds]

    @property
    def displays(self) -> list[Message]:
        return self.of("display_data", "update_display_data")

    def text(self, name: str = "stdout") -> str:
        return "".join(m.content["text"] for m in self.of("stream") if m.content["name"] == name)


class Kernel:
    """Runs cells one at a time, as a notebook does."""

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager, self._client = manager, client
        self.strays: list[Message] = []  # published for other cells than the one that runs

    def run(self, source: str, watch: Callable[[Cell], None] = lambda cell: None) -> Cell:
        """Run a cell; ``watch`` is called after every message of it."""
        cell = Cell(self._client.execute(source, allow_stdin=False), time.monotonic())
        idle = False
        while not idle:
            message = self._next(cell)
            if message.parent != cell.id:
                if message.kind != "status":  # a completion has one too
                    self.strays.append(message)
                continue
            cell.messages.append(message)
            idle = message.kind == "status" and message.content["execution_state"] == "idle"
            watch(cell)
        while cell.reply is None:
            reply = self._client.get_shell_msg(timeout=DEADLINE_S)
            if reply["parent_header"]["msg_id"] == cell.id:
                cell.reply = reply["content"]
        return cell

    def ok(self, source: str) -> Cell:
        """Run a cell that must not fail."""
        cell = self.run(source)
        assert cell.reply is not None and cell.reply["status"] == "ok", cell.reply
        return cell

    def _next(self, cell: Cell) -> Message:
        while time.monotonic() - cell.began < DEADLINE_S:
            try:
                raw = self._client.get_iopub_msg(timeout=1)
            except queue.Empty:
                assert self._manager.is_alive(), "the kernel died"
                continue
            parent = raw["parent_header"].get("msg_id", "")
            sent = raw["header"]["date"].timestamp()
            return Message(raw["msg_type"], raw["content"], sent, parent)
        raise AssertionError("the cell does not end")

    def complete(self, source: str) -> tuple[list[str], int]:
        """What Tab offers at the end of a source, and where that begins."""
        request = self._client.complete(source)
        while True:
            reply = self._client.get_shell_msg(timeout=DEADLINE_S)
            if reply["parent_header"]["msg_id"] == request:
                return reply["content"]["matches"], reply["content"]["cursor_start"]

    def interrupt(self) -> None:
        """What the stop button does."""
        os.kill(self._manager.provisioner.process.pid, signal.SIGINT)


@contextmanager
def kernel(scratch: Path) -> Iterator[Kernel]:
    manager = KernelManager(
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[], ensure_native_kernel=True),
        connection_file=str(scratch / "kernel.json"),
        transport="ipc",
    )
    environment = os.environ | {"IPYTHONDIR": str(scratch), "MLXNB_CACHE": str(scratch / "cache")}
    manager.start_kernel(cwd=str(scratch), env=environment)
    assert manager.kernel_spec.argv[0] == sys.executable
    client: Any = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=DEADLINE_S)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
