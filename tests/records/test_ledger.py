"""The ledger keeps turns in order of start, within its bounds, from any thread."""

from __future__ import annotations

import threading
from array import array

import pytest
from conversation import turn

from mlxnb.errors import InvalidOption, UnknownTurn
from mlxnb.records.ledger import Ledger


def filled(count: int, **limits: int) -> Ledger:
    ledger = Ledger(**limits)
    for _ in range(count):
        record = turn(int(ledger.new_id()[1:]), ("user", "Hi"))
        ledger.open(record)
        ledger.close(record)
    return ledger


def test_ids_count_from_t1() -> None:
    ledger = Ledger()
    assert [ledger.new_id() for _ in range(3)] == ["t1", "t2", "t3"]


def test_rows_are_in_order_of_start_whatever_ends_first() -> None:
    ledger = Ledger()
    first, second = turn(1, ("user", "a")), turn(2, ("user", "b"))
    ledger.open(first)
    ledger.open(second)
    ledger.close(second)
    ledger.close(first)
    assert list(ledger) == [first, second]


def test_a_row_is_there_from_its_start_and_is_the_engines_own_object() -> None:
    ledger, record = Ledger(), turn(1, ("user", "a"), finish_reason=None)
    ledger.open(record)
    record.finish_reason = "length"
    assert ledger["t1"] is record
    assert ledger.last().finish_reason == "length"
    assert "t1" in ledger and len(ledger) == 1


def test_an_empty_ledger_has_no_rows_and_no_last_turn() -> None:
    ledger = Ledger()
    assert list(ledger) == ledger.rows() == []
    with pytest.raises(UnknownTurn, match="no turn yet"):
        ledger.last()
    with pytest.raises(UnknownTurn, match="no turn yet"):
        ledger["t1"]


def test_an_unknown_id_names_near_ones_and_what_is_there() -> None:
    with pytest.raises(UnknownTurn, match=r"'turn12': the ledger holds t1 to t15; near: .*t12"):
        filled(15)["turn12"]


def test_a_dropped_id_is_said_to_be_dropped() -> None:
    with pytest.raises(UnknownTurn, match="'t2' is not kept: the ledger holds t3 to t5"):
        filled(5, limit=3)["t2"]


def test_rows_beyond_the_limit_are_dropped_oldest_first() -> None:
    assert [record.turn_id for record in filled(5, limit=3)] == ["t3", "t4", "t5"]


def test_only_the_newest_rows_keep_tokens_and_spans() -> None:
    rows = list(filled(5, keep_tokens=2))
    assert [len(row.prompt) > 0 for row in rows] == [False, False, False, True, True]
    assert [len(row.output) > 0 for row in rows] == [False, False, False, True, True]
    assert [bool(row.spans) for row in rows] == [False, False, False, True, True]
    assert all(row.usage.prompt_tokens > 0 for row in rows)


def test_dropping_leaves_the_arrays_that_a_reader_holds() -> None:
    ledger = filled(1, keep_tokens=1)
    held = ledger["t1"].prompt
    ledger.open(turn(2, ("user", "b")))
    assert len(held) > 0 and ledger["t1"].prompt == array("I")


def test_an_open_row_keeps_its_tokens_until_it_is_closed() -> None:
    ledger = Ledger(keep_tokens=1)
    record = turn(1, ("user", "a"))
    ledger.open(record)
    for number in range(2, 5):
        ledger.open(turn(number, ("user", "b")))
    assert len(record.prompt) > 0
    ledger.close(record)
    assert len(record.prompt) == 0


def test_a_row_dropped_while_open_can_be_closed() -> None:
    ledger = Ledger(limit=1)
    record = turn(1, ("user", "a"))
    ledger.open(record)
    ledger.open(turn(2, ("user", "b")))
    ledger.close(record)
    assert [row.turn_id for row in ledger] == ["t2"]


def test_closing_twice_is_an_error_of_ours() -> None:
    ledger = filled(1)
    with pytest.raises(AssertionError, match="t1 is not open"):
        ledger.close(ledger["t1"])


def test_before_has_the_earlier_rows_with_tokens() -> None:
    ledger = filled(5, keep_tokens=3)
    assert [row.turn_id for row in ledger.before("t5")] == ["t3", "t4"]
    assert ledger.before("t3") == []
    assert ledger.before("t1") == []
    with pytest.raises(UnknownTurn):
        ledger.before("t9")


def test_a_snapshot_does_not_see_later_turns() -> None:
    ledger = filled(2)
    rows = iter(ledger)
    ledger.open(turn(3, ("user", "b")))
    assert [row.turn_id for row in rows] == ["t1", "t2"]


@pytest.mark.parametrize("limits", [{"limit": 0}, {"keep_tokens": -1}])
def test_impossible_limits_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(InvalidOption, match="limit >= 1"):
        Ledger(**limits)


def test_a_limit_below_the_tokens_limit_lets_rows_and_tokens_go_together() -> None:
    ledger = filled(6, limit=2, keep_tokens=4)
    assert [row.turn_id for row in ledger.before("t6")] == ["t5"]


def test_eight_threads_lose_and_double_nothing() -> None:
    ledger, errors = Ledger(limit=100_000, keep_tokens=50), []
    start = threading.Barrier(8)

    def work() -> None:
        try:
            start.wait()
            for _ in range(200):
                record = turn(int(ledger.new_id()[1:]), ("user", "Hi"))
                ledger.open(record)
                assert record in ledger.rows()
                assert all(row.turn_id != record.turn_id for row in ledger.before(record.turn_id))
                ledger.close(record)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(ledger) == 1600
    assert {row.turn_id for row in ledger} == {f"t{number}" for number in range(1, 1601)}
    assert sum(len(row.prompt) > 0 for row in ledger) == 50
