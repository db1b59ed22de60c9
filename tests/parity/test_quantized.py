"""Keys and values in a few bits: reuse is exact, and models that cannot bear it are refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlxnb.errors import InvalidOption, UnsupportedModel
from mlxnb.sessions.local import LocalEngine

from .bench import NEVER, Bench
from .families import FAMILIES, VOCABULARY, WIDE, Family
from .settled import assert_settled
from .spy import COARSE, assert_parity, cold, watch
from .world import World

FolderOf = Callable[[str], Path]
TIGHT = [300_000, 600_000, 2**26]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose heads are wide enough for a scale a group."""
    return Family("llama", WIDE).save(tmp_path / "wide")


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.usefixtures("random_chunks")
def test_warm_is_cold(engine: LocalEngine, folder: Path, bits: int) -> None:
    """The cold run is quantized too, from its first token on; see ``COARSE``."""
    engine.load(folder, progress=False, kv_bits=bits)
    world = World(engine, folder, f"{bits} bits", TIGHT, kv_bits=bits)
    for _ in range(20):
        world.step()
    for person in world.people[:2]:
        world.replay(person)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_one_wrong_token_shows(engine: LocalEngine, folder: Path, bits: int) -> None:
    """What warm and cold may differ by is a fraction of what a mistake makes."""
    spy = watch(engine, engine.load(folder, progress=False, kv_bits=bits).name)
    chance = random.Random(bits)
    gaps = []
    for _ in range(16):
        tokens = [chance.randrange(VOCABULARY) for _ in range(64)]
        place = chance.randrange(60)
        sound = cold(engine, spy, tokens)
        tokens[place] = (tokens[place] + chance.randrange(1, VOCABULARY)) % VOCABULARY
        wrong = cold(engine, spy, tokens)
        gaps.append(np.abs(wrong - sound)[place + 1 :].max() / np.abs(sound).max())
    assert min(gaps) > 2 * COARSE


def test_the_demo_model_is_reused_in_eight_bits(engine: LocalEngine, demo_path: Path) -> None:
    """Which tells chunks apart: a value on the edge falls to the other side."""
    info = engine.load("demo", progress=False, kv_bits=8)
    assert info.reuse == "prefix"
    session = engine.session(info.name, temperature=0.0, max_tokens=3)
    first = session.send("Name a big city.")
    second = session.send("And another?")
    assert second.cached_tokens >= first.prompt_tokens + first.output_tokens - 1


def test_it_takes_a_fraction_of_the_bytes_and_says_so(engine: LocalEngine, folder: Path) -> None:
    sizes = {}
    for bits in (None, 8, 4):
        info = engine.load(folder, progress=False, kv_bits=bits)
        assert info.kv_bits == bits and info.reuse == "prefix"
        assert bits is None or not info.batchable
        sizes[bits] = engine.core.store.space(info.fingerprint).pool.token_bytes
    assert sizes[4] < sizes[8] < sizes[None] / 2.5


def test_bits_are_part_of_what_names_the_kv(engine: LocalEngine, folder: Path) -> None:
    names = {engine.load(folder, progress=False, kv_bits=b).fingerprint for b in (None, 8, 4)}
    assert len(names) == 3
    assert len(engine.models().query("loaded")) == 1


def test_beside_states_that_stay_as_they_are(engine: LocalEngine, tmp_path: Path) -> None:
    """A model of both kinds: what keeps all tokens is quantized, the rest is not."""
    config = FAMILIES["lfm2"].config | WIDE | {"block_dim": 64}
    path = Family("lfm2", config, rewindable=False).save(tmp_path / "lfm2")
    name = engine.load(path, progress=False, kv_bits=8).name
    spy = watch(engine, name)
    session = engine.session(name, logit_bias=NEVER)
    turns = [session.send(text, max_tokens=6) for text in ("hello there", "and on")]
    assert turns[1].cached_tokens == turns[0].prompt_tokens + turns[0].output_tokens - 1
    assert_parity(engine, spy, [engine.ledger[turn.id] for turn in turns], greedy=False)
    assert_settled(engine)


@pytest.mark.parametrize("name", ["mamba2", "gpt_oss", "gemma2", "llama"])
def test_who_cannot_bear_it_is_refused_and_nothing_has_changed(
    engine: LocalEngine, folder_of: FolderOf, name: str
) -> None:
    """No KV at all; sinks; an attention of its own; heads of 12 values."""
    bench = Bench(engine, folder_of(name))
    before = bench.session().send("hello there", max_tokens=3)
    with pytest.raises(UnsupportedModel, match="cannot keep its KV in 4 bits"):
        engine.load(folder_of(name), progress=False, kv_bits=4)
    assert bench.session().send("hello there", max_tokens=3).tokens == before.tokens


@pytest.mark.parametrize("bits", [3, 0, 16, True, "4"])
def test_other_numbers_of_bits_are_refused(engine: LocalEngine, folder: Path, bits: object) -> None:
    with pytest.raises(InvalidOption, match="kv_bits"):
        engine.load(folder, progress=False, kv_bits=bits)  # type: ignore[arg-type]
