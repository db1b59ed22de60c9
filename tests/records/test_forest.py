"""Blocks that follow one another alone are one run, and no number is lost."""

from __future__ import annotations

import random

from plot.made import block, cache, chain, prefix

from mlxnb.records.block_row import BlockRow
from mlxnb.records.forest import Run, forest


def flat(*rows: BlockRow, wide: bool = True) -> list[Run]:
    return [run for root in forest(prefix(*rows, wide=wide)) for run in root.walk()]


def shape(runs: list[Run]) -> list[tuple[int, str, str]]:
    return [(run.depth, run.blocks[0], run.blocks[-1]) for run in runs]


def test_runs_end_where_chains_part() -> None:
    assert shape(flat(*cache())) == [
        (0, "h1", "h1"),
        (0, "a0", "a2"),
        (1, "b0", "b2"),
        (1, "d0", "d3"),
        (1, "c1", "c1"),
    ]


def test_a_run_has_the_sums_of_its_rows() -> None:
    run = flat(*cache())[1]
    assert (run.start, run.end, run.tokens, run.bytes, run.hits) == (0, 48, 48, 3_000, 4)
    assert run.leaves == 2
    assert run.preview == "<a0><a1><a2>"


def test_hits_and_tiers_part_runs_and_a_pinned_block_ends_one() -> None:
    rows = [
        *chain("a", None, 0, 2, hits=2),
        block("b", "a1", 32),
        block("c", "b", 48, pinned=True),
        block("d", "c", 64),
        block("e", "d", 80, tier="disk"),
    ]
    runs = flat(*rows)
    assert [run.blocks for run in runs] == [["a0", "a1"], ["b", "c"], ["d"], ["e"]]
    assert [run.pinned for run in runs] == [False, True, False, False]


def test_a_run_goes_when_its_first_row_to_go_does() -> None:
    rows = [block("a", None, 0, evict_order=5), block("b", "a", 16, evict_order=2)]
    assert [run.evict_order for run in flat(*rows)] == [2]
    assert [run.evict_order for run in flat(*rows, wide=False)] == [None]


def test_blocks_whose_parent_is_not_there_are_roots() -> None:
    assert shape(flat(block("b", "gone", 16), block("c", "b", 32))) == [(0, "b", "c")]


def test_no_rows_are_no_runs() -> None:
    assert forest(prefix()) == []


def test_long_chains_are_walked_without_recursion() -> None:
    rows = [
        block(f"n{at}", f"n{at - 1}" if at else None, 16 * at, hits=at % 2) for at in range(4_000)
    ]
    assert [run.depth for run in flat(*rows)] == list(range(4_000))


def test_every_row_is_in_one_run_whatever_the_tree() -> None:
    chance = random.Random(3)
    for _ in range(40):
        rows: list[BlockRow] = []
        for number in range(chance.randrange(1, 40)):
            parent = chance.choice([None, *rows])
            start = 0 if parent is None else parent.start + parent.tokens
            name = None if parent is None else parent.block_id
            rows.append(block(f"n{number}", name, start, hits=chance.randrange(2)))
        runs = flat(*rows)
        assert sorted(name for run in runs for name in run.blocks) == sorted(
            row.block_id for row in rows
        )
        assert sum(run.bytes for run in runs) == sum(row.bytes for row in rows)
        ends = len(rows) - len({row.parent_id for row in rows} - {None})
        assert sum(run.leaves for run in runs if run.parent is None) == ends
