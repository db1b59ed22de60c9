"""The headless host: started on demand, started anew, gone with the notebook server."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from link import fake_host
from link.fake_host import until

from jupyter.server import Server, notebook_server
from mlxnb import __version__
from mlxnb.link.client import Client
from mlxnb.link.record import HostRecord, records


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))


@contextmanager
def supervised(folder: Path, fake: str = "", **config: Any) -> Iterator[Server]:
    """A server whose host's Python runs the fake host, which does what ``fake`` says."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{fake_host.__file__}" "$@"\n')
    python.chmod(0o700)
    config = {"host_python": str(python), "aliases": {"fake": fake}} | config
    with notebook_server(folder / "server", **config) as server:
        yield server


def headless() -> HostRecord:
    (record,) = records("headless")
    return record


def test_a_host_is_started_for_a_model_that_no_host_has(tmp_path: Path) -> None:
    with supervised(tmp_path) as server:
        assert records("headless") == []
        assert server.ask("GET", "/health").json() == {
            "status": "ok",
            "version": __version__,
            "hosts": [],
        }
        saw = server.post("/v1/responses", {"model": "anything"}).json()
        assert saw["host"] == headless().id


def test_requests_that_come_at_once_start_one_host(tmp_path: Path) -> None:
    with supervised(tmp_path) as server, ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(server.post, "/v1/responses", {"model": "x"}) for _ in range(6)]
        assert {one.result().json()["host"] for one in asked} == {headless().id}


def test_the_configuration_reaches_the_host_and_no_command_line(tmp_path: Path) -> None:
    limits = {"max_waiting": 3, "retention_days": 1.5, "store": False, "idle_unload_s": 60.0}
    with supervised(tmp_path, allowed_models=["d*"], model="demo", **limits) as server:
        server.post("/v1/responses", {"model": "x"})
        client = Client(headless())
        seen = client.call("GET", "/mlxnb/seen")
        client.close()
        config = seen["config"]
        assert config["retention_s"] == 129_600 and config["max_waiting"] == 3
        assert config["store"] is False and config["allowed_models"] == ["d*"]
        assert config["model"] == "demo" and config["idle_unload_s"] == 60
        assert [word for word in seen["argv"] if word.startswith("-")] == [
            "-m",
            "--parent-pid",
            "--config",
        ]
        assert str(server.process.pid) in seen["argv"]
        assert not list((tmp_path / "state").glob("headless-*.json"))


def killed(record: HostRecord) -> None:
    """Kill a host, and see it gone: what it has accepted until then is lost with it."""
    os.kill(record.process.pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(record.process.pid))


def test_a_killed_host_is_started_anew(tmp_path: Path) -> None:
    with supervised(tmp_path) as server:
        first = server.post("/v1/responses", {"model": "x"}).json()["host"]
        killed(headless())
        saw = server.post("/v1/responses", {"model": "x"}).json()
        assert saw["host"] == headless().id != first
        # without a request too
        killed(headless())
        until(lambda: [one for one in records("headless") if one.id not in (first, saw["host"])])


def test_a_host_that_does_not_start_is_503_that_says_why(tmp_path: Path) -> None:
    with supervised(tmp_path, "no mlx") as server:
        for _ in range(2):
            answer = server.post("/v1/messages", {"model": "x"})
            assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
            message = answer.json()["error"]["message"]
            assert "No module named 'mlx'" in message and "host_python" in message


def test_a_python_that_is_not_there_is_503_that_names_it(tmp_path: Path) -> None:
    with notebook_server(tmp_path / "s", host_python="/no/such/python") as server:
        answer = server.post("/v1/messages", {"model": "x"})
        assert answer.status_code == 503
        assert "/no/such/python" in answer.json()["error"]["message"]


def test_a_host_of_another_version_is_503_that_names_both(tmp_path: Path) -> None:
    with supervised(tmp_path, "old version") as server:
        answer = server.post("/v1/responses", {"model": "x"})
        assert answer.status_code == 503
        message = answer.json()["error"]["message"]
        assert "0.0.1" in message and __version__ in message


def test_w44_the_log_has_the_hosts_own_lines_and_no_others(tmp_path: Path) -> None:
    with supervised(tmp_path) as server:
        server.post("/v1/responses", {"model": "x"})
        until(lambda: "last own words" in server.log)
        assert "starting up" in server.log and ": its own words" in server.log
        assert "SECRET PROMPT" not in server.log


def test_the_host_ends_with_the_notebook_server(tmp_path: Path) -> None:
    with supervised(tmp_path) as server:
        server.post("/v1/responses", {"model": "x"})
        pid = headless().process.pid
    assert not psutil.pid_exists(pid)
    assert not list((tmp_path / "state" / "hosts").iterdir())


def test_hosts_of_kernels_are_asked_before_one_is_started(tmp_path: Path) -> None:
    with supervised(tmp_path) as server, fake_host.fake_host(models="demo") as host:
        saw = server.post("/v1/responses", {"model": "demo"}).json()
        assert saw["host"] == host.record.id and records("headless") == []
        server.post("/v1/responses", {"model": "other"})
        assert headless().id != host.record.id


def test_an_alias_leads_to_a_host_that_has_its_model(tmp_path: Path) -> None:
    aliases = {"claude-*": "demo"}
    with (
        supervised(tmp_path, aliases=aliases) as server,
        fake_host.fake_host(models="demo") as host,
    ):
        saw = server.post("/v1/messages", {"model": "claude-9"}).json()
        assert saw["host"] == host.record.id
        assert json.loads(saw["body"]) == {"model": "claude-9"}  # answers echo the asked name
        (notebook,) = records("notebook")
        assert notebook.aliases == {"claude-*": "demo"}  # by which the host knows the name too


def test_the_command_line_configures_too(tmp_path: Path) -> None:
    with supervised(tmp_path, argv=["--MlxNb.max_waiting=5"]) as server:
        server.post("/v1/responses", {"model": "x"})
        client = Client(headless())
        assert client.call("GET", "/mlxnb/seen")["config"]["max_waiting"] == 5
        client.close()
    assert "error" not in server.log
