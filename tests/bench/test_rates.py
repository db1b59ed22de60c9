from __future__ import annotations

import dataclasses

import pytest

from mlxnb.bench import rates
from mlxnb.bench.figures import Figure
from mlxnb.bench.prompts import Prompts
from mlxnb.bench.sizes import Sizes

from .here import Here, Library


def measured(ours: Here, library: Library, sizes: Sizes) -> dict[tuple[str, str], Figure]:
    found = rates.measure(ours, {"mlx-lm": Here(library)}, sizes, Prompts(100), None)
    return {(figure.what, figure.who): figure for figure in found}


def test_each_context_has_a_rate_of_prefill_and_of_decode(here: Here, sizes: Sizes) -> None:
    found = measured(here, Library(0.001, 0.01), sizes)
    names = [f"{what} {n}" for n in (24, 64) for what in ("prefill of", "decode after")]
    assert set(found) == {(name, who) for name in names for who in ("mlxnb", "mlx-lm")}
    assert all(len(figure.samples) == sizes.rounds for figure in found.values())
    assert all(sample > 0 for figure in found.values() for sample in figure.samples)


def test_rates_are_tokens_over_their_seconds(here: Here, sizes: Sizes) -> None:
    found = measured(here, Library(0.001, 0.01), sizes)
    assert found["prefill of 64", "mlx-lm"].samples == pytest.approx([1000.0] * 2)
    assert found["decode after 64", "mlx-lm"].samples == pytest.approx([100.0] * 2)


def test_all_are_given_the_same_prompts_in_turn(here: Here, sizes: Sizes) -> None:
    one, other = Library(0.001, 0.01), Library(0.001, 0.01)
    rivals = {"mlx-lm": Here(one), "llama-cpp": Here(other)}
    fed: list[list[int]] = []

    def ours(function: object, prompt: list[int], decoded: int) -> object:
        fed.append(prompt)
        return here(function, prompt, decoded)  # type: ignore[arg-type]

    rates.measure(ours, rivals, sizes, Prompts(100), None)  # type: ignore[arg-type]
    assert [len(prompt) for prompt in fed] == [24, 24, 64, 64]
    assert fed == one.given == other.given
    assert len({tuple(prompt) for prompt in fed}) == 4


def test_who_takes_long_is_asked_less_often(here: Here, sizes: Sizes) -> None:
    found = measured(here, Library(0.5, 2.0), dataclasses.replace(sizes, rounds=4))
    rounds = {key: len(figure.samples) for key, figure in found.items()}
    assert rounds["prefill of 24", "mlx-lm"] == 3  # each takes 12 + 6 s
    assert rounds["prefill of 64", "mlx-lm"] == 1  # 32 + 6 s
    assert rounds["prefill of 64", "mlxnb"] == 4


def test_who_would_take_too_long_is_left_out_with_its_reason(here: Here, sizes: Sizes) -> None:
    library = Library(0.5, 2.0)
    found = measured(here, library, dataclasses.replace(sizes, patience=37.0))
    assert {len(prompt) for prompt in library.given} == {24}
    assert found["prefill of 64", "mlx-lm"].samples == ()
    assert found["decode after 64", "mlx-lm"].note == "not run: it would take about 38 s"
