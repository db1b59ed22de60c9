"""A real ``jupyter server`` with the extension, as a process, and requests to it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from link.fake_host import until

from mlxnb.link import keys

BASE_URL = "/a/b/"  # anything but "/" would show a path that is put together wrongly


class Server:
    """A running notebook server.

    ``key`` is an mlxnb key, ``token`` Jupyter's.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, token: str) -> None:
        self.process, self.folder, self.token = process, folder, token
        self.key = keys.new(f"test-{secrets.token_hex(4)}")
        self._http = httpx2.Client(timeout=60, trust_env=False)
        self.root = self._url()
        self.base = f"{self.root}{BASE_URL}mlxnb"

    def _url(self) -> str:
        def info() -> list[Path]:
            assert self.process.poll() is None, self.log
            return list((self.folder / "runtime").glob("jpserver-*.json"))

        until(info)
        until(lambda: info()[0].read_text().endswith("}"))
        port = json.loads(info()[0].read_text())["port"]
        root = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            try:
                return self._http.get(f"{root}{BASE_URL}api").status_code == 200
            except httpx2.ConnectError:
                return False

        until(answers)
        return root

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    @property
    def jupyter(self) -> dict[str, str]:
        return {"Authorization": f"token {self.token}"}

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """A request with the key, unless ``headers`` are given."""
        more.setdefault("headers", self.bearer)
        return self.plain(method, f"{BASE_URL}mlxnb{path}", **more)

    def plain(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """A request to any route, without cookies."""
        self._http.cookies.clear()
        return self._http.request(method, self.root + path, **more)

    def post(self, path: str, body: Mapping[str, Any], **more: Any) -> httpx2.Response:
        return self.ask("POST", path, json=body, **more)

    @contextmanager
    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[httpx2.Response]:
        url = self.base + path
        with self._http.stream("POST", url, json=body, headers=self.bearer) as answer:
            yield answer

    def close(self) -> None:
        self._http.close()


def environment(folder: Path) -> dict[str, str]:
    """An empty home with nothing of this user's configuration."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON"))}
    return kept | {
        "HOME": str(folder),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
    }


@contextmanager
def notebook_server(folder: Path, argv: Sequence[str] = (), **config: Any) -> Iterator[Server]:
    """Start a server on a free port; ``config`` is ``c.MlxNb``'s, or others' by class name."""
    folder.mkdir(exist_ok=True)
    token = secrets.token_hex(16)
    classes = {name: config.pop(name) for name in list(config) if name[0].isupper()}
    serverapp = {
        "ip": "127.0.0.1",
        "port": 0,
        "base_url": BASE_URL,
        "root_dir": str(folder),
        "allow_root": True,
        "open_browser": False,
        "jpserver_extensions": {"mlxnb": True, "jupyterlab": False, "jupyter_lsp": False},
    } | classes.pop("ServerApp", {})
    (folder / "config").mkdir()
    settings = {"ServerApp": serverapp, "MlxNb": config, **classes}
    (folder / "config" / "jupyter_server_config.json").write_text(json.dumps(settings))
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyter_server", *argv],
        env=environment(folder) | {"JUPYTER_TOKEN": token},
        cwd=folder,
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
    )
    try:
        server = Server(process, folder, token)
        yield server
        server.close()
    finally:
        process.terminate()
        process.wait(30)
        log.close()
