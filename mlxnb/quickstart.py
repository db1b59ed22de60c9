"""The quickstart notebook in a terminal: what `mlxnb demo` runs and prints.

A kernel of this interpreter executes the cells. No kernelspec, profile or history of the user's
is read or written, and the notebook is not changed.
"""

from __future__ import annotations

import os
import queue
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxnb.errors import MlxnbError

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient
    from jupyter_client.manager import KernelManager

NAME = "01-quickstart.ipynb"
STARTUP_S = 120
WIDGET = "application/vnd.jupyter.widget-view+json"
FRAMES = """
import mlxnb
print("turns", mlxnb.engine().turns().to_string(), sep="\\n")
print("\\nprefix cache", mlxnb.engine().prefix_cache().to_string(), sep="\\n")
"""


class NotebookFailed(MlxnbError, RuntimeError):
    """A cell raised, or the kernel died; the message is one line."""


def quickstart() -> Path:
    """The notebook: in a checkout its own folder, in an installed wheel beside this module."""
    here = Path(__file__).parent
    checkout = here.parent / "notebooks" / NAME
    return checkout if checkout.exists() else here / NAME


def run(path: Path) -> None:
    """Execute a notebook, printing each code cell and its output as it comes, then the frames.

    Parameters
    ----------
    path
        An ``.ipynb`` file.

    Raises
    ------
    NotebookFailed
        Which cell, and its error.
    """
    import nbformat

    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with _kernel() as (manager, client):
        for number, cell in enumerate(notebook.cells, 1):
            if cell.cell_type == "code" and cell.source.strip():
                print(">>>  " + cell.source.strip().replace("\n", "\n...  "), flush=True)
                _execute(manager, client, cell.source, f"cell {number}")
        _execute(manager, client, FRAMES, "the frames")


@contextmanager
def _kernel() -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """A kernel of this interpreter whose files and sockets are in a temporary folder."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import KernelManager

    with tempfile.TemporaryDirectory(prefix="mlxnb-") as scratch:
        manager = KernelManager(
            # without a folder to look in, the native kernel is the only one it knows
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[], ensure_native_kernel=True),
            connection_file=f"{scratch}/kernel.json",
            transport="ipc",
        )
        manager.start_kernel(cwd=scratch, env=os.environ | {"IPYTHONDIR": scratch})
        client: Any = manager.client()
        try:
            client.start_channels()
            _await_ready(client)
            yield manager, client
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def _await_ready(client: BlockingKernelClient) -> None:
    try:
        client.wait_for_ready(timeout=STARTUP_S)
    except RuntimeError as error:
        raise NotebookFailed(f"the kernel did not start: {error}") from error


def _execute(manager: KernelManager, client: BlockingKernelClient, source: str, what: str) -> None:
    """Run one cell and print what it publishes until the kernel is idle again."""
    screen = Screen()
    request = client.execute(source, allow_stdin=False)
    while True:
        try:
            message = client.get_iopub_msg(timeout=1)
        except queue.Empty:
            if not manager.is_alive():
                raise NotebookFailed(f"{what}: the kernel died") from None
            continue
        if message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "error":
            raise NotebookFailed(f"{what}: {content['ename']}: {content['evalue']}".split("\n")[0])
        if kind == "status" and content["execution_state"] == "idle":
            screen.finish()
            return _check_reply(client, request, what)
        screen.show(kind, content)


def _check_reply(client: BlockingKernelClient, request: str, what: str) -> None:
    """Raise what is told in the reply alone: a UsageError is printed, and published as nothing."""
    while True:
        reply = client.get_shell_msg(timeout=STARTUP_S)
        if reply["parent_header"].get("msg_id") == request:
            break
    content = reply["content"]
    if content["status"] != "ok":
        raise NotebookFailed(f"{what}: {content['ename']}: {content['evalue']}".split("\n")[0])


class Screen:
    """Prints what one cell publishes: streams at once, displays when they no longer change."""

    def __init__(self) -> None:
        self._displays: dict[object, str] = {}

    def show(self, kind: str, content: dict[str, Any]) -> None:
        """Take one IOPub message."""
        if kind == "stream":
            print(content["text"], end="", flush=True, file=getattr(sys, content["name"]))
        elif "data" in content and WIDGET not in content["data"]:
            name = content.get("transient", {}).get("display_id", object())
            self._displays[name] = content["data"].get("text/plain", "")

    def finish(self) -> None:
        """Print the displays as they are at the end of the cell, and a blank line."""
        print(*self._displays.values(), "", sep="\n", flush=True)
