from __future__ import annotations

from mlxnb.bench.figures import Cost, Figure, Sheet


def test_a_figure_is_the_median_of_its_samples_and_their_range() -> None:
    figure = Figure("rates", "decode", "tokens/s", (3.0, 1.0, 8.0))
    assert (figure.median, figure.low, figure.high) == (3.0, 1.0, 8.0)


def test_what_was_not_run_has_no_value() -> None:
    figure = Figure("rates", "decode", "tokens/s", (), note="not run")
    assert (figure.median, figure.low, figure.high) == (None, None, None)


def test_the_bound_is_what_takes_longer_of_reading_and_computing() -> None:
    reading, computing = Cost(nbytes=100, operations=10), Cost(nbytes=10, operations=100)
    assert Figure("p", "w", "u", (1.0,), cost=reading).bound(50, 20) == 0.5
    assert Figure("p", "w", "u", (1.0,), cost=computing).bound(50, 20) == 0.2


def test_a_sheet_keeps_the_samples_of_each_apart() -> None:
    sheet = Sheet("part")
    sheet.add("a", "s", 1.0)
    sheet.add("a", "ms", 5.0)
    sheet.add("a", "s", 2.0, who="llama-cpp")
    sheet.add("a", "s", 3.0)
    assert [(f.unit, f.who, f.samples) for f in sheet.figures()] == [
        ("s", "mlxnb", (1.0, 3.0)),
        ("ms", "mlxnb", (5.0,)),
        ("s", "llama-cpp", (2.0,)),
    ]


def test_what_is_left_out_says_why() -> None:
    sheet = Sheet("part")
    sheet.leave_out("a", "s", "mlx-lm", "too slow")
    assert [(f.samples, f.note) for f in sheet.figures()] == [((), "too slow")]
