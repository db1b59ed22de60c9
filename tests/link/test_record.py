"""W63, C48, C53: which records are live, which are swept, which are left alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mlxnb.link.process import Process, _started
from mlxnb.link.record import HostRecord, aliases, publish, records, withdraw


@pytest.fixture
def record() -> Iterator[HostRecord]:
    made = HostRecord.here("kernel", title="notebook.ipynb", kernel_id="k1")
    yield made
    withdraw(made)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def of(record: HostRecord, **changes: object) -> HostRecord:
    return replace(record, process=replace(record.process, **changes))  # type: ignore[arg-type]


def test_a_published_record_is_found_as_it_was(record: HostRecord) -> None:
    publish(record)
    assert records() == [record]


def test_w66_a_record_is_read_by_its_user_alone(record: HostRecord) -> None:
    assert publish(record).stat().st_mode & 0o777 == 0o600


def test_w67_a_records_secret_is_not_in_its_repr(record: HostRecord) -> None:
    assert record.secret not in repr(record)


def test_a_withdrawn_record_is_gone_with_its_socket(record: HostRecord) -> None:
    publish(record)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(record.socket))
        withdraw(record)
    assert records() == [] and not os.path.exists(str(record.socket))


def test_records_are_listed_newest_first_and_by_kind(record: HostRecord) -> None:
    newer = replace(HostRecord.here("headless"), created=record.created + 1)
    notebook = replace(HostRecord.here("notebook", url="http://127.0.0.1:1/"), created=0.0)
    for one in (record, newer, notebook):
        publish(one)
    assert records() == [newer, record, notebook]
    assert records("kernel") == [record]


def test_a_host_says_anew_which_models_it_has(record: HostRecord) -> None:
    publish(record)
    publish(record.with_models(("demo",)))
    assert [one.models for one in records()] == [("demo",)]


def test_c48_the_record_and_socket_of_a_killed_process_are_swept(
    record: HostRecord, child: subprocess.Popen[bytes]
) -> None:
    started = _started(child.pid)
    assert started is not None
    killed = of(record, pid=child.pid, started=started)
    path = publish(killed)
    assert records() == [killed]
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(record.socket))
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie, until it is waited for
    assert records() == []
    assert not path.exists() and not os.path.exists(str(record.socket))


def test_c48_a_process_id_that_has_come_back_is_another_process(record: HostRecord) -> None:
    path = publish(of(record, started="1"))
    assert records() == [] and not path.exists()


def test_a_record_from_before_the_last_boot_is_swept(record: HostRecord) -> None:
    path = publish(of(record, boot_id="another"))
    assert records() == [] and not path.exists()


@pytest.mark.parametrize("change", [{"machine": "elsewhere"}, {"pid_namespace": "pid:[1]"}])
def test_c53_a_record_of_another_machine_or_namespace_is_not_live_and_not_swept(
    record: HostRecord, change: dict[str, str]
) -> None:
    path = publish(of(record, **change, started="1"))
    assert records() == [] and path.exists()


def test_hosts_learn_the_aliases_of_notebook_servers() -> None:
    older, newer = (replace(HostRecord.here("notebook"), created=float(n)) for n in (1, 2))
    publish(replace(older, aliases={"a": "old", "b": "old"}))
    publish(replace(newer, aliases={"a": "new"}))
    assert aliases() == {"a": "new", "b": "old"}
    assert list(aliases()) == ["a", "b"]


def test_a_record_that_others_may_read_is_not_believed(record: HostRecord) -> None:
    path = publish(record)
    path.chmod(0o644)
    assert records() == []


def test_a_record_that_is_a_link_is_not_believed(record: HostRecord, tmp_path: Path) -> None:
    path = publish(record)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert records() == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"uuid": 1}', "{broken"])
def test_a_file_that_is_no_record_is_passed_over(record: HostRecord, text: str) -> None:
    path = publish(record)
    other = path.with_name("other.json")
    other.touch(0o600)
    other.write_text(text)
    assert records() == [record]


def test_a_later_versions_record_is_read_for_what_is_known(record: HostRecord) -> None:
    path = publish(record)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"new": 1, "version": "9.0"}))
    assert [one.version for one in records()] == ["9.0"]


def test_a_record_never_leads_to_the_removal_of_what_is_no_socket(
    record: HostRecord, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("text")
    publish(of(replace(record, socket=str(precious)), started="1"))
    assert records() == [] and precious.exists()


def test_this_process_is_near_and_alive() -> None:
    here = Process.here()
    assert here.is_near() and here.is_alive() and here == Process.here()
