"""Weights in arenas: the same values, counted once and given back."""

from __future__ import annotations

import gc

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mlxnb.native.extension import extension
from mlxnb.native.memory import gather, spread
from tests.native.parity import needs_kernels, normal
from tests.native.test_model import tiny

pytestmark = needs_kernels


@pytest.mark.parametrize("chunk", [1, 5000, 2**26])
def test_values_stay_and_are_in_arenas(chunk: int) -> None:
    model = tiny("llama")
    nn.quantize(model, group_size=32, bits=4)
    before = dict(tree_flatten(model.parameters()))
    gather(model, chunk)
    after = dict(tree_flatten(model.parameters()))
    assert list(after) == list(before)
    for name, array in before.items():
        assert after[name] is not array
        assert after[name].dtype == array.dtype
        assert mx.array_equal(after[name], array)


def test_private_arrays_that_nobody_has_computed_are_moved_too() -> None:
    """Frequencies of some rotary embeddings are no parameters, and lazy."""
    model = nn.Sequential(nn.Linear(64, 64))
    model._frequencies = mx.arange(32) + 1.0
    gather(model)
    assert model._frequencies.tolist() == list(range(1, 33))


def test_types_of_all_sizes() -> None:
    arrays = [normal(3, 5).astype(t) for t in (mx.uint8, mx.bfloat16, mx.float32, mx.int64)]
    arrays += [mx.array(1.5), mx.zeros((0, 3)), mx.array([True, False])]
    mx.eval(arrays)
    arena = extension().Arena(4096)
    for copy, array in zip(arena.take(arrays), arrays, strict=True):
        assert copy.dtype == array.dtype
        assert copy.shape == array.shape
        assert mx.array_equal(copy, array)
        assert mx.array_equal(copy + copy, array + array)


def test_what_does_not_fit_is_refused() -> None:
    array = mx.zeros((100,))
    mx.eval(array)
    arena = extension().Arena(448)
    arena.take([array])
    with pytest.raises(ValueError, match="do not fit"):
        arena.take([array])


def test_an_array_of_two_modules_is_moved_once() -> None:
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
    model.layers[1].weight = model.layers[0].weight
    gather(model)
    assert model.layers[1].weight is model.layers[0].weight


def test_memory_is_counted_once_and_given_back() -> None:
    gc.collect()
    before = mx.get_active_memory()
    model = tiny("llama", hidden_size=256, intermediate_size=1024)
    mx.eval(model.parameters())
    loaded = mx.get_active_memory()
    mx.reset_peak_memory()
    gather(model, 2**20)
    assert mx.get_active_memory() == pytest.approx(loaded, rel=0.05)
    assert mx.get_peak_memory() < loaded + 2 * 2**20
    del model
    gc.collect()
    assert mx.get_active_memory() <= before


def test_a_copy_begins_with_a_cache_line() -> None:
    arrays = [normal(300, 7), normal(11).astype(mx.float16)]
    for array in arrays:
        copy = spread(array)
        assert mx.array_equal(copy, array)
        assert np.asarray(memoryview(copy)).ctypes.data % 64 == 0


def test_a_copy_is_updated_in_place() -> None:
    copy = spread(mx.zeros((1 << 20,)))
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    copy[5:7] = mx.ones(2)
    mx.eval(copy)
    assert mx.get_peak_memory() < before + 1000
    assert copy[4:8].tolist() == [0, 1, 1, 0]
