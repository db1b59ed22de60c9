"""Where a model is loaded: here, in a host that has it, or in the server's shared host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mlxnb.errors import InvalidOption
from mlxnb.host.remote.engine import RemoteEngine
from mlxnb.link import process
from mlxnb.link.process import Process
from mlxnb.link.record import HostRecord, publish
from mlxnb.notebook import placing


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))


def running(pid: int) -> Process:
    return replace(Process.here(), pid=pid, started=process._started(pid))


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., HostRecord]]:
    """Publish the record of a host of another process, which lives as long as the test."""
    import subprocess
    import sys

    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    def make(*models: str, **more: object) -> HostRecord:
        record = replace(HostRecord.here("headless"), process=running(other.pid), **more)
        record = record.with_models(models)
        publish(record)
        return record

    yield make
    other.communicate(b"\n")


def server(**more: object) -> HostRecord:
    """The record of a notebook server that started this process: this process's parent."""
    record = replace(HostRecord.here("notebook", url="http://127.0.0.1:9/mlxnb"), **more)
    record = replace(record, process=running(os.getppid()))
    publish(record)
    return record


def test_a_kernel_of_no_server_loads_here() -> None:
    assert placing.place("m", "auto", False, None) is None


def test_a_host_that_has_the_model_is_used(elsewhere: Callable[..., HostRecord]) -> None:
    elsewhere("other")
    record = elsewhere("m")
    found = placing.place("m", "auto", False, None)
    assert found is not None
    assert found.record == record


@pytest.mark.parametrize(("mode", "here"), [("auto", True), ("kernel", False)])
def test_here_is_here(elsewhere: Callable[..., HostRecord], mode: str, here: bool) -> None:
    elsewhere("m")
    assert placing.place("m", mode, here, None) is None


def test_a_host_of_another_version_is_left_alone(elsewhere: Callable[..., HostRecord]) -> None:
    elsewhere("m", version="0.0.1")
    assert placing.place("m", "auto", False, None) is None


def test_the_engine_in_use_is_kept_where_it_is_right(elsewhere: Callable[..., HostRecord]) -> None:
    current = RemoteEngine(elsewhere("m"))
    assert placing.place("m", "auto", False, current) is current


def test_a_server_with_the_extension_is_asked_for_its_host(
    elsewhere: Callable[..., HostRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, host, own = [], elsewhere(), server()
    monkeypatch.setattr(placing, "shared_host", lambda record: asked.append(record) or host.id)
    for mode in ("auto", "shared"):
        found = placing.place("m", mode, False, None)
        assert found is not None
        assert found.record == host
    assert asked == [own, own]


def test_a_server_that_did_not_start_this_process_is_not_asked(
    elsewhere: Callable[..., HostRecord],
) -> None:
    record = elsewhere(kind="notebook", socket=None, url="http://127.0.0.1:9/mlxnb")
    assert placing.notebook_server() is None
    assert record.kind == "notebook"


def test_a_shared_host_that_cannot_be_is_a_mistake() -> None:
    with pytest.raises(InvalidOption, match="--here"):
        placing.place("m", "shared", False, None)
