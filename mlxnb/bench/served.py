"""An engine behind HTTP, a notebook server before it, and a client of that."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

from mlxnb.bench.apart import BenchFailed
from mlxnb.bench.runs import Run, whole
from mlxnb.host.kernel import KernelHost
from mlxnb.link import keys
from mlxnb.models.source import ModelSource
from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine

START_S = 60
"""Seconds within which a notebook server answers."""
DELTA = b"event: response.output_text.delta"


def places(folder: Path) -> dict[str, str]:
    """Variables under which processes of a bench see each other, and nothing of the user's."""
    names = {"MLXNB_STATE": "state", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data"}
    names |= {"JUPYTER_RUNTIME_DIR": "runtime", "IPYTHONDIR": "ipython"}
    return {name: str(folder / place) for name, place in names.items()}


class Served:
    """An engine with one model, published as a kernel's is."""

    def __init__(self, source: ModelSource) -> None:
        self.engine = LocalEngine()
        self.engine.load_source(source, progress=False)
        self.host = KernelHost.start(self.engine, None, "bench", None)

    def key(self) -> str:
        """A new key for clients."""
        return keys.new(f"bench-{secrets.token_hex(4)}")

    def direct(self, prompt: str, tokens: int) -> Run:
        """Answer a prompt for this process, greedily."""
        session = self.engine.session(temperature=0.0, max_tokens=tokens)
        try:
            begin = time.perf_counter()
            stream = session.stream(prompt)
            return whole((piece for piece in stream if not isinstance(piece, Turn)), begin)
        finally:
            self.engine.remove_session(session.name)


class NotebookServer:
    """A ``jupyter server`` process with the extension; ``close`` it at the end.

    Parameters
    ----------
    folder
        As for `places`; the server's log goes there too.

    Raises
    ------
    BenchFailed
        It does not start.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": "0",
            "ServerApp.root_dir": str(folder),
            "ServerApp.allow_root": "True",
            "ServerApp.open_browser": "False",
            "ServerApp.jpserver_extensions": "{'mlxnb': True}",
            "MlxNb.start_host": "False",
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "jupyter_server",
                    *(f"--{k}={v}" for k, v in options.items()),
                ],
                env={**os.environ, **places(folder), "JUPYTER_TOKEN": secrets.token_hex(16)},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        try:
            self.port = self._found(folder / "runtime")
        except BaseException:
            self.close()
            raise

    def _found(self, runtime: Path) -> int:
        """The port, once it answers."""
        until = time.monotonic() + START_S
        while time.monotonic() < until and self._process.poll() is None:
            time.sleep(0.1)
            try:
                info = next(runtime.glob("jpserver-*.json"), None)
                if info is not None:
                    port = int(json.loads(info.read_text("utf-8"))["port"])
                    with closing(Client(port, "")) as client:
                        client.status("/mlxnb/health")
                    return port
            except (ValueError, OSError):  # half written, or not listening yet
                continue
        log = self._log.read_text("utf-8", "replace")
        raise BenchFailed(f"the notebook server does not start:\n{log}")

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Client:
    """Reads answers on one connection to a notebook port."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=START_S)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def status(self, path: str) -> int:
        """The status of a ``GET``."""
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status

    def ask(self, model: str, prompt: str, tokens: int) -> Run:
        """Have a prompt answered as a stream, greedily.

        Raises
        ------
        BenchFailed
            The answer is an error.
        """
        asked: Mapping[str, object] = {
            "model": model,
            "input": prompt,
            "max_output_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "store": False,
        }
        body = json.dumps(asked).encode()
        begin = time.perf_counter()
        self._connection.request("POST", "/mlxnb/v1/responses", body, self._headers)
        answer = self._connection.getresponse()
        if answer.status != 200:
            raise BenchFailed(f"status {answer.status}: {answer.read().decode()}")
        return whole(_deltas(answer), begin)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _deltas(answer: HTTPResponse) -> Iterator[bytes]:
    """The events of the text."""
    rest = b""
    while data := answer.read1(2**16):
        *events, rest = (rest + data).split(b"\n\n")
        yield from (event for event in events if event.startswith(DELTA))
