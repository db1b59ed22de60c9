"""The headless host as a process: its configuration, its record, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mlxnb.errors import InvalidOption, ModelNotFound
from mlxnb.host.config import Config
from mlxnb.link.client import Client
from mlxnb.link.record import HostRecord, records

from .talk import get

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ``python -m mlxnb.host`` with these settings."""
    processes = []

    def begin(*arguments: str, **config: Any) -> subprocess.Popen[str]:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config), "utf-8")
        command = [sys.executable, "-m", "mlxnb.host", "--config", str(path), *arguments]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def published(process: subprocess.Popen[str]) -> HostRecord:
    """The record of a host, once it is there."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        found = records("headless")
        if found:
            assert found[0].process.pid == process.pid
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"no record: {process.communicate()[1]}")


def test_a_host_answers_and_ends_when_it_is_told_to(start: Start) -> None:
    process = start(title="shared")
    record = published(process)
    assert record.title == "shared"
    client = Client(record)
    assert get(client, "/mlxnb/health").json()["status"] == "ok"
    client.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert records() == []
    assert record.socket is not None
    assert not Path(record.socket).exists()


def test_a_host_ends_with_the_process_that_it_is_for(start: Start) -> None:
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = start("--parent-pid", str(parent.pid))
    published(process)
    parent.kill()
    parent.communicate()
    assert process.wait(60) == 0
    assert records() == []


def test_a_host_whose_settings_are_wrong_says_so_in_a_line(start: Start) -> None:
    process = start(retention_s=1)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert said.startswith("mlxnb.host: retention_s: ")
    assert said.count("\n") == 1


def test_a_host_of_no_process_does_not_start(start: Start) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    process = start("--parent-pid", str(dead.pid))
    assert "no process" in process.communicate(timeout=120)[1]
    assert process.returncode == 1


def test_what_the_extension_writes_is_understood() -> None:
    config = Config.read(
        json.dumps(
            {
                "model": "",
                "models_dir": "",
                "allowed_models": [],
                "aliases": {"claude-*": "demo"},
                "max_waiting": 16,
                "max_output_tokens": 7,
                "body_limit_bytes": 2**20,
                "store": False,
                "retention_s": 604800.0,
                "idle_clear_s": 30.0,
                "idle_unload_s": 0.0,
            }
        )
    )
    assert config.source() is None
    assert config.open_store() is None
    assert config.limits.body_bytes == 2**20
    assert config.service_limits.output("any") == 7
    assert config.service_limits.idle_unload_s is None


@pytest.mark.parametrize("text", ["", "[]", '{"modle": "demo"}', '{"port": 70000}'])
def test_wrong_settings_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption):
        Config.read(text)


def test_a_model_that_is_not_there_is_said_before_anything_starts() -> None:
    with pytest.raises(ModelNotFound):
        Config(model="no-such-model-anywhere").source()


def test_configuration_is_never_on_the_command_line(start: Start) -> None:  # W67
    process = start(title="words of mine")
    published(process)
    shown = Path(f"/proc/{process.pid}/cmdline")
    if shown.exists():
        assert b"words of mine" not in shown.read_bytes()
    assert os.getpid() != process.pid


def test_serve_answers_in_the_foreground_until_it_is_told_to_stop() -> None:
    script = "import sys; from mlxnb.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "serve", "--port", "0", "--no-store"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(3)]
        url = said[1].split()[-1]
        assert httpx2.get(f"{url}/health", trust_env=False).json() == {"status": "ok"}
        assert said[0].split()[-1] == f"{url}/v1"
        assert "mlxnb keys new" in said[2]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
