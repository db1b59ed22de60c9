"""The doctor's report: what is in it, what is not, and what it makes the command return."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxnb import __version__, cli, doctor, native
from mlxnb.doctor.conversation import SAID, SYSTEM
from mlxnb.doctor.finding import Finding
from mlxnb.doctor.kernels import CPU
from mlxnb.doctor.report import report
from mlxnb.models.demo import demo_ready


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of this machine, without a bench."""
    file = tmp_path_factory.mktemp("doctor") / "report.md"
    assert cli.main(["doctor", "--no-bench", "--report", str(file)]) == 0
    return file.read_text(encoding="utf-8")


def test_it_names_versions_and_the_device(written: str) -> None:
    assert f"| mlxnb | {__version__} |" in written
    assert "| mlx | 0.32." in written
    assert "| MLX computes | good | Device(" in written


def test_it_says_which_kernels_are_in_use_or_why_not(written: str) -> None:
    reason = native.reason()
    assert "our CPU kernels | good | in use: " in written if reason is None else reason in written
    assert "our Metal kernels | – | not in use: " in written


@pytest.mark.skipif(not native.available(), reason=native.reason() or "")
def test_it_has_each_kernel_and_attention_over_blocks(written: str) -> None:
    assert all(f"| {name} | good | " in written for name in CPU)
    assert "| rows over blocks, NativeKernels, window 9 | good | " in written


@pytest.mark.skipif(not demo_ready(), reason="the demo model is not here")
def test_the_demo_model_is_tried_on_contiguous_caches(written: str) -> None:
    assert "| demo model, contiguous KV: answers as without reuse | good | " in written


@pytest.mark.skipif(not demo_ready() or not native.available(), reason="no model or no kernels")
def test_the_demo_model_is_tried_on_blocks(written: str) -> None:
    assert "| demo model, KV in blocks: answers as without reuse | good | " in written


def test_nothing_that_was_said_and_no_path_is_in_it(written: str) -> None:
    assert not [text for text in (SYSTEM, *SAID) if text in written]
    assert str(Path.home()) not in written
    assert sys.prefix not in written


def test_it_asks_for_reports_of_macs(written: str) -> None:
    assert "if this was a Mac, please send this report" in written


# --- when something is bad ----------------------------------------------------------------------


def checks_that_find(*findings: Finding) -> object:
    def checks() -> Iterator[Finding]:
        yield from findings

    return checks


@pytest.mark.parametrize(
    ("good", "status", "word"),
    [
        (True, 0, "1 checks were good, 0 bad"),
        (None, 0, "0 checks were good, 0 bad"),
        (False, 1, "0 checks were good, 1 bad"),
    ],
)
def test_only_a_bad_check_makes_it_fail(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    good: bool | None,
    status: int,
    word: str,
) -> None:
    monkeypatch.setattr(doctor, "_checks", checks_that_find(Finding("it", good, "so")))
    assert cli.main(["doctor", "--no-bench"]) == status
    assert word in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("print('12 tokens/s')", 0, "```\n12 tokens/s\n```"),
        (
            "import sys; sys.exit('no model')",
            1,
            "| bench | **bad** | ended with status 1: no model",
        ),
    ],
)
def test_the_bench_is_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: str,
    status: int,
    told: str,
) -> None:
    monkeypatch.setattr(doctor, "_checks", checks_that_find())
    monkeypatch.setattr(doctor, "demo_ready", lambda: True)
    monkeypatch.setattr(doctor, "BENCH", code)
    assert cli.main(["doctor"]) == status
    assert told in capsys.readouterr().out


def test_the_bench_does_not_fetch_what_it_would_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path))
    monkeypatch.setattr(doctor, "_checks", checks_that_find())
    monkeypatch.setattr(doctor, "BENCH", "import sys; sys.exit('it was run')")
    assert cli.main(["doctor"]) == 0
    assert "| bench | – | measures the demo model, which is not" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_told_before_anything_is_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_checks", lambda: pytest.fail("checked"))
    assert cli.main(["doctor", "--report", str(tmp_path / "no" / "report.md")]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("mlxnb doctor: the report cannot be written to ")
    assert printed.out == ""


def test_a_cell_stays_one_whatever_is_told() -> None:
    text = report({}, [Finding("it", False, "a | b\nc")], "")
    assert "| it | **bad** | a \\| b c |" in text
