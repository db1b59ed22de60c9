"""What a model can do is tried out on it, and remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_map
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache

from mlxnb.engine import probe
from mlxnb.engine.probe import can_batch, examine

from .running import VOCAB, Engine, prompt_of, tiny


class Around:
    """A model with something wrong about it."""

    def __init__(self, model: Any | None = None) -> None:
        self.model = tiny() if model is None else model
        self.layers = self.model.layers
        self.calls = 0

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        self.calls += 1
        out: mx.array = self.model(inputs, cache=cache)
        return out


class Unmergeable(Around):
    """Its caches cannot be put together."""

    def make_cache(self) -> list[Any]:
        class Plain(KVCache):  # type: ignore[misc]
            merge = property()

        return [Plain() for _ in self.layers]


class Misplaced(Around):
    """It forgets about padding: each row's positions begin where the longest row's do."""

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        for layer in cache:
            if hasattr(layer, "left_padding"):
                layer.offset = mx.zeros_like(layer.offset) + layer._idx
        return super().__call__(inputs, cache)


class Unmasked(Around):
    """It sees padding: rows of a batch attend to what is not there."""

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        for layer in cache:
            if hasattr(layer, "left_padding"):
                layer.left_padding = mx.zeros_like(layer.left_padding)
        return super().__call__(inputs, cache)


class Crossed(Around):
    """It mixes rows up."""

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        return super().__call__(inputs, cache)[::-1]


class Sliding(Around):
    def make_cache(self) -> list[Any]:
        return [RotatingKVCache(max_size=64) for _ in self.layers]


def half(dtype: mx.Dtype) -> Any:
    model = tiny()
    model.update(tree_map(lambda p: p.astype(dtype), model.parameters()))
    return model


def test_a_plain_model_can_be_rewound_and_batched() -> None:
    abilities = examine(tiny(), VOCAB)
    assert abilities.batchable and abilities.depth == 2
    assert [(s.heads, s.key_dim, s.value_dim) for s in abilities.layout.planes] == [(2, 16, 16)] * 2


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
def test_rounding_in_half_precision_is_no_fault(dtype: mx.Dtype) -> None:
    abilities = examine(half(dtype), VOCAB)
    assert abilities.batchable
    assert {s.dtype for s in abilities.layout.planes} == {dtype}


@pytest.mark.parametrize("kind", [Unmergeable, Misplaced, Unmasked, Crossed])
def test_a_model_that_answers_otherwise_in_a_batch_is_not_batched(kind: type[Around]) -> None:
    assert not examine(kind(), VOCAB).batchable


def test_a_small_vocabulary_of_even_chances_hides_nothing() -> None:
    """Weights that were never scaled: each probability is small, and so is each difference."""
    from mlx_lm.utils import _get_classes
    from models.tiny import config_of

    config = config_of("llama", 2000)
    model_class, arguments = _get_classes(config)
    mx.random.seed(0)
    plain = model_class(arguments.from_dict(config))
    assert can_batch(plain, 2000)
    assert not can_batch(Crossed(plain), 2000)


@pytest.mark.parametrize("make", [lambda: RotatingKVCache(8), lambda: ArraysCache(2)])
def test_other_kinds_of_cache_cannot_be_rewound(make: Any) -> None:
    from mlxnb import mlxlm

    assert not mlxlm.rewindable([KVCache(), make()])
    assert not mlxlm.rewindable([])
    assert mlxlm.rewindable([KVCache(), KVCache()])


def test_a_sliding_model_is_served_in_batches_and_from_checkpoints(bare: Engine) -> None:
    bare.install("tiny", Sliding)
    runtime = bare.core.runtime("tiny")
    assert (runtime.reuse, runtime.batchable) == ("checkpoint", True)
    requests = [bare.request(prompt_of(20 + 7 * n, seed=n), 6) for n in range(3)]
    bare.run(*requests)
    bare.run(again := bare.request(requests[0].prompt, 6))
    assert again.cached == 19 and again.generated == requests[0].generated
    assert max(bare.models["tiny"].widths) == 3


def test_what_cannot_be_batched_runs_one_at_a_time(bare: Engine) -> None:
    bare.install("tiny", Unmergeable)
    assert not bare.core.runtime("tiny").batchable
    requests = [bare.request(prompt_of(20 + n, seed=n), 5) for n in range(3)]
    bare.run(*requests)
    assert [request for request, _ in bare.ended] == requests
    assert max(bare.models["tiny"].widths) == 1


# --- memory of it -----------------------------------------------------------------------------


def test_the_answer_is_remembered(tmp_path: Path) -> None:
    note, model = tmp_path / "deep" / "note.json", Around()
    assert examine(model, VOCAB, note).batchable
    first, model.calls = model.calls, 0
    assert examine(model, VOCAB, note).batchable
    assert model.calls < first


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"versions": "mlx 0.1", "batchable": false}'])
def test_a_note_of_other_versions_or_none_is_not_believed(tmp_path: Path, text: str) -> None:
    note = tmp_path / "note.json"
    note.write_text(text)
    assert examine(tiny(), VOCAB, note).batchable
    assert json.loads(note.read_text())["batchable"] is True


def test_a_folder_that_cannot_be_written_is_no_fault(tmp_path: Path) -> None:  # C21
    (tmp_path / "file").write_text("")
    assert examine(tiny(), VOCAB, tmp_path / "file" / "note.json").batchable


def test_an_error_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been a lack of memory."""
    note = tmp_path / "note.json"

    def fail(*_: Any) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(probe, "_in_batch", fail)
    assert not examine(tiny(), VOCAB, note).batchable
    monkeypatch.undo()
    assert examine(tiny(), VOCAB, note).batchable


@pytest.mark.usefixtures("paged")
def test_paging_is_tried_once_and_remembered(tmp_path: Path) -> None:
    note = tmp_path / "note.json"
    assert examine(tiny(), VOCAB, note).paged
    assert json.loads(note.read_text())["paged"] is True
    kept = json.loads(note.read_text())
    note.write_text(json.dumps({**kept, "paged": False}))
    found = examine(tiny(), VOCAB, note)
    assert not found.paged and found.batchable


@pytest.mark.usefixtures("paged")
def test_paging_need_not_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLXNB_PAGED")
    assert examine(tiny(), VOCAB).paged


def test_paging_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXNB_PAGED", "0")
    assert not examine(tiny(), VOCAB).paged


def test_without_kernels_that_read_in_place_nothing_is_paged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLXNB_PAGED", "1")
    monkeypatch.setenv("MLXNB_NATIVE", "0")
    monkeypatch.delenv("MLXNB_METAL", raising=False)
    assert not examine(tiny(), VOCAB).paged


def test_what_does_not_attend_by_the_usual_name_is_not_paged() -> None:
    """Its own module has no attention to rebind."""
    assert not examine(Around(), VOCAB).paged
