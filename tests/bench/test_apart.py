from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mlxnb.bench.apart import Apart, BenchFailed


def make(value: int) -> dict[str, int]:
    return {"value": value}


def add(made: dict[str, int], more: int) -> int:
    made["value"] += more
    return made["value"]


def variable(made: object, name: str) -> str | None:
    return os.environ.get(name)


def fail(made: object) -> None:
    raise ValueError("no such thing")


def die(made: object) -> None:
    os._exit(7)


def never() -> None:
    raise LookupError("nothing to make")


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    apart = Apart(make, 5, environment={"MLXNB_TEST_SWITCH": "on"})
    yield apart
    apart.close()


def test_the_object_stays_there_between_calls(apart: Apart) -> None:
    first = apart(add, 1)
    assert apart(add, 10) == first + 10


def test_its_process_has_its_own_switches(apart: Apart) -> None:
    assert apart(variable, "MLXNB_TEST_SWITCH") == "on"
    assert "MLXNB_TEST_SWITCH" not in os.environ


def test_what_fails_there_is_told_here_and_the_next_call_runs(apart: Apart) -> None:
    with pytest.raises(BenchFailed, match="ValueError: no such thing"):
        apart(fail)
    assert apart(add, 0) >= 5


def test_an_object_that_cannot_be_made_is_told() -> None:
    with pytest.raises(BenchFailed, match="LookupError: nothing to make"):
        Apart(never)


def test_a_process_that_dies_is_told() -> None:
    apart = Apart(make, 0)
    with pytest.raises(BenchFailed, match=r"ended \(status 7\)"):
        apart(die)
    apart.close()
