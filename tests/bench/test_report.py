from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlxnb.bench.chart import draw, panels
from mlxnb.bench.figures import Cost, Figure
from mlxnb.bench.report import Report
from mlxnb.errors import InvalidOption

MACHINE = {"processor": "abacus", "cores": "2"}
ROOF = [
    Figure("roofline", "streaming reads, all cores", "GB/s", (9.0, 10.0)),
    Figure("roofline", "float32 product, NumPy's BLAS", "GFLOP/s", (80.0, 100.0)),
    Figure("roofline", "float32 product, our kernels", "GFLOP/s", (90.0,)),
]
RATES = [
    Figure("rates", "decode after 8", "tokens/s", (40.0, 50.0, 60.0), cost=Cost(1e8, 1e8)),
    Figure("rates", "decode after 8", "tokens/s", (20.0, 30.0), who="llama-cpp"),
]


@pytest.fixture
def report() -> Report:
    return Report(MACHINE, [*ROOF, *RATES])


def row(report: Report) -> dict[str, object]:
    frame = report.frame()
    found: dict[str, object] = frame[frame.part == "rates"].iloc[0].to_dict()
    return found


def test_ours_and_anothers_are_one_row_with_their_ratio(report: Report) -> None:
    found = row(report)
    assert (found["median"], found["low"], found["high"]) == (50.0, 40.0, 60.0)
    assert (found["llama-cpp"], found["× llama-cpp"]) == (25.0, 2.0)


def test_the_bound_is_of_the_best_that_was_measured(report: Report) -> None:
    found = row(report)
    assert (found["bound"], found["of_bound"]) == (100.0, 0.5)


def test_without_a_roofline_there_is_no_bound() -> None:
    assert str(row(Report(MACHINE, [*RATES]))["bound"]) == "nan"


def test_a_later_figure_replaces_the_same_where_it_stands(report: Report) -> None:
    report.add([Figure("rates", "decode after 8", "tokens/s", (70.0,))])
    assert [f.samples for f in report.figures[-2:]] == [(70.0,), (20.0, 30.0)]


def test_what_was_saved_is_added_to(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "run.json")
    later = Report(MACHINE)
    later.load(tmp_path / "run.json")
    assert later == report


def test_the_file_holds_medians_and_bounds_for_others_to_read(
    report: Report, tmp_path: Path
) -> None:
    report.save(tmp_path / "run.json")
    content = json.loads((tmp_path / "run.json").read_text("utf-8"))
    assert content["machine"] == MACHINE
    assert [f["bound"] for f in content["figures"]] == [None, None, None, 100.0, None]
    assert [f["median"] for f in content["figures"]] == [9.5, 90.0, 90.0, 50.0, 25.0]


def test_a_file_of_another_machine_is_refused(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "run.json")
    other = Report({**MACHINE, "cores": "64"})
    with pytest.raises(InvalidOption, match=r"another run \(cores differ\); name another file"):
        other.load(tmp_path / "run.json")


@pytest.mark.parametrize("text", ["", "{}", '{"machine": {}, "figures": [{"part": "x"}]}'])
def test_a_file_of_something_else_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text, "utf-8")
    with pytest.raises(InvalidOption, match="does not hold a bench's figures"):
        Report(MACHINE).load(tmp_path / "run.json")


def test_what_was_not_run_is_told_below_the_table(report: Report) -> None:
    report.add([Figure("rates", "decode after 8", "tokens/s", (), who="mlx-lm", note="too slow")])
    assert str(report).splitlines()[-1] == "mlx-lm, decode after 8: too slow"


def test_large_numbers_have_no_fraction_and_small_ones_four_digits(report: Report) -> None:
    report.add([Figure("kv", "KV", "bytes", (12345678.0,)), Figure("p", "w", "s", (0.0123456,))])
    assert "12,345,678" in str(report)
    assert "0.01235" in str(report)


def test_the_chart_has_a_panel_for_what_was_measured(report: Report) -> None:
    assert list(panels(report.figures)) == ["Decode, tokens/s"]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_chart_is_written_as_its_name_says(report: Report, tmp_path: Path, suffix: str) -> None:
    report.add([Figure("rates", "decode after 9", "tokens/s", (), who="mlx-lm", note="slow")])
    file = tmp_path / f"chart.{suffix}"
    draw(report, file)
    magic = {"png": b"\x89PNG", "svg": b"<?xml"}[suffix]
    assert file.read_bytes().startswith(magic)
