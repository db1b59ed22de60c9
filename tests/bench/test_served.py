"""Parts that are about what is around a model: the notebook port, grammars, busy cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing

import pytest

from mlxnb.bench import busy, constrained, port
from mlxnb.bench.apart import BenchFailed
from mlxnb.bench.bed import Bed
from mlxnb.bench.figures import Figure
from mlxnb.bench.parts import Contest
from mlxnb.bench.runs import whole
from mlxnb.bench.served import Client
from mlxnb.bench.sizes import Sizes
from mlxnb.models.source import ModelSource

from .here import Here


@pytest.fixture
def contest(source: ModelSource, sizes: Sizes) -> Iterator[Contest]:
    with closing(Contest(source, sizes)) as contest:
        yield contest


def medians(figures: list[Figure]) -> dict[tuple[str, str], float]:
    assert all(len(figure.samples) == 2 for figure in figures)
    return {(f.what, f.unit): f.median for f in figures if f.median is not None}


def test_a_run_is_the_first_piece_and_the_steps_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([3.0, 4.0, 8.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    run = whole("abc", begin=1.0)
    assert (run.first_s, run.step_s, run.decoded) == (2.0, 2.5, 2)


def test_the_port_is_measured_against_the_host_on_the_same_answer(
    contest: Contest, sizes: Sizes
) -> None:
    bench, number = contest.served({})
    sizes = dataclasses.replace(sizes, answer=12)
    found = medians(port.measure(bench, number, contest.source.name, sizes, ", so"))
    assert list(found) == [
        (f"{what}, {where}, so", "ms")
        for what in ("first token", "each token")
        for where in ("in the host", "through the notebook port", "added by the notebook port")
    ]
    for what in ("first token", "each token"):
        assert found[f"{what}, in the host, so", "ms"] > 0
        assert found[f"{what}, through the notebook port, so", "ms"] > 0
    client = Client(number, "mlxnb_wrong")
    with closing(client), pytest.raises(BenchFailed, match="401"):
        client.ask(contest.source.name, "Hi", 4)


def test_free_requests_are_measured_beside_one_that_is_held(bed: Bed, sizes: Sizes) -> None:
    found = medians(constrained.measure(bed, dataclasses.replace(sizes, answer=12)))
    rates = {unit: value for (what, unit), value in found.items() if "beside a held" in what}
    free = found["3 requests beside a free one", "tokens/s"]
    assert free > 0 and rates["tokens/s"] > 0 and rates["× beside a free one"] > 0


def test_what_is_measured_as_held_has_its_form(bed: Bed, sizes: Sizes) -> None:
    request = constrained.held(bed.request([5, 6, 7], 12, reuse=False), constrained.words_of(bed))
    bed.run(request)
    assert bed.runtime.tokenizer.decode(request.generated).lstrip().startswith("[")


def test_a_busy_cell_is_measured_elsewhere_and_within(here: Here, sizes: Sizes) -> None:
    cell = Here(busy.Cell())
    found = medians(busy.measure(here, cell, dataclasses.replace(sizes, answer=12)))
    assert found["a step, no cell runs", "ms"] > 0
    assert found["a step, a cell runs in another process", "× no cell"] > 0
    assert found["a step, a cell runs in the same process", "× no cell"] > 0
    assert not cell.made.runs


def test_a_core_is_left_to_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "cores", lambda: 8)
    assert busy.spare_core() == {"MLXNB_THREADS": "7"}
    monkeypatch.setattr(busy, "cores", lambda: 1)
    assert busy.spare_core() == {"MLXNB_THREADS": "1"}
