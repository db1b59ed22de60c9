"""W63, W66: what is private, and where a socket may lie."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from mlxnb.errors import NotPrivate, StateUnwritable
from mlxnb.link import places


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_w66_directories_are_entered_by_their_user_alone(state: Path) -> None:
    previous = os.umask(0)
    try:
        folders = [places.state_dir(), places.records_dir(), places.saved_key_file("a").parent]
    finally:
        os.umask(previous)
    assert [mode(folder) for folder in folders] == [0o700] * 3


def test_w66_files_are_read_by_their_user_alone(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        places.write_private(tmp_path / "file", "text")
    finally:
        os.umask(previous)
    assert mode(tmp_path / "file") == 0o600
    assert (tmp_path / "file").read_text() == "text"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_w63_a_directory_that_others_may_enter_is_refused(state: Path) -> None:
    state.mkdir(mode=0o755)
    state.chmod(0o755)
    with pytest.raises(NotPrivate, match="chmod 700"):
        places.state_dir()


def test_w63_a_link_to_a_directory_is_refused(state: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o700)
    state.symlink_to(tmp_path / "other")
    with pytest.raises(NotPrivate):
        places.state_dir()


def test_w63_another_users_directory_is_refused(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.state_dir()
    monkeypatch.setattr(os, "geteuid", lambda: state.stat().st_uid + 1)
    with pytest.raises(NotPrivate, match="another user"):
        places.state_dir()


def test_a_state_directory_that_cannot_be_made_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "file" / "state"))
    with pytest.raises(StateUnwritable, match="MLXNB_STATE"):
        places.state_dir()


def test_a_socket_lies_beside_the_records_where_it_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(places, "SOCKET_PATH_BYTES", 4096)
    assert places.new_socket("abcdefgh").parent == places.records_dir()


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / ("long" * 30)))


@pytest.mark.usefixtures("deep")
def test_w63_a_path_that_is_too_long_falls_back_to_the_runtime_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "SOCKET_PATH_BYTES", len(os.fsencode(tmp_path)) + 40)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = places.new_socket("abcdefgh")
    assert path.parent == tmp_path / "mlxnb"
    assert mode(path.parent) == 0o700


@pytest.mark.usefixtures("deep")
def test_w63_a_path_that_is_too_long_falls_back_to_a_fresh_temporary_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    path = places.new_socket("abcdefgh")
    try:
        assert len(os.fsencode(path)) < places.SOCKET_PATH_BYTES
        assert path.parent.name.startswith("mlxnb-") and mode(path.parent) == 0o700
    finally:
        path.parent.rmdir()


def test_w63_no_socket_on_a_network_file_system(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = [
        SimpleNamespace(mountpoint="/", fstype="ext4"),
        SimpleNamespace(mountpoint=str(state), fstype="nfs4"),
    ]
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounts)
    monkeypatch.setattr(places, "SOCKET_PATH_BYTES", 4096)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert places.on_network(state / "hosts" / "a.sock")
    assert places.new_socket("abcdefgh").parent == runtime / "mlxnb"


def test_no_place_for_a_socket_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "SOCKET_PATH_BYTES", 10)
    with pytest.raises(StateUnwritable, match="TMPDIR"):
        places.new_socket("abcdefgh")
