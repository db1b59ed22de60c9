from __future__ import annotations

from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from mlxnb.models.gguf.blocks import BY_NAME, FORMATS, GROUP, to_affine, to_float

from .tiny import random_rows

QUANTIZED = [block for block in FORMATS.values() if block.bits]


@pytest.mark.parametrize("block", QUANTIZED, ids=lambda block: block.name)
def test_affine_weights_are_what_ggml_dequantizes(block: object) -> None:
    rows = random_rows(block.name)
    packed, scales, biases = (mx.array(part) for part in to_affine(block, rows))
    found = mx.dequantize(
        packed,
        scales.astype(mx.float32),
        biases.astype(mx.float32),
        group_size=GROUP,
        bits=block.bits,
    )
    wanted = gguf.quants.dequantize(rows, Type[block.name])
    np.testing.assert_allclose(np.array(found), wanted, rtol=0, atol=2e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_blocks_of_one_scale_are_kept_exactly(name: str) -> None:
    rows = random_rows(name)
    packed, scales, biases = (mx.array(part) for part in to_affine(BY_NAME[name], rows))
    bits = BY_NAME[name].bits
    f32 = mx.float32
    found = mx.dequantize(packed, scales.astype(f32), biases.astype(f32), GROUP, bits)
    wanted = gguf.quants.dequantize(rows, Type[name])
    np.testing.assert_allclose(np.array(found), wanted, rtol=1e-3, atol=2e-6)


def test_six_bits_become_halves() -> None:
    rows = random_rows("Q6_K")
    wanted = gguf.quants.dequantize(rows, Type.Q6_K)
    np.testing.assert_array_equal(to_float(BY_NAME["Q6_K"], rows), wanted.astype("<f2"))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
def test_packing_is_that_of_mlxs_own_reader(name: str, tmp_path: Path) -> None:
    rows = random_rows(name)
    writer = gguf.GGUFWriter(tmp_path / "one.gguf", "llama")
    writer.add_tensor("one.weight", rows, raw_dtype=Type[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = mx.load(str(tmp_path / "one.gguf"))
    packed, scales, biases = to_affine(BY_NAME[name], rows)
    assert np.array_equal(np.array(read["one.weight"]), packed)
    assert np.array_equal(np.array(read["one.scales"]), scales)
    np.testing.assert_allclose(np.array(read["one.biases"]), biases, rtol=1e-3)
