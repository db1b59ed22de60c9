"""What a container, a service or a batch job may use of the machine: Linux's control groups."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_NO_LIMIT = 2**62
"""Bytes from which on a limit is version 1's way to say that there is none."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """What a control group may take, and what of that is left, its file cache included; bytes."""

    limit: int
    left: int


def cores() -> int:
    """Cores that this process may use: of its affinity, and within its quota of time, rounded up.

    More threads than that would use the quota up in a part of each period, and all of them stand
    still for the rest of it.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    there = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quotas = [math.ceil(quota) for quota in [*_quotas(), *_quotas_of_version_1()]]
    return max(1, min([there, *quotas]))


def memory_limits() -> list[MemoryLimit]:
    """Of each control group that limits the memory of this process."""
    return [
        *_limits("", "memory.max", "memory.current", "inactive_file"),
        *_limits("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ]


def _limits(controller: str, most: str, used: str, cached: str) -> Iterator[MemoryLimit]:
    """The limits of one version, by the names of its files and of a line of ``memory.stat``."""
    for folder in _groups(controller):
        limit = _number(folder / most)
        if limit is None or not 0 < limit < _NO_LIMIT:
            continue
        current = _number(folder / used)
        left = limit if current is None else limit - current + _stat(folder, cached)
        yield MemoryLimit(limit, left)


def _stat(folder: Path, name: str) -> int:
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
        return int(dict(line.split() for line in lines).get(name, "0"))
    except (OSError, ValueError):
        return 0


def _groups(controller: str = "") -> list[Path]:
    """The control groups that this process is in, the root's included; by default of version 2.

    Those of version 1 are asked for by their controller, such as ``cpu``.
    """
    try:
        lines = [line.split(":", 2) for line in _OWN.read_text().splitlines()]
    except OSError:
        lines = []
    found = [line[1:] for line in lines if controller in line[1].split(",")]
    hierarchy, path = found[0] if found else (controller, "/")
    parts = [part for part in path.split("/") if part]
    if ".." in parts:  # it lies outside of what a container shows
        parts = []
    root = _ROOT / hierarchy
    return [root.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]


def _number(file: Path) -> int | None:
    """The number in a file of a control group; None: ``max``, or no such file."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _quotas() -> list[float]:
    """Seconds of processor time a second, of each group that limits them."""
    found = []
    for folder in _groups():
        try:
            quota, period = map(int, (folder / "cpu.max").read_text().split())
            found.append(quota / period)
        except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max 100000"
            continue
    return found


def _quotas_of_version_1() -> list[float]:
    found = []
    for folder in _groups("cpu"):
        quota = _number(folder / "cpu.cfs_quota_us")
        period = _number(folder / "cpu.cfs_period_us")
        if quota is not None and period and quota > 0:  # -1: no limit
            found.append(quota / period)
    return found
