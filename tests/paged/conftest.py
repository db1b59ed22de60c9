"""Every test that asks for ``kernels`` runs with MLX's own operations and with the native ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mlxnb import native
from mlxnb.cache.paged_kernels import Kernels, MlxKernels
from mlxnb.cache.paged_native import NativeKernels

MakeKernels = Callable[[], Kernels]


@pytest.fixture(params=["mlx", "native"])
def kernels(request: pytest.FixtureRequest) -> MakeKernels:
    if request.param == "mlx":
        return MlxKernels
    if not native.available():
        pytest.skip(str(native.reason()))
    return NativeKernels
