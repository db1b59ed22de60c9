"""The parts on a tiny model: what they count is right, and every time is there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mlxnb.bench import beside, disk, first_token, kv, roofline, together
from mlxnb.bench.bed import Bed
from mlxnb.bench.cost import ModelCost, cost_of
from mlxnb.bench.figures import Figure
from mlxnb.bench.prompts import Prompts
from mlxnb.bench.sizes import Sizes
from mlxnb.models.source import ModelSource

from .here import Here, Library


def by_name(figures: list[Figure], unit: str) -> dict[str, tuple[float, ...]]:
    ours = [figure for figure in figures if figure.who == "mlxnb"]
    return {figure.what: figure.samples for figure in ours if figure.unit == unit}


# --- first tokens -----------------------------------------------------------------------------


def test_first_tokens_are_of_prompts_cached_as_far_as_they_say(here: Here, sizes: Sizes) -> None:
    found = first_token.measure(here, {}, sizes, Prompts(100))
    answered = first_token.STEPS  # their KV is there too, but for the last token of the answer
    assert by_name(found, "tokens cached") == {
        "64 cached + 5 new, own session": (64.0 + answered,) * 2,
        "64 cached + 5 new, another session": (64.0,) * 2,
        "64 again, another session": (63.0,) * 2,
        "second conversation, 48 common + 5": (48.0,) * 2,
    }


def test_first_tokens_are_told_in_seconds_and_in_steps(here: Here, sizes: Sizes) -> None:
    found = first_token.measure(here, {}, sizes, Prompts(100))
    seconds, steps = by_name(found, "s"), by_name(found, "decode steps")
    again = "64 again, another session"
    expected = [a / b for a, b in zip(seconds[again], seconds["a decode step there"], strict=True)]
    assert steps[again] == pytest.approx(expected)


def test_a_library_that_keeps_its_sequence_is_measured_too(here: Here, sizes: Sizes) -> None:
    rivals = {"llama-cpp": Here(Library(0.001, 0.01)), "mlx-lm": Here(Library(1, 1))}
    found = first_token.measure(here, rivals, sizes, Prompts(100))
    theirs = {(f.what, f.unit): f.median for f in found if f.who == "llama-cpp"}
    assert theirs["64 tokens, cold", "s"] == pytest.approx(0.064)
    assert theirs["64 cached + 5 new, own session", "s"] == pytest.approx(0.005)
    assert not [f for f in found if f.who == "mlx-lm"]


# --- KV ---------------------------------------------------------------------------------------


def test_paged_conversations_hold_their_common_prefix_once(
    paged: None, bed: Bed, sizes: Sizes
) -> None:
    sizes = dataclasses.replace(sizes, prefix=160)  # two of them do not fit into a slab
    found = kv.measure(bed, sizes)
    slab = bed.core.store.space(bed.runtime.key).pool.slab_bytes
    held = by_name(found, "bytes")
    assert held["a conversation of 160, paged"][0] == pytest.approx(slab, rel=0.01)
    assert by_name(found, "× one")["two with 160 common, paged"][0] == pytest.approx(1, abs=0.01)


def test_a_paged_hit_copies_nothing(paged: None, bed: Bed, sizes: Sizes) -> None:
    held = by_name(kv.measure(bed, sizes), "bytes")
    assert held["copied by a hit of 64, another session, paged"] == (0,)
    assert held["copied by a hit of 64, own session, paged"] == (0,)


def test_a_contiguous_hit_copies_what_it_shares_into_blocks_and_out(
    contiguous: None, bed: Bed, sizes: Sizes
) -> None:
    held = by_name(kv.measure(bed, sizes), "bytes")
    token = bed.core.store.space(bed.runtime.key).pool.token_bytes
    assert held["copied by a hit of 64, another session, contiguous"] == (2 * 64 * token,)
    assert held["copied by a hit of 64, own session, contiguous"] == (0,)
    assert held["two with 64 common, contiguous"] > held["a conversation of 64, contiguous"]


def test_what_was_measured_is_forgotten(bed: Bed, sizes: Sizes) -> None:
    kv.measure(bed, sizes)
    assert bed.core.store.nbytes == 0


# --- disk -------------------------------------------------------------------------------------


def test_what_comes_from_disk_is_all_of_the_prompt(
    source: ModelSource, sizes: Sizes, tmp_path: Path
) -> None:
    bed = Bed.open(source, tmp_path / "kv")
    try:
        found = disk.measure(bed, sizes)
    finally:
        bed.close()
    assert by_name(found, "tokens from disk")["64 tokens, from disk"] == (63, 63)
    assert {f.unit for f in found} == {"s", "× faster than cold", "tokens from disk"}


# --- more than one request --------------------------------------------------------------------


def test_concurrent_requests_are_compared_with_one(bed: Bed, sizes: Sizes) -> None:
    found = together.measure(bed, sizes, None)
    totals, ratios = by_name(found, "tokens/s"), by_name(found, "× one")
    assert list(ratios) == ["1 request", "3 requests"]
    assert ratios["1 request"] == (1.0, 1.0)
    pairs = zip(totals["3 requests"], totals["1 request"], strict=True)
    assert ratios["3 requests"] == pytest.approx([three / one for three, one in pairs])


def test_a_short_request_beside_a_long_one_is_measured_while_both_decode(
    paged: None, bed: Bed, sizes: Sizes
) -> None:
    found = beside.measure(bed, sizes)
    slab = bed.core.store.space(bed.runtime.key).pool.slab_bytes
    assert by_name(found, "bytes")["32 beside 96, paged"] == pytest.approx([slab] * 2, rel=0.2)
    assert by_name(found, "× the sum of both alone")["32 beside 96, paged"] == pytest.approx(
        [0.5] * 2, rel=0.2
    )
    assert all(len(f.samples) == 2 and f.samples[0] > 0 for f in found)


# --- the roofline -----------------------------------------------------------------------------


def test_the_roofline_is_measured_in_reads_and_products() -> None:
    found = roofline.measure(rounds=2, stream=2**20, side=64)
    assert {f.unit for f in found} == {"GB/s", "GFLOP/s"}
    assert all(len(f.samples) == 2 and f.samples[0] > 0 for f in found)
    best = roofline.roof(found)
    assert best is not None
    assert best[1] == 1e9 * max(f.high or 0 for f in found if f.unit == "GFLOP/s")


def test_half_a_roofline_is_none() -> None:
    assert roofline.roof(roofline.measure(1, stream=2**20, side=64)[:1]) is None


# --- what tokens cost -------------------------------------------------------------------------


def test_a_models_cost_is_counted_from_its_matrices(bed: Bed, source: ModelSource) -> None:
    attention = 64 * 64 + 2 * 64 * 32 + 64 * 64  # queries, keys and values, output
    matrices = 2 * (attention + 3 * 64 * 96)
    norms = 5 * 64
    vocabulary = bed.runtime.vocab
    assert cost_of(bed, source) == ModelCost(
        weight_bytes=4 * (matrices + norms + 64 * vocabulary),
        token_bytes=2 * 2 * 2 * 16 * 4,
        weights=matrices,
        head=64 * vocabulary,
        pair=2 * 2 * 4 * (16 + 16),
    )


def test_the_cost_of_a_prompt_and_of_a_token_after_it() -> None:
    cost = ModelCost(weight_bytes=1000, token_bytes=10, weights=500, head=100, pair=4)
    prefill, decode = cost.prefill(10), cost.decode(context=20, rows=2)
    assert (prefill.nbytes, prefill.operations) == (100 + 10, 1000 + 20 + 22)
    assert (decode.nbytes, decode.operations) == (500 + 200, 1200 + 80)
