"""The page on architectures says what is measured, of each that mlx-lm has."""

from __future__ import annotations

import mlx.core as mx
import pytest
from architectures import NOT_BUILT, VARIANTS, architectures

from families.measure import measure
from families.table import APART, PAGE, built, line_of, lines_in, page_of

LINES = lines_in(PAGE.read_text("utf-8"))


def test_each_architecture_has_a_row_or_a_reason() -> None:
    """One that comes with a new version of mlx-lm needs one of the two."""
    assert list(LINES) == built()
    assert sorted({*LINES, *NOT_BUILT} - VARIANTS.keys()) == architectures()


def test_the_page_is_as_it_is_written() -> None:
    assert page_of(list(LINES.values())) == PAGE.read_text("utf-8")


def test_what_goes_on_otherwise_than_a_cold_run_has_its_reason() -> None:
    assert {name for name, line in LINES.items() if "| > 1e-4 |" in line} == APART.keys()


def test_a_wrong_token_shows_in_all() -> None:
    assert [name for name, line in LINES.items() if "| > 1e-3 |" not in line] == []


@pytest.mark.parametrize("name", built())
def test_a_row_says_what_is_measured(name: str) -> None:
    assert line_of(measure(name)) == LINES[name]


@pytest.mark.skipif(mx.metal.is_available(), reason="what needs Metal runs")
@pytest.mark.parametrize("name", NOT_BUILT)
def test_what_is_said_not_to_run_does_not(name: str) -> None:
    says = {"bitnet": "Metal", "muse_spark": "Metal", "olmo": "1", "prism_hadamard_qwen35": "pack"}
    with pytest.raises((Exception, SystemExit), match=says[name]):
        measure(name)
