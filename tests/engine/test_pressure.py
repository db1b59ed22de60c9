"""What the limit does when the system's memory comes and goes; nothing runs, no clock is real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import pytest

from mlxnb import container
from mlxnb.cache.room import Tight
from mlxnb.cache.store import PrefixCache
from mlxnb.engine import pressure
from mlxnb.engine.budget import default_budget, limit_pool, pool_bytes, reserve_bytes
from mlxnb.engine.pressure import RECOVERY_S, Pressure, refusal
from mlxnb.errors import BudgetExceeded, ShortOfMemory
from mlxnb.models import memory

MIB, GIB = 2**20, 2**30
BUDGET, RESERVE = 600 * MIB, 100 * MIB


class Sight:
    """A room that holds ``held`` bytes, ``in_use`` of them in use, and a system to look at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = PrefixCache(BUDGET)
        self.room = self.store.room
        self.held = self.in_use = 0
        self.left = 10 * GIB
        self.now = 0.0
        self.asked = 0
        kind = type(self.room)
        monkeypatch.setattr(kind, "nbytes", property(lambda room: self.held))
        monkeypatch.setattr(kind, "in_use", property(lambda room: self.in_use))
        monkeypatch.setattr(kind, "shrink", lambda room: self._shrink())
        self.pressure = Pressure(lambda: self.room, self._available, RESERVE, lambda: self.now)

    def _available(self) -> int:
        self.asked += 1
        return self.left

    def _shrink(self) -> None:
        gone = max(0, self.held - self.room.limit)
        self.held, self.left = self.held - gone, self.left + gone

    def look(self, left: int, seconds: float = 1.0) -> int:
        """The limit after a look at a system that has so many bytes left."""
        self.left, self.now = left, self.now + seconds
        self.pressure.look()
        return self.room.limit


@pytest.fixture
def sight(monkeypatch: pytest.MonkeyPatch) -> Sight:
    return Sight(monkeypatch)


# --- the limit --------------------------------------------------------------------------------


def test_with_memory_to_spare_the_limit_is_the_budget(sight: Sight) -> None:
    assert sight.look(10 * GIB) == BUDGET
    assert sight.look(RESERVE + BUDGET) == BUDGET


def test_it_looks_once_a_second_at_the_most(sight: Sight) -> None:
    for _ in range(20):
        sight.look(10 * GIB, seconds=0.26)
    assert sight.asked == 5


def test_what_is_missing_is_taken_from_what_is_held(sight: Sight) -> None:
    sight.held = 300 * MIB
    assert sight.look(RESERVE - 80 * MIB) == 220 * MIB == sight.held


def test_the_limit_is_what_the_system_can_give(sight: Sight) -> None:
    """Before the reserve is touched: a request that would need more does not begin."""
    sight.held = 50 * MIB
    assert sight.look(RESERVE + 30 * MIB) == 80 * MIB


def test_what_is_in_use_stays(sight: Sight) -> None:
    sight.held = sight.in_use = 300 * MIB
    assert sight.look(0) == 300 * MIB == sight.held


