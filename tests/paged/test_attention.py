from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings

from mlxnb.cache.paged_attention import paged_attention
from paged.cases import EDGES, Case, any_case, long_way


def agrees(case: Case, dtype: mx.Dtype = mx.float32, bound: float = 1e-5) -> None:
    arguments = case.arrays(dtype)
    found = np.array(paged_attention(**arguments).astype(mx.float32))
    np.testing.assert_allclose(found, long_way(**arguments), atol=bound)


@pytest.mark.parametrize("case", EDGES, ids=str)
def test_edge_shapes(case: Case) -> None:
    agrees(case)


@settings(max_examples=40, deadline=None)
@given(any_case())
def test_any_shape(case: Case) -> None:
    agrees(case)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_half_precision(dtype: mx.Dtype) -> None:
    agrees(Case((40, 90), width=2, share=2, sinks=True), dtype, bound=2e-2)
