"""What control groups allow, of both versions, in files laid out as Linux does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlxnb import container
from mlxnb.container import MemoryLimit


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No groups so far, on a machine with 64 cores."""
    monkeypatch.setattr(container, "_ROOT", tmp_path)
    monkeypatch.setattr(container, "_OWN", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: set(range(64)), raising=False)
    return tmp_path


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{text}\n")


def test_without_groups_all_cores_of_the_affinity_count(root: Path) -> None:
    assert container.cores() == 64


def test_a_system_that_tells_no_affinity(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert container.cores() == 12
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert container.cores() == 1


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000", 64),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("1000 100000", 1),
        ("9000000 100000", 64),
        ("50000 25000", 2),
        ("", 64),
        ("garbage", 64),
        ("100000 0", 64),
    ],
)
def test_version_2(root: Path, limit: str, expected: int) -> None:
    (root / "own").write_text("0::/\n")
    write(root, cpu_max=limit)
    assert container.cores() == expected


def test_the_tightest_group_on_the_way_counts(root: Path) -> None:
    (root / "own").write_text("0::/jupyter.slice/user.service\n")
    write(root / "jupyter.slice", cpu_max="300000 100000")
    write(root / "jupyter.slice" / "user.service", cpu_max="max 100000")
    write(root / "other.service", cpu_max="100000 100000")
    assert container.cores() == 3


@pytest.mark.parametrize("controllers", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(("quota", "expected"), [(-1, 64), (400_000, 4), (150_000, 2)])
def test_version_1(root: Path, controllers: str, quota: int, expected: int) -> None:
    """Docker names the machine's path and shows the group as the root."""
    (root / "own").write_text(f"4:memory:/x\n3:{controllers}:/docker/abc\n2:cpuset:/\n0::/\n")
    write(root / controllers, cpu_cfs_quota_us=quota, cpu_cfs_period_us=100_000)
    assert container.cores() == expected
    write(root / controllers / "docker/abc", cpu_cfs_quota_us=100_000, cpu_cfs_period_us=100_000)
    assert container.cores() == 1


def test_memory_without_groups_has_no_limit(root: Path) -> None:
    assert container.memory_limits() == []


def test_memory_of_version_2(root: Path) -> None:
    """What is cached of files can be given up; the group above limits too."""
    (root / "own").write_text("0::/a.slice/b.service\n")
    write(root / "a.slice", memory_max=9_000, memory_current=5_000)
    inner = root / "a.slice" / "b.service"
    write(inner, memory_max=1_000, memory_current=700, memory_stat="anon 600\ninactive_file 100")
    assert container.memory_limits() == [MemoryLimit(9_000, 4_000), MemoryLimit(1_000, 400)]
    write(inner, memory_max="max")
    assert container.memory_limits() == [MemoryLimit(9_000, 4_000)]


@pytest.mark.parametrize("inside", [True, False], ids=["a container", "the machine"])
def test_memory_of_version_1(root: Path, inside: bool) -> None:
    """A container is shown its group as the root; without a limit there is a huge number."""
    (root / "own").write_text("4:memory:/docker/abc\n3:cpu:/\n0::/\n")
    memory = root / "memory"
    there = memory if inside else memory / "docker" / "abc"
    write(memory, memory_limit_in_bytes=0x7FFFFFFFFFFFF000, memory_usage_in_bytes=10**10)
    assert container.memory_limits() == []
    stat = "inactive_file 7\ntotal_inactive_file 100"
    write(there, memory_limit_in_bytes=1_000, memory_usage_in_bytes=700, memory_stat=stat)
    assert container.memory_limits() == [MemoryLimit(1_000, 400)]


@pytest.mark.parametrize("garbage", ["", "garbage", "inactive_file", "inactive_file x"])
def test_memory_without_a_count_of_cached_files(root: Path, garbage: str) -> None:
    write(root, memory_max=1_000, memory_current=700, memory_stat=garbage)
    assert container.memory_limits() == [MemoryLimit(1_000, 300)]
    (root / "memory.current").unlink()
    assert container.memory_limits() == [MemoryLimit(1_000, 1_000)]


def test_a_period_of_nothing_is_no_limit(root: Path) -> None:
    (root / "own").write_text("3:cpu:/\n")
    write(root / "cpu", cpu_cfs_quota_us=100_000, cpu_cfs_period_us=0)
    assert container.cores() == 64


def test_a_group_outside_of_what_is_shown_is_its_root(root: Path) -> None:
    (root / "own").write_text("0::/../other\n")
    write(root, cpu_max="200000 100000")
    assert container.cores() == 2


def test_here_it_is_as_many_as_there_are_or_fewer() -> None:
    assert 1 <= container.cores() <= (os.cpu_count() or 1)