def test_it_comes_back_slowly(sight: Sight) -> None:
    sight.look(RESERVE)
    assert sight.room.limit == 0
    limits = [sight.look(10 * GIB) for _ in range(int(RECOVERY_S) + 1)]
    assert limits[0] == int(BUDGET / RECOVERY_S)
    assert limits == sorted(limits)
    assert limits[len(limits) // 2] < limits[-1] == BUDGET
    assert sight.room.pressed is None


def test_it_stays_while_little_more_than_the_reserve_is_left(sight: Sight) -> None:
    sight.look(RESERVE)
    assert [sight.look(RESERVE + RESERVE // 4) for _ in range(5)] == [0] * 5
    assert sight.look(RESERVE + RESERVE // 4 + MIB) > 0


def test_a_long_rest_brings_it_back_at_once(sight: Sight) -> None:
    sight.look(RESERVE)
    assert sight.look(10 * GIB, seconds=3600) == BUDGET


def test_another_budget_is_kept_to(sight: Sight) -> None:
    sight.look(RESERVE + 300 * MIB)
    assert sight.room.limit == 300 * MIB
    sight.room.budget = 200 * MIB
    assert sight.room.limit == 200 * MIB


def test_mlx_gives_its_free_pool_first(sight: Sight, monkeypatch: pytest.MonkeyPatch) -> None:
    sight.held, pool = 300 * MIB, [40 * MIB]

    def clear() -> None:
        sight.left += pool.pop() if pool else 0

    fake = SimpleNamespace(get_cache_memory=lambda: sum(pool), clear_cache=clear)
    monkeypatch.setattr(pressure, "mx", fake)
    assert sight.look(RESERVE - 30 * MIB) == 310 * MIB
    assert sight.held == 300 * MIB
    assert sight.look(RESERVE - 30 * MIB) == 270 * MIB


def test_a_system_that_cannot_say_is_no_fault(
    sight: Sight, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> int:
        raise OSError("no /proc")

    made = Pressure(lambda: sight.room, fails, RESERVE)
    made.look()
    made.check(BUDGET)
    assert sight.room.limit == BUDGET
    assert "no /proc" in caplog.text


# --- what may pass it -------------------------------------------------------------------------


def test_a_request_that_waits_for_nobody_gets_what_there_is_at_once(sight: Sight) -> None:
    sight.look(RESERVE)
    sight.left = RESERVE + 50 * MIB
    assert not sight.pressure.ease(Tight("", 51 * MIB), False)
    assert sight.pressure.ease(Tight("", 50 * MIB), False)
    assert sight.room.limit == 50 * MIB
    sight.held, sight.left = 50 * MIB, RESERVE
    assert sight.look(RESERVE) == 50 * MIB


def test_what_runs_may_take_three_quarters_of_the_reserve(sight: Sight) -> None:
    sight.held = sight.in_use = 300 * MIB
    sight.look(RESERVE)
    assert sight.pressure.ease(Tight("", RESERVE * 3 // 4), True)
    sight.room.press(300 * MIB)
    assert not sight.pressure.ease(Tight("", RESERVE * 3 // 4 + 1), True)
    assert not sight.pressure.ease(Tight("", 1), False)


def test_nobody_gets_more_than_the_budget(sight: Sight) -> None:
    sight.look(RESERVE)
    sight.left = 10 * GIB
    assert not sight.pressure.ease(Tight("", BUDGET + 1), False)
    assert sight.pressure.ease(Tight("", BUDGET), False)
    assert sight.room.limit == BUDGET


def test_what_is_not_kv_is_not_helped_by_a_higher_limit(sight: Sight) -> None:
    assert not sight.pressure.ease(Tight("activations"), True)


def test_what_could_not_begin_whatever_ended_is_refused(sight: Sight) -> None:
    sight.held, sight.left = 100 * MIB, RESERVE + 50 * MIB
    sight.pressure.check(150 * MIB)
    with pytest.raises(ShortOfMemory, match="try again later"):
        sight.pressure.check(150 * MIB + 1)
    sight.pressure.check(BUDGET + 1)  # which is not the system's fault


def test_a_refusal_says_who_is_short() -> None:
    tight = refusal("", "raise it", Tight("it is tight"))
    assert isinstance(tight, ShortOfMemory) and "close other programs" in str(tight)
    full = refusal("", "raise it", RuntimeError("it is full"))
    assert type(full) is BudgetExceeded and str(full) == "it is full; raise it"


# --- how memory is shared out -----------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the machine's memory, and a container's limit."""
    monkeypatch.setattr(container, "_ROOT", tmp_path)
    monkeypatch.setattr(container, "_OWN", tmp_path / "cgroup")
    monkeypatch.setattr(mx, "device_info", dict)

    def set_to(total: int, container: int | None = None, group: str = "/") -> None:
        found = SimpleNamespace(total=total, available=total)
        monkeypatch.setattr("psutil.virtual_memory", lambda: found)
        (tmp_path / "cgroup").write_text(f"0::{group}\n")
        folder = tmp_path / group.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text("max" if container is None else str(container))
        (folder / "memory.current").write_text(str(100 * MIB))

    return set_to


@pytest.mark.parametrize("group", ["/", "/jupyter.slice/user-1.service"])
def test_a_container_s_limit_is_the_memory(machine: Callable[..., None], group: str) -> None:
    machine(64 * GIB, 4 * GIB, group)
    assert memory.memory_bytes() == 4 * GIB
    assert memory.available_bytes() == 4 * GIB - 100 * MIB == memory.left_bytes()
    assert default_budget(0) == GIB
    machine(64 * GIB, None, group)
    assert default_budget(0) == 16 * GIB
    assert memory.left_bytes() is None


def test_a_group_outside_of_what_a_container_shows_is_its_root(
    machine: Callable[..., None], tmp_path: Path
) -> None:
    machine(64 * GIB, 4 * GIB)
    (tmp_path / "cgroup").write_text("0::/../other\n")
    assert memory.memory_bytes() == 4 * GIB


def test_weights_count(machine: Callable[..., None]) -> None:
    machine(16 * GIB)
    total = int(0.85 * 16 * GIB)
    assert default_budget(10 * GIB) == total - 10 * GIB - GIB
    assert default_budget(13 * GIB) == 256 * MIB


@pytest.mark.parametrize(
    ("total", "reserve", "pool"),
    [
        (64 * GIB, 2048 * MIB, 1024 * MIB),
        (32 * GIB, 32 * GIB // 20, 1024 * MIB),
        (8 * GIB, 512 * MIB, 512 * MIB),
        (2 * GIB, 256 * MIB, 128 * MIB),
    ],
)
def test_shares_of_the_memory(total: int, reserve: int, pool: int) -> None:
    assert (reserve_bytes(total), pool_bytes(total)) == (reserve, pool)


def test_the_pool_s_limit_is_lowered_and_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [2**40]

    def set_limit(limit: int) -> int:
        limits.append(limit)
        return limits[-2]

    monkeypatch.setattr(mx, "set_cache_limit", set_limit)
    monkeypatch.setattr("mlxnb.engine.budget.memory_bytes", lambda: 8 * GIB)
    limit_pool()
    assert limits[-1] == 512 * MIB
    limits.append(32 * MIB)
    limit_pool()
    assert limits[-1] == 32 * MIB
