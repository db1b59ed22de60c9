"""Kernels of a real notebook server with the extension, on one shared host."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter.ready import wait_ready
from jupyter.server import BASE_URL, Server, notebook_server
from jupyter_client.blocking.client import BlockingKernelClient


class Kernel:
    """A kernel that the server has started."""

    def __init__(self, server: Server) -> None:
        self._server = server
        made = server.plain("POST", f"{BASE_URL}api/kernels", headers=server.jupyter, json={})
        self.id = made.json()["id"]
        self._client = BlockingKernelClient()
        self._connect()
        self.run("%load_ext mlxnb")

    def _connect(self) -> None:
        file = self._server.folder / "runtime" / f"kernel-{self.id}.json"
        self._client.load_connection_file(str(file))
        self._client.start_channels()
        wait_ready(self._client)

    def run(self, code: str) -> str:
        """Run a cell; what it printed, and its result in plain text."""
        said: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                said.append(content["text"])
            elif message["msg_type"] in ("execute_result", "display_data"):
                said.append(content["data"]["text/plain"])

        reply = self._client.execute_interactive(code, output_hook=hear, timeout=120)
        content = reply["content"]
        assert content["status"] == "ok", "\n".join(content.get("traceback", []))
        return "".join(said)

    def restart(self) -> None:
        path = f"{BASE_URL}api/kernels/{self.id}/restart"
        self._client.stop_channels()
        self._server.plain("POST", path, headers=self._server.jupyter)
        self._client = BlockingKernelClient()
        self._connect()
        self.run("%load_ext mlxnb")

    def close(self) -> None:
        self._client.stop_channels()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    state = tmp_path_factory.mktemp("s")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXNB_STATE", str(state / "state"))
        patch.setenv("MLXNB_CACHE", str(state / "cache"))
        with notebook_server(state / "server") as made:
            yield made
    shutil.rmtree(state, ignore_errors=True)


@pytest.fixture(scope="module")
def model(server: Server, folder: Path) -> str:
    return str(folder)


@pytest.fixture
def kernel(server: Server) -> Iterator[Kernel]:
    made = Kernel(server)
    yield made
    made.close()


@pytest.fixture
def other(server: Server) -> Iterator[Kernel]:
    made = Kernel(server)
    yield made
    made.close()


def test_two_notebooks_share_weights_and_turns(kernel: Kernel, other: Kernel, model: str) -> None:
    for each, text in ((kernel, "one"), (other, "two")):
        each.run(f"%mlx_load --no-progress {model}")
        each.run(f"%mlx_chat -f text --max-tokens 4 -s {text} {text}")
    for each in (kernel, other):
        rows = each.run("import mlxnb; print(sorted(set(mlxnb.engine().turns().session.dropna())))")
        assert "'one', 'two'" in rows
    hosts = {each.run("print(mlxnb.engine().record.id)") for each in (kernel, other)}
    assert len(hosts) == 1
    loaded = kernel.run("print(mlxnb.engine().models().loaded.sum())")
    assert loaded.split() == ["1"]


def test_a_restarted_kernel_finds_its_session_warm(kernel: Kernel, model: str) -> None:
    kernel.run(f"%mlx_load --no-progress {model}")
    kernel.run("%mlx_chat -f text --max-tokens 4 -s keep Hello there")
    kernel.restart()
    kernel.run(f"%mlx_load --no-progress {model}")
    kernel.run("%mlx_chat -f text --max-tokens 4 -s keep -o turn And again")
    assert kernel.run("print(turn.cached_tokens > 10, turn.timing.load_wait_s)").split() == [
        "True",
        "0.0",
    ]


def test_here_loads_into_the_kernel(kernel: Kernel, model: str) -> None:
    kernel.run(f"%mlx_load --here --no-progress {model}")
    assert "LocalEngine" in kernel.run("import mlxnb; print(type(mlxnb.engine()))")
    kernel.run(f"%mlx_load --no-progress {model}")
    assert "RemoteEngine" in kernel.run("print(type(mlxnb.engine()))")


def test_a_kernel_is_served_on_the_notebook_port(
    kernel: Kernel, server: Server, model: str
) -> None:
    kernel.run(f"%mlx_load --here --no-progress {model}")
    said = kernel.run("%mlx_serve -o served")
    assert f"base_url {server.base}/v1" in said.replace("localhost", "127.0.0.1")
    assert "mlxnb_" not in said.replace("MLXNB_", "")
    assert "JupyterHub" not in said
    kernel.run("import os\nos.environ['JUPYTERHUB_SERVICE_PREFIX'] = '/hubs/user/ada/'")
    assert "<address of the Hub>/hubs/user/ada/mlxnb in place of http" in kernel.run("%mlx_serve")
    host = kernel.run("%mlx_serve --status -o status\nprint(status.host[0])").strip()
    body = {"model": model, "input": "Hello", "max_output_tokens": 4}
    answer = server.post("/v1/responses", body).json()
    assert (answer["status"], host in answer["id"]) == ("incomplete", True)
    rows = kernel.run("import mlxnb; print(mlxnb.engine().turns().source.tolist())")
    assert "responses" in rows
    assert "has stopped" in kernel.run("%mlx_serve --stop")
