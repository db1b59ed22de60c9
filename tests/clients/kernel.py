"""A real kernel of a notebook server, and what a notebook of it would save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from jupyter.ready import wait_ready
from jupyter.server import BASE_URL, Server
from jupyter_client import BlockingKernelClient
from nbformat.v4 import new_code_cell, new_notebook, output_from_msg

TESTS = Path(__file__).parents[1]
# as a notebook would load them, but for their code, which no name alone would run
SERVE = """\
import sys
from pathlib import Path
sys.path.append({tests!r})
%load_ext mlxnb
import mlxnb
from mlxnb.models.source import ModelSource
engine = mlxnb.engine()
for one in sorted(Path({models!r}).iterdir()):
    engine.load_source(ModelSource(one.name, one, trust_model_code=True), progress=False)
"""


class Kernel:
    """Runs cells and keeps them with their outputs; ``close`` it at the end."""

    def __init__(self, server: Server) -> None:
        self._server = server
        made = server.plain("POST", f"{BASE_URL}api/kernels", headers=server.jupyter, json={})
        assert made.status_code == 201, made.text
        self.id: str = made.json()["id"]
        connection = server.folder / "runtime" / f"kernel-{self.id}.json"
        self._client = BlockingKernelClient(connection_file=str(connection))
        self._client.load_connection_file()
        self._client.start_channels()
        wait_ready(self._client)
        self._cells: list[Any] = []

    def serve(self, models: Path) -> str:
        """Load all models and ``%mlx_serve``; what that printed."""
        self.run(SERVE.format(tests=str(TESTS), models=str(models)))
        return self.run("%mlx_serve")

    def run(self, source: str, *, fails: bool = False) -> str:
        """Run a cell; the text of its outputs."""
        cell = new_code_cell(source)
        self._cells.append(cell)
        reply = self._client.execute_interactive(
            source,
            timeout=250,
            allow_stdin=False,
            output_hook=lambda message: _keep(cell, message),
        )
        text = "\n".join(_text(output) for output in cell.outputs)
        assert fails or reply["content"]["status"] == "ok", text
        return text

    def saved(self) -> str:
        """The notebook, as it would lie on disk."""
        return nbformat.writes(new_notebook(cells=self._cells))

    def pid(self) -> int:
        return int(self.run("import os; print(os.getpid())"))

    def close(self) -> None:
        self._client.stop_channels()


def _keep(cell: Any, message: dict[str, Any]) -> None:
    if message["header"]["msg_type"] in ("stream", "display_data", "execute_result", "error"):
        cell.outputs.append(output_from_msg(message))


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return str(output.data.get("text/plain", ""))
